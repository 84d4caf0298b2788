"""Encoders as rankers: scores as the checkpoint declares them, by hand, whatever is padded; as retrievers kept."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from llmfair import registry
from llmfair.audits.rag.design import names_of
from llmfair.errors import BackendError, UsageError
from llmfair.nouns import Candidates, Document, Query
from llmfair.rankers.base import RankerOptions
from llmfair.rankers.neural import KINDS, Encoder
from llmfair.rankers.reranking import cosines, mmr
from tests import models
from tests.cli.command import ran, refuses
from tests.models import one_thread as one_thread

models.needs_local()
if find_spec("sentence_transformers") is None:
    pytest.skip(
        "sentence-transformers is not installed: pip install 'llmfair[local]'", allow_module_level=True
    )
pytestmark = pytest.mark.whole
TEXTS = ["a river", "the stone of a river is long and old " * 4, "", "lamp [SEP] lamp", "half \ud800 a pair"]


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.encoder(tmp_path_factory.mktemp("models") / "dense")


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.encoder(tmp_path_factory.mktemp("models") / "sparse", words=True)


def ranker(name: str, folder: Path | str, **arguments: str) -> Encoder:
    options = RankerOptions((), Path("cache"), checkpoint=str(folder), backend_args=arguments)
    found = registry.lookup("ranker", name)(options)
    assert isinstance(found, Encoder)
    return found


def lists(*texts: str, query: str = "a river of stone") -> Candidates:
    documents = tuple(Document(f"d{n}", f"title {n}", text) for n, text in enumerate(texts))
    return Candidates(Query("q", query), documents, {})


def hidden(folder: Path, text: str, kind: str) -> Any:
    """What the model says of each token of a text, (tokens, places)."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(**tokenizer(text, return_tensors="pt"))[0][0]


def test_a_dense_score_is_the_cosine_of_means_and_of_contriever_the_dot_product(
    dense: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    query, item = (
        hidden(dense, text, "AutoModel").mean(0) for text in ("a river of stone", "title 0 a river")
    )
    (cosine,) = ranker("dense", dense).scores(lists("a river"))
    assert cosine == pytest.approx(float(torch.cosine_similarity(query, item, 0)), abs=1e-5)
    kind = KINDS["contriever"]
    monkeypatch.setitem(KINDS, "contriever", type(kind)(kind.kind, str(dense), kind.settings))
    (dot,) = ranker("contriever", "").scores(lists("a river"))
    assert dot == pytest.approx(float(query @ item), rel=1e-5)


def test_a_sparse_score_is_the_product_of_largest_log_weights(sparse: Path) -> None:
    query, item = (
        hidden(sparse, text, "AutoModelForMaskedLM").relu().log1p().max(0).values
        for text in ("a river of stone", "title 0 a river")
    )
    (found,) = ranker("sparse", sparse).scores(lists("a river"))
    assert found == pytest.approx(float(query @ item), rel=1e-5)


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_a_batch_scores_as_each_alone(name: str, dense: Path, sparse: Path) -> None:
    folder = {"dense": dense, "sparse": sparse}[name]
    together = ranker(name, folder).scores(lists(*TEXTS))
    alone = ranker(name, folder, batch_size="1").scores(lists(*TEXTS))
    assert together == pytest.approx(alone, rel=1e-4, abs=1e-5) and len({*together}) == len(TEXTS)
    assert ranker(name, folder).scores(lists()) == []


def test_a_folder_is_told_by_its_parts_and_one_that_is_broken_in_a_sentence(
    dense: Path, tmp_path: Path
) -> None:
    import shutil

    copy = Path(shutil.copytree(dense, tmp_path / "copy"))
    assert ranker("dense", copy).identity == ranker("dense", dense).identity
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text("{}")
    assert ranker("dense", copy).identity != ranker("dense", dense).identity
    (copy / "model.safetensors").write_bytes(b"none")
    with pytest.raises(BackendError, match="cannot be loaded as dense"):
        ranker("dense", copy).scores(lists("a"))
    for name, checkpoint, says in (("dense", "", "names no checkpoint"), ("sbert", "x", "sbert is sentence")):
        with pytest.raises(UsageError, match=says):
            ranker(name, checkpoint)


def test_retrievers_are_called_by_the_last_part_of_their_names() -> None:
    specs = ["bm25", "contriever", "dense:ORG/NAME@main", "sparse:./models/a b/"]
    assert names_of(specs) == dict(zip(["bm25", "contriever", "NAME", "a-b"], specs, strict=True))
    with pytest.raises(UsageError, match="would be called contriever, as contriever is"):
        names_of(["contriever", "dense:facebook/contriever"])
    with pytest.raises(UsageError, match="would be called gold"):
        names_of(["dense:gold"])


def test_it_retrieves_before_anything_is_asked_and_its_scores_are_kept(
    dense: Path, sparse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = (
        *"rag -q --no-report --alpha 1 -n 6 --retriever bm25 --retriever".split(),
        f"dense:{dense}",
        "--retriever",
        f"sparse:{sparse}",
    )
    ran(*flags, "-o", "run")
    found = json.loads(Path("run/results.json").read_text())
    assert {"dense-1", "dense-deterministic", "sparse-1", "bm25-1"} <= {*found["design"]["conditions"]}
    assert Path("run/rankings/dense.run").is_file() and Path("run/samples/sparse-1.tsv").is_file()
    monkeypatch.setattr(Encoder, "scores", None)
    ran(*flags, "-o", "again")
    assert Path("again/scores.csv").read_text() == Path("run/scores.csv").read_text()
    ran("runs", "check", "run")
    refuses("would be called dense", *flags, "--retriever", "dense:other/dense")


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_mmr_goes_by_the_cosines_of_an_encoder(name: str, dense: Path, sparse: Path) -> None:
    folder = {"dense": dense, "sparse": sparse}[name]
    candidates = replace(lists(*TEXTS[:3]), scores=(3.0, 2.0, 1.0))
    encoder = ranker(name, folder)
    vectors = encoder.vectors("document", [f"{item.title} {item.text}" for item in candidates.documents])
    options = RankerOptions((), Path("cache"), checkpoint=f"similarity={name}:{folder}")
    by_encoder = registry.lookup("ranker", "mmr")(options)
    order = [candidates.doc_ids[place] for place in mmr([1.0, 0.5, 0.0], cosines(vectors))]
    assert [*by_encoder.ordered(candidates)[0].doc_ids] == order
    assert by_encoder.identity.endswith(f" and {encoder.identity}")
