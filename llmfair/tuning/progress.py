"""What outlives a training that is stopped: its log, its checkpoints, and how far it has come."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Self

from llmfair.beginning import STOPPING
from llmfair.io.files import itself, write_whole

PARITY = 0.1
"""The objective at which a checkpoint that keeps every gate is good enough."""
_STATE = "trainer_state.json"
_NEEDED = ("adapter_model.safetensors", "optimizer.pt", "scheduler.pt")


class TrainingLog:
    """`training.jsonl`: a line a step, and one a validation. Only one process writes."""

    def __init__(self, path: Path, writes: bool) -> None:
        self.path = path
        self.writes = writes

    def cut(self, step: int) -> None:
        """Drops what came after this step: a training that goes on from there writes it again."""
        if not self.writes:
            return
        kept = [line for line in self.lines() if line["step"] <= step]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, [json.dumps(line) + "\n" for line in kept])

    def add(self, line: Mapping[str, Any]) -> None:
        if self.writes:
            with open(self.path, "a", encoding="utf-8", opener=itself) as file:
                file.write(json.dumps(line) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        """All lines; one that was cut off in the writing is none."""
        found = []
        for text in self.path.read_text("utf-8", "replace").splitlines() if self.path.is_file() else ():
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict) and isinstance(line.get("step"), int):
                found.append(line)
        return found


def last_checkpoint(folder: Path) -> Path | None:
    """The latest checkpoint that is whole: its state is written last, and may itself be cut off."""
    found = []
    for path in folder.glob("checkpoint-*"):
        number = path.name.rpartition("-")[2]
        try:
            state = json.loads((path / _STATE).read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        whole = all((path / name).is_file() for name in _NEEDED)
        if (
            whole
            and number.isdecimal()
            and isinstance(state, dict)
            and state.get("global_step") == int(number)
        ):
            found.append((int(number), path))
    return max(found)[1] if found else None


def is_over(state: Any, patience: int, steps: int) -> bool:
    """Whether a training has come to its end: all steps, parity with every gate kept, or no progress for too long.

    `state` holds transformers' history, in which a validation is a row with `eval_standing`, lower being better.
    """
    standings = [row["eval_standing"] for row in state.log_history if "eval_standing" in row]
    if state.global_step >= steps:
        return True
    if not standings:
        return False
    since_best = len(standings) - 1 - standings.index(min(standings))
    return bool(standings[-1] <= PARITY) or since_best >= patience


MOMENTS = 2.0
"""Seconds within which another Ctrl-C is taken for a copy of the first: launchers pass on what all processes get."""


class Interrupts:
    """Ctrl-C, SIGTERM and SIGHUP kept back until a step is over and saved: `with interrupts:`, then `pass_on()`.

    Further ones change nothing, as schedulers send SIGTERM to a process and to its group, but for a Ctrl-C some
    moments later: somebody does not want to wait.
    """

    def __init__(self) -> None:
        self.number = 0
        self._since: float | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                if signal.getsignal(number) == signal.SIG_IGN:
                    continue
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since, self.number = now, self.number or number
        elif number == signal.SIGINT and now - self._since >= MOMENTS:
            self.__exit__()
            self.pass_on()

    def pass_on(self) -> None:
        """Hands an interrupt that was kept back to whom it was for."""
        if self.number:
            signal.raise_signal(self.number)
            raise KeyboardInterrupt
