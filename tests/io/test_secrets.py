"""What is secret by its name, and how it is kept out of what is written and said."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from llmfair.backends.base import BackendOptions
from llmfair.backends.openai import OpenAI
from llmfair.io import secrets
from llmfair.io.net import Reply
from llmfair.nouns import Chat, Message, Request, Sampling, Text

SECRET = (
    "API_KEY_2", "api_key", "OPENAI_API_KEY", "apikey", "X-Api-Key", "ocp-apim-subscription-key", "accessToken", "hf_token", "token",
    "client_secret", "secret_id", "db_password", "Authorization", "proxy-authorization", "cookie", "sig",
    "X-Amz-Signature", "AWS_SECRET_ACCESS_KEY", "auth", "pwd", "MYSQL_PWD", "pass", "smtp_pass", "key_passphrase", "jwt",
)  # fmt: skip
OPEN = (
    "max_tokens_2", "max_tokens", "max_completion_tokens", "stop_token_ids", "tokenizer", "tokenizer_mode", "eos_token", "pad_token", "pad_token_id",
    "top_k", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "keywords", "seed", "enable_thinking", "author", "kv_cache_dtype", "passes",
    "bypass", "max_token", "num_keys", "",
)  # fmt: skip


def test_names() -> None:
    assert [name for name in SECRET if not secrets.is_secret(name)] == []
    assert [name for name in OPEN if secrets.is_secret(name)] == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("top_k=5", "top_k=5"),
        ('stop=["a=b", "token"]', 'stop=["a=b", "token"]'),
        ("api_key=sk-1", "api_key=***"),
        ('api_key="sk-1"', 'api_key="***"'),
        (
            'headers={"x":"y","auth":{"token":["a","b"]}}',
            'headers={"x": "y", "auth": {"token": ["***", "***"]}}',
        ),
        ("use_auth_token=true", "use_auth_token=true"),
        ("auth=null", "auth=null"),
        ("api_key=918273645546372819", 'api_key="***"'),
        ('api_key={"value":"sk-1"}', 'api_key={"value": "***"}'),
        (
            'schema={"properties":{"key":{"type":"string"}}}',
            'schema={"properties":{"key":{"type":"string"}}}',
        ),
        ('x={"properties":{"key":"sk-1"}}', 'x={"properties": {"key": "***"}}'),
        ('x={"properties":{"a":{"key":"sk-1"}}}', 'x={"properties": {"a": {"key": "***"}}}'),
        ('key={"properties":{"a":{"b":"sk-1"}}}', 'key={"properties": {"a": {"b": "***"}}}'),
        (
            'credentials={"user":"u","of":[{"a":"sk-1"},0.5,true]}',
            'credentials={"user": "***", "of": [{"a": "***"}, "***", true]}',
        ),
        ('callback="http://u:p@h/x?token=T"', 'callback="http://***@h/x?token=***"'),
        (r'a={"url":"http:\/\/u:p@h\/#jwt=T"}', 'a={"url": "http://***@h/#jwt=***"}'),
        ('stop=["http://a","b@c"]', 'stop=["http://a","b@c"]'),
        ('{"a": "b=c", "api_key": "sk-1"}', '{"a": "b=c", "api_key": "***"}'),
        ("--extra=api_key=sk-1", "--extra=api_key=***"),
        ("--api-key=sk-1", "--api-key=***"),
        ("https://user:p@ss@host:1/a?b=c&sig=x#d", "https://***@host:1/a?b=c&sig=***#d"),
        ("ExpRatio(control=order)", "ExpRatio(control=order)"),
        ("user@host", "user@host"),
        (3, 3),
        (("api_key=x", "a=b"), ("api_key=***", "a=b")),
    ],
)
def test_what_is_written(given: object, expected: object) -> None:
    assert secrets.written(given) == expected
    assert secrets.written(expected) == expected


def test_only_what_no_answer_holds_by_chance_is_looked_for_in_answers() -> None:
    stand_ins = ("EMPTY", "none", "anything", "not-needed", "12345678", "0.25")
    told = " ".join(stand_ins)
    assert secrets.without(stand_ins)(told) == told
    assert secrets.without(["sk-0123456"])("a sk-0123456 b") == "a *** b"
    assert secrets.without(["sk-012345", "sk-01234567"])("sk-01234567") == "***"


@pytest.mark.parametrize(
    ("given", "of"),
    [
        ("api_key=918273645546372819", "918273645546372819"),
        ('api_key={"value":{"of":"{}"}}', "{}"),
        ('credentials={"user":["{}"]}', "{}"),
        ('--extra=headers={"Authorization":"Bearer {}"}', "{}"),
        ('callback="http://u:{}@h/x"', "{}"),
        ('callback="http://h/x?a=b&token={}"', "{}"),
        ('a={"url":["see http://u:x@g/ and http://u:{}@h/"]}', "{}"),
        ("--topics=ftp://{}@h/x", "{}"),
        ('{"a": "b=c", "jwt": "{}"}', "{}"),
    ],
)
def test_what_is_given_is_looked_for(monkeypatch: pytest.MonkeyPatch, given: str, of: str) -> None:
    monkeypatch.setattr(secrets, "noted", set())
    given, canary = (text.replace("{}", "c4nary-0123") for text in (given, of))
    secrets.note([given])
    assert secrets.said(f"it got {canary}, no {canary!r}") == "it got ***, no '***'"
    assert secrets.said("Bearer b4rer") == "Bearer b4rer"


KEY = 'sk-Te"st+/Zü\\q7xW9=='


@pytest.mark.parametrize("escaping", [str, lambda text: text.replace("/", r"\/").replace("e", r"\u0065")])
@pytest.mark.parametrize(
    "message",
    [
        {"content": f"a {KEY}"},
        {"content": "a", "reasoning": f"authorization: Bearer {KEY}"},
        {"content": ["a ", *({"type": "text", "text": KEY[at : at + 3]} for at in range(0, len(KEY), 3))]},
    ],
)
def test_a_key_is_in_no_text_of_an_answer(
    monkeypatch: pytest.MonkeyPatch, message: dict[str, Any], escaping: Callable[[str], str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = OpenAI("m", BackendOptions(base_url="http://127.0.0.1:1/v1"))
    server.ready()
    document = {"choices": [{"message": message}], "model": KEY, "system_fingerprint": f"f {KEY}"}
    request = Request(Chat((Message("user", "a"),), Text()), Sampling(), "key", "probe")
    found = server.read(Reply(200, {}, escaping(json.dumps(document)).encode()), request)
    assert (found.model, found.fingerprint) == ("***", "f ***")
    assert found.text in ("a ***", "a") and found.reasoning in (None, "authorization: Bearer ***")
    clean = {"choices": [{"message": {"content": "a"}}]}
    assert server.read(Reply(200, {}, escaping(json.dumps(clean)).encode()), request).text == "a"
