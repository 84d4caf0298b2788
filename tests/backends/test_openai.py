"""The OpenAI backend against a server on loopback, with the openai package as reference."""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import traceback
from dataclasses import replace
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion

from llmfair.backends.base import BackendOptions, Transient
from llmfair.backends.openai import OpenAI, finish_of, is_alias
from llmfair.errors import BackendError, MissingKey, Rejected, UsageError, warn
from llmfair.io.net import proxy_for, server_of
from llmfair.nouns import (
    Chat,
    Completion,
    Expects,
    Finish,
    Labels,
    Message,
    Permutation,
    Request,
    Sampling,
    Text,
)
from llmfair.registry import lookup
from tests.backends.asking import answers_of
from tests.servers import Reply, Server

CANARY = "sk-canary0123456789abcdefghij"
MESSAGES = (
    Message("system", "You are a search system."),
    Message("user", "Search Query: Ada Lovelace – „Ω“"),
    Message("assistant", "Ready."),
    Message("user", '[1] Ada "Countess" \\ 😀'),
)
REQUEST = Request(Chat(MESSAGES, Permutation(1)), Sampling(max_tokens=24, seed=3), "key", "q1/neutral")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but a key that must never be seen again."""
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)


def ask(base_url: str, *requests: Request, **options: Any) -> list[Completion | Exception]:
    """Answers or exceptions of requests sent one after the other by one backend; looks for the canary."""

    async def run() -> list[Completion | Exception]:
        backend = OpenAI("m", BackendOptions(base_url=base_url, **options))
        await backend.open()
        outcomes: list[Completion | Exception] = []
        for request in requests or (REQUEST,):
            try:
                outcomes.append(await backend.complete(request))
            except Exception as error:
                outcomes.append(error)
        await backend.close()
        return outcomes

    outcomes = asyncio.run(run())
    assert CANARY not in repr(outcomes)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            shown = "".join(traceback.format_exception(outcome)), str(outcome), repr(outcome.args)
            assert not any(CANARY in text for text in (*shown, repr(vars(outcome))))
    return outcomes


def ask_once(reply: Reply, request: Request = REQUEST, **options: Any) -> Completion | Exception:
    with Server(lambda body, attempt: reply) as server:
        return ask(server.base_url, request, **options)[0]


def answered(reply: Reply, request: Request = REQUEST) -> Completion:
    outcome = ask_once(reply, request)
    assert isinstance(outcome, Completion), outcome
    return outcome


def refused(status: int, headers: dict[str, str] | None = None, **error: Any) -> Reply:
    error = {"message": f"No. Your key is {CANARY}, try again in 3s.", "code": None, "param": None, **error}
    return Reply(status=status, headers=headers or {}, body={"error": error})


def test_a_partly_masked_key_is_not_repeated() -> None:
    error = ask_once(refused(401, message="Incorrect API key provided: sk-canar***ghij."))
    assert "canar" not in str(error)


@pytest.mark.parametrize("first", ["max_tokens", "max_completion_tokens"])
def test_the_limit_is_renamed_and_that_said_once(first: str, capsys: pytest.CaptureFixture[str]) -> None:
    def respond(body: dict[str, Any], attempt: int) -> Reply:
        return refused(400, code="unsupported_parameter", param=first) if first in body else Reply("[1]")

    async def run() -> list[Completion]:
        backend = OpenAI("m", BackendOptions(base_url=server.base_url))
        backend.limit_name = first
        await backend.open()
        answers = await asyncio.gather(*(backend.complete(REQUEST) for _ in range(5)))
        answers.append(await backend.complete(REQUEST))
        await backend.close()
        return answers

    with Server(respond) as server:
        assert [answer.text for answer in asyncio.run(run())] == ["[1]"] * 6
        assert sum(first in body for body in server.bodies) <= 5
        assert first not in server.bodies[-1]
    assert capsys.readouterr().err.count(f"does not know {first}: --max-tokens is sent as max_") == 1


@pytest.mark.parametrize("tail", ["", "/"])
def test_a_base_url_without_a_path_reaches_the_server_and_the_way_out_is_said(tail: str) -> None:
    with Server(lambda body, attempt: Reply("[1]")) as server:
        error = ask(server.base_url.removesuffix("/v1") + tail)[0]
    assert type(error) is BackendError and "answers 404" in str(error) and "often ends in /v1" in error.hint


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):
            error = ask(f"http://{host}:{port}/v1")[0]
            assert isinstance(error, Transient)
            assert error.cause == f"connection refused by {host}:{port}"


def test_a_name_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    error = ask("http://nowhere.invalid:80/v1")[0]
    assert isinstance(error, Transient) and error.cause == "the name of nowhere.invalid:80 cannot be resolved"


def test_a_broken_off_answer_is_tried_once_more() -> None:
    with Server(lambda body, attempt: Reply("", finish_reason="error")) as server:
        kinds = [type(outcome) for outcome in ask(server.base_url, REQUEST, REQUEST)]
    assert kinds == [Transient, Rejected]


LABELS = replace(REQUEST, chat=Chat(MESSAGES, Labels(("A", "B"))))


@pytest.mark.parametrize(
    ("reply", "finish"),
    [
        (Reply("[1]"), Finish.STOP),
        (Reply("[1]", "end_turn"), Finish.STOP),
        (Reply("[1]", "eos"), Finish.STOP),
        (Reply("<think>1?</think>[1]"), Finish.STOP),
        (Reply("[1", "length"), Finish.LENGTH),
        (Reply("<think>well", "length"), Finish.UNFINISHED_THINKING),
        (Reply("<think>well"), Finish.UNFINISHED_THINKING),
        (Reply("[THINK]well", "length"), Finish.UNFINISHED_THINKING),
        (Reply("<|channel|>analysis<|message|>well", "length"), Finish.UNFINISHED_THINKING),
        (Reply("", "content_filter"), Finish.FILTERED),
        (refused(400, code="content_filter"), Finish.FILTERED),
        (Reply(None, message={"refusal": "I cannot."}), Finish.REFUSED),
        (Reply(None), Finish.EMPTY),
        (Reply(" \n"), Finish.EMPTY),
        (Reply("", "length"), Finish.LENGTH),
        (Reply(None, "MAX_TOKENS", message={"reasoning_content": "[1] is"}), Finish.LENGTH),
        (Reply("[1", "model_length"), Finish.LENGTH),
        (Reply("[1]", choice={"finish_reason": ["stop"]}), Finish.STOP),
        *(
            (Reply(None, reason, message={"content": content}), finish)
            for content in (42, {"a": "[1]"}, [1, None])
            for reason, finish in (("stop", Finish.EMPTY), ("content_filter", Finish.FILTERED))
        ),
    ],
)
def test_finish(reply: Reply, finish: Finish) -> None:
    assert answered(reply).finish is finish


@pytest.mark.parametrize(
    ("text", "finish"), [("A", Finish.STOP), (" B", Finish.STOP), ("Passage A", Finish.LENGTH)]
)
def test_a_label_that_fills_the_limit_is_whole(text: str, finish: Finish) -> None:
    assert answered(Reply(text, "length"), LABELS).finish is finish
    assert finish_of("length", text, Text()) is Finish.LENGTH


def test_what_a_completion_keeps() -> None:
    usage = {
        "prompt_tokens": 31,
        "completion_tokens": 7,
        "completion_tokens_details": {"reasoning_tokens": 4},
        "prompt_tokens_details": {"cached_tokens": 16},
    }
    answer = answered(Reply("[1]", usage=usage, delay=0.05))
    assert 0.05 <= answer.seconds < 5
    assert replace(answer, seconds=0) == Completion(
        "[1]", Finish.STOP, 31, 7, 4, 16, model="m-2026-01-01", fingerprint="fp_test"
    )


@pytest.mark.parametrize(
    ("message", "text", "finish", "reasoning"),
    [
        ({"reasoning": "[1], I think."}, "", Finish.EMPTY, "[1], I think."),
        ({"reasoning_content": "[1], I think."}, "", Finish.EMPTY, "[1], I think."),
        ({"refusal": "I cannot."}, "I cannot.", Finish.REFUSED, None),
    ],
)
def test_reasoning_is_kept_and_never_read_and_a_refusal_is_evidence(
    message: dict[str, str], text: str, finish: Finish, reasoning: str | None
) -> None:
    answer = answered(Reply(None, message=message, usage={"prompt_tokens_details": None}))
    assert (answer.text, answer.finish, answer.reasoning or None) == (text, finish, reasoning)


def test_content_in_parts_is_their_text() -> None:
    for parts in ([{"type": "text", "text": "[2] > "}, {"type": "text", "text": "[1]"}], ["[2] >", " [1]"]):
        answer = answered(Reply(None, message={"content": parts}))
        assert (answer.text, answer.finish) == ("[2] > [1]", Finish.STOP)
        refusal = answered(Reply(None, message={"content": parts, "refusal": ["no"]}))
        assert refusal == replace(answer, seconds=refusal.seconds), "a refusal is a text"


def test_a_reply_without_end_is_not_read_to_it() -> None:
    long = "x" * 1_000_001
    with Server(lambda body, attempt: Reply(long)) as server:
        (outcome,) = ask(server.base_url)
    assert isinstance(outcome, Rejected)
    assert "sends more than 1 MB in one reply" in outcome.message and "--max-reply" in outcome.hint


def read_completion(document: Any, expects: Expects) -> Completion:
    request = Request(Chat(MESSAGES, expects), Sampling(max_tokens=24), "key", "q1/neutral")
    return OpenAI("m", BackendOptions()).completion(json.dumps(document).encode(), request, 0.0)


ODD: list[tuple[str, Any]] = [
    ("usage", [1]),
    ("usage", {"prompt_tokens": "3", "completion_tokens": True}),
    ("usage", {"prompt_tokens_details": [1], "completion_tokens_details": "none"}),
    ("model", {"a": 1}),
    ("system_fingerprint", 7),
    ("choices", [{"message": {"content": "[1]", "refusal": True, "reasoning": {"a": 1}}}]),
]


@pytest.mark.parametrize(("field", "value"), ODD)
def test_an_odd_field_beside_an_answer_is_as_good_as_none(field: str, value: Any) -> None:
    document = {"choices": [{"message": {"content": "[1]"}}], field: value}
    assert read_completion(document, Permutation(1)) == Completion("[1]", Finish.STOP)


@pytest.mark.parametrize("logprob", [float("inf"), float("nan"), float("-inf")])
def test_a_logprob_that_is_no_number_is_that_of_a_label_not_sent(logprob: float) -> None:
    tokens = [{"token": "A", "logprob": logprob}, {"token": "B", "logprob": -1.0}]
    choice = {"message": {"content": "B"}, "logprobs": {"content": [{"top_logprobs": tokens}]}}
    found = read_completion({"choices": [choice]}, Labels(("A", "B")))
    assert found.logprobs is not None and [*found.logprobs] == ["B"]


HALF, EIGHTH = math.log(0.5), math.log(0.125)


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ({"A": HALF, "B": EIGHTH}, {"A": HALF, "B": EIGHTH}),
        ({"▁A": HALF, "ĠB": EIGHTH}, {"A": HALF, "B": EIGHTH}),
        ({" A": EIGHTH, "▁A": EIGHTH, "ĠA": EIGHTH, "A": EIGHTH, "ĊB": EIGHTH}, {"A": HALF, "B": EIGHTH}),
        ({"\nA": HALF, "B\r\n": EIGHTH, "▁▁B": EIGHTH}, {"A": HALF, "B": math.log(0.25)}),
        ({"A": HALF, "B": -9999.0}, {"A": HALF}),
        ({"A": HALF, "B": None}, {"A": HALF}),
        ({"A": None, "B": HALF}, {}),  # the answer is A
        ({"A": HALF, "B": "-2"}, {"A": HALF}),
        ({"A": 800.0, "B": 799.0}, {"A": 800.0, "B": 799.0}),
        ({"ĠAn": HALF, "Ġ": EIGHTH, "a": EIGHTH}, {}),
    ],
)
def test_labels_are_read_however_tokens_are_spelt(tokens: dict[str, Any], found: dict[str, float]) -> None:
    rows = [{"token": token, "logprob": value} for token, value in tokens.items()]
    logprobs = {"content": [{**rows[0], "top_logprobs": [*rows, rows[0]]}]}
    choice = {"message": {"content": "A"}, "logprobs": logprobs}
    read = read_completion({"choices": [choice]}, Labels(("A", "B"))).logprobs
    assert read == pytest.approx(found, abs=1e-12)


@pytest.mark.parametrize(
    "logprobs", [7, "word", [1], {"content": "A"}, {"content": [{"token": "A", "logprob": "-0.1"}]}]
)
def test_logprobs_that_are_none_are_no_answer_where_they_are_read(logprobs: Any) -> None:
    choice = {"message": {"content": "A"}, "logprobs": logprobs}
    request = replace(REQUEST, chat=replace(REQUEST.chat, expects=Labels(("A", "B"))))
    for margins in (False, True):
        asked = replace(request, sampling=replace(request.sampling, margins=margins))
        found = ask_once(Reply(body={"choices": [choice]}), asked)
        if margins:
            assert isinstance(found, Transient) and "without a completion" in found.cause
        else:
            assert isinstance(found, Completion) and found.text == "A"


@given(st.none() | st.text(), st.none() | st.sampled_from(["stop", "length", "content_filter", "tool_calls"]))
def test_any_answer_has_an_end(text: str | None, reason: str | None) -> None:
    document = {"choices": [{"message": {"content": text}, "finish_reason": reason}]}
    answer = read_completion(document, Permutation(3))
    assert (answer.finish is Finish.STOP) <= bool(answer.text.strip())


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=24, seed=3),
        Sampling(temperature=0.7, max_tokens=8, seed=-1, top_p=0.9, stop=("\n", "###")),
        Sampling(max_tokens=1, extra={"reasoning_effort": "low", "seed": None}),
    ],
)
def test_the_body_is_the_sdk_s_own(sampling: Sampling) -> None:
    template_args = {"enable_thinking": False}

    async def of_sdk() -> ChatCompletion:
        fields: dict[str, Any] = {"seed": sampling.seed, **sampling.extra}
        if sampling.top_p is not None:
            fields |= {"top_p": sampling.top_p, "stop": list(sampling.stop)}
        async with openai.AsyncOpenAI(base_url=server.base_url) as client:
            reply: ChatCompletion = await client.chat.completions.create(
                model="m",
                messages=[{"role": message.role, "content": message.content} for message in MESSAGES],  # type: ignore[misc]
                temperature=sampling.temperature,
                max_tokens=sampling.max_tokens,
                extra_body={"chat_template_kwargs": template_args},
                **fields,
            )
            return reply

    with Server() as server:
        extra = {"chat_template_kwargs": template_args, **sampling.extra}
        ask(server.base_url, replace(REQUEST, sampling=replace(sampling, extra=extra)))
        reply = asyncio.run(of_sdk())
        ours, theirs = server.requests
    assert ours.body == {name: value for name, value in theirs.body.items() if value is not None}
    assert reply.choices[0].message.content == "[1]"
    sent = [{name.lower(): value for name, value in seen.headers.items()} for seen in (ours, theirs)]
    apart = per_request | {name for name in sent[1] if name.startswith("x-stainless-")}
    headers = [{name: of[name] for name in of.keys() - apart} for of in sent]
    assert headers[0] == headers[1]


per_request = {"content-length", "accept-encoding", "connection", "user-agent"}


def test_the_body_is_compact_utf_8_with_the_messages_last() -> None:
    backend = OpenAI("m", BackendOptions(base_url="https://api.openai.com/v1"))
    body = backend.body(Request(Chat(MESSAGES[1:2], Permutation(1)), Sampling(max_tokens=24), "key", "q1"))
    assert body.decode() == (
        '{"model":"m","temperature":0.0,"max_completion_tokens":24,"seed":0,'
        '"messages":[{"role":"user","content":"Search Query: Ada Lovelace – „Ω“"}]}'
    )


def test_folding() -> None:
    with Server() as server:
        ask(server.base_url, system="fold")
        ask(server.base_url, system="auto")
    folded, separate = server.bodies
    text = "You are a search system.\n\nSearch Query: Ada Lovelace – „Ω“"
    assert folded["messages"][0] == {"role": "user", "content": text}
    assert [message["role"] for message in separate["messages"]] == ["system", "user", "assistant", "user"]


def test_identity() -> None:
    def identity(name: str = "m", **options: Any) -> str:
        made: OpenAI = lookup("backend", "openai")(name, BackendOptions(**options))
        return made.identity

    assert identity("gpt-5-mini") == "openai gpt-5-mini api.openai.com"
    assert identity(base_url="http://LocalHost:8000/v1") == "openai m localhost:8000"
    assert identity(base_url="https://example.org/v1/") == "openai m example.org:443"
    assert identity(base_url="http://h:1/v1", server_name="gpu box") == "openai m gpu box"
    assert identity(base_url="http://h:1/v1", system="fold") == "openai m h:1 fold"


def opened(**options: Any) -> OpenAI:
    backend = OpenAI("m", BackendOptions(**options))
    answers_of(backend, [])
    return backend


def test_limit_name_by_server() -> None:
    assert opened().limit_name == "max_completion_tokens"
    assert opened(base_url="http://127.0.0.1:1/v1").limit_name == "max_tokens"


def test_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " ")
    with pytest.raises(MissingKey) as caught:
        opened()
    assert "OPENAI_API_KEY" in caught.value.hint
    with Server() as server:
        ask(server.base_url)
    assert server.requests[0].headers["Authorization"] == "Bearer none"


@pytest.mark.parametrize("key", [f"{CANARY}\nX: y", f"{CANARY}\x00"])
def test_a_key_that_is_no_header(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    if "\x00" in key:
        monkeypatch.setattr(os, "environ", {**os.environ, "OPENAI_API_KEY": key})
    else:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(UsageError) as caught:
        opened()
    assert CANARY not in str(caught.value)


def test_variables_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url + "/")
        monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
        ask("")
    headers = server.requests[0].headers
    assert headers["Authorization"] == f"Bearer {CANARY}"
    assert headers["OpenAI-Organization"] == "org-1"
    assert headers["OpenAI-Project"] == "proj-1"


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("OPENAI_ORG_ID", "canary\r\nX: y", "openai-organization"),
        ("OPENAI_ORG_ID", "canary\udcff", "openai-organization"),
        ("OPENAI_CUSTOM_HEADERS", ": canary", ""),
        ("OPENAI_CUSTOM_HEADERS", "two words: canary", "two words"),
    ],
)
def test_an_unsendable_header(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, name: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError) as caught:
        opened()
    assert caught.value.message == f"the header '{name}' holds a character that cannot be sent."


def test_a_custom_authorization_replaces_the_key_and_is_as_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "authorization: Basic canary-basic\nX-Team: ranking")
    with Server(lambda body, attempt: refused(422, message="Basic canary-basic")) as server:
        error = ask(server.base_url)[0]
    headers = server.requests[0].headers
    assert headers["X-Team"] == "ranking"
    assert headers.getall("Authorization") == ["Basic canary-basic"]
    assert str(error).endswith("422: Basic ***.")


@pytest.mark.parametrize(
    "url",
    [
        "http://user:canary-pass@127.0.0.1:8000/v1",
        "user:canary-pass@127.0.0.1:8000/v1",
        "http://127.0.0.1:8000/v1?key=canary-pass",
        "ftp://canary-pass/v1",
        "http://canary-pass:99999/v1",
        "http://[canary-pass]/v1",
        "http://1.2.3.999/v1",
        f"http://{'canary' * 12}/v1",
        "http://canary/v1/chat/completions",
    ],
)
def test_unusable_urls_are_not_repeated(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with pytest.raises(UsageError) as caught:
        OpenAI("m", BackendOptions(base_url=url))
    assert "--base-url" in caught.value.message
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(UsageError) as caught_too:
        OpenAI("m", BackendOptions())
    assert "OPENAI_BASE_URL" in caught_too.value.message
    for error in (caught.value, caught_too.value):
        assert "canary" not in "".join(traceback.format_exception(error, limit=0)) + error.hint


@pytest.mark.parametrize(
    ("asked", "named", "same"),
    [
        ("gpt-4o-mini", "gpt-4o-mini-2024-07-18", True),
        ("gpt-4", "gpt-4-0613", True),
        ("model-x-latest", "model-x-20250514", True),
        ("org/Llama-3", "llama-3", True),
        ("llama3", "llama3:latest", True),
        ("gemini-2.5-flash", "models/gemini-2.5-flash-preview-05-20", True),
        ("x/y:free", "x/y", True),
        ("m", "/models/m.gguf", True),
        ("gpt-4o", "gpt-4o-mini", False),
        ("gpt-4o", "gpt-4o-mini-2024-07-18", False),
        ("llama-3", "llama-3.1-8b", False),
        ("llama3:8b", "llama3:70b", False),
        ("m", "", False),
    ],
)
def test_a_model_by_another_of_its_names(asked: str, named: str, same: bool) -> None:
    assert is_alias(asked, named) is same


def test_servers_by_url() -> None:
    assert server_of("HTTP://h/v1", "") == "h:80"
    assert server_of("http://[::1]:8000/v1", "") == "[::1]:8000"
    assert server_of("http://h", "") == "h:80"
    assert server_of("https://API.openai.com/v1", "") == "api.openai.com"


def test_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_for("http://h/v1") is None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:3128")
    monkeypatch.setenv("no_proxy", "localhost")
    assert proxy_for("http://h/v1") == "http://127.0.0.1:3128"
    assert proxy_for("https://h/v1") is None
    assert proxy_for("http://localhost/v1") is None
    monkeypatch.setenv("no_proxy", "localhost, 10.0.0.0/8,fd00::/8")
    assert proxy_for("http://10.1.2.3:8000/v1") is proxy_for("http://[fd00::1]/v1") is None
    assert proxy_for("http://11.1.2.3/v1") == proxy_for("http://h/v1") == "http://127.0.0.1:3128"
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:3129")
    assert proxy_for("https://h/v1") == "http://127.0.0.1:3129"
    monkeypatch.setenv("http_proxy", "http://user:canary@[::1]:3128")
    assert proxy_for("http://h/v1") == "http://user:canary@[::1]:3128"
    for unusable in (
        "socks5://user:canary-pass@127.0.0.1:1080",
        "http://[canary",
        "http://user:canary@h:99999",
        "http://user:canary@",
        f"http://user:canary@{64 * 'h'}.org",
    ):
        monkeypatch.setenv("http_proxy", unusable)
        with pytest.raises(UsageError) as caught:
            proxy_for("http://h/v1")
        assert "canary" not in str(caught.value)


def test_a_proxy_of_all_schemes_that_is_not_http_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    warn.cache_clear()
    monkeypatch.setenv("ALL_PROXY", "socks5://user:canary@127.0.0.1:1080")
    assert proxy_for("http://h/v1") is proxy_for("https://h/v1") is None
    assert capsys.readouterr().err == "Warning: all_proxy names no HTTP proxy, and is not used.\n"


def test_a_proxy_that_is_not_there_or_opens_no_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception aiohttp raises here holds the request's headers."""
    with Server() as server:
        monkeypatch.setenv("https_proxy", f"http://{server.host}")
        monkeypatch.setenv("http_proxy", f"http://{server.host}")
        error = ask("https://elsewhere.invalid/v1")[0]
    assert isinstance(error, Transient)
    assert error.cause.startswith("the proxy answers 4")
    assert error.__context__ is None
    error = ask("http://elsewhere.invalid/v1")[0]
    assert isinstance(error, Transient)
    assert error.cause == "connection refused by the proxy"
