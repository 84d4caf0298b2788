"""The pairwise instrument against a known truth: simulated audits of injected odds on the user's own pairs.

Every simulated audit goes through the inference of a real one, with the design's very pairs and the items that
recur in them. Its intervals are held against the odds over all queries, which a spread over queries brings nearer
to 1 than the typical query's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import exp, hypot, log
from typing import Annotated, Any, Literal, cast

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from llmfair.audits.aggregates import Inference, aggregate
from llmfair.audits.documents import Calibration, InjectedPreference
from llmfair.audits.lists import check_two_groups
from llmfair.audits.pairwise.design import PairwiseDesign, PairwisePlan, check_power, make_pair_design
from llmfair.audits.pairwise.measure import HEADLINE, HowAsked, finding_of
from llmfair.audits.pairwise.results import PairFinding
from llmfair.audits.pairwise.settings import CalibratePairwiseSettings
from llmfair.audits.plan import BLOCK, Row, about, found_by_preference, rng_of, row_of, settings_of, simulated
from llmfair.errors import UsageError
from llmfair.metrics.base import Column, Measure, Tally
from llmfair.metrics.names import parse_measure
from llmfair.metrics.pairs import ADJUSTED_ODDS, CELLS, PROTECTED, UNPARSEABLE, UNPROTECTED
from llmfair.nouns import Key, PairAnswer, PairStratum, PairVerdict
from llmfair.results import JsonObject, Share
from llmfair.settings.commands import injected_of
from llmfair.settings.declaration import band_of
from llmfair.stats.intervals import Estimate

COLUMNS = (
    "stratum", "injected", "injected_odds", "marginal_odds", "odds", "log_odds", "log_odds_error", "consistent_share",
    "covered", "covered_error", "covered_n", "rejected", "rejected_error", "rejected_n", "within", "outside",
    "inconclusive", "not_assessable",
)  # fmt: skip


class InjectedPairs(InjectedPreference, frozen=True, kw_only=True):
    """What simulated audits found of one relevance stratum and injected preference."""

    stratum: PairStratum
    marginal_odds: float
    consistent_share: Share | None


class SmallestOdds(JsonObject, frozen=True, kw_only=True):
    """The odds, one either way, that are found with this power."""

    power: float
    tested: bool
    odds: tuple[float | None, float | None]


class PairwiseCalibration(Calibration, frozen=True, kw_only=True):
    """llmfair calibrate pairwise."""

    task: Literal["calibrate pairwise"]
    injected: Annotated[list[InjectedPairs], Meta(min_length=1)]
    smallest: dict[str, SmallestOdds]


DOCUMENTS = {"plan": PairwisePlan, "calibrate": PairwiseCalibration}


def calibrate_pairwise(
    settings: CalibratePairwiseSettings, advance: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Injected against recovered, coverage, false-positive rate, power, and the smallest odds that would be found.

    `advance` is called after every audit, strata × injected × runs times. Raises UsageError for wrong input, and
    when no query has pairs; a stratum without any is left out.
    """
    check_power(settings.power, settings.level)
    design, betas = make_pair_design(settings), injected_of(settings.injected)
    check_two_groups(design.attribute, "calibrate pairwise")
    how = HowAsked(Inference(level=settings.level, seed=settings.seed), band_of(settings.band))
    measure = parse_measure(f"{HEADLINE}(agg={settings.weights})")
    pairs = {key: of_it for key in design.keys if (of_it := pairs_of(design, key))}
    if not pairs:
        raise UsageError(
            "no query has pairs of a protected and an unprotected item.",
            f"llmfair datasets show {design.dataset.name}    counts them",
        )
    rows, smallest = list[Row](), {}
    for stratum, of_it in pairs.items():
        audits = pair_audits(of_it, stratum, settings, betas)
        each = partial(finding_in_pairs, stratum, measure, how)
        findings = found_by_preference(audits, betas, each, advance)
        of_stratum = [_row(stratum, beta, of, settings) for beta, of in zip(betas, findings, strict=True)]
        rows += of_stratum
        smallest[stratum] = _smallest(of_stratum, settings)
    return {
        **about(design, settings),
        "design": {
            "queries": len(design.queries),
            "strata": {
                stratum: {"queries": len(of_it), "pairs": sum(map(len, of_it.values())) // settings.repeats}
                for stratum, of_it in pairs.items()
            },
            "without_pairs": [stratum for stratum in design.strata if stratum not in pairs],
        },
        "settings": settings_of(settings),
        "injected": rows,
        "smallest": smallest,
    }


def finding_in_pairs(
    stratum: Key, measure: Measure, how: HowAsked, audit: Audit
) -> tuple[Estimate, PairFinding]:
    """What a real audit finds of these values: the position-adjusted odds with their interval, and the finding."""
    odds = aggregate(measure.aggregate, audit.values(), how.inference)
    assert odds is not None
    return odds, finding_of(Column(measure, stratum, "", audit), stratum, (), how)


def _row(
    stratum: Key,
    beta: float,
    audits: Sequence[tuple[Estimate, PairFinding]],
    settings: CalibratePairwiseSettings,
) -> Row:
    """What the audits of one stratum and injected preference found, held against the true odds.

    `injected_odds` are those of the typical query, e^β, and `marginal_odds` the true position-adjusted odds over all
    queries, which intervals are to hold. `consistent_share` is the mean over audits.
    """
    truth = marginal_odds(beta, settings.position, hypot(settings.query_sd, settings.pair_sd))
    covered = [
        odds.low <= truth <= odds.high for odds, _ in audits if odds.low is not None and odds.high is not None
    ]
    recovered = [odds.value for odds, _ in audits if odds.value is not None]
    findings = [finding for _, finding in audits]
    p_values = [p for finding in findings if (p := finding.p) is not None]
    consistent = [share for finding in findings if (share := finding.consistent_share) is not None]
    of_stratum = {
        "stratum": stratum,
        "marginal_odds": truth,
        "consistent_share": float(np.mean(consistent)) if consistent else None,
    }
    return row_of(COLUMNS, beta, recovered, covered, p_values, findings, settings.level, of_stratum)


def _smallest(rows: Sequence[Row], settings: CalibratePairwiseSettings) -> dict[str, Any]:
    """The odds, one below and one above parity, from which on audits of one stratum find a preference often enough.

    By the share of all audits with p < 1 − level, which knows the design's own test and how few its items may be;
    linear between the logarithms of injected odds. None where no injected odds are found with the power asked for.
    """

    def crossing(side: Sequence[Row]) -> float | None:
        shares = [
            (log(row["marginal_odds"]), (row["rejected"] or 0.0) * row["rejected_n"] / settings.runs)
            for row in side
        ]
        for (nearer, fewer), (further, more) in pairwise(shares):
            if fewer < settings.power <= more:
                return exp(nearer + (settings.power - fewer) / (more - fewer) * (further - nearer))
        return None

    below = [row for row in reversed(rows) if row["injected"] <= 0]
    above = [row for row in rows if row["injected"] >= 0]
    return {
        "power": settings.power,
        "tested": any(row["rejected_n"] for row in rows),
        "odds": [crossing(below), crossing(above)],
    }


# Simulated answers on the pairs of an audit, and the truth that they are drawn from. P(protected wins | order) = σ(β
# + b_q + b_k ± γ): β injected, b_q of the query, b_k of the pair, +γ where the protected item is shown first; calls
# are independent given these. Whole audits are drawn as arrays, query by query.


Audit = Mapping[str, Tally]
"""What one simulated audit measured, by query_id."""
Pairs = Mapping[str, tuple[PairVerdict, ...]]
"""The pairs of each query, by query_id, an entry for every time they are asked; their answers mean nothing."""
STREAM = 3000
"""The streams of a query's seed that its simulated answers are drawn from: one a block, from here on."""
GRID = np.linspace(-10, 10, 2001)
"""Standard normal deviates that an average over queries is taken on."""


def marginal_odds(beta: float, position: float, spread: float) -> float:
    """The position-adjusted odds over all pairs, e^((logit p1 + logit p2)/2), p the mean of σ(β + b ± γ).

    b is normal with the standard deviation `spread`, so the odds are nearer to 1 than e^β of the typical pair.
    """
    weights = np.exp(-(GRID**2) / 2)
    log_odds = np.array([[position], [-position]]) + beta + spread * GRID
    first, second = (_sigma(log_odds) @ weights / weights.sum()).tolist()
    return exp((log(first / (1 - first)) + log(second / (1 - second))) / 2)


def pairs_of(design: PairwiseDesign, key: Key) -> Pairs:
    """The pairs of the design that count, of the queries that have any."""
    unanswered, stratum = PairAnswer(None, "simulated"), cast(PairStratum, key.stratum)
    return {
        query_id: tuple(
            PairVerdict(
                query_id, stratum, probe.order, probe.draw, protected, unprotected, unanswered, unanswered
            )
            for probe in probes
            for protected, unprotected in [probe.candidates.doc_ids]
            if probe.draw < design.settings.repeats
        )
        for query_id, probes in design.pairs[key].items()
        if probes
    }


def pair_audits(
    pairs: Pairs, stratum: str, settings: CalibratePairwiseSettings, betas: Sequence[float]
) -> Iterator[tuple[int, Audit]]:
    """Simulated audits, each with the place of its injected preference."""
    numbers = {query_id: [verdict.number for verdict in asked] for query_id, asked in pairs.items()}

    def draw(block: int) -> dict[str, NDArray[np.intp]]:
        stream = (STREAM + block, int(stratum != "relevant"))
        return {
            query_id: simulate_answers(betas, of_it, settings, rng=rng_of(settings, query_id, *stream))
            for query_id, of_it in numbers.items()
        }

    def value(query_id: str, answers: NDArray[np.intp], place: int, run: int) -> Tally:
        """The answers on a query's pairs, shape (pairs, 2), as the position-adjusted odds count them."""
        first, second = answers[place, run].T
        cells = CELLS[first, second].sum(axis=0)
        counts = ADJUSTED_ODDS.things[first, second]
        readable, consistent = int(cells.sum()), int(cells[:2].sum())
        return Tally(ADJUSTED_ODDS, pairs[query_id], counts, readable, consistent, settings.repeats)

    return simulated(settings, betas, draw, value)


def simulate_answers(
    betas: Sequence[float],
    numbers: Sequence[int],
    settings: CalibratePairwiseSettings,
    *,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Answers of one query in BLOCK audits, as `JudgedPairs.answers` has them; shape (betas, BLOCK, pairs, 2).

    `numbers` says which pair each is: one asked several times stays the same.
    """
    quality = settings.query_sd * rng.normal(size=(BLOCK, 1, 1))
    drawn, damaged = rng.random((2, BLOCK, len(numbers), 2))
    different, pair = np.unique(numbers, return_inverse=True)
    quality = quality + settings.pair_sd * rng.normal(size=(BLOCK, len(different), 1))[:, pair]
    order = settings.position * np.array([1, -1])
    wins = drawn < _sigma(np.reshape(betas, (-1, 1, 1, 1)) + quality + order)
    read = np.where(wins, PROTECTED, UNPROTECTED)
    return np.where(damaged < settings.malformed, UNPARSEABLE, read)


def _sigma(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-log_odds))
