"""What every strategy asks and costs, beside rank_llm where it does the same: `python -m benchmarks.against_rank_llm`.

    python -m benchmarks.against_rank_llm [--lists 8] [--items 100] [--latency 0.05] [--rank-llm PYTHON] [STRATEGY …]

The same lists of texts of 60 words, windows of 20 in one pass, a server on loopback with a fixed delay, the client a
process of its own. `in a row`: questions that wait for each other, over all lists. `path`: the least time that the work
takes with 64 requests in flight. `times`: wall time over it. CPU: user and system, of the client alone.

`--rank-llm`: the interpreter of an environment with rank_llm. It asks a server in windows only, which are timed; of
the rest its own loops are run on answers made here, so that calls are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import types
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.resources import files
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.dispatch import WORDS, cpu_seconds, server, warm

WINDOW, STEP, LENGTH = 20, 10, 60
STRATEGIES = ("windows", "first", "pointwise", "setwise", "pairwise-sort", "tournament")
INSTALL = """\
rank_llm's rows, from an environment of its own:
  python3 -m venv ENV
  ENV/bin/pip install torch==2.13.0 'transformers<4.53' openai tiktoken tqdm ftfy dacite pyyaml python-dotenv
  ENV/bin/pip install --no-deps rank_llm
  python -m benchmarks.against_rank_llm --rank-llm ENV/bin/python"""


@dataclass(frozen=True)
class Work:
    """So many lists of items, ordered by a strategy; `latency` in seconds."""

    strategy: str
    lists: int
    items: int
    latency: float
    workers: int = 64

    def texts(self) -> Iterator[tuple[str, list[str]]]:
        """Every query with its texts."""
        chance = Random(0)
        for number in range(self.lists):
            yield (
                f"Query {number}",
                [f"Item {place} " + " ".join(chance.choices(WORDS, k=LENGTH)) for place in range(self.items)],
            )


def ours(work: Work, port: int) -> dict[str, Any]:
    """What an audit asks to order the lists once, and how long that takes."""
    from llmfair.asking.dispatch import Program, dispatch
    from llmfair.asking.journal import Journal
    from llmfair.asking.limits import Limits, Progress
    from llmfair.audits.listwise.settings import ListwiseSettings
    from llmfair.backends.base import BackendOptions
    from llmfair.backends.openai import OpenAI
    from llmfair.nouns import Attribute, Candidates, Document, Probe, Query, Sampling, Side
    from llmfair.prompts import load_prompt
    from llmfair.rankers.listwise import ListwiseRanker
    from llmfair.rankers.strategies import Ranked, strategy_of

    strategy = strategy_of(work.strategy, {**vars(ListwiseSettings()), "passes": 1})
    labels = strategy.question.margins != "none"
    words = {Side.PROTECTED: "female", Side.UNPROTECTED: "male"}
    ranker = ListwiseRanker(
        load_prompt(strategy.question.prompt),
        Attribute("gender", ("female",), ("male",), words),
        strategy,
        input="text",
        words=LENGTH + 2,
    )

    def program(query: str, texts: Sequence[str]) -> Program:
        documents = tuple(Document(f"{query} {place}", "", text) for place, text in enumerate(texts))
        probe = Probe(query, Candidates(Query(query, query), documents, {}), "neutral", "neutral")
        return Program(query, lambda: ranker.steps(probe))

    backend = OpenAI("loopback", BackendOptions(base_url=f"http://127.0.0.1:{port}/v1"))
    asyncio.run(warm(backend))
    programs, progress, rounds = [program(*one) for one in work.texts()], Progress(), 0
    sampling = Sampling(margins=True, constrain=True, max_tokens=1) if labels else Sampling()
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.jsonl", "benchmark", backend.identity)
        before, started = cpu_seconds(), time.perf_counter()
        for _, ranked in dispatch(programs, backend, journal, sampling, Limits(work.workers), progress):
            assert isinstance(ranked, Ranked), ranked
            asked = {
                one.shown: one.round for one in reversed(ranked.windows)
            }  # what comes again is known already
            rounds = max(rounds, len({*asked.values()}))
        found = {"wall": time.perf_counter() - started, "cpu": cpu_seconds() - before}
        journal.close()
    return {**found, "calls": progress.calls, "row": rounds, "least": rounds}


def theirs(work: Work, port: int) -> dict[str, Any]:
    """What rank_llm asks to order the same lists; timed where it asks a server, else counted."""
    if (
        importlib.util.find_spec("vllm") is None
    ):  # imported by all of its listwise rankers, used by those of models
        for name in ("vllm", "vllm.outputs"):
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].RequestOutput = object  # type: ignore[attr-defined]
        sys.modules["vllm"].outputs = sys.modules["vllm.outputs"]  # type: ignore[attr-defined]
    data = importlib.import_module("rank_llm.data")
    requests = [
        data.Request(
            data.Query(query, query),
            [data.Candidate(str(place), 0.0, {"text": text}) for place, text in enumerate(texts)],
        )
        for query, texts in work.texts()
    ]
    found = THEIRS[work.strategy](work, port, requests)
    return {**found, "version": version("rank_llm")}


def _windows(work: Work, port: int, requests: Sequence[Any]) -> dict[str, Any]:
    module = importlib.import_module("rank_llm.rerank.listwise.rank_gpt")
    ranker = module.SafeOpenai(
        "loopback", 16_384, prompt_template_path=module.TEMPLATES / "rank_gpt_template.yaml", keys="none",
        window_size=WINDOW, stride=STEP, base_url=f"http://127.0.0.1:{port}/v1/",
    )  # fmt: skip
    data = importlib.import_module("rank_llm.data")
    once = data.Request(requests[0].query, requests[0].candidates[:2])
    ranker.rerank_batch([once], rank_end=2)  # what is loaded once is no part of a request
    before, started = cpu_seconds(), time.perf_counter()
    ranker.rerank_batch(requests, rank_end=work.items)
    calls = work.lists * (ceil((work.items - WINDOW) / STEP) + 1)
    return {
        "wall": time.perf_counter() - started, "cpu": cpu_seconds() - before, "calls": calls, "row": calls,
        "least": calls // work.lists, "warming": 1, "why": "one list after the other, one request in flight",
    }  # fmt: skip


def _first(work: Work, port: int, requests: Sequence[Any]) -> dict[str, Any]:
    """Its RankListwiseOSLLM with `use_logits` and `use_alpha`, which is FIRST, on letters made here."""
    module: Any = importlib.import_module("rank_llm.rerank.listwise.rank_listwise_os_llm")
    batches: list[int] = []
    letters = {
        k: types.SimpleNamespace(decoded_token=chr(ord("A") + k), logprob=-float(k)) for k in range(WINDOW)
    }

    def generate(prompts: Sequence[str], **_: Any) -> list[Any]:
        batches.append(len(prompts))
        answer = types.SimpleNamespace(outputs=[types.SimpleNamespace(logprobs=[letters, letters])])
        return [answer] * len(prompts)

    handler = types.SimpleNamespace(generate_output=generate, get_tokenizer=lambda: None)
    module.VllmHandler = lambda **_: handler
    ranker = module.RankListwiseOSLLM(
        "model", window_size=WINDOW, stride=STEP, use_logits=True, use_alpha=True, device="cpu"
    )
    ranker.create_prompt = lambda *_: ("", 0)
    ranker.rerank_batch(requests, rank_end=work.items)
    return _counted(batches, "a vLLM engine in its own process, no server; 2 tokens a call")


def _pointwise(work: Work, port: int, requests: Sequence[Any]) -> dict[str, Any]:
    base = importlib.import_module("rank_llm.rerank.pointwise.pointwise_rankllm").PointwiseRankLLM
    return _looped(
        base, "monot5_template.yaml", requests, "MonoT5, a T5 in its own process in batches of 32, no server"
    )


def _pairwise(work: Work, port: int, requests: Sequence[Any]) -> dict[str, Any]:
    base = importlib.import_module("rank_llm.rerank.pairwise.pairwise_rankllm").PairwiseRankLLM
    return _looped(
        base, "duot5_template.yaml", requests,
        "DuoT5, a T5 in its own process in batches of 32, no server; all pairs in one order",
    )  # fmt: skip


def _looped(base: Any, template: str, requests: Sequence[Any], why: str) -> dict[str, Any]:
    """Its loop over a list of a kind of ranker, on scores made here."""
    batches: list[int] = []

    def run(self: Any, prompts: Sequence[str]) -> tuple[list[str], list[int], list[float]]:
        batches.append(len(prompts))
        return ["true"] * len(prompts), [1] * len(prompts), [0.5] * len(prompts)

    methods = {"run_llm_batched": run, "create_prompt": lambda self, **_: ("", 0)}
    made: Any = type("Counted", (base,), methods)
    made.__abstractmethods__ = frozenset()
    templates = files("rank_llm.rerank.prompt_templates")
    made("model", 512, prompt_template_path=templates / template).rerank_batch(requests)
    return _counted(batches, why)


def _counted(batches: Sequence[int], why: str) -> dict[str, Any]:
    return {"wall": None, "cpu": None, "calls": sum(batches), "row": len(batches), "why": why}


THEIRS: Mapping[str, Callable[[Work, int, Sequence[Any]], dict[str, Any]]] = {
    "windows": _windows, "first": _first, "pointwise": _pointwise, "pairwise-sort": _pairwise,
}  # fmt: skip
ROLES = {"ours": ours, "theirs": theirs}


def run(role: str, work: Work, python: str = sys.executable) -> dict[str, Any]:
    """What a role measured of itself in a process of its own; the server must have got as many requests."""
    with server({"latency": work.latency}) as port:
        command = [python, "-m", "benchmarks.against_rank_llm", role, json.dumps(asdict(work)), str(port)]
        environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as reply:
            counted = json.load(reply)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["wall"] is not None and counted["requests"] != found["calls"] + found.get("warming", 0):
        raise SystemExit(f"asked {counted['requests']} times: {found}")
    return found


def line(name: str, who: str, work: Work, found: Mapping[str, Any]) -> str:
    told = f"{name:16} {who:9} {found['calls']:7,} {found['row']:9,}"
    if found["wall"] is None:
        return f"{told} {'':7} {'':7} {'':6} {'':13}  {found['why']}"
    path = max(found["least"], ceil(found["calls"] / work.workers)) * work.latency
    return (
        f"{told} {path:7.2f} {found['wall']:7.2f} {found['wall'] / path:6.2f} "
        f"{1000 * found['cpu'] / found['calls']:13.3f}  {found.get('why', '')}"
    ).rstrip()


def table(works: Sequence[Work], python: str | None) -> Iterator[str]:
    release = ""
    yield (
        f"{'strategy':16} {'asked by':9} {'calls':>7} {'in a row':>9} {'path s':>7} {'wall s':>7} {'times':>6} "
        f"{'CPU ms a call':>13}"
    )
    for work in works:
        yield line(work.strategy, "llmfair", work, run("ours", work))
        if python and work.strategy in THEIRS:
            found = run("theirs", work, python)
            release = found["version"]
            yield line("", "rank_llm", work, found)
        elif python:
            yield f"{'':16} rank_llm   has none"
    yield f"rank_llm {release}" if python else INSTALL


def main() -> None:
    if sys.argv[1:] and sys.argv[1] in ROLES:
        with contextlib.redirect_stdout(sys.stderr):
            found = ROLES[sys.argv[1]](Work(**json.loads(sys.argv[2])), int(sys.argv[3]))
        print(json.dumps(found))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("strategies", nargs="*", default=STRATEGIES)
    parser.add_argument("--lists", type=int, default=8)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--rank-llm", metavar="PYTHON")
    given = parser.parse_args()
    works = [Work(one, given.lists, given.items, given.latency) for one in given.strategies]
    for text in table(works, given.rank_llm):
        print(text, flush=True)


if __name__ == "__main__":
    main()
