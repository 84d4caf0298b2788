"""Two runs paired by query: hand-worked changes, injected differences found, and nothing found where none is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.audits.comparing import compare, unlike
from llmfair.audits.documents import Comparison
from llmfair.audits.pairwise.measure import read_verdicts, verdicts_lines
from llmfair.errors import UsageError
from llmfair.metrics.pairs import ADJUSTED_ODDS, FLIP_RATE
from llmfair.nouns import PairAnswer, PairVerdict, Side
from llmfair.report.compare import compare_table
from llmfair.rundir import RunDir
from llmfair.stats.intervals import Estimate, geometric_mean
from llmfair.stats.paired import at_figure, away_from_parity, change_by_query, change_of_pairs
from llmfair.stats.pairs import PairContributions, estimate, t_test
from tests.cli.command import llmfair, ran, table
from tests.folders import balanced, write_folder

pytestmark = pytest.mark.whole

QUERIES = 24
LISTWISE = ("listwise", "--passes", "1", "--conditions", "neutral", "--no-repeat", "--permutations", "0")
PAIRWISE = ("pairwise", "--pairs", "12", "--noise-share", "0")
BIASED = "fake:biased,malformed=0"


def counted(*cells: tuple[int, ...]) -> PairContributions:
    """Queries with so many pairs in PP, UU, FF, SS each; items of their own."""
    counts = np.concatenate([np.repeat(np.eye(4), numbers, axis=0) for numbers in cells])
    queries = np.repeat(np.arange(len(cells)), [sum(numbers) for numbers in cells])
    return PairContributions(counts, queries[None])


def made(command: tuple[str, ...], model: str, output: str) -> RunDir:
    if not Path("mine").is_dir():
        write_folder(Path("mine"), balanced(QUERIES, 10, 10))
    ran(*command, "-d", "mine", "-m", model, "-o", output, "-q")
    return RunDir(Path(output))


def rows(compared: Comparison) -> dict[tuple[str, str], Any]:
    return {(row.measure, row.key): row for row in compared.rows}


# By hand


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


def test_values_that_have_the_figure_as_their_mean() -> None:
    assert at_figure([1.0, 4.0], 6.0) == pytest.approx([3.0, 12.0])
    assert at_figure([1.0, 4.0], None) == [1.0, 4.0]


def test_settings_in_words() -> None:
    assert unlike("sha256", "a" * 64, None) == ("aaaaaa", "none")
    assert unlike("of", {"a": [1, 2], "b": 3}, {"a": (), "b": 3}) == ("a 1, 2", "a none")
    assert unlike("strategy", ("windows",), "setwise") == ("windows", "setwise")


# Properties

CELLS = st.lists(st.tuples(*[st.integers(1, 4)] * 4), min_size=6, max_size=9)


@settings(deadline=None, max_examples=40)
@given(CELLS, st.data())
def test_swapping_inverts_and_a_run_does_not_differ_from_itself(
    cells: list[tuple[int, ...]], data: st.DataObject
) -> None:
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


def test_no_change_is_told_by_rounding() -> None:
    """The pairs of two queries change places: the change is 0, and so is its error but for the last bits."""
    rest = [(1, 1, 1, 1)] * 4
    base, other = counted(*rest, (1, 1, 1, 2), (1, 1, 2, 2)), counted(*rest, (1, 1, 2, 2), (1, 1, 1, 2))
    for one, two in ((base, other), (other, base)):
        change = change_of_pairs(ADJUSTED_ODDS, one, two)
        assert (change.estimate.value, change.p) == (1, 1)


@settings(deadline=None, max_examples=20)
@given(CELLS)
def test_against_a_run_without_any_spread_it_is_the_other_s_own_interval(
    cells: list[tuple[int, ...]],
) -> None:
    level, other = counted(*[(1, 1, 1, 1)] * len(cells)), counted(*cells)
    change, own = change_of_pairs(ADJUSTED_ODDS, level, other), estimate(ADJUSTED_ODDS, other)
    assert change.estimate.value == pytest.approx(own.value)
    assert change.estimate.low == pytest.approx(own.low)
    assert change.estimate.high == pytest.approx(own.high)
    if own.error > 1e-9:
        assert change.p == pytest.approx(t_test(ADJUSTED_ODDS, other))


@pytest.mark.slow
@pytest.mark.parametrize("recurring", [False, True])
def test_of_two_runs_alike_one_in_twenty_differs(recurring: bool) -> None:
    """Queries and items have tastes that both runs share, and tastes of each run alone, which do not cancel."""
    rng, sims, queries, pairs, pool = np.random.default_rng(1), 1000, 44, 30, 60

    def run(shared: Any, clusters: Any) -> PairContributions:
        own = [rng.normal(0, 0.3, 1 + int(ways.max()))[ways] for ways in clusters]
        odds = shared + sum(own)
        wins = [rng.random(len(odds)) < 1 / (1 + np.exp(-odds - slot)) for slot in (0.5, -0.5)]
        cells = np.where(wins[0] == wins[1], np.where(wins[0], 0, 1), np.where(wins[0], 2, 3))
        return PairContributions(np.eye(4)[cells], clusters)

    differ = 0
    for _ in range(sims):
        query = np.repeat(np.arange(queries), pairs)
        items = (
            rng.integers(0, pool, (2, len(query))) if recurring else np.tile(np.arange(len(query)), (2, 1))
        )
        clusters = np.stack([query, *items])
        shared = rng.normal(0, 0.5, queries)[query]
        change = change_of_pairs(ADJUSTED_ODDS, run(shared, clusters), run(shared, clusters))
        differ += change.p is not None and change.p < 0.05
    assert 0.02 <= differ / sims <= 0.07


def test_verdicts_are_read_as_they_were_written(tmp_path: Path) -> None:
    sides = PairAnswer(Side.PROTECTED, None, 1.25), PairAnswer(Side.UNPROTECTED)
    verdicts = [
        PairVerdict("q,1", "irrelevant", 0, 0, 'a"', "b", *sides),
        PairVerdict(
            "q,1", "irrelevant", 0, 1, 'a"', "b", PairAnswer(None, "tie", 0.0), PairAnswer(None, "empty")
        ),
    ]
    path = tmp_path / "verdicts.csv"
    path.write_text("".join(verdicts_lines({"irrelevant": verdicts})), "utf-8")
    assert read_verdicts(path) == verdicts


# Injected differences


def test_a_injected_listwise_difference_is_found() -> None:
    base = made(LISTWISE, f"{BIASED},listwise=-0.5", "base")
    other = made(LISTWISE, f"{BIASED},listwise=0", "other")
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


def test_a_injected_pairwise_difference_is_found_and_no_other() -> None:
    base = made(PAIRWISE, f"{BIASED},pairwise=-0.6", "base")
    other = made(PAIRWISE, f"{BIASED},pairwise=0", "other")
    again = made(PAIRWISE, f"{BIASED},pairwise=0,listwise=1", "again")
    compared = compare([base, other])
    found = rows(compared)
    for kind in ("relevant", "irrelevant"):
        odds = found["AdjustedOdds", kind]
        assert odds.low > 1 and odds.p_adjusted < 0.01 and odds.n == QUERIES
        assert odds.low < math.exp(0.6) < odds.high
        assert odds.change == pytest.approx(odds.other / odds.base)
        assert (found["InvalidRate", kind].change, found["InvalidRate", kind].p) == (0, 1)
    assert compared.family == 2
    for row in rows(compare([other, again])).values():
        assert row.p_adjusted is None or row.p_adjusted > 0.05
    # and the figures are those of the runs' own tables
    own = {(row["measure"], row["stratum"]): row["value"] for row in table(base.path / "metrics.csv")}
    assert float(own["AdjustedOdds", "relevant"]) == found["AdjustedOdds", "relevant"].base


def test_more_pairs_are_compared_on_those_in_common() -> None:
    few = made((*PAIRWISE, "--conditions", "relevant"), BIASED, "few")
    many = made(("pairwise", "--pairs", "15", "--noise-share", "0.2"), BIASED, "many")
    compared = compare([few, many])
    assert {row.key for row in compared.rows} == {"relevant"}
    run = compared.runs[1]
    # pairs, however often they were asked
    assert (run.own["pairs_in_common"], run.own["pairs"]) == (12 * QUERIES, 2 * 15 * QUERIES)
    assert compared.runs[0].own["pairs"] == 12 * QUERIES
    table = compare_table(compared)
    assert "many: compared on 288 answered pairs in common, of 288 and 720" in table.notes
    assert run.differs["pairs"] == (12, 15) and run.differs["noise_share"] == (0.0, 0.2)
    assert all(row.p is None and row.reason == "same_answers" for row in compared.rows)


# What may not be concluded


def test_nothing_is_concluded_from_a_run_that_follows_the_position() -> None:
    base = made(PAIRWISE, f"{BIASED},pairwise=-0.6", "base")
    other = made(PAIRWISE, f"{BIASED},pairwise=0,position=50,query_sd=0", "other")
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
        (note,) = [n for n in compare_table(compared).notes if n.startswith("preference odds, relevant")]
        assert note == (
            "preference odds, relevant: cannot be assessed: the answers follow the position "
            f"({other_name(compared)})"
        )
        assert f"follow the position ({other_name(compared)})" in compared.verdict.sentence
        own = llmfair("score", str(other.path), "--measures", "WinRatio", "--json").json["rows"]
        of_run = next(r["reason"] for r in own if r["measure"] == "WinRatio" and r["stratum"] == "relevant")
        assert rows(compared)["WinRatio", "relevant"].reason == of_run == "no_consistent_pair"


def test_a_run_at_parity_whose_slots_decide_is_compared() -> None:
    oracle, biased = (
        made(LISTWISE, "fake:oracle", "oracle"),
        made(LISTWISE, f"{BIASED},listwise=-2", "biased"),
    )
    for runs, status in (((oracle, biased), "farther from parity"), ((biased, oracle), "closer to parity")):
        compared: Any = compare(runs)
        odds = rows(compared)["PreferenceOdds", "neutral"]
        assert (compared.verdict.status, odds.n, odds.reason) == (status, QUERIES, None)
        assert {odds.base_conclusion, odds.other_conclusion} == {"within", "outside"}
        assert odds.change == pytest.approx(odds.other / odds.base, rel=0.05)


def other_name(compared: Comparison) -> str:
    return str(next(run.name for run in compared.runs if "position=50" in run.model))


def test_unparseable_answers_leave_no_exposure_to_compare() -> None:
    base = made(LISTWISE, f"{BIASED},listwise=-2", "base")
    other = made((*LISTWISE, "--max-invalid", "1"), "fake:biased,malformed=0", "other")
    results = other.read_results()
    results["findings"]["neutral"] |= {"conclusion": "not_assessable", "reason": "no_readable_answer"}
    other.write_json("results.json", results)
    row = rows(compare([base, other]))["ExpRatio(control=order)", "neutral"]
    assert (row.p, row.low, row.reason) == (None, None, "no_readable_answer")


def test_pooled_runs_are_compared_pooled_and_with_no_others() -> None:
    lists = balanced(QUERIES, 10, 10)
    for query in list(lists)[::2]:  # one pair of either kind
        lists[query] = [row for row in lists[query] if row[0][-1] in "09"]
    write_folder(Path("mine"), lists)
    pooled = (*PAIRWISE, "--weights", "pooled")
    base, other = (
        made(pooled, f"{BIASED},pairwise={p},query_sd=1", name) for p, name in ((0.5, "a"), (0, "b"))
    )
    compared = compare([base, other])
    row = rows(compared)["AdjustedOdds(agg=pooled)", "relevant"]
    for run, key in ((base, "base"), (other, "other")):
        (own,) = [
            one["value"]
            for one in run.read_results()["rows"]
            if (one["measure"], one["stratum"]) == ("AdjustedOdds(agg=pooled)", "relevant")
        ]
        assert getattr(row, key) == pytest.approx(own, rel=1e-12)
    assert row.headline and row.change == pytest.approx(row.other / row.base)
    table = compare_table(compared)
    assert any(note.startswith("pooled preference odds, relevant: ") for note in table.notes)
    assert "every pair weighs the same, not every query (--weights pooled)" in table.notes
    macro = made(PAIRWISE, f"{BIASED},pairwise=0,query_sd=1", "c")
    with pytest.raises(UsageError, match=r"weigh pairs differently \(pooled; macro\)"):
        compare([base, macro])
