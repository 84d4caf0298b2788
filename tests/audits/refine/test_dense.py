"""The last page ordered by an encoder, where sentence-transformers is installed."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import models
from tests.cli.command import ran
from tests.models import one_thread as one_thread

models.needs_local()
if find_spec("sentence_transformers") is None:
    pytest.skip(
        "sentence-transformers is not installed: pip install 'llmfair[local]'", allow_module_level=True
    )
pytestmark = pytest.mark.whole


def test_an_encoder_orders_the_last_page() -> None:
    models.encoder(Path("dense"))
    for output in ("run", "again"):
        ran("refine", "-q", "--no-cache", "-n", "6", "--rerank", "dense:dense", "-o", output)
    refined, final = (Path(f"run/rankings/{name}.run").read_text() for name in ("refined", "fair-qr"))
    assert refined != final
    assert sorted(line.split()[2] for line in refined.splitlines()) == sorted(
        line.split()[2] for line in final.splitlines()
    )
    assert final == Path("again/rankings/fair-qr.run").read_text()
    assert "dense" in json.loads(Path("run/manifest.json").read_text())["settings"]["reranker"]
