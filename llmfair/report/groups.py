"""Audits that belong side by side: of one task, about the very same lists, each row a model or one of its settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair import registry
from llmfair.io.text import count
from llmfair.metrics.base import plain_name
from llmfair.nouns import Key, is_of
from llmfair.report.figures import HEADLINES, against_the_band, favoured_of, spoken_of
from llmfair.report.phrases import about
from llmfair.report.plots import Plot
from llmfair.report.table import Table
from llmfair.results import Declared, Results, query_figures

if TYPE_CHECKING:
    from llmfair.audits.kind import Kind

DRAWN = 8
"""Models that a figure shows; a ninth could not be told apart."""
OF_THE_LISTS = {
    "task", "identity", "attribute", "lists_sha256", "queries", "prompt_sha256", "mixed", "conditions", "repeat",
    "baselines",
}  # fmt: skip
"""Settings that do not make a model another row: they belong to the columns, or are the model's own name."""
LISTS = "lists_sha256"
DRAWN_BY = ("mixed", "run", "limit", "queries", "candidates", "buckets", "relevant", "min_relevant")
"""What a user sets of the lists that are asked about."""


@dataclass(frozen=True)
class AuditedRun:
    """An audit with results: its folder, the settings that name it, all flags that it was given, what was found."""

    folder: Path
    settings: Mapping[str, Any]
    flags: Mapping[str, Any]
    results: Results

    @property
    def collection(self) -> str:
        """The data set, without the attribute that shipped ones have in their names: both name one collection."""
        results = self.results
        shipped = results.dataset in registry.names("dataset")
        return results.dataset.removesuffix(f"/{results.attribute}" * shipped)

    @property
    def lists(self) -> tuple[Any, ...]:
        """What was asked about: the lists, their queries, and who is on which side."""
        return tuple(self.settings.get(name) for name in (LISTS, "queries", "attribute", "mixed"))

    @property
    def own_settings(self) -> dict[str, Any]:
        """Those that make a model another row."""
        return {key: value for key, value in self.settings.items() if key not in OF_THE_LISTS}

    @property
    def drawn_by(self) -> dict[str, Any]:
        return {name: self.flags.get(name) for name in DRAWN_BY}

    def belongs(self, table: Sequence[AuditedRun]) -> bool:
        """Whether it can stand in the columns of these: of its attribute all are about the same lists.

        Lists of another attribute are others; they stand beside it where the same settings made them.
        """
        alike = [other for other in table if other.results.attribute == self.results.attribute]
        if alike:
            return alike[0].lists == self.lists
        return any(other.drawn_by == self.drawn_by for other in table)


@dataclass(frozen=True)
class Group:
    """Audits of one task about the same lists: `rows` names each model or setting, with its runs by attribute.

    `lists` says which, where others of the task and `dataset` are about other lists. `aside`: conditions without
    columns of their own, since they only repeat another.
    """

    task: str
    dataset: str
    rows: Mapping[str, Mapping[str, AuditedRun]]
    aside: Collection[str] = ()
    lists: str = ""

    @property
    def drawn(self) -> Mapping[str, Mapping[str, AuditedRun]]:
        """The rows that figures show."""
        return dict(list(self.rows.items())[:DRAWN])

    def audits(self) -> list[AuditedRun]:
        return [audited for runs in self.rows.values() for audited in runs.values()]

    @property
    def attributes(self) -> list[str]:
        """What the audits were about, with the protected side: `gender (protected: female)`."""
        results = (audited.results for audited in self.audits())
        return [*dict.fromkeys(about(each.attribute, each.words.protected) for each in results)]

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Attributes and what was asked under them: each attribute's together, in the order in which they come."""
        columns: dict[str, dict[str, None]] = {}
        for audited in self.audits():
            conditions = columns.setdefault(audited.results.attribute, {})
            conditions |= dict.fromkeys(audited.results.design.keys)
        return [
            (attribute, condition)
            for attribute, conditions in columns.items()
            for condition in conditions
            if not is_of(condition, self.aside)
        ]


def groups_of(audits: Iterable[AuditedRun]) -> list[Group]:
    """Audits by task, collection and lists, which name several tables with settings that differ."""
    tables: dict[tuple[str, str], list[list[AuditedRun]]] = {}
    for audited in audits:
        of_data = tables.setdefault((audited.results.task, audited.collection), [])
        table = next((table for table in of_data if audited.belongs(table)), None)
        if table is None:
            of_data.append(table := [])
        table.append(audited)
    groups = []
    for (task, dataset), of_data in tables.items():
        kind, every = registry.lookup("audit", task), [*chain(*of_data)]
        drawn = [table[0].drawn_by for table in of_data]
        differ = [name for name in DRAWN_BY if any(by[name] != drawn[0][name] for by in drawn)]
        for table, by in zip(of_data, drawn, strict=True):
            digits = dict.fromkeys(str(audited.settings.get(LISTS))[:6] for audited in table)
            settings = [f"{name.replace('_', '-')} {by[name]}" for name in differ if by[name] is not None]
            names = ", ".join([f"lists {' and '.join(digits)}", *settings]) if len(of_data) > 1 else ""
            groups.append(Group(task, dataset, _rows_of(kind, table, every), kind.measure.aside, names))
    return groups


def _rows_of(
    kind: Kind, table: Sequence[AuditedRun], audits: Sequence[AuditedRun]
) -> dict[str, dict[str, AuditedRun]]:
    """Runs of a table by what they are of, each named among all `audits`.

    A model with several settings is told apart by what differs, or by the run's name.
    """
    rows: dict[str, dict[str, AuditedRun]] = {}
    for audited in table:
        results, mine = audited.results, audited.own_settings
        alike = [other.own_settings for other in audits if other.results.named_model == results.named_model]
        keys = dict.fromkeys(key for other in (mine, *alike) for key in other)
        differ = [key for key in keys if any(other.get(key) != mine.get(key) for other in alike)]
        labels = {of.results.named_model for of in audits if of.results.short_name == results.short_name}
        called = results.short_name if len(labels) == 1 else results.named_model
        name = " ".join([called, *kind.words.differences(mine, differ)])
        if results.attribute in rows.get(name, {}):
            name = f"{called} ({audited.folder.resolve().name})"
        rows.setdefault(name, {})[results.attribute] = audited
    return rows


# Figures that any audits have side by side: their headlines against the band.


def headlines(group: Group, declared: Declared, number: int, titles: Mapping[str, str]) -> Iterator[Plot]:
    """What the conclusions of a group speak of; `number` keeps the figures' names apart from other groups'."""
    values = []
    words = {audited.results.words for audited in group.audits()}
    favoured = favoured_of(words.pop()) if len(words) == 1 else ("reference", "protected")
    for name, runs in group.drawn.items():
        for audited in runs.values():
            results, cells = audited.results, audited.results.by_key()
            for condition, finding in results.findings.items():
                if not is_of(condition, group.aside):
                    of = f"{name}\n{results.attribute}: {titles.get(condition, condition)}"
                    values.append(spoken_of(finding, of, condition, cells))
    band = group.audits()[0].results.band
    return against_the_band(values, declared, band, favoured, f"{HEADLINES}-{number}")


# Queries far from parity, with what was answered: rankings side by side, or pairs with both answers.


FURTHEST = 10
Values = Mapping[str, float]


@dataclass(frozen=True)
class Item:
    """A document of a ranking as it is shown."""

    title: str
    side: str | None
    relevant: bool


@dataclass(frozen=True)
class FurthestQuery:
    """A query far from parity: its figures, and rankings or pairs of it."""

    query: str
    figures: str
    rankings: Sequence[tuple[str, Sequence[Item]]] = ()
    pairs: Sequence[tuple[str, ...]] = ()
    left_out: int = 0


@dataclass(frozen=True)
class Furthest:
    """Queries by their own value of a measure, the one furthest from parity first; `over` what it was taken. `groups`:
    the two that are compared, of several."""

    title: str
    by: str
    over: str
    queries: Sequence[FurthestQuery]
    groups: tuple[str, str] = ("", "")


Fact = tuple[str, str]
"""What a run has a setting or figure of, and which."""


@dataclass(frozen=True)
class Section:
    """What a kind tells of a run on the run's page.

    `more`: tables below its own; `words` are paragraphs of the method, `facts` rows of its settings.
    """

    table: Table
    plots: Sequence[Plot] = ()
    furthest: Furthest | None = None
    words: Sequence[str] = ()
    facts: Sequence[Fact] = ()
    more: Sequence[Table] = ()


def furthest_from_parity(
    folder: Path,
    results: Results,
    conditions: Sequence[str],
    by: str,
    over: str,
    show: Callable[[str, Values], FurthestQuery | None],
) -> Furthest | None:
    """The queries whose own values of the measure `by` are furthest from parity; None where none is shown.

    `show` gives a query as it is shown, by its id and its values under these `conditions`, or None.
    """
    values: dict[str, dict[str, float]] = {}
    for row in query_figures(folder):
        key = row.key(results.design.contrasts)
        if row.measure == by and key in conditions and not row.group and row.value is not None:
            values.setdefault(row.query_id, {})[key] = row.value
    first = sorted(values, key=lambda query_id: (-distance(values[query_id].values()), query_id))[:FURTHEST]
    queries = [query for query_id in first if (query := show(query_id, values[query_id])) is not None]
    if not queries:
        return None
    title = f"The {len(queries)} of {count(results.design.queries, 'query', 'queries')} furthest from parity"
    groups = next((of.groups for of in conditions if isinstance(of, Key) and of.contrast), ("", ""))
    return Furthest(title, named(by, results), over, queries, groups)


def distance(ratios: Iterable[float]) -> float:
    """How far these are from parity at most: |ln ratio|."""
    return max(abs(log(ratio)) if ratio > 0 else inf for ratio in ratios)


def named(measure: str, results: Results) -> str:
    """A measure as the run's tables call it."""
    return results.labels.get(measure, plain_name(measure))


def figures_text(values: Values, by: str, titles: Mapping[str, str]) -> str:
    """A query's own values of what is called `by`, in a line."""
    return f"{by} " + ", ".join(
        f"{titles.get(condition, condition)} {value:.2f}" for condition, value in values.items()
    )
