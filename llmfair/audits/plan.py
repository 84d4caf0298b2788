"""What an audit would ask, cost and can find; and simulated audits of injected preferences, whatever the kind."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import product
from math import ceil, exp, sqrt
from typing import Any, TypeVar

import numpy as np

from llmfair.audits.design import Design, remarks_of
from llmfair.audits.gates import statuses_of
from llmfair.audits.kind import Kind
from llmfair.audits.runs.run import folder_of, seen
from llmfair.audits.subject import left_out, limits_of, subjects, unready
from llmfair.io.files import SCHEMA
from llmfair.nouns import picked
from llmfair.results import Finding
from llmfair.settings.commands import AuditSettings, CalibrationSettings, PlanningSettings
from llmfair.settings.declaration import band_of
from llmfair.stats.intervals import Conclusion

SUMMED = (
    "calls", "prompt_tokens", "completion_tokens", "seconds_at_1s_a_call", "seconds", "cost", "answered",
)  # fmt: skip
"""What several runs take together."""


def plan(kind: Kind, settings: AuditSettings) -> dict[str, Any]:
    """An audit before it runs; of settings that name several runs the first, with what all take, and each beside it."""
    plans = [_plan(kind, each) for each in settings.each()]
    if len(plans) == 1:
        return plans[0]
    names = [name for name in SUMMED if all(each.get(name) is not None for each in plans)]
    return {**plans[0], **{name: sum(each[name] for each in plans) for name in names}, **kind.beside(plans)}


def _plan(kind: Kind, settings: AuditSettings) -> dict[str, Any]:
    """Calls, about how many tokens and the shortest possible time of an audit of all models that the settings name.

    With settings of a plan (`Kind.plan_settings`) also its cost, and what it can find. Calls are exact for a model
    whose answers are all readable, or the most there can be; tokens are characters / 4. Rankers that ask no model
    cost nothing. Raises UsageError.
    """
    statuses_of(settings.fail_on, kind.words.statuses[:-1])
    named = subjects(settings)
    asked = [subject for subject in named if not (kind.ranks and subject.ranks)]
    workers, wishes = 1, list[str]()
    for subject in asked:
        backend = subject.backend(settings)
        workers = max(workers, limits_of(backend, settings).workers)
        wishes += left_out(backend, subject.label, settings)
    design = kind.design(settings, (asked or named)[0])
    # what a gate bars is barred here, too, but a plan tells what would have to change
    planning = isinstance(settings, PlanningSettings)
    beyond = remarks_of(design, refuses=not planning)
    prompts, answers = (
        None if each is None else each * len(asked) for each in design.tokens() or (None, None)
    )
    _, folder = folder_of(design, design.backend())
    planned = {
        "schema": SCHEMA,
        "task": kind.name,
        **design.plan(len(asked)),
        "sees": seen(design),
        "calls": design.calls * len(asked),
        "prompt_tokens": prompts,
        "completion_tokens": answers,
        "workers": workers,
        "seconds_at_1s_a_call": max(design.longest, ceil(design.calls / workers)) * len(asked),
        "folder": str(folder.path),
        "answered": folder.summary()["answers"] if folder.manifest.is_file() else 0,
        "unready": unready(settings),
        "assessable": design.assessable,
        "remarks": [*design.remarks, *beyond, *wishes],
    }
    if isinstance(settings, PlanningSettings):
        planned |= {
            "latency": settings.latency,
            "seconds": planned["seconds_at_1s_a_call"] * settings.latency,
            "findable": design.findable(settings),
        }
    price_in, price_out, cost = settings.price_in, settings.price_out, None
    if price_in is not None and price_out is not None and prompts is not None and answers is not None:
        cost = (prompts * price_in + answers * price_out) / 1e6  # prices are per million tokens
    if planning or price_in is not None:
        planned |= {"price_in": price_in, "price_out": price_out, "cost": cost}
    return planned


BLOCK = 50
"""Audits simulated at once, from one seed: more runs leave the earlier ones as they were."""
Drawn = TypeVar("Drawn")
Value = TypeVar("Value")
Found = TypeVar("Found")
Row = dict[str, Any]


def simulated(
    settings: CalibrationSettings,
    betas: Sequence[float],
    draw: Callable[[int], Mapping[str, Drawn]],
    value: Callable[[str, Drawn, int, int], Value],
) -> Iterator[tuple[int, Mapping[str, Value]]]:
    """Simulated audits, each with the place of its injected preference; all preferences meet the same noise. `draw`
    gives a block of audits by query_id, `value` what one of them measured: (query_id, block, place, run)."""
    for block, first in enumerate(range(0, settings.runs, BLOCK)):
        drawn = draw(block)
        for run, place in product(range(min(BLOCK, settings.runs - first)), range(len(betas))):
            yield place, {query_id: value(query_id, of_it, place, run) for query_id, of_it in drawn.items()}


def rng_of(settings: AuditSettings, query_id: str, *stream: int) -> np.random.Generator:
    """The noise of a query, whatever other queries there are."""
    return np.random.default_rng([settings.seed, zlib.crc32(query_id.encode()), *stream])


def found_by_preference(
    audits: Iterable[tuple[int, Mapping[str, Value]]],
    betas: Sequence[float],
    read: Callable[[Mapping[str, Value]], Found],
    advance: Callable[[], None],
) -> list[list[Found]]:
    """What was found in the audits of each injected preference; `advance` is called after every audit."""
    findings: list[list[Found]] = [[] for _ in betas]
    for place, audit in audits:
        findings[place].append(read(audit))
        advance()
    return findings


def about(design: Design[Any], settings: CalibrationSettings) -> dict[str, Any]:
    """What the results of every calibration begin with."""
    return {
        "schema": SCHEMA,
        "task": f"calibrate {design.task}",
        "dataset": design.dataset.name,
        "attribute": design.attribute.name,
        "words": {side.value: word for side, word in design.attribute.words.items()},
        "seed": settings.seed,
        "runs": settings.runs,
        "level": settings.level,
        "band": list(band_of(settings.band)),
    }


def settings_of(settings: CalibrationSettings) -> dict[str, Any]:
    """The settings that what is found depends on."""
    panels = ("Data", "Prompt", "Statistics")
    names = (item.name for item in fields(settings) if item.metadata["panel"] in panels)
    return picked(settings, names)


def row_of(
    columns: Sequence[str], beta: float, odds: Sequence[float], covered: Sequence[bool], p: Sequence[float],
    findings: Sequence[Finding], level: float, own: Row,
) -> Row:  # fmt: skip
    """What the audits of one injected preference found, in these columns; a share of no audit is None.

    `odds` are those that audits read; the row has their median, and the mean of their logarithms. `covered`: whether
    each interval holds the truth. `p` below 1 − level is a false alarm where nothing is injected, elsewhere a find.
    `own` columns are of this kind alone; its `undefined` is counted with the reasons of findings.
    """
    logs, ends = np.log(odds), Counter(finding.conclusion for finding in findings)
    undefined = Counter(finding.reason for finding in findings if finding.reason is not None)
    undefined.update(own.get("undefined", {}))
    row = own | {
        "injected": beta,
        "injected_odds": exp(beta),
        "odds": float(np.median(odds)) if odds else None,
        "log_odds": float(logs.mean()) if odds else None,
        "log_odds_error": float(logs.std(ddof=1) / sqrt(len(odds))) if len(odds) > 1 else None,
        **dict(zip(("covered", "covered_error"), share(covered), strict=True)),
        "covered_n": len(covered),
        **dict(zip(("rejected", "rejected_error"), share([chance < 1 - level for chance in p]), strict=True)),
        "rejected_n": len(p),
        **{str(end): ends[end] / len(findings) for end in Conclusion},
        "undefined": {reason: n for reason, n in sorted(undefined.items()) if n},
    }
    return {name: row[name] for name in (*columns, "undefined")}


def share(holds: Sequence[bool]) -> tuple[float | None, float | None]:
    """A share with its Monte Carlo error, which is not 0 where all or none hold [Agresti & Coull 1998]."""
    if not holds:
        return None, None
    middle = (sum(holds) + 2) / (len(holds) + 4)
    return sum(holds) / len(holds), sqrt(middle * (1 - middle) / (len(holds) + 4))
