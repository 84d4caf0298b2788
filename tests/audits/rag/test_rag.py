"""`llmfair rag` from end to end, offline: labels, lists, outputs, figures; kept, resumed, checked, measured again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from llmfair.audits.rag.design import bounded
from llmfair.audits.rag.settings import Utility
from llmfair.metrics.names import parse_measures
from llmfair.metrics.texts import UTILITIES
from tests.cli.command import Outcome, llmfair, table
from tests.folders import write

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


def corpus(
    texts: Sequence[str], queries: Mapping[str, str], gold: str, folder: Path = Path("corpus")
) -> Path:
    """A folder of texts and of questions that one answer is right for."""
    folder.mkdir()
    write(folder / "docs.jsonl", (json.dumps({"doc_id": f"d{n}", "text": t}) for n, t in enumerate(texts)))
    write(folder / "queries.tsv", (f"{query_id}\t{text}" for query_id, text in queries.items()))
    write(folder / "answers.jsonl", (json.dumps({"query_id": one, "gold": gold}) for one in queries))
    return folder


def test_what_is_known_beforehand_is_found() -> None:
    """The one list by score always shows the same items, alpha 0 all alike; useful items alone give the right answer."""
    ran("--alpha", "0,4", "-o", "run", "--measures", "EE-D,EE-D(norm=raw),EE-R,EU,EU-change")
    assert value("run", "bm25-deterministic", "EE-D") == 1
    assert value("run", "bm25-0", "EE-D") == pytest.approx(0, abs=1e-9)
    assert value("run", "bm25-0", "EE-D(norm=raw)") == pytest.approx(25 / 20, abs=1e-9)
    assert value("run", "gold", "EE-R") == pytest.approx(1) and value("run", "gold", "EU") == 1
    assert value("run", "bm25-0", "EU") < value("run", "gold", "EU")
    assert value("run", "bm25-deterministic", "EU-change") == 0
    assert rows("run")["bm25-4", "EE-D", "", "all"]["alpha"] == "4.0"


def test_a_stopped_run_goes_on_and_ends_as_an_undisturbed_one() -> None:
    ran("-o", "whole")
    ran("-o", "parts", "--max-calls", "300", code=3)
    ran("-o", "parts", "--max-calls", "300", code=3)
    ran("-o", "parts")
    for path in Path("whole").rglob("*"):
        if path.is_file() and path.name not in ("manifest.json", "journal.jsonl", ".lock"):
            ours, theirs = (Path("parts") / path.relative_to("whole")).read_text(), path.read_text()
            assert ours.replace("parts", "whole") == theirs, path
    asked = [json.loads(line)["key"] for line in Path("parts/journal.jsonl").read_text().splitlines()[1:]]
    assert len(asked) == len({*asked}), "nothing is asked twice"


@pytest.mark.whole
def test_the_journal_gives_the_files_and_the_files_the_figures() -> None:
    ran("-o", "run", "--alpha", "1,8")
    assert llmfair("runs", "check", "run").code == 0
    Path("run/outputs.csv").write_text(Path("run/outputs.csv").read_text().replace("tender", "tense"))
    assert llmfair("runs", "check", "run").code != 0


@pytest.mark.whole
def test_another_alpha_retriever_or_query_moves_no_other_figure() -> None:
    ran("-o", "few", "--alpha", "1", "-n", "6")
    ran("-o", "more", "--alpha", "0,1,8")
    few, more = rows("few", "per_query.csv"), rows("more", "per_query.csv")
    shared = [key for key in few if key in more and not key[1].startswith("EU(norm=ceiling")]
    assert len(shared) > 50
    assert all(few[key]["value"] == more[key]["value"] for key in shared)


def test_queries_without_two_useful_items_are_dropped_and_counted() -> None:
    path = questions(
        question("q1", "aabbcc"), question("q2", "abbbcc"), question("q3", "bbbccc"), question("q4", "aaab")
    )
    found = ran("-d", path, "--json").json
    assert found["collection"] | {"items": 0, "useful": 0, "useful_share": 0} == {
        "kept": 2, "dropped": {"0": 1, "1": 1}, "items": 0, "useful": 0, "useful_share": 0,
    }  # fmt: skip
    assert found["design"]["calls"] < 4 * (1 + 6) + 4 * 6 * 20
    reasons = {row["reason"] for row in found["rows"] if row["measure"] == "EU-change"}
    assert "too_few_queries" in reasons and found["verdict"]["status"] == "not assessable"


def test_profiles_shorter_than_the_list_and_profiles_of_useful_items_alone() -> None:
    found = ran("-d", questions(question("q1", "aab"), question("q2", "aaaaaa")), "-o", "run", "--json")
    assert found.json["status"] == "complete"
    exposure = rows("run", "per_query.csv")
    assert exposure["bm25-1", "EE-D", "", "q1"]["reason"] == "degenerate"


@pytest.mark.whole
def test_intervals_end_where_their_figures_do() -> None:
    """The answers of eight queries scatter so widely that a plain interval of accuracy passes 1."""
    ran("-o", "run", "--measures", "EE-D,EU,EU-change,EU(norm=ceiling)")
    of_all = [row for row in rows("run").values() if row["query_id"] == "all" and row["low"]]
    least = {"EU-change": -1.0}
    assert all(least.get(row["measure"], 0) <= float(row["low"]) for row in of_all)
    assert all(float(row["high"]) <= 1 for row in of_all)
    again = llmfair("score", "run", "-o", "again", "--no-report", "-q")
    assert again.code == 0, again.err
    assert float(rows("again")["bm25-deterministic", "EU", "", "all"]["high"]) <= 1


def test_every_utility_can_be_chosen() -> None:
    assert {*get_args(Utility)} == {*UTILITIES}


def test_of_ratings_utility_goes_further() -> None:
    (eu, change, ceiling) = bounded(parse_measures("EU,EU-change,EU(norm=ceiling)"), "mae")
    assert [one.definition.bounds for one in (eu, change, ceiling)] == [(0, 4), (-4, 4), (0, 1)]
    (raw, unknown) = bounded(parse_measures("EE-D(norm=raw),EU"), "of another package")
    assert raw.definition.bounds[1] == unknown.definition.bounds[1] == math.inf


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--alpha", "nan"), "--alpha"),
        (("--retriever", "bm25", "--retriever", "bm25"), "--retriever"),
        (("--utility", "accurracy"), "--utility"),
        (("--useful", "qrels"), "qrels"),
        (("-d", "sample"), "no questions with answers"),
        (("-m", "fake:biased"), "does not answer such questions"),
        (("--require", "P@20>=0.5"), "measure of lists"),
    ],
)
def test_bad_settings_are_one_sentence(given: tuple[str, ...], says: str) -> None:
    found = llmfair("rag", *given)
    assert found.code in (1, 2) and says in found.err and "Traceback" not in found.err
    if "-m" not in given:
        assert found.code == 2 and not Path("runs").exists()


def test_the_verdict_has_the_disparity_of_its_table() -> None:
    """Of five items always shown the sum of squares is 5."""
    ran("-o", "run", "--alpha", "4", "--measures", "EU-change,EE-D(norm=raw)")
    results = json.loads(Path("run/results.json").read_text())
    assert results["findings"]["bm25-4"]["disparity"] == value("run", "bm25-4", "EE-D(norm=raw)")
    beside = (
        f"EE-D(norm=raw) {value('run', 'bm25-4', 'EE-D(norm=raw)'):.3f}, where the one list by score has 5"
    )
    assert beside in results["verdict"]["sentence"]


def test_a_gate_takes_the_limit_that_rare_losses_cannot_pass() -> None:
    """Nothing changes in 20 queries: the interval of t has no width, and a mean loss of .158 is not ruled out."""
    path = questions(*(question(f"q{n}", "aaaaaaaa") for n in range(20)))
    asked = ("-d", path, "--alpha", "2", "--samples", "2", "--require-interval", "--require")
    ran(*asked, "EU-change:bm25-2>=-0.2")
    refused = ran(*asked, "EU-change:bm25-2>=-0.1", code=4)
    assert "EU-change (bm25-2 setting) [-0.158, 0.189] reaches below -0.1" in refused.err
    assert (
        ran("-d", path, "--alpha", "2", "--worst-loss", "0.2", "--json").json["verdict"]["status"] == "kept"
    )


def test_alphas_are_tested_from_the_largest() -> None:
    """The eight queries rule mean losses above .489, .528, .563 and .601 out at alpha 8, 4, 2 and 1."""
    found = ran("--alpha", "1,2,4,8", "--margin", "0.55", "--json").json
    concluded = {name: finding["conclusion"] for name, finding in found["findings"].items()}
    assert [concluded[f"bm25-{alpha}"] for alpha in (8, 4, 2, 1)] == ["within"] * 2 + ["inconclusive"] * 2
    assert found["verdict"]["status"] == "kept" and found["verdict"]["condition"] == "bm25-4"
    assert found["findings"]["bm25-4"]["lower"] == pytest.approx(-0.528, abs=5e-4)


def test_a_plan_says_from_how_many_queries_utility_can_be_kept() -> None:
    said = "takes 33 queries where no answer changes, 40 where changes have sd 0.1 (--margin 0.1); here are 8"
    for command in (("rag", "--dry-run"), ("plan", "rag")):
        assert said in llmfair(*command, "--margin", "0.1").out


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
