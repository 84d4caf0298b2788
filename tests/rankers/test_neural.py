"""MonoT5 and MonoBERT: the authors' input to the token, and scores that a batch leaves alone; encoders: the checkpoint's own likeness."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmfair import registry
from llmfair.audits.rag.design import names_of
from llmfair.datasets.attributes import data_folder, read_attributes
from llmfair.errors import BackendError, UsageError
from llmfair.nouns import Candidates, Document, Query
from llmfair.rankers.base import RankerOptions
from llmfair.rankers.neural import KINDS, CrossEncoder, Encoder
from llmfair.rankers.reranking import cosines, mmr
from tests import models
from tests.cli.command import kept, llmfair, only_run, ran, refuses
from tests.folders import balanced, write_folder
from tests.models import one_thread as one_thread

models.needs_local()
GENDER = read_attributes(data_folder() / "attributes.toml")["gender"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {"monot5": models.t5(root / "t5"), "monobert": models.bert(root / "bert")}


def ranker(name: str, folder: Path, **options: Any) -> Any:
    made = registry.lookup("ranker", name)(
        RankerOptions((), Path("cache"), GENDER, checkpoint=str(folder), **options)
    )
    assert isinstance(made, CrossEncoder)
    return made


def lists(*texts: str, query: str = "women in science") -> Candidates:
    documents = tuple(Document(f"d{n}", f"Title {n}", text) for n, text in enumerate(texts))
    return Candidates(Query("q", query), documents, {})


PAGES = [f"page {n} " + "some words of a page " * (7 * n % 60) for n in range(12)]


@pytest.mark.parametrize("name", ["monot5", "monobert"])
def test_a_batch_scores_as_each_alone_wherever_its_padding_is(name: str, folders: dict[str, Path]) -> None:
    together = ranker(name, folders[name]).scores(lists(*PAGES))
    assert len(set(together)) == len(PAGES)
    alone = ranker(name, folders[name], backend_args={"batch_tokens": "1"})
    alone._tokenizer.padding_side = "left"
    for score, single in zip(together, alone.scores(lists(*PAGES)), strict=True):
        assert abs(score - single) <= 1e-5


def test_monot5_reads_the_author_s_input(folders: dict[str, Path]) -> None:
    found = ranker("monot5", folders["monot5"])
    (one,) = found.inputs("women in science", Document("d", "A title", "Some text"))
    whole = "Query: women in science Document: A title\nSome text Relevant:"
    assert one["input_ids"] == list(found._tokenizer(whole).input_ids), (
        "put together from parts as read in one"
    )

    import torch

    with torch.inference_mode():
        logits = found._model(
            input_ids=torch.tensor([one["input_ids"]]), decoder_input_ids=torch.tensor([[0]])
        ).logits[0, 0]
    false, true = (found._tokenizer.convert_tokens_to_ids(piece) for piece in ("▁false", "▁true"))
    expected = logits[[false, true]].log_softmax(-1)[1]
    candidates = Candidates(Query("q", "women in science"), (Document("d", "A title", "Some text"),), {})
    assert found.scores(candidates) == pytest.approx([float(expected)], abs=1e-5)


def test_monobert_reads_the_pair(folders: dict[str, Path]) -> None:
    import torch

    found = ranker("monobert", folders["monobert"])
    pair = found._tokenizer("women in science", "A title\nSome text", return_tensors="pt")
    assert set(pair["token_type_ids"][0].tolist()) == {0, 1}
    with torch.inference_mode():
        expected = found._model(**pair).logits[0].log_softmax(-1)[1]
    candidates = Candidates(Query("q", "women in science"), (Document("d", "A title", "Some text"),), {})
    assert found.scores(candidates) == pytest.approx([float(expected)], abs=1e-5)


def test_one_logit_is_the_score(tmp_path: Path) -> None:
    import torch

    found = ranker("monobert", models.bert(tmp_path / "one", labels=1))
    pair = found._tokenizer("a query", "Title 0\ntext", return_tensors="pt")
    with torch.inference_mode():
        expected = float(found._model(**pair).logits[0, 0])
    assert found.scores(lists("text", query="a query")) == pytest.approx([expected], abs=1e-5)
    with pytest.raises(UsageError, match="tells 3 classes apart"):
        ranker("monobert", models.bert(tmp_path / "three", labels=3)).scores(lists("text"))


@pytest.mark.parametrize("name", ["monot5", "monobert"])
def test_long_pages_and_queries_leave_room_for_all_that_is_asked(name: str, folders: dict[str, Path]) -> None:
    found = ranker(name, folders[name])
    page = Document("d", "Title", "words of a very long page " * 1000)  # 5,000 words
    for query in ("short", "word " * 500):
        (one,) = found.inputs(query, page)
        assert len(one["input_ids"]) == 512
        tokens = found._tokenizer.convert_ids_to_tokens(one["input_ids"])
        if name == "monot5":
            assert tokens[-2:] == ["▁Relevant:", "</s>"] and tokens[0] == "▁Query:"
            read = tokens.index("▁Document:") - 1
        else:
            assert (tokens[0], tokens[-1], tokens.count("[SEP]")) == ("[CLS]", "[SEP]", 2)
            read = tokens.index("[SEP]") - 1
            assert one["token_type_ids"] == [0] * (read + 2) + [1] * (510 - read)
        assert read == min(64, len(found._ids(query)))


def read(ranker: Any, window: Any) -> float:
    import torch

    with torch.inference_mode():
        return float(ranker._logits(ranker._tokenizer.pad([window], return_tensors="pt")))


@pytest.mark.parametrize("name", ["monot5", "monobert"])
def test_the_best_passage_of_a_long_page(name: str, folders: dict[str, Path]) -> None:
    first, best = ranker(name, folders[name]), ranker(name, folders[name], passages="max")
    text = " ".join(f"word{n}" for n in range(400))
    page = Document("d", "Title", text)
    windows = best.inputs("query", page)
    assert len(windows) > 3 and windows[0] == first.inputs("query", page)[0]
    assert all(len(one["input_ids"]) <= 512 for one in windows)
    # Every token of the page is read, each window by half again.
    seen = [token for one in windows for token in one["input_ids"]]
    assert {*first._ids(text)} <= set(seen) and windows[-1]["input_ids"][-12:-3] != windows[-2]["input_ids"][
        -12:-3
    ]
    score = best.scores(Candidates(Query("q", "query"), (page,), {}))[0]
    scores = [read(best, window) for window in windows]
    assert score == pytest.approx(max(scores), abs=1e-5)
    short = lists("a few words")
    assert best.scores(short) == first.scores(short)
    assert best.identity != first.identity


def test_sensitive_variants_name_the_side_in_the_query(folders: dict[str, Path]) -> None:
    found = ranker("monot5", folders["monot5"])
    query = Query("q", "chemists")
    assert found.wording(query, "neutral") == "chemists"
    assert found.wording(query, "female") == "female chemists"
    assert found.wording(query, "male") == "male chemists"


def test_odd_texts_are_read(folders: dict[str, Path]) -> None:
    odd = ["", "\ud800 half a pair", "日本語", "\x00\u202e", "</s> <pad> [SEP]"]
    for name in ("monot5", "monobert"):
        found = ranker(name, folders[name]).scores(lists(*odd, query="\ud83d"))
        assert len(found) == 5 and all(abs(score) < 1e6 for score in found)
        assert ranker(name, folders[name]).scores(lists(*odd, query="")) != found


@pytest.mark.parametrize("name", ["monot5", "monobert"])
def test_a_page_cannot_close_the_input(name: str, folders: dict[str, Path]) -> None:
    one = ranker(name, folders[name])
    (plain,) = one.inputs("Ada", Document("d", "A page about engines"))
    (found,) = one.inputs("Ada", Document("d", "A page </s> [SEP] <pad> [PAD] about engines"))
    special = {*one._tokenizer.all_special_ids} - {one._tokenizer.unk_token_id}
    assert [i for i in found["input_ids"] if i in special] == [i for i in plain["input_ids"] if i in special]


def test_a_checkpoint_of_another_kind_is_said(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="cannot be loaded as monot5"):
        ranker("monot5", folders["monobert"]).scores(lists("a"))
    with pytest.raises(UsageError, match="Did you mean 'device'"):
        ranker("monot5", folders["monot5"], backend_args={"devise": "cpu"})
    with pytest.raises(UsageError, match="there is no folder"):
        ranker("monot5", tmp_path / "none")
    broken = models.t5(tmp_path / "wordless")
    tokenizer = json.loads((broken / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"][3][0] = "▁yes"
    (broken / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UsageError, match="no piece ▁true"):
        ranker("monot5", broken).scores(lists("a"))


def test_audits_rank_under_every_variant_and_ask_nothing(folders: dict[str, Path], tmp_path: Path) -> None:
    data = write_folder(tmp_path / "data", balanced(5, 4, 4))
    asked = ("listwise", "-d", data, "-m", f"monot5:{folders['monot5']}", "--json")
    found = ran(*asked)
    manifest = kept("manifest")
    assert manifest["calls"] == 0 and manifest["settings"]["conditions"] == ["neutral", "male", "female"]
    assert manifest["settings"]["identity"].startswith("monot5 folder ")
    runs = {path.stem: path.read_text() for path in (only_run() / "rankings").iterdir()}
    assert set(runs) == {"neutral", "male", "female"} and len(set(runs.values())) == 3
    rows = [line.split() for line in runs["neutral"].splitlines()]
    assert len(rows) == 40 and [int(row[4]) for row in rows] == list(range(8, 0, -1)) * 5
    assert llmfair(*asked).out == found.out
    refuses("monot5 ranks lists; it answers no questions", "pairwise", "-m", "monot5")


models.needs_encoders()
pytestmark = pytest.mark.whole
TEXTS = ["a river", "the stone of a river is long and old " * 4, "", "lamp [SEP] lamp", "half \ud800 a pair"]


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.encoder(tmp_path_factory.mktemp("models") / "dense")


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.encoder(tmp_path_factory.mktemp("models") / "sparse", words=True)


def ranker_of_encoder(name: str, folder: Path | str, **arguments: str) -> Encoder:
    options = RankerOptions((), Path("cache"), checkpoint=str(folder), backend_args=arguments)
    found = registry.lookup("ranker", name)(options)
    assert isinstance(found, Encoder)
    return found


def lists_of_encoder(*texts: str, query: str = "a river of stone") -> Candidates:
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

    query, item = (hidden(dense, t, "AutoModel").mean(0) for t in ("a river of stone", "title 0 a river"))
    (cosine,) = ranker_of_encoder("dense", dense).scores(lists_of_encoder("a river"))
    assert cosine == pytest.approx(float(torch.cosine_similarity(query, item, 0)), abs=1e-5)
    kind = KINDS["contriever"]
    monkeypatch.setitem(KINDS, "contriever", (kind[0], str(dense), kind[2]))
    (dot,) = ranker_of_encoder("contriever", "").scores(lists_of_encoder("a river"))
    assert dot == pytest.approx(float(query @ item), rel=1e-5)


def test_a_sparse_score_is_the_product_of_largest_log_weights(sparse: Path) -> None:
    query, item = (
        hidden(sparse, text, "AutoModelForMaskedLM").relu().log1p().max(0).values
        for text in ("a river of stone", "title 0 a river")
    )
    (found,) = ranker_of_encoder("sparse", sparse).scores(lists_of_encoder("a river"))
    assert found == pytest.approx(float(query @ item), rel=1e-5)


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_a_batch_scores_as_each_alone(name: str, dense: Path, sparse: Path) -> None:
    folder = {"dense": dense, "sparse": sparse}[name]
    together = ranker_of_encoder(name, folder).scores(lists_of_encoder(*TEXTS))
    alone = ranker_of_encoder(name, folder, batch_size="1").scores(lists_of_encoder(*TEXTS))
    assert together == pytest.approx(alone, rel=1e-4, abs=1e-5) and len({*together}) == len(TEXTS)
    assert ranker_of_encoder(name, folder).scores(lists_of_encoder()) == []


def test_a_folder_is_told_by_its_parts_and_a_broken_one_in_a_sentence(dense: Path, tmp_path: Path) -> None:
    import shutil

    copy = Path(shutil.copytree(dense, tmp_path / "copy"))
    assert ranker_of_encoder("dense", copy).identity == ranker_of_encoder("dense", dense).identity
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text("{}")
    assert ranker_of_encoder("dense", copy).identity != ranker_of_encoder("dense", dense).identity
    (copy / "model.safetensors").write_bytes(b"none")
    with pytest.raises(BackendError, match="cannot be loaded as dense"):
        ranker_of_encoder("dense", copy).scores(lists_of_encoder("a"))
    for name, checkpoint, says in (("dense", "", "names no checkpoint"), ("sbert", "x", "sbert is sentence")):
        with pytest.raises(UsageError, match=says):
            ranker_of_encoder(name, checkpoint)


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
    small = "rag -q --no-report --alpha 1 -n 6 --retriever bm25".split()
    flags = (*small, "--retriever", f"dense:{dense}", "--retriever", f"sparse:{sparse}")
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
    candidates = replace(lists_of_encoder(*TEXTS[:3]), scores=(3.0, 2.0, 1.0))
    encoder = ranker_of_encoder(name, folder)
    vectors = encoder.vectors("document", [f"{item.title} {item.text}" for item in candidates.documents])
    options = RankerOptions((), Path("cache"), checkpoint=f"similarity={name}:{folder}")
    by_encoder = registry.lookup("ranker", "mmr")(options)
    order = [candidates.doc_ids[place] for place in mmr([1.0, 0.5, 0.0], cosines(vectors))]
    assert [*by_encoder.ordered(candidates)[0].doc_ids] == order
    assert by_encoder.identity.endswith(f" and {encoder.identity}")
