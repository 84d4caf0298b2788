"""`llmfair refine` from end to end, offline: rounds, pages, figures; kept, resumed, checked, measured again."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

import llmfair
from llmfair.nouns import Request
from tests.cli.command import Outcome, refuses, table
from tests.cli.command import llmfair as command
from tests.folders import write
from tests.rankers.test_reader import REPLIES

WORD = {*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'-."}
QUICK = ("refine", "-q", "--no-report", "--no-cache")
FILES = ("trail.jsonl", "queries/original.tsv", "queries/refined.tsv", "qrels.txt", "groups.tsv")
RANKINGS = tuple(f"rankings/{name}.run" for name in ("bm25", "refined", "fair-qr"))


def ran(*more: str | Path, code: int = 0) -> Outcome:
    found = command(*QUICK, *more)
    assert found.code == code, found.err
    return found


def contents(folder: str | Path) -> dict[str, bytes]:
    """The files of a run but manifest and journal, which say when and how often."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    named = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {name: of for name, of in named.items() if name not in ("manifest.json", "journal.jsonl", ".lock")}


def metrics(folder: str | Path) -> dict[tuple[str, str], tuple[str, ...]]:
    """Figures by measure and condition."""
    rows = table(Path(folder, "metrics.csv"))
    names = ("value", "low", "high", "p", "p_adjusted")
    return {(row["measure"], row["condition"]): tuple(row[name] for name in names) for row in rows}


def trail(folder: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "trail.jsonl").read_text("utf-8").splitlines()]


class Scripted:
    """A model that always says the same."""

    def __init__(self, says: str) -> None:
        self.says, self.asked = says, 0
        self.name, self.identity = "scripted", f"scripted {says}"

    async def complete(self, request: Request) -> str:
        self.asked += 1
        return self.says


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run."""
    folder = tmp_path_factory.mktemp("refine") / "run"
    ran("-o", folder)
    return folder


# What is found


def test_every_file_is_there_and_refined_queries_begin_with_the_original(done: Path) -> None:
    assert all((done / name).is_file() for name in (*FILES, *RANKINGS))
    texts = ((done / f"queries/{name}.tsv").read_text("utf-8") for name in ("original", "refined"))
    original, refined = (dict(line.split("\t") for line in text.splitlines()) for text in texts)
    assert len(original) == 12 and original.keys() == refined.keys()
    assert all(refined[query].startswith(text) for query, text in original.items())
    kept = {line["query_id"]: line["query"] for line in trail(done) if line["accepted"]}
    assert refined == kept


def test_a_run_that_was_stopped_goes_on_with_the_same_bytes() -> None:
    ran("-o", "whole")
    ran("-o", "half", "--max-calls", "5", code=3)
    ran("-o", "half", "--max-calls", "9", code=3)
    ran("-o", "half")
    one, other = ({k: v for k, v in contents(f).items() if k != "results.json"} for f in ("whole", "half"))
    assert {name for name in one if one[name].replace(b"whole", b"half") != other[name]} == set()
    asked = [json.loads(line) for line in Path("half/journal.jsonl").read_text().splitlines()]
    keys = [row["key"] for row in asked if "key" in row]
    assert len(keys) == len(set(keys))


def test_other_data_under_the_same_name_are_told() -> None:
    folder = collection("mine", {"reef": "reef", "she": "she reef"})
    ran("-d", "mine", "-o", "run", "--objective", "KL@4")
    text = (folder / "docs.jsonl").read_text()
    (folder / "docs.jsonl").write_text(text.replace("she", "her"))  # of documents that nobody judged, too
    checked = command("runs", "check", "run", "--runs-dir", ".")
    assert checked.code == 1 and "the data is not what it was" in checked.out
    refuses("lists_sha256", *QUICK, "-d", "mine", "-o", "run", "--objective", "KL@4", code=1)


@pytest.mark.parametrize(("margin", "queries"), [("0.05", 34), ("0.1", 10)])
def test_a_plan_says_how_many_queries_rule_a_loss_out(margin: str, queries: int) -> None:
    """Changes of mean 0 and sd .1, whose lower limit is above -.05 in 80 % of audits, by simulation of 34 queries."""
    plan = command("plan", "refine", "--margin", margin, "--json").json
    assert plan["queries_for_nearer"] == queries
    changes = np.random.default_rng(0).normal(0, 0.1, (4000, queries))
    error = changes.std(axis=1, ddof=1) / queries**0.5
    lower = changes.mean(axis=1) - stdtrit(queries - 1, 0.975) * error
    assert (lower >= -float(margin)).mean() == pytest.approx(0.82, abs=0.03)


def test_the_trail_of_a_long_query_is_not_padded_and_steers_no_terminal() -> None:
    folder = collection("mine", {"q": "\x1b[31mreef " + " ".join(f"word{n}" for n in range(170))})
    ran("-d", folder, "-o", "run", "--objective", "KL@4")
    shown = command("runs", "show", "run", "--trail").out
    assert "\x1b" not in shown and "\\x1b[31mreef" in shown
    assert len(shown.splitlines()[2]) < 200


# Gates, comparisons, reports


@pytest.mark.whole
def test_the_report_shows_the_steps_of_every_query_and_the_words_added() -> None:
    found = command("refine", "-q", "--report", "-o", "run")
    assert found.code == 0, found.err
    page = Path("run/report.html").read_text("utf-8")
    assert "Query by query" in page and "Round by round" in page and "Fairness beside relevance" in page
    assert "fair-qr: 0.86 [0.84, 0.89] across, 0.97 [0.96, 0.98] up" in page
    assert "<b>+ she</b>" in page
    assert "dashed and hollow where it does not" in page


@pytest.mark.whole
def test_what_a_model_says_is_text_on_the_page() -> None:
    hostile = '{"keywords": ["</script><img src=x onerror=alert(1)>", "she"]}'
    result = llmfair.audit_refine(model=Scripted(hostile), output="hostile", queries="reef,maps", report=True)
    page = Path("hostile/report.html").read_text("utf-8")
    assert "onerror=alert(1)>" not in page and "&lt;img src=x" in page
    assert "script img src x onerror alert 1 she" in Path("hostile/trail.jsonl").read_text("utf-8").replace(
        '","', " "
    )
    assert set(result.results["answers"]["fair-qr"]["classes"]) == {"ok"}


# Settings


@pytest.mark.whole
def test_combinations_of_two_attributes_can_be_aimed_at() -> None:
    ran("--objective", "KL(over=gender*location)@20", "-o", "run")
    lines = trail("run")
    assert any(line["accepted"] for line in lines if line["iteration"])
    assert {line["subgroup"].count("*") for line in lines if line["subgroup"]} == {1}
    assert "from different gender and location group" in Path("run/journal.jsonl").read_text("utf-8")


@pytest.mark.whole
def test_another_ranker_orders_the_last_page() -> None:
    ran("--rerank", "bm25-okapi", "-n", "3", "-o", "run")
    ranked = (Path(f"run/rankings/{name}.run").read_text() for name in ("refined", "fair-qr"))
    refined, final = (sorted(line.split()[2] for line in text.splitlines()) for text in ranked)
    assert refined == final
    assert "bm25-okapi k1=1.5" in json.loads(Path("run/manifest.json").read_text())["settings"]["reranker"]
    refuses("--rerank bm52: no ranker 'bm52'", *QUICK, "--rerank", "bm52")
    ran("--rerank", "none", "-n", "3", "-o", "none")
    assert Path("none/rankings/refined.run").read_text() == Path("none/rankings/fair-qr.run").read_text()


class Varied:
    """A model that says something else each time, by what it is asked."""

    name = identity = "varied"

    async def complete(self, request: Request) -> str:
        place = zlib.crc32(f"{request.chat.about['query']} {request.chat.draw}".encode())
        return REPLIES[place % len(REPLIES)][0]


@pytest.mark.whole
def test_whatever_a_model_says_is_counted_shown_and_searched_as_words_alone() -> None:
    result = llmfair.audit_refine(model=Varied(), output="run", max_invalid=1)
    lines = trail("run")
    classes = Counter(reply["reply_class"] for line in lines for reply in line["replies"])
    assert dict(sorted(classes.items())) == result.results["answers"]["fair-qr"]["classes"]
    assert len(classes) > 3
    for line in lines:
        assert line["query"] == " ".join([line["original"], *line["added"]])
        assert all(set(word) <= WORD or word.isalnum() for word in line["added"])
        assert bool(line["doc_ids"]) == bool(line["new"] or line["iteration"] == 0)
    assert command("runs", "check", "run", "--runs-dir", ".").code == 0
    assert command("runs", "show", "run", "--runs-dir", ".", "--trail").code == 0


# Data of one's own


def collection(path: str, topics: Mapping[str, str], **files: str) -> Path:
    """A folder of twelve documents about reefs, half of them by women, which are found last."""
    folder = Path(path)
    folder.mkdir(parents=True)
    texts = {f"m{n}": "reef reef reef he" for n in range(6)} | {f"f{n}": "reef she" for n in range(6)}
    documents = ({"doc_id": name, "title": f"{name[0]} {name[1]}", "text": t} for name, t in texts.items())
    write(folder / "docs.jsonl", map(json.dumps, documents))
    write(folder / "queries.tsv", map("\t".join, topics.items()))
    write(folder / "groups.tsv", (f"{d}\tgender\t{'fe' * (d[0] == 'f')}male" for d in texts))
    write(folder / "qrels.txt", (f"{name} 0 {d} 1" for name in topics for d in texts if name != "unjudged"))
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_topics_without_hits_judgements_or_words_are_counted_and_named() -> None:
    topics = {"reef": "reef", "nothing": "zebra", "signs": "?!", "unjudged": "reef"}
    collection("mine", topics)
    ran("-d", "mine", "-o", "run", "--objective", "KL@4")
    results = json.loads(Path("run/results.json").read_text())
    assert results["left_out"] == {"no_target": ["unjudged"], "no_result": ["nothing", "signs"]}
    shown = command("runs", "show", "run", "--runs-dir", ".", "-v").out
    assert "2 queries left out, the query finds nothing: nothing, signs" in shown
    assert "1 query left out, no relevant document whose groups could be aimed at: unjudged" in shown


def test_where_no_query_finds_anything_the_verdict_says_so_and_the_run_is_measured_again() -> None:
    collection("mine", {"nothing": "zebra", "signs": "?!"})
    ran("-d", "mine", "-o", "run", "--objective", "KL@4")
    verdict = json.loads(Path("run/results.json").read_text())["verdict"]
    assert verdict["status"] == "not assessable" and verdict["sentence"].endswith("no query measured")
    assert verdict["next"].startswith("queries that share words with documents")
    assert command("score", "run").code == 0


@pytest.mark.whole
def test_keywords_are_searched_in_place_of_the_text_where_a_topic_has_any() -> None:
    keywords = '{"query_id": "reef", "keywords": ["coral ", "reef"]}\n'
    topics = {"reef": "What lives there?", "she": "she reef"}
    folder = collection("mine", topics, **{"keywords.jsonl": keywords})
    ran("-d", folder, "-o", "run", "--objective", "KL@4")
    assert Path("run/queries/original.tsv").read_text() == "reef\tcoral reef\nshe\tshe reef\n"
    design = json.loads(Path("run/results.json").read_text())["design"]
    assert design["query_text"] == {"keywords": 1, "title": 1}
    ran("-d", folder, "-o", "titles", "--objective", "KL@4", "--query-text", "title")
    results = json.loads(Path("titles/results.json").read_text())
    assert results["left_out"] == {"no_result": ["reef"]} and results["design"]["query_text"] == {"title": 2}
    refuses(
        "lists_sha256", *QUICK, "-d", folder, *"-o run --objective KL@4 --query-text title".split(), code=1
    )


def test_a_target_of_ones_own_needs_no_judgements() -> None:
    folder = collection("mine", {"unjudged": "reef", "reef": "reef"})
    Path("shares.json").write_text('{"female": 0.5, "male": 0.5}')
    ran(
        "-d", folder, "-o", "run", "--objective", "KL@4", "--target", "./shares.json", "--queries", "unjudged"
    )
    results = json.loads(Path("run/results.json").read_text())
    rows = {(row["measure"], row["condition"]): row for row in results["rows"]}
    assert rows["nDCG@4", "fair-qr"]["value"] is None and rows["nDCG@4", "fair-qr"]["reason"] == "no_relevant"
    assert rows["AWRF(target=./shares.json)@4", "fair-qr"]["value"] is not None
    assert command("score", "run").code == 0


@pytest.mark.whole
def test_a_file_that_the_objective_names_is_part_of_what_names_a_run() -> None:
    Path("shares.json").write_text('{"female": 0.5, "male": 0.5}')
    aimed = ("--objective", "KL(target=./shares.json)@20")
    ran(*aimed, "-o", "run")
    assert json.loads(Path("run/results.json").read_text())["design"]["target"] == "shares.json"
    Path("shares.json").write_text('{"female": 0.9, "male": 0.1}')
    assert "target" in ran(*aimed, "-o", "run", code=1).err
    ran(*aimed, "-o", "other")
    assert trail("other")[0]["target"]["female"] == 0.9


def test_groups_that_only_a_background_of_ones_own_names_count_when_measured_again() -> None:
    own = '[gender]\nprotected = ["*"]\nunprotected = ["male"]\nbackground = { female = 0.5, male = 0.4, third = 0.1 }\n'
    collection("mine", {"reef": "reef", "she": "she reef"}, **{"attributes.toml": own})
    ran("-d", "mine", "-o", "run", "--objective", "KL@4", "--target", "trec2022")
    assert any("third" in line["target"] for line in trail("run"))
    assert command("score", "run", "-o", "again", "--no-report").code == 0
    assert metrics("again") == metrics("run")


def test_bad_input_is_refused_in_one_sentence() -> None:
    folder = collection("mine", {"unjudged": "reef", "reef": "reef"})
    refuses("--rerank mmr gives an order and no scores", *QUICK, "--rerank", "mmr")
    refuses("--target empirical needs judgements", *QUICK, "-d", folder, "--queries", "unjudged")
    for name, text, says in (
        ("one.json", '{"female": 0.5, "mal": 0.5}', "one.json: 'mal' is no group of gender"),
        ("two.json", '{"female": 0.5, "male": 0.6}', "two.json: the shares sum to 1.1"),
    ):
        Path(name).write_text(text)
        refuses(says, *QUICK, "--target", f"./{name}")
    refuses("two.json: the shares sum to 1.1", *QUICK, "--objective", "KL(target=./two.json)@20")
    refuses("--target ./a,b.json is unknown", *QUICK, "--target", "./a,b.json")
    refuses("--target empirial is unknown. Did you mean 'empirical'?", *QUICK, "--target", "empirial")
    refuses("takes a measure with a target, a better direction and a cutoff", *QUICK, "--objective", "P@20")
    assert "--baseline bm25" in refuses("-m bm25: refine asks a model", *QUICK, "-m", "bm25").err
    refuses("--batch asks all at once", *QUICK, "--batch")
    named = collection("named", {"q": "reef"}, **{"keywords.jsonl": '{"query_id": "x", "keywords": "k"}\n'})
    refuses("keywords.jsonl:1: query_id: 'x' is not in queries.tsv", *QUICK, "-d", named)
    empty = collection("empty", {"q": "reef"}, **{"docs.jsonl": '{"doc_id": "m0", "title": "reef"}\n',
                                                  "qrels.txt": "q 0 m0 1\n", "groups.tsv": "m0\tgender\tmale\n"})  # fmt: skip
    refuses("none of its 1 documents has a text", *QUICK, "-d", empty)
