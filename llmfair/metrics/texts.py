"""How good an answer is beside the expected ones: utilities of texts, higher is better.

Of several golds the one that is best for the answer counts.

Sources: package `rouge` 1.0.1, by which the published ROUGE-L of Fair-RAG was computed; Lin 2004 for the standard one,
words as in `rouge-score`; Rajpurkar et al. 2016 (SQuAD) for exact match and F1 of normalised words; LaMP (Salemi et al.
2024) for accuracy and ratings from 1 to 5.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Literal

EMPTY = "<empty>"
"""What an answer of nothing but dots and spaces is called; it has no utility."""
LOWEST, HIGHEST = 1.0, 5.0
"""The ratings there are; no error counts more than their distance."""

Problem = Literal["empty", "no_number", "out_of_range", "off_label"]
"""What is counted of answers that have a utility nevertheless."""


def cleaned(output: str) -> str:
    """An answer as it is scored and attributed: without spaces around it, `<empty>` where nothing is left."""
    return output.strip() if output.replace(".", "").strip() else EMPTY


def accuracy(output: str, gold: str) -> float:
    """1 where both texts are the same, case and all, but for spaces around them."""
    return float(output.strip() == gold.strip())


def rating(text: str) -> float | None:
    """The number that a text is; None where it is none, or not finite."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def mae(output: str, gold: str) -> float:
    """4 − |rating − gold|, at least 0; what is no number counts as the extreme of 1 to 5 that is farther from the gold.

    At 3 that is 5 [official code]. Raises ValueError for a gold that is no number.
    """
    expected, stated = float(gold), rating(output)
    if stated is None:
        stated = LOWEST if abs(LOWEST - expected) > abs(HIGHEST - expected) else HIGHEST
    return max(HIGHEST - LOWEST - abs(stated - expected), 0.0)


def rouge_l(output: str, gold: str) -> float:
    """ROUGE-L F of package `rouge` 1.0.1: sets of words, case and punctuation kept, sentences ended by dots.

    The words of the longest common subsequences of all pairs of sentences count, each once.
    """
    answers, golds = _sentences(output), _sentences(gold)
    if not answers or not golds:
        return 0.0
    common = {word for sentence in golds for other in answers for word in common_words(sentence, other)}
    precision, recall = (
        len(common) / len({word for sentence in of for word in sentence}) for of in (answers, golds)
    )
    return 2 * precision * recall / (precision + recall + 1e-8)


def _sentences(text: str) -> list[list[str]]:
    # as the package has it, a sentence of nothing but spaces has one word, which is empty
    return [" ".join(piece.split()).split(" ") for piece in text.split(".") if piece]


def common_words(words: Sequence[str], other: Sequence[str]) -> list[str]:
    """A longest common subsequence; of several the one that package `rouge` finds."""
    lengths = [[0] * (len(other) + 1)]
    for word in words:
        above, row = lengths[-1], [0]
        for place, candidate in enumerate(other):
            row.append(above[place] + 1 if word == candidate else max(above[place + 1], row[place]))
        lengths.append(row)
    i, j, common = len(words), len(other), list[str]()
    while i and j:
        if words[i - 1] == other[j - 1]:
            i, j = i - 1, j - 1
            common.append(words[i])
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return common[::-1]


def rouge_l_standard(output: str, gold: str) -> float:
    """ROUGE-L F of one sentence: lower case, letters and digits alone, no stemming."""
    words, expected = (re.findall(r"[^\W_]+", text.lower()) for text in (output, gold))
    return _f1(len(common_words(expected, words)), len(words), len(expected))


def exact_match(output: str, gold: str) -> float:
    """1 where both have the same words, without case, punctuation and articles [SQuAD]."""
    return float(_words(output) == _words(gold))


def token_f1(output: str, gold: str) -> float:
    """F1 of the words that both have, without case, punctuation and articles [SQuAD]."""
    words, expected = _words(output), _words(gold)
    if not words or not expected:
        return float(words == expected)
    return _f1((Counter(words) & Counter(expected)).total(), len(words), len(expected))


def contains(output: str, gold: str) -> float:
    """1 where the answer has the gold's words in a row, without case, punctuation and articles."""
    words, expected = _words(output), _words(gold)
    starts = range(len(words) - len(expected) + 1)
    return float(any(words[start : start + len(expected)] == expected for start in starts) and bool(expected))


def _words(text: str) -> list[str]:
    bare = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def _f1(common: int, answered: int, expected: int) -> float:
    return 2 * common / (answered + expected) if common else 0.0


UTILITIES = {
    "accuracy": accuracy,
    "mae": mae,
    "rouge-l": rouge_l,
    "rouge-l-standard": rouge_l_standard,
    "exact-match": exact_match,
    "token-f1": token_f1,
    "contains": contains,
}
"""By the name that a user writes: the utility of an answer beside one gold."""
GREATEST = {**dict.fromkeys(UTILITIES, 1.0), "mae": 4.0}
"""The greatest utility that an answer can have; the least is 0."""


def utility(name: str, output: str, golds: Sequence[str]) -> float:
    """The utility of an answer by the gold that it comes nearest to; 0 of no answer, but for ratings.

    Raises KeyError for a name that is none of UTILITIES.
    """
    score, answer = UTILITIES[name], cleaned(output)
    if answer == EMPTY and name != "mae":
        return 0.0
    return max(score(answer, gold) for gold in golds)


def problem(name: str, output: str, labels: Collection[str] = ()) -> Problem | None:
    """What is to be counted of an answer: empty, a rating that is none or lies outside 1 to 5, none of the labels."""
    answer = cleaned(output)
    if answer == EMPTY:
        return "empty"
    if name == "mae":
        number = rating(answer)
        return "no_number" if number is None else None if LOWEST <= number <= HIGHEST else "out_of_range"
    return "off_label" if labels and answer not in {label.strip() for label in labels} else None
