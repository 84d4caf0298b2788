"""The windows study: one model under several windows and steps, as in Wang et al. 2024, Table 2."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.study import Study, settings_of
from llmfair.errors import UsageError
from llmfair.registry import later
from llmfair.settings import PROMPT, StudySettings

if TYPE_CHECKING:
    from llmfair.audits.listwise.results import ListwiseResults, WindowsResults, WindowsRow
    from llmfair.audits.subject import Subject

FORM = "window/step, with xPASSES where wanted, comma-separated: 5/1,10/5,20/10x3"
SETTING = re.compile(r"([0-9]{1,6})/([0-9]{1,6})(?:[x×]([0-9]{1,6}))?")
FIGURE = ("value", "low", "high", "n", "p", "p_adjusted", "conclusion", "reason")
LINE = (
    "setting", "window", "step", "passes", "run", "condition", "calls", "measure", *FIGURE, "reach_low", "reach_high",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class WindowsSettings(StudySettings, ListwiseSettings):
    """The windows study: listwise audits that differ in windows, step and passes alone."""

    varied = dict.fromkeys(("window", "step"), "--settings 5/1,20/10")
    settings: str = PROMPT(
        "5/1,10/5,10/3,20/10",
        "WINDOW/STEP of each run, or WINDOW/STEPxPASSES; comma-separated.",
        result=False,
    )
    # Wang et al. 2024, Table 2: the neutral prompt, once, in one pass
    conditions: str | None = PROMPT("neutral", "Prompts, comma-separated.", result=False)
    passes: int = PROMPT(1, "Passes over the list, as in the paper's Table 2.", least=1, most=1_000)
    repeat: bool = PROMPT(
        False, "Ask the neutral prompt twice: how much the same question differs.", advanced=True
    )
    window: int = PROMPT(20, "Not here: --settings names windows.", least=2, most=10_000, advanced=True)
    step: int = PROMPT(10, "Not here: --settings names steps.", least=1, most=10_000, advanced=True)


class WindowsStudy(Study):
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
    words = later("llmfair.audits.listwise.windows.words:STUDY")
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
                asked = settings_of(ListwiseSettings, settings, window=window, step=step, passes=passes)
            except UsageError as error:
                raise UsageError(f"'{part}' in --settings: {error.message}", FORM) from None
            audits[f"{window}/{step}" + f"x{passes}" * (passes > 1)] = asked
        return audits

    def rows(self, setting: str, results: ListwiseResults) -> Iterator[WindowsRow]:
        """One for each prompt, and one for the orders that it began with."""
        from llmfair.audits.listwise.measure import INITIAL
        from llmfair.audits.listwise.results import Read, WindowsRow
        from llmfair.results import Figure

        design = results.design
        for condition in (*design.conditions, INITIAL):
            asked, answers = condition != INITIAL, results.answers.get(condition)
            yield WindowsRow(
                setting=setting,
                window=design.window or 0,
                step=design.step or 0,
                passes=design.passes or 0,
                run=results.run,
                condition=condition,
                calls=design.calls // len(design.conditions) if asked else 0,
                chains=results.chains.get(condition),
                answers=Read(answers.windows, answers.unparseable, answers.repaired)
                if answers
                else Read(0, 0, 0),
                never_ranked=design.never_ranked if asked else [],
                reach=results.reach if asked else {},
                finding=results.findings.get(condition),
                figures={
                    row.measure: Figure(*(getattr(row, name) for name in FIGURE))
                    for row in results.rows
                    if row.condition == condition and row.group == ""
                },
            )

    def lines(self, study: WindowsResults) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """One figure a line; reach stands with the measures it bounds."""
        return LINE, [
            [
                *(getattr(row, column) for column in LINE[:7]),
                measure,
                *(getattr(figure, name) for name in FIGURE),
                *(
                    getattr(row.reach.get(measure.replace("(control=order)", "")), end, None)
                    for end in ("low", "high")
                ),
            ]
            for row in study.rows
            for measure, figure in row.figures.items()
        ]
