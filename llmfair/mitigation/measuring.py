"""Figures of a remedy's rankings, and their changes beside the unmitigated ones, paired by query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from llmfair.audits.comparing.changes import ChangeRow, ComparedRun, with_figures
from llmfair.audits.listwise.contrasts import paired
from llmfair.audits.summary import ALL, Inference, summarise
from llmfair.metrics.agreement import consistent
from llmfair.metrics.base import Judged, Measure
from llmfair.metrics.columns import Column, measure_all
from llmfair.metrics.names import parse_measure
from llmfair.metrics.values import Undefined
from llmfair.mitigation.results import ANSWERS, CONSISTENCY, MEASURED, NONE, ODDS, PAGE, UTILITY
from llmfair.mitigation.unmitigated import Unmitigated
from llmfair.nouns import Measurement, Ranking
from llmfair.results import Figure
from llmfair.stats.paired import change_by_query

OF_A_PAGE = (UTILITY, PAGE)
"""What compares of rankings of other documents too."""
UNTOUCHED, OTHER_LISTS = "answers_untouched", "other_lists"
"""Why there is no figure: the remedy orders anew what was answered; it ranks other documents than the run's lists."""


Answers = tuple[Figure, Mapping[str, float]]
"""The preference odds of answers, and what each query contributes to them."""


@dataclass(frozen=True)
class Measured:
    """A remedy's columns by measure, and the odds of the answers behind it, or why it is `without`."""

    condition: str
    columns: Mapping[str, Column]
    answers: Answers | None = None
    without: str = UNTOUCHED


def judged_of(run: Unmitigated, orders: Mapping[str, Sequence[Ranking]]) -> list[Judged]:
    """What measures read of rankings of the run's lists."""
    return [run.judged(query_id, rankings) for query_id, rankings in orders.items()]


def measured(
    name: str,
    judged: Sequence[Judged],
    halves: Mapping[str, Sequence[tuple[Ranking, Ranking]]] | None = None,
    own_lists: bool = False,
    answers: Answers | None = None,
) -> Measured:
    """Every measure of every query. Rankings that were merged are as consistent as those of their halves."""
    measures = [parse_measure(measure) for measure in MEASURED]
    found = {str(one.measure): one for one in measure_all(measures, {name: judged}) if one.group == ""}
    for measure in measures:
        column = found.get(str(measure), Column(measure, name, "", {}))
        if own_lists and str(measure) not in OF_A_PAGE:
            column = replace(column, values={one.query_id: Undefined(OTHER_LISTS) for one in judged})
        elif halves is not None and str(measure) == CONSISTENCY:
            column = replace(column, values={one.query_id: _of_halves(one, halves) for one in judged})
        found[str(measure)] = column
    return Measured(name, found, answers, OTHER_LISTS if own_lists else UNTOUCHED)


def _of_halves(judged: Judged, halves: Mapping[str, Sequence[tuple[Ranking, Ranking]]]) -> float | Undefined:
    pairs = halves.get(judged.query_id, ())
    orders = replace(judged, rankings=tuple(one for pair in pairs for one in pair)).orders
    found = consistent([*zip(orders[::2], orders[1::2], strict=True)], len(judged.doc_ids))
    assert isinstance(found, float | Undefined)
    return found


def answers_of(run: ComparedRun, condition: str) -> Answers:
    """The preference odds of a listwise run's answers, and what each query contributes to them."""
    return run.figure(ANSWERS, condition), run.values.get((ANSWERS, condition), {})


def inference_of(run: Unmitigated) -> Inference:
    lengths = [len(orders[0].doc_ids) for orders in run.orders.values()]
    results = run.results
    return Inference(results.level, run.settings.ci, run.settings.seed, median(lengths))


def rows_of(found: Measured, inference: Inference) -> list[Measurement]:
    """The rows of a remedy: its queries, then all of them together; the odds of answers with the reason they lack."""
    rows = summarise([*found.columns.values()], inference)
    if found.answers is None:
        return [*rows, Measurement(ALL, ANSWERS, None, found.condition, n=0, reason=found.without)]
    figure, _ = found.answers
    named = {key: getattr(figure, key) for key in ("low", "high", "n", "reason")}
    return [*rows, Measurement(ALL, ANSWERS, figure.value, found.condition, **named)]


def changes_of(
    name: str,
    base: Measured,
    other: Measured,
    figures: Mapping[str, Mapping[str, Figure]],
    inference: Inference,
) -> dict[str, ChangeRow]:
    """Each measure's change, paired over the queries that both have; `figures` are both's own, by name."""
    found: dict[str, ChangeRow] = {}
    for measure, column in other.columns.items():
        before = base.columns[measure]
        alike = {*before.values} & {*column.values}
        row = _row(name, column.measure, figures)
        of_all = next(
            one for one in paired(column.measure, column, before, alike, inference) if one.query_id == ALL
        )
        own_reason = figures[name][measure].reason if of_all.value is None else None
        found[measure] = replace(
            row, change=of_all.value, low=of_all.low, high=of_all.high, n=of_all.n or 0, p=of_all.p,
            reason=own_reason or of_all.reason,
        )  # fmt: skip
    found[ANSWERS] = _of_answers(name, base, other, figures, inference)
    return found


def _of_answers(
    name: str,
    base: Measured,
    other: Measured,
    figures: Mapping[str, Mapping[str, Figure]],
    inference: Inference,
) -> ChangeRow:
    row = _row(name, parse_measure(ANSWERS), figures)
    if other.answers is None or base.answers is None:
        return replace(row, reason=other.without)
    (_, before), (_, after) = base.answers, other.answers
    queries = sorted(before.keys() & after.keys())
    if not queries:
        return replace(row, reason="no_finite_odds")
    one, two = ([of[query] for query in queries] for of in (before, after))
    change = change_by_query(one, two, True, inference.level, np.random.default_rng(inference.seed))
    of_it = change.estimate
    return replace(
        row, change=of_it.value, low=of_it.low, high=of_it.high, n=of_it.n, p=change.p, reason=of_it.reason
    )


def _row(name: str, measure: Measure, figures: Mapping[str, Mapping[str, Figure]]) -> ChangeRow:
    declared, of = measure.definition, str(measure)
    row = ChangeRow(name, name, of, declared.scale, declared.better, of in (ODDS, UTILITY), None, None)
    return with_figures(row, figures[NONE][of], figures[name][of])
