"""`llmfair refine --baseline`: rankers beside the loop, each what `llmfair rerank` makes of the run's first stage."""

from __future__ import annotations

import csv
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import llmfair
from llmfair import checkpoints
from tests.audits.refine.test_refine import QUICK, Scripted, collection, contents, ran
from tests.cli.command import llmfair as command
from tests.cli.command import ran as done_well
from tests.cli.command import refuses

ASK_NOBODY = {"mmr": "mmr", "greedy": "greedy", "fair-star": "fair-star", "deltr": "deltr:steps=50"}
METHODS = [word for name, spec in ASK_NOBODY.items() for word in ("--baseline", f"{name}={spec}")]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run with baselines."""
    folder = tmp_path_factory.mktemp("refine") / "run"
    ran(*METHODS, "-o", folder)
    return folder


def results(folder: str | Path) -> Any:
    return json.loads(Path(folder, "results.json").read_text())


def values(folder: str | Path) -> dict[tuple[str, str], dict[str, float]]:
    """The queries' own values by measure and method."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in csv.DictReader(Path(folder, "per_query.csv").read_text().splitlines()):
        if row["value"]:
            found.setdefault((row["measure"], row["condition"]), {})[row["query_id"]] = float(row["value"])
    return found


@pytest.mark.parametrize("name", ASK_NOBODY)
def test_a_baseline_is_what_rerank_makes_of_the_first_stage(done: Path, name: str) -> None:
    done_well(
        "rerank",
        done / "rankings/bm25.run",
        "--with",
        ASK_NOBODY[name],
        *"-d refine-sample -o new.run".split(),
    )
    made = Path("new.run").read_bytes()
    assert made == (done / f"rankings/{name}.run").read_bytes()
    assert made != (done / "rankings/bm25.run").read_bytes()


@pytest.mark.whole
def test_the_first_stage_goes_on_beyond_its_page_with_its_scores(done: Path) -> None:
    run = [line.split() for line in (done / "rankings/bm25.run").read_text().splitlines()]
    scores = [line.split("\t") for line in (done / "scores.tsv").read_text().splitlines()]
    assert [(q, d) for q, _, d, *_ in run] == [(q, d) for q, d, _ in scores]
    for query in {q for q, *_ in run}:
        of_query = [float(score) for q, _, score in scores if q == query]
        assert len(of_query) > 40 and of_query == sorted(of_query, reverse=True)
    ran("--depth", "30", *METHODS, "-o", "shallow")
    assert all(
        len(Path(f"shallow/rankings/{name}.run").read_text().splitlines()) == 12 * 30
        for name in ("bm25", *ASK_NOBODY)
    )
    measured = values(done)
    assert measured["AWRF@20", "bm25"] == values("shallow")["AWRF@20", "bm25"]


def test_every_page_is_measured_alike_and_says_whether_its_method_knows_the_target(done: Path) -> None:
    found = results(done)
    assert found["design"]["conditions"] == ["bm25", "refined", "fair-qr", *ASK_NOBODY]
    assert found["design"]["baselines"] == ASK_NOBODY
    known = {name: of["target_known"] for name, of in found["design"]["factors"].items()}
    assert {name for name, said in known.items() if said == "yes"} == {"refined", "fair-qr", "greedy"}
    assert found["chains"]["mmr"] == {"asked": 12, "ranked": 12}
    scored = done_well("score", done, "--json").json
    assert {row["condition"] for row in scored["rows"]} >= {*ASK_NOBODY, "fair-qr vs mmr"}
    kept = {(r["measure"], r["condition"]): r["value"] for r in found["rows"]}
    assert all(kept[r["measure"], r["condition"]] == pytest.approx(r["value"]) for r in scored["rows"])


def test_fair_qr_is_held_against_every_method_with_holm_over_all(done: Path) -> None:
    found = results(done)
    methods = ["bm25", *ASK_NOBODY]
    rows = {r["condition"]: r for r in found["rows"] if r["measure"] == "KL@20" and " vs " in r["condition"]}
    tested = [r for r in found["rows"] if " vs " in r["condition"]]
    assert {*rows} == {f"fair-qr vs {name}" for name in methods} and found["family"]["size"] == len(
        tested
    ) == 20
    measured = values(done)
    for name in methods:
        one, other = measured["KL@20", "fair-qr"], measured["KL@20", name]
        change = sum(one[query] - other[query] for query in one) / len(one)
        assert rows[f"fair-qr vs {name}"]["value"] == pytest.approx(change)
    lowest = min(tested, key=lambda row: row["p"])
    assert lowest["p_adjusted"] == pytest.approx(20 * lowest["p"])


@pytest.mark.whole
def test_a_run_with_baselines_is_continued_checked_gated_compared_and_reported(done: Path) -> None:
    ran(*METHODS, "-o", "half", "--max-calls", "9", code=3)
    assert "mmr" in results("half")["design"]["conditions"] and command("score", "half").code == 0
    ran(*METHODS, "-o", "half")
    one, other = ({k: v for k, v in contents(f).items() if k != "results.json"} for f in (done, "half"))
    assert {name for name in one if one[name].replace(b"run,", b"half,") != other[name]} <= {
        "metrics.csv",
        "per_query.csv",
    }
    assert command("runs", "check", done).code == 0
    manifest = json.loads(Path("half/manifest.json").read_text())
    manifest["settings"]["baselines"]["deltr"] = "another"
    Path("half/manifest.json").write_text(json.dumps(manifest))
    checked = command("runs", "check", "half", "--runs-dir", ".")
    assert "a baseline is not what it was at the time of the run" in checked.out + checked.err
    ran(*METHODS, "--require", "AWRF@20>=0.96", "-o", "gated")
    refused = ran(*METHODS, "--require", "AWRF@20:mmr>=0.96", "-o", "named", code=4)
    assert "AWRF@20 (mmr method)" in refused.err
    assert command("score", done, "--require", "AWRF@20>=0.96").code == 0
    ran("-m", "fake:name", "--baseline", "mmr", "-o", "other")
    compared = command("compare", done, "other", "--runs-dir", ".", "--json")
    assert compared.code == 0 and {row["condition"] for row in compared.json["rows"]} == {"fair-qr"}
    page = command("report", done, "--format", "md", "--runs-dir", ".")
    assert page.code == 0 and "fair-qr less each method, paired by query" in page.out


@pytest.mark.whole
def test_baselines_name_the_run_and_asking_for_others_costs_no_call() -> None:
    model, specs = Scripted('{"keywords": ["she", "her"]}'), ["strict=fair-star:alpha=0.01", "fair-star"]
    first = llmfair.audit_refine(model=model, report=False)
    asked = model.asked
    second = llmfair.audit_refine(model=model, report=False, baseline=specs)
    assert model.asked == asked > 0 and first.results["run"] != second.results["run"]
    assert second.results["design"]["baselines"] == {
        "greedy": "greedy",
        "strict": "fair-star:alpha=0.01",
        "fair-star": "fair-star",
    }


@pytest.mark.whole
def test_greedy_aims_at_the_target_of_the_run() -> None:
    ran(
        "--target", "trec2022", "--baseline", "greedy", "--baseline", "own=greedy:target=uniform", "-o", "run"
    )
    specs = results("run")["design"]["baselines"]
    assert specs == {"greedy": "greedy:target=trec2022", "own": "greedy:target=uniform"}  # greedy once
    for name, spec in specs.items():
        done_well("rerank", "run/rankings/bm25.run", "--with", spec, "-d", "refine-sample", "-o", "new.run")
        assert Path("new.run").read_bytes() == Path(f"run/rankings/{name}.run").read_bytes()


@pytest.mark.whole
@pytest.mark.parametrize("text", ["keywords", "title"])
def test_rankers_read_the_text_that_is_searched(text: str) -> None:
    topics = {f"q{n}": f"{n} reef" for n in range(4)}  # two of the twelve titles have such a number
    keywords = "".join(f'{{"query_id": "{name}", "keywords": ["reef", "she"]}}\n' for name in topics)
    qrels = "".join(f"{name} 0 {group}{n} 1\n" for n, name in enumerate(topics) for group in "mf")
    collection("mine", topics, **{"keywords.jsonl": keywords, "qrels.txt": qrels})
    asked = ("-d", "mine", "--query-text", text)
    rankers = {"deltr": "deltr:steps=50", "bm25-okapi": "bm25-okapi"}
    named = [word for name, spec in rankers.items() for word in ("--baseline", f"{name}={spec}")]
    ran(*asked, *named, "--objective", "KL@4", "-o", "run")
    for name, spec in rankers.items():
        done_well("rerank", "run/rankings/bm25.run", "--with", spec, *asked, "-o", "new.run")
        assert Path("new.run").read_bytes() == Path(f"run/rankings/{name}.run").read_bytes()
        done_well("rerank", "run/rankings/bm25.run", "--with", spec, "-d", "mine", "-o", "other.run")
        alike = Path("other.run").read_bytes() == Path("new.run").read_bytes()
        if name == "bm25-okapi":
            assert alike == (text == "keywords"), "keywords are read unless titles are asked for"


@pytest.mark.whole
def test_without_the_extra_what_needs_it_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checkpoints, "find_spec", lambda name: None if name == "sentence_transformers" else find_spec(name)
    )
    found = ran("--baseline", "all", "-o", "run")
    said = " ".join(found.err.split())
    for name in ("sbert", "dlf-like"):
        assert f"--baseline {name} is left out" in said
    assert said.count("pip install 'llmfair[local]'") == 2
    assert results("run")["design"]["conditions"][3:] == ["deltr", "fair-star", "mmr", "greedy"]
    assert "--baseline sbert is left out" in " ".join(
        command("runs", "show", "run", "--runs-dir", ".", "-v").out.split()
    )


def test_the_groups_name_alone_is_what_a_model_would_make_that_says_it() -> None:
    ran("--baseline", "fake:name", "-o", "beside")
    ran("-m", "fake:name", "-o", "model")
    pages = [
        [line.split()[:4] for line in Path(name).read_text().splitlines()]
        for name in ("beside/rankings/name.run", "model/rankings/fair-qr.run")
    ]
    assert pages[0] == pages[1]
    assert results("beside")["calls_made"] == 27
    scored = done_well("score", "beside", "--json").json
    assert {row["condition"] for row in scored["rows"]} >= {"name", "fair-qr vs name"}
    checked = command("runs", "check", "beside", "--runs-dir", ".")
    assert checked.code == 0, checked.err


def test_what_cannot_be_a_baseline_is_refused() -> None:
    collection("one", {"reef": "reef"})
    for says, *given in (
        ("--baseline bm52 is unknown. Did you mean 'bm25'?", "bm52"),
        ("fair-star: p cannot be '7'", "fair-star:p=7"),
        ("refined is there already", "refined=mmr"),
        ("greedy is there already", "greedy=mmr"),
        ("deltr learns from judged queries, of which this has 1", "deltr", "-d", "one"),
        ("mmr is there already", "mmr", "--baseline", "mmr:lambda=0.1"),
    ):
        refuses(says, *QUICK, "--baseline", *given)
    refuses("no condition 'mmr'", *QUICK, "--require", "AWRF@20:mmr>=0.9")


def test_lists_of_some_topics_only_do_not_keep_rankers_from_learning() -> None:
    """A judgement of 0 would give a topic a list of its own; a collection is searched all the same."""
    topics = {"reef": "reef", "she": "she reef", "he": "he reef"}
    qrels = "reef 0 f0 1\nreef 0 m0 0\nshe 0 f1 1\nhe 0 m1 1\n"
    collection("mine", topics, **{"qrels.txt": qrels})
    ran("-d", "mine", "--objective", "KL@4", "--baseline", "deltr=deltr:steps=50", "-o", "run")
    done_well("rerank", "run/rankings/bm25.run", "--with", "deltr:steps=50", "-d", "mine", "-o", "new.run")
    assert Path("new.run").read_bytes() == Path("run/rankings/deltr.run").read_bytes()


def test_what_a_ranker_says_of_its_orders_is_told() -> None:
    collection("mine", {"reef": "reef", "she": "she reef"}, **{"qrels.txt": "reef 0 f0 1\nshe 0 f1 1\n"})
    found = ran("-d", "mine", "--objective", "KL@4", "--baseline", "fair-star:p=0.9", "-o", "run")
    assert "fair-star: too few protected documents" in found.out + " ".join(results("run").get("remarks", []))
