"""What can be set of a listwise audit, of one that is planned or calibrated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

from llmfair.errors import UsageError
from llmfair.settings.commands import (
    MOST_INJECTED,
    MOST_REPEATS,
    MOST_SPREAD,
    STOPPING_AT_ONCE,
    AuditSettings,
    CalibrationSettings,
    PlanningSettings,
    StudySettings,
    check_stopping,
)
from llmfair.settings.declaration import BAND, DATA, ODDS, PROMPT, STATISTICS, PromptSettings

ONE_ORDER = ("given", "bm25", "deltr")
"""Initial orders of which there is but one."""


@dataclass(frozen=True, kw_only=True)
class ListwiseSettings(PromptSettings, AuditSettings):
    """The listwise audit: sliding windows over candidate lists, under neutral and sensitive prompts."""

    guard: str = STATISTICS(
        "0.5..2",
        "For parity the intervals of relevant and of irrelevant items, each by themselves, have to lie within.",
        advanced=True,
        form=BAND,
    )
    label_error: float | None = STATISTICS(
        None,
        "Share of relevance grades that may be wrong: which odds a fair ranker would then read.",
        advanced=True,
        above=0,
        below=0.5,
    )
    conditions: str | None = PROMPT(
        None, "Prompts, comma-separated (default: neutral and one for each group).", result=False
    )
    strategy: tuple[str, ...] = PROMPT(
        ("windows",),
        "How a list is ordered by asking, NAME or NAME:key=value (llmfair strategies list); repeatable, one run each.",
        result=False,
        advanced=True,
    )
    answers: Literal["auto", "text", "margin"] = PROMPT(
        "auto",
        "What is read of an answer that is one label: its text, or the log-probabilities of the labels (auto: these, "
        "where the model has them).",
        result=False,
        advanced=True,
    )
    design: Literal["ranking", "partition"] = PROMPT(
        "ranking",
        "What is asked: ranking orders whole lists; partition asks random windows once, for a fraction of the calls: "
        "what the model prefers, without a ranking.",
        result=False,
    )
    sequential: bool = STATISTICS(
        False,
        "With --design partition: stop asking under a prompt as soon as it is settled where its odds lie.",
        advanced=True,
    )
    window: int = PROMPT(20, "Items in one window.", least=2, most=10_000)
    step: int = PROMPT(10, "Positions a window moves towards the head.", least=1, most=10_000)
    passes: int = PROMPT(3, "Passes over the list.", least=1, most=1_000)
    depth: int | None = PROMPT(
        None, "Rank only the first N positions (default: all).", least=2, most=1_000_000, advanced=True
    )
    passages: Literal["first", "max"] = DATA(
        "first",
        "What counts of a long page for monot5 and monobert: its start, or its best passage.",
        result=False,
        advanced=True,
    )
    windows: Literal["covering", "rankgpt"] = PROMPT(
        "covering", "Where windows lie: so that none is missed, or as in RankGPT's own code.", advanced=True
    )
    initial: Literal["random", "given", "mirrored", "bm25", "deltr"] = PROMPT(
        "random",
        "Order in which a list is first shown; only from random ones anything is concluded.",
        advanced=True,
    )
    orders: int = PROMPT(3, "Initial orders per query, shared by all prompts.", least=1, most=1_000)
    repeats: int = PROMPT(1, "Times each order is asked.", least=1, most=MOST_REPEATS, advanced=True)
    repeat: bool = PROMPT(True, "Repeat the neutral prompt: its test–retest baseline.", advanced=True)
    control_variate: bool = STATISTICS(
        True,
        "Take what random initial orders explain out of the exposure ratio (narrower intervals).",
        advanced=True,
    )
    read: Literal["strict", "rankgpt"] = PROMPT(
        "strict", "How answers are read: rankgpt as in its own code.", advanced=True
    )
    on_bad_answer: str = PROMPT(
        "repair",
        "What becomes of a bad answer: repair (what can be read counts), retry[:N] or fail.",
        advanced=True,
    )

    @property
    def ordering(self) -> str:
        """The strategy of one run."""
        return self.strategy[0]

    def each(self) -> list[Self]:
        return [replace(each, strategy=(spec,)) for each in super().each() for spec in self.strategy]

    def called(self, model: str, among: Self) -> str:
        name = model if len(among.strategy) == 1 else f"{model} {self.ordering}"
        return super().called(name, among)

    @property
    def margins(self) -> bool:
        """Whether log-probabilities are read; a design knows it, which has no `auto` left."""
        return self.answers == "margin"

    def needs(self) -> Iterator[tuple[str, str]]:
        yield from super().needs()
        if self.margins:
            yield "margins", "--answers margin"
        if self.ordering == "scores":
            yield "scores", "--strategy scores"

    @property
    def at_once(self) -> int | None:
        return STOPPING_AT_ONCE if self.sequential else None

    # Wang et al. 2024, section 4.1.1
    presets = {
        "paper": {
            "window": 5,
            "step": 1,
            "passes": 1,
            "orders": 1,
            "repeat": False,
            "control_variate": False,
            "prompt": "wikiproject",
        }
    }

    preset_options = {
        **AuditSettings.preset_options,
        # Whether the lists came in DELTR's order, or in a random one as here, is not said. From an order made of
        # groups and relevance nothing can be concluded, so it is no part of the preset itself.
        "deltr": {"initial": "deltr"},
        # The conversation is RankGPT's; that its reading of answers and its windows were used is likely, not said.
        "rankgpt": {"read": "rankgpt", "windows": "rankgpt"},
    }

    @classmethod
    def of_asking(cls) -> frozenset[str]:
        """What only a model is told, or how it is told: nothing to a ranker that asks none."""
        panels = {item.name for item in fields(cls) if item.metadata["panel"] in ("Prompt", "Sampling")}
        return frozenset(panels | {"input", "words", "template_arg", "extra"}) - {"initial"}

    @classmethod
    def make(cls, preset: str | None = None, **given: Any) -> Self:
        if isinstance(given.get("strategy"), str):
            given["strategy"] = (given["strategy"],)
        partition = given.get("design") == "partition"
        if preset is None and (partition or given.get("initial") in ONE_ORDER):
            given.setdefault("orders", 1)
        if preset is None and partition:  # no rankings whose agreement could be compared
            given.setdefault("repeat", False)
        return super().make(preset, **given)

    def ways(self) -> Mapping[str, Mapping[str, Any]]:
        return {"order_not_random": {"initial": "random"}}

    def check(self) -> None:
        from llmfair.rankers.strategies import strategy_of

        super().check()
        if not self.strategy or len({*self.strategy}) < len(self.strategy):
            raise UsageError("--strategy names none, or one twice.", "for example --strategy windows")
        strategies = {spec: strategy_of(spec, vars(self)) for spec in self.strategy}
        if self.design == "partition":  # which has nothing that only rankings have
            for name, only in (("strategy", ("windows",)), ("initial", "random"), ("depth", None)):
                if getattr(self, name) != only:
                    raise UsageError(
                        f"--design partition makes no ranking, so it has no {self.as_flags([name])}.",
                        f"leave --{name} or --design out",
                    )
        elif self.step > self.window:
            raise UsageError(
                f"--step {self.step} is larger than --window {self.window}: positions between would be skipped.",
                "choose a step of at most the window",
            )
        if self.sequential:
            if self.design != "partition" or self.repeats != 1:
                raise UsageError(
                    "--sequential stops between random windows, each asked once.",
                    "add --design partition and leave --repeats out",
                )
            check_stopping(self, self.on_bad_answer)
        for spec, strategy in strategies.items() if self.batch and self.design == "ranking" else ():
            if strategy.plan(self.window + 1).rounds > 1:
                raise UsageError(
                    f"--batch cannot ask {spec}: each needs the answer of the one before.",
                    "leave it out, or add --design partition or --strategy pointwise, which ask all at once",
                )
        single = self.initial in ONE_ORDER
        if (single and self.orders != 1) or (self.initial == "mirrored" and self.orders % 2):
            raise UsageError(
                f"--initial {self.initial} {'is one order' if single else 'pairs the orders'}, but --orders is "
                f"{self.orders}.",
                f"add --orders {1 if single else 4}",
            )


SLOTS = "Log odds of the first slot of a window against the last, in simulated answers."


@dataclass(frozen=True, kw_only=True)
class PlanSettings(PlanningSettings, ListwiseSettings):
    """A listwise audit that is planned."""

    odds: float = STATISTICS(0.6, "Preference odds to be found.", form=ODDS, above=0)
    tau: float = STATISTICS(
        0.0, "Standard deviation over queries of the true ln preference odds.", least=0, most=MOST_SPREAD
    )
    alike: float | None = STATISTICS(
        None,
        "Share of windows that are answered with the same noise every time: 0 fresh noise, 1 a model that answers "
        "alike every time; without it both.",
        least=0,
        most=1,
    )
    slots: float = STATISTICS(0.0, SLOTS, advanced=True, least=-MOST_INJECTED, most=MOST_INJECTED)
    expected_ratio: bool = STATISTICS(
        False, "Simulate also the ExpRatio to expect of such odds, if noise is fresh.", advanced=True
    )


@dataclass(frozen=True, kw_only=True)
class CalibrateSettings(CalibrationSettings, ListwiseSettings):
    """The listwise audit, simulated with injected preferences."""

    alike: float = STATISTICS(
        0.5,
        "Share of windows that are answered with the same noise every time: 0 fresh noise, 1 a model that answers "
        "alike every time.",
        least=0,
        most=1,
    )
    slots: float = STATISTICS(0.0, SLOTS, least=-MOST_INJECTED, most=MOST_INJECTED)

    def check(self) -> None:
        super().check()
        if self.initial != "random":
            raise UsageError(
                f"calibrate draws random initial orders, but --initial is {self.initial}.",
                "only random orders allow a conclusion: leave --initial out",
            )


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
