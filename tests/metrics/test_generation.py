"""Measures of what a generator makes of shown items: reference figures, edges, and what samples estimate."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.audits.aggregates import summarise, undefined_counts
from llmfair.metrics.base import Undefined, Value, measure_all
from llmfair.metrics.expected import ListSample, Retrieved
from llmfair.metrics.generation import FEWEST_USEFUL, gains, useful
from llmfair.metrics.names import parse_measure
from llmfair.metrics.texts import EMPTY, UTILITIES, cleaned, common_words, mae, problem, rouge_l, utility
from tests.metrics import shares
from tests.shared import vectors

NEAR = 1e-9


def cases(*tags: str) -> list[dict[str, Any]]:
    """The reference cases with one of these tags."""
    found = [case for case in vectors("attributed_exposure")["cases"] if set(tags) & set(case["tags"])]
    assert found
    return found


def retrieved(*lists: ListSample, k: int = 2, doc_ids: str = "abcd", **more: Any) -> Retrieved:
    """A query with these lists, of an unknown policy unless one is given."""
    return Retrieved("q", tuple(doc_ids), frozenset("a"), k, **{"exposure": None, **more}, lists=lists)


def shown(
    doc_ids: str, count: int = 1, utility: float | None = None, attributed: str | None = None
) -> ListSample:
    """A list with its answer."""
    return ListSample(
        tuple(doc_ids), count, "an answer", utility, None if attributed is None else frozenset(attributed)
    )


def values(name: str, observed: Retrieved) -> Mapping[str, Value]:
    return parse_measure(name, Retrieved).values(observed)


def value(name: str, observed: Retrieved) -> Value:
    """What a measure of one group says of a query."""
    (found,) = values(name, observed).values()
    return found


def test_the_attributed_exposure_of_the_reference_figures() -> None:
    for case in cases("random", "structured", "edge"):
        given, expected = case["input"], case["expected"]
        lists = [
            ListSample(tuple(one["ranking"]), 1, "", None, frozenset(one["attributed"]))
            for one in given["samples"]
        ]
        observed = Retrieved("q", tuple(given["docs"]), frozenset(), given["k"], None, tuple(lists))
        of = {
            "EAR": "EAR",
            "EAR_divided_by_actual_length": "EAR(over=shown)",
            "EAE_D": "EAE-D(norm=raw,of=samples)",
            "EAE_D_norm_0_k": "EAE-D(of=samples)",
            "EE_D": "EE-D(norm=raw,of=samples)",
            "effective_number_of_attributed_items": "EffectiveSources",
        }
        for key, name in of.items():
            found = value(name, observed)
            number = None if isinstance(found, Undefined) else found
            assert number == pytest.approx(expected[key], abs=NEAR), (case["id"], name)
        ear = value("EAR", observed)
        assert ear == pytest.approx(expected["l1_of_attributed_exposure"] / given["k"], abs=NEAR)


def test_weighted_lists_of_the_reference_figures() -> None:
    for case in cases("weighted"):
        given, expected = case["input"], case["expected"]
        docs, k = given["docs"], given["k"]
        places = [[docs.index(doc) for doc in one["ranking"][:k]] for one in given["samples"]]
        of_answers = [
            [place for place in one if docs[place] in sample["attributed"]]
            for one, sample in zip(places, given["samples"], strict=True)
        ]
        found = shares(of_answers, len(docs), given["weights"])
        assert dict(zip(docs, found, strict=True)) == pytest.approx(expected["attributed_exposure"], abs=NEAR)
        assert found.sum() / k == pytest.approx(expected["EAR"], abs=NEAR)
        assert found @ found == pytest.approx(expected["EAE_D"], abs=NEAR)
        # a quarter and three quarters are one list of four, and three
        lists = [
            ListSample(tuple(one["ranking"]), round(4 * weight), "", None, frozenset(one["attributed"]))
            for one, weight in zip(given["samples"], given["weights"], strict=True)
        ]
        observed = Retrieved("q", tuple(docs), frozenset(), k, None, tuple(lists))
        assert value("EAE-D(of=samples)", observed) == pytest.approx(expected["EAE_D_norm_0_k"], abs=NEAR)


def test_useful_items_and_the_queries_that_are_kept() -> None:
    for case in cases("utility_label"):
        given, expected = case["input"], case["expected"]
        sign = 1 if given["higher_is_better"] else -1
        found = gains(sign * given["baseline_utility"], sign * np.array(given["item_utilities"]))
        assert found == pytest.approx(expected["gain"], abs=NEAR)
        assert useful(found).astype(int).tolist() == expected["useful"]
        assert (useful(found).sum() >= FEWEST_USEFUL) == expected["query_kept_more_than_one_useful"]


def test_a_gain_of_rounding_is_none() -> None:
    assert useful(gains(0.3, [0.1 + 0.2, 0.3, 0.31])).tolist() == [False, False, True]


def test_utility_and_its_ceiling() -> None:
    for case in cases("expected_utility"):
        given, expected = case["input"], case["expected"]
        best = max(
            *given["sample_utilities"],
            given["oracle_run_max_utility"],
            *given["max_utility_of_the_other_alpha_runs"],
        )
        assert best == expected["denominator"]
        lists = [ListSample((str(place),), 1, "", one) for place, one in enumerate(given["sample_utilities"])]
        observed = Retrieved(
            "q", tuple("abc"), frozenset(), 1, None, tuple(lists), baseline=0.25, ceiling=best
        )
        assert value("EU", observed) == pytest.approx(expected["EU"], abs=NEAR)
        assert value("EU(norm=ceiling)", observed) == pytest.approx(expected["EU_norm"], abs=NEAR)
        assert value("EU-change", observed) == pytest.approx(expected["EU"] - 0.25, abs=NEAR)


def test_lists_count_as_often_as_they_were_drawn_and_those_without_an_answer_not() -> None:
    observed = retrieved(shown("ab", 3, 1.0), shown("ba", 1, 0.0), shown("cd", 6), baseline=0.5)
    assert value("EU", observed) == 0.75
    assert value("EU-change", observed) == 0.25
    assert value("EU", retrieved(shown("ab", 3), baseline=0.5)) == Undefined("no_output")
    assert value("EU-change", retrieved()) == Undefined("no_output")
    assert value("EU-change", retrieved(shown("ab", 3, 1.0))) == Undefined("no_baseline")
    assert value("EU(norm=ceiling)", retrieved(shown("ab", 3, 1.0))) == Undefined("no_ceiling")


def test_a_ceiling_of_0_is_perfect_or_dropped_and_counted() -> None:
    observed = {"bm25-1": [retrieved(shown("ab", 2, 0.0), ceiling=0.0)]}
    names = ("EU(norm=ceiling)", "EU(norm=ceiling,zero=drop)")
    columns = measure_all([parse_measure(name) for name in names], observed)
    one, mean, dropped, none = summarise(columns)
    assert (one.value, one.reason, mean.value, mean.n) == (1.0, "zero_ceiling", 1.0, 1)
    assert (dropped.value, dropped.reason, none.value, none.n) == (None, "zero_ceiling", None, 0)
    assert undefined_counts(columns) == {names[1]: {"bm25-1": {"zero_ceiling": 1}}}


def test_where_nobody_asked_or_nothing_is_credited() -> None:
    unasked, empty = retrieved(shown("ab", 2)), retrieved(shown("ab", 2, attributed=""))
    for name in ("EAR", "EAE-D", "EffectiveSources"):
        assert value(name, unasked) == Undefined("no_attribution")
    assert value("EAR", empty) == value("EAE-D", empty) == 0.0
    assert value("EffectiveSources", empty) == Undefined("nothing_attributed")
    assert value("EAR", retrieved(shown("ab", 2), shown("cd", 2, attributed="c"))) == 0.5


def test_only_shown_items_are_credited() -> None:
    assert value("EAR", retrieved(shown("abc", 2, attributed="acd"))) == 0.5


def test_the_policys_attributed_disparity_is_estimated_without_bias() -> None:
    outcomes = {("ab", "a"): 0.5, ("cd", "cd"): 0.3, ("ad", ""): 0.2}
    policy = np.array([0.5, 0.0, 0.3, 0.3])
    found = 0.0
    for drawn in product(outcomes, repeat=2):
        lists = [shown(doc_ids, attributed=of) for doc_ids, of in drawn]
        estimate = value("EAE-D(norm=raw)", retrieved(*lists))
        assert isinstance(estimate, float)
        found += outcomes[drawn[0]] * outcomes[drawn[1]] * estimate
    assert found == pytest.approx(policy @ policy, abs=NEAR)


def test_one_sample_tells_nothing_of_a_policy_but_of_one_that_never_varies() -> None:
    one = shown("ab", attributed="a")
    assert value("EAE-D", retrieved(one)) == Undefined("one_sample")
    assert value("EAE-D(of=samples)", retrieved(one)) == 0.5
    always = {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0}
    assert value("EAE-D", retrieved(one, exposure=always)) == 0.5
    assert value("EAE-D", retrieved(one, k=4, doc_ids="ab", exposure={"a": 1.0, "b": 1.0})) == 0.5
    assert value("EAE-D(norm=fair-rag)", retrieved(one, k=4, doc_ids="ab", exposure={"a": 1.0})) == 0.25


def test_each_slot_has_its_share() -> None:
    observed = retrieved(
        shown("abc", 3, attributed="ac"), shown("bac", 1, attributed="c"), shown("d", 1, attributed=""), k=4
    )
    found = values("AttributionAt(by=nli)", observed)
    assert list(found) == ["1", "2", "3", "4"]
    assert found == {"1": 3 / 5, "2": 0.0, "3": 1.0, "4": Undefined("no_attribution")}


# Citations beside what a judge says of them, worked by hand


def citing(count: int, cited: str | None, supported: str | None) -> ListSample:
    found = [None if items is None else frozenset(items) for items in (cited, supported)]
    return ListSample(("a", "b", "c"), count, "an answer", 1.0, *found)


def citation(name: str, *lists: ListSample) -> Value:
    of = Retrieved("q", ("a", "b", "c", "d"), frozenset("ab"), 3, None, lists)
    return parse_measure(name, Retrieved).values(of)[""]


def test_precision_is_of_citations_and_recall_of_answers() -> None:
    # two samples cite a and b, of which a holds; one cites c, which does not; one cites nothing
    lists = citing(2, "ab", "a"), citing(1, "c", ""), citing(1, "", "")
    assert citation("CitationPrecision", *lists) == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)
    assert citation("CitationRecall", *lists) == pytest.approx(2 / 4)


def test_answers_that_cite_nothing_have_no_precision_and_no_recall() -> None:
    assert citation("CitationPrecision", citing(3, "", "")) == Undefined("nothing_cited")
    assert citation("CitationRecall", citing(3, "", "")) == 0


@pytest.mark.parametrize("name", ["CitationPrecision", "CitationRecall"])
def test_what_nobody_judged_is_left_out(name: str) -> None:
    assert citation(name, citing(3, "ab", None), citing(3, None, None)) == Undefined("not_judged")
    assert citation(name, citing(3, "ab", None), citing(1, "c", "c")) == 1


# Utilities of texts: the published package's figures, ratings that are none, several golds


PIECES = [*"the The cat sat mat mat, a b on is Hello, hello 3.5 . ..".split(), " ", "\n", "\t"]


def texts(seed: int, pairs: int) -> list[tuple[str, str]]:
    """Pairs of texts of few words, so that many recur, with dots and spaces where they may be."""
    drawn = random.Random(seed)

    def text() -> str:
        words = [drawn.choice(PIECES) for _ in range(drawn.randint(1, 14))]
        return "".join(word + drawn.choice(["", " ", " ", " ", ". "]) for word in words)

    return [(text(), text()) for _ in range(pairs)]


def test_rouge_l_is_that_of_the_package_behind_the_published_figures() -> None:
    oracle = pytest.importorskip("rouge", reason="rouge 1.0.1 is of the [test] extra").Rouge(
        metrics=["rouge-l"]
    )
    compared = 0
    for output, gold in texts(1, 1100):
        if output.strip(".") and gold.strip("."):  # of others the package raises
            expected = oracle.get_scores(output, gold)[0]["rouge-l"]["f"]
            assert rouge_l(output, gold) == pytest.approx(expected, abs=1e-9), (output, gold)
            compared += 1
    assert compared >= 1000


@pytest.mark.parametrize(
    ("output", "gold", "published", "standard"),
    [
        ("the cat sat on the mat.", "the cat is on the mat", 0.799999995, 5 / 6),
        ("Hello, World!", "hello world", 0.0, 1.0),
        ("a. b. c.", "a b c", 0.999999995, 1.0),
        ("", "a", 0.0, 0.0),
        ("...", "a", 0.0, 0.0),
        ("a", "", 0.0, 0.0),
        ("a", "..", 0.0, 0.0),
        (EMPTY, EMPTY, 0.0, 0.0),
    ],
)
def test_both_kinds_of_rouge_l(output: str, gold: str, published: float, standard: float) -> None:
    assert utility("rouge-l", output, [gold]) == pytest.approx(published, abs=1e-12)
    assert utility("rouge-l-standard", output, [gold]) == pytest.approx(standard)


@given(st.lists(st.sampled_from("abc"), max_size=7), st.lists(st.sampled_from("abc"), max_size=7))
def test_common_words_are_a_longest_common_subsequence(one: list[str], other: list[str]) -> None:
    def within(part: list[str], whole: list[str]) -> bool:
        rest = iter(whole)
        return all(word in rest for word in part)

    found = common_words(one, other)
    assert within(found, one)
    assert within(found, other)
    assert len(found) == len(common_words(other, one))


@pytest.mark.parametrize(
    ("output", "gold", "expected", "counted"),
    [
        ("3", "3", 4.0, None),
        (" 4.5 ", "3", 2.5, None),
        ("1", "5", 0.0, None),
        ("no idea", "1", 0.0, "no_number"),
        ("no idea", "3", 2.0, "no_number"),
        ("no idea", "5", 0.0, "no_number"),
        ("no idea", "2", 1.0, "no_number"),
        ("nan", "3", 2.0, "no_number"),
        ("inf", "5", 0.0, "no_number"),
        ("-infinity", "1", 0.0, "no_number"),
        ("100", "5", 0.0, "out_of_range"),
        ("-1e9", "1", 0.0, "out_of_range"),
        ("0", "1", 3.0, "out_of_range"),
        ("", "3", 2.0, "empty"),
    ],
)
def test_ratings(output: str, gold: str, expected: float, counted: str | None) -> None:
    assert utility("mae", output, [gold]) == expected
    assert problem("mae", output) == counted


def test_a_gold_that_is_no_rating_is_refused() -> None:
    with pytest.raises(ValueError, match="none"):
        mae("3", "none")


@pytest.mark.parametrize(
    ("name", "output", "gold", "expected"),
    [
        ("accuracy", " [1]\n", "[1]", 1.0),
        ("accuracy", "Comedy", "comedy", 0.0),
        ("exact-match", "The Eiffel Tower.", "eiffel tower", 1.0),
        ("exact-match", "Eiffel", "eiffel tower", 0.0),
        ("token-f1", "in the Eiffel tower", "Eiffel Tower", 0.8),
        ("token-f1", "no", "yes", 0.0),
        ("contains", "It stands in Paris, France.", "Paris", 1.0),
        ("contains", "It stands in Parisian suburbs.", "Paris", 0.0),
        ("contains", "Paris", "Paris, France", 0.0),
        ("contains", "anything", "...", 0.0),
    ],
)
def test_the_other_utilities(name: str, output: str, gold: str, expected: float) -> None:
    assert utility(name, output, [gold]) == pytest.approx(expected)


def test_of_several_golds_the_best_counts() -> None:
    assert utility("accuracy", "b", ["a", "b"]) == 1.0
    assert utility("mae", "2", ["5", "3"]) == 3.0
    assert utility("rouge-l", "a b", ["c", "a"]) == pytest.approx(2 / 3, abs=1e-8)


@pytest.mark.parametrize("output", ["", " ", ".", " . .\n", "\t"])
def test_an_answer_of_dots_and_spaces_is_empty(output: str) -> None:
    assert cleaned(output) == EMPTY
    assert problem("accuracy", output, ["a"]) == "empty"
    for name in UTILITIES:
        assert name == "mae" or utility(name, output, ["<empty>", "."]) == 0.0


def test_an_answer_that_is_no_label_is_counted() -> None:
    assert problem("accuracy", "Comedy", ["comedy", "action"]) == "off_label"
    assert problem("accuracy", " comedy ", ["comedy", "action"]) is None
    assert problem("accuracy", "anything") is None


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(UTILITIES)), st.text(max_size=30), st.text(max_size=30))
def test_no_answer_breaks_a_utility(name: str, output: str, gold: str) -> None:
    found = utility(name, output, ["3" if name == "mae" else gold])
    assert 0 <= found <= (4 if name == "mae" else 1)
