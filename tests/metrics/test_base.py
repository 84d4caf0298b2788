"""Names of measures, the completed list, and columns."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair import registry
from llmfair.errors import LlmfairError, UsageError
from llmfair.metrics import base
from llmfair.metrics.names import parse_measure as parse
from llmfair.metrics.pairs import JudgedPairs
from tests.metrics import lettered

CHOICES = {
    "agg": ("ratio-of-means", "mean-of-ratios", "geometric"),
    "missing": ("append", "zero"),
    "unknown": ("keep", "unprotected", "close"),
    "weight": ("log", "top1"),
    "stratum": ("none", "relevant", "irrelevant"),
    "control": ("none", "order"),
}


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("nDCG@20", "nDCG@20"),
        ("NDCG@20", "nDCG@20"),
        ("P@10(rel=2)", "P(rel=2)@10"),
        ("P(rel=1)@10", "P@10"),
        ("map", "AP"),
        ("setrelp", "SetP(relative=True)"),
        ("IPrec@0.1", "IPrec@0.1"),
        ("SetF(beta=2)", "SetF(beta=2.0)"),
        ("nDCG(gains={3: 7, 2: 3})@20", "nDCG(gains={2:3,3:7})@20"),
        ("nDCG(dcg='log2')@5", "nDCG@5"),
        ("nDCG@20(ideal=500, discount=trec)", "nDCG(discount=trec,ideal=500)@20"),
        ("OVERLAP@20", "overlap@20"),
        ("exposure(log=2)", "Exposure(log=2)"),
        ("Exposure(log=e)", "Exposure"),
        (" expratio ( weight = top1 , agg=geometric ) @ 5 ", "ExpRatio(agg=geometric,weight=top1)@5"),
        ("ExpRatio(agg=ratio-of-means,missing=append)", "ExpRatio"),
        ("awrf(target=trec2021, unknown=drop)@20", "AWRF(target=trec2021)@20"),
        ("AWRF(target=trec2022,unknown=keep)", "AWRF(target=trec2022)"),
        ("AWRF(unknown=keep,log=e,target=empirical)@20", "AWRF@20"),
        ("AWRF(target='my shares, (1).json')@5", "AWRF(target='my shares, (1).json')@5"),
        ('AWRF(target="it\'s.json")', 'AWRF(target="it\'s.json")'),
        ("KL(eps=0.000001)", "KL"),
        ("KL(eps=.001, direction=target-current)", "KL(direction=target-current,eps=0.001)"),
        ("nDCGxAWRF(ideal=500,discount=trec)", "nDCGxAWRF(discount=trec,ideal=500)"),
    ],
)
def test_a_measure_is_its_canonical_name(written: str, canonical: str) -> None:
    measure = parse(written)
    assert str(measure) == canonical
    assert measure == parse(canonical)
    assert hash(measure) == hash(parse(canonical))
    assert measure.arguments == parse(canonical).arguments
    assert str(parse(str(measure))) == canonical


@given(
    st.fixed_dictionaries({}, optional={name: st.sampled_from(words) for name, words in CHOICES.items()}),
    st.none() | st.integers(1, 1000),
    st.booleans(),
    st.randoms(use_true_random=False),
)
@settings(deadline=None)
def test_names_round_trip(params: dict[str, str], cutoff: int | None, last: bool, random: object) -> None:
    written = ",".join(f"{name}={word}" for name, word in params.items())
    at = "" if cutoff is None else f"@{cutoff}"
    found = parse(f"EXPRATIO{at}({written})" if last else f"expRatio({written}){at}")
    assert parse(str(found)) == found
    assert str(parse(str(found))) == str(found)
    assert found.cutoff == cutoff
    assert found.arguments == {name: params.get(name, words[0]) for name, words in CHOICES.items()}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nDGC@20", "Did you mean 'nDCG'?"),
        ("ExpRation", "Did you mean 'ExpRatio'?"),
        ("ExpRatio(ag=geometric)", "Did you mean 'agg'?"),
        ("ExpRatio(controls=order)", "no parameter 'controls'"),
        ("ExpRatio(agg=geometrical)", "Did you mean 'geometric'?"),
        ("ExpRatio@0", "cutoff cannot be '0'"),
        ("ExpRatio@2.5", "cutoff cannot be '2.5'"),
        ("nDCG(discont=trec)@20", "Did you mean 'discount'?"),
        ("nDCG(ideal=500)@20", "needs discount=trec"),
        ("nDCG(discount=trec,ideal=0)@20", "ideal cannot be '0'"),
        ("nDCG(discount=trec,gains={1:2})@20", "no parameter 'gains'"),
        ("nDCG(gains={1:-3,0:1})@20", "gains cannot be"),
        ("nDCG(dcg='exp-log2')@20", "not computed by pytrec_eval"),
        ("ERR@20", "no measure 'ERR'"),
        ("P(rel=two)@10", "rel cannot be 'two'"),
        ("P(rle=2)@10", "Did you mean 'rel'?"),
        ("P@-1", "cutoff cannot be '-1'"),
        ("P", "needs a cutoff"),
        ("overlap", "needs a cutoff"),
        ("Rprec@5", "takes no cutoff"),
        ("P@5@6", "not a measure"),
        ("P(rel=1,rel=2)@5", "not a measure"),
        ("", "not a measure"),
        ("AWRF(target=trec2021,unknown=keep)", "target=trec2021 contradicts unknown=keep"),
        ("AWRF(target=unifrom)", "Did you mean 'uniform'?"),
        ("AWRF(over=a*b*c)", "over cannot be 'a*b*c'"),
        ("AWRF(over=a*a)", "over cannot be 'a*a'"),
        ("KL(eps=nan)", "eps cannot be 'nan'"),
        ("EAR@5", "takes no cutoff"),
    ],
)
def test_mistakes_in_a_name_are_usage_errors(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert says in caught.value.message and caught.value.hint


@pytest.mark.parametrize(
    ("reads", "text", "says"),
    [
        (base.Judged, "AdjustedOdds", "AdjustedOdds is a measure of pairs, but this audit asks about lists."),
        (JudgedPairs, "p@20", "P is a measure of lists, but this audit asks about pairs."),
        (JudgedPairs, "nDCG(discount=trec)@20", "nDCG is a measure of lists"),
        (JudgedPairs, "WinRati", "no measure 'WinRati'. Did you mean 'WinRatio'?"),
        (JudgedPairs, "ExpRati", "no measure 'ExpRati'."),
    ],
)
def test_measures_that_read_something_else_are_refused_and_not_offered(
    reads: type[base.Observation], text: str, says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, reads)
    assert says in caught.value.message
    offered = caught.value.hint.removeprefix("known: ").split(", ")
    assert ("AdjustedOdds" in offered) == (reads is JudgedPairs) == ("P" not in offered)


def test_a_measure_of_another_package_joins_by_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._found, "measure", dict(registry._found["measure"]))

    @base.measure("Runs", cutoff="none", params={"of": ("all", "none")})
    def runs(judged: base.Judged, cutoff: None, of: str) -> Mapping[str, base.Value]:
        return {"": float(len(judged.rankings) if of == "all" else 0)}

    assert isinstance(runs, base.Definition)
    assert runs.label == "Runs"
    columns = base.measure_all([parse("runs"), parse("Runs(of=none)")], {"neutral": [lettered("pu")]})
    assert [(str(c.measure), c.values["q"]) for c in columns] == [("Runs", 1.0), ("Runs(of=none)", 0.0)]
    with pytest.raises(UsageError, match="takes no cutoff"):
        parse("Runs@5")


@given(st.lists(st.integers(0, 9).map(str)), st.lists(st.integers(0, 7).map(str), unique=True))
def test_a_completed_ranking_permutes_the_candidates(ranked: list[str], candidates: list[str]) -> None:
    completed = base.complete(ranked, candidates)
    assert sorted(completed) == sorted(candidates)
    absent = [doc_id for doc_id in candidates if doc_id not in ranked]
    assert list(completed[len(completed) - len(absent) :]) == absent


def test_columns_come_in_the_order_asked_with_sorted_queries() -> None:
    queries = [lettered("pu", "q2"), lettered("up", "q1")]
    columns = base.measure_all(
        [parse("Exposure"), parse("ExpRatio")], {"neutral": queries, "female": queries[:1]}
    )
    assert [(str(c.measure), c.condition, c.group, list(c.values)) for c in columns] == [
        ("Exposure", "neutral", "protected", ["q1", "q2"]),
        ("Exposure", "neutral", "unprotected", ["q1", "q2"]),
        ("Exposure", "female", "protected", ["q2"]),
        ("Exposure", "female", "unprotected", ["q2"]),
        ("ExpRatio", "neutral", "", ["q1", "q2"]),
        ("ExpRatio", "female", "", ["q2"]),
    ]


def test_queries_that_come_one_by_one_are_let_go_once_they_are_measured() -> None:
    measured: list[weakref.ref[base.Judged]] = []

    def queries() -> Iterator[tuple[str, base.Judged]]:
        for name in ("q2", "q1", "q3"):
            for condition in ("neutral", "female"):
                measured.append(weakref.ref(query := lettered("pu", name)))
                yield condition, query
                del query
                assert all(one() is None for one in measured[:-1])

    columns = base.measure_each([parse("ExpRatio"), parse("Exposure")], queries())
    assert [list(column.values) for column in columns] == [["q1", "q2", "q3"]] * 6


def test_a_value_that_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._found, "measure", dict(registry._found["measure"]))
    base.measure("Endless")(lambda judged, cutoff: {"": base.Undefined("no_group"), "a": float("inf")})
    with pytest.raises(LlmfairError, match="Endless of query q breaks off: ValueError: inf is not finite"):
        base.measure_all([parse("Endless")], {"neutral": [lettered("pu")]})


def test_a_plain_name_lacks_what_tables_say_once() -> None:
    assert base.plain_name("ExpRatio(control=order)@20") == "ExpRatio@20"
    assert base.plain_name("AdjustedOdds(agg=pooled)") == "AdjustedOdds"
    assert base.plain_name("AdjustedOdds(agg=pooled)", base.CONTROLLED) == "AdjustedOdds(agg=pooled)"
    assert base.plain_name("ExpRatio(agg=geometric)") == "ExpRatio(agg=geometric)"
