"""Summaries that a law or a standard asks for, of one audit's run folder: nothing is asked, nothing is legal advice.

`ll144`: the summary of results of a bias audit that 6 RCNY 5-303 has published (New York City Local Law 144 of 2021).
`profile`: a bias profile by scenario, as the draft of prEN 18283 has it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import erfc, sqrt
from operator import itemgetter
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.kind import kind_of
from llmfair.audits.listwise.score import read_lists
from llmfair.audits.scoring import SCORES, own_scores
from llmfair.errors import UsageError, did_you_mean
from llmfair.io.files import sha256
from llmfair.io.text import count, in_markdown, listed, p_text
from llmfair.io.trec import UNKNOWN, read_groups
from llmfair.nouns import BETWEEN, CROSSED, Conclusion
from llmfair.report.figures import value_of
from llmfair.report.groups import Fact, named
from llmfair.report.html import rendered
from llmfair.report.page import SIMULATED, Source, read_source
from llmfair.report.phrases import FEWEST_QUERIES, cell, conclusion_text, percent
from llmfair.report.table import Column, Table, markdown
from llmfair.results import Figure
from llmfair.rundir import MITIGATION, RunDir, csv_text
from llmfair.stats.intervals import Estimate
from llmfair.stats.selection import FOUR_FIFTHS, Entries, by_chance, impact_ratios

FIRST = 20
SELECTING = ("ImpactRatio", "SelectionRate", "P")
LEAST = 50
"""A category with less than one in so many, 2 %, may be left out of impact ratios: 6 RCNY 5-301 (d)."""
MOST_ATTRIBUTES = 3
NOBODY_KNOWS = "unknown"
ODDS = "PreferenceOdds"
REASONS = {
    "too_few_queries": f"fewer than {FEWEST_QUERIES} lists: no interval",
    "one_group": "the only category",
    "no_other_selected": "nobody else is selected: no interval",
}
"""Why a ratio has no interval."""
CHECKED = ("journal.jsonl", "candidates.jsonl", "groups.tsv", "qrels.txt", SCORES, "results.json")
"""Files of a run that `llmfair runs check` makes again, but for the rankings, and the journal that it makes them of."""
LL144 = (
    "What 6 RCNY 5-300 to 5-304 (New York City Local Law 144) asks to be published of a bias audit, "
    "computed from this run.",
    "It is no legal advice, and no bias audit by itself: the law has an independent auditor make one.",
)
PROFILE = (
    "A bias profile by scenario: who is at risk of what, how that was measured, what is accepted, what is done.",
    "It follows the headings of a draft, prEN 18283; it is no legal advice, and no proof that a standard is met.",
)
NOTES = (
    "The law sets no threshold for impact ratios.",
    "Intervals are by list and person, and hold whichever category has the highest rate.",
    "Odds at equal relevance compare people who are alike in relevance; an impact ratio compares whoever applied.",
    "Four fifths is a rule of federal agencies, 29 CFR 1607.4 (D); the local law has no such line.",
    "The two-proportion and the exact test ask whether two rates differ. They take people for independent, "
    "though people recur over lists, and compete in them.",
    "The test by list and person asks whether a ratio is below four fifths of the highest rate, "
    "adjusted for all categories (Holm).",
)
CATEGORY = (
    "attribute", "category", "people", "applications", "share", "selected", "rate", "impact_ratio", "low", "high",
    "against", "odds", "odds_low", "odds_high", "below_four_fifths", "p_two_proportion", "p_exact", "p_by_list",
    "reason",
)  # fmt: skip
"""What a line of the CSV file has of a category of an attribute; `reason`: why there is no ratio."""
Category = Mapping[str, Any]
DATED = ("data_source", "data_dates", "distribution_date")


@dataclass(frozen=True)
class Summary:
    """A title, what has to be known first, tables, and notes on all of them; `lines` are those of a CSV file, the first
    its header."""

    title: str
    says: Sequence[str]
    tables: Sequence[Table]
    lines: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Sample:
    """Everybody in every list that was ranked, one place in one list each; `chosen`: selected, or scored above.

    `rate` is what the share of chosen ones is called, `says` in a sentence who is chosen.
    """

    condition: str
    lists: Sequence[str]
    people: Sequence[str]
    chosen: Sequence[bool]
    rate: str
    says: str


def summary_of(
    shape: str, source: Source, about: Mapping[str, str], attributes: str | None = None, at: int | None = None
) -> Summary:
    """The `ll144` summary or the bias `profile` of an audit; `about`: what only people know of it, by key.

    `attributes`: those of a summary, with commas between; `at`: how many of each list are selected. Raises UsageError.
    """
    if not source.finished().is_audit or source.manifest is None:
        raise UsageError(
            f"{source.name} has no results of an audit.", "name the run folder of one: llmfair runs list"
        )
    return profile(source, about) if shape == "profile" else ll144(source, about, attributes, at)


# As Markdown, CSV and a page


def as_markdown(summary: Summary) -> str:
    """The summary with its tables in GitHub's Markdown."""
    says = [f"{in_markdown(sentence)}\n" for sentence in summary.says]
    tables = (markdown(replace(table, title=f"## {table.title}")) for table in summary.tables)
    notes = (f"- {in_markdown(note)}\n" for note in summary.notes)
    return "\n".join([f"# {in_markdown(summary.title)}\n", *says, *tables, ""]) + "".join(notes)


FORMS: Mapping[str, Callable[[Summary], str]] = {
    ".md": as_markdown,
    ".csv": lambda summary: csv_text(summary.lines[0], summary.lines[1:]),
    ".html": lambda summary: rendered("summary.html.j2", summary=summary),
}
"""By the ending of the file."""


# Both: what people say of an audit, and by what its files are known again


def told(about: Mapping[str, str], key: str) -> str:
    """What people say of the audit, or that they do not say it."""
    return about.get(key) or f"MISSING: {key} in [audit] of llmfair.toml"


def facts_of(source: Source, about: Mapping[str, str], more: Sequence[Fact]) -> Table:
    """What was audited, when, by which files; `more` is what a summary tells besides."""
    results, manifest = source.results, source.manifest
    assert manifest is not None
    days = [str(day)[:10] for of in manifest.invocations for day in (of.started, of.ended) if day]
    known = [
        ("system", results.named_model),
        ("what it decides", told(about, "purpose")),
        ("responsible", told(about, "responsible")),
        ("data", f"{results.dataset}, {count(results.design.queries, 'list')}"),
        ("source of the data", told(about, "data_source")),
        ("dates of the data", told(about, "data_dates")),
        ("date of the audit (UTC)", " to ".join(dict.fromkeys((min(days), max(days))))),
        *more,
        *((f"{name}, SHA-256", manifest.settings.get(f"{name}_sha256")) for name in ("lists", "prompt")),
    ]
    folder = source.run.path
    files = (*CHECKED, *(f"rankings/{condition}.run" for condition in results.design.conditions))
    known += [(f"{name}, SHA-256", sha256(folder / name)) for name in files if (folder / name).is_file()]
    known += [("checked by", f"llmfair runs check {source.name}")]
    notes = [*results.warnings, *[SIMULATED] * manifest.simulated]
    if manifest.status != "complete":
        notes.append("The run is incomplete: figures are of the lists that were ranked.")
    rows = [(name, str(text)) for name, text in known if text]
    return Table("What was audited", ("", ""), tuple(rows), tuple(notes))


# The summary of results of a bias audit


def ll144(source: Source, about: Mapping[str, str], attributes: str | None, at: int | None) -> Summary:
    """Selection or scoring rates and impact ratios by attribute and by every two together. Raises UsageError."""
    run, results = source.run, source.results
    sample = sample_of(run, results.measures, at)
    groups = dict[str, dict[str, list[str]]]()
    for _, doc_id, attribute, group in read_groups(run.path / "groups.tsv", None):
        groups.setdefault(doc_id, {}).setdefault(attribute, []).append(group)
    audited, odds = odds_of(source, sample.condition)
    tables, lines = list[Table](), list[list[Any]]()
    ends = [about.get(key, "") for key in DATED]
    for parts in combined(attributes, sorted({name for of in groups.values() for name in of})):
        labels = [category_of(groups.get(doc_id, {}), parts) for doc_id in sample.people]
        name = CROSSED.join(parts)
        entries = entries_of(labels, sample)
        found = impact_ratios(entries, level=results.level) if entries.groups else []
        ratios = dict(zip(kept_of(labels), found, strict=True))
        rows = compared(name, labels, sample, ratios, odds if name == audited else {})
        tables += tables_of(rows, sample, results.level, chance_of(entries, results.design.seed))
        lines += [[source.name, sample.rate, *row.values(), *ends] for row in rows]
    orders = getattr(results.design, "orders", 1)
    facts = facts_of(source, about, [
        ("distribution date of the tool", told(about, "distribution_date")),
        ("people", f"{len({*sample.people}):,}"),
        ("applications", f"{len(sample.people):,}, a person counts once in every list"),
        (sample.rate, sample.says),
        ("prompt", sample.condition),
        ("initial order", f"the first of {orders:,}" if orders > 1 else ""),
    ])  # fmt: skip
    title = f"Summary of results of a bias audit: {results.short_name}"
    header = ("run", "measure", *CATEGORY, *DATED)
    return Summary(title, LL144, [facts, *tables], [header, *lines], NOTES)


def sample_of(run: RunDir, measures: Sequence[str], at: int | None) -> Sample:
    """Everybody in the lists that were ranked, under the neutral prompt where there is one; of several initial orders
    the first. Raises UsageError.

    Without `at` those are chosen who score above the median of all, or, of a ranker without scores, who are among the
    first of their list: as many as the run's measures look at.
    """
    lists, ranked = read_lists(run.path)
    condition = "neutral" if "neutral" in ranked else next(iter(ranked), "")
    rankings = ranked.get(condition, {})
    if not rankings:
        raise UsageError(
            f"{run.path} has no ranked lists.", "name the run of an audit of lists: llmfair listwise"
        )
    scored, scores = own_scores(run.path), dict[tuple[str, str], float]()
    for query_id, (_, doc_ids) in rankings.items():
        values = scored.get((query_id, tuple(doc_ids)), ())
        scores |= {(query_id, doc_id): value for doc_id, value in zip(doc_ids, values, strict=False)}
    places = [(query_id, doc_id) for query_id in sorted(rankings) for doc_id in lists[query_id].doc_ids]
    if at is None and all(place in scores for place in places):
        middle = median(scores[place] for place in places)
        chosen = [scores[place] > middle for place in places]
        rate, says = "scoring rate", f"share of a category with a score above {middle:.4g}, the median of all"
    else:
        k = at or cutoff(measures)
        if all(len(lists[query_id].doc_ids) <= k for query_id in rankings):
            raise UsageError(
                f"no list has more than {k}, so everybody would be selected.", "--at N selects fewer"
            )
        first = {(query_id, doc_id) for query_id, (_, doc_ids) in rankings.items() for doc_id in doc_ids[:k]}
        chosen = [place in first for place in places]
        rate, says = f"selection rate at {k}", f"share of a category among the first {k} of a list"
    queries, people = zip(*places, strict=True)
    return Sample(condition, queries, people, chosen, rate, says)


def cutoff(measures: Sequence[str]) -> int:
    """How many of each list the run's measures look at: those of selection, else precision, else 20."""
    cutoffs = (re.match(rf"{of}@(\d+)", name) for of in SELECTING for name in measures)
    return next((int(cutoff[1]) for cutoff in cutoffs if cutoff), FIRST)


def combined(wanted: str | None, known: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each attribute, then every two together; `sex*race` alone is the combination alone. Raises UsageError."""
    names = [*dict.fromkeys(name.strip() for name in wanted.split(","))] if wanted else [*known]
    for part in (part for name in names for part in name.split(CROSSED)):
        if part not in known:
            there = f"groups.tsv has {', '.join(known) or 'none'}.{did_you_mean(part, known)}"
            raise UsageError(f"no attribute '{part}'.", there)
    if len(names) > MOST_ATTRIBUTES:
        raise UsageError(
            f"{len(names)} attributes are too many for a summary.", f"say which: -a {','.join(known[:2])}"
        )
    alone = [(name,) for name in names if CROSSED not in name]
    yield from alone
    yield from (tuple(name.split(CROSSED)) for name in names if CROSSED in name)
    if len(alone) == len(names):
        yield from combinations(names, 2)


def category_of(groups: Mapping[str, Sequence[str]], parts: Sequence[str]) -> str | None:
    """The category that these groups of a person make; None where a part is not known, or is in several."""
    found = [groups.get(part, ()) for part in parts]
    if any(len(of) != 1 or of[0].casefold() in (NOBODY_KNOWS, UNKNOWN.casefold()) for of in found):
        return None
    return CROSSED.join(of[0] for of in found)


def odds_of(source: Source, condition: str) -> tuple[str, dict[tuple[str, str], Figure]]:
    """The audited attribute, and the run's odds at equal relevance by the category that is favoured above 1 and the
    other, either way round."""
    attribute = source.manifest.settings.get("attribute") if source.manifest else None
    sides = attribute if isinstance(attribute, dict) else {}
    # of a side with one group the group: categories are called by these, prompts by words
    names = {
        word: sides[side][0] for side, word in sides.get("words", {}).items() if len(sides.get(side, ())) == 1
    }
    found = dict[tuple[str, str], Figure]()
    for row in source.results.of_all():
        if (row.measure, row.condition, row.stratum, row.group) == (ODDS, condition, "all", "") and row.value:
            first, _, second = row.contrast.partition(BETWEEN)
            pair = names.get(first, first), names.get(second, second)
            found[pair] = row
            value, low, high = (None if end is None else 1 / end for end in (row.value, row.high, row.low))
            found[pair[::-1]] = figure_of(value, low, high, row.n)
    return CROSSED.join(sides.get("crossed", ())) or source.results.attribute, found


def kept_of(labels: Sequence[str | None]) -> list[str]:
    """The categories of 2 % of all applications or more, sorted."""
    counts = Counter(labels)
    return sorted(label for label in counts if label is not None and LEAST * counts[label] >= len(labels))


def entries_of(labels: Sequence[str | None], sample: Sample) -> Entries:
    """The places of people in these categories, groups in the order of `kept_of`."""
    kept = {label: code for code, label in enumerate(kept_of(labels))}
    places = [place for place, label in enumerate(labels) if label in kept]

    def codes(names: Sequence[str]) -> NDArray[np.intp]:
        return np.unique([names[place] for place in places], return_inverse=True)[1]

    return Entries(
        np.array([float(sample.chosen[place]) for place in places]),
        np.array([kept[str(labels[place])] for place in places], np.intp),
        codes(sample.lists),
        codes(sample.people),
        len(kept),
    )


def chance_of(entries: Entries, seed: int) -> list[str]:
    """What the least ratio is where categories mean nothing, in a sentence; none where no ratio is."""
    if entries.groups < 2 or not entries.amounts.any():
        return []
    least = by_chance(entries, np.random.default_rng(seed))
    below = percent(float(np.mean(least < FOUR_FIFTHS)))
    return [
        f"Were categories dealt at random, the least ratio would average {least.mean():.2f}, "
        f"and be below four fifths in {below} of cases."
    ]


def compared(
    attribute: str,
    labels: Sequence[str | None],
    sample: Sample,
    ratios: Mapping[str, Estimate],
    odds: Mapping[tuple[str, str], Figure],
) -> list[Category]:
    """The categories of an attribute, each against the one with the highest rate; those who are in none come last.

    A category without `ratios`, of less than 2 % of the applications, has a rate alone, and sets no highest rate.
    """
    all_of = Counter(labels)
    chosen = Counter(label for label, of in zip(labels, sample.chosen, strict=True) if of)
    people = Counter(label for label, _ in {*zip(labels, sample.people, strict=True)})
    top = max(ratios, key=lambda label: (chosen[label] / all_of[label], all_of[label]), default="")
    rows = list[Category]()
    for label in sorted(all_of, key=lambda label: (label is None, label)):
        n, selected, ratio = all_of[label], chosen[label], ratios.get(label or "")
        row: dict[str, Any] = dict.fromkeys(CATEGORY) | {
            "attribute": attribute, "category": label or NOBODY_KNOWS, "people": people[label], "applications": n,
            "share": n / len(labels), "selected": selected, "rate": None if label is None else selected / n,
            "against": "" if ratio is None else top,
        }  # fmt: skip
        if label is None:
            row["reason"] = "category not known, or several: in no rate"
        elif ratio is None:
            row["reason"] = "under 2 % of the applications: no ratio, 6 RCNY 5-301 (d)"
        elif not selected:
            row["reason"] = f"nobody of {'the' if chosen[top] else 'any'} category is selected: no ratio"
        else:
            row["reason"] = REASONS.get(ratio.reason or "", "")
            row |= {"impact_ratio": ratio.value, "low": ratio.low, "high": ratio.high}
        if ratio is not None and label != top and chosen[top]:
            z, exact = independent(selected, n, chosen[top], all_of[top])
            below = 5 * selected * all_of[top] < 4 * chosen[top] * n
            row |= {"below_four_fifths": below, "p_two_proportion": z, "p_exact": exact}
            row["p_by_list"] = ratio.p_adjusted
            if figure := odds.get((label or "", top)):
                row |= {"odds": figure.value, "odds_low": figure.low, "odds_high": figure.high}
        rows.append(row)
    return rows


def independent(selected: int, n: int, most: int, of: int) -> tuple[float, float]:
    """Two-sided p of equal rates `selected`/`n` and `most`/`of`: the pooled two-proportion test's, Fisher's exact."""
    from scipy.stats import fisher_exact

    share = (selected + most) / (n + of)
    sd = sqrt(share * (1 - share) * (1 / n + 1 / of))
    p = erfc(abs(selected / n - most / of) / sd / sqrt(2)) if sd else 1.0
    return p, float(fisher_exact([[selected, n - selected], [most, of - most]])[1])


def tables_of(
    rows: Sequence[Category], sample: Sample, level: float, chance: Sequence[str]
) -> Iterator[Table]:
    """Rates and ratios of an attribute, then the four-fifths rule."""
    several = any(row["people"] < row["applications"] for row in rows)

    def figure(value: str, low: str, high: str) -> Callable[[Category], Figure | None]:
        return lambda row: None if row[value] is None else figure_of(row[value], row[low], row[high])

    def text(name: str, form: Callable[[Any], str]) -> Callable[[Category], str]:
        return lambda row: "" if row[name] is None else form(row[name])

    category, ratio = ("category", itemgetter("category")), figure("impact_ratio", "low", "high")
    columns: list[Column[Category]] = [
        category,
        ("people", itemgetter("people")),
        ("applications", lambda row: row["applications"] if several else None),
        ("share", text("share", percent)),
        ("chosen", itemgetter("selected")),
        (sample.rate, text("rate", percent)),
        (f"impact ratio [{100 * level:g} %]", ratio),
        ("odds at equal relevance", figure("odds", "odds_low", "odds_high")),
        ("remark", lambda row: row["reason"] or "the highest rate" * (row["category"] == row["against"])),
    ]
    attribute = rows[0]["attribute"]
    yield Table.of(f"{attribute}: {sample.rate}, impact ratio", columns, rows, chance)
    columns = [
        category,
        ("against", itemgetter("against")),
        ("impact ratio", ratio),
        ("below four fifths", text("below_four_fifths", ("no", "yes").__getitem__)),
        ("two-proportion p", text("p_two_proportion", p_text)),
        ("exact p", text("p_exact", p_text)),
        ("p by list and person", text("p_by_list", p_text)),
    ]
    if against := [row for row in rows if row["below_four_fifths"] is not None]:
        yield Table.of(f"{attribute}: four fifths", columns, against)


def figure_of(value: float | None, low: float | None, high: float | None, n: int | None = None) -> Figure:
    return Figure(value, low, high, n, None, None, None, None)


# The bias profile


def profile(source: Source, about: Mapping[str, str]) -> Summary:
    """One scenario a finding: a condition, and of several groups two that are compared. Raises UsageError."""
    results = source.results
    if not results.compares_groups:
        raise UsageError(
            f"{source.name} compares no groups, so none is at risk.", "name an audit of lists or pairs"
        )
    kind, cells, (low, high) = kind_of(results.task), results.by_key(), results.band
    words = kind.words
    rows = []
    for key in results.design.keys:
        if (finding := results.findings.get(key)) is None or key.condition in kind.measure.aside:
            continue
        figure, measure = cells.get((finding.spoken_of, key)), finding.spoken_of
        sides = (results.words.protected, results.words.unprotected)
        pair = key.contrast.split(BETWEEN) if key.contrast else sides
        if finding.conclusion == Conclusion.OUTSIDE and (value := value_of(figure)) is not None:
            pair = pair[:1] if value.value < 1 else pair[1:]
        found = f"{named(measure, results)} {cell(figure, results.band)}"
        rows.append({
            "scenario": f"{results.dataset}, {words.condition} {words.titles.get(key, key)}",
            "group at risk": " or ".join(pair),
            "hazard": told(about, "hazard"),
            "measurement": f"{found}; {conclusion_text(finding)}",
            "acceptability threshold": f"odds from {low:g} to {high:g}",
            "mitigation": mitigation_of(source.run),
            "review trigger": told(about, "review_after"),
        })  # fmt: skip
    table = Table.of_texts(f"{results.attribute}: scenarios", rows)
    facts = facts_of(source, about, [])
    return Summary(
        f"Bias profile: {results.short_name}", PROFILE, [table, facts], [table.header, *table.rows]
    )


def mitigation_of(run: RunDir) -> str:
    """The remedies that were held against a run, or that none was."""
    mitigation = RunDir(run.path / MITIGATION)
    if not mitigation.results.is_file():
        return f"MISSING: none tried (llmfair mitigate {run.path.name})"
    # the run itself comes first
    titles = [remedy.title for remedy in read_source(mitigation).results.remedies[1:] if remedy.available]
    return f"tried: {listed(titles)}" if titles else "none could be tried"
