"""The listwise audit: a model orders lists under a neutral prompt, and under prompts that name each side."""

from __future__ import annotations

from typing import ClassVar

from llmfair.audits.kind import HELP, Help, Kind
from llmfair.audits.listwise.settings import CalibrateSettings, ListwiseSettings, PlanSettings
from llmfair.audits.listwise.windows import WindowsStudy
from llmfair.registry import later, register


class Listwise(Kind):
    name = "listwise"
    helps: ClassVar = {
        "": Help(
            "Exposure and utility of a ranker under neutral and sensitive prompts.",
            (
                "llmfair listwise -m openai:gpt-4o-mini --dry-run",
                "llmfair listwise -d my-folder -m openai:any --base-url http://127.0.0.1:8000/v1",
            ),
        ),
        "plan": Help(
            HELP["plan"].format(name="listwise"),
            (
                "llmfair plan listwise -m openai:gpt-4o-mini --price-in 0.15 --price-out 0.6",
                "llmfair plan listwise --preset paper --odds 0.9 --power 0.9",
            ),
        ),
        "render": Help(
            "Exactly the messages that `llmfair listwise` with these flags sends for one window of its first chain.",
            (
                "llmfair prompts render listwise --queries physics --conditions female",
                "llmfair prompts render listwise --window 5 --step 1 --number 2",
            ),
            "Which window of the list, from its tail.",
        ),
        "calibrate": Help(
            "Simulated listwise audits of your own lists: recovery, coverage, false-positive rate, smallest effect.\n\n"
            "No model is asked.",
            (
                "llmfair calibrate listwise",
                "llmfair calibrate listwise -d trec-fair/2022/gender --injected -0.3,0.3 --runs 500 --alike 1",
            ),
        ),
    }
    settings = ListwiseSettings
    question = "window"
    ranks = True
    studies = (WindowsStudy(),)
    plan_settings = PlanSettings
    calibrated = CalibrateSettings

    design = later("llmfair.audits.listwise.design:make_design")
    rendered = later("llmfair.audits.listwise.design:rendered")
    beside = later("llmfair.audits.listwise.plan:beside")
    calibrate = later("llmfair.audits.listwise.calibrate:calibrate")
    documents = later("llmfair.audits.listwise.calibrate:DOCUMENTS")
    results = later("llmfair.audits.listwise.results:ListwiseResults")
    measure = later("llmfair.audits.listwise.score:MEASURING")
    words = later("llmfair.audits.listwise.words:WORDS")


LISTWISE = register("audit", "listwise")(Listwise())
