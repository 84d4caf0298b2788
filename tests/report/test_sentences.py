"""What stands beside figures so that they are read rightly: what they cost, why an interval leans, what 1 means."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from llmfair.pages import page_of
from llmfair.report.page import LOPSIDED, Page, cost_of, read_source
from llmfair.rundir import RunDir
from tests.cli.command import ran
from tests.folders import balanced, write_folder
from tests.manifests import invocation, manifest
from tests.tuning.answered import adapter

LISTS = ("--no-repeat", "--passes", "1", "-q")
PLACES = "fake:random,order=50,noise=0.01,malformed=0"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lists = balanced(6, 6, 6)
    topics = {query: f"Title of {query}" for query in lists}  # which bm25 finds
    return write_folder(tmp_path_factory.mktemp("data") / "lists", lists, queries=topics)


def page(data: Path, *arguments: str, output: str = "run") -> Page:
    ran(*arguments, "-d", data, "-o", output)
    return page_of([read_source(RunDir(Path(output)))], 2)


@pytest.mark.whole
def test_an_interval_that_leans_is_explained_where_it_stands(data: Path) -> None:
    leaning = page(data, "listwise", *LISTS, "--conditions", "neutral")
    assert leaning.method.words[-1] == LOPSIDED
    straight = page(
        data, "listwise", *LISTS, "--conditions", "neutral", "--ci", "linear-t", output="straight"
    )
    assert LOPSIDED not in straight.method.words
    assert LOPSIDED not in page(data, "pairwise", "--pairs", "4", "-q", output="pairs").method.words
    sources = [read_source(RunDir(Path(name))) for name in ("run", "pairs")]
    assert page_of(sources, 0).method.words.count(LOPSIDED) == 1
    ran("score", "run", "--measures", "ExpRatio", "-o", "scored", "-q")
    scored = page_of([read_source(RunDir(Path("scored")))], 0)
    assert LOPSIDED in scored.method.words and scored.title.endswith(" of lists, gender")


@pytest.mark.whole
def test_what_a_run_has_cost_is_among_its_facts(data: Path) -> None:
    asked = ("pairwise", "--pairs", "4", "-q", "-m", "fake:biased")
    priced = page(data, *asked, "--price-in", "3", "--price-out", "12")
    cost = RunDir(Path("run")).read_manifest().cost
    assert cost is not None and cost > 0 and ("cost", f"{cost:,.4f}") in priced.method.facts
    shutil.copytree("run", "again")
    both = page_of([read_source(RunDir(Path(name))) for name in ("run", "again")], 0)
    assert all(f" · cost {cost:,.4f} · " in said for _, said in both.method.facts)
    free = page(data, *asked, output="free")
    assert "cost" not in dict(free.method.facts)


def test_calls_without_prices_stand_beside_the_cost() -> None:
    past = invocation(7, 0.5), invocation(3), invocation()
    assert cost_of(manifest(*past, cost=0.5)) == "0.5000, and 3 calls made without prices"
    assert cost_of(manifest(*past)) == cost_of(None) == ""


def test_what_is_said_of_places_contradicts_no_conclusion(data: Path) -> None:
    biased = "fake:biased,pairwise=-7,position=4,malformed=0"
    outside, _ = page(data, "pairwise", "--pairs", "20", "-q", "-m", biased).verdicts[:2]
    assert outside.conclusion == "outside" and "no parity" not in outside.sentence


def test_an_adapter_s_numbers_say_what_is_concluded() -> None:
    here = adapter(Path("small"))
    found = json.loads((here / "results.json").read_text("utf-8"))
    made = page_of([read_source(RunDir(here))], 0)
    assert made.title == "hf:org/model with adapter small, gender"
    for verdict, kind in zip(made.verdicts, ("relevant", "irrelevant"), strict=True):
        concluded = found["findings"]["adapter"][kind]["conclusion"]
        assert verdict.sentence.startswith(f"{concluded.replace('_', ' ')}; base → adapter ")


@pytest.mark.whole
def test_models_that_control_for_order_alike_or_not_share_a_figure(data: Path) -> None:
    """bm25 asks in no windows, so its ratio is the plain one and goes by another name."""
    page(data, "listwise", *LISTS, "--conditions", "neutral", output="asked")
    page(data, "listwise", "-m", "bm25", "-q", output="bm25")
    both = page_of([read_source(RunDir(Path(name))) for name in ("asked", "bm25")], 0)
    drawn = next(plot for plot in both.plots if plot.title == "Utility and exposure")
    assert "fake:biased" in drawn.numbers and "bm25" in drawn.numbers
