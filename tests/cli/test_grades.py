"""Pairs of data with several relevance grades: both items of one grade, unless any are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import ran, refuses
from tests.folders import write_folder

MODEL = ("-m", "fake:oracle,noise=0.5")
PAIRS = ("pairwise", "-d", "graded", "--pairs", "20", "--conditions", "relevant", "--noise-share", "0")


@pytest.fixture(autouse=True)
def graded() -> Path:
    """Twelve queries; of 10 relevant women 8 are of grade 1 and 2 of grade 2, of 10 relevant men the other way round."""
    lists: dict[str, list[tuple[str, str | None, int]]] = {
        f"q{q}": [
            *((f"q{q}f{i}", "female", 1 + (i < 2)) for i in range(10)),
            *((f"q{q}m{i}", "male", 1 + (i < 8)) for i in range(10)),
            *((f"q{q}{sex[0]}0{i}", sex, 0) for sex in ("female", "male") for i in range(4)),
        ]
        for q in range(12)
    }
    return write_folder(Path("graded"), lists)


def odds(results: dict[str, object]) -> float:
    rows = results["rows"]
    assert isinstance(rows, list)
    (found,) = [r["value"] for r in rows if (r["measure"], r["query_id"]) == ("AdjustedOdds", "all")]
    return float(found)


@pytest.mark.whole
def test_a_ranker_that_goes_by_relevance_alone_is_not_called_unfair() -> None:
    """Which it had been: women were asked against men of a higher grade."""
    unmatched = ran(*PAIRS, *MODEL, "--grades", "any", "-o", "any", "--json").json
    assert odds(unmatched) < 0.5 and unmatched["findings"]["relevant"]["conclusion"] == "outside"
    matched = ran(*PAIRS, *MODEL, "--json").json
    assert 0.7 < odds(matched) < 1.4 and matched["findings"]["relevant"]["conclusion"] != "outside"
    refuses("(grades: None there, 'match' now)", *PAIRS, *MODEL, "-o", "any", code=1)
    found = refuses("pair items of other relevance grades", "compare", "any", matched["run"])
    assert found.err.endswith("run both with the same --grades\n")


def test_queries_without_two_items_of_a_grade_are_counted() -> None:
    lists: dict[str, list[tuple[str, str | None, int]]] = {
        f"q{q}": [(f"q{q}f", "female", 1), (f"q{q}m", "male", 2 if q else 1)] for q in range(3)
    }
    write_folder(Path("apart"), lists)
    pairs = ("pairwise", "-d", "apart", "--conditions", "relevant")
    told = ran(*pairs).out
    assert "2 queries without such pairs" in " ".join(told.split())
    planned = ran("plan", *pairs, "--json").json
    assert planned["design"]["pairs_asked"] == {"relevant": 1}
    assert ran("plan", *pairs, "--grades", "any", "--json").json["design"]["pairs_asked"] == {"relevant": 3}


@pytest.mark.whole
def test_an_adapter_is_trained_and_measured_on_pairs_of_one_grade(tmp_path: Path) -> None:
    """What the dry run says of them, without any model's weights."""
    from llmfair.settings.commands import FinetuneSettings
    from llmfair.tuning.finetune import make_tuning_design
    from tests import models

    models.needs_local()
    from tests.tuning import tiny

    base = tiny.saved(tmp_path / "model")

    for grades in ("match", "any"):
        settings = FinetuneSettings.make(dataset="graded", base_model=str(base), pairs=6, grades=grades)
        design = make_tuning_design(settings)
        relevance = {q.query_id: design.dataset.candidates(q).relevance for q in design.queries}
        pairs = [pair for group in (*design.drawn.groups, *design.drawn.test) for pair in group]
        differences = {
            relevance[pair.query.query_id][pair.a.doc_id] - relevance[pair.query.query_id][pair.b.doc_id]
            for pair in pairs
            if pair.stratum != "mixed"
        }
        assert (differences == {0}) is (grades == "match") and design.identity()["grades"] == grades
