"""What is concluded of pairs whose odds have no size, and of answers that are no better than coins."""

from __future__ import annotations

from itertools import product
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from msgspec import to_builtins

from llmfair import api
from llmfair.audits.label_error import label_error
from llmfair.audits.pairwise.measure import (
    PairConclusion,
    beside_each_other,
    bound_of,
    concluded,
    seen,
    settled,
)
from llmfair.audits.pairwise.results import Bound, PairFinding
from llmfair.metrics.pairs import ADJUSTED_ODDS, KAPPA
from llmfair.nouns import Conclusion, PairAnswer, PairVerdict, Side
from llmfair.pages import page_of
from llmfair.report.page import read_source
from llmfair.report.phrases import bound_text, outward
from llmfair.rundir import RunDir
from llmfair.stats.pairs import PairContributions, estimate
from llmfair.stats.sequential import Decision
from llmfair.stats.significance import sign_flip, sign_test
from tests.cli.command import kept, llmfair
from tests.folders import balanced, unequally_relevant, write_folder

BAND = (0.8, 1.25)
Cells = tuple[int, int, int, int]


def pairs(*queries: Cells) -> PairContributions:
    """Queries with so many pairs of each cell, PP, UU, FF, SS; no item stands in two pairs."""
    cells = [
        (query, cell)
        for query, counts in enumerate(queries)
        for cell in range(4)
        for _ in range(counts[cell])
    ]
    query, cell = np.array(cells).T
    return PairContributions(np.eye(4)[cell], np.stack([query, np.arange(len(cells)), np.arange(len(cells))]))


def simulated(
    queries: int, each: int, first: float, second: float, rng: np.random.Generator
) -> PairContributions:
    """A model whose answers are tosses: the protected item wins shown first and second so often."""
    wins = rng.random((2, queries * each)) < np.array([[first], [second]])
    cell = np.array([[1, 3], [2, 0]])[wins[0].astype(int), wins[1].astype(int)]
    query = np.repeat(np.arange(queries), each)
    return PairContributions(np.eye(4)[cell], np.stack([query, np.arange(len(cell)), np.arange(len(cell))]))


def found(counted: PairContributions, level: float = 0.95) -> tuple[Conclusion, str | None, Bound | None]:
    one = concluded(estimate(ADJUSTED_ODDS, counted, level), counted, BAND, level)
    return one.conclusion, one.reason, one.bound


def test_a_preference_in_one_order_alone_is_outside_with_a_bound() -> None:
    # UU and FF in halves: p1 = 1/2, p2 = 0 of 400, drawn in to 0.02: odds of √(0.02/0.98), and the error of p1 above.
    conclusion, reason, bound = found(pairs(*[(0, 25, 25, 0)] * 8))
    assert (conclusion, reason) == (Conclusion.OUTSIDE, "position_driven")
    assert bound is not None and bound.side == "at most"
    assert bound.odds == pytest.approx((0.02 / 0.98) ** 0.5 * exp(0.1136), rel=1e-4)
    mirrored = found(pairs(*[(25, 0, 25, 0)] * 8))[2]
    assert (
        mirrored is not None
        and mirrored.side == "at least"
        and mirrored.odds == pytest.approx(1 / bound.odds)
    )
    assert bound_text(*bound.limits, BAND) == "at most 0.17"
    assert bound_text(*mirrored.limits, BAND) == "at least 6.2"


def test_one_group_winning_all_pairs_is_outside_with_a_bound() -> None:
    conclusion, reason, bound = found(pairs(*[(0, 50, 0, 0)] * 8))
    assert (conclusion, reason) == (Conclusion.OUTSIDE, "one_sided")
    assert bound is not None and bound.odds == pytest.approx(0.02 / 0.98)
    # of 60 pairs without a case, a share of up to −ln(0.025)/60 is left open
    few = found(pairs(*[(0, 10, 0, 0)] * 6))[2]
    least = -log(0.025) / 60
    assert few is not None and few.odds == pytest.approx(least / (1 - least))


@pytest.mark.parametrize(
    ("counted", "why"),
    [
        (pairs(*[(0, 4, 46, 0)] * 8), "8 % of pairs are consistent"),
        (pairs(*[(0, 25, 25, 0)] * 5), "five queries can give no p below 0.05"),
        (pairs(*[(0, 10, 39, 1)] * 2, *[(1, 0, 49, 0)] * 6), "two queries of eight favour the other group"),
    ],
    ids=str,
)
def test_without_evidence_of_a_side_nothing_can_be_said(counted: PairContributions, why: str) -> None:
    assert found(counted)[::2] == (Conclusion.NOT_ASSESSABLE, None), why


def test_a_bound_that_reaches_into_the_band_concludes_nothing() -> None:
    counted = pairs(*[(0, 6, 44, 0)] * 8)
    odds = estimate(ADJUSTED_ODDS, counted, 0.95)
    one = concluded(odds, counted, (0.3, 3.0), 0.95)
    assert one.conclusion is Conclusion.INCONCLUSIVE
    assert one.bound is not None and 0.3 < one.bound.odds < 0.8


def test_parity_needs_answers_that_agree_beyond_chance() -> None:
    steady, tossed = pairs(*[(20, 20, 10, 10)] * 44), pairs(*[(15, 15, 15, 15)] * 44)
    assert found(steady) == (Conclusion.WITHIN, None, None)
    assert estimate(KAPPA.figure, steady, logarithmic=False).value == pytest.approx(1 / 3)
    assert found(tossed) == (Conclusion.NOT_ASSESSABLE, "chance_answers", None)
    # a preference needs no such evidence
    assert found(pairs(*[(10, 40, 20, 20)] * 44))[0] is Conclusion.OUTSIDE


def test_a_sequential_audit_says_no_more_than_was_settled() -> None:
    counted = pairs(*[(0, 25, 25, 0)] * 8)
    one = concluded(estimate(ADJUSTED_ODDS, counted, 0.95), counted, BAND, 0.95)
    below = settled(one, Decision.BELOW, counted, BAND)
    assert (below.conclusion, below.bound) == (Conclusion.OUTSIDE, Bound("at most", 0.8))
    assert settled(one, None, counted, BAND).conclusion is Conclusion.INCONCLUSIVE
    tossed = pairs(*[(15, 15, 15, 15)] * 44)
    one = concluded(estimate(ADJUSTED_ODDS, tossed, 0.95), tossed, BAND, 0.95)
    assert settled(one, Decision.INSIDE, tossed, BAND).reason == "chance_answers"


@pytest.mark.parametrize(("queries", "seen_inside"), [(19, None), (20, Decision.INSIDE)])
def test_few_queries_are_never_seen_inside_the_band(queries: int, seen_inside: Decision | None) -> None:
    answers = [PairAnswer(side, None) for side in (Side.PROTECTED, Side.UNPROTECTED)]
    verdicts = [
        PairVerdict(f"q{query}", "relevant", pair, 0, f"p{query}.{pair}", f"u{query}.{pair}", answer, answer)
        for query in range(queries)
        for pair, answer in enumerate(answers * 20)
    ]
    assert seen(verdicts, BAND, 0.95) is seen_inside
    counted = pairs(*[(20, 20, 0, 0)] * queries)
    one = concluded(estimate(ADJUSTED_ODDS, counted, 0.95), counted, BAND, 0.95)
    assert one.conclusion is Conclusion.WITHIN
    reason = None if seen_inside else "few_queries_inside"
    assert settled(one, None, counted, BAND) == PairConclusion(Conclusion.INCONCLUSIVE, reason)


def test_no_decision_makes_an_interval_that_reaches_into_the_band_lie_outside() -> None:
    counted = pairs(*[(5, 25, 10, 10)] * 5, *[(25, 5, 10, 10)] * 3)
    odds = estimate(ADJUSTED_ODDS, counted, 0.95)
    assert odds.low is not None and odds.high is not None and odds.low < 0.8 < odds.high
    one = concluded(odds, counted, BAND, 0.95)
    assert settled(one, Decision.BELOW, counted, BAND).conclusion is Conclusion.INCONCLUSIVE


def test_the_sign_test_is_exact() -> None:
    assert sign_test([1, 2, 3, 0.5, 7, 1]) == pytest.approx(2 / 64)
    assert sign_test([1, -1, 0, 0]) == sign_test([]) == 1
    values = [1, 1, 1, -1, 1, 1, 1, 1]
    assert sign_test([*values, 0]) == pytest.approx(sign_flip(values, rng=np.random.default_rng(0)))


@pytest.mark.parametrize("queries", [8, 44])
@pytest.mark.parametrize("each", [10, 50])
def test_models_that_follow_the_position_alone_have_no_bound(queries: int, each: int) -> None:
    """In at most 2.5 % of audits, whatever the position bias; here none of 40 a bias."""
    rng = np.random.default_rng([queries, each])
    for gamma in (2.0, 3.0, 4.0, 8.0):
        share = 1 / (1 + exp(-gamma))
        audits = [simulated(queries, each, share, 1 - share, rng) for _ in range(10)]
        ends = [found(one) for one in audits]
        assert not any(bound for *_, bound in ends)


def test_of_several_strata_a_disparity_is_one_among_all() -> None:
    """Holm: of two strata one has to be outside at 97.5 %, then the other at 95 %."""

    def together(**outside_at: float) -> list[Conclusion]:
        findings = {
            name: PairFinding(
                measure="AdjustedOdds",
                conclusion=Conclusion.OUTSIDE if level >= 0.95 else Conclusion.WITHIN,
                reason=None,
            )
            for name, level in outside_at.items()
        }

        def at(name: str, level: float) -> Conclusion:
            return Conclusion.OUTSIDE if outside_at[name] >= level else Conclusion.INCONCLUSIVE

        return [each.conclusion for each in beside_each_other(findings, at, 0.95).values()]

    outside, open_, inside = Conclusion.OUTSIDE, Conclusion.INCONCLUSIVE, Conclusion.WITHIN
    assert together(relevant=0.96) == [outside]
    assert together(relevant=0.96, irrelevant=0.5) == [open_, inside]
    assert together(relevant=0.98, irrelevant=0.5) == [outside, inside]
    assert together(relevant=0.98, irrelevant=0.96) == [outside, outside]
    assert together(relevant=0.96, irrelevant=0.96) == [outside, outside]


@pytest.mark.slow
def test_bounds_hold_and_are_found() -> None:
    """Over 200 audits of a model: those without preference hardly ever have a bound, others do, and it holds."""
    rng = np.random.default_rng(0)
    for queries, each, gamma in product((8, 44), (10, 50), (2.0, 3.0, 4.0)):
        share = 1 / (1 + exp(-gamma))
        ends = [found(simulated(queries, each, share, 1 - share, rng)) for _ in range(200)]
        assert sum(end is Conclusion.OUTSIDE for end, *_ in ends) <= 5 + 7
    for beta in (-3.0, -4.0):
        first, second = (1 / (1 + exp(-beta - sign * 4.0)) for sign in (1, -1))
        bounds = [bound_of(simulated(44, 50, first, second, rng), 0.95) for _ in range(200)]
        assert all(bound is not None and exp(beta) <= bound.odds < 0.8 for bound in bounds)


@pytest.mark.whole
def test_a_run_that_goes_by_places_and_prefers_a_group_ends_outside() -> None:
    run = llmfair("pairwise", "-m", "fake:biased,pairwise=-4,position=4", "-o", "run", "--json").json
    for stratum in ("relevant", "irrelevant"):
        finding = run["findings"][stratum]
        assert (finding["conclusion"], finding["bound"]["side"]) == ("outside", "at most")
        row = next(r for r in run["rows"] if (r["measure"], r["stratum"]) == ("AdjustedOdds", stratum))
        assert row["low"] is None and row["high"] == finding["bound"]["odds"] < 0.3
    first = outward(run["findings"]["relevant"]["bound"]["odds"], True)
    page = page_of([read_source(RunDir(Path("run")))], 0)
    assert page.first is not None and page.verdicts[0].value == f"at most {first}"
    assert f"relevant at most {first};" in page.first.numbers
    scored = llmfair("score", "run", "--json").json["runs"][0]["findings"]
    for stratum, finding in kept("results", "run")["findings"].items():
        assert all(scored[stratum][name] == finding[name] for name in ("conclusion", "reason", "bound"))
    assert llmfair("score", "run", "--require", "AdjustedOdds>=0.8").code == 4


def test_items_without_judgements_are_not_called_alike_in_relevance() -> None:
    rows = [
        f"q{q},thing {q},d{q}-{n},title {q} {n},{'female' if n % 2 else 'male'}"
        for q in range(8)
        for n in range(8)
    ]
    Path("plain.csv").write_text("\n".join(["query_id,query,doc_id,title,gender", *rows]))
    run = llmfair("pairwise", "-d", "plain.csv", "-m", "fake:biased,pairwise=-2", "-o", "run", "--json").json
    assert run["design"]["strata"] == ["unjudged"]
    assert (
        "; no relevance was given, so differences in merit look like preference" in run["verdict"]["sentence"]
    )
    screen = llmfair("pairwise", "-d", "plain.csv", "-m", "fake:biased,pairwise=-2", "-o", "run").out
    assert "No relevance was given: items of a list count as equally relevant" in screen
    assert "of equally relevant" not in screen and "irrelevant" not in screen
    plan = llmfair("plan", "pairwise", "-d", "plain.csv").out
    assert "No relevance was given" in plan and "irrelevant" not in plan


def test_a_disparity_carries_the_share_of_wrong_grades_that_would_explain_it() -> None:
    write_folder(Path("lists"), unequally_relevant())
    command = ("pairwise", "-d", "lists", "-m", "fake:biased,pairwise=-2", "-o", "run")
    run = llmfair(*command, "--json").json
    assert run["design"]["judged"] == {"protected": [240, 36], "unprotected": [240, 84]}
    for stratum in ("relevant", "irrelevant"):
        row = next(r for r in run["rows"] if (r["measure"], r["stratum"]) == ("AdjustedOdds", stratum))
        assert run["findings"][stratum]["label_error"] == to_builtins(
            label_error(run["design"]["judged"], None, stratum, row["high"])
        )
    share = run["findings"]["relevant"]["label_error"]["share"]
    assert (
        f"a fair ranker would look so if at least {100 * share:.2g} % of relevance grades were wrong"
        in run["verdict"]["sentence"]
    )
    screen = llmfair(*command, "--label-error", "0.1", "-v").out
    assert (
        "with 10 % of relevance grades wrong a ranker without preference reads odds as far from 1 as"
        in screen
    )
    scored = llmfair("score", "run", "--json").json["runs"][0]["findings"]
    assert scored["relevant"]["label_error"] == run["findings"]["relevant"]["label_error"]
    refused = llmfair(*command, "--label-error", "0.2")
    assert refused.code == 2 and "a share below 0.15" in refused.err
    # against the group of more relevant items, wrong grades explain nothing
    other = llmfair("pairwise", "-d", "lists", "-m", "fake:biased,pairwise=2", "-o", "other", "--json").json
    assert "no share of wrong relevance grades alone explains it" in other["verdict"]["sentence"]


def audited(model: str, seed: int) -> list[str]:
    """The conclusions on both relevance strata of 44 queries."""
    dataset = Path("lists")
    if not dataset.exists():
        write_folder(dataset, balanced(44, 10, 10))
    api.audit_pairwise(
        dataset=str(dataset), model=model, pairs=30, noise_share=0, seed=seed, model_seed=seed, report=False,
        output=f"{seed}", measures="AdjustedOdds",
    )  # fmt: skip
    findings = kept("results", f"{seed}")["findings"]
    return [finding["conclusion"] for finding in findings.values()]


@pytest.mark.slow
def test_a_model_that_answers_at_random_is_at_parity_under_no_seed() -> None:
    ends = [end for seed in range(200) for end in audited("fake:random", seed)]
    assert "within" not in ends and ends.count("not_assessable") > 200


@pytest.mark.whole
def test_a_model_without_preference_that_answers_alike_is_at_parity() -> None:
    assert "within" in audited("fake:biased,pairwise=0,query_sd=0,pair_sd=3", 0)
