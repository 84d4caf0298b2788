"""The listwise audit over real HTTP: faults, kills, Ctrl-C, secrets. Every answer is paid for once."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import kept, llmfair, only_run, process, ran
from tests.cli.kills import LISTWISE, OWN, asked, command, journalled, outage
from tests.folders import balanced, write_folder
from tests.servers import Reply, Server, completion, faulty, rank

pytestmark = pytest.mark.whole


def at(server: Server) -> tuple[str, ...]:
    return (*server.flags, "--server-name", "test", "--no-cache")


def test_a_faulty_server_costs_no_probe_and_hides_no_answer() -> None:
    with Server(faulty(rank, rate_malformed=0.05, rate_429=0.03, rate_500=0.02, rate_reset=0.01)) as server:
        asked = ("listwise", "-n", "4", *at(server), "--json", "--max-invalid", "1")
        found = ran(*asked)
        results = found.json
        assert results["status"] == "complete"
        assert all(
            condition["asked"] == condition["ranked"] == 12 for condition in results["chains"].values()
        )
        manifest = kept("manifest")
        assert manifest["answered"] == 432 and manifest["retries"] > 10
        assert len(server.requests) == manifest["calls"] == 432 + manifest["retries"]
        damaged = sum(
            condition["classes"].get(name, 0)
            for condition in results["answers"].values()
            for name in condition["classes"]
            if name != "ok"
        )
        assert 0.01 * 432 < damaged < 0.09 * 432  # four standard errors
        assert manifest["models_reported"] == ["any-2026-01-01"]
        assert llmfair(*asked).out == found.out
        assert len(server.requests) == manifest["calls"], "a finished run asks nothing"


@pytest.mark.parametrize("seconds", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_an_outage_costs_no_answer(seconds: float, tmp_path: Path) -> None:
    """Longer than attempts alone last with a server that answers after 20 ms."""
    outage(tmp_path / "outage", seconds)


def test_one_refused_request_ends_its_chain_only() -> None:
    def respond(body: dict[str, Any], attempt: int) -> Reply:
        text = body["messages"][1]["content"]
        return (
            Reply(status=400, body={"error": {"message": "no"}}) if "Music" in text else rank(body, attempt)
        )

    with Server(respond) as server:
        found = llmfair(
            "listwise", "--queries", "physics,music,film", "--orders", "1", *at(server), "-j", "2", "--json"
        )
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


@pytest.mark.parametrize(
    ("status", "field", "flag", "hint"),
    [
        (400, "messages[0].role", ("--system", "fold"), "; --system fold puts"),
        (422, "seed", ("--extra", "seed=null"), "--extra seed=null leaves it out"),
        (400, "temperature", ("--extra", "temperature=null"), "--extra temperature=null leaves it out"),
        (400, "max_tokens", ("--extra", "max_tokens=null"), "--extra max_tokens=null leaves it out"),
    ],
)
def test_the_hint_of_a_refusal_that_all_meet_is_said_and_works(
    status: int, field: str, flag: tuple[str, str], hint: str
) -> None:
    def respond(body: dict[str, Any], attempt: int) -> Reply:
        sent = {*body, *(["messages[0].role"] if body["messages"][0]["role"] == "system" else [])}
        if field in sent or (field == "max_tokens" and "max_completion_tokens" in sent):
            wrong = next(name for name in (field, "max_completion_tokens") if name in sent)
            error = {"message": f"Unsupported parameter: '{wrong}'", "param": wrong}
            return Reply(status=status, body={"error": error})
        return rank(body, attempt)

    with Server(respond) as server:
        refused = llmfair(*once(server))
        assert refused.code in (2, 3) and hint in refused.err and "Unsupported parameter" in refused.err
        assert llmfair(*once(server, *flag)).code == 0


def test_a_blocked_prompt_is_a_refused_answer_and_a_spent_day_ends_the_run_at_once() -> None:
    def respond(body: dict[str, Any], attempt: int) -> Reply:
        if "Music" not in body["messages"][1]["content"]:
            return rank(body, attempt)
        error = {"message": "Your input was flagged", "code": 403, "metadata": {"reasons": ["x"]}}
        return Reply(status=403, body={"error": error})

    with Server(respond) as server:
        found = ran(*once(server, "--json", "--max-invalid", "1")).json
    assert found["answers"]["neutral"]["classes"]["refused"] == 3
    spent = Reply(status=429, body={"error": {"message": "Limit reached: 50 requests per day"}})
    with Server(lambda body, attempt: spent) as server:
        ended = llmfair(*once(server, "--fresh"))
        assert ended.code == 1 and "50 requests per day" in ended.err and len(server.requests) <= 3


def test_another_model_and_cut_prompts_are_told() -> None:
    def respond(body: dict[str, Any], attempt: int) -> Reply:
        reply = rank(body, attempt)
        document = completion(replace(reply, usage={"prompt_tokens": 512}), "m")
        return Reply(body=document | {"model": "another"})

    with Server(respond) as server:
        found = ran(*once(server, "--strategy", "tournament:group=12,best=5"))
    assert "Warning: any was asked, and the server names the model of its answers another" in found.err
    assert "characters have 512 tokens each, by the server's count" in found.err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_an_interrupt_keeps_what_was_answered_and_says_how_to_go_on(
    tmp_path: Path, number: int, code: int
) -> None:
    """Also: a second process on the folder is told who holds it, and what was spent is in the run's cost."""
    write_folder(tmp_path / "lists", balanced(10, 20, 20))
    log, run = tmp_path / "requests.jsonl", tmp_path / "run"
    with OWN.running(log, "--latency-ms", "100") as port:
        # imports what the second command needs, which must not come when the first has ended
        ran(*command(LISTWISE, port, run), "--dry-run")
        running = process(*command(LISTWISE, port, run), "--price-in", "1", "--price-out", "1")
        while len(asked(log)) < 30:
            time.sleep(0.02)
        second = llmfair(*command(LISTWISE, port, run))
        running.send_signal(number)
        out, err = running.communicate(timeout=60)
        assert second.code == 1 and f"process {running.pid}" in second.err
        assert (running.returncode, out) == (code, "")
        assert "of 190 answers. The same command continues:" in err
        assert "\x1b" not in err and "Traceback" not in err
        assert set(asked(log)) == journalled(run, OWN), "what was asked was paid for, and kept"
        manifest = kept("manifest", run)
        assert manifest["status"] == "incomplete"
        sent = len(asked(log))
        assert manifest["cost"] == manifest["invocations"][0]["cost"] > 0
        assert manifest["invocations"][0]["calls"] == sent
        assert f"this command: {sent} calls, cost " in err and "; the run in all: " in err
        ran(*command(LISTWISE, port, run))
        assert len(asked(log)) == 190


def test_the_end_of_a_command_says_what_it_and_the_run_have_cost() -> None:
    """Answers of 15 tokens at a price of one a million; also after an interrupt, and without any call."""
    with Server(rank) as server:
        asked = (
            *"listwise -n 1 --orders 1 --conditions neutral --no-repeat".split(),
            *at(server),
        )
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
