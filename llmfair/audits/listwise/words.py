"""A listwise audit in tables, sentences and plots: of a run, of a plan, of a study of windows, of a calibration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import fsum, log
from pathlib import Path
from typing import Any, cast

from msgspec import convert
from msgspec.structs import asdict

from llmfair.asking.journal import completion_of
from llmfair.audits.label_error import odds_text
from llmfair.audits.lists import UNJUDGED_TEXT
from llmfair.audits.listwise.plan import ListwiseFindable, Prospect, StrategyPlan
from llmfair.audits.listwise.results import (
    INITIAL,
    OF_RANKINGS,
    SEPARATOR,
    ListwiseFacts,
    ListwiseFinding,
    ListwiseResults,
    Odds,
    of_stratum,
)
from llmfair.audits.listwise.score import read_lists
from llmfair.audits.runs.exhibits import declared
from llmfair.audits.runs.stopping import settled_text
from llmfair.audits.scoring import ScoredRun
from llmfair.io.text import count, p_text
from llmfair.metrics.base import CONTROLLED, plain_name
from llmfair.metrics.names import in_words, parse_measure
from llmfair.nouns import OTHERS, Key, Side, condition_of
from llmfair.probes import REPEAT
from llmfair.rankers.questions import Question
from llmfair.rankers.strategies import strategy_of
from llmfair.report import groups, phrases
from llmfair.report import plan as plans
from llmfair.report.figures import HEADLINES, headline_plots, on_log, ratio_of, utility_of, value_of
from llmfair.report.groups import Section
from llmfair.report.plan import Record
from llmfair.report.plots import Plot, Point, ratios, utility_and_ratio
from llmfair.report.table import Column, Table, figure_columns
from llmfair.report.verdict import ADVICE, Case, VerdictWords
from llmfair.report.words import StudyWording, Wording, by_name, study_plan_table
from llmfair.results import MOST_CONTRASTS, OUTSIDE_ALONE, Band, Declared, Exhibits, Figure, Reach, Row, Words
from llmfair.stats.intervals import FEWEST_QUERIES
from llmfair.stats.strata import Stratum

TITLES = {INITIAL: "initial ranking"}
"""Conditions that are not called by their names."""
METHOD = (
    "The model orders every candidate list under a neutral prompt and under prompts that name each group. A "
    "window slides from the end of the list to its head; what the model puts first in one window is carried "
    "into the next.",
    "Exposure of the item at rank a is 1 / ln(1 + a): the head weighs most. Each group's exposure is the mean "
    "over its items; the ratio of the protected group's to the other's is 1 at parity, wherever relevance is "
    "spread alike.",
    "Conclusions speak of odds of answers: those with which the model puts a protected item ahead of an equally "
    "relevant other one where it sees both for the first time at once, whatever slots they stand in. They are "
    "fitted by a logistic model with a smooth effect of the slot, each query weighing alike; what later windows "
    "show together was chosen by earlier answers, so it does not count. An item that an answer leaves out is behind "
    "all that it names. A disparity is concluded from the odds of all, of relevant and of irrelevant items together; "
    "parity needs all three near 1, and a ranker that orders by relevance better than its initial order does.",
    "Each query is one unit: intervals and tests go over queries. p is adjusted (Holm) over the family that "
    "the notes below the table name.",
)
OF_PAIRS = (
    "Of several groups each pair A:B is concluded by itself: where the protected group is said, read A, and B for the "
    "other. Odds of all pairs come from one model with an effect of every group. A group is named as put behind, or "
    "ahead, where most of its pairs say so."
)
OF_OTHERS = (
    "Each group A is compared with all others: where the protected group is said, read A. Beside others that hold a "
    "group put behind, a group that is treated alike looks preferred."
)
RANKINGS_NOTE = "odds of rankings: over all equally relevant pairs of a final list, not of single answers"
TELLING = 0.01
"""From this distance from 1 on, notes tell what relevance alone gives the sides, and the gap between two prompts."""
NOTHING_CONCLUDED = "nothing is concluded from an order that is not random (--initial random)"
RATIO, PRECISION = "ExpRatio", "P@20"
"""The measures whose attainable range a design knows."""
Notes = Iterator[str]
"""What has to be known to read a table, a sentence each."""
Cells = Mapping[tuple[str, str], Row]
NONE_OUTSIDE = "no pair outside the band"
StratumRow = tuple[Key, str, ListwiseFinding, Odds]
"""A prompt and contrast, items of one relevance or all, what is concluded under the prompt, and their odds."""


def conclusion(finding: ListwiseFinding, figure: Figure | None, band: Band, words: Words | None) -> str:
    """The conclusion of one condition: where its odds lie."""
    (low, high), odds, label = band, finding.odds, parse_measure(finding.spoken_of).label
    if finding.conclusion == "not_assessable" or odds is None:
        return f"not assessable: {in_words(finding.reason, finding.measure)}"
    whose = f" of {finding.decisive} items" if finding.decisive != "all" else ""
    if finding.reason == OUTSIDE_ALONE:
        return f"inconclusive;{whose} outside by itself only, p {p_text(finding.p_outside_adjusted or 1.0)}"
    if finding.conclusion != "outside":
        return f"{label} within {low:g}–{high:g}" if finding.conclusion == "within" else "inconclusive"
    odds = finding.by_stratum[finding.decisive]
    less = odds.bound == "at most" if odds.value is None else odds.value < 1
    text = f"{label} {f'below {low:g}' if less else f'above {high:g}'}"
    shares = [] if whose or finding.excess is None else finding.excess.less(less)
    if not shares:
        return text
    protected, other = (words.protected, words.unprotected) if words else ("protected", "other")
    (percentage,) = phrases.numbers(shares[:1], (0,), 0)
    return f"{text}: {percentage} % less exposure for {protected if less else other} items"


def ranks_of(about: Record) -> str:
    """A window's ranks."""
    first, last = about["window"]
    return f"ranks {first + 1}–{last}"


def strata_table(results: ListwiseResults) -> Iterator[Table]:
    """Odds of answers over all, over relevant and over irrelevant items: a row each under every prompt."""
    figures = results.by_key()
    rows = [
        (key, name, results.findings[key], odds)
        for key in (_pairs_shown(results) if results.design.contrasts else results.design.keys)
        if key.condition != REPEAT and key in results.findings and results.findings[key].strata
        for name, odds in results.findings[key].by_stratum.items()
    ]
    columns: list[Column[StratumRow]] = [
        ("prompt", lambda row: row[0].condition),
        *[("groups", lambda row: row[0].contrast)][: len(results.design.contrasts)],
        ("items", lambda row: row[1]),
        (
            f"odds of answers [{100 * results.level:g} %]",
            lambda row: figures.get((of_stratum(row[2].measure, row[1]), row[0])),
        ),
        ("comparisons", lambda row: row[3].comparisons),
        ("items in several queries", lambda row: row[3].recurring),
        ("effective clusters", lambda row: None if row[3].clusters is None else f"{row[3].clusters:.1f}"),
        (
            "items missing from answers",
            lambda row: phrases.percent(row[2].left_out) if row[1] == "all" else None,
        ),
        ("p outside the band", lambda row: None if row[3].p_outside is None else p_text(row[3].p_outside)),
        (
            "conclusion, in the row that decides",
            lambda row: phrases.conclusion_text(row[2]) if row[1] == row[2].decisive else None,
        ),
    ]
    if rows:
        note = (
            "p is one-sided, against the nearer edge of the band. A disparity goes by these three p together (Simes), "
            "adjusted over the prompts (Holm); parity needs the odds of all items in the band, and those of either "
            "stratum in it with an interval that excludes much larger ones (--guard)"
        )
        yield Table.of("Odds of answers by relevance", columns, rows, [note], results.band)


def listwise_table(results: ListwiseResults) -> Table:
    """A row a prompt and one of the initial ranking; a column a measure, or one for each of its groups.

    Of several groups a row a pair; what is of one group, or of none, is in the table below.
    """
    design, conditions, rows = results.design, results.design.conditions, results.by_key()
    conclusions: dict[str, str] = {}
    for key in design.keys:
        name, finding = key.condition, results.findings.get(key)
        chains = results.chains[name]
        parts = [f"{chains.ranked} of {chains.asked} chains"] if chains.ranked != chains.asked else []
        unparseable = phrases.unparseable_text(name, results)
        if unparseable or name == REPEAT:
            parts.append(unparseable or "the same prompt, the same orders")
        elif finding:
            words = Words(*key.groups) if key.contrast else results.words
            parts.append(conclusion(finding, None, results.band, words))
        conclusions[key] = "; ".join(parts)
    # of the input there is nothing to control for: its own figure stands in the column
    figures = [
        ((measure, ""), Key(INITIAL), row)
        for measure in results.shown
        if (row := rows.get((plain_name(measure), INITIAL)))
    ]
    every = [row for row in results.of_all() if row.condition in (*conditions, INITIAL)]
    figures += [((row.measure, row.group), row.key(design.contrasts), row) for row in every]
    measures, shown, below = results.shown, [*map(Key, conditions)], None
    texts = {**conclusions, INITIAL: "before the model"}
    if design.contrasts:
        of_pairs = {row.measure for row in every if row.contrast}
        measures, shown = [name for name in measures if name in of_pairs], _pairs_shown(results)
        below = _table_of_groups(results, every, [name for name in results.shown if name not in of_pairs])
        for key in design.keys:  # where no pair has a row
            concluded = key in results.findings and not results.unparseable(key.condition)
            texts[key.condition] = NONE_OUTSIDE if concluded else conclusions[key]
    columns: list[Column[Key]] = [
        ("prompt", lambda key: TITLES.get(key.condition, key.condition)),
        *[("groups", lambda key: key.contrast or "all")][: len(design.contrasts)],
        *figure_columns(results, measures, figures, results.verdict),
        ("conclusion" if results.findings else "note", texts.get),
    ]
    title = [
        "Listwise",
        *phrases.audited_note(results),
        f"{count(design.queries, 'query', 'queries')} × {phrases.span(*design.candidates)}",
        "no model asked" if design.prompt_sha256 is None else f"{phrases.calls_of(results)} calls",
        f"preset {design.preset}" if design.preset else "",
    ]
    initial = [Key(INITIAL)] * any(key == INITIAL and place[0] in measures for place, key, _ in figures)
    return Table.of(
        title,
        columns,
        [*shown, *initial],
        [*(_group_notes(results, shown) if design.contrasts else ()), *_notes(results, rows)],
        results.band,
        below=below,
        names=1 + bool(design.contrasts),
        said=conclusions if results.findings else {},
        sees=results.sees,
    )


def _pairs_shown(results: ListwiseResults) -> list[Key]:
    """Of the first prompt its pairs, unless they are too many; of others those outside the band, else the prompt."""
    design, keys = results.design, list[Key]()
    outside = {key for key, of in results.findings.items() if of.conclusion == "outside"}
    for condition in (name for name in design.conditions if name != REPEAT):
        every = len(design.contrasts) <= MOST_CONTRASTS and condition == design.conditions[0]
        pairs = [Key(condition, contrast=contrast) for contrast in design.contrasts]
        keys += [key for key in pairs if every or key in outside] or [Key(condition)]
    return keys


def _table_of_groups(results: ListwiseResults, every: Sequence[Row], measures: Sequence[str]) -> Table:
    """A row a prompt, and of the first one each group: what is of one group, or of no group."""
    design, (first, *_) = results.design, results.design.conditions
    keys = [Key(first), *(Key(first, contrast=group) for group in design.groups)]
    keys += [Key(condition) for condition in (*design.conditions[1:], INITIAL)]
    rows = [row for row in every if not row.contrast]
    cells = [((row.measure, ""), Key(row.condition, contrast=row.group), row) for row in rows]
    columns: list[Column[Key]] = [
        ("prompt", lambda key: TITLES.get(key.condition, key.condition)),
        ("group", lambda key: key.contrast or "all"),
        ("items", lambda key: design.groups.get(key.contrast)),
        *figure_columns(results, ["GroupOdds", *measures], cells),
    ]
    figures = {row.measure.partition("@")[0]: row for row in rows if row.condition == first and not row.group}
    impact = (row for row in rows if row.condition == first and row.measure.startswith("ImpactRatio@"))
    ratios, worst = [row.value for row in impact], figures.get("ExpRatio(worst)")
    least = (
        ("impact ratio", min(filter(None, ratios), default=None), figures.get("ImpactRatio(chance)")),
        ("over greatest mean exposure", worst and worst.value, figures.get("ExpRatio(chance)")),
    )
    notes = list[str]()
    for says, value, chance in least:
        if value is not None and chance is not None and chance.value is not None:
            test = "" if chance.p is None else f", p {p_text(chance.p)}"
            notes.append(f"least {says} ({first}): {value:.2f} ({chance.value:.2f} by chance{test})")
    if any(row.measure == "GroupOdds" for row in rows):
        notes.append("odds of a group: against the mean of all groups")
    few = ", ".join(f"{group} {number:,}" for group, number in design.few.items())
    notes += [f"items of groups too few to compare (--min-group): {few}"] * bool(few)
    notes += [f"items of unknown group, or of several: {design.unknown:,}"] * bool(design.unknown)
    return Table.of("By group", columns, keys, notes, results.band, names=2)


def _group_notes(results: ListwiseResults, shown: Sequence[Key]) -> Notes:
    """Which pairs the table leaves out, and what its odds are of."""
    pairs = [key for key in results.design.keys if key.condition != REPEAT]
    if left := len({*pairs} - {*shown}):
        pair = "more pair" if left < len(pairs) else "pair"
        yield f"{count(left, pair)} of groups, none outside the band: metrics.csv"
    yield f"odds of A:B: that A is put ahead of B; p adjusted over {count(len(pairs), 'pair')} of groups and prompts"


# What has to be known to read the table, the weightiest first.


def _notes(results: ListwiseResults, cells: Cells) -> Notes:
    """How answers came out, what figures can be, and what was tested."""
    design, answers = results.design, results.answers.values()
    findings = {key: of for key, of in results.findings.items() if condition_of(key) != REPEAT}
    if design.contrasts:  # as many as can be read; of all the page has a table
        first = [key for key in _pairs_shown(results) if key.condition == design.conditions[0]]
        findings = {key: findings[key] for key in first if key in findings}
    if missing := sum(chains.asked - chains.ranked for chains in results.chains.values()):
        why = ", ".join(f"{name} {n:,}" for name, n in results.failures.items()) or "not asked yet"
        yield f"{count(missing, 'chain')} without a ranking ({why}); measures speak of the others"
    if design.design == "partition":
        yield (
            f"{window_text(design)}, each item shown once per order ({count(design.orders, 'order')}): nothing is "
            "ranked, so there is no P@20, nDCG or ExpRatio (--design ranking orders whole lists)"
        )
    for condition, finding in findings.items():
        if design.label_error is not None and finding.odds_of_label_error is not None:
            odds = ", ".join(f"{odds:.3f} of {name}" for name, odds in finding.odds_of_label_error.items())
            yield odds_text(design.label_error, f"{odds} items ({condition})")
    for condition, stopped in results.stopping.items():
        yield settled_text(condition, stopped, results.band, "window")
    yield from phrases.passed_over("the labels" if design.strategy else "well-formed orders", answers)
    yield from relevance_note(
        {of: row.value for of in design.conditions if (row := cells.get(("RelevanceRatio", of)))}
    )
    classes = sum((Counter(counts.classes) for counts in answers), Counter[str]())
    if bad := {name: n for name, n in sorted(classes.items()) if name != "ok"}:
        unparseable, answered = sum(each.unparseable for each in answers), classes.total()
        repaired = phrases.percent(sum(each.repaired for each in answers), answered)
        yield (
            f"unparseable answers: {phrases.percent(unparseable, answered)} ({unparseable:,} of {answered:,}); "
            f"repaired: {repaired} · {', '.join(f'{name} {n:,}' for name, n in bad.items())}"
        )
    yield from results.warnings
    yield from phrases.few_queries(design.queries)
    yield from plans.queries_lines({"left_out": design.left_out})
    yield from _figure_notes(results, cells)
    for stratum in Stratum:
        figures = {
            name: cells.get((of_stratum(of.measure, stratum), name))
            for name, of in findings.items()
            if stratum in of.strata
        }
        texts = [f"{name} {phrases.interval_text(row, results.band)}" for name, row in figures.items()]
        if measured := [row.measure for row in figures.values() if row and row.value is not None]:
            yield f"{parse_measure(measured[0]).label}: {', '.join(texts)}"
    yield from phrases.found_with(results.findings.values(), "queries", "listwise")
    yield from _test_notes(results, findings, cells)
    omitted = [counts.omitted for counts in answers]
    if items := sum(each.items for each in omitted):
        protected = sum(each.protected or 0 for each in omitted)
        expected = fsum(each.protected_expected or 0 for each in omitted)
        sides = f"{protected:,} of them protected ({expected:.0f} expected by chance); "
        sides *= not design.contrasts
        yield (
            f"items missing from answers: {phrases.percent(items, sum(each.of for each in omitted))} ({items:,}), "
            f"{sides}they count as behind those named"
        )
    yield from phrases.drawn_note(design.drawn)
    for measure in [] if design.contrasts else results.shown:
        by_reason: dict[str, list[str]] = {}
        for condition, counts in results.undefined.get(measure, {}).items():
            if condition != INITIAL:
                by_reason.setdefault(phrases.reasons(counts, measure), []).append(condition)
        yield from (f"{measure} undefined: {why} ({', '.join(of)})" for why, of in by_reason.items())


def relevance_note(ratios: Mapping[str, float | None]) -> Notes:
    """What relevance alone gives the sides, by condition, where that is not parity."""
    uneven = [
        f"{ratio:.3f} ({condition})"
        for condition, ratio in ratios.items()
        if condition != REPEAT and ratio and abs(ratio - 1) >= TELLING
    ]
    if uneven:
        yield (
            f"relevance alone gives an ExpRatio of {', '.join(uneven)}: the table's figures have that in them, "
            "odds and the exposure named in conclusions do not"
        )


def scored_notes(rows: Sequence[tuple[ScoredRun, str, str]]) -> list[str]:
    """What has to be known to read a table of measured rankings; a row is a run, a condition and its name there."""
    relevance = {name: run.relevance.get(condition) for run, condition, name in rows}
    rankings = any(
        OF_RANKINGS in (*run.measures, *(finding.measure for finding in run.findings.values()))
        for run, *_ in rows
    )
    return [*[RANKINGS_NOTE] * rankings, *relevance_note(relevance)]


def _figure_notes(results: ListwiseResults, cells: Cells) -> Notes:
    """What figures can be in this design, the largest gap between two prompts, and how the exposure ratio is made."""
    design, reach = results.design, results.reach.get(RATIO, Reach())
    ratio = next((measure for measure in results.shown if measure.startswith(RATIO)), None)
    if reach.low is not None and ratio:
        yield f"attainable range of ExpRatio on these lists: {_range(reach, 3)}"
    contrasted, size = results.family.contrasted or "", results.family.size
    gaps = {
        abs(log(row.value)): row
        for (name, condition), row in cells.items()
        if name == contrasted
        and SEPARATOR in condition
        and REPEAT not in condition.split(SEPARATOR)
        and row.value
    }
    if gaps and max(gaps) >= TELLING:
        gap = gaps[max(gaps)]
        test = f" ({count(gap.n or 0, 'query', 'queries')}, Holm over {size})"
        test = "" if gap.p_adjusted is None else f", p {p_text(gap.p_adjusted)}{test}"
        measure = results.labels.get(contrasted, contrasted)
        yield f"largest gap: {gap.condition}, × {phrases.cell(gap)} in {measure}{test}"
    if ratio is not None:
        interval = (
            INTERVALS[results.intervals[ratio]].format(design.seed) if ratio in results.intervals else ""
        )
        setting = f"{window_text(design)}, {count(design.orders, design.initial + ' initial order')}"
        parts = (
            "ratio of means" * ("agg=" not in ratio),
            interval,
            setting if design.prompt_sha256 else "whole lists",
            PLAIN * (CONTROLLED in ratio and not results.controlled),
        )
        yield f"{ratio}: {', '.join(filter(None, parts))}"
    yield from (f"{measure}: {note}" for measure, note in results.measure_notes.items())


PLAIN = "too few runs to take out what the initial orders explain: the plain ratio"
INTERVALS = {"linear-t": "t interval over queries", "boot-t": "bootstrap-t interval (seed {})"}


def _test_notes(results: ListwiseResults, findings: Mapping[str, ListwiseFinding], cells: Cells) -> Notes:
    """Both nulls of every prompt."""
    flips, shuffles, how = list[str](), list[str](), ""
    for condition, finding in findings.items():
        row, shuffled = cells.get((finding.measure, condition)), finding.permutation
        if row is not None and row.p_adjusted is not None:
            flips.append(f"{condition} {p_text(row.p_adjusted)}")
        if shuffled is not None and shuffled.p_z is not None:
            how = (
                f"{shuffled.draws:,} shuffles of {'items' if finding.unjudged else 'equally relevant items'}"
                if shuffled.draws
                else "normal approximation"
            )
            text = f"{condition} {p_text(shuffled.p_z if shuffled.p is None else shuffled.p)}"
            if shuffled.ratio_low is not None:
                text += f" (chance {shuffled.ratio_low:.3f} … {shuffled.ratio_high:.3f})"
            shuffles.append(text)
    if flips:
        yield f"test of no preference (Holm over {results.family.size}), p: {', '.join(flips)}"
    if shuffles:
        yield f"permutation test ({how}, one label an item), p: {', '.join(shuffles)}"


def before_text(planned: Record) -> str:
    """Said before the first question: how many there will be, and how lists are gone through."""
    design = planned["design"]
    most = "at most " if design.sequential or design.at_most else ""
    return f"{most}{count(planned['calls'], 'call')}; {window_text(design)}{phrases.on_disk(planned)}"


def window_text(design: ListwiseFacts | Record) -> str:
    """How lists are gone through: the strategy, unless it is windows, and the windows where it has any."""
    how = design if isinstance(design, Mapping) else asdict(design)
    if how.get("design") == "partition":
        return f"partition into random windows of {how['window']}"
    parts = [f"strategy {how['strategy']}"] if how.get("strategy") else []
    if how["window"] is not None:
        parts += [f"window {how['window']}, step {how['step']}", count(how["passes"], "pass", "passes")]
    return ", ".join(parts)


# The verdict of a listwise audit: who gets less exposure, how much, and whether the ranker is of use.


LEFT_AS_SHOWN = 0.5
"""From this share on a verdict says how many windows the answers left as they were."""


class ListwiseWords(VerdictWords):
    """In exposure beyond what relevance explains, and in odds of which the band speaks."""

    def where(self, case: Case, before: str = "") -> str:
        return super().where(case, before) if case.facts.prompted else " " * bool(before)

    def disparity(self, case: Case) -> str:
        """Who gets less exposure, and the queries of the odds where they are others; else who is put behind."""
        finding, figure, groups = _finding(case), case.figure, case.groups
        excess, protected = finding.excess if finding.decisive == "all" else None, bool(case.protected_behind)
        if figure is None or groups is None:
            return super().disparity(case)
        (behind, ahead), level = groups, f"{case.facts.level * 100:g} % CI"
        if excess is not None and (shares := excess.less(protected)):
            less, most, least = phrases.numbers(shares, (0,), 0)
            says = (
                f"{behind} items get {less} % less exposure than {ahead} ones"
                f"{'' if finding.unjudged else ' at equal relevance'} "
                f"({level} {least} to {most} % less, {count(excess.n, 'query', 'queries')}); {case.measured}"
            )
            says += f" ({case.counted})" * (excess.n != figure.n)
        elif figure.value is not None and figure.low is not None and figure.high is not None:
            ends = (figure.value, figure.low, figure.high)
            if not protected:
                ends = (1 / figure.value, 1 / figure.high, 1 / figure.low)
            often, low, high = phrases.numbers([100 * odds / (1 + odds) for odds in ends], (50,), 0)
            alike = "" if finding.unjudged else "equally relevant "
            alike = alike if finding.decisive == "all" else f"{finding.decisive} "
            says = (
                f"the {behind} one of two {alike}items is put ahead of the {ahead} one {often} times in 100 "
                f"({level} {low} to {high}, {case.counted}); {case.measured}"
            )
        else:
            return super().disparity(case)
        return f"{self.where(case)}{says}, outside {case.band}"

    def parity(self, case: Case) -> str:
        """With the odds of relevant items, which count most and are fewest, and how well the ranker does its job."""
        parts, useful = [super().parity(case)], _finding(case).useful
        if figure := case.facts.figures.get((of_stratum(case.finding.measure, "relevant"), case.key)):
            parts.append(f"of relevant items alone {phrases.interval_text(figure, case.facts.band)}")
        if useful is not None and useful.low is not None:
            utility = Figure(useful.value, useful.low, useful.high, useful.n, None, None, None, None)
            interval = f"{phrases.interval_text(utility, (useful.chance,))} (99.9 % CI)"
            text = f"{useful.measure} lies {interval} above that of {useful.against}"
            if useful.chance:
                text = (
                    f"the more relevant of two items is put ahead at odds of {interval}, where chance has 1"
                )
            parts.append(text)
        return "; ".join(parts)

    def caution(self, case: Case) -> str:
        finding = _finding(case)
        left = f"; answers left {100 * finding.left_as_shown:.0f} % of first windows as they were"
        cautions = UNJUDGED_TEXT * finding.unjudged + left * (finding.left_as_shown >= LEFT_AS_SHOWN)
        return cautions + super().caution(case)

    def settle(self, case: Case) -> str:
        """What parity lacks where the estimate lies in the band without it; else what would settle it."""
        useless, value = case.finding.useless, None if case.figure is None else case.figure.value
        low, high = case.facts.band
        if value is None or not low <= value <= high or useless is None:
            return super().settle(case)
        return ADVICE[useless]

    def look(self, case: Case) -> str:
        measures = case.facts.measures
        if ratio_of(measures, declared(measures), of_queries=True) is None:  # nothing tells queries apart
            return f"single answers: llmfair runs show {case.run} --answers{case.mitigation}"
        mitigated = case.facts.run is not None and not case.key.contrast
        remedies = f" · mitigate: llmfair mitigate {case.run}" * mitigated
        return f"llmfair runs show {case.run} --furthest{case.mitigation or remedies}"


def _finding(case: Case) -> ListwiseFinding:
    return cast(ListwiseFinding, case.finding)


# The answers of a run folder.


ORDERED_BY = ("window", "step", "passes", "depth", "windows")


def how_ended(row: Record, settings: Record) -> str:
    """How an answer of the journal ended, read as its run read it: `ok`, or what was wrong with it."""
    options = (settings[name] for name in ORDERED_BY)
    question = _question(settings.get("strategy", "windows"), *options)
    return str(question.read(completion_of(row), len(row["about"]["doc_ids"]), "strict").answer_class)


@lru_cache
def _question(spec: str, *options: Any) -> Question:
    """What a strategy asks with these settings of ordering: the same for each of a million answers."""
    return strategy_of(spec, dict(zip(ORDERED_BY, options, strict=True))).question


# The figures of listwise audits, of one and of several side by side.


def listwise_plots(results: ListwiseResults, declared: Declared) -> Iterator[Plot]:
    """Utility and exposure, or preference where nothing is ranked; the headline and its band."""
    cells = results.by_key()
    design = results.design
    conditions = [name for name in design.conditions if results.chains[name].ranked]
    across, up = utility_of(results.shown, declared) or "", ratio_of(results.shown, declared) or ""
    points = list[Point]()
    for condition in (*conditions, INITIAL) if across and up else ():
        utility = value_of(cells.get((across, condition)))
        # of the input there is nothing to control for
        ratio = on_log(value_of(cells.get((up, condition)) or cells.get((plain_name(up), condition))))
        if utility and ratio:
            points.append((TITLES.get(condition, condition), utility, ratio))
    if points:
        of = results.reach.get(plain_name(up), Reach())
        reach = None if of.low is None or of.high is None else (of.low, of.high)
        yield utility_and_ratio(points, plain_name(across), plain_name(up), reach)
    if not design.contrasts:
        yield from headline_plots(results, conditions, declared, TITLES)
        return
    prompt = conditions[0] if results.verdict is None else results.verdict.condition
    pairs = [key for key in _pairs_shown(results) if key.condition == prompt and key in results.findings]
    contrasts: dict[str, str] = {key: key.contrast for key in pairs}
    yield from headline_plots(results, pairs, declared, contrasts, f" ({prompt} prompt)")
    odds = [row for row in results.of_all() if (row.measure, row.condition) == ("GroupOdds", conditions[0])]
    rows = [(row.group, on_log(value_of(row))) for row in odds]
    if any(value for *_, value in rows):
        title = f"Each group against the mean of all ({conditions[0]} prompt)"
        yield ratios(rows, "odds of answers", results.band, title, f"{HEADLINES}-of-groups")


# Queries whose lists are far from parity, both rankings side by side.


def furthest_lists(
    folder: Path, results: ListwiseResults, exhibits: Exhibits, by: str
) -> groups.Furthest | None:
    """The queries whose own value of the measure `by` is furthest from parity under some prompt; of several contrasts,
    in the one that the verdict speaks of."""
    design, titles, (lists, ranked) = results.design, exhibits.titles, read_lists(folder)
    contrast = "" if results.verdict is None else results.verdict.contrast
    protected, unprotected = Key("", contrast=contrast).groups if contrast else Side
    others = [*design.groups] if unprotected == OTHERS else [unprotected]
    side_of: dict[str | None, Side] = {**dict.fromkeys(others, Side.UNPROTECTED), protected: Side.PROTECTED}
    conditions = [Key(condition, contrast=contrast) for condition in design.conditions if condition != REPEAT]

    def show(query_id: str, values: groups.Values) -> groups.FurthestQuery | None:
        """The prompt furthest from parity, and beside it the one furthest from that."""
        asked = {key: ranked.get(condition_of(key), {}) for key in values}
        of_query = {key: of[query_id] for key, of in asked.items() if query_id in of}
        values = {name: values[name] for name in conditions if name in of_query}
        if not values:
            return None
        far = max(values, key=lambda condition: groups.distance([values[condition]]))
        others = [condition for condition in values if condition != far]
        beside = max(others, key=lambda condition: abs(values[condition] - values[far]), default=None)
        row = lists[query_id]
        facts = {
            d: (side_of.get(group), rel > 0)
            for d, group, rel in zip(row.doc_ids, row.side, row.relevance, strict=True)
        }
        rankings = []
        for condition in (name for name in values if name in (far, beside)):
            order, doc_ids = of_query[condition]
            begun = f", {design.initial} initial order {order + 1} of {design.orders}"
            items = [groups.Item(titles.get(d, d), *facts.get(d, (None, False))) for d in doc_ids]
            rankings.append(
                (f"{condition_of(condition)} prompt" + begun * (design.prompt_sha256 is not None), items)
            )
        text = groups.figures_text(values, groups.named(by, results), TITLES)
        return groups.FurthestQuery(exhibits.queries.get(query_id, query_id), text, rankings)

    return groups.furthest_from_parity(folder, results, conditions, by, "prompts and initial orders", show)


# What the page of a listwise audit has of its own.


def listwise_section(results: ListwiseResults, folder: Path, exhibits: Exhibits) -> Section:
    """Exposure under every prompt, its lists, and the queries whose lists are furthest from parity."""
    table, measures, design = listwise_table(results), exhibits.measures, results.design
    by = ratio_of(results.measures, measures, of_queries=True)
    orders = f"{count(design.orders, design.initial + ' order')}, {count(design.repeats, 'repeat')}"
    facts = [("windows", window_text(design)), ("initial orders", orders)]
    of_others = any(contrast.endswith(f":{OTHERS}") for contrast in design.contrasts)
    of_several = [OF_OTHERS if of_others else OF_PAIRS] * bool(design.contrasts)
    return Section(
        table=table,
        plots=list(listwise_plots(results, measures)),
        more=[*strata_table(results)],
        furthest=furthest_lists(folder, results, exhibits, by) if by else None,
        words=[*METHOD[design.window is None :], *of_several],  # the first speaks of windows
        facts=[] if design.prompt_sha256 is None else facts,
    )


# A planned listwise audit in a table and sentences.


UNKNOWN = {
    "no_model_asked": "what it can find is planned for models only",
    "order_not_random": "what it can find is known for --initial random only",
    "no_list_of_both_sides": "no list has items of both groups: nothing can be found",
    "no_common_grade": "no list has items of both groups with the same grade of relevance: nothing can be found",
    "several_groups": "what it can find is simulated for two groups; all pairs and prompts share the error, so fewer "
    "prompts (--conditions) or --contrast reference:GROUP find more",
    "sequential": "--sequential asks until each prompt is settled, so what it finds is not planned; leave it out to "
    "see what all windows find",
    "too_few_queries": f"no interval, which needs {FEWEST_QUERIES} queries",
}
ANSWERS = {0.0: "fresh every time", 1.0: "alike every time"}


def plan_text(planned: Record) -> str:
    """What a dry run says; and a plan, where no effect can be tabled."""
    if "strategies" in planned:
        strategies = [
            f"{_named(plan)}: {'at most ' * plan.at_most}{count(plan.calls, 'call')}, about {plan.prompt_tokens:,} "
            f"tokens in, {plan.completion_tokens:,} out, {count(plan.longest_chain, 'round')}"
            for plan in convert(planned["strategies"], list[StrategyPlan])
        ]
        return plans.told(
            _asked(planned), [*strategies, f"together: {plans.calls_line(planned)}", *planned["unready"]]
        )
    if planned["prompt_sha256"] is None:
        first = f"{_lists(planned)} × {count(planned['orders'], 'order')} · no model is asked"
        return "\n".join([first, *plans.queries_lines(planned), "Nothing was ranked.", ""])
    finds = "what it can find, and its cost: llmfair plan listwise, with the same flags"
    if "findable" in planned:
        finds = UNKNOWN[planned["findable"]["reason"]]
    return plans.told(_design(planned), _lines(planned, [finds]))


def plan_table(planned: Record) -> Table | None:
    """How audits of the design end, with everything else below it; None where that is not known.

    Of several strategies what each takes, can reach and can find.
    """
    findable = convert(planned["findable"], ListwiseFindable)
    ends: list[Column[Prospect]] = [
        (f"disparity at {findable.odds:g}", lambda each: plans.share_with_error(vars(each), "disparity")),
        ("queries for disparity", lambda each: _queries(each.queries_for_disparity)),
        ("parity at 1", lambda each: plans.share_with_error(vars(each), "parity")),
        ("queries for parity", lambda each: _queries(each.queries_for_parity)),
        ("smallest odds found", lambda each: "none" if each.smallest is None else f"{each.smallest:.2f}"),
    ]
    if "strategies" in planned:
        columns: list[Column[StrategyPlan]] = [
            ("strategy", _named),
            ("calls", lambda plan: "at most " * plan.at_most + f"{plan.calls:,}"),
            ("tokens in", lambda plan: plan.prompt_tokens),
            ("out", lambda plan: plan.completion_tokens),
            ("rounds", lambda plan: plan.longest_chain),
            ("attainable ExpRatio", lambda plan: _range(plan.reach)),
            *(
                (heading, lambda plan, end=end: plans.spread(map(end, plan.prospects)))
                for heading, end in ends
            ),
        ]
        notes = (
            "tokens are characters / 4; rounds: calls of the longest chain that wait for each other",
            *_findable_lines(planned, findable),
            f"together: {plans.calls_line(planned)}",
            *planned["unready"],
            "Nothing was asked.",
        )
        return Table.of(_asked(planned), columns, convert(planned["strategies"], list[StrategyPlan]), notes)
    if not findable.prospects:
        return None

    def answers(prospect: Prospect) -> str:
        share = f"{100 * prospect.alike:g} % of windows alike every time"
        return f"{ANSWERS.get(prospect.alike, share)} (--alike {prospect.alike:g})"

    lines = _lines(planned, _findable_lines(planned, findable))
    return Table.of(
        _design(planned), [("answers", answers), *ends], findable.prospects, (*lines, "Nothing was asked.")
    )


def _queries(number: int | None) -> str:
    return "none" if number is None else f"about {number:,}"


def _named(plan: StrategyPlan) -> str:
    """A strategy with its windows, where it has any."""
    return plan.strategy + ("" if plan.window is None else f" {plan.window}/{plan.step}x{plan.passes}")


def _design(planned: Record) -> str:
    chains = f"{count(planned['chains'], 'chain')} of up to {planned['longest_chain']:,}"
    return f"{_asked(planned)} × {count(planned['orders'], 'order')} · {window_text(planned)} · {chains}"


def _asked(planned: Record) -> str:
    prompts = planned["conditions"]
    return f"{_lists(planned)} × {count(len(prompts), 'prompt')} ({', '.join(prompts)})"


def _lists(planned: Record) -> str:
    return (
        f"{count(planned['queries'], 'query', 'queries')} × {phrases.span(*planned['candidates'])} candidates"
    )


def _lines(planned: Record, finds: Iterable[str]) -> list[str]:
    """What asking takes, what can be reached, and what is found."""
    reach, simulated = convert(planned["reach"], dict[str, Reach]), f"simulated, seed {planned['seed']}"
    ratio, precision = reach.get(RATIO, Reach()), reach.get(PRECISION, Reach())
    lines = list[str]()
    if ratio.low is not None:
        lines.append(
            f"{window_text(planned)}, random orders: attainable range of ExpRatio on these lists {_range(ratio)} "
            f"({phrases.span(*planned['protected'])} of {phrases.span(*planned['candidates'])} protected; {simulated})"
        )
    if planned["initial"] not in ("random", "mirrored"):
        lines.append(NOTHING_CONCLUDED)
    if precision.high is not None:
        lines.append(f"P@20 of a perfect ranker {precision.high:.2f} on average ({simulated})")
    return plans.plan_lines(planned, [*lines, *finds])


def _findable_lines(planned: Record, findable: ListwiseFindable) -> Notes:
    """What was simulated, and what its shares and numbers of queries are of."""
    if findable.prospects:
        yield (
            f"chances of a verdict under one of {count(findable.prompts, 'prompt')} in "
            f"{findable.prospects[0].audits} simulated audits of these lists (seed {planned['seed']}; ± Monte Carlo "
            f"error); log odds of the first slot against the last {findable.slots:+g} (--slots), standard "
            f"deviation {findable.tau:g} over queries (--tau)"
        )
        yield (
            f"queries for: a chance of {100 * findable.target:g} %, of queries like these; smallest odds found: with "
            "that chance in disparity; odds above 1: their inverse; none: there are none, or a list compares too "
            "little to know"
        )
        if findable.prompts > 1:
            yield "a run ends in disparity where one prompt does, in parity where every one does"
    if (expected := findable.expected) is not None:
        yield (
            f"ExpRatio to expect of odds of {findable.odds:g} if noise is fresh: {expected.agnostic:.3f} of a ranker "
            f"that does not look at relevance, {expected.relevant:.3f} of one that orders by it"
        )


def _range(reach: Reach, decimals: int = 2) -> str:
    return "" if reach.low is None else f"{reach.low:.{decimals}f} … {reach.high:.{decimals}f}"


# A calibration in a table and sentences: what simulated audits of injected preferences found.


def calibrate_table(results: Record) -> Table:
    """One row an injected preference: what was recovered, how intervals and tests did, what was concluded."""
    settings, design, test = results["settings"], results["design"], results["smallest"]
    size = f"{count(design['queries'], 'query', 'queries')} × {phrases.span(*design['candidates'])}"
    columns: list[Column[Record]] = [
        ("injected odds", plans.injected),
        ("recovered", lambda row: "none" if row["odds"] is None else f"{row['odds']:.3f}"),
        (plans.held(results), lambda row: plans.share_with_error(row, "covered")),
    ]
    (below, above), without = test["odds"], design["without_comparison"]
    smallest = "smallest odds found: too few queries for a test"
    if below is not None:
        smallest = (
            f"smallest odds found with {100 * test['power']:g} % power: {below:.2f} or {above:.2f} "
            f"({count(test['queries'], 'query', 'queries')}, standard error of ln odds {test['error']:.4f})"
        )
    notes = [
        f"{window_text(settings)}, {count(settings['orders'], 'random initial order')}; "
        f"{100 * settings['alike']:g} % of windows answered with the same noise every time (--alike), log odds of the "
        f"first slot against the last {settings['slots']:+g} (--slots)",
        "injected: odds of a protected item against an equally relevant other; recovered: median preference odds; "
        "± Monte Carlo error",
        "within: where the interval lies; parity also needs a ranker that does its job",
        plans.false_alarms(
            results["injected"], results["level"], lambda row: "", "too few queries for a test"
        ),
        smallest,
        *plans.undefined_notes(results["injected"], results["runs"]),
        *[f"{count(without, 'query', 'queries')} without equally relevant items of both groups left out"]
        * bool(without),
        *phrases.few_queries(design["queries"] - without),
    ]
    return plans.calibration_table(results, size, columns, notes)


# The words of the kind.


def differences(settings: Record, differ: Sequence[str]) -> list[str]:
    """A strategy as it is spelled, else windows as `20/10x3`; then others by name."""
    windows = ("window", "step", "passes")
    parts = ["{window}/{step}x{passes}".format_map(settings)] if {*windows} & {*differ} else []
    if "strategy" in differ:  # its prompt and what is read of answers go with it
        return [str(settings.get("strategy", "windows")), *parts]
    return parts + by_name(settings, [name for name in differ if name not in windows])


WORDS = Wording(
    title="Listwise audit",
    condition="prompt",
    unit="chains",
    titles=TITLES,
    method=METHOD,
    before=before_text,
    plan_table=plan_table,
    plan_text=plan_text,
    calibration_table=calibrate_table,
    verdict=ListwiseWords("prompt", TITLES).verdict,
    table=listwise_table,
    section=listwise_section,
    differences=differences,
    how_ended=how_ended,
    what_was_shown=ranks_of,
    concluded=conclusion,
    scored_notes=scored_notes,
)


# A study of windows.


def reached(setting: Record) -> dict[str, str]:
    """By column, what a ranker that always puts one side first reads, either way, and a perfect one."""
    reach = convert(setting["reach"], dict[str, Reach])
    perfect = reach.get(PRECISION, Reach()).high
    return {
        f"attainable {RATIO}": _range(reach.get(RATIO, Reach()), 3),
        f"perfect {PRECISION}": "" if perfect is None else f"{perfect:.2f}",
    }


WINDOWS = StudyWording(
    method=(
        "The same model orders the same lists under several windows and steps; each setting is a run of its own.",
        "What a ratio can be at all depends on the windows: the dry run and each run say what rankers that "
        "always put one group first would read. A ratio near 1 in a setting with a narrow range says little.",
    ),
    plan_table=lambda planned: study_plan_table(planned, reached),
)
