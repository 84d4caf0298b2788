"""Rankers that ask no model: BM25, DELTR, MMR, FA*IR and greedy, from end to end, and what shared words can tell on real lists."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from llmfair import registry
from llmfair.audits.lists import training_lists
from llmfair.audits.listwise import LISTWISE
from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.subject import Subject
from llmfair.datasets.base import load_dataset
from llmfair.datasets.collection import Collection
from llmfair.errors import warn
from llmfair.io.files import plain
from llmfair.stats.power import attainable_ratio, by_windows
from tests.cli.command import kept, llmfair, only_run, ran, refuses, table
from tests.finished import audit
from tests.folders import balanced, write, write_folder
from tests.joined import write_joined
from tests.shared import realdata

pytestmark = pytest.mark.whole


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
    assert (
        first.json["design"] | {"orders": 1, "repeats": 1, "calls": 0, "window": None} == first.json["design"]
    )
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


def test_the_reach_is_that_of_all_orders() -> None:
    settings = ListwiseSettings.make(dataset="sample", attribute="location")
    found = plain(audit(LISTWISE.design(settings, Subject("bm25"))).results)["reach"]
    design = make_design(settings, Subject("bm25"))
    shapes = [items.sizes for items in design.lists]
    ends = attainable_ratio(shapes, by_windows(lambda n: [(0, n)], 1), 1, rng=np.random.default_rng(0))
    low, high = ends.low, ends.high
    assert found == {
        "ExpRatio": {"low": pytest.approx(low, rel=1e-12), "high": pytest.approx(high, rel=1e-12)},
        "P@20": {"high": 1.0},
    }


def test_what_it_cannot_honour_is_refused() -> None:
    refuses("bm25 reads no prompt", "listwise", "-m", "bm25", "--conditions", "neutral,female")
    ran("listwise", "-m", "bm25", "--conditions", "neutral", "-q")
    refuses("Did you mean 'bm25'?", "listwise", "-m", "bm52")


def test_beside_a_model_each_is_asked_in_its_own_way() -> None:
    both = ("listwise", "-n", "2", "--orders", "2", "--passes", "1", "-m", "bm25", "-m", "fake:oracle")
    runs = llmfair(*both, "--json").json["runs"]
    assert [(run["model"], run["design"]["orders"]) for run in runs] == [("bm25", 1), ("fake:oracle", 2)]


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
    refused = refuses(
        "--initial bm25 is one order, but --orders is 3", "listwise", "--initial", "bm25", "--orders", "3"
    )
    assert "add --orders 1" in refused.err
    model = ("-m", "fake:random,noise=0,malformed=0")  # changes nothing
    ran("listwise", *model, "--initial", "bm25", "--orders", "1", "--passes", "1", "-o", "staged")
    ran("listwise", "-m", "bm25", "-o", "alone")
    staged, alone = (Path(name, "rankings", "neutral.run").read_text() for name in ("staged", "alone"))
    assert staged == alone
    assert kept("manifest", "staged")["settings"]["first_stage"].startswith("bm25 k1=1.2")
    ran("runs", "check", "staged")


def test_doctor_lists_it() -> None:
    known = registry.names("ranker")
    assert known[:2] == ["bm25", "bm25-okapi"]
    assert f"rankers that ask no model: {', '.join(known)}" in " ".join(llmfair("doctor").out.split())
    assert llmfair("doctor", "--json").json["rankers"] == known


def test_an_index_that_cannot_be_kept_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    monkeypatch.setenv("LLMFAIR_CACHE_DIR", "file")
    found = llmfair("listwise", "-m", "bm25")
    assert found.code == 2 and "cannot be made" in found.err and "LLMFAIR_CACHE_DIR" in found.err


def ndcg(run: str, condition: str = "neutral") -> dict[str, float]:
    rows = [row for row in table(Path(run, "per_query.csv")) if row["measure"] == "nDCG@20"]
    return {row["query_id"]: float(row["value"]) for row in rows if row["condition"] == condition}


def paired(one: dict[str, float], other: dict[str, float]) -> tuple[float, float, float]:
    """The mean difference over queries with its 95 % t interval."""
    assert one.keys() == other.keys()
    differences = np.array([one[query_id] - other[query_id] for query_id in one])
    n = len(differences)
    half = float(stats.t.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n))
    mean = float(differences.mean())
    return mean, mean - half, mean + half


def bm25_against_random(dataset: str | Path) -> tuple[float, float, float]:
    shared = ("-d", str(dataset), "--measures", "nDCG@20", "-q")
    ran("listwise", "-m", "bm25", "-o", "bm25", *shared)
    random = ("-m", "fake:random", "--passes", "1", "--conditions", "neutral", "--no-repeat", "-o", "random")
    ran("listwise", *random, *shared)
    return paired(ndcg("bm25"), ndcg("random"))


def test_on_the_sample_it_beats_random() -> None:
    """In each topic 12 of the 20 relevant sentences name the field: what BM25 finds is relevant, and enough."""
    mean, low, high = bm25_against_random("sample")
    assert 0 < low < mean < high
    rows = [line.split("\t") for line in Path("bm25/scores.tsv").read_text("utf-8").splitlines()]
    qrels = {
        tuple(line.split()[::2]): line.split()[3] for line in Path("bm25/qrels.txt").read_text().splitlines()
    }
    matched = [qrels[query_id, doc_id] for query_id, doc_id, score in rows if float(score) > 0]
    assert matched == ["1"] * 12 * 8


def test_on_real_titles_names_of_topics_say_nothing() -> None:
    """One of the 22 names (Islam) shares a word with a title of its list, so BM25 is the order it was given."""
    write_joined(Path("joined"))
    ran("listwise", "-d", "joined", "-m", "bm25", "-o", "bm25", "-q")
    mean, low, high = paired(ndcg("bm25"), ndcg("bm25", "initial"))
    assert abs(mean) < 0.01 and low <= 0 <= high
    rows = [line.split("\t") for line in Path("bm25/scores.tsv").read_text("utf-8").splitlines()]
    assert {query_id for query_id, _, score in rows if float(score) > 0} == {"1343"}


def test_on_real_titles_keywords_of_topics_beat_random() -> None:
    """TREC's topics have keywords; they were taken from relevant articles, so this is easier than a user's query."""
    write_joined(Path("joined"))
    topics = realdata("trec_fair_2022") / "topics.jsonl"
    known = {str(t["id"]): t for t in map(json.loads, topics.read_text("utf-8").splitlines())}
    names = [line.split("\t")[0] for line in Path("joined/queries.tsv").read_text("utf-8").splitlines()]
    write(Path("joined/queries.tsv"), (f"{name}\t{' '.join(known[name]['keywords'])}" for name in names))
    mean, low, _ = bm25_against_random("joined")
    assert mean > 0.05 and low > 0


@pytest.mark.parametrize(
    "asked",
    [
        ("-m", "bm25"),
        ("--initial", "bm25", "--orders", "1", "--passes", "1", "-m", "fake:biased,malformed=0"),
    ],
)
def test_queries_in_which_it_finds_nothing_are_counted_and_nothing_at_all_is_refused(
    asked: tuple[str, ...],
) -> None:
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
    everything, two = (
        Path(run, "rankings", "neutral.run").read_text().splitlines() for run in ("all", "two")
    )
    assert len(two) == 80 and {*two} < {*everything}


def test_what_no_item_has_is_said_and_what_cannot_be_learnt_from_refused() -> None:
    folder = write_folder(Path("bare"), balanced(6, 4, 4), queries={f"q{q}": f"Title {q}" for q in range(6)})
    found = ran("listwise", "-d", folder, "-m", "deltr", "-o", "run")
    told = (
        "deltr learns without BM25(query, text), predicted quality, ln sitelinks, relative page views: no item "
        "has any"
    )
    assert told in found.err and told in kept("manifest", "run")["warnings"]
    refused = refuses(
        "deltr learns from judged queries, of which this has 1",
        "listwise", "-d", write_folder(Path("one"), balanced(1, 4, 4)), "-m", "deltr",
    )  # fmt: skip
    assert "no list is ranked by a model that saw its own" in refused.err
    refuses("deltr compares two groups", "rag", "--retriever", "deltr")
    refuses("deltr: gamma cannot be '-1'", "listwise", "-m", "deltr:gamma=-1")


def test_a_run_of_the_same_lists_is_reranked_alike() -> None:
    ran("listwise", "-m", "deltr", "-o", "own")
    ran("listwise", "-m", "bm25", "-o", "other")
    run, own = Path("other/rankings/neutral.run"), Path("own/rankings/neutral.run")
    ran("rerank", run, "--with", "deltr", "-d", "sample", "-o", "new.run")

    def scored(path: Path) -> list[tuple[str, float]]:
        """The score that DELTR gave each document, in the order of a run."""
        rows = [line.split("\t") for line in Path("own/scores.tsv").read_text("utf-8").splitlines()]
        score = {(row[0], row[1]): float(row[2]) for row in rows}
        lines = [line.split() for line in path.read_text("utf-8").splitlines()]
        return [(line[0], score[line[0], line[2]]) for line in lines]

    assert scored(Path("new.run")) == scored(own) != scored(run), "equal scores keep the order they came in"
    refuses(
        "deltr learns from judged queries",
        "rerank", run, "--with", "deltr", "--groups", "other/groups.tsv", "-o", "no.run",
    )  # fmt: skip


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


def test_what_cannot_be_done_is_said() -> None:
    unknown = "greedy: target cannot be 'uniforn'. Did you mean 'uniform'?"
    refuses(unknown, "listwise", "-m", "greedy:target=uniforn")
    refuses("mmr gives an order and no scores", "rag", "--retriever", "mmr")
    refuses("mmr gives an order and no scores", "refine", "--rerank", "mmr")
    Path("greedy.json").write_text('{"femal": 1}')
    refuses("'femal' is no group of gender.", "listwise", "-m", "greedy:target=./greedy.json")
