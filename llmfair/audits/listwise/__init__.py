"""The listwise audit: a model orders lists under a neutral prompt, and under prompts that name each side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from llmfair.audits.kind import HELP, Help, Kind, called, named
from llmfair.audits.listwise.settings import CalibrateSettings, ListwiseSettings, PlanSettings
from llmfair.audits.listwise.windows import WindowsStudy
from llmfair.registry import register
from llmfair.settings import injected_of


class Listwise(Kind):
    name = "listwise"
    title = "Listwise audit"
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
    unit = "chains"
    question = "window"
    ranks = True
    condition = "prompt"
    asked_by = ("strategy", "design", "window", "step", "passes", "windows")
    aside = ("repeat",)
    of_conditions = ("conditions", "repeat")
    lopsided = True
    studies = (WindowsStudy(),)
    plan_settings = PlanSettings
    calibrated = CalibrateSettings
    numbered = "Which window of the list, from its tail."

    design = called("audits.listwise.design:make_design")
    before = called("audits.listwise.words:before_text")
    beside = called("audits.listwise.plan:beside")
    plan_table = called("audits.listwise.plan_words:plan_table")
    plan_text = called("audits.listwise.plan_words:plan_text")
    rendered = called("audits.listwise.design:rendered")
    calibrate = called("audits.listwise.calibrate:calibrate")
    calibration_table = called("audits.listwise.plan_words:calibrate_table")
    documents = named("audits.listwise.calibrate:DOCUMENTS")
    results = named("audits.listwise.results:ListwiseResults")
    verdict = called("audits.listwise.words:listwise_verdict")
    titles = property(named("audits.listwise.words:TITLES"))
    table = called("audits.listwise.words:listwise_table")
    words = named("audits.listwise.words:WORDS")
    section = called("audits.listwise.words:listwise_section")
    group_plots = called("audits.listwise.words:group_plots")
    group_tables = called("audits.listwise.words:group_tables")
    how_ended = called("audits.listwise.words:how_ended")
    reads = named("metrics.base:Judged")
    score = called("audits.listwise.score:score_folder")
    score_files = called("audits.listwise.score:score_files")
    concluded = called("audits.listwise.words:conclusion")
    scored_notes = called("audits.listwise.words:scored_notes")

    def calibration(self, settings: CalibrateSettings) -> int:
        return len(injected_of(settings.injected)) * settings.runs

    def what_was_shown(self, about: Mapping[str, Any]) -> str:
        """A window's ranks."""
        return "{}–{}".format(*about["window"])

    def told_apart(self, settings: Mapping[str, Any], differ: Sequence[str]) -> list[str]:
        """A strategy as it is spelled, else windows as `20/10x3`; then others by name."""
        windows = ("window", "step", "passes")
        parts = ["{window}/{step}x{passes}".format_map(settings)] if {*windows} & {*differ} else []
        if "strategy" in differ:  # its prompt and what is read of answers go with it
            return [str(settings.get("strategy", "windows")), *parts]
        return parts + super().told_apart(settings, [name for name in differ if name not in windows])


LISTWISE = register("audit", "listwise")(Listwise())
