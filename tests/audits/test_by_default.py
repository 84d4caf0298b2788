"""A kind of audit that says only what its measures read: measured again, gated and compared like any other."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec import structs

from llmfair import registry
from llmfair.audits.comparing import compare
from llmfair.audits.kind import Kind
from llmfair.audits.scoring import score
from llmfair.audits.verdict import judged
from llmfair.errors import UsageError
from llmfair.io.files import SCHEMA, json_text
from llmfair.metrics.base import Definition
from llmfair.report.compare import compare_table, score_table
from llmfair.results import DesignFacts, Family, PlainResults, ProbeCounts, Words, absent_row
from llmfair.rundir import COLUMNS, RunDir
from llmfair.settings import AuditSettings, ScoreSettings
from llmfair.stats.intervals import mean
from llmfair.stats.paired import change_by_query
from tests.manifests import invocation, manifest

QUERIES = [f"q{number}" for number in range(8)]
BASE, OTHER = [0.1 * number for number in range(8)], [0.9] * 8


@dataclass(frozen=True)
class Answer:
    """What was answered to a query: a number."""

    about: ClassVar[str] = "answers"
    query_id: str
    number: float


class Silent(Kind):
    """A kind that keeps nothing."""

    name, title, helps = "silent", "Silent audit", {}
    settings = AuditSettings

    def reads(self) -> type[Answer]:
        return Answer

    def design(self, settings: Any, subject: Any = None) -> Any:
        raise NotImplementedError

    def table(self, results: Any) -> Any:
        raise NotImplementedError


class Toy(Silent):
    """A kind whose run folders hold a number for every query."""

    name = "toy"

    def observations(self, run: RunDir) -> Mapping[str, Sequence[Answer]]:
        numbers = json.loads((run.path / "numbers.json").read_text())
        return {"first": [Answer(query_id, number) for query_id, number in numbers.items()]}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds and their measure, for one test."""
    registry.names("audit"), registry.names("measure")  # all others first
    for kind in (Silent(), Toy()):
        monkeypatch.setitem(registry._found["audit"], kind.name, kind)
    number = Definition("Number", lambda answer, cutoff: {"": answer.number}, reads=Answer, better="higher")
    monkeypatch.setitem(registry._found["measure"], "Number", number)


def folder(name: str, numbers: Sequence[float], task: str = "toy") -> RunDir:
    """A complete run folder, as an audit of this kind leaves it."""
    run = RunDir(Path(name))
    run.path.mkdir()
    of_queries = dict(zip(QUERIES, numbers, strict=True))
    estimate = mean(np.array(numbers), 0.95)
    named: dict[str, Any] = {"run": name, "dataset": "sample", "attribute": "gender", "model": name}
    figure = {"condition": "first", "measure": "Number", "group": "", "query_id": "all"}
    row = structs.replace(absent_row("Number", "first"), query_id="all", value=estimate.value, reason=None)
    settings = {"task": task, "identity": name, "attribute": "gender", "lists_sha256": "0"}
    told = replace(manifest(invocation(8)), task=task, settings=settings, model=name)
    run.write_json("manifest.json", {"schema": 1, **asdict(told)})
    results = PlainResults(
        **named,
        schema=SCHEMA,
        status="complete",
        task=task,
        words=Words("female", "male"),
        level=0.95,
        band=(0.8, 1.25),
        measures=["Number"],
        shown=["Number"],
        labels={},
        measure_notes={},
        design=DesignFacts(
            queries=8, conditions=["first"], seed=0, calls=8, preset=None, drawn=None, factors={}
        ),
        reach={},
        chains={"first": ProbeCounts(8, 8)},
        failures={},
        answers={},
        undefined={},
        findings={},
        family=Family(0, None),
        rows=[row],
        requirements=[],
    )
    run.write_files({"results.json": json_text(judged(results))})
    (run.path / "numbers.json").write_text(json.dumps(of_queries))
    with (run.path / "per_query.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({**named, **figure, "query_id": q, "value": v} for q, v in of_queries.items())
    return run


def test_a_run_folder_is_measured_again_and_gated() -> None:
    """The figures of the observations with their intervals; gates are read as measures of what the kind reads."""
    folder("one", BASE)
    found = score([Path("one")], ScoreSettings.make(require=("Number:first>=0.5", "Number<=1")))
    (run,) = found.results.runs
    assert run.task == "toy" and run.measures == ["Number"] and run.findings == {}
    assert run.conditions["first"].queries == 8 and run.incomplete is None
    row: Any = found.results.rows[0]
    expected = mean(np.array(BASE), 0.95)
    assert (row.value, row.low, row.high, row.n) == (
        pytest.approx(expected.value), pytest.approx(expected.low), pytest.approx(expected.high), 8,
    )  # fmt: skip
    assert [one.value for one in found.per_query] == BASE
    failed, held = found.results.requirements
    assert failed.reason == "Number (first condition) 0.350 is below 0.5" and held.holds
    table = score_table(found.results)
    assert table.rows[0][0] == "first" and "0.350" in table.rows[0][1]


@pytest.mark.parametrize("given", [{"measures": "P@20"}, {"require": ("P@20>=0.1",)}])
def test_a_measure_of_something_else_is_refused(given: dict[str, Any]) -> None:
    folder("one", BASE)
    with pytest.raises(UsageError, match="P is a measure of lists, but this audit asks about answers"):
        score([Path("one")], ScoreSettings.make(**given))
    if "measures" in given:
        with pytest.raises(UsageError, match="P is a measure of lists"):
            compare([RunDir(Path("one")), folder("two", OTHER)], given["measures"])


def test_another_attribute_is_refused() -> None:
    folder("one", BASE)
    with pytest.raises(UsageError, match="one was asked by gender, not by age"):
        score([Path("one")], ScoreSettings.make(attribute="age"))


def test_a_kind_that_keeps_nothing_says_so() -> None:
    folder("one", BASE, "silent")
    with pytest.raises(UsageError, match="one: silent keeps nothing that could be measured again"):
        score([Path("one")], ScoreSettings.make())


def test_runs_are_compared_by_query() -> None:
    """Paired by the queries' own values, signs flipped, in the kind's word for its conditions."""
    compared = compare([folder("one", BASE), folder("two", OTHER)])
    row: Any = compared.rows[0]
    change = change_by_query(BASE, OTHER, False, 0.95, np.random.default_rng(0))
    assert (row.base, row.other) == (pytest.approx(0.35), pytest.approx(0.9))
    assert (row.change, row.p, row.n) == (change.estimate.value, change.p, 8) and row.headline
    table = compare_table(compared)
    assert table.header[:2] == ("measure", "condition") and table.title.startswith("Compare toy")
    assert any(note.endswith("sign flips (seed 0)") for note in table.notes)
    with pytest.raises(UsageError, match="two and three are runs of different tasks") as refused:
        compare([RunDir(Path("two")), folder("three", OTHER, "silent")])
    assert "silent with silent, toy with toy" in str(refused.value.hint)
