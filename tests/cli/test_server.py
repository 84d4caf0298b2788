"""Audits over real HTTP, of one server or several: faults, interrupts, outages, what is said. Every answer is paid for once."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from aiohttp import web

from llmfair.asking.journal import read_rows
from llmfair.backends.base import BackendOptions
from llmfair.backends.openai import OpenAI
from llmfair.errors import BackendError
from tests.cli.command import kept, llmfair, only_run, process, ran, refuses
from tests.cli.long_commands import LISTWISE, asked, audit, journalled, running
from tests.folders import balanced, write_folder
from tests.servers import MODEL, Reply, Server, completion, faulty, rank

pytestmark = pytest.mark.whole


def at(server: Server) -> tuple[str, ...]:
    return (*server.flags, "--server-name", "test", "--no-cache")


def test_a_faulty_server_costs_no_probe_and_hides_no_answer() -> None:
    with Server(faulty(rank, rate_malformed=0.05, rate_429=0.03, rate_500=0.02, rate_reset=0.01)) as server:
        asked = ("listwise", "-n", "4", *at(server), "--json", "--max-invalid", "1")
        found = ran(*asked)
        results = found.json
        assert results["status"] == "complete"
        assert all(c["asked"] == c["ranked"] == 12 for c in results["chains"].values())
        manifest = kept("manifest")
        assert manifest["answered"] == 432 and manifest["retries"] > 10
        assert len(server.requests) == manifest["calls"] == 432 + manifest["retries"]
        classes = (condition["classes"] for condition in results["answers"].values())
        damaged = sum(count for of in classes for name, count in of.items() if name != "ok")
        assert 0.01 * 432 < damaged < 0.09 * 432  # four standard errors
        assert manifest["models_reported"] == ["any-2026-01-01"]
        assert llmfair(*asked).out == found.out
        assert len(server.requests) == manifest["calls"], "a finished run asks nothing"


def test_one_refused_request_ends_its_chain_only() -> None:
    def respond(body: dict[str, Any], attempt: int) -> Reply:
        text = body["messages"][1]["content"]
        return (
            Reply(status=400, body={"error": {"message": "no"}}) if "Music" in text else rank(body, attempt)
        )

    with Server(respond) as server:
        three = ("--queries", "physics,music,film", "--orders", "1")
        found = llmfair("listwise", *three, *at(server), "-j", "2", "--json")
    assert found.code == 3
    assert {name: condition["ranked"] for name, condition in found.json["chains"].items()} == dict.fromkeys(
        ("neutral", "male", "female", "repeat"), 2
    )
    failures = (only_run() / "failures.csv").read_text()
    assert failures.count("music/") == 4 and "Rejected" in failures
    assert "music/female/o0/r0 first" in found.json["error"]["message"]


def once(server: Server, *flags: str) -> tuple[str, ...]:
    short = ("--orders", "1", "--passes", "1", "--conditions", "neutral", "--no-repeat")
    return ("listwise", "--queries", "physics,music,film", *short, *at(server), *flags)


def test_another_model_and_cut_prompts_are_told() -> None:
    def respond(body: dict[str, Any], attempt: int) -> Reply:
        reply = rank(body, attempt)
        document = completion(replace(reply, usage={"prompt_tokens": 512}), "m")
        return Reply(body=document | {"model": "another"})

    with Server(respond) as server:
        found = ran(*once(server, "--strategy", "tournament:group=12,best=5"))
    assert "Warning: any was asked, and the server names the model of its answers another" in found.err
    assert "characters have 512 tokens each, by the server's count" in found.err


def test_an_interrupt_keeps_what_was_answered_and_says_how_to_go_on(tmp_path: Path) -> None:
    """Also: a second process on the folder is told who holds it, and what was spent is in the run's cost."""
    log, run = tmp_path / "requests.jsonl", tmp_path / "run"
    with running(log, "--latency-ms", "100") as port:
        command = (*audit(LISTWISE, str(run)).words, "--base-url", f"http://127.0.0.1:{port}/v1")
        # imports what the second command needs, which must not come when the first has ended
        ran(*command, "--dry-run")
        started = process(*command, "--price-in", "1", "--price-out", "1")
        while len(asked(log)) < 30:
            time.sleep(0.02)
        second = llmfair(*command)
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=60)
        assert second.code == 1 and f"process {started.pid}" in second.err
        assert (started.returncode, out) == (130, "")
        assert "of 190 answers. The same command continues:" in err
        assert "\x1b" not in err and "Traceback" not in err
        assert set(asked(log)) == journalled(run), "what was asked was paid for, and kept"
        manifest = kept("manifest", run)
        assert manifest["status"] == "incomplete"
        sent = len(asked(log))
        assert manifest["cost"] == manifest["invocations"][0]["cost"] > 0
        assert manifest["invocations"][0]["calls"] == sent
        assert f"this command: {sent} calls, cost " in err and "; the run in all: " in err
        ran(*command)
        assert len(asked(log)) == 190


def test_the_end_of_a_command_says_what_it_and_the_run_have_cost() -> None:
    """Answers of 15 tokens at a price of one a million; also after an interrupt, and without any call."""
    with Server(rank) as server:
        asked = (*"listwise -n 1 --orders 1 --conditions neutral --no-repeat".split(), *at(server))
        priced = (*asked, "--passes", "2", "-o", "run", "--price-in", "1e4", "--price-out", "1e4")
        stopped, rest, again = llmfair(*priced, "--max-calls", "2"), llmfair(*priced), llmfair(*priced)
        assert "cost" not in llmfair(*asked, "--passes", "1").err
    assert "this command: 2 calls, cost 0.3000; the run in all: 2 calls, cost 0.3000\n" in stopped.err
    assert "this command: 4 calls, cost 0.6000; the run in all: 6 calls, cost 0.9000\n" in rest.err
    assert "this command: 0 calls, cost 0.0000; the run in all: 6 calls, cost 0.9000\n" in again.err
    assert again.out == rest.out
    assert "  the run in all: 6 calls, cost 0.9000\n" in llmfair("runs", "show", "run").out
    shown = llmfair("runs", "show", "run", "--json").json
    assert (shown["calls"], shown["cost"], shown["warnings"]) == (6, pytest.approx(0.9), [])


AUDIT = (*LISTWISE.command, "-d", "lists", "-j", "8", "--max-invalid", "1", "--no-cache", "--no-report")


def fleet(*urls: str, model: str = f"openai:{MODEL}") -> tuple[str, ...]:
    return ("-m", model, *(word for url in urls for word in ("--base-url", url)), "--server-name", "test")


@contextmanager
def servers(count: int = 3) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Server(rank)) for _ in range(count)]


def same_files(*runs: str | Path) -> None:
    for name in LISTWISE.same:
        assert len({Path(run, name).read_bytes() for run in runs}) == 1, name


@pytest.fixture(autouse=True)
def lists() -> None:
    write_folder(Path("lists"), balanced(10, 20, 20))


@pytest.mark.whole
def test_three_servers_find_what_one_finds_and_the_manifest_says_who_answered_what() -> None:
    with servers() as three:
        urls = [server.base_url for server in three]
        ran(*AUDIT, *fleet(*urls), "-o", "a/run")
        counts = {server.host: len(server.requests) for server in three}
        ran(*AUDIT, *fleet(urls[0]), "-o", "b/run")
        same_files("a/run", "b/run")
        assert kept("manifest", "a/run")["servers"] == counts
        assert sum(counts.values()) == 190 and all(counts.values())
        assert "servers" not in kept("manifest", "b/run")
        rows = list(read_rows(Path("a/run/journal.jsonl")))
        homes = [three[crc32(row["about"]["query_id"].encode()) % 3].host for row in rows]
        assert [row["server"] for row in rows] == homes

        # half of it goes on with two of them
        journal, manifest = Path("a/run/journal.jsonl"), Path("a/run/manifest.json")
        journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:100]))
        manifest.write_text(json.dumps(kept("manifest", "a/run") | {"journal_answers": 0}))
        ran(*AUDIT, *fleet(*urls[1:]), "-o", "a/run")
        same_files("a/run", "b/run")
        assert sum(kept("manifest", "a/run")["servers"].values()) == 190
        assert kept("manifest", "a/run")["calls"] == 91


@pytest.mark.whole
def test_flags_that_several_servers_refuse() -> None:
    one, two = "http://127.0.0.1:9/v1", "http://127.0.0.1:9/two/v1"
    pairs = ("pairwise", "-d", "lists", *fleet(one, two))
    refuses(f"openai:{MODEL} cannot do --batch.", *pairs, "--batch")
    refused = refuses(
        "--base-url is not the address of a server.", *AUDIT, *fleet(one, "http://me:hunter2@127.0.0.1:9/v1")
    )
    assert "hunter2" not in refused.err
    assert "connection refused by 127.0.0.1:9" in llmfair(*pairs).err


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("http://h:9/v1", "http://h:9/v1/"),
        ("http://localhost:9/v1", "http://LOCALHOST:9/v1"),
        ("http://h/v1", "http://h:80/v1"),
        ("https://api.openai.com/v1", "https://API.openai.com:443/v1"),
        ("http://h/a/v1", "http://h/a/./%761"),
    ],
)
def test_a_server_is_named_once_however_it_is_written(one: str, same: str) -> None:
    refuses("--base-url names a server twice.", *AUDIT, *fleet(one, "http://other:9/v1", same), "--dry-run")


def test_a_look_takes_the_key_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    with servers(2) as (named, other):
        moved = {"Location": f"{other.base_url}/models"}
        named.models = lambda: web.json_response({}, status=302, headers=moved)  # type: ignore[method-assign]

        async def look() -> None:
            backend = OpenAI(MODEL, BackendOptions(base_url=named.base_url))
            await backend.open()
            try:
                await backend.look()
            finally:
                await backend.close()

        with pytest.raises(BackendError, match="answers 302"):
            asyncio.run(look())
        assert named.looked == ["Bearer sk-canary"] and other.looked == []
