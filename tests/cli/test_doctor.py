"""`llmfair doctor`: what this machine can run, and one model looked at closely."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import Any

import pytest

from llmfair import registry
from tests import models
from tests.cli.command import llmfair, ran
from tests.servers import Reply, Server


@pytest.mark.parametrize(
    ("missing", "backends", "install"),
    [
        ("torch", ("hf", "cross-encoder", "nli"), "pip install 'llmfair[local]' (torch"),
        ("sentence_transformers", ("cross-encoder",), "pip install 'llmfair[local]'"),
        ("pandas", ("pyterrier",), "pip install 'llmfair[pandas]' python-terrier (pandas"),
        ("vllm", ("vllm",), ""),
    ],
)
def test_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: str, backends: tuple[str, ...], install: str
) -> None:
    registry.names("backend")  # loaded before, or modules would keep what is patched here
    own = util.find_spec

    def without(package: str, *rest: Any) -> Any:
        return None if package == missing else own(package, *rest)

    monkeypatch.setattr(util, "find_spec", without)
    monkeypatch.delenv("RERANK_BASE_URL", raising=False)
    found = ran("doctor", "--json").json["backends"]
    for name in backends:
        assert found[name]["status"] == "no" and install in found[name]["note"], found[name]
    assert (found["fake"]["status"], found["rerank"]["status"]) == ("ready", "no")
    monkeypatch.setenv("RERANK_BASE_URL", "http://user:secret@127.0.0.1:9/v1")
    assert ran("doctor", "--json").json["backends"]["rerank"] == {
        "status": "ready",
        "note": "the endpoint of RERANK_BASE_URL",
    }


def test_a_model_is_looked_at_and_asked() -> None:
    looked = llmfair("doctor", "-m", "fake:biased", "--json").json["model"]
    assert looked["is"].startswith("fake biased") and "margins" in looked["can"] and "answers" not in looked
    asked = llmfair("doctor", "-m", "fake:biased", "--ask", "--json").json["model"]
    assert asked["answers"] in ("'[1] > [2]'", "'[2] > [1]'") and asked["ends by"] == "stop"


def test_a_model_that_does_not_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert llmfair("doctor", "-m", "nothing:x").code == 2
    with Server(lambda body, attempt: Reply(status=503, body={})) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        found = llmfair("doctor", "-m", "openai:any", "--ask")
        assert found.code == 1 and "no answer" in found.err and "503" in found.err
        assert len(server.requests) == 1


def test_a_server_can_be_named() -> None:
    with Server(lambda body, attempt: Reply("[1] > [2]")) as server:
        at = ("--base-url", server.base_url, "--json")
        asked = ran("doctor", "-m", "openai:any", *at, "--ask")
        assert asked.json["model"]["answers"] == "'[1] > [2]'" and len(server.requests) == 1
        assert "constrain" in llmfair("doctor", "-m", "openai:any", *at).json["model"]["can"]
        row = llmfair("doctor", *at).json["backends"]["openai"]
    assert row == {
        "status": "ready",
        "note": "OPENAI_API_KEY is not set; the server of --base-url may need none",
    }


@pytest.mark.whole
def test_a_local_model_says_where_it_runs_and_why(tmp_path: Path) -> None:
    models.needs_local()
    folder = models.causal(tmp_path / "model", dtype="bfloat16")
    seen = ran("doctor", "-m", f"hf:{folder}", "--ask", "--json").json["model"]
    assert seen["is"].endswith("bfloat16") and seen["system"] == "folded"
    assert seen["place"].endswith("bfloat16: as the checkpoint was saved")
