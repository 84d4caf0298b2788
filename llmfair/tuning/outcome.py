"""What a finished training comes to: `results.json`, `metrics.csv` and the manifest, from figures alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from llmfair.jsonfiles import SCHEMA
from llmfair.records import Cell, Measurement, Side
from llmfair.results import plain
from llmfair.rundir import COLUMNS, csv_text, tidy
from llmfair.tuning.effects import KINDS_OF_PAIRS, RELEVANT_FIRST, SMOOTHED, Figures
from llmfair.tuning.gates import Validation, gates_json
from llmfair.tuning.pairs import COMBINATIONS, TrainingPair

BASE, ADAPTER, BASELINE = "base", "adapter", "free baseline"
"""The three that are measured on the same pairs, as `model` of a row names them."""


def rows_of(figures: Mapping[str, Figures], run: str, dataset: str, attribute: str) -> list[dict[str, Any]]:
    """Every figure of all test queries, tidy; `model` says whose it is."""
    rows = []
    for model, of_it in figures.items():
        named = {"run": run, "dataset": dataset, "attribute": attribute, "model": model}
        rows += [dict(zip(COLUMNS, row, strict=True)) for row in tidy(of_it.rows, named)]
    return rows


def metrics_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    return csv_text(COLUMNS, [[row[column] for column in COLUMNS] for row in rows])


def figure_4(before: Figures, after: Figures) -> dict[str, dict[str, dict[str, Any]]]:
    """The numbers of the paper's Figure 4: shares of answers and their ratio, before and after, by kind of pairs."""
    return {
        kind: {
            when: {
                **{side.value: _interval(figures.row("WinShare", kind, side)) for side in Side},
                "flipped": _interval(figures.row("FlipRate", kind)),
                "ratio": _interval(figures.row(SMOOTHED, kind))
                | {"protected": figures.cells[kind][Cell.PP], "unprotected": figures.cells[kind][Cell.UU]},
                "pairs": sum(figures.cells[kind].values()),
            }
            for when, figures in (("before", before), ("after", after))
        }
        for kind in KINDS_OF_PAIRS
    }


def _interval(row: Measurement) -> dict[str, Any]:
    return {"value": row.value, "low": row.low, "high": row.high, "n": row.n, "reason": row.reason}


def relevance_gap(figures: Figures) -> float | None:
    """How far the four combinations of sides differ in how often the relevant item is preferred."""
    names = (f"{ours.value} over {theirs.value}" for ours, theirs in COMBINATIONS)
    found = [figures.value(RELEVANT_FIRST, "mixed", name) for name in names]
    known = [value for value in found if value is not None]
    return max(known) - min(known) if len(known) == len(COMBINATIONS) else None


def results_of(
    named: Mapping[str, str],
    passed: bool,
    facts: Mapping[str, Any],
    figures: Mapping[str, Figures],
    changes: Mapping[str, Any],
    final: Validation,
    training: Mapping[str, Any],
) -> dict[str, Any]:
    """What --json prints. `facts` are those of the design; `final` is the test queries' own verdict on the gates."""
    return {
        "schema": SCHEMA,
        "status": "complete" if passed else "rejected",
        "task": "finetune-lora",
        **named,
        **facts,
        "rows": rows_of(figures, named["run"], named["dataset"], named["attribute"]),
        "findings": {model: plain(of_it.findings) for model, of_it in figures.items()},
        "cells": {model: of_it.cells for model, of_it in figures.items()},
        "objective": {model: of_it.objective for model, of_it in figures.items()},
        "relevance_gap": {model: relevance_gap(of_it) for model, of_it in figures.items()},
        "changes": changes,
        "gates_on_test": gates_json(final.gates),
        "figure_4": figure_4(figures[BASE], figures[ADAPTER]),
        "training": training,
    }


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
