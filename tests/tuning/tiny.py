"""Tiny models and groups of pairs for the tests of training: random weights, random titles, nothing downloaded."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from llmfair.backends.base import BackendOptions
from llmfair.backends.local import LocalModel, load_model
from llmfair.checkpoints import Place, find_checkpoint
from llmfair.nouns import Document, Query
from llmfair.prompts import load_prompt
from llmfair.rankers.choices import Form
from llmfair.rankers.pairwise import PairwiseRanker
from llmfair.settings.commands import FinetuneSettings
from llmfair.tuning.drawing import ExampleGroup, PairGroup, TrainingPair, render
from llmfair.tuning.results import Safeguard, Stratum, Validation
from tests import models

CORPUS = f"{load_prompt('pairwise').text} Title Topic Passage A: B:".replace("\n", " \n")
STRATA: tuple[Stratum, ...] = ("relevant", "relevant", "irrelevant", "mixed")
"""Of the pairs of a group, in turn."""
RECIPE = FinetuneSettings(
    prompts_per_step=16, group_size=8, max_prompts=128, eval_every=32, learning_rate=1e-2, patience=99
)
"""Eight steps of two groups, with a validation after every second one."""
SHORT = replace(RECIPE, max_prompts=64)
"""The same with four steps."""


def saved(folder: Path, family: models.Family = "mistral", **config: Any) -> Path:
    return models.causal(folder, family, corpus=CORPUS, **config)


def loaded(
    folder: Path, dtype: str = "float32", adapter: Path | None = None, attention: str = "sdpa"
) -> LocalModel:
    place, options = Place("cpu", dtype, ""), BackendOptions(adapter=adapter)
    return load_model(find_checkpoint(str(folder)), place, options, attention)


def ranker(form: Form = "letter") -> PairwiseRanker:
    return PairwiseRanker(load_prompt("pairwise"), form=form, answers="margin")


def pair_groups(count: int = 6, pairs: int = 4, seed: int = 0) -> list[PairGroup]:
    """One group of each query; titles of one to four words, targets half and half, one pair in nine without weight."""
    rng = np.random.default_rng(seed)

    def document(name: str) -> Document:
        return Document(
            name, f"Title {' '.join(map(str, rng.integers(100, size=rng.integers(1, 5))))} {name}"
        )

    made = []
    for number in range(count):
        query = Query(f"q{number}", f"Topic {number}")
        made.append(
            tuple(
                TrainingPair(
                    f"q{number}/{place}", query, STRATA[place % 4], document(f"a{place}"), document(f"b{place}"),
                    0.9 if place % 4 == 3 else float(rng.integers(2)), float(rng.random() > 1 / 9),
                )
                for place in range(pairs)
            )
        )  # fmt: skip
    return made


def examples(model: LocalModel, count: int = 6, pairs: int = 4, seed: int = 0) -> list[ExampleGroup]:
    assert model.template is not None
    return render(pair_groups(count, pairs, seed), ranker(), model.template, model.checkpoint.context)


def passing(objective: float = 1.0) -> Validation:
    """A validation that keeps its gate."""
    return Validation(objective, {"consistency": Safeguard(1.0, 0.9, True)})


def failing(objective: float) -> Validation:
    """One that does not; the objective is what it would be otherwise."""
    return Validation(objective, {"consistency": Safeguard(0.5, 0.9, False)})


def forked(*works: Callable[[], None]) -> list[int]:
    """The exit codes of processes that do this at once; they have what is imported here, which takes seconds."""
    children = []
    for work in works:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # threads of the test's own process stay behind
            child = os.fork()
        if child == 0:
            code = 1
            warnings.simplefilter("default")  # as in a process of its own
            try:
                work()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    found: dict[str, Any] = load_file(folder / "adapter_model.safetensors")
    return found


def difference(one: Path, other: Path) -> float:
    """The largest difference between the weights of two adapter folders."""
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys() and ours
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
