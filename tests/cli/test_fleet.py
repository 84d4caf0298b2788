"""Several servers of one model over real HTTP: the same results, whoever answers, and nothing asked twice."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zlib import crc32

import pytest
from aiohttp import web

from llmfair.asking.journal import read_rows
from llmfair.backends.base import BackendOptions
from llmfair.backends.openai import OpenAI
from llmfair.backends.server import Fleet
from llmfair.errors import BackendError
from tests.cli.command import kept, llmfair, ran, refuses
from tests.cli.kills import LISTWISE
from tests.endpoints import by_length, endpoint
from tests.folders import balanced, write_folder
from tests.servers import MODEL, Server, faulty, rank

AUDIT = (*LISTWISE.command, "-d", "lists", "-j", "8", "--max-invalid", "1", "--no-cache", "--no-report")


def at(*urls: str, model: str = f"openai:{MODEL}") -> tuple[str, ...]:
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
        ran(*AUDIT, *at(*urls), "-o", "a/run")
        counts = {server.host: len(server.requests) for server in three}
        ran(*AUDIT, *at(urls[0]), "-o", "b/run")
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
        ran(*AUDIT, *at(*urls[1:]), "-o", "a/run")
        same_files("a/run", "b/run")
        assert sum(kept("manifest", "a/run")["servers"].values()) == 190
        assert kept("manifest", "a/run")["calls"] == 91


def test_the_first_server_names_the_run() -> None:
    with servers(2) as two:
        urls = [server.base_url for server in two]
        flags = ("-n", "1", "-m", f"openai:{MODEL}", "--base-url", urls[0])
        ran(*AUDIT, *flags, "-q")
        ran(*AUDIT, *flags, "--base-url", urls[1], "-q")
    assert len(list(Path("runs").iterdir())) == 1 and not two[1].requests


@pytest.mark.whole
def test_flags_that_several_servers_refuse() -> None:
    one, two = "http://127.0.0.1:9/v1", "http://127.0.0.1:9/two/v1"
    pairs = ("pairwise", "-d", "lists", *at(one, two))
    refuses(f"openai:{MODEL} cannot do --batch.", *pairs, "--batch")
    refused = refuses(
        "--base-url is not the address of a server.", *AUDIT, *at(one, "http://me:hunter2@127.0.0.1:9/v1")
    )
    assert "hunter2" not in refused.err
    assert "connection refused by 127.0.0.1:9" in llmfair(*pairs).err


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("http://h:9/v1", "http://h:9/v1/"),
        ("http://h:9/v1", "http://h:9//v1"),
        ("http://localhost:9/v1", "http://LOCALHOST:9/v1"),
        ("http://h/v1", "http://h:80/v1"),
        ("https://h/v1", "https://h:443/v1"),
        ("https://api.openai.com/v1", "https://API.openai.com:443/v1"),
        ("http://h:9", "http://h:9/"),
        ("http://h/a/v1", "http://h/a/./%761"),
    ],
)
def test_a_server_is_named_once_however_it_is_written(one: str, same: str) -> None:
    refuses("--base-url names a server twice.", *AUDIT, *at(one, "http://other:9/v1", same), "--dry-run")


def test_addresses_that_differ_are_several_servers() -> None:
    rests = ("/v1", "/v2", "/V1", "")
    urls = [f"{scheme}://h{rest}" for scheme in ("http", "https") for rest in rests]
    urls += ["http://h2/v1", "http://127.0.0.1:80/v1", "http://[::1]/v1", "http://h:9/v1"]
    made = Fleet([OpenAI(MODEL, BackendOptions(base_url=url)) for url in urls])
    assert len(made.members) == len(urls)


@pytest.mark.whole
def test_a_configuration_file_names_one_server_or_several() -> None:
    model = f"model = 'openai:{MODEL}'\n"
    with servers(2) as two:
        one, both = two[0].base_url, [server.base_url for server in two]
        Path("llmfair.toml").write_text(f"base_url = '{one}'\n{model}")
        ran(*AUDIT, "-o", "run", "-q")
        Path("llmfair.toml").write_text(f"base_url = {both}\n{model}")
        ran(*AUDIT, "-o", "run", "-q")
        assert len(two[0].requests) == 190 and not two[1].requests, "it is the same run"


@pytest.mark.whole
def test_lists_are_scored_by_several_servers() -> None:
    asked = ("listwise", "-d", "lists", "--orders", "1", "--no-repeat", "--no-cache", "--no-report")
    with ExitStack() as stack:
        three = [stack.enter_context(endpoint(by_length)) for _ in range(3)]
        ran(*asked, *at(*(one.url for one in three), model="rerank:m"), "-o", "run")
    assert kept("manifest", "run")["servers"] == {
        one.url.split("/")[2]: len(one.asked) for one in three if one.asked
    }


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


@pytest.mark.whole
def test_a_server_that_goes_away_and_comes_back_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfair.asking.lanes.LOOK_SECONDS", 0.05)
    slow = faulty(rank, latency=0.03)
    with Server(slow) as one, Server(slow) as two, ExitStack() as stack:
        three = Server(slow)
        three.__enter__()
        again = Server(slow, port=three.port)

        def away_and_back() -> None:
            while len(three.requests) < 20:
                time.sleep(0.005)
            three.__exit__()
            time.sleep(0.1)
            stack.enter_context(again)

        thread = threading.Thread(target=away_and_back)
        thread.start()
        found = ran(*AUDIT, *at(one.base_url, two.base_url, three.base_url), "-o", "a/run")
        thread.join()
        ran(*AUDIT, *at(one.base_url), "-o", "b/run")
    same_files("a/run", "b/run")
    assert f"{three.host} is down (conn" in found.err and f"{three.host} is back." in found.err
    before, there = {seen.raw for seen in three.requests}, {seen.raw for seen in again.requests}
    assert there and len(before & there) <= 8
    assert kept("manifest", "a/run")["calls"] <= 190 + 8 + 3


def test_a_server_without_the_model_is_named_before_anything_is_asked() -> None:
    with servers() as three, Server(rank) as other:
        other.model = "another"
        found = refuses(
            f"{other.host} does not list the model {MODEL}: it lists another.",
            *AUDIT, *at(*(server.base_url for server in (*three, other))), code=1,
        )  # fmt: skip
        assert "under this name" in found.err and not any(server.requests for server in three)
