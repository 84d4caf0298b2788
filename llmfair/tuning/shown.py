"""A training while it goes on, as a person sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair import terminal
from llmfair.tuning.finetune import MEASURING, TRAINING, TrainingWatch
from llmfair.tuning.words import before_text, labelled_text

if TYPE_CHECKING:
    from llmfair.tuning.design import TuningDesign

REJECTED = "what came nearest is in rejected/; try another --labels or --anchor, or a lower --learning-rate"


class TrainingProgress(TrainingWatch):
    """How far a training is, on stderr: a bar on a terminal, else a plain line now and then."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.done = 0
        self.count = terminal.Count("", 0, "prompts", lambda: 0)

    def begin(self, folder: Path, design: TuningDesign) -> None:
        self.folder = folder
        terminal.say(before_text(design.facts(), design.drawn.counts()["train"]))

    def labelled(self, counts: Mapping[Any, int]) -> None:
        terminal.say(labelled_text(counts))

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int, str], None]]:
        self.done, self.count = 0, terminal.Count(name, total, "prompts", lambda: self.done)
        with terminal.drawn(self.count):
            yield self.tell

    def tell(self, done: int, words: str = "") -> None:
        self.done, self.count.words = done, words

    def how_far(self) -> str:
        if self.count.name == TRAINING:
            return f"at {self.done:,} of {self.count.total:,} prompts"
        return "after training" if self.count.name == MEASURING else "before training"
