"""A planned audit in words, before anything is asked: what it takes, what it can reach and what it can find."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.audits.listwise.table import NOTHING_CONCLUDED, window_text
from llmfair.audits.listwise.words import TITLES
from llmfair.report.planned import calls_line, folder_lines, queries_lines, share, time_line, told
from llmfair.report.tables import Table, count, planned_note, span, window_notes
from llmfair.stats.power import FEWEST_TESTED

UNKNOWN = {
    "no_model_asked": "what it can find is planned for models only",
    "order_not_random": "what it can find is known for --initial random only",
    "no_list_of_both_sides": "no list has items of both groups: nothing can be found",
    "no_common_grade": "no list has items of both groups with the same grade of relevance: nothing can be found",
}
NO_GAIN = 0.9
"""An error that stays above this share of what it was is as good as the same."""
EXPECTED = ("ExpRatio if noise is fresh: relevance-agnostic", "relevance-matched")
"""What is simulated on request: of a ranker without relevance, and of one with a log-weight of 2 for each grade."""


def plan_text(planned: Mapping[str, Any]) -> str:
    """What a dry run says; and a plan, where no effect can be tabled."""
    if "strategies" in planned:
        return told(_asked(planned), [*map(_in_line, planned["strategies"]), *_together(planned)])
    if planned["prompt_sha256"] is None:
        lines = [f"{_lists(planned)} × {_orders(planned)} · no model is asked", *queries_lines(planned)]
        return "\n".join([*lines, "Nothing was ranked.", ""])
    return told(_design(planned), _lines(planned))


def plan_table(planned: Mapping[str, Any]) -> Table | None:
    """The odds a design can find, with everything else below them; None where none are known."""
    if "strategies" in planned:
        return _side_by_side(planned)
    found = planned["findable"]
    if found["sd"] is None:
        return None
    expected = {one["odds"]: one for one in found["expected"] or ()}
    header = (
        "effect",
        "preference odds",
        f"power, {count(found['queries'], 'query', 'queries')}",
        f"queries for power {found['target']:g}",
        *(EXPECTED if expected else ()),
    )
    power = "no test" if found["power"] is None else share(found["power"])
    needed = "never" if found["queries_needed"] is None else f"{found['queries_needed']:,}"
    enough = (f"{found['target']:g}", f"{found['queries']:,}")
    rows = [("to be found", found["odds"], power, needed)]
    for name, odds in zip(("below", "above"), found["smallest"], strict=False):
        rows.append((f"smallest found {name} parity", odds, *enough))
    cells = tuple(
        (effect, f"{odds:.3f}", *others, *_expected(expected.get(odds))) for effect, odds, *others in rows
    )
    return Table(_design(planned), header, cells, (*_lines(planned), "Nothing was asked."))


def _side_by_side(planned: Mapping[str, Any]) -> Table:
    """What every strategy takes, can reach and can find."""
    found = planned["findable"]
    header = (
        "strategy", "calls", "tokens in", "out", "rounds", "attainable ExpRatio", "standard error",
        f"power for odds of {found['odds']:g}", f"queries for power {found['target']:g}",
    )  # fmt: skip
    rows = tuple(
        (
            _named(one),
            "at most " * one["at_most"] + f"{one['calls']:,}",
            f"{one['prompt_tokens']:,}",
            f"{one['completion_tokens']:,}",
            f"{one['longest_chain']:,}",
            _range(one["reach"]) if "low" in one["reach"] else "",
            "" if one["error"] is None else f"{one['error']:.3f}",
            "" if one["power"] is None else share(one["power"]),
            "" if one["queries_needed"] is None else f"{one['queries_needed']:,}",
        )
        for one in planned["strategies"]
    )
    notes = (
        "tokens are characters / 4; rounds: calls of the longest chain that wait for each other; standard error: of ln "
        "preference odds, from first encounters alone",
        *_together(planned),
        "Nothing was asked.",
    )
    return Table(_asked(planned), header, rows, notes)


def _named(one: Mapping[str, Any]) -> str:
    """A strategy with its windows, where it has any."""
    windows = "" if one["window"] is None else f" {one['window']}/{one['step']}x{one['passes']}"
    return f"{one['strategy']}{windows}"


def _in_line(one: Mapping[str, Any]) -> str:
    most = "at most " * one["at_most"]
    tokens = f"about {one['prompt_tokens']:,} tokens in, {one['completion_tokens']:,} out"
    return f"{_named(one)}: {most}{count(one['calls'], 'call')}, {tokens}, {count(one['longest_chain'], 'round')}"


def _together(planned: Mapping[str, Any]) -> list[str]:
    return [f"together: {calls_line(planned)}", *planned["unready"]]


def _expected(ratio: Mapping[str, float] | None) -> tuple[str, ...]:
    return () if ratio is None else tuple(f"{ratio[name]:.3f}" for name in ("agnostic", "relevant"))


def _design(planned: Mapping[str, Any]) -> str:
    chains = f"{count(planned['chains'], 'chain')} of up to {planned['longest_chain']:,}"
    return f"{_asked(planned)} × {_orders(planned)} · {window_text(planned)} · {chains}"


def _asked(planned: Mapping[str, Any]) -> str:
    asked = [TITLES.get(condition, condition) for condition in planned["conditions"]]
    return f"{_lists(planned)} × {count(len(asked), 'prompt')} ({', '.join(asked)})"


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
            f"{window_text(planned)}, random orders: attainable range of ExpRatio on these lists "
            f"{_range(reach)} ({protected}; {_simulated(planned)})"
        )
    if "indifferent" in reach:
        lines.append(
            f"from {planned['initial']} orders ExpRatio of a ranker without any preference is "
            f"{reach['indifferent']:.2f} ({_simulated(planned)}); {NOTHING_CONCLUDED}"
        )
    if other := planned["other_windows"]:
        calls = "fewer calls" if other["fewer_calls"] else "as many calls"
        if other["calls"] > planned["calls"]:
            calls = "more calls"
        further = "a wider range" if other["further_reach"] else "no wider range"
        lines.append(
            f"{window_text(other)}: {count(other['calls'], 'call')}, {_range(other['reach'])}: {calls}, {further}"
        )
    if "P@20" in planned["reach"]:
        lines.append(
            f"P@20 of a perfect ranker {planned['reach']['P@20']['high']:.2f} on average ({_simulated(planned)})"
        )
    return lines + window_notes(planned["never_ranked"], planned["window"], planned["step"])


def _findable_lines(planned: Mapping[str, Any]) -> list[str]:
    """How precise the design is, and plainly what it cannot find."""
    if "findable" not in planned:
        return ["what it can find, and its cost: llmfair plan listwise, with the same flags"]
    found = planned["findable"]
    if found["reason"] in UNKNOWN:
        return [UNKNOWN[found["reason"]]]
    lines = [
        f"standard error of ln preference odds: {found['error']:.4f} ({count(found['queries'], 'query', 'queries')}, "
        f"about {found['comparisons']:,.0f} first encounters each from {_orders(planned)}; intra-item correlation "
        f"{found['item_icc']:g}, standard deviation {found['tau']:g} over queries)",
        _alike(found),
    ]
    target, odds, needed = f"power {found['target']:g}", f"odds of {found['odds']:g}", found["queries_needed"]
    enough = f"takes {needed:,} queries" if needed else "is beyond any number of queries"
    if found["queries"] < FEWEST_TESTED:
        short = count(found["queries"], "query", "queries")
        lines.append(f"{short}: no test at all, which needs {FEWEST_TESTED}")
    if found["power"] is None:
        lines.append(f"finding {odds} with {target} {enough}")
    elif found["power"] < found["target"]:
        lines.append(f"{odds} are not found reliably: power {share(found['power'])}; {target} {enough}")
    return [*lines, *_other_design(planned)]


def _alike(found: Mapping[str, Any]) -> str:
    """How the error hangs on how the model answers, and what more orders are worth."""
    alike, thrice = found["error_alike"], found["error_alike_thrice"]
    told = (
        f"{found['error_fresh']:.4f} if the model's noise is fresh every time (--item-icc 0), {alike:.4f} if it "
        "answers alike every time (--item-icc 1)"
    )
    if thrice is None:
        return told
    gain = "next to nothing" if thrice > NO_GAIN * alike else "something"
    return f"{told}; then it gains {gain} from three times the orders: {thrice:.4f}"


def _other_design(planned: Mapping[str, Any]) -> list[str]:
    """What the verdict would take, and how sure it were, by the other design."""
    other, found = planned["findable"]["other_design"], planned["findable"]
    waits = (
        "none waits for another"
        if other["design"] == "partition"
        else "a ranking and its exposure come with it"
    )
    power = (
        "no test"
        if other["power"] is None
        else f"power {share(other['power'])} for odds of {found['odds']:g}"
    )
    return [
        f"--design {other['design']} with {count(other['orders'], 'order')}: {count(other['calls'], 'call')} a model, "
        f"{waits}; standard error {other['error']:.4f}, {power}"
    ]


def _range(reach: Mapping[str, float]) -> str:
    return f"{reach['low']:.2f} … {reach['high']:.2f}"


def _simulated(planned: Mapping[str, Any]) -> str:
    return f"simulated, seed {planned['seed']}"
