"""The audits: what is asked of a model, and how its answers are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, get_args

from llmfair.errors import UsageError
from llmfair.records import PairKind
from llmfair.registry import lookup
from llmfair.settings.asking import AuditSettings
from llmfair.settings.base import at_least, default_of, setting

MOST_REPEATS = 49  # with the control arm, draws 0 to 97; from 100 on bad answers are asked again
ONE_ORDER = ("given", "bm25", "deltr")
"""Initial orders of which there is but one."""


@dataclass(frozen=True, kw_only=True)
class ListwiseSettings(AuditSettings):
    """The listwise audit: sliding windows over candidate lists, under neutral and sensitive prompts."""

    variants: str | None = setting(
        None,
        "Prompt variants, comma-separated (default: neutral and one for each side).",
        "Prompt",
        result=False,
    )
    prompt: str = setting("listwise", "Prompt template: a name, or a TOML file.", "Prompt", result=False)
    strategy: str = setting(
        "windows", "How a list is ordered by asking; windows slide over it.", "Prompt", result=False
    )
    window: int = setting(20, "Items in one window.", "Prompt")
    step: int = setting(10, "Positions a window moves towards the head.", "Prompt")
    passes: int = setting(3, "Passes over the list.", "Prompt")
    depth: int | None = setting(None, "Rank only the first N positions (default: all).", "Prompt")
    passages: Literal["first", "max"] = setting(
        "first",
        "What counts of a long page for monot5 and monobert: its start, or its best passage.",
        "Data",
        result=False,
    )
    windows: Literal["covering", "rankgpt"] = setting(
        "covering", "Where windows lie: so that none is missed, or as in RankGPT's own code.", "Prompt"
    )
    initial: Literal["random", "given", "mirrored", "bm25", "deltr"] = setting(
        "random",
        "Order in which a list is first shown; only from random ones anything is concluded.",
        "Prompt",
    )
    orders: int = setting(3, "Initial orders per query, shared by all variants.", "Prompt")
    repeats: int = setting(1, "Times each order is asked.", "Prompt")
    control: bool = setting(
        True, "Ask the neutral prompt twice: how much the same question differs.", "Prompt"
    )
    control_variate: bool = setting(
        True,
        "Take what random initial orders explain out of the exposure ratio (narrower intervals).",
        "Statistics",
        result=False,
    )
    read: Literal["strict", "rankgpt"] = setting(
        "strict", "How answers are read: rankgpt as in its own code.", "Prompt"
    )
    on_bad_answer: str = setting(
        "repair",
        "What becomes of a bad answer: repair (what can be read counts), retry[:N] or fail.",
        "Prompt",
    )

    @classmethod
    def presets(cls) -> Mapping[str, Mapping[str, Any]]:
        # Wang et al. 2024, section 4.1.1
        return {
            "paper": {
                "window": 5,
                "step": 1,
                "passes": 1,
                "orders": 1,
                "control": False,
                "control_variate": False,
            }
        }

    @classmethod
    def make(cls, preset: str | None = None, **given: Any) -> Self:
        if given.get("initial") in ONE_ORDER and preset is None:
            given.setdefault("orders", 1)
        return super().make(preset, **given)

    def check(self) -> None:
        super().check()
        if self.batch:
            raise UsageError(
                "--batch cannot ask windows: each needs the answer of the one before.",
                "leave it out; llmfair pairwise --batch asks pairs",
            )
        lookup("strategy", self.strategy)
        at_least(self, {"window": 2, "step": 1, "passes": 1, "depth": 2, "orders": 1, "repeats": 1})
        if self.repeats > MOST_REPEATS:
            raise UsageError(
                f"--repeats is {self.repeats}, but is at most {MOST_REPEATS}.",
                "ask for more --orders instead",
            )
        if self.step > self.window:
            raise UsageError(
                f"--step {self.step} is larger than --window {self.window}: positions between would be skipped.",
                "choose a step of at most the window",
            )
        if self.initial in ONE_ORDER and self.orders != 1:
            raise UsageError(
                f"--initial {self.initial} is one order, but --orders is {self.orders}.", "add --orders 1"
            )
        if self.initial == "mirrored" and self.orders % 2:
            raise UsageError(
                f"--initial mirrored pairs the orders, but --orders is {self.orders}.",
                "choose an even number, for example --orders 4",
            )


@dataclass(frozen=True, kw_only=True)
class PairwiseSettings(AuditSettings):
    """The pairwise audit: one protected and one unprotected item of a query, asked in both orders."""

    prompt: str = setting("pairwise", "Prompt template: a name, or a TOML file.", "Prompt", result=False)
    form: Literal["order", "letter"] = setting(
        "order", "What is answered: the two numbers in order, or a letter.", "Prompt"
    )
    answers: Literal["text", "margin"] = setting(
        "text",
        "Read the text, or the log-probabilities of both labels (needs --form letter on servers).",
        "Prompt",
    )
    pairs: int = setting(50, "Pairs per query and kind.", "Data", result=False)
    kind: str = setting(
        "relevant,irrelevant",
        "Kinds of pairs, comma-separated: both items relevant, both irrelevant.",
        "Data",
        result=False,
    )
    noise_share: float = setting(
        0.1, "Share of pairs asked a second time: how much the same question differs.", "Prompt"
    )
    repeats: int = setting(1, "Times each pair is asked.", "Prompt")
    on_bad_answer: str = setting(
        "repair", "What becomes of a bad answer: repair (it is counted unread), retry[:N] or fail.", "Prompt"
    )
    weights: Literal["macro", "pooled"] = setting(
        "macro", "What weighs alike: queries, or pairs.", "Statistics", result=False
    )
    sequential: bool = setting(
        False, "Stop each kind as soon as its verdict is settled (anytime-valid).", "Spending"
    )
    max_pairs: int = setting(1000, "Most pairs of a kind under --sequential.", "Spending")

    @classmethod
    def presets(cls) -> Mapping[str, Mapping[str, Any]]:
        return {"paper": {"noise_share": 0.0}}  # Wang et al. 2024, section 3.3

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | {"ci", "permutations"}  # lists alone have exposure ratios and are shuffled

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
        if self.batch and self.sequential:
            raise UsageError(
                "--sequential stops between pairs, but --batch asks all at once.", "leave one of them out"
            )
        at_least(self, {"pairs": 1, "repeats": 1, "max_pairs": 1})
        if self.repeats > MOST_REPEATS:
            raise UsageError(
                f"--repeats is {self.repeats}, but is at most {MOST_REPEATS}.", "ask for more --pairs instead"
            )
        if not 0 <= self.noise_share <= 1:
            raise UsageError(
                f"--noise-share is {self.noise_share}, but is a share of 1.",
                "for example 0.1; 0 asks none twice",
            )
        if not self.kinds():
            raise UsageError(f"--kind {self.kind} is no kind of pair.", "relevant, irrelevant or both")
        self._check_sequential()

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
        if self.sequential and self.on_bad_answer == "fail":
            raise UsageError(
                "--on-bad-answer fail leaves gaps that --sequential cannot pass.",
                "repair counts unreadable answers and goes on",
            )

    @property
    def margins(self) -> bool:
        return self.answers == "margin"

    def needs(self) -> Iterator[tuple[str, str]]:
        yield from super().needs()
        if self.margins:
            yield "margins", "--answers margin"
            if self.form == "order":
                yield "forced_margins", "--answers margin with --form order"

    def kinds(self) -> tuple[PairKind, ...]:
        """The kinds of pairs asked about, always in the same order; none if one of them is unknown."""
        known = get_args(PairKind)
        named = {part.strip() for part in self.kind.replace("both", ",".join(known)).split(",")} - {""}
        return tuple(kind for kind in known if kind in named) if named <= {*known} else ()
