"""`llmfair refine --baseline`: rankers beside the loop, each what `llmfair rerank` makes of the run's first stage."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import llmfair
from llmfair import checkpoints
from tests import models
from tests.audits.refine.test_refine import QUICK, Scripted, collection, contents, ran
from tests.cli.command import llmfair as command
from tests.cli.command import ran as well
from tests.cli.command import refuses, table
from tests.models import one_thread as one_thread

ASK_NOBODY = {"mmr": "mmr", "greedy": "greedy", "fair-star": "fair-star", "deltr": "deltr:steps=50"}
ENCODED = {"sbert": "dense:dense", "dlf-like": "dlf-like:encoder=dense,epochs=2"}


def flags(specs: dict[str, str]) -> list[str]:
    return [word for name, spec in specs.items() for word in ("--baseline", f"{name}={spec}")]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run with baselines."""
    folder = tmp_path_factory.mktemp("refine") / "run"
    ran(*flags(ASK_NOBODY), "-o", folder)
    return folder


def results(folder: str | Path) -> Any:
    return json.loads(Path(folder, "results.json").read_text())


def reranked(run: Path, spec: str, *data: str) -> bytes:
    """What `llmfair rerank` makes of the first stage of a run."""
    well("rerank", run / "rankings/bm25.run", "--with", spec, *data, "-o", "new.run")
    return Path("new.run").read_bytes()


@pytest.mark.parametrize("name", ASK_NOBODY)
def test_a_baseline_is_what_rerank_makes_of_the_first_stage(done: Path, name: str) -> None:
    made = reranked(done, ASK_NOBODY[name], "-d", "refine-sample")
    assert made == (done / f"rankings/{name}.run").read_bytes()
    assert made != (done / "rankings/bm25.run").read_bytes()


@pytest.mark.whole
def test_so_is_one_with_an_encoder_which_learns_of_the_target_from_other_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.needs_encoders()
    models.encoder(Path("dense"))
    ran(*flags(ENCODED), "--rerank", "dense:dense", "--depth", "60", "-n", "6", "-o", "run")
    for name, spec in ENCODED.items():
        made = reranked(Path("run"), spec, "-d", "refine-sample")
        first, ordered = (Path(f"run/rankings/{of}.run").read_bytes() for of in ("bm25", name))
        assert made == ordered != first
    sources = {name: of["target_known"] for name, of in results("run")["design"]["factors"].items()}
    assert (sources["dlf-like"], sources["sbert"]) == ("training topics", "no")
    refined, final = (Path(f"run/rankings/{name}.run").read_text().split() for name in ("refined", "fair-qr"))
    assert refined != final and {*refined[2::6]} == {*final[2::6]}, "an encoder orders the last page"


def test_every_page_is_measured_alike_and_says_whether_its_method_knows_the_target(done: Path) -> None:
    document = results(done)
    assert document["design"]["conditions"] == ["bm25", "refined", "fair-qr", *ASK_NOBODY]
    assert document["design"]["baselines"] == ASK_NOBODY
    factors = document["design"]["factors"]
    aiming = {name for name, of in factors.items() if of["target_known"] == "yes"}
    assert aiming == {"refined", "fair-qr", "greedy"}
    assert document["chains"]["mmr"] == {"asked": 12, "ranked": 12}
    scored = well("score", done, "--json").json
    assert {row["condition"] for row in scored["rows"]} >= {*ASK_NOBODY, "fair-qr vs mmr"}
    before = {(row["measure"], row["condition"]): row["value"] for row in document["rows"]}
    assert all(before[r["measure"], r["condition"]] == pytest.approx(r["value"]) for r in scored["rows"])


def test_fair_qr_is_held_against_every_method_with_holm_over_all(done: Path) -> None:
    tested = [row for row in results(done)["rows"] if " vs " in row["condition"]]
    assert results(done)["family"]["size"] == len(tested) == 20
    values: dict[str, dict[str, float]] = {}
    for row in table(done / "per_query.csv"):
        if row["measure"] == "KL@20":
            values.setdefault(row["condition"], {})[row["query_id"]] = float(row["value"])
    changes = {row["condition"]: row["value"] for row in tested if row["measure"] == "KL@20"}
    assert len(changes) == 5
    for name in ("bm25", *ASK_NOBODY):
        change = sum(of - values[name][query] for query, of in values["fair-qr"].items()) / 12
        assert changes[f"fair-qr vs {name}"] == pytest.approx(change)
    lowest = min(tested, key=lambda row: row["p"])
    assert lowest["p_adjusted"] == pytest.approx(20 * lowest["p"])


@pytest.mark.whole
def test_a_run_with_baselines_is_continued_checked_gated_and_compared(done: Path) -> None:
    methods = flags(ASK_NOBODY)
    ran(*methods, "-o", "half", "--max-calls", "9", code=3)
    ran(*methods, "-o", "half")
    one, other = ({k: v for k, v in contents(of).items() if k != "results.json"} for of in (done, "half"))
    differ = {name for name in one if one[name].replace(b"run,", b"half,") != other[name]}
    assert differ <= {"metrics.csv", "per_query.csv"}
    assert command("runs", "check", done).code == 0
    compared = well("compare", done, "half", "--runs-dir", ".", "--json").json
    assert {row["condition"] for row in compared["rows"]} == {"fair-qr"}
    assert command("score", done, "--require", "AWRF@20>=0.96").code == 0
    refused = command("score", done, "--require", "AWRF@20:mmr>=0.96")
    assert refused.code == 4 and "AWRF@20 (mmr method)" in refused.err
    manifest = json.loads(Path("half/manifest.json").read_text())
    manifest["settings"]["baselines"]["deltr"] = "another"
    Path("half/manifest.json").write_text(json.dumps(manifest))
    checked = command("runs", "check", "half", "--runs-dir", ".")
    assert "a baseline is not what it was at the time of the run" in checked.out + checked.err


@pytest.mark.whole
def test_baselines_name_the_run_and_asking_for_others_costs_no_call() -> None:
    model, specs = Scripted('{"keywords": ["she", "her"]}'), ["strict=fair-star:alpha=0.01", "fair-star"]
    first = llmfair.audit_refine(model=model, report=False)
    asked = model.asked
    second = llmfair.audit_refine(model=model, report=False, baseline=specs)
    assert model.asked == asked > 0 and first.results["run"] != second.results["run"]
    named = {"greedy": "greedy", "strict": "fair-star:alpha=0.01", "fair-star": "fair-star"}
    assert second.results["design"]["baselines"] == named


@pytest.mark.whole
def test_greedy_aims_at_the_target_of_the_run() -> None:
    ran(
        "--target", "trec2022", "--baseline", "greedy", "--baseline", "own=greedy:target=uniform", "-o", "run"
    )
    specs = results("run")["design"]["baselines"]
    assert specs == {"greedy": "greedy:target=trec2022", "own": "greedy:target=uniform"}  # greedy once
    for name, spec in specs.items():
        made = reranked(Path("run"), spec, "-d", "refine-sample")
        assert made == Path(f"run/rankings/{name}.run").read_bytes()


@pytest.mark.whole
@pytest.mark.parametrize("text", ["keywords", "title"])
def test_rankers_read_the_text_that_is_searched(text: str) -> None:
    topics = {f"q{n}": f"{n} reef" for n in range(4)}  # two of the twelve titles have such a number
    keywords = "".join(f'{{"query_id": "{name}", "keywords": ["reef", "she"]}}\n' for name in topics)
    qrels = "".join(f"{name} 0 {group}{n} 1\n" for n, name in enumerate(topics) for group in "mf")
    collection("mine", topics, **{"keywords.jsonl": keywords, "qrels.txt": qrels})
    asked = ("-d", "mine", "--query-text", text)
    rankers = {"deltr": "deltr:steps=50", "bm25-okapi": "bm25-okapi"}
    ran(*asked, *flags(rankers), "--objective", "KL@4", "-o", "run")
    for name, spec in rankers.items():
        made = Path(f"run/rankings/{name}.run").read_bytes()
        assert reranked(Path("run"), spec, *asked) == made
    alike = reranked(Path("run"), "bm25-okapi", "-d", "mine") == made
    assert alike == (text == "keywords"), "keywords are read unless titles are asked for"


@pytest.mark.whole
def test_without_the_extra_what_needs_it_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checkpoints, "find_spec", lambda name: None if name == "sentence_transformers" else find_spec(name)
    )
    says = " ".join(ran("--baseline", "all", "-o", "run").err.split())
    for name in ("sbert", "dlf-like"):
        assert f"--baseline {name} is left out" in says
    assert says.count("pip install 'llmfair[local]'") == 2
    assert results("run")["design"]["conditions"][3:] == ["deltr", "fair-star", "mmr", "greedy"]


def test_the_groups_name_alone_is_what_a_model_would_make_that_says_it() -> None:
    ran("--baseline", "fake:name", "-o", "beside")
    ran("-m", "fake:name", "-o", "model")
    paths = ("beside/rankings/name.run", "model/rankings/fair-qr.run")
    pages = [[line.split()[:4] for line in Path(name).read_text().splitlines()] for name in paths]
    assert pages[0] == pages[1]
    assert results("beside")["calls_made"] == 27
    checked = command("runs", "check", "beside", "--runs-dir", ".")
    assert checked.code == 0, checked.err


def test_what_cannot_be_a_baseline_is_refused() -> None:
    collection("one", {"reef": "reef"})
    for says, *given in (
        ("--baseline bm52: no ranker 'bm52'. Did you mean 'bm25'?", "bm52"),
        ("fair-star: p cannot be '7'", "fair-star:p=7"),
        ("refined is there already", "refined=mmr"),
        ("deltr learns from judged queries, of which this has 1", "deltr", "-d", "one"),
    ):
        refuses(says, *QUICK, "--baseline", *given)
    refuses("no condition 'mmr'", *QUICK, "--require", "AWRF@20:mmr>=0.9")
