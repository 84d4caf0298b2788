"""Gates: what the grammar reads, which figures hold, and what is said of those that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from llmfair.audits.gates import Gate, GatedFigures, check_gates, parse_gate, read_gates, require_met
from llmfair.audits.listwise.measure import unassessable
from llmfair.errors import RequirementFailed, UsageError
from llmfair.metrics.base import Judged
from llmfair.nouns import PAIRS, Key
from llmfair.results import Reach, Row, absent_row


def row(value: float | None, condition: str = "female", measure: str = "ExpRatio", **more: Any) -> Row:
    interval = {"low": None, "high": None} if value is None else {"low": value - 0.05, "high": value + 0.05}
    given = {"query_id": "all", "value": value, "reason": None}
    return structs.replace(absent_row(measure, Key(condition)), **{**given, **interval, **more})


def results(
    *rows: Row, keys: tuple[Key, ...] = (Key("neutral"), Key("female"), Key("repeat")), asked: str = " prompt"
) -> GatedFigures:
    reach = {"ExpRatio": Reach(low=0.889, high=1.125)}
    aside, titles = ("repeat",), {"repeat": "repeat", "initial": "initial ranking"}
    return GatedFigures(keys, [], rows, {}, reach, asked, "at window 5, step 1", aside, titles)


def reasons(gate: str, *rows: Row, interval: bool = False, **more: Any) -> list[str | None]:
    found = check_gates([parse_gate(gate)], replace(results(*rows), **more), interval)
    assert all(entry.require == gate and entry.holds is (entry.reason is None) for entry in found)
    return [entry.reason for entry in found]


@pytest.mark.parametrize(
    ("text", "measure", "condition", "low", "high"),
    [
        ("P@20:initial<=.5", "P@20", "initial", None, 0.5),
        ("exprATIO(agg=geometric)@10:male=0.5..2", "ExpRatio(agg=geometric)@10", "male", 0.5, 2.0),
        ("ExpRatio(agg=geometric)>=1e-1", "ExpRatio(agg=geometric)", None, 0.1, None),
        (" Tau : female = -0.1 .. 0.1 ", "Tau", "female", -0.1, 0.1),
        ("AWRF(target='./a:b>=(1).json')@20:female>=0.7", "AWRF(target='./a:b>=(1).json')@20", "female", 0.7, None),
    ],
)  # fmt: skip
def test_the_grammar(
    text: str, measure: str, condition: str | None, low: float | None, high: float | None
) -> None:
    assert parse_gate(text) == Gate(measure, condition, low, high, text.strip())


def test_a_gate_speaks_of_the_rows_that_have_its_keys() -> None:
    of_pairs: dict[str, Any] = {"keys": (Key(PAIRS, "relevant"), Key(PAIRS, "irrelevant")), "asked": " pairs"}
    odds, of = {"irrelevant": 1.1, "relevant": 0.6}, "female:male"
    rows = [row(value, PAIRS, "AdjustedOdds", stratum=name, contrast=of) for name, value in odds.items()]
    below = "AdjustedOdds (relevant pairs) 0.600 is below 0.8"
    assert reasons("AdjustedOdds>=0.8", *rows, **of_pairs) == [below, None]
    for gate in ("AdjustedOdds:relevant>=0.8", "AdjustedOdds(stratum=relevant)>=0.8"):
        assert reasons(gate, *rows, **of_pairs) == [below]
    missing = reasons("AdjustedOdds(contrast='old:young'):relevant>=0.8", *rows, **of_pairs)
    assert missing == ["AdjustedOdds (relevant pairs) is undefined: not measured"]
    with pytest.raises(UsageError, match=r"no stratum 'relevnt'\. Did you mean 'relevant'\?"):
        parse_gate("AdjustedOdds(stratum=relevnt)>=0.8")


@pytest.mark.parametrize(
    "text",
    ["", "ExpRatio(agg=geometric)", "ExpRatio<1", "ExpRatio=0.8", "ExpRatio>=nan", "ExpRatio=1.2..0.8"],
)
def test_what_is_malformed_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="has no such bound"):
        parse_gate(text)


def test_unknown_measures_and_variants_suggest_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no measure 'ExpRato'. Did you mean 'ExpRatio'"):
        parse_gate("ExpRato=0.8..1.25", Judged)
    with pytest.raises(UsageError, match=r"no condition 'femal'. Did you mean 'female'"):
        read_gates(["ExpRatio:femal=0.8..1.25"], ["neutral", "female", "initial"], Judged)
    with pytest.raises(UsageError, match=r"no contrast 'A:BB'\. Did you mean 'A:B'"):
        read_gates(["ExpRatio(contrast='A:BB')>=0.8"], [], Judged, ["A:B", "A:C"])


@given(st.text(max_size=30))
def test_any_text_is_a_gate_or_a_usage_error(text: str) -> None:
    for written in (text, f"ExpRatio={text}"):
        try:
            gate = parse_gate(written)
        except UsageError:
            continue
        assert gate.low is not None or gate.high is not None


def test_a_name_means_what_the_table_shows_under_it() -> None:
    rows = row(1.3), row(1.0, measure="ExpRatio(control=order)")
    assert reasons("ExpRatio:female=0.9..1.1", *rows, shown=["ExpRatio(control=order)"]) == [None]
    assert reasons("ExpRatio:female=0.9..1.1", *rows, shown=["P@20"]) != [None]


def test_every_prompt_must_hold_unless_one_is_named() -> None:
    aside = (row(9.0, condition) for condition in ("repeat", "initial", "female.o0.r0"))
    rows = (row(1.0, "neutral"), row(1.258), *aside)
    outside = "ExpRatio (female prompt) 1.258 is outside 0.9..1.1"
    assert reasons("ExpRatio=0.9..1.1", *rows) == [None, outside]
    assert reasons("ExpRatio:neutral=0.9..1.1", *rows) == [None]
    assert reasons("ExpRatio:repeat<=1", *rows) == ["ExpRatio (repeat) 9.000 is above 1"]
    assert reasons("ExpRatio:initial>=10", *rows) == ["ExpRatio (initial ranking) 9.000 is below 10"]


NOT_RANDOM: dict[str, Any] = {"findings": {"female": unassessable("PreferenceOdds", "order_not_random")}}
FEW: dict[str, Any] = {"low": None, "high": None, "reason": "too_few_queries"}
WHOLE = {"interval": True}
ON_LISTS = {"keys": [Key("neutral")], "where": "on these lists"}


@pytest.mark.parametrize(
    ("gate", "rows", "more", "said"),
    [
        ("ExpRatio:female=1.1..1.2", [row(1.1)], {}, None),  # bounds belong to the gate
        ("ExpRatio:female=0.9..1.1", [row(1.0)], WHOLE, None),
        ("ExpRatio:female=0.96..1.1", [row(1.0)], WHOLE, "[0.950, 1.050] reaches outside 0.96..1.1"),
        ("ExpRatio:female=1.06..1.1", [row(1.0)], WHOLE, "[0.950, 1.050] lies outside 1.06..1.1"),
        ("ExpRatio:female>=1", [row(1.0)], WHOLE, "[0.950, 1.050] reaches below 1"),
        ("ExpRatio:female<=1", [row(1.0)], WHOLE, "[0.950, 1.050] reaches above 1"),
        ("ExpRatio:female=0.9..1.1", [row(1.0, **FEW)], {}, None),
        ("ExpRatio:female=0.9..1.1", [row(1.0, **FEW)], WHOLE, "has no interval: too few queries"),
        ("ExpRatio:female>=1", [row(None, reason="no_protected")], {}, "is undefined: no protected"),
        ("ExpRatio:female>=1", [row(1.0)], NOT_RANDOM, "cannot be assessed: the initial ranking is not random"),
        ("P@20:female>=1", [row(1.0, measure="P@20")], NOT_RANDOM, None),
        ("ExpRatio:female>=1", [], {}, "is undefined: not measured"),
        ("RBO:neutral>=0.9", [row(0.95, measure="RBO")], {}, "RBO (neutral prompt) is undefined: not measured"),
        ("ExpRatio=0.1..9", [row(1.0, "neutral")], ON_LISTS, "no ranker could fail ExpRatio=0.1..9 on these lists"),
    ],
)  # fmt: skip
def test_why_a_figure_fails(gate: str, rows: list[Row], more: dict[str, Any], said: str | None) -> None:
    (found,) = reasons(gate, *rows, **more)
    assert found == said or found == f"ExpRatio (female prompt) {said}"


def test_a_measure_of_groups_has_an_entry_for_each() -> None:
    shares = {"protected": 0.3, "unprotected": 0.4}
    sides = [row(share, measure="Exposure", group=group) for group, share in shares.items()]
    below = "Exposure protected (female prompt) 0.300 is below 0.35"
    assert reasons("Exposure:female>=0.35", *sides) == [below, None]


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("ExpRatio=0.8..1.25", "no ranker could fail ExpRatio=0.8..1.25 at window 5, step 1"),
        ("ExcessRatio<=1.125", "no ranker could fail ExcessRatio<=1.125 at window 5, step 1"),
        ("ExpRatio(agg=geometric)=0.5..2", "no ranker could fail ExpRatio(agg=geometric)=0.5..2 at window 5, step 1"),
        ("ExpRatio=0.89..1.25", None),
        ("ExpRatio@10=0.8..1.25", None),  # heads reach further than whole lists
        ("ExpRatio(stratum=relevant)=0.8..1.25", None),
        ("P@20=0..2", None),
    ],
)  # fmt: skip
def test_a_gate_that_nothing_could_fail_never_holds(gate: str, said: str | None) -> None:
    measure = parse_gate(gate).measure
    rows = [row(1.0, condition, measure) for condition in ("neutral", "female")]
    assert set(reasons(gate, *rows)) == {said}
    for unknown in ({}, {"ExpRatio": Reach()}):
        assert set(reasons(gate, *rows, reach=unknown)) == {None}


def test_what_does_not_hold_fails_in_one_sentence() -> None:
    rows = [row(0.93, "neutral"), row(1.258)]
    gates = [parse_gate(text) for text in ("ExpRatio=0.9..1.1", "ExpRatio>=0.95", "ExpRatio>=0.1")]
    found = check_gates(gates, results(*rows), False)
    assert [entry.holds for entry in found] == [True, False, False, True, False, False]
    with pytest.raises(RequirementFailed) as caught:
        require_met(found)
    assert caught.value.message == (
        "ExpRatio (female prompt) 1.258 is outside 0.9..1.1; ExpRatio (neutral prompt) 0.930 is below 0.95; "
        "no ranker could fail ExpRatio>=0.1 at window 5, step 1"
    )
    require_met(found[:1])
    require_met([])
