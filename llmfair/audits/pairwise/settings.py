"""What can be set of a pairwise audit, and of one that is planned or calibrated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

from llmfair.errors import UsageError
from llmfair.nouns import JUDGED_STRATA, PairStratum
from llmfair.settings.commands import (
    MOST_INJECTED,
    MOST_REPEATS,
    MOST_SPREAD,
    STOPPING_AT_ONCE,
    AuditSettings,
    CalibrationSettings,
    PlanningSettings,
    check_stopping,
)
from llmfair.settings.declaration import (
    DATA,
    MOST_NUMBERED,
    ODDS,
    PROMPT,
    STATISTICS,
    WIDEST_BAND,
    Form,
    PromptSettings,
)


def strata_of(text: str) -> tuple[PairStratum, ...]:
    """The relevance strata that `relevant,irrelevant` or `both` names, always in the same order. Raises ValueError."""
    named = {part.strip() for part in text.replace("both", ",".join(JUDGED_STRATA)).split(",")} - {""}
    if not named or not named <= {*JUDGED_STRATA}:
        raise ValueError(text)
    return tuple(stratum for stratum in JUDGED_STRATA if stratum in named)


STRATA = Form(strata_of, "relevance strata with commas between: relevant, irrelevant or both")


@dataclass(frozen=True, kw_only=True)
class PairwiseSettings(PromptSettings, AuditSettings):
    """The pairwise audit: one protected and one unprotected item of a query, asked in both orders."""

    form: Literal["order", "letter", "scores"] = PROMPT(
        "order",
        "What is answered: the two numbers in order, or a letter (scores: by rankers that score lists).",
    )
    answers: Literal["text", "margin"] = PROMPT(
        "text", "Read the text, or the log-probabilities of both labels (needs --form letter on servers)."
    )
    pairs: int = DATA(
        50,
        "Pairs per query, relevance stratum and contrast of groups.",
        least=1,
        most=MOST_NUMBERED,
        result=False,
    )
    conditions: str = DATA(
        "relevant,irrelevant",
        "Relevance strata of pairs, comma-separated: both items relevant, both irrelevant.", result=False,
        form=STRATA,
    )  # fmt: skip
    grades: Literal["match", "any"] = DATA(
        "match", "Pairs of two items of the same relevance grade (match), or of any two of a stratum.",
        result=False, advanced=True,
    )  # fmt: skip
    noise_share: float = PROMPT(
        0.1, "Share of pairs asked a second time: how much the same question differs.", advanced=True,
        least=0, most=1,
    )  # fmt: skip
    repeats: int = PROMPT(1, "Times each pair is asked.", least=1, most=MOST_REPEATS, advanced=True)
    on_bad_answer: str = PROMPT(
        "repair", "What becomes of a bad answer: repair (it is counted unread), retry[:N] or fail.",
        advanced=True,
    )  # fmt: skip
    weights: Literal["macro", "pooled"] = STATISTICS(
        "macro", "What weighs alike: queries, or pairs.", advanced=True
    )
    label_error: float | None = STATISTICS(
        None, "Share of relevance grades that may be wrong: which odds a fair ranker would then read.",
        advanced=True, above=0, below=0.5,
    )  # fmt: skip
    sequential: bool = STATISTICS(
        False, "Stop each stratum as soon as it is settled where its odds lie.", result=True
    )
    max_pairs: int = STATISTICS(
        1000, "Most pairs of a stratum under --sequential.", least=1, most=MOST_NUMBERED, result=True,
        advanced=True,
    )  # fmt: skip

    @property
    def at_once(self) -> int | None:
        return STOPPING_AT_ONCE if self.sequential else None

    presets = {"paper": {"noise_share": 0.0, "prompt": "wikiproject"}}  # Wang et al. 2024, section 3.3

    idle = {"ci", "permutations"}  # no measure of pairs is a ratio of means

    @classmethod
    def make(cls, preset: str | None = None, **given: Any) -> Self:
        if given.get("answers") == "margin":
            given.setdefault("form", "letter")
        return super().make(preset, **given)

    def check(self) -> None:
        super().check()
        if self.answers == "margin" and self.constrain:
            raise UsageError(
                "--answers margin reads free answers, not those of --constrain, whose log-probabilities are "
                "renormalised.",
                "leave one of them out",
            )
        # a sequential audit asks every pair once, until all is said
        if idle := self.as_flags(("pairs", "repeats") if self.sequential else ("max_pairs",)):
            raise UsageError(
                f"{idle} does nothing {'with' if self.sequential else 'without'} --sequential.",
                "--max-pairs is the limit of --sequential, --pairs of other audits",
            )
        if self.sequential:
            check_stopping(self, self.on_bad_answer)

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
        """The relevance strata asked about, always in the same order."""
        return strata_of(self.conditions)


@dataclass(frozen=True, kw_only=True)
class PlanPairwiseSettings(PlanningSettings, PairwiseSettings):
    """A pairwise audit that is planned, with what is expected of its answers."""

    ratio: float = STATISTICS(
        0.6, "Preference odds to be found.", form=ODDS, least=WIDEST_BAND[0], most=WIDEST_BAND[1]
    )
    pilot: str | None = STATISTICS(
        None, "A pairwise run whose answers say how these will be: the next three, unrounded."
    )
    first_slot: float = STATISTICS(
        0.5, "Expected share of answers that the item shown first wins.", advanced=True, above=0, below=1,
    )  # fmt: skip
    consistent: float | None = STATISTICS(
        None, "Expected share of pairs that do not flip with the order; without it 0.6 to 0.9.", above=0,
        most=1,
    )  # fmt: skip
    icc: float = STATISTICS(0.05, "Expected intraclass correlation of a query's pairs.", least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class CalibratePairwiseSettings(CalibrationSettings, PairwiseSettings):
    """The pairwise audit, simulated: P(protected wins) = σ(injected + b ± position), b drawn for each query."""

    injected: str = STATISTICS(
        "-0.3,-0.1,0,0.1,0.3", "Injected log pair odds, comma-separated; 0 is always among them."
    )
    position: float = STATISTICS(
        0.5, "Injected log odds of the item shown first, beside the preference.", least=-MOST_INJECTED,
        most=MOST_INJECTED,
    )  # fmt: skip
    query_sd: float = STATISTICS(
        0.3, "Standard deviation over queries of the injected log pair odds.", advanced=True, least=0,
        most=MOST_SPREAD,
    )  # fmt: skip
    pair_sd: float = STATISTICS(
        1.0, "Standard deviation of the same over the pairs of a query: what makes both orders agree.",
        advanced=True, least=0, most=MOST_SPREAD,
    )  # fmt: skip
    malformed: float = STATISTICS(
        0.0, "Share of answers that cannot be read.", advanced=True, least=0, below=1
    )

    absent = {"adjust"}  # each stratum is concluded by itself

    def simulations(self) -> int:
        return len(self.strata()) * super().simulations()
