"""The books of a run while it is worked on: its folder held, its manifest kept honest, its costs noted."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import fsum
from typing import Any

from llmfair.asking.batch import FILE as BATCHES
from llmfair.asking.journal import Journal
from llmfair.asking.limits import Progress
from llmfair.audits.design import versions
from llmfair.audits.kind import results_of
from llmfair.errors import LlmfairError, RunConflict, UsageError
from llmfair.io import secrets
from llmfair.io.files import SCHEMA
from llmfair.results import Requirement
from llmfair.rundir import RunDir, clock, set_aside


@contextmanager
def session(
    folder: RunDir, identity: Mapping[str, Any], fresh: bool, facts: Mapping[str, Any]
) -> Iterator[tuple[Journal, dict[str, Any]]]:
    """Holds a run folder while it is worked on; yields its journal and the manifest to be completed.

    The manifest says `running` meanwhile and `incomplete` after anything but a clean end, so that what is on
    disk never claims more than there is. A run that ends before its first answer leaves no folder behind.
    """
    made, known = folder.missing(), folder.prepare(identity)
    with folder.locked(), folder.given_up(made):
        earlier = folder.read_manifest() if known else None
        if fresh:
            for path in (*(folder.journals(earlier) if earlier else [folder.journal]), folder.path / BATCHES):
                set_aside(path)
            earlier = None
        journal = Journal(folder.journal, folder.path.name, str(identity["identity"]))
        refuse_fewer(journal, earlier.journal_answers if earlier else 0)
        tell = clock()
        invocation = {"command": secrets.written(sys.argv), "started": tell(), "ended": None}
        manifest: dict[str, Any] = {
            "schema": SCHEMA,
            "status": "running",
            "settings": dict(identity),
            "versions": versions(),
            "journal_answers": len(journal),
            "journal_lines_skipped": journal.skipped,
            "invocations": [*folder.invocations(), invocation],
            **facts,
        }
        if "stages" in facts:
            manifest["stage_answers"] = dict(earlier.stage_answers) if earlier else {}
            manifest["stage_lines_skipped"] = {}
        folder.write_json("manifest.json", manifest)
        try:
            try:
                yield journal, manifest
            finally:
                manifest["journal_answers"] = len(journal)
                note_servers(manifest, journal)
                invocation["ended"] = tell()
                journal.close()
        except BaseException:
            manifest["status"] = "incomplete"
            if journal.path.exists():  # else the folder may have been moved, and is not made anew
                with suppress(LlmfairError):  # what failed first is said
                    folder.write_json("manifest.json", manifest)
            raise
        folder.write_json("manifest.json", manifest)


def note_servers(manifest: dict[str, Any], journal: Journal) -> None:
    """Adds which of several servers gave a journal's answers."""
    if journal.servers:
        answers = Counter(manifest.get("servers", {})) + journal.servers
        manifest["servers"] = dict(sorted(answers.items()))


def refuse_fewer(journal: Journal, given: int) -> None:
    """Raises RunConflict for a journal with fewer answers than were given."""
    lost = given - len(journal) - len(journal.skipped)
    if lost > 0:
        raise RunConflict(
            f"{journal.path} holds {len(journal):,} answers, {lost:,} fewer than were given.",
            "put the journal back, or ask again with --fresh",
        )


def superseded(folder: RunDir, measures: Collection[str], gates: Collection[str]) -> Iterator[str]:
    """What the results on disk say and those of a command with these measures and gates will not, in words."""
    try:
        before = results_of(folder)
    except UsageError:  # none yet, or damaged: there is nothing to lose
        return
    path = folder.results
    if gone := [name for name in before.measures if name not in measures]:
        yield (
            f"{path} and the CSV files held {', '.join(gone)} before, which this command does not measure; from the "
            f"same answers: llmfair score {folder.path} --measures {shlex.quote(gone[0])}"
        )
    said = {one.require: one.holds for one in sorted(before.requirements, key=_broken_last)}
    for text, holds in said.items():
        if text not in gates:
            met = "met" if holds else "not met"
            yield f"{path} said that --require {text} is {met}, which this command does not ask"


def _broken_last(requirement: Requirement) -> bool:
    """Of several conditions those that break a gate have the last word."""
    return not requirement.holds


def charge(manifest: dict[str, Any], progress: Progress) -> None:
    """Notes what an invocation asked, however it ended; `cost` is the whole run's, None where no prices were known."""
    facts: dict[str, Any] = {
        "answered": progress.answered,
        "calls": progress.calls,
        "replayed": progress.replayed,
        "cached": progress.cached,
        "retries": progress.retries,
        "prompt_tokens": progress.prompt_tokens,
        "completion_tokens": progress.completion_tokens,
        "cost": progress.cost,
        "models_reported": sorted(progress.models),
        "fingerprints_reported": sorted(progress.fingerprints),
    }
    manifest["invocations"][-1] |= facts
    known = [cost for one in manifest["invocations"] if (cost := one.get("cost")) is not None]
    manifest |= {**facts, "cost": fsum(known) if known else None}
