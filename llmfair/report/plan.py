"""What every plan and calibration tells: queries left out, calls, tokens, cost and time; injected preferences and what
simulated audits found of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Any

from msgspec import convert

from llmfair.io.text import count
from llmfair.report.phrases import about, drawn_note, percent
from llmfair.report.table import Cell, Column, Table
from llmfair.results import HowDrawn


def planned_note(planned: Mapping[str, Any]) -> list[str]:
    """The same of a plan."""
    return drawn_note(convert(planned.get("drawn"), HowDrawn | None, from_attributes=True))


# What every plan tells in words: queries left out, calls, tokens, cost, time, and what is answered already.


SHOWN_LEFT_OUT = 3
MINUTE, HOUR = 60, 3600


def plan_text(planned: Mapping[str, Any]) -> str:
    """A plan of which nothing but its calls is known."""
    return told(count(planned["queries"], "query", "queries"), plan_lines(planned))


def told(design: str, lines: Iterable[str]) -> str:
    """What a dry run says: the design, and indented what it takes and finds."""
    return "\n".join([design, *(f"  {line}" for line in lines), "Nothing was asked.", ""])


def duration(seconds: int) -> str:
    """Hours, minutes and seconds, those that are not 0."""
    parts = ((seconds // HOUR, "h"), (seconds % HOUR // MINUTE, "min"), (seconds % MINUTE, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"


def plan_lines(planned: Mapping[str, Any], between: Iterable[str] = ()) -> list[str]:
    """What the model sees and asking takes, what a kind says `between`, what is answered already, what is not ready."""
    latency, answered = planned.get("latency", 1.0), planned["answered"]
    seconds = ceil(planned["seconds_at_1s_a_call"] * latency)
    lines = [
        *filter(None, [planned["sees"]]),
        *planned_note(planned),
        *queries_lines(planned),
        calls_line(planned),
        f"at least {duration(seconds)} at {latency:g} s a call and {count(planned['workers'], 'worker')}",
        *between,
    ]
    if answered:
        lines.append(f"{count(answered, 'answer')} of them in {planned['folder']} already")
    return [*lines, *planned["unready"]]


def queries_lines(planned: Mapping[str, Any]) -> list[str]:
    """Queries that the dataset could not make a list for, and those that cannot be assessed."""
    reasons, remarks = list(planned.get("left_out", {}).values()), list(planned.get("remarks", ()))
    if not reasons:
        return remarks
    more = f"; and {len(reasons) - SHOWN_LEFT_OUT:,} more" * (len(reasons) > SHOWN_LEFT_OUT)
    left_out = count(len(reasons), "query has", "queries have")
    return [f"{left_out} no list: {'; '.join(reasons[:SHOWN_LEFT_OUT])}{more}", *remarks]


def calls_line(planned: Mapping[str, Any]) -> str:
    bound = planned.get("sequential") or planned.get("at_most")
    calls = ("at most " if bound else "") + count(planned["calls"], "call")
    if planned["prompt_tokens"] is None:
        return f"{calls} · tokens are not counted, nor is their cost"
    tokens = f"about {_about(planned['prompt_tokens'])} tokens in, {_about(planned['completion_tokens'])} out"
    line = f"{calls} · {tokens}"
    if "cost" not in planned:
        return line
    if planned["cost"] is None:
        return f"{line} · no price given (--price-in, --price-out)"
    prices = f"{planned['price_in']:g} and {planned['price_out']:g} a million tokens"
    cost = "less than 0.01" if 0 < planned["cost"] < 0.01 else f"about {planned['cost']:,.2f}"
    return f"{line} · costs {cost} at {prices}"


def spread(texts: Iterable[Cell]) -> str:
    """What several prospects come to, each text once."""
    return " to ".join(dict.fromkeys(map(str, texts)))


def share(power: float) -> str:
    """A power to two places, but never 1."""
    return "> 0.99" if power > 0.99 else f"{power:.2f}"


def _about(tokens: int) -> str:
    for least, name in ((1e6, "M"), (1e3, "k")):
        if tokens >= least:
            return f"{tokens / least:.1f} {name}"
    return str(tokens)


# What every calibration tells in a table and notes: what was injected, rejected and concluded.


Record = Mapping[str, Any]


def calibration_table(
    results: Mapping[str, Any],
    size: str = "",
    columns: Sequence[Column[Record]] = (),
    notes: Iterable[str] = (),
) -> Table:
    """One row an injected preference: a kind's own columns, then tests and conclusions; `size` says of how much."""
    low, high = results["band"]
    title = [
        results["task"].capitalize(),
        results["dataset"],
        about(results["attribute"], results["words"]["protected"]),
        size,
        f"{results['runs']:,} simulated audits a row",
        f"seed {results['seed']}",
        "no model asked",
    ]
    every: list[Column[Record]] = [
        *columns,
        (f"p < {1 - results['level']:.3g}", lambda row: share_with_error(row, "rejected")),
        ("within", lambda row: percent(row["within"])),
        (f"outside {low:g}–{high:g}", lambda row: percent(row["outside"])),
        ("inconclusive", lambda row: percent(row["inconclusive"])),
        ("not assessable", lambda row: percent(row["not_assessable"])),
    ]
    return Table.of(title, every, results["injected"], notes)


def injected(row: Record) -> str:
    return f"{row['injected_odds']:.3f} (ln {row['injected']:+g})" if row["injected"] else "1 (no preference)"


def held(results: Mapping[str, Any]) -> str:
    """The head of the share of intervals that hold the truth."""
    return f"{100 * results['level']:g} % intervals: odds held"


def false_alarms(rows: Iterable[Record], level: float, told: Callable[[Record], str], no_test: str) -> str:
    """How often nothing was found to be something; `told` follows where there was a test."""
    none = next(row for row in rows if not row["injected"])
    if none["rejected"] is None:
        return f"false-positive rate: {no_test}"
    return (
        f"false-positive rate: {share_with_error(none, 'rejected')} of {none['rejected_n']:,} audits without "
        f"preference have p < {1 - level:.3g}{told(none)}"
    )


def undefined_notes(rows: Iterable[Record], runs: int, kind: str = "") -> list[str]:
    """How many audits have no figure or conclusion, and why."""
    return [
        f"{kind}injected {row['injected']:+g}: "
        f"{', '.join(f'{reason} in {n:,}' for reason, n in row['undefined'].items())} of {runs:,} audits"
        for row in rows
        if row["undefined"]
    ]


def share_with_error(row: Record, name: str) -> str:
    value, error = row[name], row[f"{name}_error"]
    return "none" if value is None else f"{100 * value:.1f} ±{100 * error:.1f} %"
