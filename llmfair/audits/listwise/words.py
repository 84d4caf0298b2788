"""A listwise audit in its table, sentences and plots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import fsum, log
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from llmfair.audits.listwise.measure import INITIAL, SEPARATOR
from llmfair.audits.listwise.results import (
    Excess,
    ListwiseFacts,
    ListwiseFinding,
    ListwiseResults,
    WindowAnswers,
)
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.runs.exhibits import declared
from llmfair.audits.runs.stopping import settled_text
from llmfair.audits.verdict import ADVICE, Case, VerdictWords
from llmfair.errors import UsageError
from llmfair.io.files import read_lines
from llmfair.io.trec import read_run
from llmfair.metrics.base import CONTROLLED, plain_name
from llmfair.nouns import Attribute, Candidates, Conclusion, Document, Query
from llmfair.probes import REPEAT, initial_orders
from llmfair.report.exhibits import Declared, Exhibits
from llmfair.report.figures import (
    headline_plots,
    on_log,
    ratio_of,
    reach_of,
    utility_of,
    value_of,
)
from llmfair.report.groups import (
    DRAWN,
    AuditedRun,
    Furthest,
    FurthestQuery,
    Group,
    Item,
    Values,
    distance,
    figures_text,
    furthest_from_parity,
    named,
)
from llmfair.report.plots.base import MARKS, Look, Plot, palette
from llmfair.report.plots.ratios import Point, exposure_curve, rank_boxes, utility_and_ratio
from llmfair.report.section import SHOWN_VERDICTS, Section, VerdictCard, condition_verdicts, verdict
from llmfair.report.tables import (
    Table,
    audited_note,
    calls_of,
    cell,
    columns_of,
    count,
    differs_text,
    drawn_note,
    few_queries,
    filled,
    found_with,
    headings,
    held_note,
    in_words,
    interval_text,
    numbers,
    on_disk,
    p_text,
    percent,
    reasons,
    span,
    the_same,
    uncut_notes,
    unparseable_text,
    window_notes,
    with_interval,
)
from llmfair.results import Figure, Reach, Row
from llmfair.rundir import ONE_OF_SEVERAL, RunDir

# What a report says of listwise audits.


TITLES = {INITIAL: "initial ranking"}
"""Conditions that are not called by their names."""
WORDS = (
    "The model orders every candidate list under a neutral prompt and under prompts that name each group. A "
    "window slides from the end of the list to its head; what the model puts first in one window is carried "
    "into the next.",
    "Exposure of the item at rank a is 1 / ln(1 + a): the head weighs most. Each group's exposure is the mean "
    "over its items; the ratio of the protected group's to the other's is 1 at parity, wherever relevance is "
    "spread alike.",
    "Conclusions speak of preference odds: those with which the model puts a protected item ahead of an equally "
    "relevant other one where it sees both for the first time at once, whatever slots they stand in. They are "
    "fitted by a logistic model with a smooth effect of the slot, each query weighing alike; what later windows "
    "show together was chosen by earlier answers, so it does not count. That the odds lie within the band is said "
    "only of a ranker that orders by relevance better than its initial order does.",
    "Each query is one unit: intervals and tests go over queries. p is adjusted (Holm) over the family that "
    "the notes below the table name.",
)


OF_RANKINGS = (
    "preference odds of a ranking: over all equally relevant pairs of a list; of a run folder they are its final "
    "lists', not its answers'"
)
TELLING = 0.01
"""From this distance from parity on, what relevance alone gives the sides is told."""
SHOWN_LEFT_OUT = 3
NOTHING_CONCLUDED = "nothing is concluded from an order that is not random (--initial random)"
RATIO, PRECISION = "ExpRatio", "P@20"
"""The measures whose attainable range a design knows."""
Cells = Mapping[tuple[str, str], Row]


def conclusion(finding: ListwiseFinding, row: Figure | None, band: tuple[float, float], level: float) -> str:
    """The conclusion of one condition: where its preference odds lie, and whether they differ from parity at all."""
    verdict, (low, high), odds = finding.conclusion, band, finding.odds
    if verdict == "not_assessable" or odds is None:
        return f"not assessable: {in_words(finding.reason, finding.measure)}"
    if verdict != "outside":
        text = f"preference odds within {low:g}–{high:g}" if verdict == "within" else "inconclusive"
        return text + differs_text(None if row is None else row.p_adjusted, odds.low, odds.high, level)
    less = odds.bound == "at most" if odds.value is None else odds.value < 1
    text = f"preference odds {f'below {low:g}' if less else f'above {high:g}'}"
    if finding.excess is None or not finding.excess.excludes_parity(less):
        return text
    share = round(abs(finding.excess.value - 1) * 100)
    return text + f": {share} % {'less' if less else 'more'} exposure at equal relevance" * bool(share)


def listwise_table(results: ListwiseResults) -> Table:
    """The listwise audit as a table: one row a prompt, one column a measure, or one for each of its groups."""
    figures = {(row.measure, row.group, row.condition): row for row in results.of_all()}
    cells = {(measure, condition): row for (measure, group, condition), row in figures.items() if not group}
    design, conditions = results.design, results.design.conditions
    asked = (row for row in figures.values() if row.condition in (*conditions, INITIAL))
    columns = columns_of(results.shown, asked, results.verdict)
    doubled = the_same([measure for measure, group in columns if not group], [*conditions, INITIAL], cells)
    columns = [column for column in columns if column[0] not in doubled]
    header = (
        "prompt",
        *headings(columns, results, with_interval(results.rows)),
        "conclusion" if results.findings else "note",
    )
    said = {condition: _words(condition, results, cells) for condition in conditions}
    rows = [
        (name, *(cell(figures.get((*column, name)), results.band) for column in columns), said[name])
        for name in conditions
    ]
    # of the input there is nothing to control for: its own figure stands in the column
    inputs = [
        cell(figures.get((m, group, INITIAL)) or cells.get((plain_name(m), INITIAL))) for m, group in columns
    ]
    if any(inputs):
        rows.append((TITLES[INITIAL], *inputs, "before the model"))
    title = [
        "Listwise",
        *audited_note(results),
        f"{count(design.queries, 'query', 'queries')} × {span(*design.candidates)}",
        "no model asked" if design.prompt_sha256 is None else f"{calls_of(results)} calls",
        *([f"preset {design.preset}"] if design.preset else []),
    ]
    return filled(
        Table(
            " · ".join(title),
            header,
            tuple(rows),
            tuple(_notes(results, cells, doubled)),
            said if results.findings else {},
            sees=results.sees,
            repeated=frozenset(at for at, name in enumerate(conditions) if name == REPEAT),
        )
    )


def _words(condition: str, results: ListwiseResults, cells: Cells) -> str:
    """What a row comes to, after how much of it was ranked; nothing is said without a readable answer."""
    chains, finding = results.chains[condition], results.findings.get(condition)
    answers = results.answers.get(condition)
    part = f"{chains.ranked} of {chains.asked} chains" * (chains.ranked < chains.asked)
    if answers and 0 < answers.windows == answers.unparseable:
        said = "no parseable answer: the initial ranking"
    elif unparseable := unparseable_text(condition, results):
        said = unparseable
    elif condition == REPEAT:
        said = "the same prompt, the same orders"
    elif finding:
        said = conclusion(finding, cells.get((finding.measure, condition)), results.band, results.level)
    else:
        said = ""
    return "; ".join(filter(None, (part, said)))


def _notes(results: ListwiseResults, cells: Cells, doubled: Mapping[str, str]) -> list[str]:
    """What has to be known to read the table, the weightiest first."""
    design, answers = results.design, [*results.answers.values()]
    relevance = {
        name: row.value for name in design.conditions if (row := cells.get(("RelevanceRatio", name)))
    }
    notes = [
        _failed(results),
        f"{window_text(design)}, each item shown once per order ({count(design.orders, 'order')}): nothing is "
        "ranked, so there is no P@20, nDCG or ExpRatio (--design ranking orders whole lists)"
        if design.design == "partition"
        else None,
        *(
            settled_text(condition, stopped, results.band, results.level, "window")
            for condition, stopped in results.stopping.items()
        ),
        held_note("the labels" if design.strategy else "well-formed orders", answers)
        if design.constrained
        else None,
        *relevance_note(relevance),
        _equal_scores(answers),
        _unparseable(answers),
        *results.warnings,
        *few_queries(design.queries),
        *_lists_notes(design),
        _order_note(results, cells),
        _attainable(results),
        _gap_note(results, cells),
        *(f"{measure}: {note}" for measure, note in _precision_notes(results)),
        _ratio_note(results),
        *(f"{measure}: {note}" for measure, note in results.of_measures.items()),
        *(f"{measure} equals {other} here" for measure, other in doubled.items()),
        *found_with("preference odds of {:g}", results.findings.values(), "queries", "listwise"),
        *_test_notes(results, cells),
        *_noise_notes(results, cells),
        *window_notes(design.never_ranked, design.window, design.step),
        _missing(answers),
        *drawn_note(design.drawn),
        *_undefined_notes(results),
    ]
    return [note for note in notes if note]


def _failed(results: ListwiseResults) -> str | None:
    failed = sum(chains.asked - chains.ranked for chains in results.chains.values())
    why = ", ".join(f"{name} {n:,}" for name, n in results.failures.items()) or "not asked yet"
    return (
        f"{count(failed, 'chain')} without a ranking ({why}); measures speak of the others"
        if failed
        else None
    )


def _test_notes(results: ListwiseResults, cells: Cells) -> Iterator[str]:
    """Both nulls of every prompt, with the size of the family that the first is adjusted over."""
    flips, shuffles, draws = list[str](), list[str](), 0
    for condition, finding in results.findings.items():
        row, shuffled = cells.get((finding.measure, condition)), finding.permutation
        if condition == REPEAT:
            continue
        if row is not None and row.p_adjusted is not None:
            flips.append(f"{condition} {p_text(row.p_adjusted)}")
        if shuffled is not None and shuffled.p_z is not None:
            draws = shuffled.draws or 0
            text = f"{condition} {p_text(shuffled.p_z if shuffled.p is None else shuffled.p)}"
            if shuffled.ratio_low is not None and shuffled.ratio_high is not None:
                text += f" (chance {shuffled.ratio_low:.3f} … {shuffled.ratio_high:.3f})"
            shuffles.append(text)
    if flips:
        size = results.family.size
        yield f"sign-flip test (mean over queries, Holm over {size}), p: {', '.join(flips)}"
    if shuffles:
        how = f"{draws:,} shuffles of equally relevant items" if draws else "normal approximation"
        yield f"within-query permutation test ({how}), p: {', '.join(shuffles)}"


def _gap_note(results: ListwiseResults, cells: Cells) -> str | None:
    """The largest difference between two prompts, paired by query, the greater over the smaller."""
    measure = results.family.contrasted
    pairs = [
        (abs(log(row.value)), condition, row)
        for (name, condition), row in cells.items()
        if name == measure
        and SEPARATOR in condition
        and REPEAT not in condition.split(SEPARATOR)
        and row.value
    ]
    if not pairs:
        return None
    _, condition, row = max(pairs, key=lambda pair: pair[:2])
    figures, names = [row.value, row.low, row.high], condition.split(SEPARATOR)
    if row.value and row.value < 1:
        figures, names = [value and 1 / value for value in (row.value, row.high, row.low)], names[::-1]
    value, low, high = figures
    text = f"largest gap: {' against '.join(names)}, × {value:.3f} in {results.labels.get(measure or '', measure)}"
    text += "" if row.low is None else f" [{low:.3f}, {high:.3f}]"
    if row.p_adjusted is None:
        return text
    queries = count(row.n or 0, "query", "queries")
    return f"{text}, p {p_text(row.p_adjusted)} (sign flip, {queries}, Holm over {results.family.size})"


def _noise_notes(results: ListwiseResults, cells: Cells) -> Iterator[str]:
    """How far the same prompt moves by itself: over other initial orders, and asked again from the same ones."""
    noises = ((name, finding.run_noise) for name, finding in results.findings.items() if finding.run_noise)
    for condition, noise in list(noises)[:1]:
        orders = count(results.design.orders, "random order")
        yield f"Monte Carlo error of ExpRatio from {orders}: ± {100 * 1.96 * noise.error:.1f} % ({condition})"
    for measure in results.measures:
        floor = cells.get((measure, f"{REPEAT}{SEPARATOR}neutral"))
        if not measure.startswith("RBO") or not floor or floor.value is None:
            continue
        pairs = [f"repeat {floor.value:.2f}"]
        for condition in results.design.conditions:
            row = cells.get((measure, f"{condition}{SEPARATOR}neutral"))
            if condition != REPEAT and row and row.value is not None:
                p = "" if row.p is None else f" (p {p_text(row.p)})"
                pairs.append(f"{condition} {row.value:.2f}{p}")
        if len(pairs) > 1:
            yield f"rank agreement with neutral ({measure}): {', '.join(pairs)}"


def _order_note(results: ListwiseResults, cells: Cells) -> str | None:
    """Of an initial order that is not random: its own ratio, and what it hands on to any ranker."""
    design, initial = results.design, cells.get((RATIO, INITIAL))
    if design.initial == "random" or not initial or initial.value is None:
        return None
    text = f"ExpRatio of the initial ranking ({design.initial}) is {initial.value:.3f}"
    indifferent = results.reach.get(RATIO, Reach()).indifferent
    if indifferent is None:
        return text
    return f"{text}; of a ranker without any preference it would be {indifferent:.3f}"


def relevance_note(ratios: Mapping[str, float | None]) -> list[str]:
    """What relevance alone gives the sides, by condition, where that is not parity."""
    uneven = [
        f"{ratio:.3f} ({condition})"
        for condition, ratio in ratios.items()
        if condition != REPEAT and ratio and abs(ratio - 1) >= TELLING
    ]
    if not uneven:
        return []
    return [
        f"relevance alone gives an ExpRatio of {', '.join(uneven)}: the table's figures have that in them, preference "
        "odds and the exposure named in conclusions do not"
    ]


def _attainable(results: ListwiseResults) -> str | None:
    """The exposure ratios between rankers that always put one group first."""
    ratio = results.reach.get(RATIO, Reach())
    if ratio.low is None or ratio.high is None or not any(m.startswith(RATIO) for m in results.shown):
        return None
    return f"attainable range of ExpRatio on these lists: {ratio.low:.3f} … {ratio.high:.3f}"


def _ratio_note(results: ListwiseResults) -> str | None:
    """How the exposure ratio is aggregated and its interval made."""
    ratio = next((measure for measure in results.shown if measure.startswith(RATIO)), None)
    if ratio is None:
        return None
    design, interval = results.design, results.intervals.get(ratio)
    how = ["ratio of means"] * ("agg=" not in ratio)
    if interval is not None:
        named = {
            "linear-t": "t interval over queries",
            "boot-t": f"bootstrap-t interval (seed {design.seed})",
        }
        how.append(named[interval])
    setting = f"{window_text(design)}, {count(design.orders, design.initial + ' initial order')}"
    parts = [", ".join(how), setting if design.prompt_sha256 is not None else "whole lists"]
    if CONTROLLED in ratio and not results.controlled:
        parts.append("too few runs to take out what the initial orders explain: the plain ratio")
    return f"{ratio}: {'; '.join(filter(None, parts))}"


def before_text(planned: Mapping[str, Any]) -> str:
    """Said before the first question: how many there will be, and what the answers can show at all."""
    design, indifferent = planned["design"], planned["reach"].get(RATIO, Reach()).indifferent
    most = "at most " if design.sequential or design.at_most else ""
    text = f"{most}{count(planned['calls'], 'call')}; {window_text(design)}"
    if indifferent is not None:
        text += (
            f"; ExpRatio of a ranker without any preference on these lists, from initial order {design.initial}: "
            f"{indifferent:.2f}; {NOTHING_CONCLUDED}"
        )
    return text + on_disk(planned)


def _precision_notes(results: ListwiseResults) -> list[tuple[str, str]]:
    """What precision can be in this setting: measures with a sentence each."""
    reach, longest = results.reach.get(PRECISION, Reach()).high, results.design.candidates[1]
    uncut = uncut_notes(declared(results.shown), longest)
    if reach is None or PRECISION not in results.shown or longest <= 20:
        return uncut
    perfect = f"about {reach:.2f} on average over random orders for a perfect ranker in this setting"
    return [*uncut, (PRECISION, perfect)]


def _undefined_notes(results: ListwiseResults) -> list[str]:
    """Queries without a value of the measures shown, said once where measures and rows share the reasons."""
    texts: dict[tuple[str, str], list[str]] = {}
    names = headings([(measure, "") for measure in results.shown], results)
    for measure, name in zip(results.shown, names, strict=True):
        by_reason: dict[str, list[str]] = {}
        for condition, counts in results.undefined.get(measure, {}).items():
            if condition != INITIAL:
                by_reason.setdefault(reasons(counts, measure), []).append(condition)
        for why, conditions in by_reason.items():
            all_rows = len(conditions) == len(results.design.conditions)
            texts.setdefault((why, "" if all_rows else f" ({', '.join(conditions)})"), []).append(name)
    return [f"undefined: {why}{whose}: {', '.join(names)}" for (why, whose), names in texts.items()]


def window_text(design: ListwiseFacts | Mapping[str, Any]) -> str:
    """How lists are gone through: the strategy, unless it is windows, and the windows where it has any."""
    how = design if isinstance(design, Mapping) else asdict(design)
    if how.get("design") == "partition":
        return f"partition into random windows of {how['window']}"
    parts = [f"strategy {how['strategy']}"] if how.get("strategy") else []
    if how["window"] is not None:
        parts += [f"window {how['window']}, step {how['step']}", count(how["passes"], "pass", "passes")]
    return ", ".join(parts)


def _lists_notes(design: ListwiseFacts) -> Iterator[str]:
    """Queries without a list, and lists that could not be filled."""
    if design.left_out:
        why = list(design.left_out.values())
        more = f"; and {len(why) - SHOWN_LEFT_OUT} more" if len(why) > SHOWN_LEFT_OUT else ""
        yield (
            f"{design.queries} of {design.queries + len(why)} queries kept; without a list: "
            f"{'; '.join(why[:SHOWN_LEFT_OUT])}{more}"
        )
    if design.shrunk:
        yield (
            f"{count(len(design.shrunk), 'list')} with fewer relevant documents than asked, or fewer documents in all "
            "(named in results.json)"
        )


def _equal_scores(answers: Sequence[WindowAnswers]) -> str | None:
    """How many lists have but one score, so that nothing is ranked in them."""
    equal = [one.equal_scores for one in answers if one.equal_scores is not None]
    lists, of = sum(one.lists for one in equal), sum(one.of for one in equal)
    if not lists:
        return None
    return f"all scores are equal in {lists:,} of {count(of, 'list')}: they stay as they were shown"


def _unparseable(answers: Sequence[WindowAnswers]) -> str | None:
    """The share of answers that cannot be parsed, and of those repaired, with their kinds."""
    asked, unparseable, repaired = (
        sum(getattr(one, name) for one in answers) for name in ("windows", "unparseable", "repaired")
    )
    if not unparseable and not repaired:
        return None
    classes = Counter[str]()
    for one in answers:
        classes.update({name: n for name, n in one.classes.items() if name != "ok"})
    kinds = ", ".join(f"{name} {n:,}" for name, n in sorted(classes.items()))
    return (
        f"unparseable answers: {percent(unparseable, asked)} ({unparseable:,} of {asked:,}); "
        f"repaired: {percent(repaired, asked)} · {kinds}"
    )


def _missing(answers: Sequence[WindowAnswers]) -> str | None:
    """Items that answers left out, and whose they are."""
    items, protected = (sum(getattr(one.omitted, name) for one in answers) for name in ("items", "protected"))
    expected = fsum(one.omitted.protected_expected for one in answers)
    text = f"items missing from answers: {items:,}, {protected:,} of them protected ({expected:.0f} expected by chance)"
    return text if items else None


# The verdict of a listwise audit: who gets less exposure, how much, and whether the ranker is of use.


FAR_MORE = 10
"""So many times the queries of a run are no next step."""
RANDOM_WINDOWS = (
    "random windows (--design partition) tell a preference from the slots by fewer calls, where these windows would "
    "take far more queries"
)


class ListwiseWords(VerdictWords):
    """In exposure beyond what relevance explains, and in odds of which the band speaks."""

    def where(self, case: Case) -> str:
        return super().where(case) if case.found.prompted else ""

    def disparity(self, case: Case) -> str:
        less = _exposure(case) or _ahead(case)
        if less is None:
            return super().disparity(case)
        return f"{self.where(case)}{less}; {case.measured}{_of_others(case)}, outside {case.band}"

    def parity(self, case: Case) -> str:
        return "; ".join(filter(None, (super().parity(case), _useful(case))))

    def next(self, gravest: Conclusion, case: Case) -> str:
        text = super().next(gravest, case)
        if case.finding.reason != "order_not_random" or not case.found.preset:
            return text
        options = ListwiseSettings.preset_options().items()
        parts = [f", or +{part} of --preset {case.found.preset}," for part, of in options if "initial" in of]
        return text.replace("--initial", f"--initial{''.join(parts)}", 1)

    def settle(self, case: Case) -> str:
        """What parity lacks where the estimate lies in the band without it; else what would settle it.

        That is more queries, or windows that tell more where queries could not make up for what these leave open.
        """
        finding, value = case.finding, None if case.figure is None else case.figure.value
        low, high = case.found.band
        if not isinstance(finding, ListwiseFinding) or value is None:
            return super().settle(case)
        inside, useful = low <= value <= high, finding.useful
        if inside and useful is None:
            return ADVICE["not_judged"]
        if useful is None or useful.shown or not inside:
            return case.found.by_way(RANDOM_WINDOWS, "slots") if _is_vague(case) else super().settle(case)
        evidence = f" ({_useful(case)})" if _useful(case) else ""
        return (
            "a more able model, or more queries: parity needs a ranker that orders by relevance better than "
            f"{useful.against}, which is not shown{evidence}"
        )

    def look(self, case: Case) -> str:
        measures = case.found.measures
        if ratio_of(measures, declared(measures), of_queries=True) is None:  # nothing tells queries apart
            return f"single answers: llmfair runs show {case.run} --answers{case.mitigation}"
        remedies = "" if case.found.run is None else f" · mitigate: llmfair mitigate {case.run}"
        return f"llmfair runs show {case.run} --furthest{case.mitigation or remedies}"


def _is_vague(case: Case) -> bool:
    """Whether slots or few comparisons leave the odds of a model's rankings open, so that no more queries would do."""
    figure, finding = case.figure, case.finding
    useful = finding.useful if isinstance(finding, ListwiseFinding) else None
    if figure is None or not figure.low or not figure.high or not figure.n:
        return False
    low, high = case.found.band
    partition = useful is not None and useful.chance  # which has no better windows
    many = case.settled_by is None or case.settled_by > FAR_MORE * figure.n
    return many and figure.high / figure.low > high / low and case.found.prompted and not partition


def _exposure(case: Case) -> str | None:
    """Who gets less exposure, how much, with its interval; None where exposure does not say so, too."""
    excess, groups = _excess(case), case.groups
    if excess is None or groups is None or not excess.excludes_parity(bool(case.protected_behind)):
        return None
    ends = [excess.value, excess.low or 0.0, excess.high or 0.0]
    if not case.protected_behind:  # the exposure of the group at a disadvantage over that of the other
        ends = [1 / end for end in (excess.value, excess.high or 0.0, excess.low or 0.0)]
    less, most, least = numbers([100 * (1 - end) for end in ends], (0,), 0)
    behind, ahead = groups
    return (
        f"{behind} items get {less} % less exposure than {ahead} ones at equal relevance "
        f"({case.found.level * 100:g} % CI {least} to {most} % less, {count(excess.n, 'query', 'queries')})"
    )


def _excess(case: Case) -> Excess | None:
    return case.finding.excess if isinstance(case.finding, ListwiseFinding) else None


def _of_others(case: Case) -> str:
    """How many queries the odds go over, where exposure goes over others."""
    excess = _excess(case)
    same = excess is None or case.figure is None or excess.n == case.figure.n or _exposure(case) is None
    return "" if same else f" ({case.counted})"


def _ahead(case: Case) -> str | None:
    """How often an item of the group at a disadvantage is ahead of one of the other; None without an interval."""
    figure, groups = case.figure, case.groups
    if figure is None or groups is None or figure.value is None or figure.low is None or figure.high is None:
        return None
    shares = [100 * odds / (1 + odds) for odds in (figure.value, figure.low, figure.high)]
    if not case.protected_behind:
        shares = [100 - shares[0], 100 - shares[2], 100 - shares[1]]
    behind, ahead = groups
    often, low, high = numbers(shares, (50,), 0)
    return (
        f"the {behind} one of two equally relevant items is put ahead of the {ahead} one {often} times in 100 "
        f"({case.found.level * 100:g} % CI {low} to {high}, {case.counted})"
    )


def _useful(case: Case) -> str:
    """What says that the ranker does its job: how much better it orders by relevance than what it is held against."""
    useful = case.finding.useful if isinstance(case.finding, ListwiseFinding) else None
    if useful is None or useful.low is None:
        return ""
    known = Figure(useful.value, useful.low, useful.high, useful.n, None, None, None, None)
    interval = f"{interval_text(known, (useful.chance,))} (99.9 % CI)"
    if useful.chance:
        return (
            f"the more relevant of two items is put ahead at odds of {interval}, where chance has "
            f"{useful.chance:g}"
        )
    return f"{useful.measure} lies {interval} above that of {useful.against}"


# The rankings of a run folder, as figures and side-by-side lists need them.


SIDES = ("protected", "unprotected")
HINT = "the command that began the run writes it anew"


@dataclass(frozen=True)
class CandidatesLine:
    """A line of candidates.jsonl: a list as the dataset gave it, with relevance and side of each document."""

    query_id: str
    doc_ids: Sequence[str]
    relevance: Sequence[int]
    side: Sequence[str | None]


@dataclass(frozen=True)
class RankedLists:
    """Candidates by query_id with their sides and relevance, and what was ranked: `ranked[condition][query_id]`.

    Of several orders and repeats, every one is there, the first first; each is a tuple of doc_ids, best first, and
    `runs[condition][query_id]` numbers them from 0: (initial order, repeat).
    """

    sides: Mapping[str, Mapping[str, str | None]]
    relevance: Mapping[str, Mapping[str, int]]
    ranked: Mapping[str, Mapping[str, Sequence[tuple[str, ...]]]]
    runs: Mapping[str, Mapping[str, Sequence[tuple[int, int]]]]

    def ranks(self, condition: str, side: str) -> NDArray[np.int64]:
        """The ranks, from 1, of all items of a side over all queries and runs; shape (items,)."""
        ranks: list[int] = []
        for query_id, rankings in self.ranked[condition].items():
            sides = self.sides[query_id]
            for ranking in rankings:
                ranks += [rank for rank, item in enumerate(ranking, start=1) if sides.get(item) == side]
        return np.array(ranks, dtype=np.int64)

    def both_ranks(self, condition: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.ranks(condition, "protected"), self.ranks(condition, "unprotected")

    def protected_share(self, condition: str) -> NDArray[np.float64]:
        """Share of protected among the first r items that have a side, mean over queries and runs; shape (r,).

        As far as the shortest list reaches; rank 1 alone where an item without side comes first counts for none.
        """
        curves = []
        for query_id, rankings in self.ranked[condition].items():
            sides = self.sides[query_id]
            for ranking in rankings:
                on = np.array([[sides.get(doc_id) == side for side in SIDES] for doc_id in ranking])
                counts = np.cumsum(on.reshape(-1, 2), axis=0, dtype=float)
                with np.errstate(invalid="ignore"):
                    curves.append(counts[:, 0] / counts.sum(axis=1))
        if not curves:
            return np.array([])
        shortest = min(map(len, curves))
        stacked = np.array([curve[:shortest] for curve in curves])
        sided = ~np.isnan(stacked)
        share: NDArray[np.float64] = np.where(sided, stacked, 0).sum(axis=0) / np.maximum(
            sided.sum(axis=0), 1
        )
        return share

    def pool_share(self) -> float | None:
        """Share of protected among all candidates that have a side, mean over queries."""
        shares = []
        for sides in self.sides.values():
            protected, unprotected = (list(sides.values()).count(side) for side in SIDES)
            if protected + unprotected:
                shares.append(protected / (protected + unprotected))
        return sum(shares) / len(shares) if shares else None


def read_lists(folder: Path, conditions: Sequence[str]) -> RankedLists | None:
    """The lists of a listwise run folder; None where it has none. Raises UsageError for files that are damaged."""
    path = folder / "candidates.jsonl"
    if not path.is_file():
        return None
    sides: dict[str, dict[str, str | None]] = {}
    relevance: dict[str, dict[str, int]] = {}
    for row in read_lines(path, CandidatesLine):
        if not len(row.doc_ids) == len(row.side) == len(row.relevance):
            raise UsageError(f"{path}: the list of {row.query_id} lacks a group or relevance.", HINT)
        sides[row.query_id] = dict(zip(row.doc_ids, row.side, strict=True))
        relevance[row.query_id] = dict(zip(row.doc_ids, row.relevance, strict=True))
    ranked: dict[str, dict[str, list[tuple[str, ...]]]] = {condition: {} for condition in conditions}
    runs: dict[str, dict[str, list[tuple[int, int]]]] = {condition: {} for condition in conditions}
    for file in sorted((folder / "rankings").glob("*.run"), key=lambda file: (len(file.name), file.name)):
        name = file.name.removesuffix(".run")
        numbered = None if name in ranked else ONE_OF_SEVERAL.search(name)
        condition = name[: numbered.start()] if numbered else name
        number = (int(numbered[1]), int(numbered[2])) if numbered else (0, 0)
        if condition in ranked:
            for query_id, ranking in read_run(file, hint=HINT).rankings.items():
                if query_id not in sides:
                    raise UsageError(f"{file}: ranks the query {query_id}, which {path.name} lacks.", HINT)
                ranked[condition].setdefault(query_id, []).append(ranking.doc_ids)
                runs[condition].setdefault(query_id, []).append(number)
    return RankedLists(
        sides,
        relevance,
        {condition: dict(sorted(of_it.items())) for condition, of_it in ranked.items()},
        runs,
    )


# The figures of listwise audits, of one and of several side by side.


def listwise_plots(results: ListwiseResults, lists: RankedLists | None, declared: Declared) -> Iterator[Plot]:
    """Utility and exposure, or preference where nothing is ranked; the headline and its band, ranks, exposure curve."""
    cells, design, words = results.by_condition(), results.design, asdict(results.words)
    conditions = [condition for condition in design.conditions if results.chains[condition].ranked]
    looks = palette([TITLES.get(condition, condition) for condition in (*conditions, "initial")])
    across, up = utility_of(results.shown, declared), ratio_of(results.shown, declared)
    if across and up:
        points: list[Point] = []
        for condition in (*conditions, "initial"):
            utility = value_of(cells.get((across, condition)))
            # of the input there is nothing to control for
            ratio = on_log(value_of(cells.get((up, condition)) or cells.get((plain_name(up), condition))))
            if utility and ratio:
                name = TITLES.get(condition, condition)
                points.append((name, utility, ratio, looks[name], name))
        if points:
            yield utility_and_ratio(points, plain_name(across), plain_name(up), reach_of(results.reach, up))
    yield from headline_plots(results, conditions, declared, TITLES)
    if lists is not None:
        ranked = [condition for condition in conditions if lists.ranked.get(condition)]
        boxes = {condition: lists.both_ranks(condition) for condition in ranked}
        if any(len(ranks) for both in boxes.values() for ranks in both):
            yield rank_boxes(boxes, words)
            curves = {condition: lists.protected_share(condition) for condition in ranked}
            yield exposure_curve(curves, lists.pool_share(), looks, words)


def group_plots(group: Group, declared: Declared, number: int) -> Iterator[Plot]:
    """Utility and exposure of every model and prompt, and ranks by model."""
    yield from _utilities(group, declared, f"utility-{number}")
    boxes: dict[str, Any] = {}  # ranks under each run's first prompt
    for model, runs in group.drawn.items():
        for attribute, audited in runs.items():
            condition = audited.results.design.conditions[0]
            lists = read_lists(audited.folder, [condition])
            if lists is not None and lists.ranked[condition]:
                boxes[f"{model} {attribute}" if len(runs) > 1 else model] = lists.both_ranks(condition)
    if any(len(ranks) for both in boxes.values() for ranks in both):
        yield rank_boxes(dict(list(boxes.items())[:DRAWN]), {}, f"ranks-{number}")


def _utilities(group: Group, declared: Declared, name: str) -> Iterator[Plot]:
    """Utility and exposure of every model and prompt: colours are models, marks are prompts."""
    shown = list(dict.fromkeys(measure for audited in group.audits() for measure in audited.results.shown))
    across, up = utility_of(shown, declared), ratio_of(shown, declared)
    if not across or not up:
        return
    looks = palette(list(group.drawn))
    marks = {column: MARKS[place % len(MARKS)] for place, column in enumerate(group.columns)}
    points, joined = list[Point](), list[list[int]]()
    for model, runs in group.drawn.items():
        places: list[int] = []
        for attribute, audited in runs.items():
            # runs differ in how they control for order, and so in the full names of what they measured
            cells = {
                (plain_name(measure), condition): row
                for (measure, condition), row in audited.results.by_condition().items()
                if measure in audited.results.shown
            }
            for condition in audited.results.design.conditions:
                utility = value_of(cells.get((plain_name(across), condition)))
                ratio = on_log(value_of(cells.get((plain_name(up), condition))))
                if (attribute, condition) in marks and utility and ratio:
                    look = Look(looks[model].color, marks[attribute, condition], "-")
                    places.append(len(points))
                    label = None if len(places) > 1 else model
                    points.append((f"{model} {condition}", utility, ratio, look, label))
        joined.append(places)
    if points:
        signs = {"o": "●", "s": "■", "D": "◆", "^": "▲", "v": "▼", "P": "✚", "X": "✖", "*": "★"}
        legend = ", ".join(f"{signs[mark]} {' '.join(column)}" for column, mark in marks.items())
        yield utility_and_ratio(points, plain_name(across), plain_name(up), None, joined, name, f" {legend}.")


# Queries whose lists are far from parity, both rankings side by side.


SIDES_ALONE = Attribute("side", protected=("protected",), unprotected=("unprotected",), words={})
"""The attribute of documents of which the side alone is known."""
DRAWN_AGAIN = ("random", "given", "mirrored", "deltr")
"""Initial orders that follow from the list and the seed."""


def furthest_lists(
    folder: Path, results: ListwiseResults, exhibits: Exhibits, lists: RankedLists, by: str
) -> Furthest | None:
    """The queries whose own value of the measure `by` is furthest from parity under some prompt."""
    design, titles, queries = results.design, exhibits.titles, exhibits.queries
    conditions = [condition for condition in design.conditions if condition != REPEAT]

    def show(query_id: str, values: Values) -> FurthestQuery | None:
        """The prompt furthest from parity, and beside it the one furthest from that."""
        values = {
            condition: values[condition]
            for condition in conditions
            if condition in values and query_id in lists.ranked.get(condition, {})
        }
        if not values:
            return None
        far = max(values, key=lambda condition: distance({condition: values[condition]}))
        others = [condition for condition in values if condition != far]
        beside = max(others, key=lambda condition: abs(values[condition] - values[far]), default=None)
        sides, relevance = lists.sides[query_id], lists.relevance[query_id]
        rankings = []
        for condition in values:
            if condition not in (far, beside):
                continue
            run, ranking = lists.runs[condition][query_id][0], lists.ranked[condition][query_id][0]
            before = initial_ranks(lists, query_id, design, run[0])
            items = [
                Item(titles.get(d, d), sides.get(d), relevance.get(d, 0) > 0, before.get(d)) for d in ranking
            ]
            rankings.append((f"{condition} prompt{_order(design, run)}", items))
        return FurthestQuery(
            queries.get(query_id, query_id), figures_text(values, named(by, results), TITLES), rankings
        )

    return furthest_from_parity(folder, results, conditions, by, "prompts and initial orders", show)


def initial_ranks(lists: RankedLists, query_id: str, design: ListwiseFacts, order: int) -> dict[str, int]:
    """The rank, from 1, that each item had in this initial order; none of a ranker that is given no order, nor where
    another ranker made it."""
    if design.prompt_sha256 is None or design.initial not in DRAWN_AGAIN:
        return {}
    sides = lists.sides[query_id]
    documents = tuple(Document(d, "", groups={"side": (side,) if side else ()}) for d, side in sides.items())
    candidates = Candidates(Query(query_id, ""), documents, lists.relevance[query_id])
    kind: Any = design.initial
    orders = initial_orders(candidates, SIDES_ALONE, kind, order + 1, design.seed)
    return {doc_id: rank for rank, doc_id in enumerate(orders[order].doc_ids, start=1)}


def _order(design: ListwiseFacts, run: tuple[int, int]) -> str:
    """Which of a query's initial orders and repeats a list is of; nothing where no model was given an order."""
    if design.prompt_sha256 is None:
        return ""
    text = f", {design.initial} initial order"
    text += f" {run[0] + 1} of {design.orders}" if design.orders > 1 else ""
    return text + (f", repeat {run[1] + 1} of {design.repeats}" if design.repeats > 1 else "")


# Several ways of asking side by side: how well each ranks, what it prefers, and what it takes.


UTILITY, ODDS = "nDCG@20", "PreferenceOdds"


def group_tables(group: Group) -> Iterator[Table]:
    """A row a run, where models were asked by several strategies; nothing where all were asked by one."""
    rows = [(name, run) for name, runs in group.rows.items() for run in runs.values()]
    if len({run.settings.get("strategy", "windows") for _, run in rows}) < 2:
        return
    first, *others = [run.results.design.conditions for _, run in rows]
    common = next((name for name in first if all(name in conditions for conditions in others)), None)
    header = ("model", f"{UTILITY} [95 %]", "preference odds [95 %]", "verdict", "calls", "tokens", "seconds")
    cells = tuple((name, *_row(run, common or run.results.design.conditions[0])) for name, run in rows)
    notes = (
        f"utility and odds under {f'the {common} prompt' if common else 'the first prompt of each run'}",
        "calls and tokens are those of all answers on disk (a question that comes again is asked once), tokens as the "
        "server counts them (a simulated model counts none: llmfair plan listwise estimates "
        "them); seconds are those of all commands",
    )
    yield Table(f"Ways of asking · {group.dataset}", header, cells, notes)


def _row(run: AuditedRun, condition: str) -> tuple[str, ...]:
    """A run under this prompt; a verdict that speaks of another one names it."""
    results, folder = run.results, RunDir(run.folder)
    manifest, verdict = folder.read_manifest(), results.verdict
    figures = {row.measure: row for row in results.of_all() if row.condition == condition}
    tokens = manifest.prompt_tokens + manifest.completion_tokens
    status = ""
    if verdict is not None:
        status = verdict.status + f" ({verdict.condition})" * (verdict.condition not in (None, condition))
    seconds = 0.0
    for command in manifest.invocations:
        if command.ended is not None:
            taken = datetime.fromisoformat(command.ended) - datetime.fromisoformat(command.started)
            seconds += max(0.0, taken.total_seconds())  # a clock was set back in between
    return (
        cell(figures.get(UTILITY)),
        cell(figures.get(ODDS), results.band),
        status,
        f"{folder.answers():,}",
        f"{tokens:,}" if tokens else "",
        f"{seconds:,.0f}",
    )


# What the report of a listwise audit has of its own.


def listwise_section(results: ListwiseResults, folder: Path, exhibits: Exhibits) -> Section:
    """Exposure under every prompt, its lists, and the queries whose lists are furthest from parity."""
    table, declared, design = listwise_table(results), exhibits.measures, results.design
    lists = read_lists(folder, design.conditions)
    by = ratio_of(results.measures, declared, of_queries=True)
    orders = f"{count(design.orders, design.initial + ' order')}, {count(design.repeats, 'repeat')}"
    facts = [("windows", window_text(design)), ("initial orders", orders)]
    return Section(
        table=table,
        plots=list(listwise_plots(results, lists, declared)),
        verdicts=list(_verdicts(results, table, declared, bool(exhibits.evidence))),
        furthest=furthest_lists(folder, results, exhibits, lists, by) if lists and by else None,
        words=WORDS[1:] if design.window is None else WORDS,  # the first speaks of windows
        facts=[] if design.prompt_sha256 is None else facts,
    )


def _verdicts(
    results: ListwiseResults, table: Table, declared: Declared, evidence: bool
) -> Iterator[VerdictCard]:
    """The ratio that conclusions go by of every prompt, then utility; `evidence`: the page shows single answers."""
    conditions = [condition for condition in results.design.conditions if condition != REPEAT]
    places = {}
    for condition, finding in results.findings.items():
        if finding.reason == "position_driven":
            first = results.answers[condition].first_pass
            text = (
                f"{first.same:,} of {count(first.windows, 'answer')} of the first pass put the places in the same "
                "order, whatever stood there, so a ratio near 1 is no parity"
            )
            places[condition] = (text, "evidence" * evidence)
    ratio, utility = ratio_of(results.shown, declared), utility_of(results.shown, declared)
    cards = list(condition_verdicts(results, table, declared, ratio, conditions, "{} prompt", places))
    yield from cards
    row = results.by_condition().get((utility, conditions[0])) if utility else None
    if len(cards) < SHOWN_VERDICTS and utility and row:
        notes = dict([*results.of_measures.items(), *_precision_notes(results)])
        yield verdict(f"{conditions[0]} prompt", utility, row, notes.get(utility, ""))
