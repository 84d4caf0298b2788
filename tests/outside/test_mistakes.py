"""What another package's kind may get wrong, or not say: told in a sentence, or in the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from llmfair import registry
from llmfair.asking.dispatch import Program
from llmfair.audits.kind import Kind
from llmfair.audits.plan import plan
from llmfair.audits.runs.run import audit, perform
from llmfair.audits.subject import Subject
from llmfair.errors import LlmfairError
from llmfair.metrics.base import Definition, Measure, Ratio, Value, measure_all
from llmfair.nouns import Side
from tests.outside.counter import Counter
from tests.outside.numbers import NUMBERS, Numbers, NumbersDesign, NumbersKind, NumbersSettings


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.names("audit"), registry.names("backend")
    for what, name, thing in (("audit", "numbers", NUMBERS), ("backend", "counter", Counter)):
        monkeypatch.setitem(registry._found[what], name, thing)  # type: ignore[index]


def design(of: type[NumbersDesign] = NumbersDesign, **settings: Any) -> NumbersDesign:
    made = NumbersSettings.make(limit=2, output=Path("run"), no_cache=True, model=("counter:x",), **settings)
    plain = NUMBERS.design(made, Subject("counter:x"))
    return of(**{name: getattr(plain, name) for name in (one.name for one in fields(plain))})


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

    (column,) = measure_all([of_numbers(ratio)], {"plain": [Numbers("q", {side: [0.0] for side in Side})]})
    (value,) = column.values.values()
    assert isinstance(value, Ratio) and value.value is None and value.reason == "zero_denominator"


def test_a_measure_that_breaks_off_is_named_with_its_query() -> None:
    def broken(numbers: Numbers, cutoff: None) -> Mapping[str, Value]:
        return {"": [1.0][int(numbers.query_id[1:])]}

    with pytest.raises(
        LlmfairError, match="Mine of query q3 breaks off: IndexError: list index out of range"
    ):
        measure_all([of_numbers(broken)], {"plain": [Numbers("q3", {})]})


def test_tokens_that_nobody_counts_cost_nobody_knows_what() -> None:
    settings = replace(design().settings, price_in=1.0, price_out=2.0)
    planned = plan(NUMBERS, settings)
    assert planned["prompt_tokens"] is planned["cost"] is None
    assert "tokens are not counted, nor is their cost" in NUMBERS.plan_text(planned)


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
    notes = kind.table(kind_results(half)).notes
    assert any("of 80 probes have all their answers" in note for note in notes)
    whole = perform(design(max_invalid=1.0))
    notes = kind.table(kind_results(whole)).notes
    assert not any("have all their answers" in note for note in notes)
    assert sum("of 80 probes cannot be parsed" in note for note in notes) == 2


def kind_results(written: Any) -> Any:
    from llmfair.audits.kind import results_of

    return results_of(written.folder)
