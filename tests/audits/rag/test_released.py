"""`llmfair rag` with labels and scores from files: those of Fair-RAG's form, and TREC runs; and its `--preset paper`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.rag.settings import RagSettings
from tests.audits.rag.test_rag import question, questions, ran, rows
from tests.cli.command import llmfair, refuses, table
from tests.cli.command import ran as done
from tests.servers import Reply, Server

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
    Path("other.run").write_text(
        "".join(f"{q} Q0 {d} {6 - n} {n} other\n" for q, of in items.items() for n, d in enumerate(of))
    )
    ran("-d", data, *"--retriever mine.json --retriever other.run --alpha 1 -k 2 -o run".split())
    figures = rows("run")
    assert {key[0] for key in figures} == {
        "mine-deterministic", "mine-1", "other-deterministic", "other-1", "gold",
    }  # fmt: skip
    with Path("run/samples/other-deterministic.tsv").open(newline="") as file:
        shown = [row["docno"] for row in csv.DictReader(file, delimiter="\t") if row["qid"] == "q1"]
    assert shown == ["q15", "q14"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--useful", "nowhere.tsv"), "there is no such file"),
        (("--useful", LABELS), "lacks item 'q13'"),
        (("--retriever", "short.json"), "has no scores for query 'q2'"),
        (("--retriever", "odd.json"), "has no item 'q99'"),
        (("--retriever", "nan.json"), "expected `float`"),
    ],
)
def test_files_that_do_not_fit_are_refused(given: tuple[str, str], says: str) -> None:
    data = questions(question("q1", "aabb"), question("q2", "aabb"))
    labelled({"q1": "110", "q2": "1100"})
    scores = {"q1": [[f"q1{n}", n] for n in range(4)], "q2": [[f"q2{n}", n] for n in range(4)]}
    Path("short.json").write_text(json.dumps({"q1": scores["q1"]}))
    Path("odd.json").write_text(json.dumps({**scores, "q1": [*scores["q1"], ["q99", 1]]}))
    Path("nan.json").write_text(json.dumps({**scores, "q1": [["q10", "nan"], *scores["q1"][1:]]}))
    found = llmfair("rag", "-d", data, *given)
    assert found.code == 2 and says in found.err and "Traceback" not in found.err


# What is injected into `fake:reader` is found


QUERIES, HALF = 40, 6


@pytest.fixture
def data() -> tuple[str, ...]:
    """Questions of six items of either label; those of the right one are useful."""
    names = [f"q{n:02}" for n in range(QUERIES)]
    path = questions(*(question(name, "ab" * HALF) for name in names))
    labels = labelled(dict.fromkeys(names, "10" * HALF))
    return ("-d", str(path), "--useful", str(labels), "-k", "3", "--alpha", "0", "-o", "run")


@pytest.mark.whole
def test_the_share_of_answers_that_are_read(data: tuple[str, ...]) -> None:
    """Beside useful items alone every answer that is read is right."""
    ran(*data, "-m", "fake:reader,follow=0.7")
    row = rows(Path("run"))["gold", "EU", "", "all"]
    assert float(row["low"]) <= 0.7 <= float(row["high"])
    assert float(row["high"]) - float(row["low"]) < 0.15


@pytest.mark.whole
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_weight_of_the_first_slot(data: tuple[str, ...], share: float) -> None:
    """Lists in any order: of the answers read from the first item alone, one bears its own label always, and another's
    where they have it in common; of the others no slot has more. So the slots differ by share × (1 − P(common))."""
    ran(*data, "-m", f"fake:reader,position={share}")
    found = rows(Path("run"))
    first, *others = (
        float(found["bm25-0", "AttributionAt(by=overlap)", slot, "all"]["value"]) for slot in "123"
    )
    common = (HALF - 1) / (2 * HALF - 1)
    assert (first - sum(others) / 2) / (1 - common) == pytest.approx(share, abs=0.08)


# `--preset paper`: what it asks for, what of it a generator cannot do, and what it cannot tell


PAPER = ("rag", "--no-report", "--no-cache", "--preset", "paper", "--retriever", "bm25-okapi")
NO_BEAMS = "has no num_beams: num_beams=4 is left out"


def credits(folder: str) -> set[tuple[str, str, str]]:
    return {
        (row["value"], row["conclusion"], row["reason"])
        for row in table(Path(folder, "metrics.csv"))
        if row["measure"].startswith(("EAR", "EAE-D"))
    }


def test_the_preset_is_what_the_paper_did() -> None:
    made = RagSettings.make("paper")
    assert made.retriever == ("bm25-okapi", "splade", "contriever") and made.alphas() == [1, 2, 4, 8]
    assert (made.samples, made.k, made.max_tokens) == (100, 5, 128) and made.preset_name() == "paper"
    assert made.attribution == "nli:FacebookAI/roberta-large-mnli" and made.hypothesis == "bare"


@pytest.mark.whole
def test_of_labels_no_entailment_is_asked_and_beams_are_left_out_where_there_are_none() -> None:
    for flags in (("-o", "run", "-v"), ("--dry-run",)):
        found = done(*PAPER, *flags)
        assert NO_BEAMS in found.out + found.err
    assert credits("run") == {("", "not_assessable", "label_output")}
    told = json.loads(Path("run/results.json").read_text())
    assert told["design"]["uncredited"] == "label_output"
    assert NO_BEAMS in json.loads(Path("run/manifest.json").read_text())["warnings"][0]
    assert "EAR and EAE-D are not assessable" in done("runs", "show", "run", "-v").out
    assert llmfair("runs", "check", "run").code == 0
    done("score", "run", "-o", "again", "--no-report", "-q")
    assert credits("again") == {("", "not_assessable", "label_output")}


def test_a_server_is_asked_without_beams_and_a_judge_of_the_bare_answer() -> None:
    items = [{"id": f"d{n}", "text": f"note {n} on {word}"} for n, word in enumerate(("bees", "wax", "bees"))]
    Path("q.jsonl").write_text(json.dumps({"id": "q", "input": "what?", "gold": "bees", "items": items}))
    claims = set()

    def answer(body: dict[str, Any], attempt: int) -> Reply:
        text = body["messages"][-1]["content"]
        if "Statement: " in text:
            claims.add(text.partition("Statement: ")[2].partition("\n")[0])
            return Reply("yes")
        return Reply("bees" if "bees" in text else "none")

    with Server(answer) as server:
        flags = ("-d", "q.jsonl", "-k", "2", "--samples", "3", *server.flags, "--attribution", "openai:judge")
        found = done(*PAPER, *flags, "-o", "run")
    assert NO_BEAMS in found.err and claims == {"bees"}
    assert {row["measure"] for row in table(Path("run/metrics.csv"))} >= {
        "EAR(by=judge)",
        "EAE-D(by=judge,norm=fair-rag,of=samples)",
    }


@pytest.mark.whole
def test_what_a_model_is_wished_to_have_is_no_demand_but_what_is_asked_of_it_is() -> None:
    refuses("fake:reader cannot do --backend-arg", "rag", "--backend-arg", "num_beams=4")
    found = done("listwise", "-n", "1", "--backend-arg", "num_beams?=4", "--no-report", "-o", "run", "-v")
    assert f"fake:biased {NO_BEAMS}" in found.out


def test_credit_bears_the_way_it_is_told() -> None:
    for flags, by in ((), "overlap"), (("--attribution", "none"), "nobody"):
        says = f"--measures EAR(by=nli): answers are credited by {by} here"
        refuses(says, "rag", "--measures", "EE-D,EAR(by=nli)", *flags)
    done("rag", "-q", "--no-report", "--measures", "EAR", "-o", "run")
    assert "EAR(by=overlap)" in {row["measure"] for row in table(Path("run/metrics.csv"))}
