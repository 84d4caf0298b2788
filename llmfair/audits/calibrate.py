"""The audit procedure against a known truth: simulated audits of injected preferences, whatever the kind."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import product
from math import exp, sqrt
from typing import Any, TypeVar

import numpy as np

from llmfair.audits.design import Design
from llmfair.io.files import SCHEMA
from llmfair.results import Finding
from llmfair.settings.commands import AuditSettings, CalibrationSettings
from llmfair.settings.declaration import band_of
from llmfair.stats.intervals import Conclusion

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
    """Simulated audits, each with the place of its injected preference; all preferences meet the same noise.

    `draw` gives a block of audits by query_id, `value` what one of them measured: (query_id, block, place, run).
    """
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
    return {name: getattr(settings, name) for name in names}


def row_of(
    columns: Sequence[str],
    beta: float,
    odds: Sequence[float],
    covered: Sequence[bool],
    p: Sequence[float],
    findings: Sequence[Finding],
    level: float,
    own: Row,
) -> Row:
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
