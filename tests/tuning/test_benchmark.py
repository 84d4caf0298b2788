"""The benchmark of training runs whole: every layout, the device's way with bfloat16 included."""

from __future__ import annotations

from typing import Any

import pytest

from tests import models
from tests.models import one_thread as one_thread

models.needs_local()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_benchmark_measures_every_layout(
    dtype: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from benchmarks import lora

    small = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    monkeypatch.setitem(lora.SIZES, "tiny", small | {"num_attention_heads": 2, "num_key_value_heads": 1})
    work = lora.Work(prefix=20, suffix=8, group=8, per_step=16, steps=2)
    found = lora.measure("tiny", "cpu", dtype, work)
    assert [row["name"] for row in found["rows"]] == ["naive", "padded", "shared"]
    assert all(row["prompts_per_second"] > 0 and 0 < row["mfu"] < 1 for row in found["rows"])
    assert "gradients differ by" in found["rows"][2]["note"]
    assert found["floors"]["shared"] > found["floors"]["padded"] > 0
    assert capsys.readouterr().out.count("prompts/s") == 3
    # 2 layers of q, o (64 × 64), k, v (64 × 32) and three of 64 × 64.
    assert lora.weights_of("tiny") == 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 64)
    assert round(lora.weights_of("7b") / 1e9, 3) == 6.979
