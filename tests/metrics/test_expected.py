"""Expected exposure: reference figures, the published code's figures, brute force, and what samples estimate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.audits.aggregates import summarise, undefined_counts
from llmfair.errors import UsageError
from llmfair.metrics.base import Convention, Judged, Undefined, Value, measure_all
from llmfair.metrics.expected import ListSample, Retrieved, exposed, target, unbiased_squares
from llmfair.metrics.names import parse_measure
from tests.metrics import judged, shares
from tests.shared import realdata, vectors

NEAR = 1e-9


def retrieved(
    lists: Mapping[tuple[str, ...], int],
    useful: Sequence[str],
    k: int,
    doc_ids: Sequence[str],
    exposure: Mapping[str, float] | None = None,
) -> Retrieved:
    """A query whose lists nobody was asked about."""
    shown = tuple(ListSample(one, count, None, None) for one, count in lists.items())
    return Retrieved("q", tuple(doc_ids), frozenset(useful), k, exposure, shown)


def value(name: str, observed: Retrieved) -> Value:
    """What a measure says of one query."""
    (found,) = parse_measure(name, Retrieved).values(observed).values()
    return found


def number(found: Value) -> float | None:
    """The number that stands in the row of a query."""
    if isinstance(found, Undefined):
        return None
    assert isinstance(found, float | Convention)
    return found.value if isinstance(found, Convention) else found


def of_case(case: Mapping[str, Any]) -> Retrieved:
    """A reference case as a measure reads it; weights as the policy's exposure."""
    given = case["input"]
    docs, k = given["docs"], given["k"]
    useful = [doc for doc in docs if given["useful"][doc]]
    lists: dict[tuple[str, ...], int] = {}
    for ranking in given["rankings"]:
        lists[tuple(ranking)] = lists.get(tuple(ranking), 0) + 1
    places = [[docs.index(doc) for doc in ranking[:k]] for ranking in given["rankings"]]
    weighted = shares(places, len(docs), given.get("weights"))
    policy = dict(zip(docs, weighted.tolist(), strict=True))
    return retrieved(lists, useful, k, docs, policy)


def test_the_figures_of_lists_that_are_seen_to_k_and_their_bounds() -> None:
    cases = [case for case in vectors("expected_exposure")["cases"] if "browsing" not in case["tags"]]
    assert cases
    keys = {"EE-D": "disparity", "EE-R": "relevance", "EE-L": "loss"}
    for case in cases:
        observed, paper = of_case(case), case["expected"]["paper"]
        code = case["expected"].get("fair_rag_code", {"error": ""})
        assert observed.exposure == pytest.approx(paper["exposure"], abs=NEAR)
        aim = dict(zip(observed.doc_ids, target(observed.flags, observed.k).tolist(), strict=True))
        assert aim == pytest.approx(paper["target"], abs=NEAR)
        exposure = [(observed.exposure or {})[doc] for doc in observed.doc_ids]
        ours, theirs = (
            exposed(exposure, observed.flags, observed.k, norm=norm) for norm in ("exact", "fair-rag")
        )
        for name, key in keys.items():
            known, bounded = name.replace("-", "_"), getattr(ours, key)
            for whose in ("policy",) if "weights" in case["input"] else ("policy", "samples"):
                expected = [("norm=raw", paper[known])]
                expected += [("norm=exact", paper[f"{known}_norm_exact"])] if name != "EE-L" else []
                expected += [] if "error" in code else [("norm=fair-rag", code[f"{known}_norm"])]
                for norm, figure in expected:
                    found = number(value(f"{name}({norm},of={whose})", observed))
                    assert found == pytest.approx(figure, abs=NEAR), (case["id"], norm)
            if paper["bounds_exact"].get(known) is not None:
                limits = tuple(paper["bounds_exact"][known])
                assert (bounded.low, bounded.high) == pytest.approx(limits, abs=NEAR)
            if "error" not in code:
                bounded, limits = getattr(theirs, key), tuple(code["bounds"][known])
                figures = bounded.value, bounded.low, bounded.high
                assert figures == pytest.approx((code[known], *limits), abs=NEAR)


def test_the_bounds_are_what_lists_can_reach() -> None:
    for n in range(1, 7):
        for k, m in product(range(1, n + 1), range(1, n + 1)):
            useful = [place < m for place in range(n)]
            corners = [exposed(shares([first], n), useful, k) for first in combinations(range(n), k)]
            for key in ("relevance", "loss"):
                reached = [getattr(one, key) for one in corners]
                assert min(one.value for one in reached) >= reached[0].low - NEAR
                assert max(one.value for one in reached) == pytest.approx(reached[0].high, abs=NEAR)
            relevance = [one.relevance for one in corners if one.relevance]
            assert min(one.value for one in relevance) == pytest.approx(relevance[0].low, abs=NEAR)
            alike = exposed(np.full(n, k / n), useful, k)
            assert alike.disparity.value == pytest.approx(alike.disparity.low, abs=NEAR)
            assert corners[0].disparity.value == pytest.approx(alike.disparity.high)
            aimed = exposed(target(useful, k), useful, k)
            assert aimed.loss is not None
            assert aimed.loss.value == pytest.approx(0, abs=NEAR)


def test_samples_are_more_unequal_than_their_policy_by_what_they_vary() -> None:
    policy = np.array([0.9, 0.6, 0.3, 0.2])  # each list shows two of four
    pairs = {(0, 1): 0.55, (0, 2): 0.2, (0, 3): 0.15, (1, 2): 0.05, (2, 3): 0.05}
    assert shares([list(p) for p in pairs], 4, list(pairs.values())) == pytest.approx([0.9, 0.6, 0.3, 0.2])
    samples, plain, unbiased = 3, 0.0, 0.0
    for drawn in product(pairs, repeat=samples):  # every outcome with its probability
        chance = float(np.prod([pairs[pair] for pair in drawn]))
        found = shares([list(pair) for pair in drawn], 4)
        plain += chance * float(found @ found)
        unbiased += chance * unbiased_squares(found, samples)
    assert unbiased == pytest.approx(policy @ policy, abs=NEAR)
    assert plain == pytest.approx(policy @ policy + (policy * (1 - policy)).sum() / samples, abs=NEAR)


def test_the_policy_of_a_log_is_estimated_from_its_lists() -> None:
    logged = retrieved({("a", "b"): 3, ("c", "b"): 1}, ["a"], 2, "abcd")
    squares = unbiased_squares([0.75, 1, 0.25, 0], 4)
    assert value("EE-D(norm=raw)", logged) == pytest.approx(squares)
    assert value("EE-D(norm=raw,of=samples)", logged) == pytest.approx(1.625)
    longer = retrieved({("a", "b", "c"): 3, ("c", "b", "a"): 1}, ["a"], 2, "abcd")
    assert value("EE-D(norm=raw,of=samples)", longer) == pytest.approx(1.625), "the first k are shown"
    assert value("EE-R(norm=raw)", logged) == value("EE-R(norm=raw,of=samples)", logged)
    assert value("EE-L(norm=raw,of=samples)", logged) == pytest.approx(
        0.25**2 + (2 / 3) ** 2 + (1 / 12) ** 2 + 1 / 9
    )
    gain = value("EE-L(norm=raw,of=samples)", logged), value("EE-L(norm=raw)", logged)
    assert gain[0] - gain[1] == pytest.approx(1.625 - squares)  # type: ignore[operator]
    assert value("EE-D", retrieved({("a", "b"): 1}, ["a"], 2, "abcd")) == Undefined("one_sample")
    assert value("EE-D", retrieved({}, ["a"], 2, "abcd")) == Undefined("no_samples")


@given(
    st.lists(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5), min_size=2, max_size=6),
    st.integers(1, 6),
)
def test_shorter_lists_stay_within_their_bounds(lists: list[list[str]], m: int) -> None:
    counted: dict[tuple[str, ...], int] = {}
    for one in lists:
        counted[tuple(one)] = counted.get(tuple(one), 0) + 1
    logged = retrieved(counted, "abcdef"[:m], 5, "abcdef")
    for name in ("EE-D", "EE-R", "EE-L"):
        found = number(value(f"{name}(of=samples)", logged))
        assert found is not None
        assert -NEAR <= found <= 1 + NEAR
    alike = retrieved({("a",): 1, ("b", "c"): 1, ("d",): 1}, "a", 5, "abcd")
    assert value("EE-D(of=samples)", alike) == pytest.approx(0)


def test_queries_without_a_choice_have_a_number_but_no_say() -> None:
    whole = retrieved({("a", "b"): 2}, ["a"], 5, "ab", {"a": 1.0, "b": 1.0})
    free = retrieved({("a", "b"): 2}, ["a"], 2, "abcd", {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0})
    assert value("EE-D", whole) == Convention(0.0, "degenerate")
    assert value("EE-R", whole) == Convention(1.0, "degenerate")
    assert value("EE-L", whole) == Convention(0.0, "degenerate")
    observed = {"bm25-1": [whole, Retrieved("r", *list(vars(free).values())[1:6])]}
    columns = measure_all([parse_measure("EE-D")], observed)
    by_query, _, mean = summarise(columns)
    assert (by_query.value, by_query.reason) == (0.0, "degenerate")
    assert (mean.value, mean.n) == (1.0, 1)
    assert undefined_counts(columns) == {"EE-D": {"bm25-1": {"degenerate": 1}}}


def test_without_useful_items_only_disparity_is_defined() -> None:
    useless = retrieved({("a", "b"): 2}, [], 2, "abcd", {"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.5})
    assert value("EE-D", useless) == pytest.approx(0.0)
    for name in ("EE-R", "EE-L", "EE-R(norm=fair-rag)", "EE-L(norm=raw)"):
        assert value(name, useless) == Undefined("no_useful")


def test_the_figures_of_released_samples() -> None:
    folder = realdata("fairrag/fork_run_lamp3")
    published = {row["qid"]: row for row in map(json.loads, _lines(folder / "ee_metrics.jsonl"))}
    found = {}
    for row in map(json.loads, _lines(folder / "sampled_rankings_first8.jsonl")):
        lists: dict[tuple[str, ...], int] = {}
        for ranking in row["rankings_det_indices"]:
            shown = tuple(map(str, ranking))
            lists[shown] = lists.get(shown, 0) + 1
        logged = retrieved(lists, ["0"], row["k"], [str(place) for place in range(400)])
        found[row["qid"]] = value("EE-D(norm=fair-rag,of=samples)", logged)
    assert len(found) == 8
    assert found == pytest.approx({qid: published[qid]["ee_disparity"] for qid in found}, abs=NEAR)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def of_lists(name: str, *orders: str) -> Value:
    """A measure of the list a, b, c, d, of which a is relevant, that was ranked in these orders."""
    query = judged(*orders, candidates="abcd", relevance={"a": 1})
    (found,) = parse_measure(name, Judged).values(query).values()
    return found


def test_orders_and_repeats_of_a_list_are_samples_of_its_ranker() -> None:
    # a is always among the first two, b and c half the time: Σ ε² = 1.5, of two samples 2 × 1.5 − 2 = 1 without bias,
    # where 1 is the least and 2 the most
    assert of_lists("EE-D@2", "abcd", "cadb") == pytest.approx(0)
    assert of_lists("EE-D(of=samples)@2", "abcd", "cadb") == pytest.approx(0.5)
    assert of_lists("EE-R@2", "abcd", "cadb") == pytest.approx(1)
    assert of_lists("EE-D@2", "abcd", "badc", "abdc") == pytest.approx(1), "the same two, in whatever order"
    assert of_lists("EE-D@2", "abcd") == Undefined("one_sample")
    assert of_lists("EE-D@2") == Undefined("no_samples")
    # of two disjoint lists the estimate falls below the least there can be
    assert of_lists("EE-D@2", "abcd", "cdab") == pytest.approx(-1)


@pytest.mark.parametrize(
    ("name", "reads", "says"),
    [
        ("EE-D", Judged, "EE-D needs a cutoff"),
        ("EE-D@5", Retrieved, "takes no cutoff"),
        ("EU@5", Judged, "EU is a measure of shown items, but this audit asks about lists"),
    ],
)
def test_of_lists_it_has_a_cutoff_and_of_shown_items_none(name: str, reads: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_measure(name, reads)
    assert parse_measure("EE-D@20").definition.reads is Judged
    assert parse_measure("EE-D").definition.reads is Retrieved
