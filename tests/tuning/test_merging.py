"""Merged weights are the adapter in float32, and what bfloat16 makes of it is measured."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from llmfair.errors import BackendError, UsageError
from llmfair.tuning.finetune import probes_of
from llmfair.tuning.head import merge, pair_margins
from llmfair.tuning.results import PairItem, PairRow, pairs_text
from tests import models
from tests.models import one_thread as one_thread
from tests.tuning import tiny

models.needs_local()


def test_in_float32_the_merged_model_answers_as_the_adapter_does(tmp_path: Path) -> None:
    base = tiny.saved(tmp_path / "base")
    adapter = models.adapter(base, tmp_path / "adapter")
    model = tiny.loaded(base, adapter=adapter)
    probes = tiny.examples(model, 3)
    expected = np.concatenate(pair_margins(model, probes, 4096))
    with models.quiet():
        found = merge(model, tmp_path / "merged", probes, 4096)
    assert (found["matrices"], found["answers"], found["flipped"]) == (4, 24, 0)
    assert found["change"] > 0.01 and found["distortion"] < 1e-5
    again = tiny.loaded(tmp_path / "merged")
    assert not hasattr(again.model, "peft_config")
    assert np.concatenate(pair_margins(again, probes, 4096)) == pytest.approx(expected, abs=1e-4)
    plain = np.concatenate(pair_margins(tiny.loaded(base), probes, 4096))
    assert np.abs(plain - expected).max() > 0.1, "the adapter does something"


@pytest.mark.whole
def test_what_bfloat16_loses_of_a_small_change_is_measured(tmp_path: Path) -> None:
    import torch

    base = tiny.saved(tmp_path / "base", dtype="bfloat16")
    lost = {}
    for scale in (0.0005, 0.5):
        adapter = models.adapter(base, tmp_path / f"adapter {scale}", scale=scale)
        model = tiny.loaded(base, "bfloat16", adapter)
        probes = tiny.examples(model, 2)
        layer = model.model.base_model.model.model.layers[1].self_attn.q_proj
        own, delta = layer.base_layer.weight.float(), layer.get_delta_weight("default").float()
        with models.quiet():
            found = merge(model, tmp_path / f"merged {scale}", probes, 4096)
        lost[scale] = found["distortion"]
        expected = (own + delta).to(torch.bfloat16)
        assert bool((model.model.model.layers[1].self_attn.q_proj.weight == expected).all())
        apart = float((expected.float() - own - delta).norm() / delta.norm())
        assert found["distortion"] == pytest.approx(apart, rel=0.3), "other matrices lose about as much"
    assert lost[0.0005] > 0.5 > 0.05 > lost[0.5]


def test_what_cannot_be_merged_is_said(tmp_path: Path) -> None:
    base = tiny.saved(tmp_path / "base")
    probes = tiny.examples(tiny.loaded(base), 1)
    adapter = models.adapter(base, tmp_path / "adapter")
    with pytest.raises(UsageError, match="is not empty"):
        merge(tiny.loaded(base, adapter=adapter), base, probes, 4096)
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="cannot be written"), models.quiet():
        merge(tiny.loaded(base, adapter=adapter), tmp_path / "file" / "merged", probes, 4096)


def test_probes_are_of_all_test_queries(tmp_path: Path) -> None:
    rows = []
    for number in range(600):
        query, (a, b) = number // 100, (PairItem(item, f"Title\u2028{item}", (), None, 1) for item in "ab")
        part = "train" if number < 100 else "test"
        rows.append(PairRow(f"{number}", f"q{query}", "Topic", "relevant", a, b, None, 1.0, part, 1.0, -1.0))
    (tmp_path / "pairs.jsonl").write_text(pairs_text(rows))
    counts = Counter(pair.query.query_id for pair in probes_of(tmp_path))
    assert counts == {f"q{number}": 40 for number in range(1, 6)}
