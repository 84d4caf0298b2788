"""What can be set of a pairwise audit, and of one that is planned or calibrated."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, get_args

from llmfair.errors import UsageError
from llmfair.nouns import PairStratum
from llmfair.settings import (
    MOST_NUMBERED,
    MOST_REPEATS,
    STOPPING_AT_ONCE,
    AuditSettings,
    CalibrationSettings,
    PlanningSettings,
    PromptSettings,
    check_stopping,
    default_of,
    setting,
)
from llmfair.settings.base import WIDEST_BAND
from llmfair.settings.designs import MOST_INJECTED, MOST_SPREAD


@dataclass(frozen=True, kw_only=True)
class PairwiseSettings(PromptSettings, AuditSettings):
    """The pairwise audit: one protected and one unprotected item of a query, asked in both orders."""

    form: Literal["order", "letter", "scores"] = setting(
        "order",
        "What is answered: the two numbers in order, or a letter (scores: by rankers that score lists).",
        "Prompt",
    )
    answers: Literal["text", "margin"] = setting(
        "text",
        "Read the text, or the log-probabilities of both labels (needs --form letter on servers).",
        "Prompt",
    )
    pairs: int = setting(
        50, "Pairs per query and relevance stratum.", "Data", result=False, least=1, most=MOST_NUMBERED
    )
    conditions: str = setting(
        "relevant,irrelevant",
        "Relevance strata of pairs, comma-separated: both items relevant, both irrelevant.",
        "Data",
        result=False,
    )
    grades: Literal["match", "any"] = setting(
        "match",
        "Pairs of two items of the same relevance grade (match), or of any two of a stratum.",
        "Data",
        result=False,
        advanced=True,
    )
    noise_share: float = setting(
        0.1,
        "Share of pairs asked a second time: how much the same question differs.",
        "Prompt",
        advanced=True,
    )
    repeats: int = setting(
        1, "Times each pair is asked.", "Prompt", advanced=True, least=1, most=MOST_REPEATS
    )
    on_bad_answer: str = setting(
        "repair",
        "What becomes of a bad answer: repair (it is counted unread), retry[:N] or fail.",
        "Prompt",
        advanced=True,
    )
    weights: Literal["macro", "pooled"] = setting(
        "macro", "What weighs alike: queries, or pairs.", "Statistics", result=False, advanced=True
    )
    sequential: bool = setting(
        False, "Stop each stratum as soon as it is settled where its odds lie.", "Statistics"
    )
    max_pairs: int = setting(
        1000,
        "Most pairs of a stratum under --sequential.",
        "Statistics",
        advanced=True,
        least=1,
        most=MOST_NUMBERED,
    )

    @property
    def at_once(self) -> int | None:
        return STOPPING_AT_ONCE if self.sequential else None

    @classmethod
    def presets(cls) -> Mapping[str, Mapping[str, Any]]:
        return {"paper": {"noise_share": 0.0, "prompt": "wikiproject"}}  # Wang et al. 2024, section 3.3

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | {"ci"}  # no measure of pairs is a ratio of means

    @classmethod
    def make(cls, preset: str | None = None, **given: Any) -> Self:
        if given.get("answers") == "margin":
            given.setdefault("form", "letter")
        return super().make(preset, **given)

    def asked_with(self) -> Collection[str]:
        return ("input",) if self.form == "scores" else [*super().asked_with(), "answers"]

    def check(self) -> None:
        super().check()
        if self.answers == "margin" and self.constrain:
            raise UsageError(
                "--answers margin reads free answers, not those of --constrain, whose log-probabilities are "
                "renormalised.",
                "leave one of them out",
            )
        if not 0 <= self.noise_share <= 1:
            raise UsageError(
                f"--noise-share is {self.noise_share}, but is a share of 1.",
                "for example 0.1; 0 asks none twice",
            )
        if not self.strata():
            raise UsageError(
                f"--conditions {self.conditions} is no relevance stratum.", "relevant, irrelevant or both"
            )
        self._check_sequential()
        if self.sequential:
            check_stopping(self, self.on_bad_answer)

    def _check_sequential(self) -> None:
        """Refuses what would be ignored: a sequential audit asks every pair once, until all is said."""
        usual = {item.name: default_of(item) for item in fields(self)}
        for name in ("pairs", "repeats") if self.sequential else ("max_pairs",):
            if getattr(self, name) != usual[name]:
                flag, beside = name.replace("_", "-"), "with" if self.sequential else "without"
                raise UsageError(
                    f"--{flag} does nothing {beside} --sequential.",
                    "--max-pairs is its limit" if self.sequential else "add --sequential, or give --pairs",
                )
        if self.sequential and self.noise_share not in (0, usual["noise_share"]):
            raise UsageError("--noise-share does nothing with --sequential.", "leave it out")

    @property
    def margins(self) -> bool:
        return self.answers == "margin"

    def needs(self) -> Iterator[tuple[str, str]]:
        yield from super().needs()
        if self.form == "scores":
            yield "scores", "--form scores"
        if self.margins:
            yield "margins", "--answers margin"
            if self.form == "order":
                yield "forced_margins", "--answers margin with --form order"

    def strata(self) -> tuple[PairStratum, ...]:
        """The relevance strata asked about, always in the same order; none if one of them is unknown."""
        known = get_args(PairStratum)
        named = {part.strip() for part in self.conditions.replace("both", ",".join(known)).split(",")} - {""}
        return tuple(stratum for stratum in known if stratum in named) if named <= {*known} else ()


@dataclass(frozen=True, kw_only=True)
class PlanPairwiseSettings(PlanningSettings, PairwiseSettings):
    """A pairwise audit that is planned, with what is expected of its answers."""

    ratio: float = setting(0.8, "Preference odds to be found.", "Statistics", result=False)
    icc: float = setting(
        0.05, "Expected intraclass correlation of a query's pairs.", "Statistics", result=False
    )
    consistent: float = setting(
        0.5, "Expected share of pairs that do not flip with the order.", "Statistics", result=False
    )

    def check(self) -> None:
        super().check()
        low, high = WIDEST_BAND
        if not (low <= self.ratio <= high and self.ratio != 1):
            raise UsageError(
                f"--ratio is {self.ratio}, but must be odds from {low} to {high:g} other than 1, which is parity.",
                "for example --ratio 0.8",
            )
        if not 0 <= self.icc <= 1:
            raise UsageError(f"--icc is {self.icc}, but lies from 0 to 1.", "for example 0.05")
        if not 0 < self.consistent <= 1:
            raise UsageError(f"--consistent is {self.consistent}, but is a share above 0.", "for example 0.5")


@dataclass(frozen=True, kw_only=True)
class CalibratePairwiseSettings(CalibrationSettings, PairwiseSettings):
    """The pairwise audit, simulated: P(protected wins) = σ(injected + b ± position), b drawn for each query."""

    injected: str = setting(
        "-0.3,-0.1,0,0.1,0.3",
        "Injected log pair odds, comma-separated; 0 is always among them.",
        "Statistics",
        result=False,
    )
    position: float = setting(
        0.5, "Injected log odds of the item shown first, beside the preference.", "Statistics", result=False
    )
    query_sd: float = setting(
        0.3,
        "Standard deviation over queries of the injected log pair odds.",
        "Statistics",
        result=False,
        advanced=True,
    )
    pair_sd: float = setting(
        1.0,
        "Standard deviation of the same over the pairs of a query: what makes both orders agree.",
        "Statistics",
        result=False,
        advanced=True,
    )
    malformed: float = setting(
        0.0, "Share of answers that cannot be read.", "Statistics", result=False, advanced=True
    )

    def check(self) -> None:
        super().check()
        if not abs(self.position) <= MOST_INJECTED:
            raise UsageError(
                f"--position is {self.position}, but is log odds from -{MOST_INJECTED:g} to {MOST_INJECTED:g}.",
                "for example 0.5",
            )
        for name, spread in (("query-sd", self.query_sd), ("pair-sd", self.pair_sd)):
            if not 0 <= spread <= MOST_SPREAD:
                raise UsageError(
                    f"--{name} is {spread}, but is a standard deviation of at most {MOST_SPREAD:g}.",
                    "for example 0.3",
                )
        if not 0 <= self.malformed < 1:
            raise UsageError(f"--malformed is {self.malformed}, but is a share below 1.", "for example 0.05")
