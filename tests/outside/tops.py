"""The kind of numbers with a study of its own: how much the highest number that may be given matters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from llmfair.audits.kind import Study, settings_of
from llmfair.audits.subject import Subject
from llmfair.errors import UsageError
from llmfair.settings.commands import StudySettings
from llmfair.settings.declaration import PROMPT
from tests.outside.numbers import NumbersKind, NumbersSettings


@dataclass(frozen=True, kw_only=True)
class TopsSettings(StudySettings, NumbersSettings):
    """Audits of numbers that differ in the highest one."""

    varied: ClassVar[Mapping[str, str]] = {"top": "--tops 5,10"}
    tops: str = PROMPT("5,10", "The highest number of each audit, comma-separated.", result=False)


class TopsStudy(Study):
    name = "tops"
    does = "How much the highest number matters."
    examples = ("llmfair study tops --tops 5,10,100", "llmfair study tops -m openai:any -o tops")
    settings = TopsSettings

    def audits(self, settings: TopsSettings, subject: Subject) -> dict[str, NumbersSettings]:
        found = {}
        for top in map(str.strip, settings.tops.split(",")):
            if not top.isdecimal():
                raise UsageError(f"'{top}' in --tops is no number.", "--tops 5,10")
            found[top] = settings_of(NumbersSettings, settings, top=int(top))
        return found


class StudiedKind(NumbersKind):
    studies = (TopsStudy(),)


NUMBERS = StudiedKind()
