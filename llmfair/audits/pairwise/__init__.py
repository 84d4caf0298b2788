"""The pairwise audit: a model is asked which of two items comes first, in both orders."""

from __future__ import annotations

from typing import ClassVar

from llmfair.audits.kind import Help, Kind
from llmfair.audits.pairwise.settings import CalibratePairwiseSettings, PairwiseSettings, PlanPairwiseSettings
from llmfair.registry import later, register


class Pairwise(Kind):
    name = "pairwise"
    helps: ClassVar = {
        "": Help(
            "Who wins between a protected and an unprotected item, asked in both orders.",
            (
                "llmfair pairwise -m openai:gpt-4o-mini --pairs 20",
                "llmfair pairwise -d my-folder -m openai:any --base-url http://127.0.0.1:8000/v1 --sequential",
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
    question = "of its questions"
    calibrated = CalibratePairwiseSettings

    design = later("llmfair.audits.pairwise.design:make_pair_design")
    calibrate = later("llmfair.audits.pairwise.design:calibrate_pairwise")
    documents = later("llmfair.audits.pairwise.design:DOCUMENTS")
    results = later("llmfair.audits.pairwise.results:PairwiseResults")
    measure = later("llmfair.audits.pairwise.measure:MEASURING")
    words = later("llmfair.audits.pairwise.words:WORDS")


PAIRWISE = register("audit", "pairwise")(Pairwise())
