"""Audits that belong side by side: those of one task on one data set, each row a model or one of its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmfair.report.source import Source

OF_THE_LISTS = {
    "task", "identity", "attribute", "lists_sha256", "queries", "arms", "kinds", "prompt_sha256", "mixed",
    "control",
}  # fmt: skip
"""Settings that do not make a model another row: they belong to the columns, or are the model's own name."""


@dataclass(frozen=True)
class Group:
    """Audits of one task on one data set: `rows` names each model or setting, with its runs by attribute."""

    task: str
    dataset: str
    rows: Mapping[str, Mapping[str, Source]]

    def sources(self) -> list[Source]:
        return [source for runs in self.rows.values() for source in runs.values()]

    @property
    def attributes(self) -> list[str]:
        """What the audits were about, with the protected side: `gender (protected: female)`."""
        found = (source.audit for source in self.sources())
        return [*dict.fromkeys(f"{one.attribute} (protected: {one.words.protected})" for one in found)]

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Attributes and what was asked under them: each attribute's together, in the order in which they come."""
        found: dict[str, dict[str, None]] = {}
        for runs in self.rows.values():
            for attribute, source in runs.items():
                arms = source.audit.design.arms
                found.setdefault(attribute, {}).update(dict.fromkeys(arm for arm in arms if arm != "control"))
        return [(attribute, arm) for attribute, arms in found.items() for arm in arms]


def groups_of(sources: Sequence[Source]) -> list[Group]:
    """Audits by task and data set."""
    found: dict[tuple[str, str], list[Source]] = {}
    for source in sources:
        if source.is_audit:
            results = source.audit
            found.setdefault((results.task, results.dataset), []).append(source)
    return [Group(task, dataset, _rows_of(of_it)) for (task, dataset), of_it in found.items()]


def _rows_of(sources: Sequence[Source]) -> dict[str, dict[str, Source]]:
    """Runs by what they are of; a model with several settings is told apart by what differs, or by the run's name."""
    settings = {
        source.run.path: {
            key: value for key, value in source.manifest["settings"].items() if key not in OF_THE_LISTS
        }
        for source in sources
    }
    rows: dict[str, dict[str, Source]] = {}
    for source in sources:
        results = source.audit
        alike = [settings[one.run.path] for one in sources if one.audit.model == results.model]
        own = settings[source.run.path]
        differ = [key for key in own if any(other.get(key) != own[key] for other in alike)]
        name = " ".join([results.model, *_told(own, differ)])
        if results.attribute in rows.get(name, {}):
            name = f"{results.model} ({source.name})"
        rows.setdefault(name, {})[results.attribute] = source
    return rows


def _told(settings: Mapping[str, Any], differ: Sequence[str]) -> list[str]:
    """Settings that tell runs of one model apart, short: windows as `20/10x3`, the first others by name."""
    windows = ("window", "step", "passes")
    told = ["{window}/{step}x{passes}".format_map(settings)] if {*windows} & {*differ} else []
    return told + [f"{key} {settings[key]}" for key in differ if key not in windows][:2]
