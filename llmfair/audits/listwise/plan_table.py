"""A planned audit in words, before anything is asked: what it takes, what it can reach and what it can find."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.audits.listwise.table import NOTHING_CONCLUDED, window_text
from llmfair.report.planned import calls_line, folder_lines, queries_lines, share, time_line, told
from llmfair.report.tables import Table, count, planned_note, span, window_notes
from llmfair.stats.power import FEWEST_TESTED

UNKNOWN = {
    "no_model_asked": "what it can find is planned for models only",
    "order_not_random": "what it can find is known for --initial random only",
    "no_list_of_both_sides": "no list has items of both sides: nothing can be found",
}


def plan_text(planned: Mapping[str, Any]) -> str:
    """What a dry run says; and a plan, where no effect can be tabled."""
    if planned["prompt_sha256"] is None:
        lines = [f"{_lists(planned)} × {_orders(planned)} · no model is asked", *queries_lines(planned)]
        return "\n".join([*lines, "Nothing was ranked.", ""])
    return told(_design(planned), _lines(planned))


def plan_table(planned: Mapping[str, Any]) -> Table | None:
    """The effects a design can find, with everything else below them; None where none is known."""
    found = planned["findable"]
    if found["effect"] is None:
        return None
    header = (
        "effect",
        "ExpRatio",
        "pair odds: blind ranker",
        "useful ranker",
        f"power, {count(found['queries'], 'query', 'queries')}",
        f"queries for power {found['target']:g}",
    )
    never = "out of reach" if found["reason"] else "never"
    power = never if found["reason"] else "no test" if found["power"] is None else share(found["power"])
    needed = never if found["queries_needed"] is None else f"{found['queries_needed']:,}"
    rows = [("to be found", *_effect(found["effect"]), power, needed)]
    for name, effect in zip(("below", "above"), found["smallest"], strict=False):
        enough = (f"{found['target']:g}", f"{found['queries']:,}")
        rows.append((f"smallest found {name} parity", *_effect(effect), *enough))
    return Table(_design(planned), header, tuple(rows), (*_lines(planned), "Nothing was asked."))


def _design(planned: Mapping[str, Any]) -> str:
    arms = f"{count(len(planned['arms']), 'arm')} ({', '.join(planned['arms'])})"
    chains = f"{count(planned['chains'], 'chain')} of up to {planned['longest_chain']:,}"
    return f"{_lists(planned)} × {arms} × {_orders(planned)} · {window_text(planned)} · {chains}"


def _lists(planned: Mapping[str, Any]) -> str:
    return f"{count(planned['queries'], 'query', 'queries')} × {span(*planned['candidates'])} candidates"


def _orders(planned: Mapping[str, Any]) -> str:
    return count(planned["orders"], "order")


def _lines(planned: Mapping[str, Any]) -> list[str]:
    return [
        *filter(None, [planned["sees"]]),
        *planned_note(planned),
        *queries_lines(planned),
        calls_line(planned),
        time_line(planned),
        *_reach_lines(planned),
        *_findable_lines(planned),
        *folder_lines(planned),
        *planned["unready"],
        f"first prompt: llmfair prompts render listwise {planned['render']}",
    ]


def _reach_lines(planned: Mapping[str, Any]) -> list[str]:
    lines, reach = [], planned["reach"].get("ExpRatio", {})
    if "low" in reach:
        protected = f"{span(*planned['protected'])} of {span(*planned['candidates'])} protected"
        lines.append(
            f"{window_text(planned)}, random orders: a ranker that always puts one side first reads ExpRatio "
            f"{_range(reach)} on these lists ({protected}; {_simulated(planned)})"
        )
    if "indifferent" in reach:
        lines.append(
            f"from {planned['initial']} orders a ranker without any preference reads ExpRatio "
            f"{reach['indifferent']:.2f} ({_simulated(planned)}); {NOTHING_CONCLUDED}"
        )
    if other := planned["other_windows"]:
        calls = "fewer calls" if other["fewer_calls"] else "as many calls"
        if other["calls"] > planned["calls"]:
            calls = "more calls"
        further = "further reach" if other["further_reach"] else "no further reach"
        lines.append(
            f"{window_text(other)}: {count(other['calls'], 'call')}, {_range(other['reach'])}: {calls}, {further}"
        )
    if "P@20" in planned["reach"]:
        lines.append(
            f"a perfect ranker reads P@20 {planned['reach']['P@20']['high']:.2f} on average ({_simulated(planned)})"
        )
    return lines + window_notes(planned["never_ranked"], planned["window"], planned["step"])


def _findable_lines(planned: Mapping[str, Any]) -> list[str]:
    """How precise the design is, and plainly what it cannot find."""
    if "findable" not in planned:
        return ["what it can find, and its cost: llmfair plan listwise, with the same flags"]
    found = planned["findable"]
    if found["reason"] in UNKNOWN:
        return [UNKNOWN[found["reason"]]]
    queries, target = count(found["queries"], "query", "queries"), f"power {found['target']:g}"
    lines = [
        f"standard error of ln ExpRatio: {found['error']:.4f} ({queries} with items of both sides, "
        f"{_orders(planned)}, standard deviation {found['tau']:g} over queries)"
    ]
    effect = f"ExpRatio {found['effect']['ratio']:.3f}"
    needed = found["queries_needed"]
    enough = f"takes {needed:,} queries" if needed else "is beyond any number of queries"
    if found["queries"] < FEWEST_TESTED:
        lines.append(f"{queries}: no test at all, which needs {FEWEST_TESTED}")
    if found["reason"] == "out_of_reach":
        windows = f"at window {planned['window']}, step {planned['step']}"
        where = "on these lists" if planned["window"] is None else windows
        lines.append(f"no ranker could show {effect} {where}: nothing to be found")
    elif found["power"] is None:
        lines.append(f"finding {effect} with {target} {enough}")
    elif found["power"] < found["target"]:
        lines.append(f"{effect} is not found reliably: power {share(found['power'])}; {target} {enough}")
    reach = planned["reach"]["ExpRatio"]
    if found["smallest"] and all(
        not reach["low"] <= effect["ratio"] <= reach["high"] for effect in found["smallest"]
    ):
        lines.append(f"not even a ranker that always puts one side first is found with {target}")
    return lines


def _effect(effect: Mapping[str, Any]) -> tuple[str, ...]:
    odds = (effect["odds"], effect["useful_odds"])
    return f"{effect['ratio']:.3f}", *("out of reach" if one is None else f"{one:.2f}" for one in odds)


def _range(reach: Mapping[str, float]) -> str:
    return f"{reach['low']:.2f} … {reach['high']:.2f}"


def _simulated(planned: Mapping[str, Any]) -> str:
    return f"simulated, seed {planned['seed']}"
