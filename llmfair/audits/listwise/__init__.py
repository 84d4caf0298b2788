"""The listwise audit: a model orders lists under a neutral prompt, and under prompts that name each side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from llmfair.audits.kind import HELP, Help, Kind
from llmfair.audits.listwise.settings import (
    CalibrateSettings,
    ListwiseSettings,
    PlanSettings,
    WindowsSettings,
)
from llmfair.audits.study import Study, settings_of
from llmfair.errors import UsageError
from llmfair.registry import later, register

if TYPE_CHECKING:
    from llmfair.audits.listwise.results import ListwiseResults, WindowsResults, WindowsRow
    from llmfair.audits.subject import Subject


FORM = "window/step, with xPASSES where wanted, comma-separated: 5/1,10/5,20/10x3"
SETTING = re.compile(r"([0-9]{1,6})/([0-9]{1,6})(?:[x×]([0-9]{1,6}))?")
OF_SETTING = ("setting", "window", "step", "passes", "run", "condition", "calls")
FIGURE = ("value", "low", "high", "n", "p", "p_adjusted", "conclusion", "reason")


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
    results = later("llmfair.audits.listwise.results:WindowsResults")

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
        for part in map(str.strip, settings.settings.split(",")):
            match = SETTING.fullmatch(part)
            if match is None:
                raise UsageError(f"'{part}' in --settings is not a window and a step.", FORM)
            window, step, passes = (int(number) if number else settings.passes for number in match.groups())
            try:
                audit = settings_of(ListwiseSettings, settings, window=window, step=step, passes=passes)
            except UsageError as error:
                raise UsageError(f"'{part}' in --settings: {error.message}", FORM) from None
            audits[f"{window}/{step}" + f"x{passes}" * (passes > 1)] = audit
        return audits

    def rows(self, setting: str, results: ListwiseResults) -> Iterator[WindowsRow]:
        """One for each prompt, and one for the orders that it began with."""
        from llmfair.audits.listwise.results import INITIAL, Read, WindowsRow
        from llmfair.results import Figure

        design = results.design
        for condition in (*design.conditions, INITIAL):
            asked, answers = condition != INITIAL, results.answers.get(condition)
            counts = (answers.windows, answers.unparseable, answers.repaired) if answers else (0, 0, 0)
            figures = {
                row.measure: Figure(*(getattr(row, name) for name in FIGURE))
                for row in results.rows
                if row.condition == condition and row.group == ""
            }
            yield WindowsRow(
                setting=setting,
                window=design.window or 0,
                step=design.step or 0,
                passes=design.passes or 0,
                run=results.run,
                condition=condition,
                calls=design.calls // len(design.conditions) if asked else 0,
                chains=results.chains.get(condition),
                answers=Read(*counts),
                never_ranked=design.never_ranked if asked else [],
                reach=results.reach if asked else {},
                finding=results.findings.get(condition),
                figures=figures,
            )

    def lines(self, study: WindowsResults) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """One figure a line; reach stands with the measures it bounds."""
        lines = []
        for row in study.rows:
            for measure, figure in row.figures.items():
                reach = row.reach.get(measure.replace("(control=order)", ""))
                setting = [getattr(row, name) for name in OF_SETTING]
                ends = (reach.low, reach.high) if reach else (None, None)
                lines.append([*setting, measure, *(getattr(figure, name) for name in FIGURE), *ends])
        return (*OF_SETTING, "measure", *FIGURE, "reach_low", "reach_high"), lines


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
    calibrate = later("llmfair.audits.listwise.plan:calibrate")
    documents = later("llmfair.audits.listwise.plan:DOCUMENTS")
    results = later("llmfair.audits.listwise.results:ListwiseResults")
    measure = later("llmfair.audits.listwise.score:MEASURING")
    words = later("llmfair.audits.listwise.words:WORDS")


LISTWISE = register("audit", "listwise")(Listwise())
