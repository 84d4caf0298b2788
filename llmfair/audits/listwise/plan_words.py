"""A planned listwise audit, a study of windows and a calibration in tables and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from msgspec import convert

from llmfair.audits.listwise.measure import INITIAL
from llmfair.audits.listwise.plan import ListwiseFindable, Prospect, StrategyPlan
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
    share_with_error,
    span,
    told,
    undefined_notes,
    window_notes,
)
from llmfair.results import Reach
from llmfair.stats.intervals import FEWEST_QUERIES

UNKNOWN = {
    "no_model_asked": "what it can find is planned for models only",
    "order_not_random": "what it can find is known for --initial random only",
    "no_list_of_both_sides": "no list has items of both groups: nothing can be found",
    "no_common_grade": "no list has items of both groups with the same grade of relevance: nothing can be found",
    "sequential": "--sequential asks until each prompt is settled, so what it finds is not planned; leave it out to "
    "see what all windows find",
    "too_few_queries": f"no interval, which needs {FEWEST_QUERIES} queries",
}
HEADER = (
    "answers", "disparity at {:g}", "queries for disparity", "parity at 1", "queries for parity",
    "smallest odds found",
)  # fmt: skip
ANSWERS = {0.0: "fresh every time", 1.0: "alike every time"}


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
    """How audits of the design end, with everything else below it; None where that is not known."""
    findable = convert(planned["findable"], ListwiseFindable)
    if "strategies" in planned:
        return _side_by_side(planned, findable)
    if not findable.prospects:
        return None
    header = tuple(name.format(findable.odds) for name in HEADER)
    rows = tuple((_answers(each), *_ends(each)) for each in findable.prospects)
    lines = _lines(planned, _findable_lines(planned, findable))
    return Table(_design(planned), header, rows, (*lines, "Nothing was asked."))


def _answers(prospect: Prospect) -> str:
    share = f"{100 * prospect.alike:g} % of windows alike every time"
    return f"{ANSWERS.get(prospect.alike, share)} (--alike {prospect.alike:g})"


def _ends(prospect: Prospect) -> tuple[str, ...]:
    return (
        share_with_error(asdict(prospect), "disparity"),
        _queries(prospect.queries_for_disparity),
        share_with_error(asdict(prospect), "parity"),
        _queries(prospect.queries_for_parity),
        "none" if prospect.smallest is None else f"{prospect.smallest:.2f}",
    )


def _queries(number: int | None) -> str:
    return "none" if number is None else f"about {number:,}"


def _side_by_side(planned: Mapping[str, Any], findable: ListwiseFindable) -> Table:
    """What every strategy takes, can reach and can find."""
    header = (
        "strategy", "calls", "tokens in", "out", "rounds", "attainable ExpRatio",
        *(name.format(findable.odds) for name in HEADER[1:]),
    )  # fmt: skip
    rows = tuple(
        (
            _named(plan),
            "at most " * plan.at_most + f"{plan.calls:,}",
            f"{plan.prompt_tokens:,}",
            f"{plan.completion_tokens:,}",
            f"{plan.longest_chain:,}",
            _range(plan.reach),
            *(" to ".join(dict.fromkeys(cells)) for cells in zip(*map(_ends, plan.prospects), strict=True)),
        )
        for plan in convert(planned["strategies"], list[StrategyPlan])
    )
    notes = (
        "tokens are characters / 4; rounds: calls of the longest chain that wait for each other",
        *_simulated(planned, findable),
        *_together(planned),
        "Nothing was asked.",
    )
    return filled(Table(_asked(planned), header, rows, notes))


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


def _findable_lines(planned: Mapping[str, Any], findable: ListwiseFindable) -> Iterator[str]:
    """How the table's figures are to be read, and what the other design takes."""
    yield from _simulated(planned, findable)
    if (expected := findable.expected) is not None:
        yield (
            f"ExpRatio to expect of odds of {findable.odds:g} if noise is fresh: {expected.agnostic:.3f} of a ranker "
            f"that does not look at relevance, {expected.relevant:.3f} of one that orders by it"
        )
    if (other := findable.other_design) is not None:
        waits = "none waits for another" if other.design == "partition" else "which rank the lists, too"
        orders, calls = count(other.orders, "order"), count(other.calls, "call")
        yield f"--design {other.design} with {orders}: {calls} a model, {waits}"


def _simulated(planned: Mapping[str, Any], findable: ListwiseFindable) -> Iterator[str]:
    """What was simulated, and what its shares and numbers of queries are of."""
    if not findable.prospects:
        return
    audits = min(each.audits for each in findable.prospects)
    yield (
        f"chances of a verdict under one of {count(findable.prompts, 'prompt')} in {audits} simulated audits of these "
        f"lists (seed {planned['seed']}; ± Monte Carlo error); log odds of the first slot against the last "
        f"{findable.slots:+g} (--slots), standard deviation {findable.tau:g} over queries (--tau)"
    )
    yield (
        f"queries for: a chance of {100 * findable.target:g} %, of queries like these; smallest odds found: with that "
        "chance in disparity; odds above 1: their inverse; none: there are none, or a list compares too little to know"
    )
    if findable.prompts > 1:
        yield "a run ends in disparity where one prompt does, in parity where every one does"


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
            lambda row: "",
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
