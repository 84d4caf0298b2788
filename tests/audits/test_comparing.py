"""Runs side by side: hand-worked changes, injected differences, what is refused, and what the command says."""

from __future__ import annotations

import json
import math
from functools import cache
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.audits.comparing import compare
from llmfair.audits.documents import Comparison
from llmfair.audits.pairwise.results import read_verdicts, verdicts_lines
from llmfair.errors import UsageError
from llmfair.io.files import typed
from llmfair.metrics.pairs import ADJUSTED_ODDS, FLIP_RATE
from llmfair.nouns import Key, PairAnswer, PairVerdict, Side
from llmfair.report.compare import compare_table
from llmfair.report.verdict import compared_verdicts
from llmfair.rundir import RunDir
from llmfair.stats.intervals import Estimate, geometric_mean
from llmfair.stats.paired import away_from_parity, change_by_query, change_of_pairs
from llmfair.stats.pairs import PairContributions, estimate, t_p
from tests.cli.command import kept, llmfair, ran, refuses, table
from tests.folders import balanced, write_folder

pytestmark = pytest.mark.whole

QUERIES = 24
"""Of the runs with an injected difference."""
LISTS = ("listwise", "--passes", "1", "--conditions", "neutral", "--no-repeat", "--permutations", "0")
PAIRS = ("pairwise", "--pairs", "12", "--noise-share", "0")
BIASED = "fake:biased,malformed=0"


def counted(*cells: tuple[int, ...]) -> PairContributions:
    """Queries with so many pairs in PP, UU, FF, SS each; items of their own."""
    counts = np.concatenate([np.repeat(np.eye(4), numbers, axis=0) for numbers in cells])
    queries = np.repeat(np.arange(len(cells)), [sum(numbers) for numbers in cells])
    return PairContributions(counts, queries[None])


def made(command: tuple[str, ...], model: str, output: str) -> RunDir:
    if not Path("mine").is_dir():
        write_folder(Path("mine"), balanced(QUERIES, 10, 10))
    ran(*command, "-d", "mine", "-m", model, "-o", output, "-q", "--no-report")
    return RunDir(Path(output))


def rows(compared: Comparison) -> dict[tuple[str, str], Any]:
    return {(row.measure, row.key()): row for row in compared.rows}


def test_a_change_of_log_odds() -> None:
    # Base: p1 = p2 = 1/2, β = 0, and the scores of every query sum to 0. In three queries a flip becomes a win:
    # 9 PP, 6 UU, 3 FF, 6 SS, so p1 = 12/24, p2 = 15/24, β = ½ ln(15/9). A changed query has 3 wins when second, ½
    # above its share, an unchanged one 2, ½ below it: d = ± ¼ · ½/(⅝ · ⅜)/(2 · 6) = ± 2/45, V = 6/5 · 6 · d².
    base = counted(*[(1, 1, 1, 1)] * 6)
    other = counted(*[(2, 1, 0, 1)] * 3, *[(1, 1, 1, 1)] * 3)
    change = change_of_pairs(ADJUSTED_ODDS, base, other)
    found, error = change.estimate, math.sqrt(7.2) * 2 / 45
    assert found.value == pytest.approx(math.sqrt(5 / 3), rel=1e-12)
    assert found.error == pytest.approx(error, rel=1e-12)
    assert found.high == pytest.approx(math.sqrt(5 / 3) * math.exp(2.5705818 * error), rel=1e-6)
    assert (found.n, found.reason) == (6, None)
    t = 0.5 * math.log(5 / 3) / error
    theta = math.atan(t / math.sqrt(5))  # the t distribution with 5 degrees of freedom has a closed form
    inner = 2 / math.pi * (theta + math.sin(theta) * (math.cos(theta) + 2 / 3 * math.cos(theta) ** 3))
    assert change.p == pytest.approx(1 - inner, rel=1e-9)


def test_a_change_of_quotients_and_of_differences() -> None:
    rng = np.random.default_rng(0)
    quotients = change_by_query([1.0, 2, 1, 2, 1, 2], [2.0, 4, 2, 4, 2, 4], True, 0.95, rng)
    assert quotients.estimate.value == pytest.approx(2)
    assert quotients.estimate.low == pytest.approx(2)
    assert quotients.p == pytest.approx(2 / 64)  # all signs alike, either way
    differences = change_by_query([0.5] * 5, [0.5, 0.6, 0.7, 0.6, 0.6], False, 0.95, rng)
    assert differences.estimate.value == pytest.approx(0.1) and differences.p is None


def test_few_queries_have_no_interval_and_no_test() -> None:
    four, five = ([(2, 1, 1, 1)] * n for n in (4, 5))
    change = change_of_pairs(ADJUSTED_ODDS, counted(*four), counted(*four))
    assert (change.estimate.low, change.estimate.reason, change.p) == (None, "too_few_queries", None)
    change = change_of_pairs(ADJUSTED_ODDS, counted(*five), counted(*five))
    assert change.estimate.low is not None and change.p is None


def ratio(value: float, width: float = 1.25) -> Estimate:
    return Estimate(value, value / width, value * width, 8)


def test_nearer_and_farther_need_the_sum_of_logarithms_too() -> None:
    # all half widths ln 1.25 = .223: the sum's is √(2 + 2 − 1) · .223 = .386, and ln .5 + ln o is −.916, −.223, +.693
    for other, away in ((0.8, -1), (1.6, 0), (4.0, 1)):
        base, after, change = ratio(0.5), ratio(other), ratio(other / 0.5)
        assert away_from_parity(base, after, change) == away
        assert away_from_parity(after, base, ratio(0.5 / other)) == -away
        assert away_from_parity(ratio(2.0), ratio(1 / other), ratio(0.5 / other)) == away
    assert away_from_parity(ratio(0.5), ratio(1.4), ratio(2.8)) == 0  # −.357 is within ± .386
    assert away_from_parity(ratio(0.5), ratio(1.35), ratio(2.7)) == -1  # −.393 is not
    without = Estimate(0.5, None, None, 8, "always_one_way")
    assert away_from_parity(without, ratio(0.8), ratio(1.6)) == 0


@given(st.integers(0, 10**6), st.integers(6, 30))
def test_the_interval_of_a_sum_follows_from_those_of_the_change_and_of_both(seed: int, queries: int) -> None:
    before, after = np.exp(np.random.default_rng(seed).normal(0.1, 0.4, (2, queries)))
    base, other, change, total = map(geometric_mean, (before, after, after / before, after * before))
    assert total.low is not None and total.high is not None
    if abs(math.log(total.low)) > 1e-9 < abs(math.log(total.high)):
        assert (away_from_parity(base, other, change) == 0) == (total.low <= 1 <= total.high)


CELLS = st.lists(st.tuples(*[st.integers(1, 4)] * 4), min_size=6, max_size=9)


@settings(deadline=None, max_examples=40)
@given(CELLS, st.data())
def test_swapping_inverts_and_a_run_equals_itself(cells: list[tuple[int, ...]], data: st.DataObject) -> None:
    changed = data.draw(st.permutations(cells))
    base, other = counted(*cells), counted(*changed)
    for figure, logarithmic in ((ADJUSTED_ODDS, True), (FLIP_RATE, False)):
        if figure is FLIP_RATE:  # it counts ties and unparseable pairs too: there are none
            base, other = (
                PairContributions(np.pad(one.counts, ((0, 0), (0, 2))), one.clusters) for one in (base, other)
            )
        one = change_of_pairs(figure, base, other, logarithmic=logarithmic)
        two = change_of_pairs(figure, other, base, logarithmic=logarithmic)
        mirrored = 1 / two.estimate.value if logarithmic else -two.estimate.value  # type: ignore[operator]
        assert one.estimate.value == pytest.approx(mirrored)
        assert one.estimate.error == pytest.approx(two.estimate.error) and one.p == pytest.approx(two.p)
        itself = change_of_pairs(figure, base, base, logarithmic=logarithmic)
        assert itself.estimate.value == (1 if logarithmic else 0) and itself.p == 1
        assert itself.estimate.low == pytest.approx(itself.estimate.high)


@settings(deadline=None, max_examples=20)
@given(CELLS)
def test_against_a_run_without_spread_it_is_the_other_s_own_interval(cells: list[tuple[int, ...]]) -> None:
    level, other = counted(*[(1, 1, 1, 1)] * len(cells)), counted(*cells)
    change, own = change_of_pairs(ADJUSTED_ODDS, level, other), estimate(ADJUSTED_ODDS, other)
    assert change.estimate.value == pytest.approx(own.value)
    assert change.estimate.low == pytest.approx(own.low)
    assert change.estimate.high == pytest.approx(own.high)
    if own.error > 1e-9:
        assert change.p == pytest.approx(
            t_p(float(ADJUSTED_ODDS(other.cells)), other.variance(ADJUSTED_ODDS))
        )


def test_verdicts_are_read_as_they_were_written(tmp_path: Path) -> None:
    sides = PairAnswer(Side.PROTECTED, None, 1.25), PairAnswer(Side.UNPROTECTED)
    unread = PairAnswer(None, "tie", 0.0), PairAnswer(None, "empty")
    verdicts = [
        PairVerdict("q,1", "irrelevant", 0, n, 'a"', "b", *of) for n, of in enumerate((sides, unread))
    ]
    path = tmp_path / "verdicts.csv"
    path.write_text("".join(verdicts_lines({Key("pairs", "irrelevant"): verdicts})), "utf-8")
    assert read_verdicts(path) == verdicts


def test_an_injected_listwise_difference_is_found() -> None:
    base = made(LISTS, f"{BIASED},listwise=-0.5", "base")
    other = made(LISTS, f"{BIASED},listwise=0", "other")
    compared = compare([base, other])
    found = rows(compared)
    ratio, odds = found["ExpRatio(control=order)", "neutral"], found["PreferenceOdds", "neutral"]
    assert odds.headline and odds.low > 1 and odds.n == QUERIES
    assert odds.low < math.exp(0.5) < odds.high
    assert odds.p_adjusted < 0.01 and compared.family == 2
    assert ratio.change > 1 and ratio.low > 1 and ratio.n == QUERIES and ratio.p < 0.01
    # lists no longer than 20 leave P@20 nothing to differ in
    assert (found["P@20", "neutral"].change, found["P@20", "neutral"].p_adjusted) == (0, 1)
    assert "RBO" not in {measure for measure, _ in found}


def test_an_injected_pairwise_difference_is_found() -> None:
    base = made(PAIRS, f"{BIASED},pairwise=-0.6", "base")
    other = made(PAIRS, f"{BIASED},pairwise=0", "other")
    compared = compare([base, other])
    found = rows(compared)
    for kind in ("relevant", "irrelevant"):
        odds = found["AdjustedOdds", kind]
        assert odds.low > 1 and odds.p_adjusted < 0.01 and odds.n == QUERIES
        assert odds.low < math.exp(0.6) < odds.high
        assert odds.change == pytest.approx(odds.other / odds.base)
        assert (found["InvalidRate", kind].change, found["InvalidRate", kind].p) == (0, 1)
    assert compared.family == 2
    # and the figures are those of the runs' own tables
    own = {(row["measure"], row["stratum"]): row["value"] for row in table(base.path / "metrics.csv")}
    assert float(own["AdjustedOdds", "relevant"]) == found["AdjustedOdds", "relevant"].base


def test_runs_are_compared_on_the_pairs_in_common() -> None:
    few = made((*PAIRS, "--conditions", "relevant"), BIASED, "few")
    many = made(("pairwise", "--pairs", "15", "--noise-share", "0.2"), BIASED, "many")
    compared = compare([few, many])
    base, other = (run.own for run in compared.runs)
    assert (base["pairs"], other["pairs"]) == (12 * QUERIES, 2 * 15 * QUERIES)
    assert other["pairs_in_common"] == 12 * QUERIES
    assert {(row.key(), row.p, row.reason) for row in compared.rows} == {("relevant", None, "same_answers")}


def test_nothing_is_concluded_from_a_run_that_follows_the_position() -> None:
    base = made(PAIRS, f"{BIASED},pairwise=-0.6", "base")
    other = made(PAIRS, f"{BIASED},pairwise=0,position=50,query_sd=0", "other")
    for one, two, told in ((base, other, (False, True)), (other, base, (True, False))):
        compared: Any = compare([one, two])
        for name in ("AdjustedOdds", "BalancedRatio", "WinRatio"):
            row = rows(compared)[name, "relevant"]
            assert (row.low, row.p, row.p_adjusted) == (None, None, None)
            conclusions = (row.base_conclusion, row.other_conclusion)
            assert tuple(conclusion == "not_assessable" for conclusion in conclusions) == told
        assert rows(compared)["AdjustedOdds", "relevant"].reason == "position_driven"
        flips = rows(compared)["FlipRate", "relevant"]
        assert flips.p < 0.001 and flips.base_conclusion is None  # how many flip can be told
        assert compared.family == 0
        name = next(run.name for run in compared.runs if "position=50" in run.model)
        assert f"follow the position ({name})" in compared.verdict.sentence
        assert rows(compared)["WinRatio", "relevant"].reason == "no_consistent_pair"


def test_pooled_runs_are_compared_pooled_and_with_no_others() -> None:
    lists = balanced(QUERIES, 10, 10)
    for query in list(lists)[::2]:  # one pair of either kind
        lists[query] = [row for row in lists[query] if row[0][-1] in "09"]
    write_folder(Path("mine"), lists)
    pooled = (*PAIRS, "--weights", "pooled")
    base, other = (made(pooled, f"{BIASED},pairwise={p},query_sd=1", n) for p, n in ((0.5, "a"), (0, "b")))
    compared = compare([base, other])
    row = rows(compared)["AdjustedOdds(agg=pooled)", "relevant"]
    assert row.headline and row.change == pytest.approx(row.other / row.base)
    assert "every pair weighs the same, not every query (--weights pooled)" in compare_table(compared).notes
    macro = made(PAIRS, f"{BIASED},pairwise=0,query_sd=1", "c")
    with pytest.raises(UsageError, match=r"weigh pairs differently \(pooled; macro\)"):
        compare([base, macro])


SHORT = ("listwise", "-q", "--no-report", "--passes", "1", "--conditions", "neutral", "--no-repeat")
LISTWISE = (*SHORT, "--orders", "1")
PAIRWISE = ("pairwise", "-q", "--no-report", "--pairs", "6", "--noise-share", "0")


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
    assert (compared["schema"], compared["task"], compared["family"]) == (5, "listwise", 4)


def test_odds_that_one_run_lacks_are_named_with_the_reason() -> None:
    run(*SHORT, "-m", "fake:biased,listwise=0", output="finite")
    run(*SHORT, "-m", "fake:biased,listwise=-60", output="separated")
    for runs in (("finite", "separated"), ("separated", "finite")):
        found = llmfair("compare", *runs, "--json").json
        (row,) = (row for row in found["rows"] if row["measure"] == "PreferenceOdds")
        assert row["change"] is None and row["reason"] and found["verdict"]["status"] == "not assessable"
        assert row["reason_of"] == ["fake:biased,listwise=-60"]
        assert llmfair("compare", *runs).out.startswith("VERDICT  not assessable: ")
        assert "(fake:biased,listwise=-60)" in found["verdict"]["sentence"].partition(": ")[2]


@cache
def of_pairs() -> str:
    """A comparison of two runs of pairs, as JSON, made once."""
    folders = [run(*PAIRWISE, "-m", f"fake:biased,pairwise=0.1,position={p}", output=f"p{p}") for p in (0, 2)]
    return llmfair("compare", *folders, "--json").out


def assumed(base: float, other: float, **more: float | str | None) -> Comparison:
    """A comparison whose odds are these, with intervals that are 5 % long either way, and a change beyond chance."""
    compared: dict[str, Any] = json.loads(of_pairs())
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
    ("base", "other", "said", "beside", "bought"),
    [
        (-0.5, 0.47, "moved; which is nearer is open: 0.607 → 1.600", ", now favouring the other group, outside the band", False),
        (-0.5, 0.9, "farther from parity: 0.607 → 2.460", ", now favouring the other group, outside the band", False),
        (-0.5, 0.05, "closer to parity: 0.607 → 1.051", "", True),
        (-0.05, -0.5, "farther from parity: 0.951 → 0.607", "", False),
        (-0.05, 0.05, "equivalent: 0.951 → 1.051", ", a change within 0.8–1.25", False),
    ],
)  # fmt: skip
def test_that_odds_changed_is_not_that_they_came_closer(
    base: float, other: float, said: str, beside: str, bought: bool
) -> None:
    compared = assumed(exp(base), exp(other))
    notes = "\n".join(compare_table(compared).notes)
    assert "flips, relevant: more answers now depend on the order" in notes
    assert ("bought with indecision" in notes) == bought
    ((_, verdict),) = compared_verdicts(compared)
    status, _, figures = said.partition(": ")
    assert verdict.status == status and f"preference odds (relevant pairs): {figures} (× " in verdict.sentence
    assert ", p < 0.001, " in verdict.sentence and f"paired){beside}" in verdict.sentence
    assert ("now favouring" in verdict.sentence) == ("now favouring" in beside)


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"low": 0.99, "high": 1.25}, "equivalent"),
        ({"low": 1.01, "high": 1.26}, "closer to parity"),
        ({"low": 0.99, "high": 1.26, "p_adjusted": 0.06}, "no difference shown"),
        ({"low": 0.99, "high": 1.25, "useless": "chance_answers"}, "not assessable"),
        ({"low": 1.01, "high": 1.25, "base_conclusion": "outside", "other_conclusion": "within"}, "closer to parity"),
    ],
)  # fmt: skip
def test_a_change_within_the_margin_is_equivalent(more: dict[str, Any], status: str) -> None:
    ((_, verdict),) = compared_verdicts(assumed(0.76, 0.84, **more))
    assert verdict.status == status


def test_a_gate_on_what_a_comparison_comes_to() -> None:
    for name, strength in (("strong", -2), ("weak", 0), ("same", 0)):
        run(*SHORT, "-m", f"fake:biased,listwise={strength}", "--label", name, output=name)
    for base, other, status in (("strong", "weak", "closer to parity"), ("weak", "same", "not assessable")):
        shown = llmfair("compare", base, other).out
        assert shown.startswith(
            f"VERDICT  {status}: {other} beside {base}, odds of answers (neutral prompt):"
        )
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
    for name, strength in (("base", -1), ("other", -0.2)):
        run(*SHORT, "-m", f"fake:biased,listwise={strength},malformed=0", output=name)
    compared = llmfair("compare", "base", "other", "--json").json
    for measure in ("PreferenceOdds", "ExpRatio(control=order)"):
        (row,) = (row for row in compared["rows"] if row["measure"] == measure)
        assert row["change"] == pytest.approx(row["other"] / row["base"], rel=1e-12)
        for name in ("base", "other"):
            its, key = kept("results", name)["rows"], (measure, "neutral", "")
            (own,) = (one for one in its if (one["measure"], one["condition"], one["group"]) == key)
            assert row[name] == own["value"]


def test_a_ranker_of_no_use_came_no_closer() -> None:
    compared = assumed(0.4, 0.9, useless="chance_answers")
    ((name, verdict),) = compared_verdicts(compared)
    why = f"closer to parity, but the answers agree over both orders no more than by chance ({name})"
    assert verdict.status == "not assessable" and why in verdict.sentence
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
    assert "(the attainable ranges differ)" in llmfair("compare", base, other).out
    # another seed simulates the same range a little otherwise
    compared = llmfair("compare", base, again, "--json").json
    assert all(row["p"] is not None for row in compared["rows"])


def test_runs_that_share_all_answers_are_not_tested() -> None:
    base = run(*LISTWISE, output="base")
    other = run(*LISTWISE, "--conditions", "neutral,female", "--level", "0.9", output="other")
    asked = run(*LISTWISE, "-m", "fake:random", output="asked")
    for runs in ((base, other), (other, base)):
        compared = llmfair("compare", *runs, "--json").json
        assert [one["same_answers"] for one in compared["runs"]] == [False, True]
        untested = {(row["p"], row["low"], row["reason"]) for row in compared["rows"]}
        assert untested == {(None, None, "same_answers")} and compared["family"] == 0
        notes = compare_table(typed(compared, Comparison)).notes
        assert notes[0].startswith(f"{runs[0]} and {runs[1]} hold the same answers: ")
    compared = llmfair("compare", base, asked, "--json").json
    assert not any(one["same_answers"] for one in compared["runs"])


@pytest.mark.parametrize(
    ("one", "two", "sentence", "hint"),
    [
        (LISTWISE, PAIRWISE, "are runs of different tasks (listwise; pairwise).", "runs of one kind"),
        (LISTWISE, (*LISTWISE, "-n", "4"), "asked about different lists (sample, 8 queries, ", "--limit"),
        ((*PAIRWISE, "--conditions", "relevant"), (*PAIRWISE, "--conditions", "irrelevant"), "have no pair in common.", "--conditions"),
        (LISTWISE, (*LISTWISE, "--conditions", "male"), "have no prompt in common.", "runs show one"),
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
    refuses("no run 'two' in runs.", "compare", one, "two")
    refuses("two runs or more, each named once", "compare", one, "./one")
    two = run(*LISTWISE, "-m", "fake:oracle", output="oracle")
    refuses("AdjustedOdds is a measure of pairs", "compare", one, two, "--measures", "AdjustedOdds")
    refuses("KL@20 has no values that can be paired", "compare", one, two, "--measures", "KL@20")
    assert llmfair("listwise", "-q", "--max-calls=5", "-o", "broken").code == 3
    hint = "llmfair listwise -m fake:biased --prompt wikiproject -o broken    completes it"
    refuses(f"Error: broken is incomplete.\n  {hint}\n", "compare", one, "broken")
    manifest = kept("manifest", "one")
    manifest["settings"]["attribute"]["protected"] = ["male"]
    Path("two").mkdir()
    for name in ("results.json", "per_query.csv"):
        Path("two", name).write_text(Path("one", name).read_text())
    Path("two/manifest.json").write_text(json.dumps(manifest))
    told = "audit different attributes (gender, female against male; gender, male against male)."
    refuses(told, "compare", "one", "two")


def test_the_verdict_of_several_runs_is_the_gravest() -> None:
    for name, strength in (("base", -2), ("same", -2), ("weak", 0)):
        run(*SHORT, "-m", f"fake:biased,listwise={strength}", "--label", name, output=name)
    for others in (("same", "weak"), ("weak", "same")):
        verdict = llmfair("compare", "base", *others, "--json").json["verdict"]
        assert verdict["status"] == "not assessable" and verdict["sentence"].startswith("same beside base, ")
