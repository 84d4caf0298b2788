"""What another package's kind may get wrong, or not say: told in a sentence, or in the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from llmfair import registry
from llmfair.asking.dispatch import Program
from llmfair.audits.comparing import compare
from llmfair.audits.kind import Kind, results_of
from llmfair.audits.plan import plan
from llmfair.audits.runs.run import perform
from llmfair.audits.scoring import Measuring, score
from llmfair.audits.subject import Subject
from llmfair.errors import LlmfairError, UsageError
from llmfair.metrics.base import Column, Definition, Measure, Ratio, Value, measure_all
from llmfair.nouns import Conclusion
from llmfair.report.compare import compare_table, score_table
from llmfair.report.words import Wording
from llmfair.results import Conclusions, Finding, RunVerdict
from llmfair.rundir import RunDir
from llmfair.settings.commands import ScoreSettings
from llmfair.stats.paired import at_figure, change_by_query
from tests.cli.command import llmfair, table
from tests.finished import audit
from tests.outside.counter import Counter
from tests.outside.numbers import NUMBERS, Numbers, NumbersDesign, NumbersKind, NumbersSettings


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.names("audit"), registry.names("backend")
    for what, name, thing in (("audit", "numbers", NUMBERS), ("backend", "counter", Counter)):
        monkeypatch.setitem(registry._found[what], name, thing)  # type: ignore[index]


def design(of: type[NumbersDesign] = NumbersDesign, **settings: Any) -> NumbersDesign:
    made = NumbersSettings.make(limit=2, output=Path("run"), no_cache=True, model=("counter:x",), **settings)
    return of.make(made, Subject("counter:x"))


class Twice(NumbersDesign):
    def programs(self) -> Iterator[Program]:
        first, second, *_ = super().programs()
        yield from (first, replace(second, probe_id=first.probe_id))


class Elsewhere(NumbersDesign):
    def programs(self) -> Iterator[Program]:
        yield from (replace(one, condition="elsewhere") for one in super().programs())


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (Twice, "two programs of numbers are called physics/plain/"),
        (Elsewhere, "is of 'elsewhere', no condition of numbers"),
    ],
)
def test_programs_that_could_not_be_told_apart_or_counted(of: type[NumbersDesign], said: str) -> None:
    with pytest.raises(LlmfairError, match=said):
        audit(design(of))


def of_numbers(values: Any) -> Measure:
    definition = Definition("Mine", values, reads=Numbers, cutoff="none", aggregate="ratio-of-means")
    return Measure("Mine", (), None, definition)


def test_a_ratio_over_nothing_is_undefined_and_counted() -> None:
    def ratio(numbers: Numbers, cutoff: None) -> Mapping[str, Value]:
        return {"": Ratio(1.0, 0.0)}

    (column,) = measure_all([of_numbers(ratio)], {"plain": [Numbers("q", ())]})
    (value,) = column.values.values()
    assert isinstance(value, Ratio) and value.value is None and value.reason == "zero_denominator"


def test_a_measure_that_breaks_off_is_named_with_its_query() -> None:
    def broken(numbers: Numbers, cutoff: None) -> Mapping[str, Value]:
        return {"": [1.0][int(numbers.query_id[1:])]}

    with pytest.raises(
        LlmfairError, match="Mine of query q3 breaks off: IndexError: list index out of range"
    ):
        measure_all([of_numbers(broken)], {"plain": [Numbers("q3", ())]})


def test_tokens_that_nobody_counts_cost_nobody_knows_what() -> None:
    settings = replace(design().settings, price_in=1.0, price_out=2.0)
    planned = plan(NUMBERS, settings)
    assert planned["prompt_tokens"] is planned["cost"] is None
    assert "tokens are not counted, nor is their cost" in NUMBERS.words.plan_text(planned)


class Mumbler(Counter):
    """Says no number to every fifth question."""

    async def complete(self, request: Any) -> Any:
        answer = await super().complete(request)
        return answer if int(request.key[:4], 16) % 5 else replace(answer, text="well")


def test_half_a_run_and_answers_that_cannot_be_read_are_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._found["backend"], "counter", Mumbler)
    kind: Kind = NumbersKind()
    half = perform(design(max_calls=50))
    assert half.error is not None
    notes = kind.words.table(kind_results(half)).notes
    assert any("of 80 probes have all their answers" in note for note in notes)
    whole = perform(design(max_invalid=1.0))
    notes = kind.words.table(kind_results(whole)).notes
    assert not any("have all their answers" in note for note in notes)
    assert sum("of 80 probes cannot be parsed" in note for note in notes) == 2


def kind_results(written: Any) -> Any:
    return results_of(written.folder)


# What a kind need not say: its runs are measured again, gated and compared like any other


def folder(name: str) -> RunDir:
    made = NumbersSettings.make(output=Path(name), no_cache=True, model=(f"counter:{name}",))
    return audit(NUMBERS.design(made, Subject(f"counter:{name}"))).folder


def test_a_run_folder_is_measured_again_and_gated() -> None:
    """The figures of the observations with their intervals; gates are read as measures of what the kind reads."""
    run = folder("one")
    found = score([Path("one")], ScoreSettings.make(require=("MeanRatio:plain>=1", "MeanRatio<=1")))
    (facts,) = found.results.runs
    assert facts.task == "numbers" and facts.measures == ["MeanRatio"] and facts.findings == {}
    assert facts.conditions["plain"].queries == 8 and facts.incomplete is None
    own = run.read_results()["rows"]
    ends = [(row.condition, row.value, row.low, row.high, row.n) for row in found.results.rows]
    assert ends == [tuple(row[name] for name in ("condition", "value", "low", "high", "n")) for row in own]
    failed, *others = found.results.requirements
    assert failed.reason == f"MeanRatio (plain condition) {own[0]['value']:.3f} is below 1"
    assert [one.holds for one in others] == [True, True]
    cells = score_table(found.results).rows
    assert cells[0][0] == "plain" and f"{own[0]['value']:.3f}" in cells[0][1]


@pytest.mark.parametrize("given", [{"measures": "P@20"}, {"require": ("P@20>=0.1",)}])
def test_a_measure_of_something_else_is_refused(given: dict[str, Any]) -> None:
    runs = [folder("one"), folder("two")]
    with pytest.raises(UsageError, match="P is a measure of lists, but this audit asks about numbers"):
        score([Path("one")], ScoreSettings.make(**given))
    with pytest.raises(UsageError, match="P is a measure of lists"):
        compare(runs, "P@20")


def test_another_attribute_and_a_kind_that_keeps_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(NumbersKind):
        measure = Measuring(reads=Numbers)

    folder("one")
    with pytest.raises(UsageError, match="one was asked by gender, not by age"):
        score([Path("one")], ScoreSettings.make(attribute="age"))
    monkeypatch.setitem(registry._found["audit"], "numbers", Silent())
    with pytest.raises(UsageError, match="one: numbers keeps nothing that could be measured again"):
        score([Path("one")], ScoreSettings.make())


def test_runs_are_compared_by_query() -> None:
    """Paired by the queries' own values, signs flipped, in the kind's word for its conditions."""
    runs = [folder("one"), folder("two")]
    compared = compare(runs)
    row: Any = compared.rows[0]
    base, other = (
        [
            float(line["value"])
            for line in table(run.path / "per_query.csv")
            if line["condition"] == "plain" and line["query_id"] != "all"
        ]
        for run in runs
    )
    base, other = (at_figure(of, figure) for of, figure in ((base, row.base), (other, row.other)))
    change = change_by_query(base, other, True, 0.95, np.random.default_rng(0))
    assert (row.change, row.p, row.n) == (pytest.approx(change.estimate.value), change.p, 8) and row.headline
    shown = compare_table(compared)
    assert shown.header[:2] == ("measure", "condition") and shown.title.startswith("Compare numbers")
    assert any("sign flips (seed 0)" in note for note in shown.notes)


# A kind of another package has a verdict, a gate and JUnit; by its findings, or in its own words


class ConcludingDesign(NumbersDesign):
    def findings(self, columns: Sequence[Column]) -> Mapping[str, Finding]:
        return {
            "plain": Finding(measure="MeanRatio", conclusion=Conclusion.OUTSIDE, reason=None),
            "warned": Finding(measure="MeanRatio", conclusion=Conclusion.WITHIN, reason=None),
        }


class ConcludingKind(NumbersKind):
    design = ConcludingDesign.make


def uneven(found: Conclusions) -> RunVerdict:
    sentence = f"numbers of {found.words.protected} items are low"
    return RunVerdict(status="uneven", sentence=sentence, next="rest")


class OwnWords(ConcludingKind):
    words = Wording(title="Numbers", statuses=("uneven", "even"), verdict=uneven)


@pytest.fixture(params=[NUMBERS, ConcludingKind(), OwnWords()], ids=["silent", "concluding", "own"])
def status(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The status that this kind's audits come to."""
    monkeypatch.setitem(registry._found["audit"], "numbers", request.param)
    return {"OwnWords": "uneven", "ConcludingKind": "disparity"}.get(
        type(request.param).__name__, "not assessable"
    )


def outcome(status: str, **settings: Any) -> Any:
    kind = registry.lookup("audit", "numbers")
    made = NumbersSettings.make(output=Path("run"), no_cache=True, model=("counter:x",), **settings)
    return perform(kind.design(made, Subject("counter:x")))


def test_it_has_a_verdict_and_a_gate(status: str) -> None:
    written = outcome(status)
    assert written.error is None and written.results.verdict.status == status
    failed = outcome(status, fail_on=status)
    assert failed.error is not None and f"the verdict is {status}: " in failed.error.message
    assert results_of(failed.folder).verdict.status == status
    with pytest.raises(UsageError, match="there is no verdict 'odd'"):
        outcome(status, fail_on="odd")


def test_it_is_shown_measured_again_and_written_for_continuous_integration(status: str) -> None:
    outcome(status)
    assert llmfair("runs", "show", "run").out.startswith(f"VERDICT  {status}: ")
    scored = llmfair("score", "run", "--fail-on", f"'{status}'", "--junit", "junit.xml")
    # nothing is concluded when its figures are measured again, unless the kind says so
    assert scored.code == (0 if status == "disparity" else 4)
    (suite,) = ElementTree.parse("junit.xml").getroot()
    assert suite.get("failures") == str(int(status != "disparity"))
    assert status in llmfair("runs", "list", "--runs-dir", ".").out
    if status == "disparity":
        sentence = results_of_run().verdict.sentence
        assert sentence.startswith(
            "under the plain condition female items are put behind male ones: MeanRatio 0."
        )


def results_of_run() -> Any:
    return results_of(RunDir(Path("run")))
