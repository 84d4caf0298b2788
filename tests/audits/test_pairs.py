"""The pairwise audit: what is concluded of pairs, what a plan says of them, and simulated audits of known odds."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from msgspec import to_builtins

from llmfair import api
from llmfair.audits.aggregates import Inference, tallied
from llmfair.audits.label_error import label_error
from llmfair.audits.pairwise import PAIRWISE
from llmfair.audits.pairwise.design import (
    calibrate_pairwise,
    finding_in_pairs,
    make_pair_design,
    marginal_odds,
    pair_audits,
    pairs_of,
    simulate_answers,
)
from llmfair.audits.pairwise.measure import (
    HowAsked,
    PairConclusion,
    beside_each_other,
    concluded,
    judged_of,
    measure_verdicts,
    seen,
    settled,
)
from llmfair.audits.pairwise.results import Bound, PairFinding
from llmfair.audits.pairwise.settings import CalibratePairwiseSettings, PairwiseSettings, PlanPairwiseSettings
from llmfair.audits.plan import plan as plan_of
from llmfair.audits.subject import Subject
from llmfair.errors import UsageError
from llmfair.metrics.base import measure_all
from llmfair.metrics.names import parse_measure
from llmfair.metrics.pairs import ADJUSTED_ODDS, KAPPA
from llmfair.nouns import Conclusion, Key, PairAnswer, PairVerdict, Side
from llmfair.report.phrases import bound_text
from llmfair.stats.pair_plan import Rule, plan_pairs
from llmfair.stats.pairs import PairContributions, estimate
from llmfair.stats.sequential import Decision
from llmfair.stats.significance import sign_flip, sign_test
from tests.cli.command import kept, llmfair, ran, refuses
from tests.finished import audit
from tests.folders import balanced, folder_of, unequally_relevant, write_folder
from tests.shared import vectors

BAND = (0.8, 1.25)
Cells = tuple[int, int, int, int]


def pairs(*queries: Cells) -> PairContributions:
    """Queries with so many pairs of each cell, PP, UU, FF, SS; no item stands in two pairs."""
    query = np.repeat(np.arange(len(queries)), np.sum(queries, axis=1))
    cell = np.concatenate([np.repeat(np.arange(4), counts) for counts in queries])
    return PairContributions(np.eye(4)[cell], np.stack([query, np.arange(len(cell)), np.arange(len(cell))]))


def simulated(
    queries: int, each: int, first: float, second: float, rng: np.random.Generator
) -> PairContributions:
    """A model whose answers are tosses: the protected item wins shown first and second so often."""
    wins = rng.random((2, queries * each)) < np.array([[first], [second]])
    cell = np.array([[1, 3], [2, 0]])[wins[0].astype(int), wins[1].astype(int)]
    query = np.repeat(np.arange(queries), each)
    return PairContributions(np.eye(4)[cell], np.stack([query, np.arange(len(cell)), np.arange(len(cell))]))


def conclusion_of(
    counted: PairContributions, level: float = 0.95
) -> tuple[Conclusion, str | None, Bound | None]:
    one = concluded(estimate(ADJUSTED_ODDS, counted, level), counted, BAND, level)
    return one.conclusion, one.reason, one.bound


def test_a_preference_in_one_order_alone_is_outside_with_a_bound() -> None:
    # UU and FF in halves: p1 = 1/2, p2 = 0 of 400, drawn in to 0.02: odds of √(0.02/0.98), and the error of p1 above.
    conclusion, reason, bound = conclusion_of(pairs(*[(0, 25, 25, 0)] * 8))
    assert (conclusion, reason) == (Conclusion.OUTSIDE, "position_driven")
    assert bound is not None and bound.side == "at most"
    assert bound.odds == pytest.approx((0.02 / 0.98) ** 0.5 * exp(0.1136), rel=1e-4)
    mirrored = conclusion_of(pairs(*[(25, 0, 25, 0)] * 8))[2]
    assert mirrored is not None and mirrored.side == "at least"
    assert mirrored.odds == pytest.approx(1 / bound.odds)
    assert bound_text(*bound.limits, BAND) == "at most 0.17"
    assert bound_text(*mirrored.limits, BAND) == "at least 6.2"


def test_one_group_winning_all_pairs_is_outside_with_a_bound() -> None:
    conclusion, reason, bound = conclusion_of(pairs(*[(0, 50, 0, 0)] * 8))
    assert (conclusion, reason) == (Conclusion.OUTSIDE, "one_sided")
    assert bound is not None and bound.odds == pytest.approx(0.02 / 0.98)
    # of 60 pairs without a case, a share of up to −ln(0.025)/60 is left open
    few = conclusion_of(pairs(*[(0, 10, 0, 0)] * 6))[2]
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
    assert conclusion_of(counted)[::2] == (Conclusion.NOT_ASSESSABLE, None), why


def test_a_bound_that_reaches_into_the_band_concludes_nothing() -> None:
    counted = pairs(*[(0, 6, 44, 0)] * 8)
    odds = estimate(ADJUSTED_ODDS, counted, 0.95)
    one = concluded(odds, counted, (0.3, 3.0), 0.95)
    assert one.conclusion is Conclusion.INCONCLUSIVE
    assert one.bound is not None and 0.3 < one.bound.odds < 0.8


def test_parity_needs_answers_that_agree_beyond_chance() -> None:
    steady, tossed = pairs(*[(20, 20, 10, 10)] * 44), pairs(*[(15, 15, 15, 15)] * 44)
    assert conclusion_of(steady) == (Conclusion.WITHIN, None, None)
    assert estimate(KAPPA.figure, steady, logarithmic=False).value == pytest.approx(1 / 3)
    assert conclusion_of(tossed) == (Conclusion.NOT_ASSESSABLE, "chance_answers", None)
    # a preference needs no such evidence
    assert conclusion_of(pairs(*[(10, 40, 20, 20)] * 44))[0] is Conclusion.OUTSIDE


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
    told = [(q, p, answer) for q in range(queries) for p, answer in enumerate(answers * 20)]
    verdicts = [PairVerdict(f"q{q}", "relevant", p, 0, f"p{q}.{p}", f"u{q}.{p}", a, a) for q, p, a in told]
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
        ends = [conclusion_of(one) for one in audits]
        assert not any(bound for *_, bound in ends)


def test_of_several_strata_a_disparity_is_one_among_all() -> None:
    """Holm: of two strata one has to be outside at 97.5 %, then the other at 95 %."""

    outside, open_, inside = Conclusion.OUTSIDE, Conclusion.INCONCLUSIVE, Conclusion.WITHIN

    def together(**outside_at: float) -> list[Conclusion]:
        ends = {name: outside if level >= 0.95 else inside for name, level in outside_at.items()}
        findings = {
            name: PairFinding(measure="AdjustedOdds", conclusion=end, reason=None)
            for name, end in ends.items()
        }

        def at(name: str, level: float) -> Conclusion:
            return outside if outside_at[name] >= level else open_

        return [each.conclusion for each in beside_each_other(findings, at, 0.95).values()]

    assert together(relevant=0.96) == [outside]
    assert together(relevant=0.96, irrelevant=0.5) == [open_, inside]
    assert together(relevant=0.98, irrelevant=0.5) == [outside, inside]
    assert together(relevant=0.98, irrelevant=0.96) == [outside, outside]
    assert together(relevant=0.96, irrelevant=0.96) == [outside, outside]


@pytest.mark.whole
def test_a_run_that_goes_by_places_and_prefers_a_group_ends_outside() -> None:
    run = ran("pairwise", "-m", "fake:biased,pairwise=-4,position=4", "-o", "run", "--json").json
    scored = ran("score", "run", "--json").json["runs"][0]["findings"]
    for stratum, finding in kept("results", "run")["findings"].items():
        assert (finding["conclusion"], finding["bound"]["side"]) == ("outside", "at most")
        row = next(r for r in run["rows"] if (r["measure"], r["stratum"]) == ("AdjustedOdds", stratum))
        assert row["low"] is None and row["high"] == finding["bound"]["odds"] < 0.3
        assert all(scored[stratum][name] == finding[name] for name in ("conclusion", "reason", "bound"))
    assert llmfair("score", "run", "--require", "AdjustedOdds>=0.8").code == 4


def test_pairs_asked_once_more_are_in_no_bound() -> None:
    won, unread = PairAnswer(Side.PROTECTED), PairAnswer(None, "empty")
    verdicts = [PairVerdict(f"q{n}", "relevant", 0, 0, f"p{n}", f"u{n}", won, unread) for n in range(8)]
    again = [replace(verdict, draw=1, first=unread) for verdict in verdicts]
    measures = (parse_measure("AdjustedOdds"),)
    once, twice = (
        measure_verdicts(measures, {Key("pairs", "relevant"): of_it}, HowAsked(Inference(), BAND))[2][
            "relevant"
        ]
        for of_it in (verdicts, [*verdicts, *again])
    )
    assert once.worst_case == twice.worst_case


@pytest.mark.whole
def test_items_without_judgements_are_not_called_alike_in_relevance() -> None:
    cells = [(q, n, ("male", "female")[n % 2]) for q in range(8) for n in range(8)]
    rows = [f"q{q},thing {q},d{q}-{n},title {q} {n},{gender}" for q, n, gender in cells]
    Path("plain.csv").write_text("\n".join(["query_id,query,doc_id,title,gender", *rows]))
    screen = ran("pairwise", "-d", "plain.csv", "-m", "fake:biased,pairwise=-2", "-o", "run").out
    assert kept("results", "run")["design"]["strata"] == ["unjudged"]
    assert "no relevance was given, so differences in merit look like preference" in " ".join(screen.split())
    for out in (screen, ran("plan", "pairwise", "-d", "plain.csv").out):
        assert "No relevance was given: items of a list count as equally relevant" in out
        assert "of equally relevant" not in out and "irrelevant" not in out


@pytest.mark.whole
def test_a_disparity_carries_the_share_of_wrong_grades_that_would_explain_it() -> None:
    write_folder(Path("lists"), unequally_relevant())
    command = ("pairwise", "-d", "lists", "-m", "fake:biased,pairwise=-2", "-o", "run")
    run = ran(*command, "--json").json
    assert run["design"]["judged"] == {"protected": [240, 36], "unprotected": [240, 84]}
    for stratum in ("relevant", "irrelevant"):
        row = next(r for r in run["rows"] if (r["measure"], r["stratum"]) == ("AdjustedOdds", stratum))
        assert run["findings"][stratum]["label_error"] == to_builtins(
            label_error(run["design"]["judged"], None, stratum, row["high"])
        )
    share = run["findings"]["relevant"]["label_error"]["share"]
    says = f"a fair ranker would look so if at least {100 * share:.2g} % of relevance grades were wrong"
    assert says in run["verdict"]["sentence"]
    screen = ran(*command, "--label-error", "0.1", "-v").out
    assert "with 10 % of relevance grades wrong a ranker without preference reads odds as far" in screen
    scored = ran("score", "run", "--json").json["runs"][0]["findings"]
    assert scored["relevant"]["label_error"] == run["findings"]["relevant"]["label_error"]
    refuses("a share below 0.15", *command, "--label-error", "0.2")


def audited(model: str, seed: int) -> list[str]:
    """The conclusions on both relevance strata of 44 queries."""
    dataset = Path("lists")
    if not dataset.exists():
        write_folder(dataset, balanced(44, 10, 10))
    api.audit_pairwise(
        dataset=str(dataset), model=model, pairs=20, noise_share=0, seed=seed, model_seed=seed, report=False,
        output=f"{seed}", measures="AdjustedOdds",
    )  # fmt: skip
    findings = kept("results", f"{seed}")["findings"]
    return [finding["conclusion"] for finding in findings.values()]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_model_that_answers_at_random_is_at_parity_under_no_seed(first: int) -> None:
    ends = [end for seed in range(first, first + 50) for end in audited("fake:random", seed)]
    assert "within" not in ends and ends.count("not_assessable") > 50


@pytest.mark.whole
def test_a_model_without_preference_that_answers_alike_is_at_parity() -> None:
    assert "within" in audited("fake:biased,pairwise=0,query_sd=0,pair_sd=3", 0)


# What a plan says, before anything is asked


def expected(queries: int, **given: Any) -> dict[str, Any]:
    """What a plan of relevant pairs says, of answers of which it knows how consistent they are."""
    answers = {} if "pilot" in given else {"consistent": 0.7}
    usual = {"dataset": folder_of(queries), "conditions": "relevant"}
    settings = PlanPairwiseSettings.make(**{**usual, **answers, **given})
    findable: dict[str, Any] = plan_of(PAIRWISE, settings)["findable"]["relevant"]
    prospects = findable.pop("prospects")
    return {**findable, **(prospects[0] if prospects else {})}


def test_chances_are_those_of_the_formula() -> None:
    plan = expected(44, pairs=20, ratio=0.6, icc=0.1, first_slot=0.6, level=0.9, band="0.75..1.3333")
    low, high = 0.75, 1.3333
    known = plan_pairs(44, 20, 0.6, 0.6, 0.7, 0.1, Rule(0.9, (low, high)))
    assert (plan["error"], plan["disparity"]) == (known.error, known.disparity)
    assert plan["parity"] == plan_pairs(44, 20, 1.0, 0.6, 0.7, 0.1, Rule(0.9, (low, high))).parity > 0.1


def test_queries_and_odds_that_are_needed_are_enough_and_none_fewer() -> None:
    plan = expected(44, pairs=20)
    needed, smallest = plan["queries_for_disparity"], plan["smallest"]
    enough, fewer = (plan_pairs(n, 20, 0.6, 0.5, 0.7, 0.05).disparity for n in (needed, needed - 1))
    assert fewer < 0.8 <= enough
    assert plan_pairs(44, 20, smallest, 0.5, 0.7, 0.05).disparity == pytest.approx(0.8, abs=1e-4)
    needed = plan["queries_for_parity"]
    enough, fewer = (plan_pairs(n, 20, 1.0, 0.5, 0.7, 0.05).parity for n in (needed, needed - 1))
    assert fewer < 0.8 <= enough
    assert expected(44, ratio=0.9)["queries_for_disparity"] is None


def test_without_a_pilot_two_ends_are_planned() -> None:
    plan = plan_of(PAIRWISE, PlanPairwiseSettings.make(dataset=folder_of(44)))["findable"]
    for stratum in ("relevant", "irrelevant"):
        assert [each["consistent"] for each in plan[stratum]["prospects"]] == [0.6, 0.9]
        # two strata are tested
        known = plan_pairs(44, 50, 0.6, 0.5, 0.6, 0.05, Rule(tests=2))
        assert plan[stratum]["prospects"][0]["disparity"] == known.disparity


def test_answers_that_agree_no_better_than_coins_never_end_in_parity() -> None:
    plan = expected(44, consistent=0.5)
    assert plan["queries_for_parity"] is None and plan["parity"] < 0.001
    assert plan["queries_for_disparity"] > 5


def test_a_pilot_says_how_answers_will_be() -> None:
    settings = PairwiseSettings.make(dataset=folder_of(8), output=Path("small"), pairs=10)
    audit(PAIRWISE.design(settings, Subject("fake:biased")))
    results = json.loads(Path("small/results.json").read_text())
    plan = expected(44, pilot="small")
    finding = results["findings"]["relevant"]
    assert plan["consistent"] == finding["consistent_share"]
    assert plan["icc"] == max(0, finding["icc"])
    Path("small").rename("another")
    with pytest.raises(UsageError, match="small"):
        expected(44, pilot="small")


def test_queries_of_unequal_pools_count_as_their_harmonic_mean() -> None:
    lists = balanced(6, 20, 20) | {f"small{q}": rows for q, rows in balanced(3, 4, 10).items()}
    lists |= {"none": [("n", "female", 1), ("o", "male", 0)]}
    dataset = str(write_folder(Path("uneven"), lists))
    plan = plan_of(PAIRWISE, PlanPairwiseSettings.make(dataset=dataset))
    relevant = plan["findable"]["relevant"]
    assert (relevant["queries"], relevant["pairs"]) == (9, pytest.approx(9 / (6 / 50 + 3 / 10)))
    assert plan["design"]["pairs_asked"] == {"relevant": 6 * 50 + 3 * 10, "irrelevant": 6 * 50 + 3 * 10}
    # q0 and small-q0 share their items
    assert relevant["items_recur"] and not expected(6)["items_recur"]


@pytest.mark.parametrize(
    "design",
    [
        {},
        {"pairs": 7, "noise_share": 0.3, "repeats": 2, "form": "letter"},
        {"pairs": 100, "noise_share": 0.0, "conditions": "irrelevant"},
        {"sequential": True, "max_pairs": 30},
    ],
)
def test_a_run_asks_what_was_planned(design: dict[str, Any]) -> None:
    lists = balanced(3, 8, 6) | {"short": [("s", "female", 1), ("t", "male", 1), ("u", "male", 0)]}
    titles = {"q0f0": "A very much longer title than all of the others"}
    dataset = str(write_folder(Path("mine"), lists, titles))
    settings = PairwiseSettings.make(dataset=dataset, output=Path("run"), **design)
    planned = plan_of(PAIRWISE, settings)
    audit(PAIRWISE.design(settings, Subject("fake:biased,malformed=0,pairwise=0,query_sd=0")))
    manifest = json.loads(Path("run/manifest.json").read_text())
    answered = [json.loads(line) for line in Path("run/journal.jsonl").read_text().splitlines()[1:]]
    tokens = fmean(sum(len(content) for _, content in line["chat"]) for line in answered) / 4
    if settings.sequential:
        assert planned["calls"] >= manifest["calls"] and planned["noise_calls"] == 0
    else:
        assert planned["calls"] == manifest["calls"] == len(answered)
        once = 2 * settings.repeats * sum(planned["design"]["pairs_asked"].values())
        assert planned["calls"] == once + planned["noise_calls"]
    assert planned["prompt_tokens"] == pytest.approx(planned["calls"] * tokens, rel=0.03)
    assert planned["completion_tokens"] == planned["calls"] * (1 if settings.form == "letter" else 3)


def test_what_cannot_be_found() -> None:
    assert expected(4)["reason"] == "too_few_queries"
    assert expected(44, sequential=True)["reason"] == "sequential"
    apart: dict[str, list[tuple[str, str | None, int]]] = {
        f"q{q}": [(f"f{q}", "female", 1), (f"m{q}", "male", 0)] for q in range(8)
    }
    one_sided = str(write_folder(Path("apart"), apart))
    plan = plan_of(PAIRWISE, PlanPairwiseSettings.make(dataset=one_sided))
    assert (plan["calls"], plan["prompt_tokens"]) == (0, 0)
    assert {each["reason"] for each in plan["findable"].values()} == {"no_pairs"}


# Simulated audits measure what real ones measure, and recover what was injected


MAKE = CalibratePairwiseSettings.make
ANSWERS = (*map(PairAnswer, Side), PairAnswer(None, "tie"), PairAnswer(None, "empty"))
MEASURE = parse_measure("AdjustedOdds")


@pytest.mark.whole
def test_the_truth_over_queries() -> None:
    for row in vectors("injected_bias.json")["pairwise_expected"]:
        if row["lapse"]:
            continue
        first, second = (row["cond_PP"] + row[f"cond_{flip}"] for flip in ("FF", "SS"))
        truth = (log(first / (1 - first)) + log(second / (1 - second))) / 2
        found = marginal_odds(row["beta"], row["gamma"], row["sigma_query"])
        assert log(found) == pytest.approx(truth, abs=1e-6), row


@pytest.mark.whole
@pytest.mark.parametrize("repeats", [1, 2])
def test_a_simulated_audit_has_the_values_of_a_real_one(repeats: int) -> None:
    settings = MAKE(runs=2, pairs=20, repeats=repeats, malformed=0.1, conditions="irrelevant")
    design = make_pair_design(settings)
    pairs = pairs_of(design, Key("pairs", "irrelevant"))
    assert [len(of_it) for of_it in pairs.values()] == [20 * repeats] * 8
    _, audit = next(pair_audits(pairs, "irrelevant", settings, (-0.3, 0.0)))
    verdicts = []
    for query_id, of_it in pairs.items():
        numbers = [one.number for one in of_it]
        answers = simulate_answers((-0.3, 0.0), numbers, settings, rng=rng_of(query_id, 0))[0, 0]
        verdicts += [
            replace(one, first=ANSWERS[first], second=ANSWERS[second])
            for one, (first, second) in zip(of_it, answers.tolist(), strict=True)
        ]
    (real,) = measure_all((MEASURE,), {"irrelevant": judged_of(verdicts, repeats)})
    how = HowAsked(Inference(), (0.8, 1.25))
    odds, finding = finding_in_pairs(Key("pairs", "irrelevant"), MEASURE, how, audit)
    same, theirs = finding_in_pairs(
        Key("pairs", "irrelevant"),
        MEASURE,
        how,
        dict(sorted(real.values.items())),  # type: ignore[arg-type]
    )
    assert (odds.value, odds.low) == pytest.approx((same.value, same.low))
    assert (finding.p, finding.consistent_share) == pytest.approx((theirs.p, theirs.consistent_share))
    for query_id, tally in audit.items():
        other: Any = real.values[query_id]
        assert (tally.readable, tally.consistent) == (other.readable, other.consistent)


def rng_of(query_id: str, block: int) -> np.random.Generator:
    return np.random.default_rng([0, zlib.crc32(query_id.encode()), 3000 + block, 1])


@pytest.mark.whole
def test_neither_more_runs_nor_more_queries_nor_more_preferences_move_a_draw() -> None:
    def draws(betas: tuple[float, ...], limit: int, runs: int, stratum: str) -> list[Any]:
        settings = MAKE(runs=runs, limit=limit, pairs=5, conditions=stratum)
        pairs = pairs_of(make_pair_design(settings), Key("pairs", "relevant"))
        first = next(iter(pairs))
        return [
            audit[first].counts.tolist()
            for place, audit in pair_audits(pairs, "relevant", settings, betas)
            if betas[place] == 0.0
        ]

    few = draws((0.0,), 1, 60, "relevant")
    assert len(few) == 60
    assert draws((-0.5, 0.0), 2, 110, "irrelevant,relevant")[:60] == few


@pytest.mark.whole
def test_answers_have_the_injected_shares() -> None:
    settings = MAKE(query_sd=0.0, pair_sd=0.0, malformed=0.2, position=0.5)
    answers = simulate_answers((0.0, 1.0), range(4000), settings, rng=np.random.default_rng(1))
    assert answers.shape == (2, 50, 4000, 2)
    assert (answers == 3).mean() == pytest.approx(0.2, abs=0.003)
    for beta, of_it in zip((0.0, 1.0), answers, strict=True):
        for order, place in ((0.5, 0), (-0.5, 1)):
            readable = of_it[..., place][of_it[..., place] != 3]
            assert (readable == 0).mean() == pytest.approx(1 / (1 + exp(-beta - order)), abs=0.005)


@pytest.mark.whole
def test_the_sample_recovers_what_is_injected() -> None:
    ticks: list[None] = []
    settings = MAKE(runs=60, injected="-0.5,0.5", conditions="relevant", query_sd=0.5)
    results = calibrate_pairwise(settings, lambda: ticks.append(None))
    rows = {row["injected"]: row for row in results["injected"]}
    assert list(rows) == [-0.5, 0.0, 0.5] and len(ticks) == 180
    for row in rows.values():
        assert row["log_odds"] == pytest.approx(log(row["marginal_odds"]), abs=4 * row["log_odds_error"])
        assert 0.88 <= row["covered"] <= 1 and row["covered_n"] == 60
        concluded = row["within"] + row["outside"] + row["inconclusive"] + row["not_assessable"]
        assert concluded == pytest.approx(1) and row["undefined"].keys() <= {"chance_answers"}
    assert rows[0.0]["rejected"] <= 0.12 and rows[-0.5]["rejected"] > 0.4
    assert rows[-0.5]["injected_odds"] < rows[-0.5]["marginal_odds"] < 1
    below, above = results["smallest"]["relevant"]["odds"]
    for odds, row in ((below, rows[-0.5]), (above, rows[0.5])):
        if row["rejected"] >= 0.8:
            part = (0.8 - rows[0.0]["rejected"]) / (row["rejected"] - rows[0.0]["rejected"])
            assert odds == pytest.approx(row["marginal_odds"] ** part)
        else:
            assert odds is None


@pytest.mark.whole
def test_the_smallest_odds_are_those_that_audits_found() -> None:
    """The same two and eight items in all six queries: one degree of freedom, whatever the number of queries."""
    items: list[tuple[str, str | None, int]] = [(f"f{i}", "female", 1) for i in range(2)]
    items += [(f"m{i}", "male", 1) for i in range(8)]
    few = write_folder(Path("few"), {f"q{q}": items for q in range(6)})
    own = write_folder(Path("own"), balanced(6, 8, 20))
    usual: dict[str, Any] = {
        "runs": 40, "injected": "-1.2,1.2", "conditions": "relevant", "query_sd": 0.0, "pair_sd": 0.0, "position": 0.0,
    }  # fmt: skip
    found = calibrate_pairwise(MAKE(dataset=str(few), **usual))
    assert max(row["rejected"] for row in found["injected"]) < 0.1
    assert found["smallest"]["relevant"] == {"power": 0.8, "tested": True, "odds": [None, None]}
    below, above = calibrate_pairwise(MAKE(dataset=str(own), **usual))["smallest"]["relevant"]["odds"]
    assert exp(-1.2) < below < 1 < above < exp(1.2)
    # of six queries no p is below 1/32
    strict = calibrate_pairwise(MAKE(dataset=str(own), level=0.99, **usual))
    assert strict["smallest"]["relevant"]["odds"] == [None, None]


@pytest.mark.whole
def test_pairs_weigh_as_asked() -> None:
    rows = [*balanced(3, 4, 4).values(), *balanced(3, 20, 20).values()]
    dataset = str(write_folder(Path("uneven"), {f"q{q}": of_it for q, of_it in enumerate(rows)}))
    found = {}
    usual: dict[str, Any] = {"runs": 4, "injected": "0", "conditions": "relevant", "query_sd": 2.0}
    for weights in ("macro", "pooled"):
        settings = MAKE(dataset=dataset, weights=weights, **usual)
        (row,) = calibrate_pairwise(settings)["injected"]
        pairs = pairs_of(make_pair_design(settings), Key("pairs", "relevant"))
        audits = [audit for _, audit in pair_audits(pairs, "relevant", settings, (0.0,))]
        odds = [tallied(list(audit.values()), weights, 0.95) for audit in audits]
        assert row["odds"] == pytest.approx(np.median([one.value for one in odds if one is not None]))
        found[weights] = row["odds"]
    assert found["macro"] != pytest.approx(found["pooled"], rel=0.01)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"position": 6.0}, "position_driven"),
        ({"limit": 4}, "too_few_queries"),
        ({"malformed": 0.9999, "pairs": 2}, "no_valid_answer"),
    ],
)
def test_what_says_nothing_is_counted(given: dict[str, Any], reason: str) -> None:
    results = calibrate_pairwise(MAKE(runs=4, injected="0", conditions="relevant", **given))
    (row,) = results["injected"]
    assert row["not_assessable"] == 1 and row["undefined"] == {reason: 4}
    if reason != "position_driven":
        assert row["covered"] is row["rejected"] is None
        assert (row["covered_n"], row["rejected_n"]) == (0, 0)
        assert results["smallest"]["relevant"] == {"power": 0.8, "tested": False, "odds": [None, None]}


def test_a_question_without_an_answer_ends_the_asking() -> None:
    from llmfair.audits.runs.stopping import Stopping
    from llmfair.stats.sequential import EProcess

    def failing() -> Any:
        raise UsageError("no answer.", "")
        yield

    probes: Any = ["a", "b"]
    stopping: Stopping[float] = Stopping(probes, EProcess(BAND), float, lambda _: None)
    asked = stopping.undecided()
    with pytest.raises(UsageError):
        list(stopping.noting(next(asked), failing(), float))
    assert next(asked, None) is None
