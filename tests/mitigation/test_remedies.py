"""What remedies make of simulated runs of a known preference: the order that is known beforehand, and no leakage."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import llmfair
from benchmarks.mitigation import KNOWN, REMEDIES, StandIn, folder, simulated, summary
from llmfair.io.trec import read_run
from llmfair.registry import _found, register
from tests import models
from tests.cli.command import llmfair as command
from tests.cli.command import process, ran
from tests.folders import balanced, write_folder
from tests.servers import Reply, Server, rank


@pytest.fixture
def stand_in() -> Iterator[None]:
    """Registers what the benchmark has in the place of an adapter."""
    register("remedy", "stand-in")(StandIn)
    yield
    del _found["remedy"]["stand-in"]


def orders(path: Path) -> Mapping[str, tuple[str, ...]]:
    return {query_id: one.doc_ids for query_id, one in read_run(path).rankings.items()}


@pytest.mark.whole
def test_the_order_of_remedies_is_the_known_one(tmp_path: Path, stand_in: None) -> None:
    data = folder(tmp_path / "data")
    found = summary(simulated(seed, data, tmp_path / "runs") for seed in range(3))
    assert [*found] == ["none", *REMEDIES]
    assert [said for said, holds in KNOWN.items() if not holds(found)] == []


def test_no_query_is_ordered_by_an_offset_that_saw_it(tmp_path: Path) -> None:
    data = folder(tmp_path / "data", queries=10, each=6)
    once: dict[str, Any] = {"conditions": "neutral", "repeat": False, "passes": 1, "report": False}
    llmfair.audit_listwise(data, model="fake:biased,malformed=0", output=tmp_path / "run", **once)
    before = llmfair.mitigate(tmp_path / "run", remedy=["offset"], report=False)
    kept = orders(tmp_path / "run" / "mitigation" / "rankings" / "offset.run")
    # judgements of one query that turn its preference around move other queries' offsets, never its own
    told = (tmp_path / "run" / "qrels.txt").read_text().splitlines()
    women = [line for line in told if line.split()[0] == "q3" and "f" in line.split()[2]]
    placed = kept["q3"]
    last = {*placed[len(placed) // 2 :]}
    turned = [
        f"q3 0 {line.split()[2]} {int(line.split()[2] in last)}" if line in women else line for line in told
    ]
    assert turned != told
    (tmp_path / "run" / "qrels.txt").write_text("".join(f"{line}\n" for line in turned))
    after = llmfair.mitigate(tmp_path / "run", remedy=["offset"], report=False)
    now = orders(tmp_path / "run" / "mitigation" / "rankings" / "offset.run")
    assert now["q3"] == kept["q3"]
    said = [result.results["remedies"][1]["remarks"] for result in (before, after)]
    assert said[0] != said[1], "others have other offsets"


@pytest.mark.whole
def test_a_server_that_went_away_ends_with_its_error_and_the_rest_is_written(tmp_path: Path) -> None:
    with Server(rank) as server:
        asked = ("--base-url", server.base_url, *"--conditions neutral --no-repeat -n 6 --orders 2".split())
        ran("listwise", "-q", "--no-report", "-m", "openai:any", *asked, "-o", "run")
    only = ("--remedy", "consensus", "--remedy", "fair-prompt", "--retries", "0", "--max-wait", "1s")
    found = command("mitigate", "run", *only, "--no-report")
    assert found.code in (1, 3) and "fair-prompt" in found.err and "Traceback" not in found.err
    document = json.loads((Path("run") / "mitigation" / "results.json").read_text())
    assert document["status"] == "incomplete"
    assert [one["available"] for one in document["remedies"]] == [True, True, False]


@pytest.mark.whole
def test_a_killed_command_goes_on_and_asks_nothing_twice(tmp_path: Path) -> None:
    def slowly(body: dict[str, Any], attempt: int) -> Reply:
        return replace(rank(body, attempt), delay=0.05)

    prices = ("--price-in", "1000", "--price-out", "1000")
    with Server(slowly) as server:
        asked = (*server.flags, "--conditions", "neutral", "--no-repeat", "-n", "6", "--orders", "2")
        ran("listwise", "-q", "--no-report", *asked, "--passes", "1", "-o", "runs/base")
        before = len(server.requests)
        words = ("mitigate", "runs/base", "--remedy", "fair-prompt", "--no-report", "-j", "2", *prices)
        running = process(*words)
        while len(server.requests) < before + 6:
            assert running.poll() is None
            time.sleep(0.01)
        running.kill()
        running.communicate()
        time.sleep(0.3)  # what was in flight is answered
        met, kept = len(server.requests) - before, answers()
        assert 0 < kept < 36
        found = ran(*words, "--json").json
        # 6 queries × 3 windows × 2 orders, beside what was under way when it was killed
        assert len(server.requests) - before <= 36 + met - kept
        total = len(server.requests)
        assert ran(*words, "--json").json["remedies"][1]["figures"] == found["remedies"][1]["figures"]
        assert len(server.requests) == total
    (one,) = found["remedies"][1:]
    assert one["calls"] == 36 and one["cost"] > 0 and found["status"] == "complete"
    assert "cost" in ran("mitigate", "runs/base", "--remedy", "fair-prompt", "--no-report").out


def answers() -> int:
    """Those of the run beside `base`, as far as they are on disk."""
    journals = [path for path in Path("runs").glob("*/journal.jsonl") if path.parent.name != "base"]
    return sum('"key"' in line for path in journals for line in path.read_text().splitlines())


@pytest.mark.whole
def test_an_adapter_is_asked_the_same_lists(tmp_path: Path) -> None:
    models.needs_local()
    base = models.causal(tmp_path / "models" / "base")
    fair = models.adapter(base, base.parent / "fair")
    lists = write_folder(tmp_path / "lists", balanced(6, 4, 4))
    windows = ("--window", "4", "--step", "2", "--passes", "1", "--orders", "2", "--conditions", "neutral")
    flags = (*windows, "--no-repeat", "--max-invalid", "1", "--constrain", "-q", "--no-report")
    ran("listwise", "-d", lists, "-m", f"hf:{base}", *flags, "-o", "runs/base")
    lacking = ran("mitigate", "runs/base", "--remedy", "lora", "--no-report")
    assert "llmfair finetune-lora" in lacking.out and "then --adapter FOLDER" in lacking.out
    found = ran("mitigate", "runs/base", "--remedy", "lora", "--adapter", fair, "--no-report", "--json").json
    (one,) = found["remedies"][1:]
    assert one["available"], one["error"]
    assert one["figures"]["nDCG@20"]["n"] == 6 and one["calls"] > 0
    ran("runs", "check", one["run"])
    # an adapter that stands beside the run is found by itself, once it says that it is of this model
    shutil.copytree(fair, "runs/fair")
    assert "none stands beside the run" in ran("mitigate", "runs/base", "--remedy", "lora", "--no-report").out


def test_halves_of_two_orders_are_the_orders(tmp_path: Path) -> None:
    flags = ("-n", "6", "--orders", "2", "--passes", "1", "--conditions", "neutral", "--no-repeat")
    ran("listwise", "-q", "--no-report", *flags, "-o", "run")
    found = ran("mitigate", "run", "--remedy", "consensus", "--no-report", "--json").json
    alike = [one["figures"]["Consistency"]["value"] for one in found["remedies"]]
    assert alike[0] == pytest.approx(alike[1])
    change = found["remedies"][1]["changes"]["Consistency"]
    assert change["change"] == pytest.approx(0) and change["n"] == 6
