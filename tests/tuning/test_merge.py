"""Merged weights are the adapter in float32, and what bfloat16 makes of it is measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from llmfair.errors import BackendError, UsageError
from llmfair.tuning.margins import pair_margins
from llmfair.tuning.merge import merge
from tests import models
from tests.tuning import tiny
from tests.tuning.tiny import one_thread as one_thread

models.needs_local()


def test_in_float32_the_merged_model_answers_as_the_adapter_does(tmp_path: Path) -> None:
    base = tiny.saved(tmp_path / "base")
    adapter = models.adapter(base, tmp_path / "adapter")
    model = tiny.loaded(base, adapter=adapter)
    probes = tiny.examples(model, 3)
    expected = np.concatenate(pair_margins(model, probes, 4096))
    with models.quiet():
        found = merge(model, tmp_path / "merged", probes, 4096)
    assert (found.matrices, found.answers, found.flipped) == (4, 24, 0)
    assert found.change > 0.01 and found.distortion < 1e-5
    again = tiny.loaded(tmp_path / "merged")
    assert not hasattr(again.model, "peft_config")
    assert np.concatenate(pair_margins(again, probes, 4096)) == pytest.approx(expected, abs=1e-4)
    plain = np.concatenate(pair_margins(tiny.loaded(base), probes, 4096))
    assert np.abs(plain - expected).max() > 0.1, "the adapter does something"


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
        lost[scale] = found.distortion
        expected = (own + delta).to(torch.bfloat16)
        assert bool((model.model.model.layers[1].self_attn.q_proj.weight == expected).all())
        apart = float((expected.float() - own - delta).norm() / delta.norm())
        assert found.distortion == pytest.approx(apart, rel=0.3), "other matrices lose about as much"
    assert lost[0.0005] > 0.5 > 0.05 > lost[0.5]


def test_what_cannot_be_merged_is_said(tmp_path: Path) -> None:
    base = tiny.saved(tmp_path / "base")
    model = tiny.loaded(base)
    probes = tiny.examples(model, 1)
    with pytest.raises(UsageError, match="without an adapter"):
        merge(model, tmp_path / "merged", probes, 4096)
    adapter = models.adapter(base, tmp_path / "adapter")
    with pytest.raises(UsageError, match="is not empty"):
        merge(tiny.loaded(base, adapter=adapter), base, probes, 4096)
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="cannot be written"), models.quiet():
        merge(tiny.loaded(base, adapter=adapter), tmp_path / "file" / "merged", probes, 4096)
