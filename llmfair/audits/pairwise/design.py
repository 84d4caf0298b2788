"""The pairwise audit made but not begun: which pairs are asked, how often and in which order, at what cost, and what
simulated answers on them come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice, pairwise
from math import ceil, exp, hypot, log
from statistics import fmean, harmonic_mean
from typing import Annotated, Any, Literal, cast

import numpy as np
from msgspec import Meta, structs
from numpy.typing import NDArray

from llmfair.asking.dispatch import Program
from llmfair.audits.aggregates import Inference, aggregate
from llmfair.audits.design import CHARACTERS_PER_TOKEN, NOBODY, Condition, Design, Outcome
from llmfair.audits.documents import Calibration, CallPlan, InjectedPreference
from llmfair.audits.kind import results_of
from llmfair.audits.label_error import judged_between, judged_of, odds_with
from llmfair.audits.lists import check_two_groups, is_judged, load_lists, selected_queries, with_prompt
from llmfair.audits.pairwise.measure import (
    HEADLINE,
    HowAsked,
    finding_of,
    outcome_of,
    seen,
    share,
    with_weights,
)
from llmfair.audits.pairwise.results import PairFinding, PairGrades, PairwiseFacts, PairwiseResults
from llmfair.audits.pairwise.settings import CalibratePairwiseSettings, PairwiseSettings, PlanPairwiseSettings
from llmfair.audits.plan import BLOCK, Row, about, found_by_preference, rng_of, row_of, settings_of, simulated
from llmfair.audits.runs.stopping import Stopping
from llmfair.audits.subject import Subject
from llmfair.backends.python import SCORES
from llmfair.errors import UsageError
from llmfair.metrics.base import Column, Measure, Tally
from llmfair.metrics.names import parse_measure
from llmfair.metrics.pairs import ADJUSTED_ODDS, CELLS, PROTECTED, UNPARSEABLE, UNPROTECTED
from llmfair.nouns import PAIRS, Failure, Key, PairAnswer, PairStratum, PairVerdict, Probe, picked
from llmfair.probes import PairProbes, pair_grades, pair_stream, pairwise_probes
from llmfair.prompts import Prompt
from llmfair.rankers.pairwise import PairForm, PairwiseRanker
from llmfair.results import Count, JsonObject, Share
from llmfair.rundir import find_run
from llmfair.settings.commands import injected_of
from llmfair.settings.declaration import band_of
from llmfair.stats.intervals import FEWEST_QUERIES, Estimate
from llmfair.stats.pair_plan import PairPlan, Rule, fewest_queries, plan_pairs, smallest_odds
from llmfair.stats.sequential import EProcess, rounds

UNJUDGED: PairStratum = "unjudged"
SHOWN = "WinShare,FlipRate,InvalidRate,AdjustedOdds,WinRatio"
MEASURED = f"{SHOWN},BalancedRatio,RawRatio,PositionOdds,Kappa,FirstSlotRate,PositionIndex,TieRate,NoiseRate"
RENDERED = 3
"""So many pairs of a query and stratum are rendered; the others are taken to be as long."""
LIKELY_CONSISTENT = (0.6, 0.9)
"""Shares of pairs that do not flip, where nothing is known of the answers."""
ANSWERS: Mapping[PairForm, str] = {"order": "[1] > [2]", "letter": "A", "scores": ""}


Answers = tuple[float, float, float]
"""How answers are expected to be: how often the first slot wins, pairs do not flip, pairs of a query are alike."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """How audits end where answers are as expected: chances of *disparity* at the odds `ratio`, of *parity* at 1.

    `queries_for_…` end so with the chance `target`: None where no number does. `smallest` odds below 1 end in
    disparity with that chance (and their inverse above it); None: not even the most extreme ones.
    """

    first_slot: float
    consistent: float
    icc: float
    agreement: float
    error: float
    disparity: Share
    parity: Share
    queries_for_disparity: Count | None
    queries_for_parity: Count | None
    smallest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseFindable:
    """What is to be expected of the pairs of one stratum.

    `queries` have such pairs, of which `pairs` each are asked (harmonic mean); `items_recur` says that an item stands
    in pairs of several queries, which makes every figure here too good. `reason`: why there are no `prospects`, one
    for what is known of the answers, or two for the ends of what may be.
    """

    queries: Count
    pairs: float
    items_recur: bool
    ratio: float
    target: float
    reason: str | None = None
    prospects: tuple[Prospect, ...] = ()


class PairwisePlan(CallPlan, frozen=True, kw_only=True):
    """llmfair plan pairwise; llmfair pairwise --dry-run has no findable, and cost only at given prices."""

    task: Literal["pairwise"]
    noise_calls: Count
    sequential: bool
    models: Count
    design: dict[str, Any]
    findable: dict[str, PairwiseFindable] | None = None


@dataclass(frozen=True, kw_only=True)
class PairwiseDesign(Design[PairVerdict]):
    """Everything a pairwise audit asks, what that costs and can find, and what the answers come to."""

    task = "pairwise"
    settings: PairwiseSettings
    prompt: Prompt
    ranker: PairwiseRanker
    pairs: Mapping[Key, Mapping[str, PairProbes]]

    several_groups = True

    @property
    def conditions(self) -> Sequence[Condition]:
        return [*map(Condition, self.keys)]

    @property
    def keys(self) -> tuple[Key, ...]:
        """The strata that are asked about, each between the groups of every contrast."""
        return tuple(self.pairs)

    @property
    def strata(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key.stratum for key in self.keys))

    why_not_assessable = "the others have no pair of items of both groups alike in relevance"

    @property
    def assessable(self) -> int:
        """Queries with pairs, of the stratum and contrast for which most have some."""
        return max(sum(map(bool, by_query.values())) for by_query in self.pairs.values())

    def probes(self) -> Iterator[Probe]:
        """Every probe; queries in seeded shuffled order, so that a broken-off run has no systematic gap."""
        shuffled = np.random.default_rng(self.settings.seed).permutation(len(self.queries))
        for key in self.keys:
            for index in shuffled:
                yield from self.pairs[key][self.queries[index].query_id]

    def in_rounds(self, key: Key) -> list[Probe]:
        """The schedule of a sequential audit: one pair a query in every round, queries in fresh random order."""
        by_query = [[*probes] for probes in self.pairs[key].values()]
        rng = np.random.default_rng([self.settings.seed, pair_stream(key.stratum)])
        schedule = [by_query[query][pair] for query, pair in rounds([len(p) for p in by_query], rng)]
        return schedule[: self.settings.max_pairs]

    def asked(self, key: Key) -> int:
        """How many probes of a stratum and contrast there are; under --sequential at most."""
        planned = sum(map(len, self.pairs[key].values()))
        return min(planned, self.settings.max_pairs) if self.settings.sequential else planned

    @cached_property
    def calls(self) -> int:
        """Requests planned: two a probe; under --sequential at most so many."""
        return 2 * sum(map(self.asked, self.keys))

    def programs(self) -> Iterator[Program]:
        """One program per probe; under --sequential none past the pair at which its stratum was settled."""
        if not self.settings.sequential:
            for probe in self.probes():
                yield Program(probe.probe_id, partial(self.ranker.steps, probe))
            return
        for key in self.keys:
            stopping = self.stopping(key)
            for probe in stopping.undecided():
                steps = self.ranker.steps(probe)
                yield Program(probe.probe_id, partial(stopping.noting, probe, steps, lambda verdict: verdict))

    def stopping(self, key: Key) -> Stopping[PairVerdict]:
        """A sequential audit of one stratum that has not begun."""
        settings, probes = self.settings, self.in_rounds(key)
        process = EProcess(band_of(settings.band), settings.level, len(probes))
        look = partial(seen, band=process.band, level=process.level, weights=settings.weights)
        return Stopping(probes, process, share, look)

    def identity(self) -> dict[str, Any]:
        return {
            **super().identity(),
            "conditions": list(self.strata),
            "pairs": self.settings.max_pairs if self.settings.sequential else self.settings.pairs,
            **({"grades": "match"} if self.settings.grades == "match" and self._grades else {}),
        }

    def facts(self) -> PairwiseFacts:
        """What results say of the design."""
        settings, judged = (
            self.settings,
            judged_of(map(self.dataset.candidates, self.queries), self.attribute),
        )
        wrong = settings.label_error
        how = (
            "form", "answers", "noise_share", "repeats", "weights", "adjust", "sequential", "label_error", "pairs",
        )  # fmt: skip
        general = structs.replace(super().facts(), conditions=[PAIRS], strata=[*self.strata], factors=None)
        return PairwiseFacts(
            **structs.asdict(general),
            **picked(settings, how),
            constrained=settings.constrain, max_pairs=settings.max_pairs if settings.sequential else None,
            judged=judged, prompt_sha256=self.prompt.sha256, grades=self._grades or None,
            odds_of_label_error=None if wrong is None else {
                key: odds_with(wrong, judged_between(judged, key.contrast), None)[key.stratum]
                for key in self.keys
            },
            pairs_asked={
                key: self.asked(key) if settings.sequential else sum(len(of.pairs) for of in probes.values())
                for key, probes in self.pairs.items()
            },
            without_pairs={
                key: sorted(query_id for query_id, of in probes.items() if not of)
                for key, probes in self.pairs.items()
            },
        )  # fmt: skip

    @cached_property
    def _grades(self) -> dict[str, PairGrades]:
        """Of those relevance strata and contrasts of which the items of some query have several grades."""
        grades = dict[str, PairGrades]()
        for key, by_query in self.pairs.items():
            lists, of_it = map(self.dataset.candidates, self.queries), self.attribute.contrasts[key.contrast]
            if all(len(pair_grades(listed, of_it, key.stratum)) < 2 for listed in lists):
                continue
            graded = [[probe.candidates.grades for probe in of if not probe.draw] for of in by_query.values()]
            differences = [fmean(ours - theirs for ours, theirs in of) for of in graded if of]
            mean = fmean(differences) if differences else None
            grades[key] = PairGrades(self.settings.grades == "match", mean)
        return grades

    # What it costs and can find, and what the answers come to

    def plan(self, models: int) -> dict[str, Any]:
        once = 2 * self.settings.repeats * sum(self.facts().pairs_asked.values())
        return {
            **super().plan(models),
            "left_out": self.dataset.describe().get("left_out", {}),
            "models": models,
            "sequential": self.settings.sequential,
            "noise_calls": 0 if self.settings.sequential else (self.calls - once) * models,
        }

    def tokens(self) -> tuple[int, int]:
        # probes of one query, stratum and contrast have equal prompts but for the items
        prompts = 0.0
        for key, by_query in self.pairs.items():
            asked = {query_id: len(probes) for query_id, probes in by_query.items()}
            if self.settings.sequential:
                asked = Counter(probe.candidates.query.query_id for probe in self.in_rounds(key))
            for query_id, n in asked.items():
                probes = islice(by_query[query_id], min(n, RENDERED))
                chats = [chat for probe in probes for chat in self.ranker.chats(probe)]
                characters = sum(len(message.content) for chat in chats for message in chat.messages)
                prompts += 2 * n * characters / max(len(chats), 1)
        answer = ceil(len(ANSWERS[self.ranker.form]) / CHARACTERS_PER_TOKEN)
        return round(prompts / CHARACTERS_PER_TOKEN), self.calls * answer

    def findable(self, settings: PlanPairwiseSettings) -> dict[str, Any] | None:
        """None of several groups, whose contrasts are tested together."""
        if self.attribute.groups:
            return None
        return {key: asdict(findable_of(self, key, settings)) for key in self.keys}

    def unparseable(self, result: PairVerdict) -> int:
        return sum(answer.unparseable for answer in result.answers)

    def outcome(self, run: str, results: Mapping[str, PairVerdict], failures: Sequence[Failure]) -> Outcome:
        stopped = {key: self.stopping(key) for key in self.keys if self.settings.sequential}
        for stopping in stopped.values():
            for probe in stopping.undecided():
                if probe.probe_id in results:
                    stopping.note(probe, results[probe.probe_id])
        probes = chain(*(of.counted() for of in stopped.values())) if stopped else self.probes()
        verdicts = (results[probe.probe_id] for probe in probes if probe.probe_id in results)
        return outcome_of(self, run, verdicts, failures, stopped)


def findable_of(design: PairwiseDesign, stratum: Key, settings: PlanPairwiseSettings) -> PairwiseFindable:
    """How audits of one relevance stratum end. Raises UsageError for a pilot that cannot be."""
    with_pairs = [probes for probes in design.pairs[stratum].values() if probes]
    counts = [len(probes.pairs) for probes in with_pairs]
    items = Counter(of.candidates.doc_ids[place] for of in with_pairs for place in np.unique(of.pairs[:, 1:]))
    # Σ_q se² depends on Σ 1/m_q alone, so queries of unequal pairs count as their harmonic mean.
    n, pairs = len(counts), harmonic_mean(counts) if counts else 0.0
    few = ("too_few_queries" if n else "no_pairs") if n < FEWEST_QUERIES else None
    reason = "sequential" if settings.sequential else few
    rule = Rule(settings.level, band_of(settings.band), sum(any(of.values()) for of in design.pairs.values()))
    odds, target = settings.ratio, settings.power

    def prospect(answers: Answers) -> Prospect:
        def plan(queries: int, odds: float) -> PairPlan:
            return plan_pairs(queries, pairs, odds, *answers, rule)

        disparate, fair = plan(n, odds), plan(n, 1.0)
        return Prospect(
            *answers,
            agreement=fair.agreement, error=disparate.error, disparity=disparate.disparity, parity=fair.parity,
            queries_for_disparity=fewest_queries(lambda queries: plan(queries, odds).disparity >= target),
            queries_for_parity=fewest_queries(lambda queries: plan(queries, 1.0).parity >= target),
            smallest=smallest_odds(lambda odds: plan(n, odds).disparity >= target, rule.band[0]),
        )  # fmt: skip

    return PairwiseFindable(
        queries=n, pairs=pairs, items_recur=max(items.values(), default=1) > 1, ratio=odds, target=target,
        reason=reason, prospects=() if reason else tuple(map(prospect, _expected(stratum, settings))),
    )  # fmt: skip


def _expected(stratum: Key, settings: PlanPairwiseSettings) -> list[Answers]:
    """As the settings say, or a pilot run. Raises UsageError."""
    if settings.pilot is None:
        shares = LIKELY_CONSISTENT if settings.consistent is None else (settings.consistent,)
        return [(settings.first_slot, share, settings.icc) for share in shares]
    run = find_run(settings.pilot, settings.runs_dir)
    results = results_of(run)
    rows = results.of_all() if isinstance(results, PairwiseResults) else ()
    rates = (row.value for row in rows if row.measure.startswith("FirstSlotRate") and row.stratum == stratum)
    first_slot, finding = next(rates, None), results.findings.get(stratum)
    if not first_slot or first_slot == 1 or finding is None or finding.consistent_share is None:
        raise UsageError(
            f"--pilot: {run.path} has no answers on {stratum} pairs.", "name a run of llmfair pairwise"
        )
    return [(first_slot, finding.consistent_share, max(0.0, finding.icc or 0.0))]


def make_pair_design(settings: PairwiseSettings, subject: Subject = NOBODY) -> PairwiseDesign:
    """Loads what the settings name and fixes the pairs that are asked. Raises UsageError."""
    dataset, attribute = load_lists(settings)
    if subject.scores_lists:  # and answers no questions: there is one form in which it can be asked
        settings = replace(settings, form=SCORES)
    task = PairwiseDesign.task + (f"-{SCORES}" if settings.form == SCORES else "")
    settings, prompt = with_prompt(settings, dataset, task)
    if attribute.groups and settings.sequential:
        raise UsageError(
            f"--sequential audits two groups, and {attribute.name} has {len(attribute.groups)}.",
            "leave it out",
        )
    queries = selected_queries(dataset, settings)
    strata = settings.strata() if is_judged(dataset, queries) else (UNJUDGED,)
    same = ("form", "answers", "on_bad_answer", "input", "words")
    ranker = PairwiseRanker(prompt=prompt, attribute=attribute, **picked(settings, same))
    # a sequential audit may ask as many pairs of one query as it asks in all, each once
    how = (settings.pairs, settings.noise_share, settings.repeats)
    pairs, noise_share, repeats = (settings.max_pairs, 0.0, 1) if settings.sequential else how
    return PairwiseDesign.measuring(
        *(with_weights(names, settings.weights) for names in (SHOWN, MEASURED, HEADLINE)),
        settings=settings, subject=subject, dataset=dataset, attribute=attribute, prompt=prompt, ranker=ranker,
        queries=tuple(queries),
        pairs={
            Key(PAIRS, stratum, contrast): {
                query.query_id: pairwise_probes(
                    dataset.candidates(query), of_it, stratum, pairs, settings.seed, ranker.shown,
                    noise_share, repeats, settings.grades, contrast
                )
                for query in queries
            }
            for stratum in strata
            for contrast, of_it in attribute.contrasts.items()
        },
    )  # fmt: skip


# The pairwise instrument against a known truth: simulated audits of injected odds on the user's own pairs. Every one
# goes through the inference of a real one, with the design's very pairs and the items that recur in them. Its intervals
# are held against the odds over all queries, which a spread over queries brings nearer to 1 than the typical query's.


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
    return row_of(
        InjectedPairs.__struct_fields__,
        beta,
        recovered,
        covered,
        p_values,
        findings,
        settings.level,
        of_stratum,
    )


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
