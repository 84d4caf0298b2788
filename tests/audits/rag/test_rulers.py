"""How long what a generator reads may be: in its own tokens where it runs on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmfair.checkpoints import find_checkpoint, tokenizer_of
from tests import models
from tests.cli.command import llmfair, ran, refuses
from tests.models import one_thread as one_thread

pytestmark = pytest.mark.whole

models.needs_local()
QUICK = ("rag", "-q", "--no-report", "--no-cache", "--alpha", "1", "--samples", "2", "--max-tokens", "8")
OWN = "its own tokens"


def questions() -> Path:
    items = [{"id": f"d{n}", "text": f"{n} " + "words of an item " * 60} for n in range(4)]
    path = Path("questions.jsonl")
    path.write_text(json.dumps({"id": "q", "input": "one?", "gold": "one", "items": items}))
    return path


def lines(folder: str) -> Any:
    return json.loads(Path(folder, "manifest.json").read_text())["settings"]["lines"]


def test_an_encoder_decoder_s_prompts_fill_its_context_in_its_own_tokens(tmp_path: Path) -> None:
    folder = models.t5(tmp_path / "t5")
    ran(*QUICK, "-d", questions(), "-m", f"hf:{folder}", "-o", "run", "--max-invalid", "1")
    assert lines("run") == [OWN, 512]
    tokenizer = tokenizer_of(find_checkpoint(str(folder)))
    rows = map(json.loads, Path("run/journal.jsonl").read_text().splitlines()[1:])
    prompts = [row["chat"][-1][1] for row in rows if "key" in row]
    counts = [len(tokenizer.tokenize(prompt)) for prompt in prompts]
    assert max(counts) <= 512 and sum(count > 480 for count in counts) >= 4
    assert all(prompt.endswith("Question: one?") for prompt in prompts)
    assert llmfair("runs", "check", "run").code == 0
    asked = len(prompts)
    ran(*QUICK, "-d", "questions.jsonl", "-m", f"hf:{folder}", "-o", "run", "--max-invalid", "1")
    assert len(Path("run/journal.jsonl").read_text().splitlines()) == asked + 1
    ran(
        *QUICK, "-d", "questions.jsonl", "-m", f"hf:{folder}", *"-o cut --max-invalid 1 --context 128".split()
    )
    assert lines("cut") == [OWN, 128]


def test_a_decoder_leaves_room_for_its_answer(tmp_path: Path) -> None:
    folder = models.causal(tmp_path / "mistral", max_position_embeddings=512)
    ran(*QUICK, "-d", questions(), "-m", f"hf:{folder}", "-o", "run", "--max-invalid", "1")
    assert lines("run") == [OWN, 512 - 8 - 64]
    refuses("reads 512 tokens, of which its answer takes 500", *QUICK[:-1], "500", "-m", f"hf:{folder}")


def test_a_tokenizer_that_says_no_context_asks_for_one(tmp_path: Path) -> None:
    folder = models.t5(tmp_path / "t5")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": int(1e30)}))
    refuses("does not say how many tokens its model reads", *QUICK, "-m", f"hf:{folder}")
    (folder / "tokenizer.json").write_text("{")
    refuses("the tokenizer of", *QUICK, "-m", f"hf:{folder}", code=1)
    assert not Path("runs").exists()
