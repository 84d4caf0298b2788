"""`kill -9` at random moments: no answered chat is asked again, and results equal an undisturbed run's."""

from __future__ import annotations

import json
from collections import Counter
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
    kill_and_resume,
)
from tests.shared import SHARED

pytestmark = pytest.mark.whole

needs_mockllm = pytest.mark.skipif(
    not (SHARED / "mockllm").is_dir(), reason="the mock server is not beside this checkout"
)
servers = pytest.mark.parametrize(
    "server", [OWN, pytest.param(MOCKLLM, marks=needs_mockllm)], ids=["own", "mockllm"]
)


every_audit = pytest.mark.parametrize(
    "audited",
    [LISTWISE, PAIRWISE, SEQUENTIAL, RAG, JUDGED, REFINE],
    ids=["listwise", "pairwise", "sequential", "rag", "judged", "refine"],
)


@pytest.mark.parametrize(
    ("audited", "kills"),
    [(LISTWISE, 2), (PAIRWISE, 1), (SEQUENTIAL, 1), (RAG, 2), (JUDGED, 2), (REFINE, 2)],
    ids=["listwise", "pairwise", "sequential", "rag", "judged", "refine"],
)
def test_a_kill_or_two(audited: Audited, kills: int, tmp_path: Path) -> None:
    assert len(kill_and_resume(tmp_path, OWN, kills=kills, seed=1, audited=audited)) == kills


def test_a_strategy_is_killed_twice(tmp_path: Path) -> None:
    audited = STRATEGIES["setwise:k=5"]
    assert len(kill_and_resume(tmp_path, OWN, kills=2, seed=1, audited=audited)) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_is_killed_eight_times(strategy: str, tmp_path: Path) -> None:
    audited, killed, runs = STRATEGIES[strategy], list[int](), 0
    while len(killed) < 8:
        killed += kill_and_resume(tmp_path / str(runs), OWN, 8 - len(killed), seed=runs, audited=audited)
        runs += 1
    print(f"{strategy}: 8 kills over {runs} runs, with {sorted(killed)} answers on disk: none asked twice")


@pytest.mark.slow
@pytest.mark.timeout(600)
@servers
@every_audit
def test_twenty_five_kills(audited: Audited, server: ServerKind, tmp_path: Path) -> None:
    killed: list[int] = []
    runs = 0
    while len(killed) < 25:
        killed += kill_and_resume(
            tmp_path / str(runs), server, kills=25 - len(killed), seed=runs, audited=audited
        )
        runs += 1
    print(
        f"25 kills over {runs} runs of {audited.answers or 'few'} chats, with {sorted(killed)} answers on disk: none asked twice, files equal"
    )


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
