"""The listwise audit: a model orders lists under a neutral prompt, and under prompts that name each side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from llmfair.audits.kind import Help, Kind, Study, settings_of
from llmfair.audits.listwise.settings import (
    CalibrateSettings,
    ListwiseSettings,
    PlanSettings,
    WindowsSettings,
)
from llmfair.errors import UsageError
from llmfair.io.text import parts
from llmfair.registry import later, register

if TYPE_CHECKING:
    from llmfair.audits.listwise.results import ListwiseResults
    from llmfair.audits.subject import Subject
    from llmfair.results import SettingRow


FORM = "window/step, with xPASSES where wanted, comma-separated: 5/1,10/5,20/10x3"
SETTING = re.compile(r"([0-9]{1,6})/([0-9]{1,6})(?:[x×]([0-9]{1,6}))?")


class WindowsStudy(Study):
    """One model under several windows and steps, as in Wang et al. 2024, Table 2."""

    name = "windows"
    does = (
        "Windows and steps side by side, as in the paper's Table 2.\n\n"
        "Unless told otherwise the neutral prompt alone is asked, in one pass. Each setting is the run that llmfair "
        "listwise makes with the same flags, so answers of one serve the other."
    )
    examples = (
        "llmfair study windows -m openai:gpt-4o-mini --settings 5/1,20/10x3 --dry-run",
        "llmfair study windows --preset paper -d my-folder -o table-2",
    )
    settings = WindowsSettings
    words = later("llmfair.audits.listwise.words:WINDOWS")

    def audits(self, settings: WindowsSettings, subject: Subject) -> dict[str, ListwiseSettings]:
        """By name: `20/10x3` is window 20, step 10, 3 passes. Raises UsageError where nothing has windows."""
        from llmfair.rankers.strategies import strategy_of

        single = len(settings.strategy) == 1 and settings.design == "ranking" and not subject.ranks
        if not single or strategy_of(settings.ordering, vars(settings)).facts()["window"] is None:
            raise UsageError(
                "a study of windows takes a model that ranks, by one strategy that has windows and steps.",
                "leave --strategy and --design out; a ranker: llmfair listwise",
            )
        audits = {}
        for part in parts(settings.settings):
            match = SETTING.fullmatch(part)
            if match is None:
                raise UsageError(f"'{part}' in --settings is not a window and a step.", FORM)
            window, step, passes = (int(number) if number else settings.passes for number in match.groups())
            name = f"{window}/{step}" + f"x{passes}" * (passes > 1)
            audits[name] = settings_of(ListwiseSettings, settings, window=window, step=step, passes=passes)
        return audits

    def rows(self, setting: str, results: ListwiseResults) -> Iterator[SettingRow]:
        """Those of its prompts, and of the orders that they began with."""
        conditions = (*results.design.conditions, "initial")
        return (row for row in super().rows(setting, results) if row.condition in conditions)


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
    calibrate = later("llmfair.audits.listwise.plan:calibrate")
    documents = later("llmfair.audits.listwise.plan:DOCUMENTS")
    results = later("llmfair.audits.listwise.results:ListwiseResults")
    measure = later("llmfair.audits.listwise.score:MEASURING")
    words = later("llmfair.audits.listwise.words:WORDS")


LISTWISE = register("audit", "listwise")(Listwise())
