"""Utilities of texts: the published package's figures, ratings that are none, several golds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.metrics.texts import EMPTY, UTILITIES, cleaned, common_words, mae, problem, rouge_l, utility

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
    with pytest.raises(ValueError, match="the gold 'nan' is no number"):
        mae("3", "nan")


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
    with pytest.raises(ValueError, match="no gold"):
        utility("accuracy", "a", [])


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


@given(st.sampled_from(sorted(UTILITIES)), st.text(max_size=30), st.text(max_size=30))
def test_no_answer_breaks_a_utility(name: str, output: str, gold: str) -> None:
    found = utility(name, output, ["3" if name == "mae" else gold])
    assert 0 <= found <= (4 if name == "mae" else 1)
