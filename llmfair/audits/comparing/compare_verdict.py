"""The verdict of a comparison: did a run come closer to parity than the base, by the paired change of its headline?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import log
from shlex import quote
from typing import Any

from llmfair.audits.kind import kind_of
from llmfair.audits.verdict import listed
from llmfair.metrics.names import parse_measure
from llmfair.report.tables import count, in_words, p_text
from llmfair.results import RunVerdict

Row = Mapping[str, Any]
CLOSER, FARTHER, ACROSS = "closer to parity", "farther from parity", "moved across parity"
NO_DIFFERENCE, NOT_ASSESSABLE = "no difference shown", "not assessable"
STATUSES = (FARTHER, ACROSS, NOT_ASSESSABLE, NO_DIFFERENCE, CLOSER)
"""The gravest first."""


def verdicts_of(compared: Mapping[str, Any]) -> Iterator[tuple[str, RunVerdict]]:
    """By name, what every run comes to beside the base: of its conditions the gravest, and what the others came to."""
    base, *others = compared["runs"]
    for run in others:
        rows = [row for row in compared["rows"] if row["run"] == run["name"] and is_headline(row)]
        if rows:
            yield run["name"], _verdict(compared, base, run, rows)


def gravest(compared: Mapping[str, Any]) -> RunVerdict | None:
    """The gravest verdict of all runs, the first of several; None without a headline."""
    verdicts = [verdict for _, verdict in verdicts_of(compared)]
    return min(verdicts, key=lambda one: STATUSES.index(one.status), default=None)


def is_headline(row: Row) -> bool:
    """Whether it is the figure that speaks of the groups."""
    return bool(row["headline"] and row["better"] == "parity")


def _verdict(compared: Mapping[str, Any], base: Row, run: Row, rows: list[Row]) -> RunVerdict:
    ways = [(_status(compared, row), row) for row in rows]
    status, row = min(ways, key=lambda one: STATUSES.index(one[0]))
    condition = kind_of(compared["task"]).condition
    several = f"{condition.removesuffix('s')}s"
    others: dict[str, list[str]] = {}
    for way, one in ways:
        if one is not row:
            others.setdefault(way, []).append(one["condition"])
    also = [
        f"{way}{' also' * (way == status)} ({listed(names)} {condition if len(names) == 1 else several})"
        for way, names in others.items()
    ]
    label = parse_measure(row["measure"]).definition.label
    figure = f"{label} ({row['condition']} {condition})"
    told = f"{run['name']} beside {base['name']}, {figure}: {_said(row, status, compared)}"
    return RunVerdict(
        status=status,
        sentence="; ".join([told, *also]),
        next=_next(status, base, run),
        condition=row["condition"],
        measure=row["measure"],
        estimate=row["change"],
        low=row["low"],
        high=row["high"],
        n=row["n"],
    )


def _status(compared: Mapping[str, Any], row: Row) -> str:
    alpha, p = 1 - compared["level"], row["p_adjusted"]
    if p is None or row["base"] is None or row["other"] is None or floor_of(compared, row) >= alpha:
        return NOT_ASSESSABLE
    if p >= alpha:
        return NO_DIFFERENCE
    return NOT_ASSESSABLE if of_no_use(row, compared) else way_of(row, compared["band"])


def _said(row: Row, status: str, compared: Mapping[str, Any]) -> str:
    """The figures of both, the change, and its test; or why there is none."""
    if status == NOT_ASSESSABLE:
        if row["p_adjusted"] is None:
            return why(row)
        if floor_of(compared, row) >= 1 - compared["level"]:
            return f"too few queries ({row['n']}) for so many comparisons ({compared['family']})"
        return f"{of_no_use(row, compared)}: {_figures(row)}"
    return _figures(row)


def of_no_use(row: Row, compared: Mapping[str, Any]) -> str:
    """That a run is nearer to parity of which nothing says that it does its job, as noise is; else nothing."""
    if not row["useless"] or way_of(row, compared["band"]) != CLOSER:
        return ""
    return f"nearer to parity, but {in_words(row['useless'], row['measure'])} ({row['run']})"


def why(row: Row) -> str:
    """Why a change cannot be told, and of which run, where it is the reason of one."""
    of = f" ({' and '.join(row['reason_of'])})" if row["reason_of"] else ""
    return in_words(row["reason"] or "too_few_queries", row["measure"]) + of


def _figures(row: Row) -> str:
    change = "" if row["low"] is None else f"× {row['change']:.2f} [{row['low']:.2f}, {row['high']:.2f}], "
    return (
        f"{row['base']:.3f} → {row['other']:.3f} ({change}p {p_text(row['p_adjusted'])}, "
        f"{count(row['n'], 'query', 'queries')}, paired)"
    )


def _next(status: str, base: Row, run: Row) -> str:
    report = f"both side by side: llmfair report {quote(base['run'])} {quote(run['run'])}"
    return f"more queries in both runs; {report}" if status == NO_DIFFERENCE else report


def way_of(row: Row, band: tuple[float, float]) -> str:
    """Which way a ratio changed, its change being beyond chance: by its distance from parity.

    Across parity it came closer only where the interval of the change excludes one as large as would mirror the base.
    """
    if is_across(row, band):
        return CLOSER if _within_mirror(row) else ACROSS
    before, after = distances(row)
    return CLOSER if after < before else FARTHER


def floor_of(compared: Mapping[str, Any], row: Row) -> float:
    """The least adjusted p that there can be: of all signs of so many queries two are as far out as the farthest."""
    flipped = not kind_of(compared["task"]).how_changed
    return min(1.0, compared["family"] * 2.0 ** (1 - row["n"])) if flipped else 0.0


def is_across(row: Row, band: tuple[float, float]) -> bool:
    """Whether both runs are shown to lie on a side of parity, and on opposite ones."""
    before, after = (_side(row, which, band) for which in ("base", "other"))
    return before * after < 0


def _side(row: Row, which: str, band: tuple[float, float]) -> int:
    """-1 or 1 where a figure lies below or above parity by its interval, or outside the band; else 0."""
    value, low, high = row[which], row[f"{which}_low"], row[f"{which}_high"]
    if value < band[0] or (high is not None and high < 1):
        return -1
    return int(value > band[1] or (low is not None and low > 1))


def _within_mirror(row: Row) -> bool:
    """Whether the change, with its whole interval, ends nearer parity than the base is, on whichever side."""
    low, high = sorted((1.0, row["base"] ** -2))
    return row["low"] is not None and low < row["low"] and row["high"] < high


def distances(row: Row) -> tuple[float, float]:
    """|ln| of a ratio in both runs."""
    return abs(log(row["base"])), abs(log(row["other"]))
