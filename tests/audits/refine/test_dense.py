"""Encoders in refinement: the last page, and baselines beside it, where sentence-transformers is installed."""

from __future__ import annotations

import contextlib
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from llmfair.audits.refine.measure import SYMBOLS
from tests import models
from tests.audits.refine.test_refine import collection
from tests.cli.command import ran
from tests.models import one_thread as one_thread

models.needs_local()
if find_spec("sentence_transformers") is None:
    pytest.skip(
        "sentence-transformers is not installed: pip install 'llmfair[local]'", allow_module_level=True
    )
pytestmark = pytest.mark.whole


ENCODED = {
    "sbert": "dense:dense",
    "dlf-like": "dlf-like:encoder=dense,epochs=5",
    "mmr": "mmr:similarity=dense:dense",
    "deltr": "deltr:steps=50,encoder=dense",
}


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the encoder is, and a run with the baselines that it serves."""
    folder = tmp_path_factory.mktemp("encoded")
    with contextlib.chdir(folder):
        models.encoder(Path("dense"))
        named = [word for name, spec in ENCODED.items() for word in ("--baseline", f"{name}={spec}")]
        ran("refine", "-q", "--no-report", "--no-cache", *named, "-o", "run")
    return folder


@pytest.mark.parametrize("name", ENCODED)
def test_a_baseline_with_an_encoder_is_what_rerank_makes(
    encoded: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(encoded)
    ran("rerank", "run/rankings/bm25.run", "--with", ENCODED[name], "-d", "refine-sample", "-o", "new.run")
    made = Path("new.run").read_bytes()
    assert made == Path(f"run/rankings/{name}.run").read_bytes()
    assert made != Path("run/rankings/bm25.run").read_bytes()


def test_a_baseline_learns_of_the_target_from_other_topics_and_has_the_papers_sign(encoded: Path) -> None:
    results = json.loads((encoded / "run/results.json").read_text())
    known = {name: of["target_known"] for name, of in results["design"]["factors"].items()}
    assert known["dlf-like"] == "training topics" and known["sbert"] == known["mmr"] == "no"
    assert {
        one["against"]: one["symbol"] for one in results["paper"] if one["symbol"]
    }.items() <= SYMBOLS.items()


def test_queries_that_find_nothing_are_ordered_by_nobody() -> None:
    models.encoder(Path("dense"))
    topics = {"reef": "reef", "she": "she reef", "nothing": "zebra", "signs": "?!", "unjudged": "reef"}
    collection("mine", topics)
    named = [word for name, spec in ENCODED.items() for word in ("--baseline", f"{name}={spec}")]
    ran("refine", "-q", "--no-report", "-d", "mine", "--objective", "KL@4", *named, "-o", "run")
    results = json.loads(Path("run/results.json").read_text())
    assert results["status"] == "complete" and results["chains"]["dlf-like"] == {"asked": 4, "ranked": 4}
    assert results["left_out"] == {"no_target": ["unjudged"], "no_result": ["nothing", "signs"]}


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
