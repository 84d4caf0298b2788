"""One command against a server that misbehaves, the same again when it does no more, and what must hold of both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llmfair.asking.journal import read_rows
from tests.batch_server import BatchServer
from tests.cli.command import llmfair
from tests.fuzz.running import SECONDS, Case, Ended, in_a_child, wrong_with
from tests.fuzz.server.front import Front, Mode

PAIRWISE = ("pairwise", "-n", "2", "--pairs", "5", "--conditions", "relevant")
ROADS: Mapping[str, tuple[str, ...]] = {
    "listwise": (
        "listwise", "-n", "2", "--window", "6", "--step", "3", "--passes", "1", "--orders", "1", "--no-repeat",
        "--conditions", "neutral",
    ),
    "pairwise": PAIRWISE,
    **dict.fromkeys(("upload", "create", "look", "content", "list"), (*PAIRWISE, "--batch")),
}  # fmt: skip
"""What is asked: one by one, or by `--batch`, where a stage of it is damaged. 26 answers, or 24."""
SHORT = ("--timeout", "1", "--max-wait", "2s", "--retries", "2", "--outage", "1s")
"""The patience with a server that misbehaves; with one that is well it is the usual one, on a busy machine too."""
SAME = (
    "results.json", "metrics.csv", "per_query.csv", "verdicts.csv", "failures.csv", "texts.jsonl", "candidates.jsonl",
    "rankings/neutral.run",
)  # fmt: skip
ENDS = {"well": {0}, "kept": {0, 3}, "fails": {1, 3}, "refused": {2}, "either": {0, 1, 2, 3}}
FAILING = ("fails", "refused")


def damaged(road: str) -> str:
    """The stage of a server's work that a mode damages."""
    return road if road in ("upload", "create", "look", "content", "list") else "chat"


def command(road: str, front: Front, folder: Path, patience: tuple[str, ...] = ()) -> tuple[str, ...]:
    at = ("-m", "openai:any", "--base-url", front.base_url, "--server-name", "test", "--no-cache")
    return (*ROADS[road], *at, "-j", "4", "--max-invalid", "1", *patience, "-o", str(folder))


def undisturbed(road: str, folder: Path) -> dict[str, bytes]:
    """What a run's files hold whose server is well. Runs in this process, which children then need import nothing."""
    with BatchServer() as server, Front(server) as front:
        found = llmfair(*command(road, front, folder))
        assert found.code == 0, found.err
    return held(folder)


def held(folder: Path) -> dict[str, bytes]:
    """The files that must be equal, but for the port in the command that a next step names."""
    paths = {name: folder / name for name in SAME}
    return {n: re.sub(rb"127\.0\.0\.1:\d+", b"", p.read_bytes()) for n, p in paths.items() if p.exists()}


def wrong(road: str, mode: Mode, folder: Path, calm: Mapping[str, bytes], total: int) -> Iterator[str]:
    """What does not hold of a mode, in words."""
    stage, run, once = damaged(road), folder / "run", road in ("listwise", "pairwise")
    with BatchServer() as server, Front(server) as front:
        front.turn(mode, frozenset({stage}))
        ended = in_a_child(Case(command(road, front, run, SHORT), mode.name), folder, SECONDS)
        yield from _ended(ended, mode, always=once and all(map(mode.when, range(1, 9))))
        known = {row["key"] for row in _rows(run)}
        if len(front.whole) > len(known):
            yield f"{len(front.whole)} answers came and {len(known)} are kept"
        submitted = server.submitted.copy()
        front.turn(None)
        again = in_a_child(Case(command(road, front, run), mode.name, frozenset({0})), folder, SECONDS)
        yield from (f"again: {what}: {_last(again)}" for what in _faults(again, {0}))
        if once and len(front.chats) != total - len(known):
            yield f"{len(known)} of {total} are known, and {len(front.chats)} are asked again"
        if twice := [key for key in known if server.submitted[key] > submitted[key]]:
            yield f"{len(twice)} answered questions are submitted again"
    check = in_a_child(Case(("runs", "check", str(run)), mode.name), folder, SECONDS)
    yield from (f"check: {what}: {_last(check)}" for what in _faults(check, {0}))
    if mode.ends in ("well", *FAILING) and (other := {n for n in calm if held(run).get(n) != calm[n]}):
        yield f"not as of a server that is well: {', '.join(sorted(other))}"


def _ended(ended: Ended, mode: Mode, always: bool) -> Iterator[str]:
    """What a run owes whose server misbehaved, at every request or not."""
    yield from _faults(
        ended,
        ENDS[mode.ends]
        | ({0} if mode.ends == "well" or always else {0, 1, 3})
        - ({0} if always and mode.ends in FAILING else set()),
    )
    told = ended.err.decode("utf-8", "replace")
    if ended.status and mode.says and not re.search(mode.says, told):
        yield f"the cause is not named: {_last(ended)}"
    errors = len(re.findall("^Error: ", told, re.MULTILINE))
    if errors != bool(ended.status):
        yield f"{errors} sentences: {told[-300:]}"


def _faults(ended: Ended, codes: set[int]) -> Iterator[str]:
    for what in wrong_with(Case((), "", frozenset(codes)), ended, ()):
        yield f"{what} after {ended.seconds:.1f} s: {_last(ended)}"


def _last(ended: Ended) -> str:
    told = ended.err.decode("utf-8", "backslashreplace")
    return told[max(told.find("Error: "), 0) :][:400].encode("unicode_escape").decode()


def _rows(run: Path) -> list[dict[str, Any]]:
    path = run / "journal.jsonl"
    return [row for row in read_rows(path) if "key" in row] if path.exists() else []
