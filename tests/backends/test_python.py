"""Rankers in the user's own code: what they may return, how many lists they are given at a time, what goes wrong."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llmfair
from llmfair.backends.base import BackendOptions
from llmfair.backends.python import CallerModel, Function, cross_encoder, pyterrier, python
from llmfair.errors import Rejected, UsageError
from llmfair.nouns import Chat, Message, Request, Sampling, Scores
from llmfair.rankers.questions import SCORED, ListScores
from tests import models
from tests.backends.asking import answers_of

DOCUMENTS = ["b", "a", "c"]
MESSAGES = tuple(Message("user", text) for text in ("query", *DOCUMENTS))
REQUEST = Request(Chat(MESSAGES, Scores(3)), Sampling(), "key", "p")


class Result:
    """A row of the package rerankers."""

    class Document:
        def __init__(self, doc_id: int) -> None:
            self.doc_id = doc_id

    def __init__(self, doc_id: int, score: float) -> None:
        self.document, self.score = Result.Document(doc_id), score


class Ranked:
    def __init__(self, results: Sequence[Result]) -> None:
        self.results = results


def order_of(ranker: Any) -> tuple[int, ...] | None:
    (answer,) = answers_of(Function(ranker), [REQUEST])
    return ListScores().read(answer, 3, "strict").permutation


@pytest.mark.parametrize(
    "returned",
    [
        [2.0, 3.0, 1.0],
        [2, 3, 1],
        (0.2, 0.3, 0.1),
        np.array([2.0, 3.0, 1.0]),
        iter([2.0, 3.0, 1.0]),
        ["a", "b", "c"],
        ["a", "z", "b"],  # z was not shown, and c, which is missing, comes last
        [{"corpus_id": 1, "score": 3.0}, {"corpus_id": 0, "score": 2.0}, {"corpus_id": 2, "score": 1.0}],
        [{"index": np.int64(1), "relevance_score": np.float32(3)}, {"index": 0, "score": 2}, {"index": 2, "score": 1}],
        Ranked([Result(1, 3.0), Result(0, 2.0), Result(2, 1.0)]),
    ],
)  # fmt: skip
def test_what_may_be_returned(returned: Any) -> None:
    assert order_of(lambda query, documents: returned) == (1, 0, 2)


def test_a_function_an_async_one_a_class_and_an_object() -> None:
    async def later(query: str, documents: list[str]) -> list[float]:
        await asyncio.sleep(0)
        return [2.0, 3.0, 1.0]

    class Own:
        def rank(self, query: str, documents: list[str]) -> list[str]:
            return sorted(documents)

    class Reranks:
        def rerank(self, query: str, documents: list[str]) -> list[str]:
            return sorted(documents)

    assert {order_of(one) for one in (later, Own, Own(), Reranks())} == {(1, 0, 2)}


@pytest.mark.parametrize(
    "returned", [None, 7, "abc", {"a": 1}, [1.0, 2.0], [2.0, True, 1.0], [None] * 3, [[1.0]] * 3, b"abc"]
)
def test_what_holds_no_scores_ends_the_run_with_a_sentence(returned: Any) -> None:
    with pytest.raises(UsageError, match="for 3 documents") as caught:
        order_of(lambda query, documents: returned)
    assert "return a score for each document" in caught.value.hint


def test_a_class_that_cannot_be_made_is_refused_in_a_sentence() -> None:
    class Needs:
        def __init__(self, checkpoint: str) -> None: ...

        def rank(self, query: str, documents: list[str]) -> list[float]:
            return [1.0] * len(documents)

    class Exits:
        def __init__(self) -> None:
            raise SystemExit(0)

    for kind, says in ((Needs, r"TypeError: .*'checkpoint'"), (Exits, "SystemExit: 0")):
        with pytest.raises(UsageError, match=f"cannot be made: {says}"):
            Function(kind)


@pytest.mark.parametrize(
    ("error", "says"), [(SystemExit(3), "SystemExit"), (KeyError("embedding"), "KeyError: 'embedding'")]
)
def test_a_ranker_that_fails_or_exits_fails_on_its_list_alone(error: BaseException, says: str) -> None:
    def broken(query: str, documents: list[str]) -> list[float]:
        raise error

    with pytest.raises(Rejected, match=says):
        order_of(broken)


def test_slow_functions_are_asked_several_lists_at_a_time() -> None:
    def slow(query: str, documents: list[str]) -> list[float]:
        time.sleep(0.1)
        return [1.0] * len(documents)

    began = time.perf_counter()
    answers_of(Function(slow), [REQUEST] * 8)
    assert time.perf_counter() - began < 0.4, "one after the other takes 0.8 s"


def test_a_spec_names_a_module_of_this_folder_and_its_source_is_its_identity(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine_one.py").write_text("def rank(query, documents):\n    return [1.0] * len(documents)\n")
    Path("mine_two.py").write_text("def rank(query, documents):\n    return [2.0] * len(documents)\n")
    one, two = (python(f"mine_{name}:rank", BackendOptions()) for name in ("one", "two"))
    assert one.identity.startswith("python mine_one rank ") and one.identity[-12:] != two.identity[-12:]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("", "python: cannot be imported"),
        ("no_such_module:rank", "no_such_module:rank cannot be imported"),
        ("json:nothing", "json:nothing cannot be imported"),
        ("math:pi", "is a float, which ranks nothing"),
        ("a_script_that_exits:rank", "a_script_that_exits:rank cannot be imported"),
    ],
)
def test_specs_of_nothing(spec: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_script_that_exits.py").write_text("raise SystemExit(2)")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=says):
        python(spec, BackendOptions())


# A model that is an object of the caller's own


PAIRS: dict[str, Any] = {"pairs": 4, "noise_share": 0, "report": False}
WRITTEN = """
class Shouts:
    name = "shouts"

    async def complete(self, request):
        return "{answer}"
"""


@pytest.mark.whole
def test_an_object_whose_code_was_edited_is_another_model(tmp_path: Path) -> None:
    def written(answer: str) -> Any:
        path = tmp_path / f"shouts_{len(list(tmp_path.glob('shouts_*')))}.py"
        path.write_text(WRITTEN.format(answer=answer))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module.Shouts()

    first = llmfair.audit_pairwise(model=written("[1] > [2]"), output="run", **PAIRS)
    assert llmfair.audit_pairwise(model=written("[1] > [2]"), output="run", **PAIRS).rows == first.rows
    with pytest.raises(llmfair.RunConflict, match=r"belongs to other settings \(identity: 'object shouts "):
        llmfair.audit_pairwise(model=written("[2] > [1]"), output="run", **PAIRS)
    other = llmfair.audit_pairwise(model=written("[2] > [1]"), **PAIRS)
    assert other.results["findings"]["relevant"]["reason"] == "position_driven"
    unwritten: dict[str, Any] = {}
    exec(WRITTEN.format(answer="[1] > [2]"), unwritten)
    assert CallerModel(unwritten["Shouts"]()).identity == "object shouts"


# Packages whose rankers are taken as they are: a CrossEncoder of random weights, a transformer over frames


TEXTS = ["a text of many words about films", "music", "the longest text of them all, about music and films"]


def request(documents: Sequence[str] = TEXTS) -> Request:
    texts = ("films and music", *documents)
    return Request(Chat(tuple(Message("user", t) for t in texts), Scores(len(documents))), Sampling(), "", "")


def scores_of(backend: Function, *requests: Request) -> list[tuple[float | None, ...] | None]:
    return [
        SCORED.read(answer, len(of.chat.messages) - 1, "strict").scores
        for of, answer in zip(requests, answers_of(backend, requests), strict=True)
    ]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models.needs_local()
    return models.bert(tmp_path_factory.mktemp("bert"), labels=1)


@pytest.mark.whole
def test_a_cross_encoder_s_scores_are_its_own_and_lists_do_not_depend_on_each_other(checkpoint: Path) -> None:
    from sentence_transformers import CrossEncoder

    backend = cross_encoder(str(checkpoint), BackendOptions())
    both = scores_of(backend, request(), request(TEXTS[:2]))
    own = CrossEncoder(str(checkpoint)).predict(
        [("films and music", text) for text in TEXTS], show_progress_bar=False
    )
    assert both[0] == pytest.approx(own.tolist(), abs=1e-6)
    assert both[1] == pytest.approx(own.tolist()[:2], abs=1e-6)
    assert scores_of(backend, request()) == [both[0]]
    assert backend.identity.startswith("cross-encoder folder ") and backend.max_workers == 1


PIPELINE = """
class Longest:
    def transform(self, frame):
        frame = frame.assign(score=frame["text"].str.len())
        return frame.sort_values("score", ascending=False)

class Short(Longest):
    def transform(self, frame):
        return super().transform(frame).head(2)

longest, short, nothing = Longest(), Short(), object()
"""


@pytest.mark.whole
def test_a_transformer_over_a_frame(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_pipeline.py").write_text(PIPELINE)
    lengths = [float(len(text)) for text in TEXTS]
    assert scores_of(pyterrier("own_pipeline:longest", BackendOptions()), request()) == [tuple(lengths)]
    assert scores_of(pyterrier("own_pipeline:short", BackendOptions()), request()) == [
        (lengths[0], None, lengths[2])
    ]
    with pytest.raises(UsageError, match="has no method transform"):
        pyterrier("own_pipeline:nothing", BackendOptions())
