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
from llmfair.backends.given import Given
from llmfair.backends.python import Function, python
from llmfair.errors import Rejected, UsageError
from llmfair.nouns import Chat, Message, Request, Sampling, Scores
from llmfair.rankers.strategies import Scored

DOCUMENTS = ["b", "a", "c"]
REQUEST = Request(
    Chat(tuple(Message("user", text) for text in ("query", *DOCUMENTS)), Scores(3)), Sampling(), "key", "p"
)


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
    async def one() -> tuple[int, ...] | None:
        backend = Function(ranker)
        await backend.open()
        try:
            return Scored().read(await backend.complete(REQUEST), 3, "strict").permutation
        finally:
            await backend.close()

    return asyncio.run(one())


@pytest.mark.parametrize(
    "returned",
    [
        [2.0, 3.0, 1.0],
        [2, 3, 1],
        (0.2, 0.3, 0.1),
        np.array([2.0, 3.0, 1.0]),
        iter([2.0, 3.0, 1.0]),
        ["a", "b", "c"],
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


def test_a_class_that_wants_arguments_is_refused_in_a_sentence() -> None:
    class Needs:
        def __init__(self, checkpoint: str) -> None: ...

        def rank(self, query: str, documents: list[str]) -> list[float]:
            return [1.0] * len(documents)

    with pytest.raises(UsageError, match=r"cannot be made: TypeError: .*'checkpoint'"):
        Function(Needs)


def test_a_class_that_exits_when_it_is_made_is_refused_in_a_sentence() -> None:
    class Exits:
        def __init__(self) -> None:
            raise SystemExit(0)

    with pytest.raises(UsageError, match="cannot be made: SystemExit: 0"):
        Function(Exits)


def test_a_ranker_that_exits_fails_on_its_list_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leaves(query: str, documents: list[str]) -> list[float]:
        raise SystemExit(3)

    with pytest.raises(Rejected, match="SystemExit"):
        order_of(leaves)
    (tmp_path / "a_script_that_exits.py").write_text("raise SystemExit(2)")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="cannot be imported"):
        python("a_script_that_exits:rank", BackendOptions())


def test_a_document_that_was_not_shown_and_one_left_out_are_no_order() -> None:
    assert order_of(lambda query, documents: ["a", "z", "b"]) == (1, 0, 2), "c is missing: it comes last"


def test_a_ranker_that_fails_on_a_list_says_how() -> None:
    def broken(query: str, documents: list[str]) -> list[float]:
        raise KeyError("embedding")

    with pytest.raises(Rejected, match="KeyError: 'embedding'"):
        order_of(broken)


def test_slow_functions_are_asked_several_lists_at_a_time() -> None:
    def slow(query: str, documents: list[str]) -> list[float]:
        time.sleep(0.1)
        return [1.0] * len(documents)

    async def eight() -> float:
        backend = Function(slow)
        await backend.open()
        began = time.perf_counter()
        await asyncio.gather(*(backend.complete(REQUEST) for _ in range(8)))
        took = time.perf_counter() - began
        await backend.close()
        return took

    assert asyncio.run(eight()) < 0.4, "one after the other takes 0.8 s"


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
        ("", "names no MODULE:NAME"),
        ("mine", "names no MODULE:NAME"),
        ("no_such_module:rank", "no_such_module cannot be imported"),
        ("json:nothing", "json has no nothing"),
        ("math:pi", "is a float, which ranks nothing"),
    ],
)
def test_specs_that_name_nothing(spec: str, says: str) -> None:
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
    assert Given(unwritten["Shouts"]()).identity == "object shouts"


def test_a_bug_in_an_object_is_told_with_its_kind() -> None:
    class Broken:
        name = "broken"

        async def complete(self, request: llmfair.Request) -> str:
            return "first".index("z")  # type: ignore[return-value]

    with pytest.raises(llmfair.Incomplete, match=r" first: ValueError: substring not found\.") as caught:
        llmfair.audit_pairwise(model=Broken(), **PAIRS)
    assert "-v shows where" in caught.value.hint
