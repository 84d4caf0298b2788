"""Measures of runs that exist: by hand, against the audits that wrote the runs, and as `llmfair score` tells them."""

from __future__ import annotations

import csv
import gzip
import json
import math
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llmfair.audits.design import versions
from llmfair.audits.listwise import LISTWISE
from llmfair.audits.listwise.results import ListwiseFinding
from llmfair.audits.listwise.score import in_reach
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.scoring import DocumentCounts, ScoreOutcome, score
from llmfair.audits.subject import Subject
from llmfair.errors import RunConflict, UsageError
from llmfair.io.files import plain
from llmfair.nouns import Conclusion
from llmfair.results import Reach
from llmfair.settings.commands import ScoreSettings
from tests.cli.command import Snapshot, kept, llmfair, ran, refuses, table, transcript
from tests.finished import audit
from tests.folders import balanced, unequally_relevant, write, write_folder
from tests.hiring import write_applications
from tests.report.reading import read

pytestmark = pytest.mark.whole

SCORE = ("score", "my.run", "--qrels", "qrels.txt", "--groups", "groups.tsv")
RUN = "".join(f"q{q} Q0 {side}{q} {rank} {score} mine\n" for q in range(6) for rank, score, side in ((1, 2, "f"), (2, 1, "m")))  # fmt: skip
QRELS = "".join(f"q{q} 0 {'fm'[q % 2]}{q} 1\n" for q in range(6))
GROUPS = "".join(f"{side}{q}\tgender\t{group}\n" for q in range(6) for side, group in (("f", "female"), ("m", "male")))  # fmt: skip


@pytest.fixture(autouse=True)
def files() -> None:
    Path("my.run").write_text(RUN)
    Path("qrels.txt").write_text(QRELS)
    Path("groups.tsv").write_text(GROUPS)


def test_what_does_not_meet_is_counted_below_the_table_or_warned_about(snapshot: Snapshot) -> None:
    Path("my.run").write_text(
        RUN.replace("q0 Q0 m0 2 1", "q0 Q0 m0 2 2").replace("q5", "q9").replace("m1", "zz")
    )
    Path("qrels.txt").write_text(QRELS.replace("m1", "f1"))
    measured = (*SCORE, "--measures", "nDCG@20,ExpRatio")
    snapshot("score-files", transcript(" ".join(measured)))
    lines = llmfair(*measured, "-v").out.splitlines()
    notes = [line.strip() for line in lines if line.startswith("  my.run: ")]
    for form in ("--json", "--per-query", "--format=tsv"):
        warned = llmfair(*measured, form)
        assert warned.code == 0 and "Warning" not in warned.out
        assert warned.err.splitlines() == [f"Warning: {note}" for note in notes]


def test_per_query_rows_then_those_of_all() -> None:
    found = llmfair(*SCORE, "--measures", "P@1,ExpRatio", "--per-query")
    rows = list(csv.DictReader(found.out.splitlines(), delimiter="\t"))
    assert [row["query_id"] for row in rows] == [f"q{q}" for q in range(6) for _ in range(2)] + ["all"] * 5
    assert {row["run"] for row in rows} == {"my.run"} and {row["model"] for row in rows} == {"mine"}
    assert [float(row["value"]) for row in rows if row["measure"] == "P@1"] == [1, 0, 1, 0, 1, 0, 0.5]
    document = llmfair(*SCORE, "--measures", "P@1,ExpRatio", "--per-query", "--json").json
    assert [row["query_id"] for row in document["rows"]] == [row["query_id"] for row in rows]
    assert ["" if row["value"] is None else repr(row["value"]) for row in document["rows"]] == [
        row["value"] for row in rows
    ]


def test_json_is_results_json_and_the_files_hold_its_rows() -> None:
    found = llmfair(*SCORE, "-o", "out", "--json")
    document = kept("results", "out")
    assert found.json == document
    assert (document["schema"], document["status"], document["task"]) == (5, "complete", "score")
    assert document["measures"] == ["P@20", "nDCG@20", "ExpRatio", "PreferenceOdds(of=ranking)"]
    with Path("out/metrics.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert {*header} == {*document["rows"][0]}
    assert [row[header.index("value")] for row in rows] == [
        "" if row["value"] is None else repr(row["value"]) for row in document["rows"]
    ]
    assert len(Path("out/per_query.csv").read_text().splitlines()) == 1 + 6 * 3


def test_runs_of_equal_name_are_told_apart() -> None:
    Path("b").mkdir()
    Path("b/my.run.gz").write_bytes(gzip.compress(RUN.encode()))
    found = llmfair("score", "b/my.run.gz", *SCORE[1:], "--measures", "P@1")
    lines = found.out.partition("Score · ")[2].splitlines()
    assert [line.split("  ")[0].strip() for line in lines[2:5]] == ["run", "b/my.run.gz", "my.run"]
    verdicts = [line for line in found.out.splitlines() if line.startswith("VERDICT  ")]
    assert [line.split(": ")[0] for line in verdicts] == ["VERDICT  b/my.run.gz", "VERDICT  my.run"]
    assert "b/my.run.gz my" not in llmfair("score", "b/my.run.gz", *SCORE[1:], "-v").out


def test_a_gate_of_a_run_file() -> None:
    ran(*SCORE, "--require", "P@1=0.4..0.6", "--require", "P@1:my.run<=0.5")
    found = llmfair(*SCORE, "--require", "P@1=0.6..0.8", "--require", "P@1>=0.4", "--require", "ExpRatio>=1")
    assert found.code == 4 and " my.run " in found.out, "the result is shown all the same"
    assert found.err.splitlines() == [
        "Error: P@1 (my.run) 0.500 is outside 0.6..0.8; ExpRatio (my.run) cannot be assessed: no list has items of both groups with the same grade of relevance",
        "  --json lists verdicts and requirements, -o DIR keeps them",
    ]
    written = llmfair(*SCORE, "--require", "P@1>=0.6", "-o", "out", "--json")
    assert written.code == 4 == written.json["exit_code"] and written.json["status"] == "failed"
    document = kept("results", "out")
    assert document["requirements"] == written.json["requirements"] and document["status"] == "complete"


def test_a_gate_is_asked_of_every_run_that_has_its_variant() -> None:
    Path("b.run").write_text(RUN.replace(" 2 mine", " 0 mine"))
    both = ("score", "my.run", "b.run", *SCORE[2:])
    found = llmfair(*both, "--require", "P@1:b.run>=0.6", "--require", "P@1>=0.1", "--json")
    assert found.code == 4 and found.json["error"]["message"] == "P@1 (b.run) 0.500 is below 0.6"
    assert [entry["run"] for entry in found.json["requirements"]] == ["my.run", "b.run", "b.run"]
    refuses("no condition 'c'.", *both, "--require", "P@1:c>=0.6")
    refuses("--require 'P@1' has no such bound.", *both, "--require", "P@1")


LISTS = ("listwise", "--conditions", "neutral", "--orders", "2")


def test_run_folders_have_the_gates_of_their_audits() -> None:
    for own, gates in (
        (
            (*LISTS, "--no-report", "-o", "lists"),
            ("--require", "nDCG@20>=0.99", "--require", "P@20:neutral<=0.5"),
        ),
        (("pairwise", "--pairs", "5", "--no-report", "-o", "pairs"), ("--require", "FlipRate<=0.1")),
    ):
        folder = own[-1]
        audited = llmfair(*own, *gates, "--max-invalid", "1", "--json")
        scored = llmfair("score", folder, *gates, "--json")
        assert audited.code == scored.code == 4
        assert scored.json["error"]["message"] == audited.json["error"]["message"]
        for ours, theirs in zip(scored.json["requirements"], audited.json["requirements"], strict=True):
            assert ours == theirs | {"run": folder, "value": pytest.approx(theirs["value"], rel=1e-12)}
    wide = llmfair("score", "lists", "--require", "ExpRatio=0.1..9")
    assert wide.code == 4 and "no ranker could fail ExpRatio=0.1..9 at window 20, step 10" in wide.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("score", "my.run"), "my.run: what is relevant, and who is in which group?"),
        (SCORE[:4], "judgements and groups come from --dataset, or from --qrels"),
        (("score", "my.run", "-d", "trec-fair/2022/gender"), "has no qrels of its own: lists are drawn from it."),
        (("score", "my.run", "-d", "sample", "--attributes", "x"), "judgements and groups come from --dataset"),
        ((*SCORE, "-o", "my.run"), "cannot write my.run: File exists."),
        ((*SCORE[:5], "unknown.tsv"), "has no attribute: no document has a group."),
    ],
)  # fmt: skip
def test_wrong_usage(arguments: tuple[str, ...], message: str) -> None:
    Path("unknown.tsv").write_text("f1\tgender\t@UNKNOWN\n")
    refuses(message, *arguments)
    assert message in llmfair(*arguments, "--json").json["error"]["message"]


def test_a_run_whose_scores_are_its_ranks_is_measured_and_warned_of() -> None:
    """trec_eval reads scores; a tool that writes the rank as the score has its lists read from the end."""
    said = "my.run: in every query the score rises with the rank; the highest score counts as best, as in trec_eval"
    ranks = RUN.replace(" 1 2 mine", " 1 1 mine").replace(" 2 1 mine", " 2 2 mine")
    one_document = "".join(line for line in RUN.splitlines(keepends=True) if " 1 2 mine" in line)
    rows = []
    for text in (RUN, ranks, RUN + ranks.replace("q", "x"), one_document):
        Path("my.run").write_text(text)
        found = llmfair(*SCORE, "--json")
        assert (found.code, said in found.err) == (0, text == ranks)
        rows.append({(row["measure"]): row["value"] for row in found.json["rows"]})
    assert rows[0]["ExpRatio"] == pytest.approx(1 / rows[1]["ExpRatio"])


def test_a_run_folder_has_a_row_a_prompt_and_all_of_them_in_json() -> None:
    ran(*"listwise -n 5 --orders 2 --passes 1 --no-report -o run".split())
    table, found = ran("score", "run").out, llmfair("score", "run", "--json").json
    assert " · 5 queries · 4 rankings\n" in table and ".o0" not in table
    assert len(found["runs"][0]["conditions"]) == 4 * 3 == len({row["condition"] for row in found["rows"]})


ONE_PASS = "listwise -m fake:biased,listwise=-3 --preset paper --conditions neutral -o run"
"""A window of 5 that passes once hardly moves a list: what answers prefer hardly shows in rankings."""


def test_a_run_folder_concludes_of_its_answers_as_its_audit_did() -> None:
    ran(*ONE_PASS.split(), "--no-report")
    audited, scored = kept("results", "run"), llmfair("score", "run", "--json").json
    (run,) = scored["runs"]
    assert run["verdict"]["sentence"] == audited["verdict"]["sentence"]
    assert run["findings"] == audited["findings"] and "PreferenceOdds" in scored["measures"]
    beside = {row["measure"]: row for row in scored["rows"] if row["condition"] == "neutral"}
    assert beside["PreferenceOdds"]["conclusion"] and not beside["PreferenceOdds(of=ranking)"]["conclusion"]
    table = ran("score", "run").out
    assert " odds of answers " in table and " odds of rankings [95 %] " in table
    # by another band than its audit's it concludes of its rankings
    (run,) = llmfair("score", "run", "--band", "0.2..5", "--json").json["runs"]
    finding = run["findings"]["neutral"]
    assert finding["measure"] == "PreferenceOdds(of=ranking)" and finding["conclusion"] != "within"


FAILING = ("fake:biased,malformed=0.15", "--on-bad-answer", "fail", "--max-invalid", "1")
HALF = tuple("listwise -n 6 --orders 1 --passes 1 --conditions neutral,female --no-repeat".split())


@pytest.mark.usefixtures("undrawn")
def test_of_a_run_that_is_not_through_only_what_it_ranked_counts() -> None:
    assert llmfair(*HALF, "-m", *FAILING, "-o", "half", "-q").code == 3
    found = llmfair("score", "half", "-o", "out")
    said = (
        "Not complete: neutral: 2 of 6 have no answer yet; female: 2 of 6 have no answer yet; failed: UnparseableAnswer 4; "
        "the command that began the run completes it"
    )
    assert said in found.out and "queries of the qrels not ranked yet, left out" in found.out
    assert "0 in the measures" not in found.out
    asked = [("P@20", "neutral"), ("P@20", "female")]
    measured = (kept("results", folder)["rows"] for folder in ("half", "out"))
    own, ours = (
        {
            row["condition"]: (row["value"], row["n"])
            for row in of
            if (row["measure"], row["condition"]) in asked
        }
        for of in measured
    )
    assert ours == own and {n for _, n in own.values()} == {4}
    assert f"Warning: {said}" in llmfair("score", "half", "--json").err
    assert llmfair("report", "out").err == f"{said}\n"
    assert said.removeprefix("Not complete: ") in "".join(read(Path("out/report.html")).text)
    # a run file is what it is: what it lacks was not found
    file = ("half/rankings/neutral.run", "--qrels", "half/qrels.txt", "--groups", "half/groups.tsv")
    assert "0 in the measures of trec_eval" in llmfair("score", *file).out


def test_what_relevance_alone_explains_stands_beside_conclusions() -> None:
    write_folder(Path("lists"), unequally_relevant())
    audited = llmfair(*"listwise -d lists -o run -m fake:biased -q --no-report".split())
    (line,) = (line for line in audited.out.splitlines() if "relevance alone gives an ExpRatio of " in line)
    assert line in llmfair("score", "run", "-v").out.splitlines()
    first = llmfair("score", "run/rankings/female.run", "-d", "lists").out
    assert "relevance alone gives an ExpRatio of " in first


def test_a_cutoff_that_cuts_nothing_off_is_said(snapshot: Snapshot) -> None:
    Path("long.run").write_text(RUN + "q0 Q0 f1 3 0 mine\n")
    told = transcript(
        " ".join((*SCORE, "--measures", "P@1,P@2,nDCG@2,P(rel=2)@20,overlap@2")),
        " ".join(("score long.run", *SCORE[2:], "--measures P@2")),
        "listwise -n 5 --candidates 12 --conditions neutral --orders 1 -o short",
        "score short",
    )
    snapshot("score-cutoffs", told)


@pytest.mark.usefixtures("undrawn")
def test_what_was_measured_against_what_is_on_the_page_with_the_command() -> None:
    Path("a b.run").write_text(RUN)
    asked = ("score", "my.run", "a b.run", *SCORE[2:], "--measures", "P@1,ExpRatio", "--level", "0.9")
    found = llmfair(*asked, "-o", "out", "--json").json
    assert found["settings"] == {"runs": ["my.run", "a b.run"], "qrels": "qrels.txt", "groups": "groups.tsv"}
    assert found["versions"] == versions() and found["versions"]["llmfair"]
    assert llmfair(*shlex.split(found["command"])[1:], "--json").json == found
    ran("report", "out")
    text = [part.strip() for part in read(Path("out/report.html")).text]
    assert {"my.run, a b.run", "qrels.txt", "groups.tsv", "mine", found["command"]} <= {*text}


def test_judged_items_that_a_cut_run_lacks_are_behind_what_it_lists() -> None:
    Path("qrels.txt").write_text("".join(f"q{q} 0 {side}{q} 1\n" for q in range(6) for side in "fm"))
    whole, cut = [], [line for line in RUN.splitlines(keepends=True) if " 1 2 " in line]
    Path("cut.run").write_text("".join(cut))
    for path in ("my.run", "cut.run"):
        document = llmfair("score", path, *SCORE[2:], "--json").json
        (odds,) = (row for row in document["rows"] if row["measure"] == "PreferenceOdds(of=ranking)")
        whole.append((odds["value"], odds["low"], odds["high"], odds["reason"]))
    assert whole[0] == whole[1]
    (condition,) = document["runs"][0]["conditions"].values()
    assert condition["missing"] == {"queries": 6, "documents": 6}
    said = llmfair("score", "cut.run", *SCORE[2:], "-v").out
    assert "6 documents in 6 queries judged but not in the run" in said


def test_what_grades_leave_open_stands_in_the_verdict_of_a_run_file() -> None:
    """Relevant items first, of equal grade the males; more females are relevant."""
    of_q = [(s, i, int(i < n)) for s, n in (("m", 3), ("f", 6)) for i in range(9)]
    items = [(f"q{q}", f"{s}{q}i{i}", s, grade) for q in range(20) for s, i, grade in of_q]
    write(Path("my.run"), (f"{q} Q0 {d} 1 {2 * grade + (side == 'm')} mine" for q, d, side, grade in items))
    write(Path("qrels.txt"), (f"{q} 0 {d} {grade}" for q, d, _, grade in items))
    write(Path("groups.tsv"), (f"{d}\tgender\t{'male' if s == 'm' else 'female'}" for _, d, s, _ in items))
    plain = (f"{q},{q},{d},{d},{'male' if side == 'm' else 'female'}" for q, d, side, _ in items)
    write(Path("plain.csv"), ["query_id,query,doc_id,title,gender", *plain])
    judged, unjudged = (
        llmfair(*command, "--json").json["runs"][0]["verdict"]["sentence"]
        for command in (SCORE, ("score", "my.run", "-d", "plain.csv"))
    )
    assert "relevance grades" in judged and "no relevance was given" not in judged
    assert "no relevance was given, so differences in merit look like preference" in unjudged


NAMES = {"men last": ("female", "male"), "men first": ("z_female", "male"), "mixed": ("", "")}


def write_run(names: str, score: Callable[[int, str], float], queries: int = 44, n: int = 40) -> None:
    """A run of lists whose every other item is female and whose grades are drawn, scored by grade and group."""
    rng = np.random.default_rng(7)
    run, qrels, groups = [], [], []
    for q in range(queries):
        for i in rng.permutation(n):
            group, grade = ("female", "male")[i % 2], int(rng.integers(0, 2))
            doc_id = f"{NAMES[names][i % 2]}_{q}_{rng.integers(10**9)}"
            run.append(f"{q} Q0 {doc_id} 1 {score(grade, group)} graded")
            qrels.append(f"{q} 0 {doc_id} {grade}")
            groups.append(f"{doc_id}\tgender\t{group}")
    write(Path("my.run"), run)
    write(Path("qrels.txt"), qrels)
    write(Path("groups.tsv"), groups)


@pytest.mark.parametrize("names", NAMES)
def test_grades_that_are_blind_to_groups_are_at_odds_of_1_whatever_the_ids(names: str) -> None:
    rng = np.random.default_rng(1)
    write_run(names, lambda grade, group: int(rng.integers(0, 3)) + grade)
    found = llmfair(*SCORE, "--json", "--fail-on", "disparity")
    verdict = found.json["verdict"]
    assert found.code == 0 and verdict["status"] == "parity"
    assert 0.93 < verdict["estimate"] < 1.07


def test_a_preference_shows_through_ties() -> None:
    rng = np.random.default_rng(1)
    write_run("men last", lambda grade, group: int(rng.integers(0, 3)) + grade - (group == "female"))
    found = llmfair(*SCORE, "--fail-on", "disparity")
    assert found.code == 4 and "disparity: female items" in " ".join(found.out.split())


def test_of_equal_scores_nothing_is_concluded() -> None:
    rng = np.random.default_rng(1)
    write_run("men last", lambda grade, group: 0 if rng.random() < 0.95 else grade + (group == "male"))
    found = llmfair(*SCORE, "--fail-on", "disparity")
    assert found.code == 0
    said = " ".join(found.out.split())
    assert "not assessable: " in said and "tied in score that no preference could leave the parity" in said


def test_a_run_without_order_is_held_against_a_random_one() -> None:
    rng = np.random.default_rng(1)
    write_run("mixed", lambda grade, group: rng.random())
    found = llmfair(*SCORE, "--band", "0.2..5")
    said = " ".join(found.out.partition("Score ·")[0].split())
    assert "not assessable" in said and "no better than a random order of its lists" in said
    assert "NEXT score a ranking that orders by relevance better" in said and "--input" not in said


def test_a_run_folder_of_a_ranker_that_scores_has_the_ties_of_its_audit() -> None:
    lists = balanced(12, 10, 10)
    titles = {
        d: f"topic {q[1:]} " * (1 + (int(d[-1]) + ("f" in d)) % 3 + int(q[1:]) % 2)
        for q, rows in lists.items()
        for d, *_ in rows
    }
    write_folder(Path("alike"), lists, titles, {q: f"topic {q[1:]}" for q in lists})
    ran("listwise", "-d", "alike", "-m", "bm25", "-o", "run", "--no-report")
    measure = "PreferenceOdds(of=ranking)"
    audited = [row for row in kept("results", "run")["rows"] if row["measure"] == measure]
    again = [row for row in llmfair("score", "run", "--json").json["rows"] if row["measure"] == measure]
    assert [(row["value"], row["low"]) for row in audited if row["condition"] == "neutral"] == [
        (row["value"], row["low"]) for row in again
    ]


# By hand, and against the audits that wrote the runs


# Query 1: f m f m, d1 and d3 relevant. Query 2: m f, then u that nobody knows; tied scores. Query 3 is not judged,
# query 4 not ranked, and x is named by the qrels alone.
BY_HAND = """\
1 Q0 d4 9 0.1 mine
1 Q0 d1 1 0.9 mine
1 Q0 d2 2 0.8 mine
1 Q0 d3 3 0.7 mine
2 Q0 d1 1 3 mine
2 Q0 d2 1 3 mine
2 Q0 u 2 1 mine
3 Q0 d1 1 2 mine
3 Q0 d2 2 1 mine
3 Q0 x 3 0 mine
"""
OF_HAND = "1 0 d1 1\n1 0 d3 2\n1 0 d2 0\n2 0 d1 1\n2 0 x 1\n4 0 d1 1\n"
SIDES = "d1\tgender\tfemale\nd2\tgender\tmale\nd3\tgender\tfemale\nd4\tgender\tmale\nx\tgender\t@UNKNOWN\n"


@pytest.fixture
def hand() -> None:
    Path("my.run").write_text(BY_HAND)
    Path("qrels.txt").write_text(OF_HAND)
    Path("groups.tsv").write_text(SIDES)


def scored(*runs: str, **given: Any) -> ScoreOutcome:
    chosen = {} if "dataset" in given else {"qrels": Path("qrels.txt"), "groups": Path("groups.tsv")}
    return score([Path(run) for run in runs or ("my.run",)], ScoreSettings.make(**{**chosen, **given}))


def values(found: ScoreOutcome, run: int = 0) -> dict[tuple[str, str], float | None]:
    """Aggregates and values of queries of one run, by (query_id, measure)."""
    name = found.results.runs[run].run
    rows = [*found.results.rows, *found.per_query]
    return {(row.query_id, row.measure + row.group): row.value for row in rows if row.run == name}


def v(rank: int) -> float:
    return 1 / math.log(1 + rank)


@pytest.mark.usefixtures("hand")
def test_a_run_by_hand() -> None:
    found = scored(measures="P@2,nDCG@20,ExpRatio,Exposure")
    by = values(found)
    assert by["1", "P@2"] == 1 / 2
    assert by["2", "P@2"] == 1 / 2  # the tie is broken in favour of d2
    assert by["3", "P@2"] is None and by["4", "P@2"] == 0
    assert by["all", "P@2"] == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)
    assert by["1", "nDCG@20"] == pytest.approx((1 + 2 / 2) / (2 + 1 / math.log2(3)))
    assert by["2", "nDCG@20"] == pytest.approx((1 / math.log2(3)) / (1 + 1 / math.log2(3)))
    protected = [(v(1) + v(3)) / 2, v(2), v(1)]
    unprotected = [(v(2) + v(4)) / 2, v(1), v(2)]
    assert by["1", "ExpRatio"] == pytest.approx(protected[0] / unprotected[0])
    assert by["2", "Exposureprotected"] == pytest.approx(v(2))
    assert by["4", "ExpRatio"] is None
    assert by["all", "ExpRatio"] == pytest.approx(sum(protected) / sum(unprotected))
    (run,) = found.results.runs
    assert plain(run.conditions) == {
        "my.run": {
            "queries": 3, "documents": 10, "tied": {"documents": 2, "queries": 1}, "unlisted": {"documents": 1, "queries": 1},
            "unjudged": {"queries": 1, "first": ["3"]}, "not_ranked": {"queries": 1, "first": ["4"]},
            "missing": {"documents": 1, "queries": 1},
        }
    }  # fmt: skip
    assert run.undefined["ExpRatio"] == {"my.run": {"not_ranked": 1}}
    assert run.undefined["nDCG@20"] == {"my.run": {"no_relevant": 1}}
    assert (run.run, run.model, run.attribute) == ("my.run", "mine", "gender")
    ratio = next(row for row in found.results.rows if row.measure == "ExpRatio")
    assert (ratio.n, ratio.low, ratio.reason) == (3, None, "too_few_queries")


@pytest.mark.usefixtures("hand")
def test_documents_listed_by_the_qrels_or_as_unknown_are_not_unlisted() -> None:
    Path("my.run").write_text("1 Q0 x 1 3 t\n1 Q0 q 2 2 t\n1 Q0 d1 3 1 t\n1 Q0 d2 4 0 t\n")
    Path("qrels.txt").write_text("1 0 q 1\n")
    found = scored()
    assert found.results.runs[0].conditions["my.run"].unlisted == DocumentCounts()
    assert values(found)["1", "ExpRatio"] == pytest.approx(v(3) / v(4))


ERA = '[era]\nprotected = ["old"]\nunprotected = ["*"]\nwords = { protected = "old", unprotected = "new" }\n'


@pytest.mark.usefixtures("hand")
def test_attributes_of_ones_own_and_mixed_documents() -> None:
    Path("own.toml").write_text(ERA)
    Path("groups.tsv").write_text(
        "d1\tera\told\nd1\tera\tnew\nd2\tera\tnew\nd3\tera\told\nd4\tera\t@UNKNOWN\n"
    )
    with pytest.raises(UsageError, match="era has 0 groups of 10 items or more"):
        scored()
    own = {"attributes": Path("own.toml")}
    assert values(scored(**own))["1", "ExpRatio"] == pytest.approx(v(3) / v(2))
    both = values(scored(**own, mixed="protected"))["1", "ExpRatio"]
    assert both == pytest.approx((v(1) + v(3)) / 2 / v(2))


def test_a_folder_of_files_and_its_dataset_give_the_same() -> None:
    folder = write_folder(Path("mine"), balanced(6, 3, 5))
    rows = [f"q{q} Q0 q{q}{side}{i} 0 {(7 * i + q * ord(side)) % 11} t" for q in range(6) for side, n in (("f", 3), ("m", 5)) for i in range(n)]  # fmt: skip
    write(Path("my.run"), rows)
    measures = "P@3,nDCG@3,ExpRatio,overlap@3"
    one = scored(dataset=str(folder), measures=measures)
    other = scored(qrels=folder / "qrels.txt", groups=folder / "groups.tsv", measures=measures)
    assert values(one) == values(other)
    assert one.results.rows[0].dataset == "mine" and other.results.rows[0].dataset == "mine/qrels.txt"
    of_all = [row for row in one.results.rows if "stratum" not in row.measure]
    assert all(row.low is not None for row in of_all), "six queries have intervals"


def metrics(path: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    return {(row["condition"], row["measure"], row["group"]): row for row in table(path)}


def test_the_rankings_of_an_audit_score_as_the_audit_did() -> None:
    measures = "P@20,overlap@20,nDCG@20,ExpRatio,Exposure,ExpRatio(stratum=relevant)@10,AWRF@20"
    asked = measures.split(",")
    chosen = ListwiseSettings.make(
        limit=6, orders=2, passes=1, measures=measures, mixed="protected", attribute="location", max_invalid=1.0,
    )  # fmt: skip
    folder = audit(LISTWISE.design(chosen, Subject("fake:biased"))).folder.path
    scored(str(folder), measures=measures, output=Path("out"), qrels=None, groups=None)
    theirs, ours = metrics(folder / "metrics.csv"), metrics(Path("out/metrics.csv"))
    plain = {key for key in theirs if key[0] != "initial" and " vs " not in key[0] and key[1] in asked}
    assert {condition for condition, _, _ in plain} >= {"neutral", "repeat", "non-european"}
    for key in plain:
        for column in ("run", "dataset", "attribute", "model", "value", "low", "high", "n"):
            assert ours[key][column] == theirs[key][column], (key, column)
    assert {key[0] for key in ours} == {key[0] for key in plain}
    with pytest.raises(UsageError, match="brings its own judgements"):
        scored(str(folder), dataset="sample")
    with pytest.raises(RunConflict, match="is the folder of another run"):
        scored(str(folder), qrels=None, groups=None, output=folder)


def test_a_run_folder_brings_the_attribute_its_dataset_declared() -> None:
    folder = write_folder(Path("mine"), balanced(5, 3, 3))
    (folder / "attributes.toml").write_text(
        ERA
        + '[gender]\nprotected = ["female"]\nunprotected = ["male"]\nwords = { protected = "f", unprotected = "m" }\n'
    )
    lines = (folder / "groups.tsv").read_text().splitlines()
    eras = [line.replace("gender", "era").replace("female", "old").replace("male", "new") for line in lines]
    write(folder / "groups.tsv", [*lines, *eras])
    asked = ListwiseSettings.make(dataset=str(folder), orders=1, max_invalid=1.0)
    run = audit(LISTWISE.design(asked, Subject("fake:biased"))).folder.path
    none = {"qrels": None, "groups": None}
    found = scored(str(run), **none, measures="ExpRatio").results
    assert (found.runs[0].attribute, found.runs[0].words.protected) == ("era", "old")
    theirs = metrics(run / "metrics.csv")
    ratios = {row.condition: repr(row.value) for row in found.rows if row.measure == "ExpRatio"}
    assert ratios and all(theirs[name, "ExpRatio", ""]["value"] == ratio for name, ratio in ratios.items())


RANKED = st.dictionaries(
    st.sampled_from(["1", "2", "3"]),
    st.dictionaries(st.sampled_from([f"d{n}" for n in range(8)]), st.integers(0, 5), min_size=2),
    min_size=1,
)


@given(RANKED, st.data(), st.sampled_from([0.5, 2.0, 1024.0]))
@settings(deadline=None, max_examples=10)
def test_names_line_order_and_scale_mean_nothing(
    lists: Mapping[str, Mapping[str, int]], data: st.DataObject, scale: float
) -> None:
    """Ties are broken by name, so names change consistently: in an order that stays."""
    assume({"1", "2"} & lists.keys())  # a run of none of the queries is refused
    lines = [(query_id, doc_id, score) for query_id, rows in lists.items() for doc_id, score in rows.items()]
    groups = {f"d{n}": ("female", "male")[n % 2] for n in range(7)}
    qrels = [("1", "d0", 1), ("1", "d3", 2), ("2", "d1", 1), ("2", "d7", 0)]

    def found(rows: list[tuple[str, str, int]], factor: float, prefix: str) -> Any:
        write(Path("my.run"), (f"{q} Q0 {prefix}{d} 0 {score * factor} t" for q, d, score in rows))
        write(Path("qrels.txt"), (f"{q} 0 {prefix}{d} {relevance}" for q, d, relevance in qrels))
        write(Path("groups.tsv"), (f"{prefix}{d}\tgender\t{group}" for d, group in groups.items()))
        return scored(measures="P@2,nDCG@3,overlap@2,ExpRatio,Exposure@2")

    base = found(lines, 1.0, "")
    other = found(data.draw(st.permutations(lines)), scale, "page")
    assert base.results == other.results and base.per_query == other.per_query


def test_parity_of_rankings_takes_windows_that_could_bring_them_out_of_the_band() -> None:
    reached = {
        (0.7, 1.4): "within",
        (0.85, 1.4): "not_assessable",
        (0.7, 1.2): "not_assessable",
        (None, None): "within",
    }
    for (low, high), conclusion in reached.items():
        for before, after in ((Conclusion.WITHIN, conclusion), (Conclusion.OUTSIDE, "outside")):
            finding = ListwiseFinding(measure="PreferenceOdds(of=ranking)", conclusion=before, reason=None)
            assert in_reach(finding, Reach(low=low, high=high), (0.8, 1.25)).conclusion == after


# Several groups


BY_PAIRS = (
    "audited/rankings/neutral.run --qrels audited/qrels.txt --groups audited/groups.tsv -a ethnicity".split()
)


@pytest.fixture
def by_ethnicity() -> None:
    """A run audited by four groups, of which one is put behind."""
    write_applications(Path("apps.csv"))
    asked = (
        "-d apps.csv -a ethnicity -m fake:biased,behind=Black,listwise=-0.9 --conditions neutral --no-repeat"
    )
    ran("listwise", *f"{asked} -o audited --measures ExpRatio,PreferenceOdds(of=ranking),P@20".split())


def odds_of(*arguments: str) -> dict[tuple[str, str], float | None]:
    """What `llmfair score` says of a ranking, by measure and contrast."""
    rows = json.loads(ran("score", *arguments, "--json").out)["rows"]
    of_it = [row for row in rows if row["condition"] in ("neutral", BY_PAIRS[0]) and not row["group"]]
    return {(row["measure"], row["contrast"]): row["value"] for row in of_it}


def test_a_folder_of_several_groups_has_the_figures_of_its_audit(by_ethnicity: None) -> None:
    scored, rows = odds_of("audited"), table(Path("audited/metrics.csv"))
    audited = {
        (r["measure"], r["contrast"]): float(r["value"])
        for r in rows
        if r["condition"] == "neutral" and not r["group"]
    }
    both = scored.keys() & audited.keys()
    assert {contrast for measure, contrast in both if measure == "ExpRatio"} == {
        *kept("results", "audited")["design"]["contrasts"]
    }
    assert {place: scored[place] for place in both} == {place: audited[place] for place in both}
    refuses("run folders and logs are compared as they were", "score", "audited", "--contrast", "rest")


def test_contrasts_of_a_run_file_are_those_asked_for(by_ethnicity: None, snapshot: Snapshot) -> None:
    pairs, held = odds_of(*BY_PAIRS), odds_of(*BY_PAIRS, "--contrast", "reference:White")
    assert (
        held["PreferenceOdds(of=ranking)", "Black:White"]
        == pairs["PreferenceOdds(of=ranking)", "Black:White"]
    )
    assert ("ExpRatio", "Asian:Black") in pairs.keys() - held.keys()
    rates = "--measures SelectionRate@10,ImpactRatio@10 --contrast reference:White --min-group 50"
    snapshot("score-groups", transcript(f"score {' '.join(BY_PAIRS)} {rates}"))


def test_judged_items_that_a_cut_run_lacks_stand_behind_it_in_their_groups(by_ethnicity: None) -> None:
    run = Path(BY_PAIRS[0])
    lines = run.read_text().splitlines(keepends=True)
    run.write_text("".join(line for line in lines if int(line.split()[3]) <= 15))
    odds = odds_of(*BY_PAIRS)["PreferenceOdds(of=ranking)", "Black:White"]
    assert odds and odds < 0.4, "0.7 of those that are listed alone"
