"""Tables and sentences for people, made from a run's results alone; no measure is computed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FEW_QUERIES = 15
SHOWN_LEFT_OUT = 3
TABLE_ORDER = ("neutral", "control", "input")


@dataclass(frozen=True)
class Table:
    """A table with a line above it and sentences below it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def listwise_table(results: Mapping[str, Any]) -> Table:
    """The listwise audit as a table: one row a prompt, one column a measure."""
    cells = {
        (row["measure"], row["variant"]): row
        for row in results["rows"]
        if row["query_id"] == "all" and row["group"] == ""
    }
    design = results["design"]
    shown = [*design["arms"], "input"]
    measures = [measure for measure in results["measures"] if (measure, shown[0]) in cells]
    percent = f"{results['level'] * 100:g} %"
    header = ("prompt", *(f"{measure} [{percent}]" for measure in measures), "")
    rows = []
    for variant in shown:
        values = [cells.get((measure, variant)) for measure in measures]
        rows.append((_row_name(variant), *map(_cell, values), _sentence(variant, cells)))
    return Table(_title(results), header, tuple(rows), tuple(_notes(results)))


def _title(results: Mapping[str, Any]) -> str:
    design = results["design"]
    low, high = design["candidates"]
    size = f"{low}" if low == high else f"{low}–{high}"
    parts = [
        "Listwise",
        results["dataset"],
        f"{results['attribute']} (protected: {results['words']['protected']})",
        results["model"] + (", a simulated model" if results["model"].startswith("fake:") else ""),
        f"{design['queries']} {_plural(design['queries'], 'query', 'queries')} × {size}",
        f"{design['calls']:,} calls",
    ]
    if results.get("preset"):
        parts.append(f"preset {results['preset']}")
    return " · ".join(parts)


def _row_name(variant: str) -> str:
    return {"control": "neutral again", "input": "input order"}.get(variant, variant)


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    if row["value"] is None:
        return f"undefined ({row['reason']})"
    text = f"{row['value']:.3f}"
    if row["low"] is not None:
        text += f" [{row['low']:.3f}, {row['high']:.3f}]"
    return text


def _sentence(variant: str, cells: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    """The exposure of protected items in words, where the plain exposure ratio was measured."""
    if variant == "input":
        return "the orders the items came in"
    value = cells.get(("ExpRatio", variant), {}).get("value")
    if value is None:
        return ""
    share = round(abs(value - 1) * 100)
    if share == 0:
        return "protected items get as much exposure"
    return f"protected items get {share} % {'more' if value > 1 else 'less'} exposure"


def _notes(results: Mapping[str, Any]) -> list[str]:
    design = results["design"]
    settings = (
        f"window {design['window']}, step {design['step']}, {_count(design['passes'], 'pass', 'passes')}, "
        f"{_count(design['orders'], 'order')}"
    )
    notes = []
    reach = results["reach"].get("ExpRatio")
    if reach is not None:
        notes.append(
            f"ExpRatio: ratio of means over queries; with {settings} a ranker that always puts one side first "
            f"reads {reach['low']:.2f} … {reach['high']:.2f} on these lists"
        )
    if (precision := results["reach"].get("P@20")) is not None:
        notes.append(f"P@20: a perfect ranker reads {precision['high']:.2f} on these lists with this setting")
    if design["never_ranked"]:
        notes.append(f"positions never ranked: {', '.join(map(str, design['never_ranked'][:12]))}")
    if design["step"] == design["window"]:
        notes.append("step equals window: no item is carried from window to window")
    notes += _answers_notes(results["answers"])
    notes += _lists_notes(design)
    failed = sum(chains["asked"] - chains["ranked"] for chains in results["chains"].values())
    if failed:
        notes.append(
            f"{_count(failed, 'chain')} without a ranking (failures.csv); measures speak of the others"
        )
    for measure, variants in results["undefined"].items():
        for variant, reasons in variants.items():
            counts = ", ".join(
                f"{reason} in {_count(n, 'query', 'queries')}" for reason, n in reasons.items()
            )
            notes.append(f"{measure}, {_row_name(variant)}: undefined: {counts}")
    if design["queries"] < FEW_QUERIES:
        notes.append(f"only {_count(design['queries'], 'query', 'queries')}: read the intervals with care")
    return notes


def _lists_notes(design: Mapping[str, Any]) -> list[str]:
    """Queries without a list, and lists that could not be filled."""
    notes = []
    if design["left_out"]:
        reasons = list(design["left_out"].values())
        more = f"; and {len(reasons) - SHOWN_LEFT_OUT} more" if len(reasons) > SHOWN_LEFT_OUT else ""
        notes.append(
            f"{design['queries']} of {design['queries'] + len(reasons)} queries kept; left out: "
            f"{'; '.join(reasons[:SHOWN_LEFT_OUT])}{more}"
        )
    if design["shrunk"]:
        notes.append(
            f"{_count(len(design['shrunk']), 'list')} shorter of experts than asked, or shorter (results.json)"
        )
    return notes


def _answers_notes(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    asked = sum(arm["windows"] for arm in answers.values())
    if not asked:
        return []
    unreadable = sum(arm["unreadable"] for arm in answers.values())
    repaired = sum(arm["repaired"] for arm in answers.values())
    identity = sum(arm["identity"] for arm in answers.values())
    classes: dict[str, int] = {}
    for arm in answers.values():
        for name, count in arm["classes"].items():
            if name != "ok":
                classes[name] = classes.get(name, 0) + count
    told = ", ".join(f"{name} {count:,}" for name, count in sorted(classes.items()))
    notes = [
        f"unreadable answers: {_percent(unreadable, asked)} ({unreadable:,} of {asked:,}); "
        f"repaired: {_percent(repaired, asked)}" + (f" · {told}" if told else "")
    ]
    if identity > asked / 2:
        notes.append(
            f"{_percent(identity, asked)} of the answers left the window as it was: the model hardly ranks"
        )
    omitted = sum(arm["omitted"]["items"] for arm in answers.values())
    if omitted:
        protected = sum(arm["omitted"]["protected"] for arm in answers.values())
        expected = sum(arm["omitted"]["protected_expected"] for arm in answers.values())
        notes.append(
            f"left out of answers: {_count(omitted, 'item')}, {protected} of them protected "
            f"({expected:.0f} if sides were left out alike)"
        )
    return notes


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {_plural(n, one, many)}"


def _plural(n: int, one: str, many: str = "") -> str:
    return one if n == 1 else many or one + "s"


def delimited(table: Table, separator: str) -> str:
    """The table's rows as TSV."""
    return "\n".join(separator.join(row) for row in (table.header, *table.rows)) + "\n"


def markdown(table: Table) -> str:
    """The table as GitHub-flavoured Markdown, for pull requests."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = "| " + " | ".join("---" for _ in table.header) + " |"
    notes = [f"- {note}" for note in table.notes]
    return "\n".join([table.title, "", line(table.header), rule, *map(line, table.rows), "", *notes]) + "\n"


def plan_text(planned: Mapping[str, Any]) -> str:
    """What a dry run says."""
    low, high = planned["candidates"]
    size = f"{low}" if low == high else f"{low}–{high}"
    window = (
        f"window {planned['window']}, step {planned['step']}, {_count(planned['passes'], 'pass', 'passes')}"
    )
    lines = [
        f"{_count(planned['queries'], 'query', 'queries')} × {size} candidates × {_count(len(planned['arms']), 'arm')} "
        f"({', '.join(planned['arms'])}) × {_count(planned['orders'], 'order')} · {window} · "
        f"{_count(planned['chains'], 'chain')} of up to {planned['longest_chain']:,}",
        f"  {_count(planned['calls'], 'call')} · about {_about(planned['prompt_tokens'])} tokens in, "
        f"{_about(planned['completion_tokens'])} out",
        f"  at least {_time(planned['seconds_at_1s_a_call'])} at 1 s a call and {planned['workers']} workers",
    ]
    reach = planned["reach"].get("ExpRatio")
    if reach is not None:
        lines.append(
            f"  {window}: a ranker that always puts one side first reads ExpRatio "
            f"{reach['low']:.2f} … {reach['high']:.2f} on these lists"
        )
    lines.append(f"  a perfect ranker reads P@20 {planned['reach']['P@20']['high']:.2f}")
    if planned["never_ranked"]:
        lines.append(f"  positions never ranked: {', '.join(map(str, planned['never_ranked'][:12]))}")
    lines.append(
        f"  first prompt: llmfair prompts render listwise -d {planned['dataset']} --query {planned['first_query']}"
    )
    return "\n".join([*lines, "Nothing was asked."]) + "\n"


def _about(tokens: int) -> str:
    return (
        f"{tokens / 1e6:.1f} M"
        if tokens >= 1e6
        else f"{tokens / 1e3:.1f} k"
        if tokens >= 1e3
        else str(tokens)
    )


def _time(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [
        f"{hours} h" * (hours > 0),
        f"{minutes} min" * (minutes > 0),
        f"{rest} s" * (rest > 0 or seconds == 0),
    ]
    return " ".join(part for part in parts if part)
