"""Rerank endpoints over real HTTP, in each form they have: what is sent, what is read, and what is counted as wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from llmfair.backends.base import BackendOptions
from llmfair.backends.rerank import Rerank
from llmfair.errors import BackendError, LlmfairError, UsageError
from llmfair.io.net import Reply
from llmfair.nouns import Chat, Completion, Finish, Message, Request, Sampling, Scores, Text
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.questions import ListScores, read_scores
from tests.backends.asking import answers_of
from tests.servers import Endpoint

DOCUMENTS = ["Carson City is the capital of Nevada.", "Saipan is the capital.", "Washington is the capital"]
MESSAGES = tuple(Message("user", text) for text in ("What is the capital?", *DOCUMENTS))
REQUEST = Request(Chat(MESSAGES, Scores(3)), Sampling(), "key", "probe")


def ask(url: str, **options: Any) -> Completion | BaseException:
    try:
        return answers_of(Rerank("m", BackendOptions(base_url=url, **options)), [REQUEST])[0]
    except LlmfairError as error:
        return error


# Replies as the documentation of each prints them, with other texts.
COHERE = {
    "results": [{"index": 2, "relevance_score": 0.999}, {"index": 1, "relevance_score": 0.327}, {"index": 0, "relevance_score": 0.11}],
    "id": "07734bd2", "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
}  # fmt: skip
JINA = {
    "model": "jina-reranker-v2", "usage": {"total_tokens": 815},
    "results": [{"index": 2, "document": {"text": "…"}, "relevance_score": 0.9}, {"index": 1, "relevance_score": 0.3}, {"index": 0, "relevance_score": 0.1}],
}  # fmt: skip
VOYAGE = {
    "object": "list", "model": "rerank-2", "usage": {"total_tokens": 26},
    "data": [{"relevance_score": 0.4, "index": 2}, {"relevance_score": 0.3, "index": 1}, {"relevance_score": 0.2, "index": 0}],
}  # fmt: skip
TEI = [{"index": 2, "score": 0.997}, {"index": 1, "score": 0.15}, {"index": 0, "score": 0.02}]


@pytest.mark.parametrize(
    ("wire", "reply", "tokens", "sent"),
    [
        ("cohere", COHERE, None, {"model": "m", "query": "What is the capital?", "documents": DOCUMENTS, "top_n": 3}),
        ("cohere", JINA, 815, {"model": "m", "query": "What is the capital?", "documents": DOCUMENTS, "top_n": 3}),
        ("voyage", VOYAGE, 26, {"model": "m", "query": "What is the capital?", "documents": DOCUMENTS, "top_k": 3}),
        ("tei", TEI, None, {"query": "What is the capital?", "texts": DOCUMENTS}),
    ],
)  # fmt: skip
def test_every_form(wire: Any, reply: Any, tokens: int | None, sent: dict[str, Any]) -> None:
    with Endpoint(lambda body, number: reply) as server:
        completion = ask(server.url, wire=wire)
    assert isinstance(completion, Completion) and completion.finish is Finish.STOP
    assert completion.prompt_tokens == tokens and server.asked == [sent]
    assert read_scores(completion.text, 3).permutation == (2, 1, 0)


@pytest.mark.parametrize(
    ("rows", "order", "kind"),
    [
        ([(0, 0.1), (1, 0.9), (2, 0.5)], (1, 2, 0), AnswerClass.OK),
        ([(0, 0.5), (1, 0.5), (2, 0.5)], (0, 1, 2), AnswerClass.OK),
        ([(1, 0.9), (2, 0.5)], (1, 2, 0), AnswerClass.MISSING),
        ([(0, 0.1), (1, 0.9), (1, 0.0), (2, 0.5)], (1, 2, 0), AnswerClass.DUPLICATE),
        ([(0, 0.1), (1, True), (2, 0.5)], (2, 0, 1), AnswerClass.MISSING),
        ([(0, 0.1), (1, 0.9), (7, 1.0)], (1, 0, 2), AnswerClass.OUT_OF_RANGE),
        ([(0, 0.1), (1, float("nan")), (2, 0.5)], (2, 0, 1), AnswerClass.MISSING),
        ([(0, 0.1), (1, None), (2, float("inf"))], (0, 1, 2), AnswerClass.MISSING),
        ([], None, AnswerClass.EMPTY),
    ],
)  # fmt: skip
def test_faulty_rows_are_classified_and_no_score_is_made_up(
    rows: list[Any], order: tuple[int, ...] | None, kind: AnswerClass
) -> None:
    told = {"results": [{"index": place, "relevance_score": score} for place, score in rows]}
    with Endpoint(lambda body, number: told) as server:
        completion = ask(server.url)
    assert isinstance(completion, Completion)
    reading = ListScores().read(completion, 3, "strict")
    assert (reading.permutation, reading.answer_class) == (order, kind)


def test_a_list_of_models_that_is_empty_lists_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed(*_: object, **__: object) -> Reply:
        return Reply(200, {}, b'{"data": []}')

    monkeypatch.setattr(Rerank, "_ask", listed)
    with pytest.raises(BackendError, match="it lists none"):
        asyncio.run(Rerank("m", BackendOptions(base_url="http://h")).look())


def test_the_key_is_the_project_s_own_or_the_vendor_s(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Rerank("m", BackendOptions(base_url="https://api.cohere.com/v2")).key_variables == (
        "RERANK_API_KEY", "COHERE_API_KEY", "CO_API_KEY",
    )  # fmt: skip
    gateway = BackendOptions(base_url="https://gateway.example/cohere/v2")
    assert Rerank("m", gateway).key_variables == ("RERANK_API_KEY",), "a vendor's key goes to its host alone"
    monkeypatch.setenv("RERANK_API_KEY", "canary")
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    with Endpoint(lambda body, number: (400, {}, {"message": "canary is no key"})) as server:
        refused = ask(server.url)
    assert server.keys == {"Bearer canary"} and "canary" not in str(refused)


def test_it_needs_an_address_and_answers_no_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="needs the address"):
        Rerank("m", BackendOptions())
    backend = Rerank("m", BackendOptions(base_url="http://127.0.0.1:9/v1"))
    question = Request(Chat(MESSAGES, Text()), Sampling(), "key", "probe")
    with pytest.raises(UsageError, match="answers no questions"):
        backend.body(question)
