"""Tables for people, made from results alone; no measure is computed here. And the phrases that they share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from html import escape
from math import ceil
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

from msgspec import convert
from msgspec.structs import asdict

from llmfair import registry
from llmfair.io.text import count, in_markdown, p_text, plural, visible, wrapped
from llmfair.metrics.base import CONTROLLED, plain_name
from llmfair.metrics.names import in_words, parse_measure
from llmfair.results import AnswerCounts, Declared, Figure, HowDrawn, Results, Row, RunVerdict
from llmfair.stats.intervals import NEARLY_ALL_SAME

# Figures with as many decimals as the words beside them need.


MOST_DECIMALS = 6
"""What differs by less is told as the same."""


def interval_text(figure: Figure | None, edges: Collection[float] = ()) -> str:
    """A figure with its interval, as far as it has them, on the right side of the edges: `0.17 [0.10, 0.21]`."""
    if figure is None:
        return "undefined"
    if (bound := bound_text(figure.low, figure.high, edges)) is not None:
        return bound
    ends = [end for end in (figure.value, figure.low, figure.high) if end is not None]
    value, *interval = numbers(ends, edges) or ["undefined"]
    return f"{value} [{', '.join(interval)}]" if interval else value


def bound_text(low: float | None, high: float | None, edges: Collection[float] = ()) -> str | None:
    """What has one limit alone, as that: `at most 0.16`; None of what has both, or neither."""
    if low is None and high is not None:
        return f"at most {outward(high, True, edges)}"
    if high is None and low is not None:
        return f"at least {outward(low, False, edges)}"
    return None


def outward(value: float, up: bool, edges: Collection[float] = ()) -> str:
    """A limit with two digits, or as many more as keep it on its side of the edges, rounded to where it still holds."""
    exact = Decimal(repr(value))
    rounded = exact
    for digits in range(2, MOST_DECIMALS + 1) if value else ():
        last = Decimal(1).scaleb(exact.adjusted() - digits + 1)
        rounded = exact.quantize(last, ROUND_CEILING if up else ROUND_FLOOR)
        if _on_their_side([value], [float(rounded)], edges):
            break
    return f"{rounded.normalize():f}"


def numbers(values: Sequence[float], edges: Collection[float] = (), decimals: int = 2) -> list[str]:
    """Numbers with so many decimals: one more where that tells them apart, as many as keep them on their side of edges.

    What would be nothing by them has two digits.
    """
    texts = list[str]()
    for places in range(decimals, MOST_DECIMALS + 1):
        small = 0.1 if places else 1.0
        texts = [
            f"{value:.{places}f}" if abs(value) >= small else f"{value:.{max(places, 2)}g}"
            for value in values
        ]
        rounded = [float(text) for text in texts]
        apart = len({*rounded}) == len({*values}) or places > decimals
        if apart and _on_their_side(values, rounded, edges):
            break
    return texts


def _on_their_side(values: Sequence[float], rounded: Sequence[float], edges: Collection[float]) -> bool:
    """Whether rounding moved no value to or over an edge."""
    pairs = [*zip(values, rounded, strict=True)]
    return all((value > edge) == (near > edge) and (value < edge) == (near < edge)
               for value, near in pairs for edge in edges)  # fmt: skip


def conclusion_text(finding: Any) -> str:
    """What is concluded, and the reason where there is one, in words; nothing of no finding."""
    if finding is None:
        return ""
    concluded = str(finding.conclusion).replace("_", " ")
    return f"{concluded}: {in_words(finding.reason, finding.measure)}" if finding.reason else concluded


FEW_QUERIES = 15
FEWEST_QUERIES = 5
SHOWN_RANKS = 12
POWER = 0.8
"""A design with this power to find the nearer edge of the band needs no advice."""


@dataclass(frozen=True)
class Table:
    """A table with a line above it and sentences below it; `said`: what it concludes of each condition, by name.

    `lead`: named lines before everything, such as the verdict. `sees`: what the model saw, told below the title.
    `strong`: the cells that stand out, (row, column). `repeated`: rows that repeat another, by their places.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    said: Mapping[str, str] = field(default_factory=dict)
    lead: tuple[tuple[str, str], ...] = ()
    sees: str = ""
    strong: frozenset[tuple[int, int]] = frozenset()
    repeated: frozenset[int] = frozenset()

    @property
    def above(self) -> tuple[str, ...]:
        """The lines right above the table."""
        return tuple(filter(None, (self.title, self.sees)))


def with_texts(table: Table, change: Callable[[str], str]) -> Table:
    """The table with every text of it changed, as what shows it needs."""

    def each(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(change, texts))

    return replace(
        table,
        title=change(table.title),
        header=each(table.header),
        rows=tuple(map(each, table.rows)),
        notes=each(table.notes),
        lead=tuple((name, change(text)) for name, text in table.lead),
        sees=change(table.sees),
    )


Column = tuple[str, str]
"""A measure, and the group that the figure is of: "" for a measure with one figure for all."""
TIDY = ("run", "condition", "stratum", "measure", "group", "value", "low", "high", "n", "reason")


def tidy_tsv(rows: Iterable[Row]) -> str:
    """The aggregates for programs: one figure a line, undefined ones empty."""
    return tsv(TIDY, map(asdict, rows))


def tsv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows for programs: a line each below the names of the columns, undefined figures empty."""
    lines = [columns, *([row[column] for column in columns] for row in rows)]
    return "".join(
        "\t".join("" if cell is None else visible(str(cell)) for cell in line) + "\n" for line in lines
    )


def markdown(table: Table) -> str:
    """The table as GitHub-flavoured Markdown, for pull requests."""
    table = with_texts(table, in_markdown)

    def line(cells: Sequence[str], row: int = -1) -> str:
        shown = (re.sub(r"([|*])", r"\\\1", cell) for cell in cells)
        marked = (f"**{cell}**" if (row, at) in table.strong else cell for at, cell in enumerate(shown))
        return "| " + " | ".join(marked) + " |"

    rule = "| " + " | ".join("---" for _ in table.header) + " |"
    notes = [f"- {note}" for note in table.notes]
    lead = [f"**{name}** {text}\n" for name, text in table.lead]
    rows = [line(cells, row) for row, cells in enumerate(table.rows)]
    return (
        "\n".join([*lead, "\n\n".join(table.above), "", line(table.header), rule, *rows, "", *notes]) + "\n"
    )


def whole(measure: str | None) -> str:
    """The measure of all items, of one of a stratum."""
    return re.sub(r"\(stratum=\w+\)|,stratum=\w+", "", measure or "")


def columns_of(
    measures: Sequence[str], rows: Iterable[Row], verdict: RunVerdict | None = None
) -> list[Column]:
    """The columns in which these rows stand: one a measure, or one for each of its groups, @UNKNOWN last.

    The measure that the verdict speaks of comes first.
    """
    groups: dict[str, set[str]] = {}
    for row in rows:
        groups.setdefault(row.measure, set()).add(row.group)
    return [
        (measure, group)
        for measure in sorted(measures, key=lambda name: verdict is None or name != whole(verdict.measure))
        for group in sorted(groups.get(measure, ()), key=lambda name: (name.startswith("@"), name))
    ]


class LabelledResults(Protocol):
    """Results whose measures may have names in words."""

    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def level(self) -> float: ...


def with_interval(rows: Iterable[Row]) -> set[Column]:
    """The columns in which some row has an interval."""
    return {(row.measure, row.group) for row in rows if row.low is not None}


def headings(
    columns: Sequence[Column], results: LabelledResults, intervals: Collection[Column] = ()
) -> list[str]:
    """Names of columns, in words where a measure has no other; the level stands with those in `intervals`."""
    level = f" [{results.level * 100:g} %]"
    plain = {measure: plain_name(results.labels.get(measure, measure), CONTROLLED) for measure, _ in columns}
    named = list(plain.values())
    return [
        (plain[column[0]] if named.count(plain[column[0]]) == 1 else column[0])
        + f", {column[1]}" * bool(column[1])
        + level * (column in intervals)
        for column in columns
    ]


def conditions_table(
    title: str,
    results: Results,
    called: str,
    titles: Mapping[str, str],
    unit: str = "probes",
    answers: str = "",
) -> Table:
    """Any audit as a table: one row a condition, one column a measure shown, and what is concluded.

    `unit` is what has its answers; `answers` what could be parsed or not, the same unless it is said.
    """
    figures = {(row.measure, row.group, row.key): row for row in results.of_all()}
    columns = columns_of(results.shown, figures.values(), results.verdict)
    said: dict[str, str] = {
        condition: unparseable_text(condition, results) or conclusion_text(results.findings.get(condition))
        for condition in results.design.keys
    }
    rows = [
        (
            titles.get(condition, condition),
            *(cell(figures.get((*column, condition)), results.band) for column in columns),
            said[condition],
        )
        for condition in results.design.keys
    ]
    parts = [
        title,
        *audited_note(results),
        count(results.design.queries, "query", "queries"),
        f"{calls_of(results)} {plural(results.design.calls, 'call')}",
    ]
    header = (called, *headings(columns, results, with_interval(results.rows)), "conclusion")
    notes = [f"{measure}: {note}" for measure, note in results.of_measures.items()]
    for condition, ended in results.chains.items():
        if ended.ranked < ended.asked:
            of = f"{ended.ranked:,} of {ended.asked:,} {unit}"
            notes.append(f"{titles.get(condition, condition)}: {of} have all their answers")
    for condition, counts in results.answers.items():
        if counts.unparseable:
            of = f"{percent(counts.unparseable, counts.asked)} of {counts.asked:,} {answers or unit}"
            notes.append(f"{titles.get(condition, condition)}: {of} cannot be parsed")
    measured = max((row.n or 0 for row in results.of_all()), default=0) or results.design.queries
    notes += [
        *drawn_note(results.design.drawn),
        *results.warnings,
        *few_queries(measured),
        *same_values(results),
    ]
    return filled(Table(" · ".join(parts), header, tuple(rows), tuple(notes), said, sees=results.sees))


def unparseable_text(condition: str, results: Results) -> str:
    """That too many answers of a condition cannot be read for any conclusion; "" where they can."""
    if not results.unparseable(condition):
        return ""
    counted, limit = results.answers[condition], 100 * (results.max_invalid or 0)
    share = percent(counted.unparseable, counted.asked)
    return f"not assessable: {share} of the answers are unparseable, more than {limit:g} % (--max-invalid)"


def audited_note(results: Results) -> list[str]:
    """On which data, about whom, and which model: what follows the name of an audit in its title."""
    simulated = ", a simulated model" * results.model.startswith("fake:")
    protected = results.words.protected
    about = [f"{results.attribute} (protected: {protected})"] if protected else []
    return [results.dataset, *about, f"{results.named_model}{simulated}"]


def filled(table: Table) -> Table:
    """The table without columns in which no row has anything."""
    kept = [place for place, cells in enumerate(zip(*table.rows, strict=True)) if any(cells)]
    if not table.rows:
        return table
    header, *rows = (tuple(line[place] for place in kept) for line in (table.header, *table.rows))
    return replace(table, header=header, rows=tuple(rows))


def rows_table(title: str, rows: Iterable[Mapping[str, str]], *notes: str) -> Table:
    """A table of rows that name their cells by the heads of columns, without columns in which no row has anything."""
    lines = [*rows]
    header = tuple(dict.fromkeys(head for row in lines for head in row))
    cells = tuple(tuple(row.get(head, "") for head in header) for row in lines)
    return filled(Table(title, header, cells, tuple(filter(None, notes))))


SAID_BY_THE_CONCLUSION = ("order_not_random", "no_common_grade", "no_encounter", "tied", "no_baseline")


def cell(row: Figure | None, band: Collection[float] = ()) -> str:
    """A figure with its interval, or its bound, on its side of the band; or why it has neither."""
    if row is None:
        return ""
    if (bound := bound_text(row.low, row.high, band)) is not None:
        return bound
    if row.value is None:
        if row.reason in SAID_BY_THE_CONCLUSION:
            return ""
        return f"undefined ({in_words(row.reason, getattr(row, 'measure', ''))})"
    text = f"{row.value:.3f}"
    return text if row.low is None else f"{text} [{row.low:.3f}, {row.high:.3f}]"


def few_queries(queries: int) -> list[str]:
    """A warning where intervals are refused, or known to fail skewed effects (statistics.md 2)."""
    if queries >= FEW_QUERIES:
        return []
    few = f"only {count(queries, 'query', 'queries')}"
    if queries < FEWEST_QUERIES:
        return [f"{few}: no intervals, which need {FEWEST_QUERIES}"]
    return [f"{few}: read the intervals with care"]


def same_values(results: Results) -> list[str]:
    """Which measures of the table have wide limits, since nearly all queries have one value."""
    rows = (row for row in results.of_all() if row.key in results.design.keys)
    which = {row.measure for row in rows if row.reason == NEARLY_ALL_SAME} & {*results.shown}
    measures = ", ".join(measure for measure in results.shown if measure in which)
    return [f"{measures}: nearly all queries have the same value, so limits are by betting, and wide"] * bool(
        which
    )


def uncut_notes(measures: Declared, longest: int) -> list[tuple[str, str]]:
    """Measures whose cutoff cuts nothing off, so that the order of lists cannot show, each with a sentence on it.

    `longest`: items of the longest list.
    """
    return [
        (measure, f"no list is longer than {says.cutoff}, so every order has the same")
        for measure, says in measures.items()
        if says.definition.of_a_set and says.cutoff and 0 < longest <= says.cutoff
    ]


def calls_of(results: Results) -> str:
    """The calls behind a run's figures; of one that is not through, or stopped early, with those planned."""
    planned, made = results.design.calls, results.calls
    # answers of lists that are not through are on disk, too
    behind = "figures from " * (results.status == "incomplete")
    most = "at most " * bool(getattr(results.design, "at_most", None))
    return f"{planned:,}" if made == planned else f"{behind}{made:,} of {most}{planned:,}"


def held_note(form: str, answers: Collection[AnswerCounts]) -> str:
    """What became of --constrain, which asks for answers of this form alone and which a server may pass over."""
    if unformed := sum(counts.unformed or 0 for counts in answers):
        asked = count(sum(counts.asked for counts in answers), "answer")
        return f"the server passed over --constrain: {unformed:,} of {asked} are not {form}"
    return f"answers were to be held to {form} (--constrain): refusals and careless answers do not show"


def drawn_note(drawn: HowDrawn | None) -> list[str]:
    """From what the lists were drawn, and how anybody draws the same ones."""
    if drawn is None:
        return []
    rules = {"equal": "as many of either group", "natural": "whatever their group"}
    rule = rules.get(drawn.buckets, f"--buckets {drawn.buckets}")
    return [
        f"lists drawn with seed {drawn.seed} from documents relevant to the query and, beside them, documents "
        f"relevant to other queries only, {rule}"
    ]


def planned_note(planned: Mapping[str, Any]) -> list[str]:
    """The same of a plan."""
    return drawn_note(convert(planned.get("drawn"), HowDrawn | None, from_attributes=True))


def window_notes(never_ranked: Sequence[int], window: int | None, step: int | None) -> list[str]:
    """What windows leave out, or carry nowhere."""
    notes = []
    if never_ranked:
        more = ", …" * (len(never_ranked) > SHOWN_RANKS)
        ranks = ", ".join(str(position + 1) for position in never_ranked[:SHOWN_RANKS]) + more
        notes.append(f"ranks that no window holds in some list: {ranks}")
    if window is not None and step == window:
        notes.append("step equals window: no item is carried from window to window")
    return notes


def on_disk(planned: Mapping[str, Any]) -> str:
    """How much of a run that goes on is answered already."""
    known = planned["on_disk"]
    return f"; {count(known, 'answer is', 'answers are')} on disk already" if known else ""


def reasons(reasons: Mapping[str, int], measure: str) -> str:
    """Why so many queries have no value of a measure, in its words."""
    return "; ".join(
        f"{in_words(reason, measure)} ({count(n, 'query', 'queries')})" for reason, n in reasons.items()
    )


def percent(part: float, whole: float = 1) -> str:
    return f"{100 * part / whole:.1f} %"


def span(low: int, high: int) -> str:
    """From the least to the most, or the one number that both are."""
    return f"{low}" if low == high else f"{low}–{high}"


def capitalised(text: str) -> str:
    """A sentence's beginning, of words that stand elsewhere in the middle of one."""
    return text[:1].upper() + text[1:]


def differs_text(p: float | None, low: float | None, high: float | None, level: float) -> str:
    """That a ratio is not 1, where p and its interval say so both; nothing else.

    They are of different tests (the interval of a t statistic, p of signs flipped) and can disagree at few queries.
    """
    if p is None or p >= 1 - level or low is None or high is None or low <= 1 <= high:
        return ""
    return f"; differs from parity, p {p_text(p)}"


def found_with(what: str, findings: Iterable[Any], queries: str, kind: str) -> list[str]:
    """The power of an inconclusive design, and the queries that it takes; `what` has a place for the odds."""
    inconclusive = [finding.power for finding in findings if finding.conclusion == "inconclusive"]
    weak = [power for power in inconclusive if power and power.power < POWER]
    if not weak:
        return []
    worst = min(weak, key=lambda power: power.power)
    needed = worst.queries_needed
    more = f"80 % takes about {needed:,} {queries}" if needed else "no number of queries gives 80 %"
    return [
        f"power to detect {what.format(worst.odds)}: {worst.power * 100:.0f} %; {more} (llmfair plan {kind})"
    ]


# The first lines of everything: the verdict, and what to do next.


VERDICT, NEXT = "VERDICT", "NEXT"
WIDTH = 120
"""Where lines are wrapped that nothing else bounds."""
RUNS = Path("runs")
"""Where a run is found by its name alone."""
WHOLE_SENTENCES = 4
"""Of more runs than this, verdicts are told in short."""
Lead = tuple[tuple[str, str], ...]


def lead_of(verdicts: Iterable[tuple[str, RunVerdict | None]], following: str = "") -> Lead:
    """A line for the verdict of each run, by its name ("" of a single one), and one for what `following` says to do.

    Of many runs a verdict is told in short.
    """
    known = [(f"{name}: " if name else "", verdict) for name, verdict in verdicts if verdict is not None]
    short = len(known) > WHOLE_SENTENCES
    lines = [
        (VERDICT, name + (in_short(verdict) if short else f"{verdict.status}: {verdict.sentence}"))
        for name, verdict in known
    ]
    return (*lines, *[(NEXT, following)] * bool(lines and following))


def in_short(verdict: RunVerdict) -> str:
    """The status and the figure."""
    if verdict.estimate is None:
        return verdict.status
    low, high = ("…" if end is None else f"{end:.2f}" for end in (verdict.low, verdict.high))
    name = plain_name(str(verdict.measure))
    if registry.has("measure", re.split(r"[(@]", name)[0]) and parse_measure(name).definition.worded:
        name = parse_measure(name).label
    return f"{verdict.status}, {name} {verdict.estimate:.2f} [{low}, {high}]"


def markdown_lead(lead: Lead) -> list[str]:
    """Named lines as paragraphs of Markdown."""
    return [f"**{name}** {in_markdown(text)}\n" for name, text in lead]


def headed(
    table: Table, verdict: RunVerdict | None, folder: Path | None = None, continued: str | None = None
) -> Table:
    """The table below its verdict; the next step names the run's `folder` where its name alone would not find it.

    Of a run that lacks answers it is the command that asks them, where one is known.
    """
    following = "" if verdict is None else continued or verdict.next
    if folder is not None and folder.parent != RUNS:
        named = rf"(llmfair (?:runs show|report|mitigate)) {re.escape(quote(folder.name))}(?=\s|$)"
        following = re.sub(named, lambda found: f"{found[1]} {quote(str(folder))}", following)
    return replace(table, lead=lead_of([("", verdict)], following))


def lead_lines(lead: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Named lines, aligned and wrapped at this width."""
    indent = max((len(name) for name, _ in lead), default=0) + 2
    for name, text in lead:
        yield from wrapped(text, max(width, 3 * indent), f"{name:<{indent}}", " " * indent)


# What every plan tells in words: queries left out, calls, tokens, cost, time, and what is answered already.


SHOWN_LEFT_OUT = 3
MINUTE, HOUR = 60, 3600


def plan_text(planned: Mapping[str, Any]) -> str:
    """A plan of which nothing but its calls is known."""
    return told(count(planned["queries"], "query", "queries"), plan_lines(planned))


def told(design: str, lines: Iterable[str]) -> str:
    """What a dry run says: the design, and indented what it takes and finds."""
    return "\n".join([design, *(f"  {line}" for line in lines), "Nothing was asked.", ""])


def plan_lines(planned: Mapping[str, Any], between: Iterable[str] = ()) -> list[str]:
    """What the model sees and asking takes, what a kind says `between`, what is answered already, what is not ready."""
    return [
        *filter(None, [planned["sees"]]),
        *planned_note(planned),
        *queries_lines(planned),
        calls_line(planned),
        _time_line(planned),
        *between,
        *_folder_lines(planned),
        *planned["unready"],
    ]


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


def _time_line(planned: Mapping[str, Any]) -> str:
    latency = planned.get("latency", 1.0)
    seconds = ceil(planned["seconds_at_1s_a_call"] * latency)
    parts = ((seconds // HOUR, "h"), (seconds % HOUR // MINUTE, "min"), (seconds % MINUTE, "s"))
    shortest = " ".join(f"{number} {unit}" for number, unit in parts if number)
    return f"at least {shortest or '0 s'} at {latency:g} s a call and {count(planned['workers'], 'worker')}"


def _folder_lines(planned: Mapping[str, Any]) -> Iterator[str]:
    """How much is answered already, in the run's own folder and by other runs."""
    if planned["answered"]:
        yield f"{count(planned['answered'], 'answer')} of them in {planned['folder']} already"
    if planned["cached"]:
        yield (
            f"{count(planned['cached'], 'answer')} known from other runs, which leaves at most "
            f"{count(planned['left'], 'call')} (--no-cache asks them, too)"
        )


def share(power: float) -> str:
    """A power to two places, but never 1."""
    return "> 0.99" if power > 0.99 else f"{power:.2f}"


def _about(tokens: int) -> str:
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1e6:.1f} M" if tokens >= 1e6 else f"{tokens / 1e3:.1f} k"


# A table as text for a terminal that is not ours, and as HTML for a notebook.


def text_of(table: Table) -> str:
    """The table in columns, with the line above it and the sentences below."""
    from rich.cells import cell_len

    table = with_texts(table, visible)
    lines = [table.header, *table.rows] if table.header else []
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]

    def padded(line: Sequence[str]) -> str:
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        return "".join(f" {cell} " for cell in cells).rstrip()

    lead = "\n".join(lead_lines(table.lead, WIDTH))
    notes = "\n".join(f"  {note}" for note in table.notes)
    parts = (lead, "\n".join(table.above), "\n".join(map(padded, lines)), notes)
    return "\n\n".join(part for part in parts if part)


def html_of(table: Table) -> str:
    """The table as an HTML fragment; every text is escaped."""
    table = with_texts(table, lambda text: escape(visible(text)))

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"

    return "\n".join(
        [
            *(f"<p><strong>{name}</strong> {text}</p>" for name, text in table.lead),
            f"<table>\n<caption>{' · '.join(table.above)}</caption>",
            f"<thead>{line('th', table.header) if table.header else ''}</thead>\n<tbody>",
            *(line("td", row) for row in table.rows),
            "</tbody>\n</table>\n<ul>",
            *(f"<li>{note}</li>" for note in table.notes),
            "</ul>",
        ]
    )


# What every calibration tells in a table and notes: what was injected, rejected and concluded.


Record = Mapping[str, Any]


def calibration_table(
    results: Mapping[str, Any],
    size: str,
    columns: Mapping[str, Callable[[Record], str]],
    notes: Sequence[str],
) -> Table:
    """One row an injected preference: a kind's own columns, then tests and conclusions; `size` says of how much."""
    low, high = results["band"]
    title = [
        results["task"].capitalize(),
        results["dataset"],
        f"{results['attribute']} (protected: {results['words']['protected']})",
        size,
        f"{results['runs']:,} simulated audits a row",
        f"seed {results['seed']}",
        "no model asked",
    ]
    every: dict[str, Callable[[Record], str]] = {
        **columns,
        f"p < {1 - results['level']:.3g}": lambda row: share_with_error(row, "rejected"),
        "within": lambda row: percent(row["within"]),
        f"outside {low:g}–{high:g}": lambda row: percent(row["outside"]),
        "inconclusive": lambda row: percent(row["inconclusive"]),
        "not assessable": lambda row: percent(row["not_assessable"]),
    }
    rows = tuple(tuple(cell(row) for cell in every.values()) for row in results["injected"])
    return Table(" · ".join(title), tuple(every), rows, tuple(notes))


def calibration_tsv(results: Mapping[str, Any]) -> str:
    """The figures for programs: a line for every row, undefined ones empty."""
    return tsv([name for name in results["injected"][0] if name != "undefined"], results["injected"])


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
