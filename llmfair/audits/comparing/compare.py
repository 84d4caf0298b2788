"""Runs side by side: what two rankers made of the very same questions.

The first run is the base and every other is compared with it. Runs that asked about other lists, or in another
form, are refused; other settings in which they differ are told.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from math import isclose
from pathlib import Path
from typing import Any

from llmfair.audits.comparing.changes import ChangeRow, ComparedRun
from llmfair.audits.comparing.compare_verdict import gravest
from llmfair.audits.kind import Kind, found_of, kind_of, kinds
from llmfair.audits.lists import asked_of_lists
from llmfair.errors import UsageError
from llmfair.io.files import SCHEMA
from llmfair.manifest import RUNS_HINT
from llmfair.metrics.names import parse_measure, parse_measures
from llmfair.results import Results, plain
from llmfair.rundir import RunDir
from llmfair.settings import default_of
from llmfair.stats.intervals import OTHER_DESIGN, OTHER_REACH, SAME_ANSWERS
from llmfair.stats.significance import holm

SAME_LISTS = "give both the same -d, -a, --limit, --queries and the same draw of lists"
REFUSED = {
    "attribute": ("audit different attributes", SAME_LISTS),
    "lists_sha256": ("asked about different lists", SAME_LISTS),
}
"""Settings that must agree whatever the kind of audit, what it means where they do not, and the way out."""
ALIKE = 0.01
"""Ends of attainable ranges that differ by less are the same: they are simulated."""
BUDGETS = ("--max-calls", "--max-cost")


def compare(runs: Sequence[RunDir], measures: str | None = None) -> dict[str, Any]:
    """The comparison as `--json` has it. Raises UsageError for runs that cannot be compared."""
    if len(runs) < 2:
        raise UsageError("a comparison needs two runs or more.", RUNS_HINT)
    folders = [run.path.resolve() for run in runs]
    if twice := [run for run in runs if folders.count(run.path.resolve()) > 1]:
        raise UsageError(f"{twice[-1].path} is named twice: a run does not differ from itself.", RUNS_HINT)
    opened = [_opened(run) for run in runs]
    kind = kind_of(opened[0].results.task)
    base, *others = _named(opened, kind)
    for other in others:
        _check(base, other, kind)
    chosen = parse_measures(measures, kind.reads()) if measures else None
    rows = [
        _comparable(row, base, other, kind) for other in others for row in kind.changes(base, other, chosen)
    ]
    family = [place for place, row in enumerate(rows) if row.headline]
    adjusted = holm([rows[place].p for place in family])
    for place, p in zip(family, adjusted, strict=True):
        rows[place] = replace(rows[place], p_adjusted=p)
    compared = {
        "schema": SCHEMA,
        "status": "complete",
        **{
            key: plain(getattr(base.results, key))
            for key in ("task", "dataset", "attribute", "words", "level", "band")
        },
        "seed": base.results.design.seed,
        "queries": base.results.design.queries,
        "runs": [_described(one, base, kind) for one in (base, *others)],
        "family": sum(p is not None for p in adjusted),
        "rows": [asdict(row) for row in rows],
    }
    verdict = gravest(compared)
    return compared if verdict is None else {"verdict": plain(verdict), **compared}


def _opened(run: RunDir) -> ComparedRun:
    """A run with its results. Raises UsageError for an incomplete one: what it lacks is not missing by chance."""
    manifest, results = run.read_manifest(), run.read_results()
    known = {kind.name: kind for kind in kinds()}
    if results["task"] not in known:
        raise UsageError(f"{run.path} is a run of {results['task']}.", f"{' and '.join(known)} runs compare")
    found: Results = found_of({**results, **manifest.told()}, run.results)
    if found.status != "complete":
        program, *words = manifest.invocations[-1].command
        typed = Path(program).name in ("llmfair", "__main__.py")  # else the Python API was called
        began = f"llmfair {shlex.join(_unlimited(words))}   " if typed else "the call that began it"
        raise UsageError(f"{run.path} is incomplete.", f"{began} completes it")
    return ComparedRun("", run, manifest, found, known[found.task].aside)


def _unlimited(words: Sequence[str]) -> Iterator[str]:
    """A command without what would end it early again, ask nothing, or set aside the answers that are there."""
    rest = iter(words)
    for word in rest:
        if word in BUDGETS:
            next(rest, None)
        elif word.partition("=")[0] not in (*BUDGETS, "--dry-run", "--fresh"):
            yield word


def _named(runs: Sequence[ComparedRun], kind: Kind) -> list[ComparedRun]:
    """Called by their labels or models where these differ, else by both, by how they asked, or by their folders."""
    models = [one.results.short_name for one in runs]
    labelled = [one.results.named_model for one in runs]
    folders = [one.run.path.resolve().name for one in runs]
    paths = [str(one.run.path) for one in runs]
    asked = [_and_how(one, model, kind) for one, model in zip(runs, models, strict=True)]
    names = next((names for names in (models, labelled, asked, folders) if len({*names}) == len(runs)), paths)
    return [replace(one, name=name) for one, name in zip(runs, names, strict=True)]


def _and_how(run: ComparedRun, model: str, kind: Kind) -> str:
    """A model with the strategy by which it was asked, where it is not the usual one."""
    named = [
        name for name in kind.asked_by if name in run.settings and name not in kind.settings().of_result()
    ]
    return " ".join([model, *(str(run.settings[name]) for name in named)])


def _check(base: ComparedRun, other: ComparedRun, kind: Kind) -> None:
    """Raises UsageError for runs that did not ask the same, saying what differs."""
    first, *rest = (one.name for one in kinds())
    like = ", ".join([f"{first} goes with {first}", *(f"{name} with {name}" for name in rest)])
    refused = {"task": ("are runs of different tasks", like), **REFUSED, **kind.agree}
    for key, (found, hint) in refused.items():
        if base.setting(key) != other.setting(key):
            told = "; ".join(_told(key, run) for run in (base, other))
            raise UsageError(f"{base.name} and {other.name} {found} ({told}).", hint)


def _comparable(row: ChangeRow, base: ComparedRun, other: ComparedRun, kind: Kind) -> ChangeRow:
    """The row, without interval and test where the two runs give no two figures that could differ or be compared."""
    reason = ""
    if _same_answers(base, other):
        reason = SAME_ANSWERS
    elif bounding := parse_measure(row.measure).definition.reach:
        if _bounded(bounding[0], base, other):
            reason = OTHER_REACH
        elif _asked_otherwise(base, other, kind):
            reason = OTHER_DESIGN
    return replace(row, low=None, high=None, p=None, reason=reason, reason_of=()) if reason else row


def _asked_otherwise(base: ComparedRun, other: ComparedRun, kind: Kind) -> bool:
    """Whether both asked a model, and in other ways: how far a preference moves the exposures hangs on the way."""
    prompted = all(run.manifest.prompt is not None for run in (base, other))
    return prompted and any(base.setting(name) != other.setting(name) for name in kind.asked_by)


def _same_answers(base: ComparedRun, other: ComparedRun) -> bool:
    """Whether all that was asked for one run is known from the other, and answered alike."""
    if base.settings["identity"] != other.settings["identity"]:
        return False
    fewer, more = sorted((base.answers, other.answers), key=len)
    return bool(fewer) and all(more.get(key) == answer for key, answer in fewer.items())


def _bounded(bounding: str, base: ComparedRun, other: ComparedRun) -> bool:
    """Whether the runs have different attainable ranges.

    Then the distance from parity of a figure that hangs on it would tell of the windows, not of the rankers alone.
    """
    one, two = (plain(run.results.reach.get(bounding, {})) for run in (base, other))
    return one.keys() != two.keys() or not all(isclose(one[end], two[end], rel_tol=ALIKE) for end in one)


def _told(key: str, run: ComparedRun) -> str:
    """One of these settings in words."""
    value = run.setting(key)
    if key == "attribute" and isinstance(value, dict):
        of = asked_of_lists(run.run, run.settings).attribute
        return f"{of.name}, {'+'.join(of.protected)} against {'+'.join(of.unprotected)}"
    if key == "lists_sha256":
        return f"{run.results.dataset}, {run.results.design.queries} queries, {str(value)[:6]}"
    return str(value)


def _described(one: ComparedRun, base: ComparedRun, kind: Kind) -> dict[str, Any]:
    """A run, with the settings in which it differs from the base."""
    told = {*base.settings, *one.settings, "system"} - {*REFUSED, *kind.agree, "task", "identity", "queries"}
    told -= {*base.manifest.unused, *one.manifest.unused}
    usual = {
        item.name: default_of(item) for item in fields(kind.settings)
    }  # what is left as it is names no run
    settings = [{**usual, **run.settings, "system": run.manifest.flags.get("system")} for run in (base, one)]
    differs = {
        key: [of_run.get(key) for of_run in settings]
        for key in sorted(told)
        if settings[0].get(key) != settings[1].get(key)
    }
    return {
        "name": one.name,
        "run": str(one.run.path),
        "model": one.results.model,
        "differs": differs,
        "same_answers": one is not base and _same_answers(base, one),
        "reach": plain(one.results.reach),
        **kind.described(one, base),
    }
