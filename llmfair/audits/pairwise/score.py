"""The figures of a pairwise audit again, from its verdicts alone. No model is asked."""

from __future__ import annotations

from typing import Any

from llmfair.audits.pairwise.outcome import Asked, measure_verdicts
from llmfair.audits.runs import PairTarget
from llmfair.audits.score_gates import gates_of
from llmfair.audits.summary import Inference, undefined_counts
from llmfair.metrics.names import parse_measures
from llmfair.metrics.pairs import JudgedPairs
from llmfair.records import Measurement
from llmfair.results import plain
from llmfair.settings import ScoreSettings, band_of

NOTHING = {"documents": 0, "queries": 0, "first": []}


def score_pairs(settings: ScoreSettings, target: PairTarget) -> tuple[dict[str, Any], list[Measurement]]:
    """What results.json says of a folder of pairs, and its rows: those of the audit, unless others are asked for."""
    asked = target.settings
    gated = [gate.measure for gate in gates_of(settings, JudgedPairs)]
    measures, shown = (
        parse_measures(",".join((settings.measures or names, *gated)), JudgedPairs)
        for names in (target.measures, target.shown)
    )
    measured = measure_verdicts(
        measures,
        target.verdicts,
        Asked(
            Inference(level=settings.level, seed=asked["seed"]),
            band_of(settings.band),
            asked["repeats"],
            asked["constrain"],
            target.decided,
        ),
    )
    kinds = {
        kind: {
            "queries": len({verdict.query_id for verdict in verdicts}),
            "pairs": len(verdicts),
            **dict.fromkeys(("tied", "unlisted", "unjudged", "not_ranked"), NOTHING),
        }
        for kind, verdicts in target.verdicts.items()
    }
    facts = {
        **target.columns,
        "task": "pairwise",
        "words": dict(target.words),
        "measures": [str(measure) for measure in shown],
        "variants": kinds,
        "undefined": undefined_counts(measured.columns),
        "findings": plain(measured.findings),
        "family": {"size": measured.family, "contrasted": None},
        **({"incomplete": dict(target.incomplete)} if target.incomplete else {}),
    }
    return facts, list(measured.rows)
