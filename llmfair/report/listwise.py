"""A listwise audit in a table and sentences, and what a dry run says of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.report.tables import (
    EXPOSURE_WORDS,
    Table,
    cell,
    count,
    few_queries,
    headings,
    percent,
    plural,
    reasons,
    sentence,
    the_same,
)

SHOWN_LEFT_OUT = 3
SHOWN_RANKS = 12


def listwise_table(results: Mapping[str, Any]) -> Table:
    """The listwise audit as a table: one row a prompt, one column a measure."""
    cells = {
        (row["measure"], row["variant"]): row
        for row in results["rows"]
        if row["query_id"] == "all" and row["group"] == ""
    }
    design = results["design"]
    shown = [*design["arms"], "input"]
    measures = [
        measure for measure in results["measures"] if any((measure, variant) in cells for variant in shown)
    ]
    doubled = the_same(measures, shown, cells)
    measures = [measure for measure in measures if measure not in doubled]
    header = ("prompt", *headings(measures, results), "")
    rows = []
    for variant in shown:
        values = [cells.get((measure, variant)) for measure in measures]
        rows.append((_row_name(variant), *map(cell, values), _words(variant, results, cells)))
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
        f"{design['queries']} {plural(design['queries'], 'query', 'queries')} × {size}",
        "no model asked" if design["window"] is None else f"{design['calls']:,} calls",
    ]
    if design["preset"]:
        parts.append(f"preset {design['preset']}")
    return " · ".join(parts)


def _row_name(variant: str) -> str:
    return {"control": "neutral again", "input": "input order"}.get(variant, variant)


def _words(
    variant: str, results: Mapping[str, Any], cells: Mapping[tuple[str, str], Mapping[str, Any]]
) -> str:
    """What a row comes to, in words; nothing is said of a model that gave no readable answer."""
    if variant == "input":
        return "the orders the items came in"
    chains = results["chains"][variant]
    answers = results["answers"].get(variant)
    said = sentence(variant, cells)
    if answers and answers["windows"] and answers["unreadable"] == answers["windows"]:
        said = "no readable answer: the input order"
    if chains["ranked"] < chains["asked"]:
        said = f"{chains['ranked']} of {chains['asked']} chains" + (f"; {said}" if said else "")
    return said


def _notes(results: Mapping[str, Any]) -> list[str]:
    design, measures = results["design"], results["measures"]
    notes = []
    if "ExpRatio" in measures:
        notes.append(EXPOSURE_WORDS)
    notes += _reach_notes(results)
    notes += [f"{measure}: {note}" for measure, note in results["measure_notes"].items()]
    notes += [f"{measure} equals {other} here" for measure, other in _doubled(results).items()]
    if design["never_ranked"]:
        notes.append(f"ranks that no window holds in some list: {_ranks(design['never_ranked'])}")
    if design["window"] is not None and design["step"] == design["window"]:
        notes.append("step equals window: no item is carried from window to window")
    notes += _answers_notes(results["answers"])
    notes += _lists_notes(design)
    if failed := sum(chains["asked"] - chains["ranked"] for chains in results["chains"].values()):
        why = ", ".join(f"{name} {n:,}" for name, n in results["failures"].items()) or "not asked yet"
        notes.append(f"{count(failed, 'chain')} without a ranking ({why}); measures speak of the others")
    notes += _undefined_notes(results)
    return [*notes, *few_queries(design["queries"])]


def _undefined_notes(results: Mapping[str, Any]) -> list[str]:
    """Queries without a value, said once where all rows share the reasons."""
    notes = []
    rows = len(results["design"]["arms"]) + 1
    for measure, variants in results["undefined"].items():
        said: dict[str, list[str]] = {}
        for variant, found in variants.items():
            said.setdefault(reasons(found), []).append(_row_name(variant))
        for why, names in said.items():
            whose = "" if len(names) == rows else f", {', '.join(names)}"
            notes.append(f"{measure}{whose}: undefined: {why}")
    return notes


def _reach_notes(results: Mapping[str, Any]) -> list[str]:
    """What the setting could show at all, for the measures that are shown."""
    design, notes = results["design"], []
    reach = {measure: found for measure, found in results["reach"].items() if measure in results["measures"]}
    if "ExpRatio" in reach:
        low, high = reach["ExpRatio"]["low"], reach["ExpRatio"]["high"]
        setting = f"{_window_text(design)}, " if design["window"] is not None else ""
        notes.append(
            f"ExpRatio: {setting}random orders: a ranker that always puts one side first reads "
            f"{low:.2f} … {high:.2f} on these lists"
        )
    elif "ExpRatio" in results["measures"] and design["initial"] not in ("random", "mirrored"):
        notes.append(
            f"initial order {design['initial']}: the figures inherit it; read them beside the input order"
        )
    if "P@20" in reach:
        notes.append(f"P@20: a perfect ranker reads {reach['P@20']['high']:.2f} in this setting")
    return notes


def _doubled(results: Mapping[str, Any]) -> dict[str, str]:
    """Measures whose column is left out, since another one has all its figures."""
    cells = {(row["measure"], row["variant"]): row for row in results["rows"] if row["group"] == ""}
    return the_same(results["measures"], [*results["design"]["arms"], "input"], cells)


def _ranks(positions: list[int]) -> str:
    more = ", …" * (len(positions) > SHOWN_RANKS)
    return ", ".join(str(position + 1) for position in positions[:SHOWN_RANKS]) + more


def _window_text(design: Mapping[str, Any]) -> str:
    passes = count(design["passes"], "pass", "passes")
    return f"window {design['window']}, step {design['step']}, {passes}"


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
            f"{count(len(design['shrunk']), 'list')} shorter of experts than asked, or shorter (results.json)"
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
        for name, n in arm["classes"].items():
            if name != "ok":
                classes[name] = classes.get(name, 0) + n
    told = ", ".join(f"{name} {n:,}" for name, n in sorted(classes.items()))
    notes = [
        f"unreadable answers: {percent(unreadable, asked)} ({unreadable:,} of {asked:,}); "
        f"repaired: {percent(repaired, asked)}" + (f" · {told}" if told else "")
    ]
    again = sum(n for arm in answers.values() for n in arm["asked_again"].values())
    if again:
        notes.append(f"bad answers asked again: {again:,}, beside those above")
    if max(identity, repaired) > asked / 2:
        left, mended = percent(identity, asked), percent(repaired, asked)
        notes.append(
            f"{left} of the answers left the window as it was, {mended} were repaired: the model hardly ranks"
        )
    omitted = sum(arm["omitted"]["items"] for arm in answers.values())
    if omitted:
        protected = sum(arm["omitted"]["protected"] for arm in answers.values())
        expected = sum(arm["omitted"]["protected_expected"] for arm in answers.values())
        notes.append(
            f"left out of answers: {count(omitted, 'item')}, {protected} of them protected "
            f"({expected:.0f} if sides were left out alike)"
        )
    return notes


def plan_text(planned: Mapping[str, Any]) -> str:
    """What a dry run says."""
    low, high = planned["candidates"]
    size = f"{low}" if low == high else f"{low}–{high}"
    queries = f"{count(planned['queries'], 'query', 'queries')} × {size} candidates"
    orders = count(planned["orders"], "order")
    if planned["window"] is None:
        return f"{queries} × {orders} · no model is asked\nNothing was ranked.\n"
    window = _window_text(planned)
    lines = [
        f"{queries} × {count(len(planned['arms']), 'arm')} ({', '.join(planned['arms'])}) × {orders} · {window} · "
        f"{count(planned['chains'], 'chain')} of up to {planned['longest_chain']:,}",
        f"  {count(planned['calls'], 'call')} · about {_about(planned['prompt_tokens'])} tokens in, "
        f"{_about(planned['completion_tokens'])} out",
        f"  at least {_time(planned['seconds_at_1s_a_call'])} at 1 s a call and {planned['workers']} workers",
    ]
    reach = planned["reach"].get("ExpRatio")
    if reach is not None:
        lines.append(
            f"  {window}, random orders: a ranker that always puts one side first reads ExpRatio "
            f"{reach['low']:.2f} … {reach['high']:.2f} on these lists"
        )
    if "P@20" in planned["reach"]:
        lines.append(f"  a perfect ranker reads P@20 {planned['reach']['P@20']['high']:.2f}")
    if planned["never_ranked"]:
        lines.append(f"  ranks that no window holds in some list: {_ranks(planned['never_ranked'])}")
    if planned["answered"]:
        lines.append(f"  {count(planned['answered'], 'answer')} of them in {planned['folder']} already")
    lines.append(f"  first prompt: llmfair prompts render listwise {planned['render']}")
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
