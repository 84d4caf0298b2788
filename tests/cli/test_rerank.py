"""Rankers that ask no model, from end to end, and `llmfair rerank`: run files in another order, one sentence for every file that is broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import llmfair as package
from llmfair.audits.lists import training_lists
from llmfair.datasets.base import Collection, load_dataset
from llmfair.errors import warn
from llmfair.io.trec import read_run
from tests.cli.command import kept, llmfair, only_run, ran, refuses, table
from tests.folders import balanced, write, write_folder

pytestmark = pytest.mark.whole

# men first, by falling score; q2 has one document, q3 one that is in no file
RANKED = enumerate(("m1", "m2", "m3", "f1", "f2"), 1)
RUN = "".join(f"q1 Q0 {doc_id} {rank} {9 - rank} mine\n" for rank, doc_id in RANKED)
RUN += "q2 Q0 f1 1 0.5 mine\nq3 Q0 zz 1 7 mine\nq3 Q0 m1 2 6 mine\nq3 Q0 f1 3 6 mine\n"
GROUPS = "".join(f"{doc_id}\tgender\t{'female' if doc_id[0] == 'f' else 'male'}\n" for doc_id in ("m1", "m2", "m3", "f1", "f2"))  # fmt: skip
QRELS = "q1 0 m1 1\nq1 0 f2 1\nq2 0 f1 1\nq3 0 m1 0\n"
WITH = ("--with", "fair-star:k=5,p=0.5,alpha=0.5,adjust=none", "--groups", "groups.tsv")


@pytest.fixture(autouse=True)
def files() -> None:
    Path("my.run").write_text(RUN)
    Path("groups.tsv").write_text(GROUPS)
    Path("qrels.txt").write_text(QRELS)


def orders(path: str = "new.run") -> dict[str, str]:
    """The documents of each query in their order."""
    found = read_run(Path(path)).rankings
    return {query_id: " ".join(ranking.doc_ids) for query_id, ranking in found.items()}


def test_fair_star_on_a_run_of_any_system() -> None:
    found = ran("rerank", "my.run", *WITH, "-o", "new.run")
    # the table asks for one of two, one of three, two of four; of equal scores the protected document is first
    assert orders() == {"q1": "m1 f1 m2 f2 m3", "q2": "f1", "q3": "zz f1 m1"}
    assert Path("new.run").read_text().splitlines()[0] == f"q1 Q0 m1 1 5 mine+{WITH[1]}"
    assert found.out.splitlines() == [
        "new.run: 3 queries, 2 of them in another order",
        "NEXT     llmfair score my.run new.run --qrels FILE --groups groups.tsv",
    ]
    assert "1 of 6 documents have no group of gender" in found.err


def test_greedy_says_of_which_queries_nothing_is_relevant() -> None:
    found = ran(*"rerank my.run --with greedy --qrels qrels.txt --groups groups.tsv -o new.run".split())
    assert orders()["q1"].startswith("m1 f1") and orders()["q3"] == "zz m1 f1"
    assert "so the order is the first stage's (1 of 3 queries)" in found.err
    ran("rerank", "my.run", "--with", "greedy:target=uniform", "--groups", "groups.tsv", "-o", "even.run")
    assert orders("even.run")["q1"].startswith("m1 f1")


def test_packed_runs_are_read_and_written_and_several_go_to_a_folder() -> None:
    Path("b.run.gz").write_bytes(gzip.compress(RUN.encode()))
    ran("rerank", "my.run", "b.run.gz", *WITH, "-o", "new")
    assert orders("new/my.run") == orders("new/b.run.gz")
    assert Path("new/b.run.gz").read_bytes()[:2] == b"\x1f\x8b"
    first = Path("new/b.run.gz").read_bytes()
    ran("rerank", "my.run", "--with", "fair-star:k=5, p=0.5", *WITH[2:], "-o", "spaced.run")
    assert orders("spaced.run").keys() == {"q1", "q2", "q3"}
    ran("rerank", "b.run.gz", *WITH, "-o", "new")
    assert Path("new/b.run.gz").read_bytes() == first


@pytest.mark.parametrize("ranker", ["mmr", "greedy", "fair-star:p=0.5"])
def test_the_run_of_bm25_becomes_that_of_an_audit_with_the_ranker(ranker: str) -> None:
    """The scores are BM25's own, ties and all, which the run file has as ranks only."""
    ran("listwise", "-m", "bm25", "--no-report", "-o", "first")
    ran("listwise", "-m", ranker, "--no-report", "-o", "audited")
    ran("rerank", "first/rankings/neutral.run", "--with", ranker, "-d", "sample", "-o", "new.run")
    paths = ("new.run", "audited/rankings/neutral.run")
    columns = [[line.split()[:5] for line in Path(path).read_text().splitlines()] for path in paths]
    assert columns[0] == columns[1]
    assert " over bm25 k1=1.2 " in kept("manifest", "audited")["settings"]["identity"]
    ran("runs", "check", "audited")
    scored = ran("score", "new.run", "first/rankings/neutral.run", "-d", "sample", "--json").json
    assert len(scored["runs"]) == 2


def test_any_ranker_may_order_a_run_of_a_dataset() -> None:
    ran("listwise", "-m", "fake:oracle", "--orders", "1", "--conditions", "neutral", "--no-report")
    run = only_run() / "rankings" / "neutral.run"
    for ranker in ("bm25", "bm25-okapi", "deltr"):
        found = ran("rerank", run, "--with", ranker, "-d", "sample", "-o", "new.run", "--json").json
        assert found["runs"][0]["changed"] > 0 and found["runs"][0]["queries"] == 8
        assert found["runs"][0]["tag"] == f"llmfair+{ranker}"


def test_from_python() -> None:
    ran("rerank", "my.run", *WITH, "-o", "new.run")
    with pytest.warns(UserWarning, match="1 of 6 documents have no group of gender"):
        (path,) = package.rerank("my.run", ranker=WITH[1], groups="groups.tsv", output="called.run")
    assert path == Path("called.run") and path.read_bytes() == Path("new.run").read_bytes()
    with pytest.raises(package.UsageError, match="no run is named"):
        package.rerank(ranker="mmr", groups="groups.tsv", output="called.run")


def test_a_broken_run_among_others_leaves_nothing_half_done() -> None:
    Path("b.run").write_text("oops\n")
    refuses("b.run:1: expected 6 columns", "rerank", "my.run", "b.run", *WITH, "-o", "new")
    assert not Path("new").exists()
    found = llmfair("rerank", "b.run", *WITH, "-o", "new", "--json")
    assert found.code == 2 and found.json["error"]["message"].startswith("b.run:1: ")


def test_what_does_not_go_together_is_said() -> None:
    Path("none.tsv").write_text("m1\tgender\tmale\nf9\tgender\tfemale\nzz\tgender\t@UNKNOWN\n")
    Path("unknown.run").write_text("q3 Q0 zz 1 7 mine\n")
    folder = Path("folder")
    folder.mkdir()
    (folder / "my.run").write_text(RUN)
    for says, arguments in (
        ("--with is missing.", ("my.run", "--groups", "groups.tsv", "-o", "new.run")),
        ("either --dataset or --groups says who", ("my.run", *WITH, "-d", "sample", "-o", "new.run")),
        ("no ranker 'fair'", ("my.run", "--with", "fair", *WITH[2:], "-o", "new.run")),
        ("mmr reads what queries and documents say", ("my.run", "--with", "mmr", *WITH[2:], "-o", "new.run")),
        ("ranks none of the queries of sample", ("my.run", "--with", "mmr", "-d", "sample", "-o", "new.run")),
        ("missing.run: cannot be read", ("missing.run", *WITH, "-o", "new.run")),
        ("my.run is read, or would be written twice", ("my.run", *WITH, "-o", "./my.run")),
        ("new/my.run is read, or would be written twice", ("my.run", "folder/my.run", *WITH, "-o", "new")),
        ("no ranked document has a group of gender", ("unknown.run", *WITH[:3], "none.tsv", "-o", "new.run")),
    ):
        refuses(says, "rerank", *arguments)
    assert not Path("new.run").exists()


# Audits of rankers that ask no model


def test_a_dry_run_scores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfair.rankers.base.ScoringRanker.ordered", lambda *_: pytest.fail("scored"))
    assert "Nothing was ranked." in ran("listwise", "-m", "bm25", "--dry-run").out


def test_the_run_folder() -> None:
    first = ran("listwise", "-m", "bm25", "--json")
    run = only_run()
    assert run.name.startswith("listwise-sample-gender-bm25-")
    manifest = kept("manifest", run)
    assert manifest["settings"]["identity"].startswith("bm25 k1=1.2 b=0.75 tokenizer=en_stem tantivy=")
    assert (manifest["status"], manifest["calls"], manifest["model"]) == ("complete", 0, "bm25")
    design = first.json["design"]
    assert design | {"orders": 1, "repeats": 1, "calls": 0, "window": None} == design
    assert [path.name for path in (run / "rankings").iterdir()] == ["neutral.run"]
    scores = [line.split("\t") for line in (run / "scores.tsv").read_text("utf-8").splitlines()]
    ranks = [line.split() for line in (run / "rankings" / "neutral.run").read_text("utf-8").splitlines()]
    assert [(row[0], row[1]) for row in scores] == [(row[0], row[2]) for row in ranks] and len(ranks) == 320
    assert [int(row[4]) for row in ranks] == list(range(40, 0, -1)) * 8
    for query_id in {row[0] for row in scores}:
        own = [float(row[2]) for row in scores if row[0] == query_id]
        assert own == sorted(own, reverse=True)
    assert llmfair("listwise", "-m", "bm25", "--json").out == first.out
    assert llmfair("runs", "check", run).code == llmfair("runs", "show", run).code == 0


def test_beside_a_model_it_lists_nothing_that_only_the_model_was_told() -> None:
    ran(
        "listwise", "-n", "5", "--passes", "1", "--window", "10", "--step", "5", "--temperature", "0.5",
        "--input", "text", "--extra", "top_k=5", "-m", "bm25", "-m", "fake:oracle",
    )  # fmt: skip
    run, model = sorted(Path("runs").iterdir(), key=lambda path: "bm25" not in path.name)
    manifest = kept("manifest", run)
    asked = {"window", "step", "passes", "orders", "temperature", "input", "extra", "prompt", "repeat"}
    assert asked <= {*manifest["unused"]} and not asked & manifest["flags"].keys()
    assert "prompt" not in manifest and "unused" not in kept("manifest", model)
    shown = ran("report", run, "--format", "card").out
    assert "llmfair listwise -m bm25 --limit 5\n" in shown
    assert not any(word in shown for word in ("temperature", "--window", "--orders", "--conditions"))
    compared = llmfair("compare", run, model, "--json").json
    assert {*compared["runs"][1]["differs"]} == set()
    ran("runs", "check", run)


def test_as_the_first_stage() -> None:
    orders = ("--initial", "bm25", "--orders", "3")
    refused = refuses("--initial bm25 is one order, but --orders is 3", "listwise", *orders)
    assert "add --orders 1" in refused.err
    model = ("-m", "fake:random,noise=0,malformed=0")  # changes nothing
    ran("listwise", *model, "--initial", "bm25", "--orders", "1", "--passes", "1", "-o", "staged")
    ran("listwise", "-m", "bm25", "-o", "alone")
    staged, alone = (Path(name, "rankings", "neutral.run").read_text() for name in ("staged", "alone"))
    assert staged == alone
    assert kept("manifest", "staged")["settings"]["first_stage"].startswith("bm25 k1=1.2")
    ran("runs", "check", "staged")


def test_an_index_that_cannot_be_kept_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    monkeypatch.setenv("LLMFAIR_CACHE_DIR", "file")
    found = llmfair("listwise", "-m", "bm25")
    assert found.code == 2 and "cannot be made" in found.err and "LLMFAIR_CACHE_DIR" in found.err


@pytest.mark.parametrize(
    "asked",
    [
        ("-m", "bm25"),
        ("--initial", "bm25", "--orders", "1", "--passes", "1", "-m", "fake:biased,malformed=0"),
    ],
)
def test_queries_in_which_it_finds_nothing_are_counted(asked: tuple[str, ...]) -> None:
    warn.cache_clear()  # it is said once in a process
    queries = {f"q{q}": f"Title {q}" if q < 4 else f"Topic {q}" for q in range(6)}
    some = write_folder(Path("some"), balanced(6, 4, 4), queries=queries)
    found = llmfair("listwise", "-d", some, *asked, "-o", "run")
    told = "bm25 finds nothing in 2 of 6 queries (q4, q5): no word of theirs stands in any candidate"
    assert found.code == 0 and f"Warning: {told}" in found.err and f"  {told}" in found.out
    assert told in kept("manifest", "run")["warnings"][0]
    ran("runs", "check", "./run")
    none = write_folder(Path("none"), balanced(6, 4, 4))
    refused = llmfair("listwise", "-d", none, *asked, "-o", "nothing")
    assert refused.code == 2 and not Path("nothing").exists()
    assert refused.err.startswith(
        "Error: bm25 finds nothing: no query shares a word with any of its candidates.\n"
    )
    assert "Warning" not in llmfair("listwise", "-n", "3", *asked).err


def test_a_run_is_cross_fitted_and_the_same_again() -> None:
    first = ran("listwise", "-m", "deltr", "--json")
    run = only_run()
    identity = kept("manifest", run)["settings"]["identity"]
    assert identity.startswith("deltr gamma=500 gradient=exact standardize=columns steps=3000 rate=0.001 ")
    assert "folds=5" in identity and "BM25(query, title)" in identity and "ln length" in identity
    assert kept("manifest", run)["calls"] == 0
    values = [row for row in table(run / "per_query.csv") if row["measure"] == "nDCG@20"]
    mean = {
        condition: sum(float(row["value"]) for row in values if row["condition"] == condition) / 8
        for condition in ("neutral", "initial")
    }
    assert mean["neutral"] > mean["initial"] + 0.1, "it ranks better than a random order"
    assert llmfair("listwise", "-m", "deltr", "--json", "--fresh").out == first.out
    ran("runs", "check", run)


def test_some_queries_are_ranked_as_in_a_run_of_all() -> None:
    ran("listwise", "-m", "deltr", "-o", "all")
    ran("listwise", "-m", "deltr", "-n", "2", "-o", "two")
    everything, two = (Path(r, "rankings", "neutral.run").read_text().splitlines() for r in ("all", "two"))
    assert len(two) == 80 and {*two} < {*everything}


def test_what_cannot_be_learnt_from_is_refused() -> None:
    refused = refuses(
        "deltr learns from judged queries, of which this has 1",
        "listwise", "-d", write_folder(Path("one"), balanced(1, 4, 4)), "-m", "deltr",
    )  # fmt: skip
    assert "no list is ranked by a model that saw its own" in refused.err
    refuses("deltr compares two groups", "rag", "--retriever", "deltr")
    refuses("deltr: gamma cannot be '-1'", "listwise", "-m", "deltr:gamma=-1")


def test_data_with_lists_teach_by_those_and_others_by_what_is_found() -> None:
    sample = load_dataset("refine-sample")
    own = [sample.candidates(query) for query in sample.queries]
    assert training_lists(sample) == training_lists(Collection(sample)) == own
    ran("refine", "--rerank", "deltr", "-o", "refined")
    assert kept("manifest", "refined")["settings"]["reranker"].startswith("deltr gamma=500")

    folder = Path("positive")
    write_folder(folder, balanced(3, 4, 4), queries={f"q{q}": "topic" for q in range(3)})
    lines = [json.loads(line) for line in (folder / "docs.jsonl").read_text().splitlines()]
    write(folder / "docs.jsonl", (json.dumps(line | {"text": "a topic"}) for line in lines))
    judged = (folder / "qrels.txt").read_text().splitlines()
    write(folder / "qrels.txt", (line for line in judged if line.endswith(" 1")))
    dataset = load_dataset(str(folder))
    lists = training_lists(dataset)
    assert [len(one.documents) for one in lists] == [24] * 3, "unjudged documents are found too"
    assert [sum(one.relevance.get(doc_id, 0) for doc_id in one.doc_ids) for one in lists] == [4] * 3
    assert training_lists(Collection(dataset)) == lists
