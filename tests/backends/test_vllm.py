"""`vllm:` with the real engine on a CPU, over tiny random models; all tests but the last share one engine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmfair.backends import vllm as backend_module
from llmfair.backends.base import BackendOptions, Transient
from llmfair.backends.vllm import VLLM, lora_rank, read_arguments, require_servable, vllm
from llmfair.checkpoints import Adapter
from llmfair.errors import BackendError, MissingExtra, Rejected, UsageError
from llmfair.nouns import Chat, Completion, Finish, Labels, Message, Permutation, Request, Sampling, Text
from tests.cli.command import llmfair, process
from tests.engines import CACHE_BYTES, ENVIRONMENT, needs_vllm, on_loop, shared_engine
from tests.folders import balanced, write_folder

LETTERS, ORDER = Labels(("A", "B")), Permutation(2)


# What vLLM and torch warn of is theirs; the first test of a module waits for the engine.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a base model and adapters over it."""
    import torch

    from tests.models import adapter, causal

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models")
    base = causal(folder / "base", "llama")
    adapter(base, folder / "fair")
    adapter(base, folder / "zero", scale=0.0)
    adapter(base, folder / "dora", use_dora=True)
    return folder


@pytest.fixture(scope="module")
def one_engine(models: Path) -> Iterator[list[Mapping[str, Any]]]:
    """One engine for all backends, with room for adapters."""
    with shared_engine(enable_lora=True, max_lora_rank=8) as asked:
        yield asked


@pytest.fixture
def base(models: Path, one_engine: Any) -> Iterator[VLLM]:
    """The base model, open."""
    backend = vllm(str(models / "base"), BackendOptions())
    on_loop(backend.open())
    yield backend
    on_loop(backend.close())


def user(text: str, expects: Any = LETTERS, draw: int = 0) -> Chat:
    return Chat((Message("user", text),), expects, draw)


def question(number: int, expects: Any = LETTERS) -> Chat:
    return user(f"Which is about rivers? [1] a page {number} [2] {number} rivers", expects)


def request(chat: Chat, key: str = "", **sampling: Any) -> Request:
    name = key or f"{chat.messages[-1].content} {chat.draw}"
    return Request(chat, Sampling(**{"max_tokens": 16, **sampling}), name, "q/0")


def asked(backend: Any, requests: Sequence[Request]) -> list[Completion]:
    """All answers, asked at once."""

    async def together() -> list[Completion]:
        return list(await asyncio.gather(*map(backend.complete, requests)))

    return on_loop(together())


def test_a_missing_vllm_is_said_with_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_module, "find_spec", lambda name: None)
    found = llmfair("pairwise", "-m", "vllm:mistralai/Mistral-7B-Instruct-v0.2")
    assert found.code == 1 and found.out == ""
    assert found.err.startswith("Error: the vllm backend is not installed.\n  pip install 'llmfair[vllm]'")
    with pytest.raises(MissingExtra, match="not installed"):
        vllm("any", BackendOptions())


def test_settings_of_the_engine_are_read_as_json_and_ours_are_not_the_users() -> None:
    assert read_arguments({"tensor_parallel_size": "2", "dtype": "bfloat16", "enforce_eager": "true"}) == {
        "tensor_parallel_size": 2, "dtype": "bfloat16", "enforce_eager": True,
    }  # fmt: skip
    for key in ("model", "enable_lora", "revision"):
        with pytest.raises(UsageError, match=f"--backend-arg {key} is not yours"):
            read_arguments({key: "x"})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"bias": "lora_only"}, "bias"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights=pissa_niter_4"),
        ({"peft_type": "IA3"}, "peft_type=IA3"),
        ({"r": 513}, "rank 513"),
    ],
)
def test_adapters_that_would_be_served_in_part_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        require_servable(Adapter(Path("fair"), {"r": 1, "bias": "none", **settings}, "0" * 64))


def test_the_room_for_an_adapter_is_the_smallest_there_is() -> None:
    def room(**settings: Any) -> int:
        return lora_rank(Adapter(Path("fair"), settings, "0" * 64))

    assert [room(r=rank) for rank in (1, 2, 8, 9, 300)] == [1, 8, 8, 16, 320]
    assert room(r=4, rank_pattern={"q_proj": 40}) == 64


@needs_vllm
def test_the_engine_is_started_so_that_answers_can_be_read(base: VLLM, one_engine: Any, models: Path) -> None:
    arguments = one_engine[-1]
    assert arguments["structured_outputs_config"]["backend"] == "guidance"
    assert arguments["hf_overrides"] == {"head_dtype": "float32"}
    assert arguments["dtype"] == base.dtype == "float32" and arguments["enable_prefix_caching"] is True
    assert (arguments["enforce_eager"], arguments["block_size"]) == (True, 32)
    assert 0 < arguments["kv_cache_memory_bytes"] <= 4 << 30
    assert arguments["max_model_len"] == 4096 == base.facts["max_model_len"]
    assert base.facts["system"] == "separate" and base.facts["versions"]["vllm"].startswith("0.")
    assert os.environ["VLLM_NO_USAGE_STATS"] == "1"
    # Where it runs is no part of which model it is; a dtype is.
    plain, placed, rounded = (
        vllm(str(models / "base"), BackendOptions(backend_args=given)).identity
        for given in ({}, {"tensor_parallel_size": "2"}, {"dtype": "bfloat16"})
    )
    assert plain == placed == base.identity != rounded and "bfloat16" in rounded


@needs_vllm
@pytest.mark.parametrize(("n", "count"), [(4, 64), (20, 64), (50, 16)])
def test_constrained_orders_are_permutations(base: VLLM, n: int, count: int) -> None:
    chats = [user(f"Rank the {n} passages of list {number}.", Permutation(n)) for number in range(count)]
    answers = asked(base, [request(c, constrain=True, temperature=1.0, max_tokens=16 + 8 * n) for c in chats])
    for answer in answers:
        assert answer.finish is Finish.STOP and re.fullmatch(r"\[\d+\]( > \[\d+\])*", answer.text)
        assert sorted(map(int, re.findall(r"\d+", answer.text))) == list(range(1, n + 1))
    assert len({answer.text for answer in answers}) > 5


@needs_vllm
def test_constrained_labels_and_free_text(base: VLLM) -> None:
    labels = asked(base, [request(question(n), constrain=True, temperature=1.0) for n in range(32)])
    assert {answer.text for answer in labels} == {"A", "B"}
    assert {answer.finish for answer in labels} == {Finish.STOP}
    (free,) = asked(base, [request(user("Say something.", Text()), max_tokens=8, temperature=1.0)])
    assert free.finish in (Finish.LENGTH, Finish.STOP, Finish.EMPTY) and free.completion_tokens is not None
    assert free.completion_tokens <= 8
    with pytest.raises(UsageError, match="known shape"):
        asked(base, [request(user("Say something.", Text()), constrain=True)])


@needs_vllm
@pytest.mark.parametrize("expects", [LETTERS, ORDER], ids=["letter", "order"])
@pytest.mark.parametrize("with_adapter", [False, True], ids=["base", "adapter"])
def test_margins_are_those_of_transformers(
    models: Path, one_engine: Any, expects: Any, with_adapter: bool
) -> None:
    from llmfair.backends.hf import hf

    options = BackendOptions(adapter=models / "fair" if with_adapter else None)
    requests = [request(question(number, expects), margins=True) for number in range(32)]
    answers = []
    for make in (vllm, hf):
        backend: Any = make(str(models / "base"), options)
        on_loop(backend.open())
        answers.append(asked(backend, requests))
        on_loop(backend.close())
    labels = ("A", "B") if expects is LETTERS else ("1", "2")
    apart = []
    for ours, theirs in zip(*answers, strict=True):
        assert ours.logprobs and theirs.logprobs and ours.prompt_tokens == theirs.prompt_tokens
        apart.append(max(abs(ours.logprobs[label] - theirs.logprobs[label]) for label in labels))
        first, second = (ours.logprobs[label] for label in labels)
        if ours.text in labels:  # the likeliest token is one of the two, so it is the likelier of them
            assert ours.text == labels[int(second > first)]
    print(f"vllm against hf: margins at most {max(apart):.2g} nats apart")
    assert max(apart) < 0.15


@needs_vllm
def test_the_base_beside_an_adapter_is_asked_in_the_adapters_engine(models: Path, one_engine: Any) -> None:
    beside = vllm(str(models / "base"), BackendOptions(adapter=models / "fair", adapted=False))
    fair = vllm(str(models / "base"), BackendOptions(adapter=models / "fair"))
    alone = vllm(str(models / "base"), BackendOptions())
    assert beside.identity == f"{alone.identity} max_lora_rank=8"
    requests = [request(question(number), margins=True) for number in range(4)]
    answers = []
    for backend in (beside, fair):
        on_loop(backend.open())
        assert one_engine[-1]["enable_lora"] and one_engine[-1]["max_lora_rank"] == 8
        answers.append([one.logprobs for one in asked(backend, requests)])
        on_loop(backend.close())
    assert answers[0] != answers[1]


@needs_vllm
def test_an_adapter_without_effect_is_refused(models: Path, one_engine: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    # As of a multimodal model's text part: vLLM loads it, finds no place for the weights and says nothing.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    settings = (models / "fair" / "adapter_config.json").read_text()
    (elsewhere / "adapter_config.json").write_text(settings)
    weights = load_file(models / "fair" / "adapter_model.safetensors")
    save_file(
        {name.replace("model.layers", "model.tower.layers"): value for name, value in weights.items()},
        elsewhere / "adapter_model.safetensors",
    )
    for folder in (models / "zero", elsewhere):
        backend = vllm(str(models / "base"), BackendOptions(adapter=folder))
        with pytest.raises(BackendError, match="changes nothing"):
            on_loop(backend.open())


@needs_vllm
def test_every_request_draws_for_itself(base: VLLM) -> None:
    chat = user("Say a word.", Text())
    drawn = [request(chat, key=f"key {number}", temperature=1.0) for number in range(16)]
    first, again = asked(base, drawn), asked(base, drawn[::-1])[::-1]
    assert [a.text for a in first] == [a.text for a in again], "the same key, the same draw"
    assert len({a.text for a in first}) > 8, "one seed for all, other draws for each"


@needs_vllm
def test_a_cancelled_request_leaves_the_engine_to_the_others(base: VLLM) -> None:
    long = request(user("Go on.", Text()), max_tokens=3000, extra={"ignore_eos": True})
    short = request(question(1), margins=True)

    async def cancel_then_ask() -> Completion:
        running = asyncio.create_task(base.complete(long))
        await asyncio.sleep(0.5)
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return await base.complete(short)

    assert on_loop(cancel_then_ask()).logprobs
    assert base._engine is not None and base._engine.get_num_unfinished_requests() == 0


def audit(models: Path, folder: Path, *more: str) -> list[str]:
    lists = write_folder(folder / "lists", balanced(3, 8, 8))
    return [
        "pairwise", "-d", str(lists), "-m", f"vllm:{models / 'base'}", "--answers", "margin", "--pairs", "10",
        "--max-invalid", "1", "--backend-arg", f"kv_cache_memory_bytes={CACHE_BYTES}", "-o", str(folder / "run"), *more,
    ]  # fmt: skip


def started(*arguments: str) -> subprocess.Popen[str]:
    return process(*arguments, env={**os.environ, **ENVIRONMENT}, start_new_session=True)


@needs_vllm
def test_a_process_of_its_own_starts_asks_and_ends_in_silence(models: Path, tmp_path: Path) -> None:
    running = started(*audit(models, tmp_path))
    out, err = running.communicate(timeout=280)
    assert running.returncode == 0, err
    assert out.startswith("VERDICT ") and "vllm" not in out.splitlines()[-1].lower().split("/")[0]
    for noise in ("Traceback", "Exception ignored", "TypeError", "leaked", "INFO", "usage"):
        assert noise not in err, err


def asking(models: Path, folder: Path) -> tuple[subprocess.Popen[str], list[str]]:
    """A process that is in the middle of its questions, and its command."""
    command = [*audit(models, folder), "--pairs", "300", "--answers", "text", "-j", "8"]
    running, journal = started(*command), folder / "run" / "journal.jsonl"
    until = time.monotonic() + 240
    while not journal.exists() or journal.read_bytes().count(b"\n") < 40:
        assert running.poll() is None and time.monotonic() < until, running.communicate()
        time.sleep(0.05)
    return running, command


@needs_vllm
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_at_a_terminal_keeps_what_was_asked(models: Path, tmp_path: Path) -> None:
    running, command = asking(models, tmp_path)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the engine's processes, too
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, ""), err
    assert "The same command continues:" in err
    for noise in ("Traceback", "EngineDead", "Exception ignored", "leaked"):
        assert noise not in err, err
    rows = [json.loads(line) for line in (tmp_path / "run" / "journal.jsonl").read_text().splitlines()[1:]]
    assert len(rows) >= 40 and not any("failure" in row for row in rows)
    again = started(*command, "--max-invalid", "1")
    out, err = again.communicate(timeout=280)
    assert again.returncode == 0, err
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["replayed"] >= len(rows)


@needs_vllm
def test_an_answer_that_the_engine_breaks_off_is_asked_once_more(
    base: VLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> Any:
        return SimpleNamespace(outputs=[SimpleNamespace(finish_reason="error", text="", token_ids=[])])

    monkeypatch.setattr(base, "_generate", broken)
    for expected in (Transient, Rejected):
        with pytest.raises(expected):
            asked(base, [request(question(0))])
