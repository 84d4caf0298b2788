"""The pairwise audit: a model is asked which of two items comes first, in both orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from llmfair.audits.kind import HELP, Help, Kind, called, named
from llmfair.audits.pairwise.settings import (
    CalibratePairwiseSettings,
    PairwiseSettings,
    PlanPairwiseSettings,
)
from llmfair.registry import register
from llmfair.settings import injected_of


class Pairwise(Kind):
    name = "pairwise"
    title = "Pairwise audit"
    helps: ClassVar = {
        "": Help(
            "Who wins between a protected and an unprotected item, asked in both orders.",
            (
                "llmfair pairwise -m openai:gpt-4o-mini --pairs 20",
                "llmfair pairwise -d my-folder -m openai:any --base-url http://127.0.0.1:8000/v1 --sequential",
            ),
        ),
        "plan": Help(
            HELP["plan"].format(name="pairwise"),
            (
                "llmfair plan pairwise --ratio 0.9",
                "llmfair plan pairwise -m openai:gpt-4o-mini --icc 0.1 --price-in 0.15 --price-out 0.6",
            ),
        ),
        "render": Help(
            HELP["render"].format(name="pairwise", question="of its questions"),
            (
                "llmfair prompts render pairwise --queries physics",
                "llmfair prompts render pairwise --form letter --number 2",
            ),
        ),
        "calibrate": Help(
            "Simulated pairwise audits of your own pairs: recovery, coverage, false-positive rate, smallest odds "
            "found.\n\nNo model is asked.",
            (
                "llmfair calibrate pairwise",
                "llmfair calibrate pairwise -d my-folder --pairs 20 --injected -0.5,0.5 --position 2 --query-sd 0.5",
            ),
        ),
    }
    settings = PairwiseSettings
    plan_settings = PlanPairwiseSettings
    calibrated = CalibratePairwiseSettings
    condition = "pairs"
    of_conditions = ("conditions",)
    numbered = "Which question: each pair has two, one for either order."
    agree: ClassVar = {
        "form": ("asked in different forms", "run both with the same --form"),
        "answers": ("were read in different ways", "run both with the same --answers"),
        "grades": ("pair items of other relevance grades", "run both with the same --grades"),
        "weights": ("weigh pairs differently", "run both with the same --weights; the answers serve again"),
    }
    how_changed = (
        "change: of the figures of all queries (× for ratios); t over the clusters of both runs together"
    )

    design = called("audits.pairwise.design:make_pair_design")
    rendered = called("audits.pairwise.design:rendered")
    before = called("audits.pairwise.words:before_text")
    plan_table = called("audits.pairwise.words:plan_pairs_table")
    plan_text = called("audits.pairwise.words:plan_pairs_text")
    calibrate = called("audits.pairwise.calibrate:calibrate_pairwise")
    calibration_table = called("audits.pairwise.words:calibrate_pairs_table")
    documents = named("audits.pairwise.calibrate:DOCUMENTS")
    results = named("audits.pairwise.results:PairwiseResults")
    verdict = called("audits.pairwise.words:pair_verdict")
    table = called("audits.pairwise.words:pairwise_table")
    section = called("audits.pairwise.words:pairwise_section")
    words = named("audits.pairwise.words:WORDS")
    group_plots = called("audits.pairwise.words:group_plots")
    concluded = called("audits.pairwise.words:pair_conclusion")
    how_ended = called("audits.pairwise.measure:how_ended")
    reads = named("metrics.pairs:JudgedPairs")
    score = called("audits.pairwise.measure:score_pairs")
    changes = called("audits.pairwise.measure:pair_changes")
    described = called("audits.pairwise.measure:described_pairs")
    compared_notes = called("audits.pairwise.words:compared_notes")

    def calibration(self, settings: CalibratePairwiseSettings) -> int:
        return len(settings.strata()) * len(injected_of(settings.injected)) * settings.runs

    def what_was_shown(self, about: Mapping[str, Any]) -> str:
        return f"{about['sides'][0]} first"

    def without_value(self, undefined: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Nothing: single queries alone lack figures, and those of all count their pairs."""
        return iter(())


PAIRWISE = register("audit", "pairwise")(Pairwise())
