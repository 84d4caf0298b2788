"""What runs are called where they are named: by a label, and by the server that answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import kept, llmfair, only_run, ran
from tests.servers import Server, rank

LISTS = (
    "listwise", "-q", "-n", "5", "--conditions", "neutral", "--no-repeat", "--orders", "1", "--passes", "1",
    "--max-invalid", "1", "--on-bad-answer", "repair", "--no-cache",
)  # fmt: skip


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(rank) as running:
        yield running


@pytest.mark.whole
def test_two_servers_are_told_apart(server: Server) -> None:
    for name in ("gpu-3", "gpu-4"):
        ran(*LISTS, *server.flags, "--server-name", name)
    one, two = sorted(Path("runs").iterdir())
    assert ("any-gpu-3-" in one.name) and ("any-gpu-4-" in two.name)
    listed = llmfair("runs", "list").out
    assert "openai:any at gpu-3" in listed and "openai:any at gpu-4" in listed
    assert "openai:any at gpu-3" in llmfair("runs", "show", one).out
    compared = llmfair("compare", one, two, "--json").json
    assert [run["name"] for run in compared["runs"]] == ["openai:any at gpu-3", "openai:any at gpu-4"]
    shown = ran("report", one, two, "--format", "md").out
    assert "openai:any at gpu-3" in shown and "openai:any at gpu-4" in shown
    results = json.loads((one / "results.json").read_text())
    assert results["model"] == "openai:any" and "server" not in results  # no other answers, no other results


def test_a_server_without_a_name_is_called_by_its_address(server: Server) -> None:
    found = llmfair(*LISTS, *server.flags, "--json")
    assert found.json["server"] == server.host == kept("manifest")["server"]
    assert server.host.replace(":", "-") in only_run().name


def test_a_label_is_what_the_run_is_called() -> None:
    ran(*LISTS, "--label", "nightly")
    run = only_run()
    manifest = kept("manifest")
    assert "nightly: fake:biased, a simulated model" in llmfair("runs", "show", run).out
    assert "nightly: fake:biased" in llmfair("runs", "list").out
    ran(*LISTS, "--label", "weekly")  # the same run, called otherwise
    assert only_run() == run and kept("manifest")["settings"] == manifest["settings"]
    assert "weekly" in llmfair("runs", "list").out and "nightly" not in llmfair("runs", "list").out
    ran(*LISTS, "-m", "fake:random", "--label", "chance", "-o", "chance")
    compared = llmfair("compare", run, "chance", "--json").json
    assert [one["name"] for one in compared["runs"]] == ["weekly", "chance"]
    shown = ran("report", run, "chance", "--format", "md").out
    assert "| weekly |" in shown and "| chance |" in shown


@pytest.mark.whole
@pytest.mark.parametrize("command", ["compare", "report"])
def test_two_runs_of_one_label_are_told_apart(command: str) -> None:
    ran(*LISTS, "--label", "nightly")
    ran(*LISTS, "-m", "fake:random", "--label", "nightly")
    one, two = sorted(Path("runs").iterdir())
    shown = ran(command, one, two, "--format", "md").out
    assert "nightly: fake:biased" in shown and "nightly: fake:random" in shown
    ran(*LISTS, "--temperature", "0.5", "--label", "nightly", "-o", "again")
    shown = ran(command, one, "again", "--format", "md").out
    assert ("temperature 0.5" if command == "report" else "again") in shown
