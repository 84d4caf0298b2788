"""Merged weights are the adapter in float32, and what bfloat16 makes of it is measured."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

from llmfair.backends.adapters import MANIFEST
from llmfair.checkpoints import files_sha256, find_checkpoint
from llmfair.errors import BackendError, UsageError
from llmfair.settings.commands import FinetuneSettings
from llmfair.tuning import merging
from llmfair.tuning.head import pair_margins
from llmfair.tuning.merging import merge, merge_adapter
from llmfair.tuning.results import ADAPTER, MergeResults, PairItem, PairRow, pairs_text
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
    assert (found.matrices, found.answers, found.flipped) == (4, 24, 0)
    assert found.change > 0.01 and found.distortion < 1e-5
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
        lost[scale] = found.distortion
        expected = (own + delta).to(torch.bfloat16)
        assert bool((model.model.model.layers[1].self_attn.q_proj.weight == expected).all())
        apart = float((expected.float() - own - delta).norm() / delta.norm())
        assert found.distortion == pytest.approx(apart, rel=0.3), "other matrices lose about as much"
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


# The command


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base and an adapter folder as a training leaves it, with 500 test pairs of five queries."""
    root = tmp_path_factory.mktemp("merging")
    base = tiny.saved(root / "base")
    folder = models.adapter(base, root / "adapter")
    checkpoint, template = find_checkpoint(str(base)), tiny.loaded(base).template
    assert template is not None
    origin = {"name": str(base), "identity": checkpoint.identity, "fingerprint": checkpoint.version}
    manifest = {
        "schema": 1,
        "base": {**origin, "dtype": "float32"},
        "system": "folded",
        "template_args": {},
        "template_sha256": template.sha256,
        "prompt": {"name": "pairwise", "form": "letter", "input": "title", "words": 100},
        "dataset": {},
        "split": {},
        "adapter_sha256": files_sha256([folder / name for name in ADAPTER]),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest))
    rows = []
    for number in range(600):
        query = f"{number // 100}"
        a, b = (PairItem(item, f"Title\u2028{item} {number}", (), None, 1) for item in "ab")
        part = "train" if number < 100 else "test"
        rows.append(
            PairRow(f"{number}", f"q{query}", f"Topic {query}", "relevant", a, b, None, 1.0, part, 1.0, -1.0)
        )
    (folder / "pairs.jsonl").write_text(pairs_text(rows))
    return folder


def merged(folder: Path, out: Path, **more: Any) -> MergeResults:
    with models.quiet():
        return merge_adapter(FinetuneSettings.make(merge=folder, output=out, **more))


def test_probes_are_of_all_test_queries(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def rendered(groups: Any, *_: Any) -> None:
        asked.extend(pair.query.query_id for pair in groups[0])
        raise InterruptedError

    monkeypatch.setattr("llmfair.tuning.merging.render", rendered)
    with pytest.raises(InterruptedError):
        merged(finished, tmp_path / "out")
    assert {query_id: asked.count(query_id) for query_id in asked} == {f"q{n}": 40 for n in range(1, 6)}


def test_a_base_is_named_as_audits_name_it_and_what_probes_show_is_told(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "PROBES", 6)
    base = finished.parent / "base"
    found = merged(finished, tmp_path / "one", base_model=f"hf:{base}")
    assert (found.base, found.answers, found.titles_alone) == (str(base), 12, False)
    texts = copytree(finished, tmp_path / "texts")
    manifest = json.loads((texts / MANIFEST).read_text())
    manifest["prompt"]["input"] = "text"
    (texts / MANIFEST).write_text(json.dumps(manifest))
    assert merged(texts, tmp_path / "two").titles_alone is True
