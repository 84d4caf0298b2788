"""`llmfair score`: what it prints and writes, one sentence for what is malformed, and scores that tie."""

from __future__ import annotations

import csv
import gzip
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from llmfair.audits.design import versions
from tests.cli.command import Outcome, Snapshot, kept, llmfair, ran, transcript
from tests.folders import balanced, write, write_folder
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
    notes = [
        line.strip() for line in llmfair(*measured, "-v").out.splitlines() if line.startswith("  my.run: ")
    ]
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
    assert (document["schema"], document["status"], document["task"]) == (2, "complete", "score")
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


def test_a_large_file_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfair.cli.rankings.TOLD_FROM", 100)
    assert llmfair(*SCORE).err == "Reading my.run, 0 MB\n"
    assert llmfair(*SCORE, "--no-progress").err == llmfair(*SCORE, "-q").err == ""


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
    refused((*both, "--require", "P@1:c>=0.6"), "no condition 'c'.")
    refused((*both, "--require", "P@1"), "--require 'P@1' has no bound.")


LISTS = ("listwise", "--conditions", "neutral", "--orders", "2")


def test_run_folders_have_the_gates_of_their_audits() -> None:
    for own, gates in (
        ((*LISTS, "-o", "lists"), ("--require", "nDCG@20>=0.99", "--require", "P@20:neutral<=0.5")),
        (("pairwise", "--pairs", "5", "-o", "pairs"), ("--require", "FlipRate<=0.1")),
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
        ((*SCORE, "-d", "sample"), "judgements and groups come from --dataset, or from --qrels"),
        (("score", "my.run", "-d", "trec-fair/2022/gender"), "has no qrels of its own: lists are drawn from it."),
        (("score", "my.run", "-d", "sample", "--attributes", "x"), "judgements and groups come from --dataset"),
        (("score",), "RUN… is missing."),
        ((*SCORE, "-o", "my.run"), "cannot write my.run: File exists."),
        ((*SCORE[:5], "unknown.tsv"), "has no attribute: no document has a group."),
    ],
)  # fmt: skip
def test_wrong_usage(arguments: tuple[str, ...], message: str) -> None:
    Path("unknown.tsv").write_text("f1\tgender\t@UNKNOWN\n")
    refused(arguments, message)


def refused(arguments: tuple[str, ...], message: str) -> None:
    found = llmfair(*arguments)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("Error: ") and message in found.err and "Traceback" not in found.err
    assert found.err.splitlines()[-1].startswith("  "), "an indented hint"
    document = llmfair(*arguments, "--json").json
    assert document["exit_code"] == 2 and message in document["error"]["message"]


def test_a_run_whose_scores_are_its_ranks_is_measured_and_warned_of() -> None:
    """trec_eval reads scores; a tool that writes the rank as the score has its lists read from the end."""
    said = "my.run: in every query the score rises with the rank; the highest score counts as best, as in trec_eval"
    ranks = RUN.replace(" 1 2 mine", " 1 1 mine").replace(" 2 1 mine", " 2 2 mine")
    rows = []
    for text, warned in ((RUN, False), (ranks, True), (RUN + ranks.replace("q", "x"), False)):
        Path("my.run").write_text(text)
        found = llmfair(*SCORE, "--json")
        assert (found.code, said in found.err) == (0, warned)
        assert (said in llmfair(*SCORE).out) is warned
        rows.append({(row["measure"]): row["value"] for row in found.json["rows"]})
    assert rows[0]["ExpRatio"] == pytest.approx(1 / rows[1]["ExpRatio"])
    one_document = "".join(line for line in RUN.splitlines(keepends=True) if " 1 2 mine" in line)
    Path("my.run").write_text(one_document)
    assert said not in llmfair(*SCORE, "--json").err


def test_a_run_folder_has_a_row_a_prompt_and_all_of_them_in_json() -> None:
    asked = ("listwise", "-n", "5", "--orders", "2", "--passes", "1", "-o", "run")
    ran(*asked)
    table, found = ran("score", "run").out, llmfair("score", "run", "--json").json
    assert " · 5 queries · 4 rankings\n" in table and ".o0" not in table
    assert len(found["runs"][0]["conditions"]) == 4 * 3 == len({row["condition"] for row in found["rows"]})
    one = llmfair("score", "run/rankings/female.run", "run/rankings/female.o1.r0.run", "-d", "sample").out
    assert " run/rankings/female.run " in one and " run/rankings/female.o1.r0.run " in one


ONE_PASS = "listwise -m fake:biased,listwise=-3 --preset paper --conditions neutral -o run"
"""A window of 5 that passes once hardly moves a list: what answers prefer hardly shows in rankings."""


def test_a_run_folder_concludes_of_its_answers_as_its_audit_did() -> None:
    ran(*ONE_PASS.split())
    audited, scored = kept("results", "run"), llmfair("score", "run", "--json").json
    (run,) = scored["runs"]
    assert run["verdict"]["sentence"] == audited["verdict"]["sentence"]
    assert run["findings"] == audited["findings"] and "PreferenceOdds" in scored["measures"]
    beside = {row["measure"]: row for row in scored["rows"] if row["condition"] == "neutral"}
    assert beside["PreferenceOdds"]["conclusion"] and not beside["PreferenceOdds(of=ranking)"]["conclusion"]
    table = ran("score", "run").out
    assert " odds of answers " in table and " odds of rankings [95 %] " in table
    reach = audited["reach"]["PreferenceOdds(of=ranking)"]
    assert f"one group first reach {reach['low']:.2f} … {reach['high']:.2f} at window 5, step 1" in table


def test_by_another_band_than_its_audit_s_a_run_folder_concludes_of_its_rankings() -> None:
    ran(*ONE_PASS.split())
    (run,) = llmfair("score", "run", "--band", "0.2..5", "--json").json["runs"]
    finding = run["findings"]["neutral"]
    assert finding["measure"] == "PreferenceOdds(of=ranking)" and finding["conclusion"] != "within"


FAILING = ("fake:biased,malformed=0.15", "--on-bad-answer", "fail", "--max-invalid", "1")
HALF = (
    "listwise",
    *["-n", "6", "--orders", "1", "--passes", "1", "--conditions", "neutral,female", "--no-repeat"],
)


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
    own, ours = (
        {
            row["condition"]: (row["value"], row["n"])
            for row in kept("results", folder)["rows"]
            if row["measure"] == "P@20" and row["condition"] in ("neutral", "female")
        }
        for folder in ("half", "out")
    )
    assert ours == own and {n for _, n in own.values()} == {4}
    assert f"Warning: {said}" in llmfair("score", "half", "--json").err
    assert llmfair("report", "out").err == f"{said}\n"
    assert said.removeprefix("Not complete: ") in "".join(read(Path("out/report.html")).text)
    many = llmfair("report", "out", "half", "-o", "many.html").err
    assert "Not complete: out: neutral: 2 of 6 have no answer yet" in many
    # a run file is what it is: what it lacks was not found
    file = ("half/rankings/neutral.run", "--qrels", "half/qrels.txt", "--groups", "half/groups.tsv")
    assert "0 in the measures of trec_eval" in llmfair("score", *file).out


def test_what_relevance_alone_explains_stands_beside_conclusions() -> None:
    kinds = (("f", "female", 6), ("m", "male", 2))
    lists = {
        f"q{q}": [
            (f"q{q}{side}{i}", group, int(i < relevant)) for side, group, relevant in kinds for i in range(8)
        ]
        for q in range(6)
    }
    audited = llmfair(
        "listwise", "-d", write_folder(Path("lists"), lists), "-o", "run", "-m", "fake:biased", "-qv"
    )
    (line,) = (line for line in audited.out.splitlines() if "relevance alone gives an ExpRatio of " in line)
    assert line in llmfair("score", "run", "-v").out.splitlines()
    assert line.strip() in llmfair("score", "run", "--format", "md").out
    one = ("run/rankings/female.run", "-d", "lists")
    first = llmfair("score", *one).out
    assert (
        "relevance alone gives an ExpRatio of 1." in first
        and " (run/rankings/female.run): the table's figures have that in them" in first
    )
    shown = llmfair("listwise", "-d", "lists", "-o", "run", "-m", "fake:biased", "-q").out
    assert line in shown.splitlines()  # among the few notes that are always there


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
    settings = [part for part in text[text.index("Settings") :] if part]
    facts = {"runs": "my.run, a b.run", "qrels": "qrels.txt", "groups": "groups.tsv", "model": "mine"}
    assert {name: settings[settings.index(name) + 1] for name in facts} == facts
    assert found["command"] in text and "Reproduce this run" in text
    assert any(part.startswith(f"llmfair {found['versions']['llmfair']}, python ") for part in text)


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
    relevant = {"m": 3, "f": 6}
    items = [
        (f"q{q}", f"{s}{q}i{i}", s, int(i < n))
        for q in range(20)
        for s, n in relevant.items()
        for i in range(9)
    ]
    write(Path("my.run"), (f"{q} Q0 {d} 1 {2 * grade + (side == 'm')} mine" for q, d, side, grade in items))
    write(Path("qrels.txt"), (f"{q} 0 {d} {grade}" for q, d, _, grade in items))
    write(
        Path("groups.tsv"), (f"{d}\tgender\t{'male' if side == 'm' else 'female'}" for _, d, side, _ in items)
    )
    plain = (f"{q},{q},{d},{d},{'male' if side == 'm' else 'female'}" for q, d, side, _ in items)
    write(Path("plain.csv"), ["query_id,query,doc_id,title,gender", *plain])
    graded, ungraded = (
        llmfair(*command, "--json").json["runs"][0]["verdict"]["sentence"]
        for command in (SCORE, ("score", "my.run", "-d", "plain.csv"))
    )
    assert "relevance grades" in graded and "no relevance was given" not in graded
    assert "no relevance was given, so differences in merit look like preference" in ungraded


def test_a_run_without_order_is_held_against_a_random_one() -> None:
    rng = np.random.default_rng(1)
    lists = [(f"q{q}", f"{'fm'[i % 2]}{q}i{i}", *rng.random(2)) for q in range(20) for i in range(40)]
    write(Path("even.run"), (f"{q} Q0 {d} 1 {score} mine" for q, d, score, _ in lists))
    write(Path("qrels.txt"), (f"{q} 0 {d} {int(grade < 0.5)}" for q, d, _, grade in lists))
    write(Path("groups.tsv"), (f"{d}\tgender\t{'male' if d[0] == 'm' else 'female'}" for _, d, *_ in lists))
    found = llmfair("score", "even.run", *SCORE[2:], "--band", "0.2..5")
    said = " ".join(found.out.partition("Score ·")[0].split())
    assert "not assessable" in said and "no better than a random order of its lists" in said
    assert "NEXT score a ranking that orders by relevance better" in said and "--input" not in said


NAMES = {
    "men last": ("female", "male"),
    "men first": ("z_female", "male"),
    "mixed": ("", ""),
}


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
    write(Path("grades.run"), run)
    write(Path("qrels.txt"), qrels)
    write(Path("groups.tsv"), groups)


def scored(*arguments: str) -> Outcome:
    return llmfair("score", "grades.run", "--qrels", "qrels.txt", "--groups", "groups.tsv", *arguments)


@pytest.mark.parametrize("names", NAMES)
def test_grades_that_are_blind_to_groups_are_at_odds_of_1_whatever_the_ids(names: str) -> None:
    rng = np.random.default_rng(1)
    write_run(names, lambda grade, group: int(rng.integers(0, 3)) + grade)
    found = scored("--json", "--fail-on", "disparity")
    verdict = found.json["verdict"]
    assert found.code == 0 and verdict["status"] == "parity"
    assert 0.93 < verdict["estimate"] < 1.07


def test_a_preference_shows_through_ties() -> None:
    rng = np.random.default_rng(1)
    write_run("men last", lambda grade, group: int(rng.integers(0, 3)) + grade - (group == "female"))
    found = scored("--fail-on", "disparity")
    assert found.code == 4 and "disparity: female items" in " ".join(found.out.split())


@pytest.mark.parametrize("share", [1.0, 0.95])
def test_of_equal_scores_nothing_is_concluded(share: float) -> None:
    rng = np.random.default_rng(1)
    write_run("men last", lambda grade, group: 0 if rng.random() < share else grade + (group == "male"))
    found = scored("--fail-on", "disparity")
    assert found.code == 0
    said = " ".join(found.out.split())
    assert (
        "not assessable: " in said and "tied in score that no preference could leave the parity band" in said
    )
    assert "NEXT scores that tell more items apart" in said


def test_many_ties_are_said_of_every_run() -> None:
    rng = np.random.default_rng(1)
    write_run("men last", lambda grade, group: int(rng.integers(0, 3)) + grade)
    write(Path("other.run"), Path("grades.run").read_text().splitlines()[:-40])
    notes = [line for line in scored("other.run", "-v").out.splitlines() if "tied in score" in line]
    assert [note.partition(" of ")[0][:-2] for note in notes] == ["  grades.run: 1,7", "  other.run: 1,7"]
    assert "tied in score" in scored("other.run").out  # among the few that are shown


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
