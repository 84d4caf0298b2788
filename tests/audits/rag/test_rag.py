"""`llmfair rag` from end to end: labels, lists, outputs, figures; kept, resumed, judged, stopped, measured again."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from llmfair.audits.rag import design
from llmfair.audits.rag.design import bounded, cited, held, without_markers
from llmfair.audits.rag.settings import Utility
from llmfair.metrics.names import parse_measures
from llmfair.metrics.texts import UTILITIES
from llmfair.nouns import Document
from tests import models
from tests.batch_server import unwaiting as unwaiting
from tests.cli.command import Outcome, llmfair, only_run, refuses, table
from tests.cli.command import ran as done
from tests.folders import write
from tests.models import one_thread as one_thread
from tests.servers import Reply, Server

QUICK = ("rag", "-q", "--no-report", "--no-cache")


def ran(*more: str | Path, code: int = 0) -> Outcome:
    found = llmfair(*QUICK, *more)
    assert found.code == code, found.err
    return found


def rows(folder: str | Path, name: str = "metrics.csv") -> dict[tuple[str, ...], dict[str, str]]:
    return {
        (line["condition"], line["measure"], line["group"], line["query_id"]): line
        for line in table(Path(folder, name))
    }


def value(folder: str | Path, condition: str, measure: str) -> float:
    return float(rows(folder)[condition, measure, "", "all"]["value"])


def questions(*lines: dict[str, Any]) -> Path:
    path = Path("questions.jsonl")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def question(name: str, labels: str, gold: str = "a") -> dict[str, Any]:
    """A question whose items have these labels, a letter each; its first words are those of the first item."""
    words = ["river", "stone", "cloud", "lamp", "glass", "field"]
    items = [
        {"id": f"{name}{n}", "text": f"{words[n % 6]} {words[n % 5]} {n}", "label": label}
        for n, label in enumerate(labels)
    ]
    return {"id": name, "input": "river or stone?", "gold": gold, "items": items}


def corpus(texts: Sequence[str], queries: Mapping[str, str], gold: str) -> Path:
    """A folder of texts and of questions that one answer is right for."""
    folder = Path("corpus")
    folder.mkdir()
    write(folder / "docs.jsonl", (json.dumps({"doc_id": f"d{n}", "text": t}) for n, t in enumerate(texts)))
    write(folder / "queries.tsv", (f"{query_id}\t{text}" for query_id, text in queries.items()))
    write(folder / "answers.jsonl", (json.dumps({"query_id": one, "gold": gold}) for one in queries))
    return folder


def items_of(name: str, *texts: str, gold: str = "one") -> Path:
    """One question, whose items have these texts."""
    items = [{"id": f"{name}{n}", "text": text} for n, text in enumerate(texts)]
    return questions({"id": "q", "input": "one?", "gold": gold, "items": items})


def told(folder: str | Path, name: str = "results") -> Any:
    return json.loads(Path(folder, f"{name}.json").read_text())


def journal(folder: str | Path, name: str = "journal") -> list[dict[str, Any]]:
    lines = Path(folder, f"{name}.jsonl").read_text().splitlines()
    return [row for line in lines if "key" in (row := json.loads(line))]


def test_what_is_known_beforehand_is_found() -> None:
    """The one list by score always shows the same items, alpha 0 all alike; useful items alone give the right answer.

    The answers of eight queries scatter so widely that a plain interval of accuracy passes 1."""
    ran("--alpha", "0,4", "-o", "run", "--measures", "EE-D,EE-D(norm=raw),EE-R,EU,EU-change,EU(norm=ceiling)")
    assert value("run", "bm25-deterministic", "EE-D") == 1
    assert value("run", "bm25-0", "EE-D") == pytest.approx(0, abs=1e-9)
    assert value("run", "bm25-0", "EE-D(norm=raw)") == pytest.approx(25 / 20, abs=1e-9)
    assert value("run", "gold", "EE-R") == pytest.approx(1) and value("run", "gold", "EU") == 1
    assert value("run", "bm25-0", "EU") < value("run", "gold", "EU")
    assert value("run", "bm25-deterministic", "EU-change") == 0
    assert rows("run")["bm25-4", "EE-D", "", "all"]["alpha"] == "4.0"
    limits = [row for row in rows("run").values() if row["low"] and row["measure"] != "EE-D(norm=raw)"]
    assert all((-1 if row["measure"] == "EU-change" else 0) <= float(row["low"]) for row in limits)
    assert all(float(row["high"]) <= 1 for row in limits)


def test_a_stopped_run_goes_on_and_ends_as_an_undisturbed_one() -> None:
    ran("-o", "whole")
    ran("-o", "parts", "--max-calls", "300", code=3)
    assert done("score", "parts", "--no-report").out, "half a run has figures"
    ran("-o", "parts")
    for path in Path("whole").rglob("*"):
        if path.is_file() and path.name not in ("manifest.json", "journal.jsonl", ".lock"):
            ours, theirs = (Path("parts") / path.relative_to("whole")).read_text(), path.read_text()
            assert ours.replace("parts", "whole") == theirs, path
    asked = [row["key"] for row in journal("parts")]
    assert len(asked) == len({*asked}), "nothing is asked twice"
    assert llmfair("runs", "check", "whole").code == 0
    Path("whole/outputs.csv").write_text(Path("whole/outputs.csv").read_text().replace("tender", "tense"))
    assert llmfair("runs", "check", "whole").code != 0


@pytest.mark.whole
def test_another_alpha_retriever_or_query_moves_no_other_figure() -> None:
    ran("-o", "few", "--alpha", "1", "-n", "6")
    ran("-o", "more", "--alpha", "0,1,8")
    few, more = rows("few", "per_query.csv"), rows("more", "per_query.csv")
    shared = [key for key in few if key in more and not key[1].startswith("EU(norm=ceiling")]
    assert len(shared) > 50
    assert all(few[key]["value"] == more[key]["value"] for key in shared)


def test_queries_without_two_useful_items_are_dropped_and_counted() -> None:
    labels = {"q1": "aabbcc", "q2": "abbbcc", "q3": "bbbccc", "q4": "aaab"}
    found = ran("-d", questions(*(question(*of) for of in labels.items())), "--json").json
    assert [found["collection"][name] for name in ("kept", "dropped")] == [2, {"0": 1, "1": 1}]
    assert found["design"]["calls"] < 4 * (1 + 6) + 4 * 6 * 20
    reasons = {row["reason"] for row in found["rows"] if row["measure"] == "EU-change"}
    assert "too_few_queries" in reasons and found["verdict"]["status"] == "not assessable"


def test_profiles_shorter_than_the_list_and_profiles_of_useful_items_alone() -> None:
    found = ran("-d", questions(question("q1", "aab"), question("q2", "aaaaaa")), "-o", "run", "--json")
    assert found.json["status"] == "complete"
    exposure = rows("run", "per_query.csv")
    assert exposure["bm25-1", "EE-D", "", "q1"]["reason"] == "degenerate"


def test_utilities_have_names_and_bounds() -> None:
    assert {*get_args(Utility)} == {*UTILITIES}
    (eu, change, ceiling) = bounded(parse_measures("EU,EU-change,EU(norm=ceiling)"), "mae")
    assert [measure.definition.bounds for measure in (eu, change, ceiling)] == [(0, 4), (-4, 4), (0, 1)]
    (raw, unknown) = bounded(parse_measures("EE-D(norm=raw),EU"), "of another package")
    assert raw.definition.bounds[1] == unknown.definition.bounds[1] == math.inf


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--alpha nan", "--alpha"),
        ("--retriever bm25 --retriever bm25", "--retriever"),
        ("--useful nowhere.tsv", "there is no such file"),
        ("--stop-after labels --require EU>=0", "--stop-after ends before there is anything for --require"),
        ("--attribution overlab", "Did you mean 'overlap'?"),
        ("--attribution openay:x", "--attribution openay:x is unknown."),
        ("--attribution fake:redaer", "no simulated model 'fake:redaer'"),
        ("--attribution cited,overlap", "--attribution overlap is unknown"),
        ("--attribution cited --prompt rag/lamp-7", "prompt prompts/rag/lamp-7.toml numbers no items"),
        ("--measures EE-D,EAR(by=nli)", "--measures EAR(by=nli): answers are credited by overlap here"),
        ("--measures EAR(by=nli) --attribution none", "answers are credited by nobody here"),
    ],
)
def test_bad_settings_are_one_sentence_before_anything_is_asked(given: str, says: str) -> None:
    refuses(says, "rag", *given.split())
    assert not Path("runs").exists()


def test_a_right_answer_is_no_marker() -> None:
    given = ("--attribution", "cited", "-d", items_of("d", "one", gold="[1]"))
    refuses("query 'q' lacks a right answer without a number as in [1]", "rag", *given)


def test_a_gate_takes_the_limit_that_rare_losses_cannot_pass() -> None:
    """Nothing changes in 20 queries: the interval of t has no width, and a mean loss of .158 is not ruled out."""
    path = questions(*(question(f"q{n}", "aaaaaaaa") for n in range(20)))
    asked = ("-d", path, "--alpha", "2", "--samples", "2", "--require-interval", "--require")
    ran(*asked, "EU-change:bm25-2>=-0.2")
    refused = ran(*asked, "EU-change:bm25-2>=-0.1", code=4)
    assert "EU-change (bm25-2 setting) [-0.158, 0.189] reaches below -0.1" in refused.err
    less = ran("-d", path, "--alpha", "2", "--worst-loss", "0.2", "--json").json
    assert less["verdict"]["status"] == "kept"


def test_alphas_are_tested_from_the_largest() -> None:
    """The eight queries rule mean losses above .489, .528, .563 and .601 out at alpha 8, 4, 2 and 1."""
    found = ran("--alpha", "1,2,4,8", "--margin", "0.55", "--json").json
    concluded = {name: finding["conclusion"] for name, finding in found["findings"].items()}
    assert [concluded[f"bm25-{alpha}"] for alpha in (8, 4, 2, 1)] == ["within"] * 2 + ["inconclusive"] * 2
    assert found["verdict"]["status"] == "kept" and found["verdict"]["condition"] == "bm25-4"
    assert found["findings"]["bm25-4"]["lower"] == pytest.approx(-0.528, abs=5e-4)


def test_a_corpus_is_cut_to_what_the_retriever_finds_and_keeps_its_scores() -> None:
    """Three chunks of six hold words of the question; scores are those among all six."""
    texts = ["river stone", "river", "cloud lamp", "glass", "stone", "field field"]
    folder = corpus(texts, {"q1": "river stone", "q2": "cloud"}, "x")
    ran("-d", folder, "-o", "run", "--pool", "3", "--alpha", "1")
    found = [(row["query_id"], row["doc_id"], float(row["score"])) for row in table(Path("run/scores.csv"))]
    assert [doc_id for query_id, doc_id, _ in found if query_id == "q1"] == ["d0", "d1", "d4"]
    assert [doc_id for query_id, doc_id, _ in found if query_id == "q2"] == ["d2", "d0", "d1"]
    ran("-d", folder, "-o", "all", "--pool", "6", "--alpha", "1")
    whole = {(row["query_id"], row["doc_id"]): float(row["score"]) for row in table(Path("all/scores.csv"))}
    assert all(score == whole[query_id, doc_id] for query_id, doc_id, score in found)
    assert llmfair("runs", "check", "run").code == 0


# Labels and scores from files: those of Fair-RAG's form, and TREC runs; what is injected; `--preset paper`


LABELS = "labels.tsv"


def labelled(labels: dict[str, str]) -> Path:
    """A file of labels: by query, a digit for each of its items."""
    lines = ["qid\tpid\trelevance_label"]
    lines += [f"{q}\t{q}{n}\t{label}" for q, digits in labels.items() for n, label in enumerate(digits)]
    path = Path(LABELS)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_labels_of_a_file_need_no_questions_and_their_content_names_the_run() -> None:
    data = questions(question("q1", "aabbcc"), question("q2", "aabbcc"))
    path = labelled({"q1": "110000", "q2": "000011"})
    found = ran("-d", data, "--useful", path, "--alpha", "1", "-o", "run", "--json").json
    assert found["design"]["useful"] == LABELS and found["collection"]["kept"] == 2
    judged = [line.split() for line in Path("run/qrels.txt").read_text().splitlines()]
    assert [doc_id for _, _, doc_id, grade in judged if grade == "1"] == ["q10", "q11", "q24", "q25"]
    assert Path("run/gains.tsv").read_text().count("\n") == 1, "no gain was asked about"
    assert llmfair("runs", "check", "run").code == 0
    labelled({"q1": "110000", "q2": "110000"})
    changed = llmfair("rag", "-d", data, "--useful", path, "--alpha", "1", "-o", "run")
    assert changed.code != 0 and "useful" in changed.err


def test_scores_of_files_rank_and_name_their_settings() -> None:
    data = questions(question("q1", "aabbcc"), question("q2", "aabbcc"))
    items = {q: [f"{q}{n}" for n in range(6)] for q in ("q1", "q2")}
    Path("mine.json").write_text(
        json.dumps({q: [[d, 6 - n] for n, d in enumerate(of)] for q, of in items.items()})
    )
    lines = (f"{q} Q0 {d} {6 - n} {n} other\n" for q, of in items.items() for n, d in enumerate(of))
    Path("other.run").write_text("".join(lines))
    ran("-d", data, *"--retriever mine.json --retriever other.run --alpha 1 -k 2 -o run".split())
    figures = rows("run")
    assert {key[0] for key in figures} == {
        "mine-deterministic", "mine-1", "other-deterministic", "other-1", "gold",
    }  # fmt: skip
    with Path("run/samples/other-deterministic.tsv").open(newline="") as file:
        shown = [row["docno"] for row in csv.DictReader(file, delimiter="\t") if row["qid"] == "q1"]
    assert shown == ["q15", "q14"]


@pytest.mark.whole
@pytest.mark.parametrize(("model", "share"), [("follow=0.7", 0.0), ("position=0.5", 0.5)])
def test_what_is_injected_into_a_reader_is_found(model: str, share: float) -> None:
    """Beside useful items alone every answer that is read is right. Of the answers read from the first item alone, one
    bears its own label always, and another's where they have it in common: slots differ by share × (1 − P(common))."""
    names = [f"q{n:02}" for n in range(40)]
    path = questions(*(question(name, "ab" * 6) for name in names))
    labels = labelled(dict.fromkeys(names, "10" * 6))
    ran("-d", path, "--useful", labels, *"-k 3 --alpha 0 -o run -m".split(), f"fake:reader,{model}")
    figures = rows("run")
    if not share:
        row = figures["gold", "EU", "", "all"]
        assert float(row["low"]) <= 0.7 <= float(row["high"]) < float(row["low"]) + 0.15
    else:
        by_slot = (figures["bm25-0", "AttributionAt(by=overlap)", slot, "all"] for slot in "123")
        first, *others = (float(row["value"]) for row in by_slot)
        assert (first - sum(others) / 2) / (1 - 5 / 11) == pytest.approx(share, abs=0.08)


PAPER = ("rag", "--no-report", "--no-cache", "--preset", "paper", "--retriever", "bm25-okapi")
NO_BEAMS = "has no num_beams: num_beams=4 is left out"


def credits(folder: str) -> set[tuple[str, str, str]]:
    return {
        (row["value"], row["conclusion"], row["reason"])
        for row in table(Path(folder, "metrics.csv"))
        if row["measure"].startswith(("EAR", "EAE-D"))
    }


@pytest.mark.whole
def test_of_labels_no_entailment_is_asked_and_beams_are_left_out_where_there_are_none() -> None:
    for flags in (("-o", "run", "-v"), ("--dry-run",)):
        found = done(*PAPER, *flags)
        assert NO_BEAMS in found.out + found.err
    assert credits("run") == {("", "not_assessable", "label_output")}
    assert told("run")["design"]["uncredited"] == "label_output"
    assert NO_BEAMS in told("run", "manifest")["warnings"][0]
    assert "EAR and EAE-D are not assessable" in done("runs", "show", "run", "-v").out
    assert llmfair("runs", "check", "run").code == 0
    done("score", "run", "-o", "again", "--no-report", "-q")
    assert credits("again") == {("", "not_assessable", "label_output")}


def test_a_server_is_asked_without_beams_and_a_judge_of_the_bare_answer() -> None:
    path, claims = items_of("d", "note on bees", "note on wax", "more on bees", gold="bees"), set()

    def answer(body: dict[str, Any], attempt: int) -> Reply:
        text = body["messages"][-1]["content"]
        if "Statement: " in text:
            claims.add(text.partition("Statement: ")[2].partition("\n")[0])
            return Reply("yes")
        return Reply("bees" if "bees" in text else "none")

    with Server(answer) as server:
        flags = ("-d", str(path), "-k", "2", "--samples", "3", *server.flags, "--attribution", "openai:judge")
        found = done(*PAPER, *flags, "-o", "run")
    assert NO_BEAMS in found.err and claims == {"bees"}
    assert {row["measure"] for row in table(Path("run/metrics.csv"))} >= {
        "EAR(by=judge)", "EAE-D(by=judge,norm=fair-rag,of=samples)",
    }  # fmt: skip


# Which items an output is credited to: what it says itself, against outputs read by hand, or a model that judges


SHOWN = ("a", "b", "c")
ITEMS = {
    "a": Document("a", "", "The river Rhine flows through Basel."),
    "b": Document("b", "Basel", "A town."),
    "c": Document("c", "", "basel", {"label": ("comedy",)}),
}


@pytest.mark.parametrize(
    ("output", "answer", "items"),
    [
        ("Basel [2]", "Basel", "b"),
        ("Basel [1][3].", "Basel.", "ac"),
        ("Basel [1], [3]", "Basel", "ac"),
        ("Basel [1, 2].", "Basel.", "ab"),
        ("The river [1] flows [2] on", "The river flows on", "ab"),
        ("[2] Basel", "Basel", "b"),
        ("Basel [7] [0]", "Basel", ""),
        ("Basel", "Basel", ""),
        ("Basel [see above] (2)", "Basel [see above] (2)", ""),
        ("[1]", "", "a"),
        ("<empty>", "<empty>", ""),
    ],
)
def test_markers_credit_items_and_are_no_part_of_the_answer(output: str, answer: str, items: str) -> None:
    assert without_markers(output) == answer
    assert cited(output, SHOWN) == frozenset(items)


@pytest.mark.parametrize(
    ("output", "items"), [("basel", "ab"), ("Comedy", "c"), ("RHINE  flows", "a"), ("", ""), ("<empty>", "")]
)
def test_items_hold_an_output_in_any_case_and_labelled_ones_by_their_label(output: str, items: str) -> None:
    assert held(ITEMS)(output, SHOWN) == frozenset(items)


def test_a_citing_generator_is_scored_without_its_markers_and_credited_by_them() -> None:
    texts = ["Basel lies on the Rhine.", "The Rhine flows through Basel.", "Bern is a town.", "A lamp."]
    path = items_of("d", *texts, gold="Basel")

    def answer(body: dict[str, Any], attempt: int) -> Reply:
        """Basel and the first item that holds it; nothing without one."""
        found = re.search(r"^\[(\d)\] .*Basel", body["messages"][-1]["content"], re.MULTILINE)
        return Reply(f"Basel [{found[1]}]" if found else "unknown")

    flags = "-o run --attribution cited -k 2 --samples 3 --alpha 1".split()
    with Server(answer) as server:
        ran("-d", path, *flags, *server.flags)
    assert Path("run/qrels.txt").read_text().splitlines() == ["q 0 d0 1", "q 0 d1 1", "q 0 d2 0", "q 0 d3 0"]
    lists = [line for line in table(Path("run/outputs.csv")) if line["credited"] != "-"]
    assert lists and all((line["output"] == "unknown") == (line["utility"] == "0.0") for line in lists)
    for line in lists:
        shown = line["doc_ids"].split()
        assert line["credited"] == next((doc_id for doc_id in shown if doc_id in ("d0", "d1")), "")
    assert llmfair("runs", "check", "run").code == 0


CREDIT = "EAR(by={by}),EAE-D(by={by}),AttributionAt(by={by})"


def credit(folder: str, by: str) -> dict[tuple[str, ...], str]:
    return {
        (line["condition"], line["measure"].partition("(")[0], line["group"]): line["value"] or line["reason"]
        for line in table(Path(folder, "metrics.csv"))
        if f"by={by}" in line["measure"]
    }


@pytest.mark.whole
def test_a_simulated_judge_finds_what_labels_say_and_is_resumed_and_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged = ("--alpha", "1,8", "--attribution", "fake:reader", "--measures", CREDIT.format(by="judge"))
    ran("-o", "judged", *judged)
    ran("-o", "held", "--alpha", "1,8", "--measures", CREDIT.format(by="overlap"))
    found = credit("judged", "judge")
    assert len(found) == 4 * 7 and found == credit("held", "overlap")
    pairs = journal("judged", "attribution")
    abouts = [row["about"] for row in pairs]
    each = Counter((about["query_id"], *about["doc_ids"], about["output"]) for about in abouts)
    assert {*each.values()} == {1}
    counts = [told("judged")["judged"][name] for name in ("model", "by", "asked", "unparseable")]
    assert counts == ["fake:reader", "judge", len(each), 0]
    outputs, results = len(journal("judged")), told("judged")
    assert results["calls_made"] == results["design"]["calls"] == outputs + len(each)

    ran("-o", "parts", *judged, "--max-calls", f"{outputs + 9}", code=3)
    assert len(journal("parts", "attribution")) == 9
    ran("-o", "parts", *judged)
    for name in ("outputs.csv", "per_query.csv", "qrels.txt"):
        assert Path("parts", name).read_text().replace("parts", "judged") == Path("judged", name).read_text()
    keys = [row["key"] for row in journal("parts", "attribution")]
    assert len({*keys}) == len(keys) == len(pairs)
    monkeypatch.setattr(design, "backend_of", None)
    assert llmfair("runs", "check", "parts").code == 0
    path = Path("parts/attribution.jsonl")
    path.write_text(path.read_text().replace('"text":"yes"', '"text":"no"', 1))
    assert llmfair("runs", "check", "parts").code != 0


def test_what_cannot_be_read_is_left_out_and_counted_and_nothing_is_asked_of_no_answer() -> None:
    path, judged = items_of("d", "one: says 1", "two: says 1", "three: says 0", "four: says 0"), list[str]()

    def answer(body: dict[str, Any], attempt: int) -> Reply:
        text = body["messages"][-1]["content"]
        if "Statement:" not in text:
            return Reply("one" if "says 1" in text else " ... ")
        judged.append(text)
        return Reply("maybe" if "one: says" in text else "yes")

    flags = "-k 2 --alpha 1,8 --attribution openai:judge --max-invalid 1 --json -o run".split()
    with Server(answer) as server:
        counts = ran("-d", path, *server.flags, *flags).json["judged"]
    assert len(judged) == len({*judged}) <= 4 and all("Statement: one" in text for text in judged)
    assert (counts["asked"], counts["supported"], counts["unparseable"]) == (len(judged), len(judged) - 1, 1)
    lists = [line for line in table(Path("run/outputs.csv")) if " " in line["doc_ids"]]
    for line in lists:
        shown, empty = line["doc_ids"].split(), line["output"] == "<empty>"
        assert line["credited"] == ("" if empty else "-" if "d0" in shown else " ".join(shown)), line
    assert "1 answer is neither yes nor no" in done("runs", "show", "run", "-v").out
    assert llmfair("runs", "show", "run", "--invalid").out.count("neither yes nor no") == 1


def test_a_judge_beside_cited_is_asked_of_citations_alone() -> None:
    """d0 and d2 hold the answer, d1 does not; every answer cites its first two items."""
    path, judged = items_of("d", "says 1", "says 0", "also says 1"), list[str]()

    def answer(body: dict[str, Any], attempt: int) -> Reply:
        text = body["messages"][-1]["content"]
        if "Statement:" not in text:
            return Reply("one [1][2]" if "says 1" in text else "none [1]")
        judged.append(text)
        return Reply("yes" if "says 1" in text else "no")

    flags = ("-k", "3", "--samples", "3", "--alpha", "1", "--attribution", "cited,openai:judge")
    with Server(answer) as server:
        ran("-d", path, "-o", "run", *flags, *server.flags)
    assert len(judged) == 3 and all("Statement: one\n" in text for text in judged)
    lists = [line for line in table(Path("run/outputs.csv")) if len(line["doc_ids"].split()) == 3]
    for line in lists:
        cited = line["doc_ids"].split()[:2]
        assert line["credited"].split() == cited
        assert line["supported"].split() == [name for name in cited if name != "d1"]
    done("score", "run", "-o", "again", "--no-report", "-q")
    for folder in ("run", "again"):
        names = ("CitationPrecision", "CitationRecall", "EAR(by=cited)")
        of = [value(folder, "bm25-deterministic", name) for name in names]
        assert of == pytest.approx([len(lists[0]["supported"].split()) / 2, 1, 2 / 3])
    assert llmfair("runs", "check", "run").code == 0


# `--stop-after`: what there is by then is written, counted and checked, and the same command without it goes on


FLAGS = ("rag", "-q", "--no-report", "--no-cache", "--alpha", "1,8", "--attribution", "fake:reader")
BYPRODUCTS = ("manifest.json", "journal.jsonl", "attribution.jsonl", ".lock")


def planned(*more: str) -> int:
    return int(done(*FLAGS, "--dry-run", "--json", *more).json["calls"])


def asked(folder: Path) -> int:
    names = (path.stem for path in folder.glob("*.jsonl") if path.name != "texts.jsonl")
    return sum(len(journal(folder, name)) for name in names)


@pytest.mark.whole
def test_each_stop_has_what_there_is_by_then_and_the_whole_run_goes_on_in_its_folder() -> None:
    done(*FLAGS, "-o", "whole")
    counts, disparities = [], []
    for stop in ("retrieval", "labels", "outputs"):
        found = done(*[flag for flag in FLAGS if flag != "-q"], "--stop-after", stop)
        run = only_run()
        assert "Stopped where it was asked to. Without --stop-after the same command goes on" in found.err
        assert told(run)["status"] == told(run, "manifest")["status"] == "incomplete"
        assert llmfair("runs", "check", str(run)).code == 0
        scored = done("score", str(run), "-o", f"again-{stop}", "--no-report", "-q", "--json").json
        shown = {(row["measure"], row["condition"]): row["value"] for row in scored["rows"]}
        assert ("EE-D", "bm25-8") in shown and (("EE-R", "gold") in shown) == (stop != "retrieval")
        assert (("EU", "bm25-8") in shown) == (stop == "outputs")
        disparities.append(shown["EE-D", "bm25-8"])
        counts.append(asked(run))
        assert counts[-1] <= planned("--stop-after", stop)
        assert (run / "qrels.txt").read_text().count("\n") == (0 if stop == "retrieval" else 8 * 20)
        scores, ranked = table(run / "scores.csv"), (run / "rankings/bm25.run").read_text().splitlines()
        assert len(scores) == 8 * 20 == len(ranked)
        assert [line.split()[0] for line in ranked] == [row["query_id"] for row in scores], (
            "in the audit's order"
        )
        assert bool(table(run / "metrics.csv")) == (stop == "outputs")
    assert counts[:2] == [0, 8 * 21] and counts[2] > 300
    assert len({*disparities}) == 1, "what is shown hangs on no answer"
    assert told(run)["collection"]["kept"] == 8 and told(run)["judged"]["asked"] == 0
    done(*FLAGS)
    assert only_run() == run, "the same run"
    assert asked(run) == asked(Path("whole"))
    for path in Path("whole").rglob("*"):
        if path.is_file() and path.name not in BYPRODUCTS:
            ours = (run / path.relative_to("whole")).read_text().replace(run.name, "whole")
            assert ours == path.read_text(), path
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    found = done(*FLAGS, "--stop-after", "labels")
    assert "bm25-8" in found.out and "Stopped" not in found.err, "a finished run stays finished"
    assert {path: path.read_bytes() for path in before} == before


def test_labels_that_are_known_ask_nobody() -> None:
    folder = corpus([f"note {n}" for n in range(4)], {"q": "what note?"}, "two")
    (folder / "qrels.txt").write_text("q 0 d1 1\nq 0 d2 1\n")
    flags = ("-d", "corpus", "-k", "2", "--useful", "qrels", "--stop-after", "labels")
    done(*FLAGS, *flags, "-o", "run")
    assert asked(Path("run")) == 0 == planned(*flags)
    assert Path("run/qrels.txt").read_text().count(" 1\n") == 2


@pytest.mark.whole
def test_a_generator_on_this_machine_reads_as_many_of_its_own_tokens_as_its_answer_leaves(
    tmp_path: Path,
) -> None:
    models.needs_local()
    folder = models.causal(tmp_path / "mistral", max_position_embeddings=512)
    data = items_of("d", *(f"{n} " + "words of an item " * 60 for n in range(4)))
    short = "--alpha 1 --samples 2 --max-invalid 1 --max-tokens 8".split()
    flags = ("-d", str(data), "-m", f"hf:{folder}", *short)
    ran(*flags, "-o", "run")
    assert told("run", "manifest")["settings"]["lines"] == ["its own tokens", 512 - 8 - 64]
    refuses("reads 512 tokens, of which its answer takes 500", "rag", *flags[:-1], "500")
