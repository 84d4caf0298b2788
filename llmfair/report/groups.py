"""Audits that belong side by side: of one task, about the very same lists, each row a model or one of its settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from llmfair import registry
from llmfair.results import Results

DRAWN = 8
"""Models that a figure shows; a ninth could not be told apart."""
OF_THE_LISTS = {"task", "identity", "attribute", "lists_sha256", "queries", "prompt_sha256", "mixed"}
"""Settings that do not make a model another row: they belong to the columns, or are the model's own name."""
LISTS = "lists_sha256"
DRAWN_BY = ("mixed", "run", "limit", "queries", "candidates", "buckets", "relevant", "min_relevant")
"""What a user sets of the lists that are asked about."""


def about(attribute: str, protected: str) -> str:
    """What an audit was about, with the protected side where there are sides."""
    return f"{attribute} (protected: {protected})" if protected else attribute


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


class SideBySide(Protocol):
    """What a kind of audit says of several runs side by side (`audits/kind.py`)."""

    @property
    def aside(self) -> Collection[str]: ...
    @property
    def of_conditions(self) -> Collection[str]: ...
    def told_apart(self, settings: Mapping[str, Any], differ: Sequence[str]) -> list[str]: ...


@dataclass(frozen=True)
class Group:
    """Audits of one task about the same lists: `rows` names each model or setting, with its runs by attribute.

    `lists` says which, where others of the task and `dataset` are about other lists. `aside`: conditions without
    columns of their own, since they only repeat another.
    """

    task: str
    dataset: str
    rows: Mapping[str, Mapping[str, AuditedRun]]
    aside: Collection[str] = field(default=())
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
        found = (audited.results for audited in self.audits())
        return [*dict.fromkeys(about(one.attribute, one.words.protected) for one in found)]

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Attributes and what was asked under them: each attribute's together, in the order in which they come."""
        found: dict[str, dict[str, None]] = {}
        for runs in self.rows.values():
            for attribute, audited in runs.items():
                conditions = (
                    condition
                    for condition in audited.results.design.conditions
                    if condition not in self.aside
                )
                found.setdefault(attribute, {}).update(dict.fromkeys(conditions))
        return [(attribute, condition) for attribute, conditions in found.items() for condition in conditions]


def groups_of(audits: Iterable[AuditedRun], kinds: Mapping[str, SideBySide]) -> list[Group]:
    """Audits by task, collection and lists; `kinds` has the kind of each task."""
    tables: dict[tuple[str, str], list[list[AuditedRun]]] = {}
    for audited in audits:
        of_data = tables.setdefault((audited.results.task, audited.collection), [])
        table = next((table for table in of_data if audited.belongs(table)), None)
        if table is None:
            of_data.append([audited])
        else:
            table.append(audited)
    return [
        Group(task, dataset, _rows_of(kinds[task], table, [*chain(*of_data)]), kinds[task].aside, lists)
        for (task, dataset), of_data in tables.items()
        for table, lists in zip(of_data, _names_of_lists(of_data), strict=True)
    ]


def _names_of_lists(tables: Sequence[Sequence[AuditedRun]]) -> list[str]:
    """What the lists of each table are called, with the settings in which they differ; nothing of a single table."""
    if len(tables) < 2:
        return [""]
    drawn = [table[0].drawn_by for table in tables]
    differ = [name for name in DRAWN_BY if any(by[name] != drawn[0][name] for by in drawn)]
    names = []
    for table, by in zip(tables, drawn, strict=True):
        digits = dict.fromkeys(str(audited.settings.get(LISTS))[:6] for audited in table)
        told = [f"{name.replace('_', '-')} {by[name]}" for name in differ if by[name] is not None]
        default = ["by default"] * (bool(differ) and not told)
        names.append(", ".join([f"lists {' and '.join(digits)}", *told, *default]))
    return names


def _rows_of(
    kind: SideBySide, table: Sequence[AuditedRun], audits: Sequence[AuditedRun]
) -> dict[str, dict[str, AuditedRun]]:
    """Runs of a table by what they are of, each named among all `audits`.

    A model with several settings is told apart by what differs, or by the run's name.
    """
    shared = {*OF_THE_LISTS, *kind.of_conditions}
    settings = {
        audited.folder: {key: value for key, value in audited.settings.items() if key not in shared}
        for audited in audits
    }
    rows: dict[str, dict[str, AuditedRun]] = {}
    for audited in table:
        results = audited.results
        alike = [settings[one.folder] for one in audits if one.results.named_model == results.named_model]
        own = settings[audited.folder]
        keys = dict.fromkeys(key for other in (own, *alike) for key in other)
        differ = [key for key in keys if any(other.get(key) != own.get(key) for other in alike)]
        labelled = {one.results.named_model for one in audits if one.results.short_name == results.short_name}
        called = results.short_name if len(labelled) == 1 else results.named_model
        name = " ".join([called, *kind.told_apart(own, differ)])
        if results.attribute in rows.get(name, {}):
            name = f"{called} ({audited.folder.resolve().name})"
        rows.setdefault(name, {})[results.attribute] = audited
    return rows
