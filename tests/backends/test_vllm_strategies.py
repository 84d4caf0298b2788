"""Strategies on vLLM's engine: what a model of random weights is asked, and what is made of its labels' logits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmfair.backends.base import BackendOptions
from llmfair.backends.vllm import VLLM, vllm
from llmfair.nouns import Chat, Completion, Request, Sampling
from llmfair.rankers.strategies import Ranked
from tests.engines import needs_vllm, on_loop, shared_engine
from tests.rankers.asking import by_transformers, driven, made, order_of, probe_of, ranker_of

# What vLLM and torch warn of is theirs; the first test waits for the engine.
pytestmark = [needs_vllm, pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A model whose engine all tests share."""
    from tests.models import causal

    with shared_engine():
        yield causal(tmp_path_factory.mktemp("models") / "base", "llama", seed=1)


@pytest.fixture
def any_mass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of random weights gives labels too little of its probability for an audit to read them."""
    for module in ("choices", "questions"):
        monkeypatch.setattr(f"llmfair.rankers.{module}.LEAST_MASS", 0.0)
    monkeypatch.setattr("llmfair.rankers.questions.MOSTLY", 0.0)


@pytest.fixture
def backend(base: Path) -> Iterator[VLLM]:
    found = vllm(str(base), BackendOptions())
    on_loop(found.open())
    yield found
    on_loop(found.close())


@pytest.mark.usefixtures("any_mass")
def test_the_order_of_first_is_that_of_the_logits(base: Path, backend: VLLM) -> None:
    found, expected = both("first", base, backend, window=6, step=3, passes=2)
    assert order_of(found) == order_of(expected) != list(range(12))
    assert [one.permutation for one in found.windows] == [one.permutation for one in expected.windows]


@pytest.mark.usefixtures("any_mass")
@pytest.mark.parametrize("strategy", ["setwise:k=6", "pairwise-sort:k=6"])
def test_the_choice_is_the_label_of_the_highest_logit(strategy: str, base: Path, backend: VLLM) -> None:
    found, expected = both(strategy, base, backend)
    assert order_of(found) == order_of(expected) != list(range(12))
    assert [one.named for one in found.windows] == [one.named for one in expected.windows]
    assert len({one.permutation for one in found.windows}) > 1


def both(strategy: str, base: Path, backend: VLLM, **settings: object) -> tuple[Ranked, Ranked]:
    """What vLLM's margins make of a list, and what transformers' logits do."""
    ranker, probe = ranker_of(made(strategy, **settings)), probe_of([0] * 12)

    def asked(chat: Chat) -> Completion:
        return on_loop(backend.complete(Request(chat, Sampling(margins=True, max_tokens=1), "k", "p")))

    return driven(ranker.steps(probe), asked)[0], driven(ranker.steps(probe), by_transformers(base))[0]
