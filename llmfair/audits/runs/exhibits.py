"""What a report shows of a run beside its figures: titles, the command, and answers drawn as evidence.

Nothing here depends on when or in which order a chat was asked, so that a report is the same bytes for the same
answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from inspect import isfunction
from zlib import crc32

from llmfair.audits.commands import command_of, settings_of
from llmfair.audits.design import read_texts
from llmfair.audits.kind import results_of
from llmfair.audits.runs.evidence import all_answers
from llmfair.backends.given import PREFIX as GIVEN
from llmfair.errors import UsageError
from llmfair.manifest import Manifest
from llmfair.metrics.base import Measure
from llmfair.metrics.names import parse_measure
from llmfair.report.exhibits import Declaration, Evidence, Exhibits
from llmfair.rundir import RunDir

MARKUP = re.compile(r"(`+)(.*?)\1")


def exhibits_of(run: RunDir, evidence: int) -> Exhibits:
    """Those of an audit's run folder, with so many answers as evidence. Raises UsageError."""
    manifest, results = run.read_manifest(), results_of(run)
    settings = settings_of(run, manifest)
    texts = read_texts(run.path)
    return Exhibits(
        command=None
        if settings is None or manifest.model.startswith(f"{GIVEN}:")  # no command names an object
        else command_of(manifest.task, settings, manifest.model),
        measures=declared(results.measures),
        titles=texts.titles,
        queries=texts.queries,
        evidence=drawn_answers(run, manifest, evidence, results.design.seed),
    )


def declared(names: Iterable[str]) -> dict[str, Declaration]:
    """What measures declare of themselves, by name; those that nothing here defines are absent."""
    found = {}
    for name in names:
        try:
            found[name] = _declaration(parse_measure(name))
        except UsageError:
            continue
    return found


def _declaration(measure: Measure) -> Declaration:
    definition = measure.definition
    # functions of ours say in their first line what they give; a partial of another's would speak of itself
    said = definition.says or (definition.values.__doc__ if isfunction(definition.values) else "")
    return Declaration(
        label=definition.label,
        parity=definition.parity,
        scale=definition.scale,
        better=definition.better,
        agreement=definition.agreement,
        of_all=measure.of_all,
        set_of=measure.cutoff if definition.of_a_set else None,
        headline=definition.headline,
        worded=definition.worded,
        shows=definition.shows,
        reach=definition.reach[0] if definition.reach else "",
        cite=definition.cite,
        says=MARKUP.sub(r"\2", (said or "").partition("\n")[0].strip()),
    )


def drawn_answers(run: RunDir, manifest: Manifest, count: int, seed: int = 0) -> list[Evidence]:
    """Answers with their chats: unparseable ones first, then the others, each in an order of the run's seed."""

    def place(answer: Evidence) -> tuple[bool, int, str]:
        return answer.ended == "ok", crc32(answer.key.encode(), seed & 0xFFFFFFFF), answer.key

    return nsmallest(count, _once(all_answers(run, manifest)), key=place)


def _once(answers: Iterable[Evidence]) -> Iterator[Evidence]:
    seen = set()
    for answer in answers:
        if answer.key not in seen:
            seen.add(answer.key)
            yield answer
