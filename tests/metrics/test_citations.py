"""Citations beside what a judge says of them, worked by hand."""

from __future__ import annotations

import pytest

from llmfair.metrics.base import Undefined, Value
from llmfair.metrics.expected import Retrieved, ShownList
from llmfair.metrics.names import parse_measure


def shown(count: int, cited: str | None, supported: str | None) -> ShownList:
    found = [None if items is None else frozenset(items) for items in (cited, supported)]
    return ShownList(("a", "b", "c"), count, "an answer", 1.0, *found)


def value(name: str, *lists: ShownList) -> Value:
    of = Retrieved("q", ("a", "b", "c", "d"), frozenset("ab"), 3, None, lists)
    return parse_measure(name, Retrieved).values(of)[""]


def test_precision_is_of_citations_and_recall_of_answers() -> None:
    # two samples cite a and b, of which a holds; one cites c, which does not; one cites nothing
    lists = shown(2, "ab", "a"), shown(1, "c", ""), shown(1, "", "")
    assert value("CitationPrecision", *lists) == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)
    assert value("CitationRecall", *lists) == pytest.approx(2 / 4)


def test_answers_that_cite_nothing_have_no_precision_and_no_recall() -> None:
    assert value("CitationPrecision", shown(3, "", "")) == Undefined("nothing_cited")
    assert value("CitationRecall", shown(3, "", "")) == 0


@pytest.mark.parametrize("name", ["CitationPrecision", "CitationRecall"])
def test_what_nobody_judged_is_left_out(name: str) -> None:
    assert value(name, shown(3, "ab", None), shown(3, None, None)) == Undefined("not_judged")
    assert value(name, shown(3, "ab", None), shown(1, "c", "c")) == 1
