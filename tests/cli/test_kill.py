"""Long commands stopped at random moments: no answered chat is asked again, and results equal an undisturbed run's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.command import kept, llmfair, only_run
from tests.cli.kills import (
    FAULTS,
    JUDGED,
    LISTWISE,
    MOCKLLM,
    OWN,
    PAIRWISE,
    RAG,
    REFINE,
    SEQUENTIAL,
    STRATEGIES,
    Audited,
    ServerKind,
    asked,
)
from tests.cli.long_commands import COMMANDS, audit
from tests.cli.stops import CLOSED, ENDINGS, HUP, INT, KILL, TERM, Ending, stop_again_and_again
from tests.shared import SHARED

pytestmark = pytest.mark.whole

needs_mockllm = pytest.mark.skipif(not SHARED.is_dir(), reason="the mock server is not beside this checkout")
servers = pytest.mark.parametrize(
    "server", [OWN, pytest.param(MOCKLLM, marks=needs_mockllm)], ids=["own", "mockllm"]
)


every_audit = pytest.mark.parametrize(
    "audited",
    [LISTWISE, PAIRWISE, SEQUENTIAL, RAG, JUDGED, REFINE],
    ids=["listwise", "pairwise", "sequential", "rag", "judged", "refine"],
)


@pytest.mark.parametrize(
    ("audited", "endings"),
    [
        (LISTWISE, [KILL, INT]),
        (PAIRWISE, [CLOSED]),
        (SEQUENTIAL, [KILL]),
        (RAG, [TERM]),
        (JUDGED, [KILL]),
        (REFINE, [HUP]),
    ],
    ids=["listwise", "pairwise", "sequential", "rag", "judged", "refine"],
)
def test_stopped_in_one_way_or_another(audited: Audited, endings: Sequence[Ending], tmp_path: Path) -> None:
    assert len(stop_again_and_again(audit(audited), endings, 1, tmp_path)) == len(endings)


def test_a_strategy_is_killed_twice(tmp_path: Path) -> None:
    assert len(stop_again_and_again(audit(STRATEGIES["setwise:k=5"]), [KILL] * 2, 1, tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_long_command_is_stopped_twice_in_every_way(name: str, tmp_path: Path) -> None:
    answers = stop_again_and_again(COMMANDS[name], ENDINGS * 2, 3, tmp_path)
    print(f"{name}: {len(answers)} stops, with {answers} answers on disk: none asked twice, files equal")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_is_killed_eight_times(strategy: str, tmp_path: Path) -> None:
    answers = stop_again_and_again(audit(STRATEGIES[strategy]), [KILL] * 8, 0, tmp_path)
    print(f"{strategy}: 8 kills, with {sorted(answers)} answers on disk: none asked twice")


@pytest.mark.slow
@pytest.mark.timeout(600)
@servers
@every_audit
def test_twenty_five_kills(audited: Audited, server: ServerKind, tmp_path: Path) -> None:
    answers = stop_again_and_again(audit(audited, server), [KILL] * 25, 0, tmp_path)
    print(f"25 kills, with {sorted(answers)} answers on disk: none asked twice, files equal")


@pytest.mark.slow  # by default, against the tests' own server in test_server.py
@needs_mockllm
def test_the_sample_against_a_faulty_mock_server(tmp_path: Path) -> None:
    """Every bad answer is classified and counted, and the counts are the server's own."""
    log = tmp_path / "requests.jsonl"
    rates = [f"--{name.replace('_', '-')}={rate}" for name, rate in FAULTS.items()]
    with MOCKLLM.running(log, "--latency-ms", "5", "--policy", "shuffle", *rates) as port:
        found = llmfair("listwise", "-m", "openai:any", "--base-url", f"http://127.0.0.1:{port}/v1", "--json")
    assert found.code == 0, found.err
    results = found.json
    assert all(condition["asked"] == condition["ranked"] for condition in results["chains"].values())
    sent = [json.loads(line) for line in log.read_text().splitlines()]
    answers = [row for row in sent if row.get("status") == 200 and "answer" in row]
    assert len(asked(log)) == len({row["body"] for row in answers}) + sum(
        row["status"] != 200 for row in sent
    )
    for condition in results["answers"].values():
        assert sum(condition["classes"].values()) == condition["windows"] == 216
    # A window that an unparseable answer left as it was may be shown again in the next pass: the same chat.
    assert 850 <= len(answers) <= 864
    classes = {
        "duplicate": "duplicate", "missing": "missing", "out_of_range": "out_of_range", "zero_based": "out_of_range",
        "truncated": "truncated", "empty": "empty", "null": "empty", "prose": "no_ids",
    }  # fmt: skip
    damaged = Counter(classes.get(row["malformed"], "ok") for row in answers)
    evidence = llmfair("runs", "show", only_run(), "--answers", "--json").json["rows"]
    assert Counter(row["class"] for row in evidence) == damaged
    counted = sum(
        (Counter(condition["classes"]) for condition in results["answers"].values()), Counter[str]()
    )
    assert (counted - damaged).total() == 864 - len(answers) and not damaged - counted
    statuses = {row["status"] for row in sent}
    assert {200, 429, 500} <= statuses
    assert kept("manifest")["calls"] == len(sent)
