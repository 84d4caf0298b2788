"""Strategies on vLLM's engine: what a model of random weights is asked, and what is made of its labels' logits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmfair.backends.base import BackendOptions
from llmfair.backends.vllm import VLLM, vllm
from llmfair.nouns import Chat, Completion, Request, Sampling
from llmfair.rankers.strategies import Ranked
from tests.cli.command import Outcome, only_run, ran
from tests.engines import needs_vllm, on_loop, shared_engine
from tests.folders import balanced, write_folder
from tests.rankers.asking import by_transformers, driven, made, order_of, probe_of, ranker_of

# What vLLM and torch warn of is theirs; the first test waits for the engine.
pytestmark = [needs_vllm, pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]
_ORDER = r"\[\d+\](?: > \[\d+\])*"
ANSWERS = {
    "windows": _ORDER,
    "pointwise": "Yes|No",
    "setwise:k=4": "[A-D]",
    "pairwise-sort:k=4": "[AB]",
    "pairwise-sort:method=allpairs": "[AB]",
    "first": "[A-F]",
    "tournament:group=6,best=3": _ORDER,
}
"""The form of an answer, by strategy."""


def asked_by(strategy: str) -> list[str]:
    """Flags of an audit of small lists whose answers are read as text, but for `first`, which reads none."""
    return [
        "--strategy", strategy, "--constrain", "--answers", "margin" if strategy == "first" else "text",
        "--window", "6", "--step", "3", "--passes", "1", "--orders", "1", "--no-repeat", "--conditions", "neutral",
        "--temperature", "1", "--max-invalid", "1",
    ]  # fmt: skip


def texts() -> list[str]:
    """What was answered in the only run."""
    rows = (json.loads(line) for line in (only_run() / "journal.jsonl").read_text().splitlines()[1:])
    return [row["text"] for row in rows]


def require_held(found: Outcome, strategy: str) -> None:
    """Every answer could be read as it stands; of orders not all are one."""
    (answers,) = found.json["answers"].values()
    assert answers["classes"] == {"ok": answers["windows"]}, answers
    if strategy != "first":  # one token of whatever the model says: its labels alone are read
        said = texts()
        assert len(said) <= answers["windows"]  # a heap may compare two items again, which is no new question
        assert len({*said}) > (ANSWERS[strategy] == _ORDER)
        assert all(re.fullmatch(ANSWERS[strategy], text) for text in said), said


APART = 0.02
"""Nats that two programs of one model may differ by."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A model whose engine all tests share."""
    from tests.models import causal

    with shared_engine():
        yield causal(tmp_path_factory.mktemp("models") / "base", "llama", seed=1)


@pytest.fixture
def any_mass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of random weights gives labels too little of its probability for an audit to read them."""
    for module in ("choices", "questions", "strategies"):
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


@pytest.mark.parametrize("strategy", ANSWERS)
def test_every_strategy_is_held_to_its_grammar(
    strategy: str, base: Path, request: pytest.FixtureRequest
) -> None:
    if strategy == "first":  # the one that reads no text
        request.getfixturevalue("any_mass")
    lists = write_folder(Path("lists"), balanced(3, 6, 6))
    require_held(ran("listwise", "-d", lists, "-m", f"vllm:{base}", *asked_by(strategy), "--json"), strategy)


def both(strategy: str, base: Path, backend: VLLM, **settings: object) -> tuple[Ranked, Ranked]:
    """What vLLM's margins make of a list, and what transformers' logits do."""
    ranker, probe = ranker_of(made(strategy, **settings)), probe_of([0] * 12)

    def asked(chat: Chat) -> Completion:
        return on_loop(backend.complete(Request(chat, Sampling(margins=True, max_tokens=1), "k", "p")))

    return driven(ranker.steps(probe), asked)[0], driven(ranker.steps(probe), by_transformers(base))[0]
