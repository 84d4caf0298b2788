"""What a finished training comes to: `results.json`, `metrics.csv` and the manifest, from figures alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from llmfair.nouns import Measurement, PairStratum, Side
from llmfair.results import Row, rows_of
from llmfair.rundir import COLUMNS, csv_text, tidy
from llmfair.tuning.effects import PAIR_STRATA, RELEVANT_FIRST, SMOOTHED, Figures
from llmfair.tuning.pairs import COMBINATIONS, TrainingPair
from llmfair.tuning.results import (
    AnswersOnPairs,
    FinetuneResults,
    Interval,
    OddsChange,
    RatioOfPairs,
    TrainingFacts,
    Validation,
)
from llmfair.tuning.safeguards import with_text

BASE, ADAPTER, BASELINE = "base", "adapter", "logit offset"
"""The three that are measured on the same pairs, as `model` of a row names them."""


def tidy_rows(figures: Mapping[str, Figures], named: Mapping[str, str]) -> tuple[Row, ...]:
    """Every figure of all test queries, tidy; `model` says whose it is."""
    return tuple(
        row
        for model, of_it in figures.items()
        for row in rows_of(tidy(of_it.rows, {**named, "model": model}))
    )


def metrics_csv(rows: Iterable[Row]) -> str:
    return csv_text(COLUMNS, map(astuple, rows))


def figure_4(before: Figures, after: Figures) -> dict[str, dict[str, AnswersOnPairs]]:
    """The numbers of the paper's Figure 4: shares of answers and their ratio, before and after, by stratum."""
    both = {"before": before, "after": after}
    return {
        stratum: {when: _answers(figures, stratum) for when, figures in both.items()}
        for stratum in PAIR_STRATA
    }


def _answers(figures: Figures, stratum: PairStratum) -> AnswersOnPairs:
    cells, ratio = figures.cells[stratum], _interval(figures.row(SMOOTHED, stratum))
    return AnswersOnPairs(
        **{side.value: _interval(figures.row("WinShare", stratum, side)) for side in Side},
        flipped=_interval(figures.row("FlipRate", stratum)),
        ratio=RatioOfPairs(**vars(ratio), protected=cells.PP, unprotected=cells.UU),
        pairs=sum(astuple(cells)),
    )


def _interval(row: Measurement) -> Interval:
    return Interval(row.value, row.low, row.high, row.n, row.reason)


def relevance_gap(figures: Figures) -> float | None:
    """How far the four combinations of sides differ in how often the relevant item is preferred."""
    names = (f"{ours.value} over {theirs.value}" for ours, theirs in COMBINATIONS)
    found = [figures.value(RELEVANT_FIRST, "mixed", name) for name in names]
    known = [value for value in found if value is not None]
    return max(known) - min(known) if len(known) == len(COMBINATIONS) else None


def results_of(
    told: Mapping[str, Any],
    figures: Mapping[str, Figures],
    changes: Mapping[str, OddsChange],
    final: Validation,
    training: TrainingFacts,
) -> FinetuneResults:
    """What --json prints. `told` is what the design tells; `final` is the test queries' own verdict on safeguards."""
    return FinetuneResults(
        **told,
        status="rejected" if training.rejected else "complete",
        rows=tidy_rows(figures, {name: told[name] for name in ("run", "dataset", "attribute")}),
        findings={model: of_it.findings for model, of_it in figures.items()},
        cells={model: of_it.cells for model, of_it in figures.items()},
        objective={model: of_it.objective for model, of_it in figures.items()},
        relevance_gap={model: relevance_gap(of_it) for model, of_it in figures.items()},
        changes=changes,
        gates_on_test=with_text(final.gates),
        figure_4=figure_4(figures[BASE], figures[ADAPTER]),
        training=training,
    )


def target_counts(pairs: Sequence[TrainingPair]) -> dict[str, dict[str, dict[str, int]]]:
    """Pairs by query, stratum and target; `weight 0` does not count in the loss, `other` is a probability."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for pair in pairs:
        known = pair.target in (0.0, 0.5, 0.9, 1.0)
        name = "weight 0" if not pair.weight else f"{pair.target:g}" if known else "other"
        of_it = found.setdefault(pair.query.query_id, {}).setdefault(pair.stratum, Counter())
        of_it[name] += 1
    return {
        query_id: {stratum: dict(sorted(counts.items())) for stratum, counts in strata.items()}
        for query_id, strata in found.items()
    }
