"""Fetching LaMP over real HTTP on loopback: asked for, continued, read as a whole, and never done twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from llmfair.datasets import download
from llmfair.datasets import lamp as datasets_lamp
from llmfair.datasets.answers import load_answers
from llmfair.datasets.base import cache_folder
from tests import lamp
from tests.cli.command import llmfair, refusal, refuses, well
from tests.datasets.trec_sources import FileServer

FETCH = ("datasets", "fetch", "lamp/4", "--yes")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server that has tasks 2 and 4 where LaMP has them."""
    monkeypatch.setattr(download, "PAUSES", (0.0,) * 5)
    files = {
        f"{folder}/{name}": json.dumps(content).encode()
        for number, folder in ((4, "LaMP_4/dev"), (2, "LaMP_2/new/dev"))
        for name, content in (
            ("dev_questions.json", lamp.inputs(number)),
            ("dev_outputs.json", lamp.outputs(number)),
        )
    }
    with ExitStack() as stack:
        server = stack.enter_context(FileServer(files).running())
        monkeypatch.setattr(datasets_lamp, "PUBLISHED", server.url(""))
        yield server


def test_a_task_is_fetched_once_and_then_a_dataset(server: FileServer) -> None:
    found = well(llmfair(*FETCH, "--json"))
    assert "CC BY-NC-SA 4.0" in found.err and "dev_questions.json and dev_outputs.json" in found.err
    assert (found.json["queries"], found.json["items"], found.json["already_fetched"]) == (3, 36, False)
    assert [one["bytes"] for one in found.json["sources"]] == [len(body) for body in server.files.values()][
        :2
    ]
    requests = len(server.requests)
    again = well(llmfair(*FETCH))
    assert "fetched before" in again.out and "licence" not in again.err and len(server.requests) == requests
    assert len(load_answers("lamp/4").queries) == 3
    listed = {
        row["dataset"]: row["fetched"] for row in llmfair("datasets", "list", "--json").json["datasets"]
    }
    assert listed["lamp/4"] and listed["lamp/2"] is False
    well(llmfair("datasets", "fetch", "lamp/2", "--yes"))
    assert load_answers("lamp/2").golds("001") == (lamp.outputs(2)["golds"][0]["output"],)


def test_a_broken_connection_continues_where_it_broke(server: FileServer) -> None:
    server.cuts += [100, 200]
    well(llmfair(*FETCH))
    name = "LaMP_4/dev/dev_questions.json"
    assert [request.start for request in server.requests if request.name == name] == [0, 100, 300]
    assert (cache_folder() / "datasets/lamp/4/dev_questions.json").read_bytes() == server.files[name]


def test_the_licence_is_asked_for(server: FileServer) -> None:
    refuses(
        "without a terminal nobody can be asked whether to agree to a licence", "datasets", "fetch", "lamp/4"
    )
    assert not server.requests


def test_what_cannot_be_fetched_says_where_it_is_had(server: FileServer) -> None:
    refuses("Avocado collection (LDC2015T03)", "datasets", "fetch", "lamp/6", "--yes")
    refuses("for trec-fair collections", *FETCH, "--stream")
    refuses("can be fetched: ", "datasets", "fetch", "lamp/8")
    missing = llmfair("datasets", "fetch", "lamp/1", "--yes")
    assert "the server answers 404" in missing.err and "--data DIR" in missing.err and missing.code == 1


def test_what_is_no_lamp_is_not_kept(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files = {**server.files, "LaMP_4/dev/dev_outputs.json": b"<html>"}
    refusal(llmfair(*FETCH), "what came is no LaMP", code=1)
    assert not list(Path(cache_folder() / "datasets/lamp/4").iterdir())
