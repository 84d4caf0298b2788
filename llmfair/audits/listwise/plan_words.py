"""A planned listwise audit, a study of windows and a calibration in tables and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import convert

from llmfair.audits.listwise.measure import INITIAL
from llmfair.audits.listwise.plan import ListwiseFindable, StrategyPlan
from llmfair.audits.listwise.results import WindowsResults, WindowsRow
from llmfair.audits.listwise.words import NOTHING_CONCLUDED, PRECISION, RATIO, TITLES, row_words, window_text
from llmfair.metrics.base import CONTROLLED, plain_name
from llmfair.report.exhibits import Declared
from llmfair.report.figures import on_log, ratio_of, reach_of, utility_of, value_of
from llmfair.report.plots.base import Plot
from llmfair.report.plots.ratios import Reached, beside_reach
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
    headings,
    held,
    injected,
    percent,
    plan_lines,
    plural,
    queries_lines,
    share,
    share_with_error,
    span,
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
EXPECTED = ("ExpRatio if noise is fresh: relevance-agnostic", "relevance-matched")
"""What is simulated on request: of a ranker without relevance, and of one with a log-weight of 2 for each grade."""


def plan_text(planned: Mapping[str, Any]) -> str:
    """What a dry run says; and a plan, where no effect can be tabled."""
    if "strategies" in planned:
        strategies = [
            f"{_named(plan)}: {'at most ' * plan.at_most}{count(plan.calls, 'call')}, about {plan.prompt_tokens:,} "
            f"tokens in, {plan.completion_tokens:,} out, {count(plan.longest_chain, 'round')}"
            for plan in convert(planned["strategies"], list[StrategyPlan])
        ]
        return told(_asked(planned), [*strategies, *_together(planned)])
    if planned["prompt_sha256"] is None:
        lines = [f"{_lists(planned)} × {_orders(planned)} · no model is asked", *queries_lines(planned)]
        return "\n".join([*lines, "Nothing was ranked.", ""])
    finds = "what it can find, and its cost: llmfair plan listwise, with the same flags"
    if "findable" in planned:
        finds = UNKNOWN[planned["findable"]["reason"]]
    return told(_design(planned), _lines(planned, [finds]))


def plan_table(planned: Mapping[str, Any]) -> Table | None:
    """The odds a design can find, with everything else below them; None where none are known."""
    findable = convert(planned["findable"], ListwiseFindable)
    if "strategies" in planned:
        return _side_by_side(planned, findable)
    if findable.sd is None:
        return None
    expected = {
        ratio.odds: (f"{ratio.agnostic:.3f}", f"{ratio.relevant:.3f}") for ratio in findable.expected or ()
    }
    header = (
        "effect",
        "preference odds",
        f"power, {count(findable.queries, 'query', 'queries')}",
        f"queries for power {findable.target:g}",
        *(EXPECTED if expected else ()),
    )
    power = "no test" if findable.power is None else share(findable.power)
    needed = "never" if findable.queries_needed is None else f"{findable.queries_needed:,}"
    rows = [("to be found", findable.odds, power, needed)]
    for name, odds in zip(("below", "above"), findable.smallest, strict=False):
        rows.append((f"smallest found {name} parity", odds, f"{findable.target:g}", f"{findable.queries:,}"))
    cells = tuple((effect, f"{odds:.3f}", *cells, *expected.get(odds, ())) for effect, odds, *cells in rows)
    lines = _lines(planned, _findable_lines(findable, _orders(planned)))
    return Table(_design(planned), header, cells, (*lines, "Nothing was asked."))


def _side_by_side(planned: Mapping[str, Any], findable: ListwiseFindable) -> Table:
    """What every strategy takes, can reach and can find."""
    header = (
        "strategy", "calls", "tokens in", "out", "rounds", "attainable ExpRatio", "standard error",
        f"power for odds of {findable.odds:g}", f"queries for power {findable.target:g}",
    )  # fmt: skip
    rows = tuple(
        (
            _named(plan),
            "at most " * plan.at_most + f"{plan.calls:,}",
            f"{plan.prompt_tokens:,}",
            f"{plan.completion_tokens:,}",
            f"{plan.longest_chain:,}",
            _range(plan.reach),
            "" if plan.error is None else f"{plan.error:.3f}",
            "" if plan.power is None else share(plan.power),
            "" if plan.queries_needed is None else f"{plan.queries_needed:,}",
        )
        for plan in convert(planned["strategies"], list[StrategyPlan])
    )
    notes = (
        "tokens are characters / 4; rounds: calls of the longest chain that wait for each other; standard error: of ln "
        "preference odds, from first encounters alone",
        *_together(planned),
        "Nothing was asked.",
    )
    return Table(_asked(planned), header, rows, notes)


def _named(plan: StrategyPlan) -> str:
    """A strategy with its windows, where it has any."""
    return plan.strategy + ("" if plan.window is None else f" {plan.window}/{plan.step}x{plan.passes}")


def _together(planned: Mapping[str, Any]) -> list[str]:
    return [f"together: {calls_line(planned)}", *planned["unready"]]


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


def _lines(planned: Mapping[str, Any], finds: Iterable[str]) -> list[str]:
    first = f"first prompt: llmfair prompts render listwise {planned['render']}"
    return [*plan_lines(planned, [*_reach_lines(planned), *finds]), first]


def _reach_lines(planned: Mapping[str, Any]) -> Iterator[str]:
    reach = convert(planned["reach"], dict[str, Reach])
    ratio, precision = reach.get(RATIO, Reach()), reach.get(PRECISION, Reach())
    simulated = f"simulated, seed {planned['seed']}"
    if ratio.low is not None:
        protected = f"{span(*planned['protected'])} of {span(*planned['candidates'])} protected"
        yield (
            f"{window_text(planned)}, random orders: attainable range of ExpRatio on these lists "
            f"{_range(ratio)} ({protected}; {simulated})"
        )
    if ratio.indifferent is not None:
        yield (
            f"from {planned['initial']} orders ExpRatio of a ranker without any preference is "
            f"{ratio.indifferent:.2f} ({simulated}); {NOTHING_CONCLUDED}"
        )
    if precision.high is not None:
        yield f"P@20 of a perfect ranker {precision.high:.2f} on average ({simulated})"
    yield from window_notes(planned["never_ranked"], planned["window"], planned["step"])


def _findable_lines(findable: ListwiseFindable, orders: str) -> Iterator[str]:
    """How precise the design is, how that hangs on the way the model answers, and what the other design takes."""
    yield (
        f"standard error of ln preference odds: {findable.error:.4f} ({count(findable.queries, 'query', 'queries')}, "
        f"about {findable.comparisons:,.0f} first encounters each from {orders}; intra-item correlation "
        f"{findable.item_icc:g}, standard deviation {findable.tau:g} over queries)"
    )
    thrice = findable.error_alike_thrice
    yield (
        f"{findable.error_fresh:.4f} if the model's noise is fresh every time (--item-icc 0), "
        f"{findable.error_alike:.4f} if it answers alike every time (--item-icc 1)"
        + ("" if thrice is None else f", then {thrice:.4f} from three times the orders")
    )
    if findable.power is None:
        yield f"no test at all, which needs {FEWEST_TESTED} queries"
    other = findable.other_design
    if other is not None:
        of = f"for odds of {findable.odds:g}"
        power = "no test" if other.power is None else f"power {share(other.power)} {of}"
        waits = "none waits for another" if other.design == "partition" else "which rank the lists, too"
        yield (
            f"--design {other.design} with {count(other.orders, 'order')}: {count(other.calls, 'call')} a model, "
            f"{waits}; standard error {other.error:.4f}, {power}"
        )


def _range(reach: Reach) -> str:
    return "" if reach.low is None else f"{reach.low:.2f} … {reach.high:.2f}"


# A windows study in a table: what each setting read, could have read, and cost.


ATTAINABLE, PERFECT = f"attainable {RATIO}", f"perfect {PRECISION}"
INTERVALS = {"linear-t": "t intervals over queries", "boot-t": "bootstrap-t intervals"}


def windows_table(study: WindowsResults) -> Table:
    """One row a setting, and a prompt where several were asked; below them the orders that all began with."""
    if not study.rows:
        return Table("Windows", ("setting",), (), ("no setting has results yet",))
    shown = [measure for measure in study.shown if any(measure in row.figures for row in study.rows)]
    figures = (figure for row in study.rows for figure in row.figures.items())
    intervals = {(name, "") for name, figure in figures if figure.low is not None}
    names = headings([(measure, "") for measure in shown], study, intervals)
    several = len(study.conditions) > 1
    header = ("setting", "prompt", "calls", *names, ATTAINABLE, PERFECT, "conclusion")
    asked = [row for row in study.rows if row.condition != INITIAL]
    rows = []
    for row in asked:
        prompt = TITLES.get(row.condition, row.condition) if several else ""
        cells = tuple(cell(row.figures.get(measure)) for measure in shown)
        figure = row.figures.get(row.finding.measure) if row.finding else None
        text = row_words(study, row.condition, row.chains, row.answers, row.finding, figure)
        rows.append((row.setting, prompt, _calls([row]), *cells, *reached(row.reach).values(), text))
    for cells, settings in _inputs(shown, study.rows).items():
        whose = "" if len(settings) * len(study.conditions) == len(asked) else f" of {', '.join(settings)}"
        rows.append((f"initial ranking{whose}", "", "0", *cells, "", "", ""))
    title = [
        "Windows",
        *study.about,
        f"{count(study.queries, 'query', 'queries')} × {span(*study.candidates)}",
        count(study.orders, f"{study.initial} order"),
        f"{_calls(asked)} {plural(sum(row.calls for row in asked), 'call')}",
    ]
    return filled(Table(" · ".join(title), header, tuple(rows), tuple(_notes(study, asked))))


def _inputs(shown: Sequence[str], rows: Sequence[WindowsRow]) -> dict[tuple[str, ...], list[str]]:
    """What the initial orders read, with the settings they were read in; broken-off runs know fewer of them."""
    inputs: dict[tuple[str, ...], list[str]] = {}
    odds = {row.finding.measure for row in rows if row.finding}
    for row in rows:
        if row.condition == INITIAL:
            # Of the input there is nothing to control for: its own figure stands in the column. It has no pair
            # odds: those would be read off each setting's curve, though no window shaped it.
            plain = {name: figure for name, figure in row.figures.items() if name not in odds}
            figures = (plain.get(measure) or plain.get(plain_name(measure)) for measure in shown)
            inputs.setdefault(tuple(map(cell, figures)), []).append(row.setting)
    return inputs


def _calls(asked: Sequence[WindowsRow]) -> str:
    """The calls behind the figures of some rows; where some were not made, with those planned."""
    planned, made = sum(row.calls for row in asked), sum(row.answers.windows for row in asked)
    return f"{planned:,}" if made == planned else f"{made:,} of {planned:,}"


def reached(reach: Mapping[str, Reach]) -> dict[str, str]:
    """By column, what a ranker that always puts one side first reads, either way, and a perfect one."""
    ratio, precision = reach.get(RATIO, Reach()), reach.get(PRECISION, Reach())
    attainable = "" if ratio.low is None or ratio.high is None else f"{ratio.low:.3f} … {ratio.high:.3f}"
    if ratio.indifferent is not None:
        attainable = f"{ratio.indifferent:.3f} without preference"
    return {ATTAINABLE: attainable, PERFECT: "" if precision.high is None else f"{precision.high:.2f}"}


def planned_reach(setting: Mapping[str, Any]) -> dict[str, str]:
    """The same of a planned setting."""
    return reached(convert(setting["reach"], dict[str, Reach]))


def _notes(study: WindowsResults, asked: Sequence[WindowsRow]) -> Iterator[str]:
    yield from few_queries(study.queries)
    if unparseable := list(_unparseable(asked)):
        yield f"unparseable answers: {', '.join(unparseable)}"
    by_group = [name for name in study.shown if not any(name in row.figures for row in study.rows)]
    if by_group:
        yield f"{', '.join(by_group)}: a figure for each group, which each setting's run has (llmfair runs show RUN)"
    ratios = [measure for measure in study.shown if measure.startswith(RATIO)]
    if ratios:
        control = ", what initial orders explain taken out" * any(CONTROLLED in name for name in study.shown)
        methods = [study.intervals[measure] for measure in ratios if measure in study.intervals]
        how = "".join(f"; {INTERVALS[m]}" + f" (seed {study.seed})" * (m == "boot-t") for m in methods[:1])
        yield f"{RATIO}: ratio of means{control}{how}"
    if any(row.reach.get(RATIO, Reach()).low is not None for row in asked):
        yield f"{ATTAINABLE}: of rankers that always put one group first, from random orders"
    if any(row.finding for row in asked):
        yield "each setting is concluded by itself: p is not adjusted over settings"
    for row in asked:
        if row.condition == study.conditions[0]:
            yield from (f"{row.setting}: {note}" for note in window_notes(row.never_ranked, None, None))
    yield from drawn_note(study.drawn)


def _unparseable(asked: Sequence[WindowsRow]) -> Iterator[str]:
    """Share and number of each setting, all its prompts together; none where every answer was readable."""
    for setting in dict.fromkeys(row.setting for row in asked):
        answers = [row.answers for row in asked if row.setting == setting]
        unparseable = sum(counts.unparseable for counts in answers)
        windows = sum(counts.windows for counts in answers)
        if unparseable:
            yield f"{setting} {percent(unparseable, windows)} ({unparseable:,} of {windows:,})"


def windows_plots(study: WindowsResults, declared: Declared) -> Iterator[Plot]:
    """Utility and ratio by window and step, each beside what it could have been."""
    across, up = utility_of(study.shown, declared), ratio_of(study.shown, declared)
    if not across or not up:
        return
    several = len(study.conditions) > 1
    utilities, ratios = list[Reached](), list[Reached]()
    for row in study.rows:
        if row.condition == INITIAL:
            continue
        name = row.setting + (f" {TITLES.get(row.condition, row.condition)}" if several else "")
        perfect = row.reach.get(plain_name(across), Reach()).high
        bar = None if perfect is None else (0.0, perfect)
        utilities.append((name, value_of(row.figures.get(across)), bar))
        ratios.append((name, on_log(value_of(row.figures.get(up))), reach_of(row.reach, up)))
    if ratios:
        read = "rankers that always put one group first read; dashed: parity"
        yield beside_reach(
            "windows-utility", plain_name(across), "a perfect ranker would read", utilities, False
        )
        yield beside_reach("windows-ratio", plain_name(up), read, ratios, True)


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
    without = design["without_comparison"]
    left_out = f"{count(without, 'query', 'queries')} without equally relevant items of both groups left out"
    return [
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
        *[left_out] * bool(without),
        *few_queries(design["queries"] - without),
    ]


def _smallest(smallest: Mapping[str, Any]) -> str:
    """The smallest detectable odds, either way."""
    below, above = smallest["odds"]
    if below is None:
        return "smallest odds found: too few queries for a test"
    return (
        f"smallest odds found with {100 * smallest['power']:g} % power: {below:.2f} or {above:.2f} "
        f"({count(smallest['queries'], 'query', 'queries')}, standard error of ln odds {smallest['error']:.4f})"
    )
