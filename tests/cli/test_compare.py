"""`llmfair compare` on the command line: its table, its formats, and what it refuses."""

from __future__ import annotations

import json
from math import exp
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.documents import Comparison
from llmfair.io.files import typed
from llmfair.report.compare import compare_table
from llmfair.report.verdict import compared_verdicts
from tests.cli.command import kept, llmfair, ran, refuses

pytestmark = pytest.mark.whole

LISTWISE = ("listwise", "-q", "--conditions", "neutral", "--no-repeat", "--orders", "1", "--passes", "1")
PAIRWISE = ("pairwise", "-q", "--pairs", "6", "--noise-share", "0")


def run(*arguments: str, output: str) -> str:
    ran(*arguments, "-o", output)
    return output


def test_several_runs_below_a_folder_by_their_names() -> None:
    for strength in (0, 1, 2):
        model = f"fake:biased,listwise={strength}"
        run(*LISTWISE, "-m", model, output=f"runs/list-{strength}")
    compared = llmfair("compare", "list-0", "list-1", "list-2", "--json").json
    header, *lines = llmfair("compare", "list-0", "list-1", "list-2", "--format", "tsv").out.splitlines()
    assert header.startswith("run\tcondition\tstratum\tmeasure\t") and len(lines) == len(compared["rows"])
    assert [one["model"] for one in compared["runs"]] == [f"fake:biased,listwise={s}" for s in (0, 1, 2)]
    assert (compared["schema"], compared["task"], compared["family"]) == (2, "listwise", 4)
    shown = llmfair("compare", "list-0", "list-1", "list-2").out
    assert shown.count("VERDICT ") == 2 and "list-1" not in shown.partition("\n\n")[2]


def test_the_verdict_is_of_the_paired_change_of_preference_odds() -> None:
    small = ("listwise", "--passes", "1", "--conditions", "neutral", "--no-repeat")
    for name, strength in (("strong", -2), ("weak", 0), ("same", 0)):
        run(*small, "-m", f"fake:biased,listwise={strength}", "--label", name, output=name)
    for base, other, status in (
        ("strong", "weak", "closer to parity"),
        ("weak", "strong", "farther from parity"),
        ("weak", "same", "not assessable"),
    ):
        found = llmfair("compare", base, other)
        assert found.out.startswith(
            f"VERDICT  {status}: {other} beside {base}, odds of answers (neutral prompt):"
        )
        assert f"\nNEXT     both side by side: llmfair report {base} {other}\n" in found.out
        assert llmfair("compare", base, other, "--json").json["verdict"]["status"] == status


def test_odds_that_one_run_lacks_are_named_with_the_reason() -> None:
    small = ("listwise", "--passes", "1", "--conditions", "neutral", "--no-repeat")
    run(*small, "-m", "fake:biased,listwise=0", output="finite")
    run(*small, "-m", "fake:biased,listwise=-60", output="separated")
    for runs in (("finite", "separated"), ("separated", "finite")):
        found = llmfair("compare", *runs, "--json").json
        (row,) = (row for row in found["rows"] if row["measure"] == "PreferenceOdds")
        assert row["change"] is None and row["reason"] and found["verdict"]["status"] == "not assessable"
        assert row["reason_of"] == ["fake:biased,listwise=-60"]
        assert ": cannot be assessed: " in llmfair("compare", *runs).out
        assert "(fake:biased,listwise=-60)" in found["verdict"]["sentence"].partition(": ")[2]


def assumed(base: float, other: float, **more: float | str | None) -> Comparison:
    """A comparison whose odds are these, with intervals that are 5 % long either way, and a change beyond chance."""
    folders = [run(*PAIRWISE, "-m", f"fake:biased,pairwise=0.1,position={p}", output=f"p{p}") for p in (0, 2)]
    compared: dict[str, Any] = llmfair("compare", *folders, "--json").json
    for row in compared["rows"]:
        if row["measure"] == "AdjustedOdds":
            row |= {"base": base, "other": other, "change": other / base, "p_adjusted": 1e-4}
            row |= {"low": other / base / 1.06, "high": other / base * 1.06}
            row |= {"base_low": base / 1.05, "base_high": base * 1.05, "reason_of": [], "useless": None}
            row |= {"other_low": other / 1.05, "other_high": other * 1.05, **more}
        elif row["measure"] == "FlipRate":
            row |= {"low": 0.1}
    return typed(compared, Comparison)


@pytest.mark.parametrize(
    ("base", "other", "said", "bought"),
    [
        (-0.5, 0.47, "moved; which is nearer is open: 0.607 → 1.600 (parity is 1), now favouring the other group, outside the band", False),
        (-0.9, 0.5, "closer to parity: 0.407 → 1.649 (parity is 1), now favouring the other group, outside the band", False),
        (-0.5, 0.9, "farther from parity: 0.607 → 2.460 (parity is 1), now favouring the other group, outside the band", False),
        (-0.5, 0.05, "closer to parity: 0.607 → 1.051 (parity is 1)", True),
        (-0.5, -0.05, "closer to parity: 0.607 → 0.951 (parity is 1)", True),
        (-0.05, -0.5, "farther from parity: 0.951 → 0.607 (parity is 1)", False),
        (-0.05, 0.05, "equivalent: 0.951 → 1.051 (parity is 1), a change within 0.8–1.25", False),
    ],
)  # fmt: skip
def test_that_odds_changed_is_not_that_they_came_closer(
    base: float, other: float, said: str, bought: bool
) -> None:
    compared = assumed(exp(base), exp(other))
    notes = "\n".join(compare_table(compared).notes)
    assert f"preference odds, relevant: {said}, p < 0.001 (" in notes
    assert "flips, relevant: more answers now depend on the order" in notes
    assert ("bought with indecision" in notes) == bought
    ((_, verdict),) = compared_verdicts(compared)
    assert verdict.status == said.partition(":")[0]
    assert ("now favouring the other group" in verdict.sentence) == ("now favouring" in said)


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"low": 0.99, "high": 1.25}, "equivalent"),
        ({"low": 1.01, "high": 1.26}, "closer to parity"),
        ({"low": 0.99, "high": 1.26, "p_adjusted": 0.06}, "no difference shown"),
        ({"low": 0.99, "high": 1.25, "p_adjusted": 0.06}, "equivalent"),
        ({"low": 0.99, "high": 1.25, "useless": "chance_answers"}, "not assessable"),
        ({"low": 1.01, "high": 1.25, "base_conclusion": "outside", "other_conclusion": "within"}, "closer to parity"),
    ],
)  # fmt: skip
def test_a_change_within_the_margin_is_equivalent(more: dict[str, Any], status: str) -> None:
    ((_, verdict),) = compared_verdicts(assumed(0.76, 0.84, **more))
    assert verdict.status == status


def test_a_gate_on_what_a_comparison_comes_to() -> None:
    small = ("listwise", "--passes", "1", "--conditions", "neutral", "--no-repeat")
    for name, strength in (("strong", -2), ("weak", 0)):
        run(*small, "-m", f"fake:biased,listwise={strength}", "--label", name, output=name)
    failed = llmfair("compare", "weak", "strong", "--fail-on", "worse", "--json")
    assert (failed.code, failed.json["error"]["class"]) == (4, "RequirementFailed")
    assert failed.json["verdict"]["status"] == "farther from parity" and failed.json["rows"]
    assert failed.err.startswith("Error: --fail-on: the verdict is farther from parity: strong beside weak, ")
    assert llmfair("compare", "strong", "weak", "--fail-on", "worse,open,no difference shown").code == 0
    wide = llmfair("compare", "weak", "strong", "--fail-on", "worse", "--margin", "0.01..100")
    assert wide.code == 0 and wide.out.startswith("VERDICT  equivalent: ")
    refuses("no verdict 'closer' that fails a run", "compare", "weak", "strong", "--fail-on", "closer")
    refuses("--margin '1.25' is no margin.", "compare", "weak", "strong", "--margin", "1.25")


def test_the_change_is_of_the_figures_beside_it() -> None:
    small = ("listwise", "--passes", "1", "--conditions", "neutral", "--no-repeat")
    for name, strength in (("base", -1), ("other", -0.2)):
        run(*small, "-m", f"fake:biased,listwise={strength},malformed=0", output=name)
    compared = llmfair("compare", "base", "other", "--json").json
    for measure in ("PreferenceOdds", "ExpRatio(control=order)"):
        (row,) = (row for row in compared["rows"] if row["measure"] == measure)
        assert row["change"] == pytest.approx(row["other"] / row["base"], rel=1e-12)
        for name in ("base", "other"):
            (own,) = (
                one
                for one in kept("results", name)["rows"]
                if (one["measure"], one["condition"], one["group"]) == (measure, "neutral", "")
            )
            assert row[name] == own["value"]


def test_a_ranker_of_no_use_came_no_closer() -> None:
    compared = assumed(0.4, 0.9, useless="chance_answers")
    ((name, verdict),) = compared_verdicts(compared)
    why = f"closer to parity, but the answers agree over both orders no more than by chance ({name})"
    assert verdict.status == "not assessable" and why in verdict.sentence
    assert any(why in note for note in compare_table(compared).notes)
    ((_, verdict),) = compared_verdicts(assumed(0.9, 0.4, useless="chance_answers"))
    assert verdict.status == "farther from parity"


def test_other_attainable_ranges_are_no_way_to_parity() -> None:
    model = ("-m", "fake:biased,listwise=-2,malformed=0")
    base = run(*LISTWISE, *model, output="wide")
    other = run(*LISTWISE, *model, "--window", "5", "--step", "2", output="narrow")
    again = run(*LISTWISE, *model, "--seed", "1", output="again")
    compared = llmfair("compare", base, other, "--json").json
    (row,) = [row for row in compared["rows"] if row["measure"].startswith("ExpRatio")]
    assert row["reason"] == "other_reach" and row["change"] is not None
    assert (row["low"], row["p"], row["p_adjusted"]) == (None, None, None)
    assert [{*one["reach"]["ExpRatio"]} for one in compared["runs"]] == [{"low", "high"}] * 2
    (said,) = [
        note for note in compare_table(typed(compared, Comparison)).notes if "attainable ranges" in note
    ]
    assert said == "ExpRatio: closer to parity or not cannot be told, since the attainable ranges differ"
    # another seed simulates the same range a little otherwise
    compared = llmfair("compare", base, again, "--json").json
    assert all(row["p"] is not None for row in compared["rows"])


def test_runs_that_share_all_answers_are_not_tested() -> None:
    base = run(*LISTWISE, output="base")
    more = ("listwise", *LISTWISE[1:3], "neutral,female", *LISTWISE[4:])
    other = run(*more, "--level", "0.9", output="other")
    asked = run(*LISTWISE, "-m", "fake:random", output="asked")
    for runs in ((base, other), (other, base)):
        compared = llmfair("compare", *runs, "--json").json
        assert [one["same_answers"] for one in compared["runs"]] == [False, True]
        untested = {(row["p"], row["low"], row["reason"]) for row in compared["rows"]}
        assert untested == {(None, None, "same_answers")} and compared["family"] == 0
        notes = compare_table(typed(compared, Comparison)).notes
        assert notes[0].startswith(f"{runs[0]} and {runs[1]} hold the same answers: ")
        assert not any("parity" in note or "no difference" in note for note in notes)
    compared = llmfair("compare", base, asked, "--json").json
    assert not any(one["same_answers"] for one in compared["runs"])


def test_nothing_has_no_sign() -> None:
    model = "fake:biased,malformed=0"  # what it makes of lists does not show in pairs
    one, two = (run(*PAIRWISE, "-m", f"{model},listwise={n}", output=f"of{n}") for n in (0, 1))
    found = llmfair("compare", one, two)
    assert "unparseable" in found.out and "0.000 [0.000, 0.000]" in found.out
    assert "-0.000" not in found.out and "+0.000" not in found.out


@pytest.mark.parametrize(
    ("one", "two", "sentence", "hint"),
    [
        (LISTWISE, PAIRWISE, "are runs of different tasks (listwise; pairwise).", "runs of one kind"),
        (LISTWISE, (*LISTWISE, "-n", "4"), "asked about different lists (sample, 8 queries, ", "--limit"),
        (PAIRWISE, (*PAIRWISE, "--form", "letter"), "asked in different forms (order; letter).", "--form"),
        ((*PAIRWISE, "--conditions", "relevant"), (*PAIRWISE, "--conditions", "irrelevant"), "have no pair in common.", "--conditions"),
        (LISTWISE, ("listwise", "-q", "--conditions", "male", "--no-repeat", "--orders", "1"), "have no prompt in common.", "runs show one"),
    ],
)  # fmt: skip
def test_runs_that_did_not_ask_the_same(
    one: tuple[str, ...], two: tuple[str, ...], sentence: str, hint: str
) -> None:
    found = llmfair("compare", run(*one, output="one"), run(*two, output="two"))
    assert found.code == 2 and not found.out
    error, way_out = found.err.splitlines()
    assert error.startswith("Error: one and two ") and sentence in error and hint in way_out


def test_other_refusals() -> None:
    one = run(*LISTWISE, output="one")
    refuses("two runs or more", "compare", one)
    refuses("no run 'two' in runs.", "compare", one, "two")
    refuses("two runs or more, each named once", "compare", one, "./one")
    two = run(*LISTWISE, "-m", "fake:oracle", output="oracle")
    refuses("AdjustedOdds is a measure of pairs", "compare", one, two, "--measures", "AdjustedOdds")
    assert (
        "P@20"
        in refuses("KL@20 has no values that can be paired", "compare", one, two, "--measures", "KL@20").err
    )
    assert llmfair("listwise", "-q", "--max-calls=5", "-o", "broken").code == 3
    hint = "llmfair listwise -m fake:biased --prompt wikiproject -o broken    completes it"
    refuses(f"Error: broken is incomplete.\n  {hint}\n", "compare", one, "broken")
    manifest = kept("manifest", "one")
    manifest["settings"]["attribute"]["protected"] = ["male"]
    Path("two").mkdir()
    for name in ("results.json", "per_query.csv"):
        Path("two", name).write_text(Path("one", name).read_text())
    Path("two/manifest.json").write_text(json.dumps(manifest))
    refuses(
        "audit different attributes (gender, female against male; gender, male against male).",
        "compare",
        one,
        "two",
    )
