"""The figures of pairwise audits, of one and of several side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from llmfair.audits.pairwise.results import PairwiseResults
from llmfair.metrics.base import plain_name
from llmfair.report.exhibits import Declared
from llmfair.report.figures import headline_plots, on_log, value_of
from llmfair.report.groups import AuditedRun, Group
from llmfair.report.plots.base import Plot
from llmfair.report.plots.pairs import position_bias, stacked_answers
from llmfair.report.plots.ratios import ratios


def pairwise_plots(results: PairwiseResults, declared: Declared) -> Iterator[Plot]:
    """Answers on pairs, every ratio against parity, position bias."""
    cells, strata = results.by_condition(), results.design.conditions
    answered = [(stratum, asdict(shares)) for stratum in strata if (shares := results.shares.get(stratum))]
    if answered:
        yield stacked_answers(answered, asdict(results.words))
    yield from headline_plots(results, strata, declared, {})
    first = [
        (stratum, value)
        for stratum in strata
        for (measure, condition), row in cells.items()
        if measure in declared
        and declared[measure].shows == "position bias"
        and condition == stratum
        and (value := value_of(row))
    ]
    if first:
        yield position_bias(first)
    headlines = {finding.measure for finding in results.findings.values()}
    others = [
        (f"{plain_name(measure)}\n{stratum}" if len(strata) > 1 else plain_name(measure), None, value)
        for measure in results.measures
        if measure not in headlines and measure in declared and declared[measure].better == "parity"
        for stratum in strata
        if (value := on_log(value_of(cells.get((measure, stratum)))))
    ]
    if others:
        yield ratios(others, "ratio", None, "Other ratios of the same answers", "other-ratios")


def group_plots(group: Group, number: int) -> Iterator[Plot]:
    """Answers of every model on every relevance stratum."""
    answered = [
        (f"{name}\n{audited.results.attribute}: {stratum}", asdict(shares))
        for name, runs in group.drawn.items()
        for audited in runs.values()
        for stratum, shares in _found(audited).shares.items()
        if shares
    ]
    if answered:
        words = asdict(group.audits()[0].results.words) if len({a for a, _ in group.columns}) == 1 else {}
        yield stacked_answers(answered, words, f"answers-{number}")


def _found(audited: AuditedRun) -> PairwiseResults:
    assert isinstance(audited.results, PairwiseResults)
    return audited.results
