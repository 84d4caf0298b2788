"""Packages whose rankers are taken as they are: a CrossEncoder of random weights, a transformer over frames."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from llmfair.backends.base import BackendOptions
from llmfair.backends.python import Function, cross_encoder, pyterrier
from llmfair.errors import BackendError, UsageError
from llmfair.nouns import Chat, Message, Request, Sampling, Scores
from llmfair.rankers.strategies import SCORED
from tests import models

DOCUMENTS = [
    "a text of many words about films",
    "music",
    "the longest text of them all, about music and films",
]


def request(documents: Sequence[str] = DOCUMENTS) -> Request:
    texts = ("films and music", *documents)
    return Request(
        Chat(tuple(Message("user", text) for text in texts), Scores(len(documents))), Sampling(), "", ""
    )


def scores_of(backend: Function, *requests: Request) -> list[tuple[float | None, ...] | None]:
    async def all_of() -> list[tuple[float | None, ...] | None]:
        await backend.open()
        try:
            answers = await asyncio.gather(*map(backend.complete, requests))
        finally:
            await backend.close()
        return [
            SCORED.read(answer, len(of.chat.messages) - 1, "strict").scores
            for of, answer in zip(requests, answers, strict=True)
        ]

    return asyncio.run(all_of())


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models.needs_local()
    return models.bert(tmp_path_factory.mktemp("bert"), labels=1)


@pytest.mark.whole
def test_a_cross_encoder_s_scores_are_its_own_and_lists_do_not_depend_on_each_other(checkpoint: Path) -> None:
    from sentence_transformers import CrossEncoder

    backend = cross_encoder(str(checkpoint), BackendOptions())
    both = scores_of(backend, request(), request(DOCUMENTS[:2]))
    own = CrossEncoder(str(checkpoint)).predict(
        [("films and music", text) for text in DOCUMENTS], show_progress_bar=False
    )
    assert both[0] == pytest.approx(own.tolist(), abs=1e-6)
    assert both[1] == pytest.approx(own.tolist()[:2], abs=1e-6)
    assert scores_of(backend, request()) == [both[0]]
    assert backend.identity.startswith("cross-encoder folder ") and backend.max_workers == 1


@pytest.mark.whole
def test_the_package_s_object_is_taken_as_it_is(checkpoint: Path) -> None:
    from sentence_transformers import CrossEncoder

    (taken,) = scores_of(Function(CrossEncoder(str(checkpoint))), request())
    (named,) = scores_of(cross_encoder(str(checkpoint), BackendOptions()), request())
    assert taken == pytest.approx(named, abs=1e-6)


def test_a_checkpoint_that_is_none() -> None:
    models.needs_local()
    with pytest.raises((UsageError, BackendError)):
        cross_encoder("./no/such/folder", BackendOptions())


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
    pytest.importorskip("pandas", reason="pandas is not installed")
    monkeypatch.chdir(tmp_path)
    Path("own_pipeline.py").write_text(PIPELINE)
    lengths = [float(len(text)) for text in DOCUMENTS]
    assert scores_of(pyterrier("own_pipeline:longest", BackendOptions()), request()) == [tuple(lengths)]
    assert scores_of(pyterrier("own_pipeline:short", BackendOptions()), request()) == [
        (lengths[0], None, lengths[2])
    ]
    with pytest.raises(UsageError, match="has no method transform"):
        pyterrier("own_pipeline:nothing", BackendOptions())


def test_a_transformer_of_pyterrier_itself() -> None:
    pt: Any = pytest.importorskip("pyterrier", reason="PyTerrier is not installed")
    if not pt.java.started():
        try:
            pt.java.init()
        except Exception as error:
            pytest.skip(f"PyTerrier does not start here: {error}")
    transformer = pt.apply.doc_score(lambda row: float(len(row["text"])))

    class Module:
        def rank(self, query: str, documents: list[str]) -> Any:
            from llmfair.backends.python import Transformed

            return Transformed(transformer).rank(query, documents)

    assert scores_of(Function(Module()), request()) == [tuple(float(len(text)) for text in DOCUMENTS)]
