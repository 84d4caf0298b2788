"""What is secret by its name, and how it is kept out of what is written and said."""

from __future__ import annotations

import json

import pytest

from llmfair import secrets
from llmfair.backends.base import BackendOptions
from llmfair.backends.openai import OpenAI

SECRET = (
    "API_KEY_2", "api_key", "OPENAI_API_KEY", "apikey", "X-Api-Key", "ocp-apim-subscription-key", "accessToken", "hf_token", "token",
    "client_secret", "secret_id", "db_password", "Authorization", "proxy-authorization", "cookie", "sig",
    "X-Amz-Signature", "AWS_SECRET_ACCESS_KEY", "auth",
)  # fmt: skip
OPEN = (
    "max_tokens_2", "max_tokens", "max_completion_tokens", "stop_token_ids", "tokenizer", "tokenizer_mode", "eos_token", "pad_token", "pad_token_id",
    "top_k", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "keywords", "seed", "enable_thinking", "author", "kv_cache_dtype", "",
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
    assert (
        secrets.without(['pass"wörd-1'])(r"pass\"wörd-1 pass\"w\u00f6rd-1 pass%22w%C3%B6rd-1")
        == "*** *** ***"
    )
    assert secrets.without(["sk-012345", "sk-01234567"])("sk-01234567") == "***"


@pytest.mark.parametrize(
    ("escaped", "plain"),
    [
        (r'"a\/b \\/ \u0026 \u003C \u00E9"', r'"a/b \\/ & < é"'),
        (r'"\u0022 \u005c \\u0026 \n \" \\\/"', r'"\" \\ \\u0026 \n \" \\/"'),
        (r'"\u000a \u001b \u2028 \ud83d\ude00 \ud800"', r'"\u000a \u001b \u2028 \ud83d\ude00 \ud800"'),
    ],
)
def test_escapes_that_json_does_not_need(escaped: str, plain: str) -> None:
    assert secrets.unescaped(escaped) == plain
    assert json.loads(escaped) == json.loads(plain)


@pytest.mark.parametrize("spelled", [r"sk-0\/1\u0026\u003C2-abc", r"sk-0/1\u0026<2-\u0061bc"])
def test_a_key_is_found_however_a_server_escapes_it(monkeypatch: pytest.MonkeyPatch, spelled: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0/1&<2-abc")
    server = OpenAI("m", BackendOptions())
    server.ready()
    assert server.without_secrets(b'{"content": "%b"}' % spelled.encode()) == b'{"content": "***"}'
