"""A planned audit in words, before anything is asked: what it takes, what it can reach and what it can find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmfair.audits.listwise.results import WindowsResults, WindowsRow
from llmfair.audits.listwise.words import NOTHING_CONCLUDED, PRECISION, RATIO, TITLES, conclusion, window_text
from llmfair.metrics.base import CONTROLLED, plain_name
from llmfair.report.exhibits import Declared
from llmfair.report.figures import on_log, ratio_of, reach_of, utility_of, value_of
from llmfair.report.plots.base import Plot
from llmfair.report.plots.ratios import Window, windows
from llmfair.report.tables import (
    Table,
    calibration_table,
    calls_line,
    cell,
    count,
    drawn_note,
    false_alarms,
    few_queries,
    filled,
    folder_lines,
    headings,
    held,
    injected,
    percent,
    planned_note,
    plural,
    queries_lines,
    share,
    share_with_error,
    span,
    time_line,
    told,
    undefined_notes,
    window_notes,
)
from llmfair.results import Reach
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


# A windows study in a table: what each setting read, could have read, and cost.


INITIAL = "initial"
ATTAINABLE, PERFECT = f"attainable {RATIO}", f"perfect {PRECISION}"
INTERVALS = {"linear-t": "t intervals over queries", "boot-t": "bootstrap-t intervals"}


def windows_table(study: WindowsResults) -> Table:
    """One row a setting, and a prompt where several were asked; below them the orders that all began with."""
    if not study.rows:
        return Table("Windows", ("setting",), (), ("no setting has results yet",))
    shown = [m for m in study.shown if any(m in row.figures for row in study.rows)]
    found = (figure for row in study.rows for figure in row.figures.items())
    intervals = {(name, "") for name, figure in found if figure.low is not None}
    prompts = ("prompt",) * (len(study.conditions) > 1)
    named = headings([(measure, "") for measure in shown], study, intervals)
    header = ("setting", *prompts, "calls", *named, ATTAINABLE, PERFECT, "conclusion")
    asked = [row for row in study.rows if row.condition != INITIAL]
    rows = []
    for row in asked:
        prompt = (_prompt(row.condition),) * len(prompts)
        cells = tuple(cell(row.figures.get(measure)) for measure in shown)
        rows.append(
            (row.setting, *prompt, _calls([row]), *cells, *reached(row.reach).values(), _words(row, study))
        )
    for cells, settings in _inputs(shown, study.rows).items():
        whose = "" if len(settings) * len(study.conditions) == len(asked) else f" of {', '.join(settings)}"
        rows.append((f"initial ranking{whose}", *("",) * len(prompts), "0", *cells, "", "", ""))
    return filled(Table(_title(study, asked), header, tuple(rows), tuple(_notes(study, asked))))


def _inputs(shown: Sequence[str], rows: Sequence[WindowsRow]) -> dict[tuple[str, ...], list[str]]:
    """What the initial orders read, with the settings they were read in; broken-off runs know fewer of them."""
    found: dict[tuple[str, ...], list[str]] = {}
    odds = {row.finding.measure for row in rows if row.finding}
    for row in rows:
        if row.condition == INITIAL:
            # Of the input there is nothing to control for: its own figure stands in the column. It has no pair
            # odds: those would be read off each setting's curve, though no window shaped it.
            plain = {name: figure for name, figure in row.figures.items() if name not in odds}
            figures = (plain.get(m) or plain.get(plain_name(m)) for m in shown)
            found.setdefault(tuple(map(cell, figures)), []).append(row.setting)
    return found


def _calls(asked: Sequence[WindowsRow]) -> str:
    """The calls behind the figures of some rows; where some were not made, with those planned."""
    planned, made = sum(row.calls for row in asked), sum(row.answers.windows for row in asked)
    return f"{planned:,}" if made == planned else f"{made:,} of {planned:,}"


def _title(study: WindowsResults, asked: Sequence[WindowsRow]) -> str:
    low, high = study.candidates
    parts = [
        "Windows",
        *study.about,
        f"{count(study.queries, 'query', 'queries')} × {low}" + (f"–{high}" if high > low else ""),
        count(study.orders, f"{study.initial} order"),
        f"{_calls(asked)} {plural(sum(row.calls for row in asked), 'call')}",
    ]
    return " · ".join(parts)


def _prompt(condition: str) -> str:
    return TITLES.get(condition, condition)


def reached(reach: Mapping[str, Reach]) -> dict[str, str]:
    """By column, what a ranker that always puts one side first reads, either way, and a perfect one."""
    ratio, precision = reach.get(RATIO, Reach()), reach.get(PRECISION, Reach())
    attainable = "" if ratio.low is None or ratio.high is None else f"{ratio.low:.3f} … {ratio.high:.3f}"
    if ratio.indifferent is not None:
        attainable = f"{ratio.indifferent:.3f} without preference"
    return {ATTAINABLE: attainable, PERFECT: "" if precision.high is None else f"{precision.high:.2f}"}


def _words(row: WindowsRow, study: WindowsResults) -> str:
    """The conclusion, after how much of the setting it speaks of."""
    chains, finding = row.chains, row.finding
    said = []
    if chains is not None and chains.ranked < chains.asked:
        said.append(f"{chains.ranked} of {chains.asked} chains")
    if row.condition == "repeat":
        said.append("the same prompt, the same orders")
    elif row.answers.unparseable and row.answers.unparseable == row.answers.windows:
        said.append("no parseable answer: the initial ranking")
    elif finding:
        said.append(conclusion(finding, row.figures.get(finding.measure), study.band, study.level))
    return "; ".join(said)


def _notes(study: WindowsResults, asked: list[WindowsRow]) -> list[str]:
    notes = [*few_queries(study.queries)]
    if unparseable := _unparseable(asked):
        notes.append(f"unparseable answers: {', '.join(unparseable)}")
    by_group = [m for m in study.shown if not any(m in row.figures for row in study.rows)]
    if by_group:
        notes.append(
            f"{', '.join(by_group)}: a figure for each group, which finds no place here; each setting's run has them "
            "(llmfair runs show RUN)"
        )
    if any(measure.startswith(RATIO) for measure in study.shown):
        control = ", what initial orders explain taken out" * any(CONTROLLED in m for m in study.shown)
        methods = [study.intervals[m] for m in study.shown if m.startswith(RATIO) and m in study.intervals]
        how = "".join(f"; {INTERVALS[m]}" + f" (seed {study.seed})" * (m == "boot-t") for m in methods[:1])
        notes.append(f"{RATIO}: ratio of means{control}{how}")
    if any(row.reach.get(RATIO, Reach()).low is not None for row in asked):
        notes.append(f"{ATTAINABLE}: of rankers that always put one group first, from random orders")
    if any(row.finding for row in asked):
        notes.append("each setting is concluded by itself: p is not adjusted over settings")
    notes += [
        f"{row.setting}: ranks that no window holds in some list: {_ranks(row.never_ranked)}"
        for row in asked
        if row.condition == study.conditions[0] and row.never_ranked
    ]
    return [*notes, *drawn_note(study.drawn)]


def _unparseable(asked: list[WindowsRow]) -> list[str]:
    """Share and number of each setting, all its prompts together; none where every answer was readable."""
    told = []
    for setting in dict.fromkeys(row.setting for row in asked):
        answers = [row.answers for row in asked if row.setting == setting]
        unparseable, windows = (
            sum(getattr(condition, key) for condition in answers) for key in ("unparseable", "windows")
        )
        if unparseable:
            told.append(f"{setting} {percent(unparseable, windows)} ({unparseable:,} of {windows:,})")
    return told


def _ranks(positions: Sequence[int]) -> str:
    return ", ".join(str(position + 1) for position in positions[:12]) + ", …" * (len(positions) > 12)


def windows_plots(study: WindowsResults, declared: Declared) -> Iterator[Plot]:
    """Utility and ratio by window and step, each beside what it could have been."""
    across, up = utility_of(study.shown, declared), ratio_of(study.shown, declared)
    if not across or not up:
        return
    several = len(study.conditions) > 1
    settings = []
    for row in study.rows:
        if row.condition == INITIAL:
            continue
        figures = row.figures
        settings.append(
            Window(
                row.setting + (f" {TITLES.get(row.condition, row.condition)}" if several else ""),
                value_of(figures.get(across)),
                row.reach.get(plain_name(across), Reach()).high,
                on_log(value_of(figures.get(up))),
                reach_of(row.reach, up),
            )
        )
    if settings:
        yield from windows(settings, plain_name(across), plain_name(up))


# A calibration in a table and sentences: what simulated audits of injected preferences found.


def calibrate_table(results: Mapping[str, Any]) -> Table:
    """One row an injected preference: what was recovered, how intervals and tests did, what was concluded."""
    design = results["design"]
    size = f"{count(design['queries'], 'query', 'queries')} × {span(*design['candidates'])}"
    columns = {
        "injected odds": injected,
        "recovered": lambda row: "none" if row["odds"] is None else f"{row['odds']:.3f}",
        held(results): lambda row: share_with_error(row, "covered"),
    }
    return calibration_table(results, size, columns, _calibration_notes(results))


def _calibration_notes(results: Mapping[str, Any]) -> list[str]:
    asked, design = results["settings"], results["design"]
    notes = [
        f"{window_text(asked)}, {count(asked['orders'], 'random initial order')}; "
        f"{100 * asked['alike']:g} % of windows answered with the same noise every time (--alike), log odds of the "
        f"first slot against the last {asked['slots']:+g} (--slots)",
        "injected: odds of a protected item against an equally relevant other; recovered: median preference odds; "
        "± Monte Carlo error",
        "within: where the interval lies; parity also needs a ranker that does its job",
        false_alarms(
            results["injected"],
            results["level"],
            lambda row: " (sign flip by query)",
            "too few queries for a test",
        ),
        _smallest(results["smallest"]),
        *undefined_notes(results["injected"], results["runs"]),
    ]
    if design["without_comparison"]:
        notes.append(
            f"{count(design['without_comparison'], 'query', 'queries')} without equally relevant items of both "
            "groups left out"
        )
    return [*notes, *few_queries(design["queries"] - design["without_comparison"])]


def _smallest(smallest: Mapping[str, Any]) -> str:
    """The smallest detectable odds, either way."""
    below, above = smallest["odds"]
    if below is None:
        return "smallest odds found: too few queries for a test"
    return (
        f"smallest odds found with {100 * smallest['power']:g} % power: {below:.2f} or {above:.2f} "
        f"({count(smallest['queries'], 'query', 'queries')}, standard error of ln odds {smallest['error']:.4f})"
    )
