"""Runs side by side for people: a table of changes, and a sentence for each that matters."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from llmfair.audits.comparing.compare_verdict import (
    NO_DIFFERENCE,
    distances,
    floor_of,
    gravest,
    is_across,
    of_no_use,
    verdicts_of,
    way_of,
    why,
)
from llmfair.audits.kind import kind_of
from llmfair.audits.runs.exhibits import declared
from llmfair.metrics.base import CONTROLLED, POOLED, plain_name
from llmfair.report.exhibits import Declaration
from llmfair.report.groups import about
from llmfair.report.lead import lead_of
from llmfair.report.reasons import in_words
from llmfair.report.tables import Table, count, few_queries, filled, p_text
from llmfair.stats.conclusions import OTHER_DESIGN, OTHER_REACH

COLUMNS = (
    "run", "condition", "measure", "scale", "base", "other", "change", "low", "high", "n", "p", "p_adjusted",
    "base_conclusion", "other_conclusion", "reason",
)  # fmt: skip
Row = Mapping[str, Any]


def compare_table(compared: Mapping[str, Any]) -> Table:
    """One row a measure and condition; below them what the changes come to."""
    base, *others = compared["runs"]
    kind, several = kind_of(compared["task"]), len(others) > 1
    common = {f", on {on[0]} in common" for one in others if (on := kind.compared_on(base, one))}
    uneven = any(row["n"] != compared["queries"] for row in compared["rows"])
    header = (
        "measure",
        kind.condition,
        *(("run",) * several),
        f"base {base['name']}" + "".join(common),
        "other" if several else others[0]["name"],
        f"change [{compared['level'] * 100:g} %]",
        *(("queries",) * uneven),
        "p (Holm)",
    )
    rows = tuple(
        (
            _label(row),
            row["condition"],
            *((row["run"],) * several),
            _figure(row["base"]),
            _figure(row["other"]),
            _change(row),
            *((f"{row['n']:,}",) * uneven),
            "" if row["p_adjusted"] is None else p_text(row["p_adjusted"]),
        )
        for row in compared["rows"]
    )
    title = " · ".join(
        [
            f"Compare {compared['task']}",
            compared["dataset"],
            about(compared["attribute"], compared["words"]["protected"]),
            count(compared["queries"], "query", "queries"),
        ]
    )
    worst = gravest(compared)
    lead = lead_of(
        [("", verdict) for _, verdict in verdicts_of(compared)], "" if worst is None else worst.next
    )
    notes = (*_differing(compared), *_sentences(compared), *_notes(compared))
    return filled(Table(title, header, rows, notes, lead=lead))


def compare_tsv(compared: Mapping[str, Any]) -> str:
    """The rows for programs: figures as they are, undefined ones empty."""
    text = io.StringIO()
    lines = ([row[column] for column in COLUMNS] for row in compared["rows"])
    csv.writer(text, "excel-tab", lineterminator="\n").writerows([COLUMNS, *lines])
    return text.getvalue()


def _shows(row: Row) -> str:
    says = _declared(row)
    return says.shows if says else ""


def _declared(row: Row) -> Declaration | None:
    """What the measure of a row declares of itself."""
    return declared([row["measure"]]).get(row["measure"])


def _label(row: Row) -> str:
    says = _declared(row)
    return str(says.label if says and says.worded else plain_name(row["measure"], POOLED))


def _figure(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def _change(row: Row) -> str:
    if row["change"] is None:
        return f"undefined ({_reason(row)})"
    shown = "× {:.3f}" if row["scale"] == "log" else "{:+z.3f}"
    text = shown.format(row["change"]).replace("+0.000", "0.000")
    if row["low"] is None:
        return text
    return f"{text} [{row['low']:z.3f}, {row['high']:z.3f}]"


def _differing(compared: Mapping[str, Any]) -> Iterator[str]:
    """What else differs between each run and the base, so that a change may come of it."""
    base, *others = compared["runs"]
    for run in others:
        if run["same_answers"]:
            yield (
                f"{base['name']} and {run['name']} hold the same answers: they differ in how these were measured, and "
                "nothing is tested"
            )
        if differs := run["differs"]:
            told = (
                f"{key}: {_value(key, before)} → {_value(key, after)}"
                for key, (before, after) in differs.items()
            )
            yield f"{run['name']} also differs in {'; '.join(told)}"


def _sentences(compared: Mapping[str, Any]) -> Iterator[str]:
    """What became of every headline, and of the answers that follow the order."""
    alpha = 1 - compared["level"]
    several = len(compared["runs"]) > 2
    headlines = {
        (row["run"], row["condition"]): row
        for row in compared["rows"]
        if row["better"] == "parity" and row["headline"]
    }
    untold: list[float] = []
    same = [run["name"] for run in compared["runs"] if run["same_answers"]]
    yield from _unbounded(compared)
    for row in (row for row in compared["rows"] if row["run"] not in same):
        about = f"{_label(row)}, {row['condition']}" + f", {row['run']}" * several
        if row["reason"] in (OTHER_REACH, OTHER_DESIGN):
            continue
        if row["headline"] and (row["change"] is None or None not in (row["base"], row["other"])):
            unassessed, floor = _unassessed(row), floor_of(compared, row)
            if not unassessed and row["p_adjusted"] is not None and floor >= alpha:
                untold.append(floor)
                continue
            yield f"{about}: {unassessed or _became(row, compared)}"
        elif _shows(row) == "order dependence" and row["low"] is not None and row["low"] > 0:
            odds = headlines.get((row["run"], row["condition"]))
            yield f"{about}: more answers now depend on the order" + _bought(odds, alpha, compared["band"])
    if untold:
        yield (
            f"{count(len(untold), 'headline')}: too few queries for so many comparisons (p can be no less than "
            f"{p_text(min(untold))}), so no difference can be shown"
        )


def _unassessed(row: Row) -> str:
    """That nothing can be said of a headline, and of which run; nothing where it can."""
    barred = row["change"] is None or (row["low"] is None and row["reason_of"])
    return f"cannot be assessed: {why(row)}" if barred else ""


def _unbounded(compared: Mapping[str, Any]) -> Iterator[str]:
    """Which measures hang on what the settings let a run reach, where that differs from the base."""
    base, *others = compared["runs"]
    for run in others:
        bounded: dict[tuple[str, str], list[str]] = {}
        for row in compared["rows"]:
            says = _declared(row)
            if (
                says is not None
                and row["run"] == run["name"]
                and row["reason"] in (OTHER_REACH, OTHER_DESIGN)
            ):
                bounded.setdefault((says.reach, row["reason"]), []).append(_label(row))
        for (bounding, reason), labels in bounded.items():
            why = in_words(reason)
            if reason == OTHER_REACH:
                ranges = (f"{one['name']} {_range(one['reach'].get(bounding, {}))}" for one in (base, run))
                why = f"the attainable ranges of {bounding} differ ({', '.join(ranges)})"
            beside = f" ({run['name']}; preference odds do)" * (reason == OTHER_DESIGN)
            yield f"{', '.join(dict.fromkeys(labels))}: closer to parity or not cannot be told, since {why}{beside}"


def _range(reach: Mapping[str, float]) -> str:
    return "–".join(f"{end:.2f}" for end in reach.values()) or "unknown"


def _became(row: Row, compared: Mapping[str, Any]) -> str:
    """The change of a headline in words, with its test."""
    alpha, p = 1 - compared["level"], row["p_adjusted"]
    tested = f"({count(row['n'], 'query', 'queries')}, paired)"
    test = f"{_p(p)} {tested}" if p is not None else f"no test: {_reason(row)}"
    figures = f"{row['base']:.3f} → {row['other']:.3f}"
    if row["better"] != "parity":
        way = "higher" if row["other"] > row["base"] else "lower"
    else:
        way = of_no_use(row, compared) or way_of(row, compared["band"])
        figures += " (parity is 1)"
    found = way if p is not None and p < alpha else NO_DIFFERENCE
    return f"{found}: {figures}, {test}"


def _bought(odds: Row | None, alpha: float, band: tuple[float, float]) -> str:
    """The warning where the odds came closer to parity, or can no longer be told, while flips rose."""
    if odds is None or odds["base"] is None or odds["other"] is None:
        return ""
    before, after = distances(odds)
    p, (low, high) = odds["p_adjusted"], band
    near = p is None or (p < alpha and (not is_across(odds, band) or low <= odds["other"] <= high))
    return ": parity may have been bought with indecision" if near and after < before else ""


def _p(p: float) -> str:
    return f"p {p_text(p)}"


def _reason(row: Row) -> str:
    return in_words(row["reason"] or "too_few_queries")


def _notes(compared: Mapping[str, Any]) -> Iterator[str]:
    """How changes were made, and on what."""
    kind, (base, *others) = kind_of(compared["task"]), compared["runs"]
    if kind.how_changed:
        yield kind.how_changed
    else:
        yield (
            "base and other: each run's own figures; change: mean over the queries of both, of quotients (×) the "
            f"geometric mean; sign flips (seed {compared['seed']})"
        )
        for measure in dict.fromkeys(
            row["measure"] for row in compared["rows"] if (says := _declared(row)) and says.headline
        ):
            if declared([f"{measure}{CONTROLLED}"]):
                yield (
                    f"{measure} is the plain one, which every query has; a run's own table shows it with what random "
                    "initial orders explain taken out"
                )
    if any(POOLED in row["measure"] for row in compared["rows"]):
        yield "every pair weighs the same, not every query (--weights pooled)"
    if compared["family"]:
        yield f"p adjusted (Holm) over {count(compared['family'], 'headline comparison')}"
    for run in others:
        if on := kind.compared_on(base, run):
            yield f"{run['name']}: compared on {on[1]}"
    yield from kind.compared_notes(compared["runs"])
    yield from few_queries(compared["queries"])


def _value(key: str, value: Any) -> str:
    if key == "prompt_sha256" and value:
        return str(value)[:6]
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
