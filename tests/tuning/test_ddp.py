"""Several processes train what one trains: the same adapter from the same prompts a step, on every rank."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmfair.tuning.lora import TrainingLog, train
from tests import models
from tests.models import one_thread as one_thread
from tests.ports import free_port
from tests.tuning import tiny

pytestmark = pytest.mark.whole

models.needs_local()
ROOT = Path(__file__).resolve().parents[2]
TORCHRUN = (sys.executable, *"-m torch.distributed.run --nproc-per-node 2 --master-addr 127.0.0.1".split())

RANK = """
import sys, torch
from dataclasses import replace
from pathlib import Path
torch.set_num_threads(1)
from llmfair.errors import LlmfairError
from llmfair.tuning import lora
from llmfair.tuning.head import save_adapter
from llmfair.tuning.lora import train
from tests.tuning import tiny
lora.join()
folder, out, prompts = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
for layout in sys.argv[4:]:
    model = tiny.loaded(folder)
    recipe = replace(tiny.RECIPE, layout=layout, prompts_per_step=prompts, max_prompts=2 * prompts)
    try:
        train(model, tiny.examples(model), tiny.passing, recipe, out / layout)
    except LlmfairError as error:
        print(error.message, error.hint, file=sys.stderr)
        sys.exit(error.exit_code)
    model.model.train()
    save_adapter(model.model, out / f"{layout}-{lora.rank()}")
"""


def launched_on_two(folder: Path, out: Path, prompts: int, *layouts: str) -> subprocess.CompletedProcess[str]:
    out.mkdir()
    script = out / "rank.py"
    script.write_text(RANK)
    return subprocess.run(
        [*TORCHRUN, "--master-port", *map(str, (free_port(), script, folder, out, prompts)), *layouts],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )


def forked_on_two(folder: Path, out: Path, prompts: int, *layouts: str) -> None:
    """The same two ranks without a launcher: a fifth of the time."""
    out.mkdir()
    port = free_port()

    def as_rank(number: str) -> None:
        from accelerate.state import AcceleratorState

        AcceleratorState._reset_state(reset_partial_state=True)  # of trainings before, in one process
        os.environ |= {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        sys.argv[1:] = [str(folder), str(out), str(prompts), *layouts]
        exec(compile(RANK, "rank.py", "exec"), {})

    assert tiny.forked(lambda: as_rank("0"), lambda: as_rank("1")) == [0, 0]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("forked", "layouts"),
    [
        pytest.param(True, ("shared",), id="forked"),
        pytest.param(False, ("padded", "shared"), id="torchrun", marks=pytest.mark.slow),
    ],
)
def test_two_processes_train_what_one_trains(tmp_path: Path, forked: bool, layouts: tuple[Any, ...]) -> None:
    folder = tiny.saved(tmp_path / "model")
    if forked:
        forked_on_two(folder, tmp_path / "two", 32, *layouts)
    else:
        ran = launched_on_two(folder, tmp_path / "two", 32, *layouts)
        assert ran.returncode == 0, ran.stderr
    for layout in layouts:
        model, out = tiny.loaded(folder), tmp_path / "one" / layout
        recipe = replace(tiny.RECIPE, layout=layout, prompts_per_step=32, max_prompts=64)
        ended = train(model, tiny.examples(model), tiny.passing, recipe, out)
        assert ended.layout == layout
        two = tmp_path / "two" / layout
        assert tiny.difference(out, two) < 1e-6
        assert tiny.difference(two.with_name(f"{layout}-0"), two.with_name(f"{layout}-1")) == 0.0
        assert tiny.difference(two, two.with_name(f"{layout}-1")) == 0.0
        checkpoint = tiny.weights(two / "checkpoints" / "checkpoint-2")
        assert checkpoint and all("lora_" in name for name in checkpoint)
        lines, alone = (TrainingLog(one / "training.jsonl").lines() for one in (two, out))
        assert [line["step"] for line in lines] == [line["step"] for line in alone], "only one of them writes"
        ours, theirs = ([line["loss"] for line in found if "loss" in line] for found in (lines, alone))
        assert len(ours) == 2 and ours == pytest.approx(theirs, rel=1e-5)
