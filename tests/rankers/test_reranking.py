"""Rankers by words, and those that order anew: MMR, greedy, FA*IR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair import registry
from llmfair.errors import UsageError
from llmfair.metrics.attention import kullback_leibler
from llmfair.metrics.base import Groups
from llmfair.nouns import (
    Attribute,
    Candidates,
    Chat,
    Completion,
    Document,
    Probe,
    Query,
    Ranking,
    Side,
    drive,
)
from llmfair.rankers.base import Ranker, RankerOptions, ScoringRanker
from llmfair.rankers.reranking import (
    EPS,
    NO_TARGET,
    TOO_FEW,
    cosines,
    fair_order,
    fair_table,
    greedy,
    meets,
    min_max,
    mmr,
    tf_idf,
)
from llmfair.rankers.strategies import Ranked
from tests.shared import vectors


def mmr_of_vectors(
    query: Sequence[float], documents: Sequence[Sequence[float]], trade: float, k: int
) -> list[int]:
    """By cosines, the most relevant document first: at λ = 0 the formula alone would not say which."""
    alike = cosines([query, *documents])
    relevance = alike[0, 1:]
    order = sorted(range(len(documents)), key=lambda place: place != relevance.argmax())
    return [order[place] for place in mmr(relevance[order], alike[1:, 1:][np.ix_(order, order)], trade)[:k]]


def test_the_orders_of_the_reference() -> None:
    for case in vectors("mmr")["cases"]:
        asked = case["input"]
        if "similarity" in asked:
            found = mmr(asked["relevance"], asked["similarity"], asked["lambda"])[: asked["k"]]
        else:
            found = mmr_of_vectors(
                asked["query_embedding"], asked["doc_embeddings"], asked["lambda"], asked["k"]
            )
        assert found == case["expected"]["order"], case["id"]


def test_cosines_of_tf_idf_by_hand() -> None:
    found = cosines(tf_idf(["a film", "film film chess", "", "Films"]))
    film, rare = 1 + math.log(5 / 4), 1 + math.log(5 / 2)
    assert found[0, 3] == pytest.approx(film / math.hypot(film, rare))  # letter case and endings do not count
    assert found[0, 1] == pytest.approx(2 * film * film / math.hypot(film, rare) / math.hypot(2 * film, rare))
    assert found[2].tolist() == [0, 0, 0, 0] and np.allclose(found.diagonal(), [1, 1, 0, 1])


def test_scores_are_moved_to_one_scale() -> None:
    assert min_max(np.array([3.0, 1.0, 2.0])).tolist() == [1.0, 0.0, 0.5]
    assert min_max(np.array([7.0, 7.0])).tolist() == [0.0, 0.0] and min_max(np.array([])).size == 0
    assert min_max(np.array([np.inf, -1e308, -np.inf])).tolist() == [1.0, 0.0, 0.0]


TEXTS = ("film of women", "film of women", "film of chess", "garden", "film")
DOCUMENTS = tuple(Document(f"d{place}", text) for place, text in enumerate(TEXTS))


def ranker(parameters: str = "") -> Ranker:
    options = RankerOptions(DOCUMENTS, Path("kept"), checkpoint=parameters)
    made: Ranker = registry.lookup("ranker", "mmr")(options)
    return made


def test_the_ranker_takes_the_scores_that_candidates_come_with() -> None:
    candidates = Candidates(Query("q", ""), DOCUMENTS, {}, (5.0, 4.0, 3.0, 2.0, 1.0))
    assert ranker("lambda=1").ordered(candidates)[0].doc_ids == candidates.doc_ids
    found, scores = ranker().ordered(candidates)
    assert found.doc_ids == ("d0", "d3", "d2", "d1", "d4") and scores is None
    assert found.scores == (5.0, 2.0, 3.0, 4.0, 1.0)
    # beyond the pool the first stage's order stays
    assert ranker("pool=2").ordered(candidates)[0].doc_ids == candidates.doc_ids


def test_without_scores_relevance_is_that_of_bm25() -> None:
    candidates = Candidates(Query("q", "garden chess"), DOCUMENTS, {})
    first = registry.lookup("ranker", "bm25")(RankerOptions(DOCUMENTS, Path("kept")))
    by_words, scores = first.ordered(candidates)
    scored = Candidates(candidates.query, by_words.documents, {}, scores)
    assert ranker().ordered(candidates)[0].doc_ids == ranker().ordered(scored)[0].doc_ids
    assert ranker().identity == f"mmr lambda=0.5 pool=100 similarity=tf-idf over {first.identity}"


GENDER = Attribute("gender", ("female",), ("male",), {Side.PROTECTED: "female", Side.UNPROTECTED: "male"})
BY_GROUP = tuple(
    Document(f"{group[0]}{place}", "", groups={"gender": (group,)} if group != "?" else {})
    for place, group in enumerate(["male", "male", "male", "female", "female", "?"])
)


def greedy_ranker(parameters: str = "") -> Ranker:
    groups = Groups("gender", {"gender": GENDER}, {one.doc_id: one for one in BY_GROUP})
    made: Ranker = registry.lookup("ranker", "greedy")(
        RankerOptions((), Path("kept"), GENDER, checkpoint=parameters, groups=groups)
    )
    return made


def candidates(*relevant: str) -> Candidates:
    return Candidates(Query("q", ""), BY_GROUP, dict.fromkeys(relevant, 1), (6.0, 5.0, 4.0, 3.0, 2.0, 1.0))


def test_each_step_is_the_best_of_its_formula() -> None:
    rng = np.random.default_rng(3)
    relevance, rows = rng.random(12), rng.dirichlet([1, 1, 1], 12)
    target = np.array([0.6, 0.3, 0.1])
    page: list[int] = []
    for place in greedy(relevance, rows, target, 0.4):
        left = [i for i in range(12) if i not in page]
        worth = {
            i: 0.4 * relevance[i] - 0.6 * kullback_leibler(rows[[*page, i]].mean(axis=0), target, EPS)
            for i in left
        }
        assert worth[place] == pytest.approx(max(worth.values()), abs=1e-12)
        page.append(place)
    assert sorted(page) == list(range(12))


def test_the_target_may_be_one_that_needs_no_judgement() -> None:
    listed = candidates()
    found = greedy_ranker("lambda=0,target=uniform").ordered(listed)[0].doc_ids
    # which leaves documents of unknown group out of its shares, so that one does no harm
    assert found[:5] == ("m0", "f3", "?5", "m1", "f4")
    empirical = greedy_ranker("lambda=0")
    assert empirical.ordered(listed)[0].doc_ids == listed.doc_ids
    assert empirical.remark(listed) == NO_TARGET and greedy_ranker("target=uniform").remark(listed) == ""


# FA*IR: tables and chances of failing exactly, re-rankings that keep every prefix, ties and lists that run out


def cases(key: str) -> list[dict[str, Any]]:
    return [case for case in vectors("fair_mtable")["cases"] if key in case["expected"]]


@pytest.mark.parametrize("adjust", ["closest", "conservative"])
def test_adjusted_tables_of_the_reference(adjust: str) -> None:
    for case in cases(f"exact_{adjust}"):
        expected = case["expected"][f"exact_{adjust}"]
        asked = case["input"]
        found = fair_table(asked["k"], asked["p"], asked["alpha"], adjust)
        assert list(found.minimum) == expected["mtable"], case["id"]
        assert found.fail == pytest.approx(expected["fail_probability"], abs=1e-9), case["id"]


def test_unadjusted_tables_of_the_reference() -> None:
    for case in cases("mtable_unadjusted"):
        asked, expected = case["input"], case["expected"]
        found = fair_table(asked["k"], asked["p"], asked["alpha"], "none")
        assert list(found.minimum) == expected["mtable_unadjusted"], case["id"]
        if (fail := expected.get("fail_probability_unadjusted_exact")) is not None:
            assert found.fail == pytest.approx(fail, abs=1e-9), case["id"]


def test_rerankings_of_the_reference() -> None:
    for case in cases("reranked_adjusted"):
        documents, expected = case["input"]["docs_sorted_by_score_desc"], case["expected"]
        protected = [one["protected"] for one in documents]
        for which in ("adjusted", "unadjusted"):
            table = expected[f"mtable_{which}"]
            order = fair_order(protected, [one["score"] for one in documents], table)
            assert [documents[place]["id"] for place in order] == expected[f"reranked_{which}"], case["id"]
        if (fair := expected["input_is_fair_adjusted"]) is not None:
            assert meets(protected, expected["mtable_adjusted"]) is fair, case["id"]


@pytest.mark.parametrize(
    ("k", "unadjusted", "adjusted", "twentieth", "last"),
    [(20, 0.252199, 0.147806, 3, 3), (100, 0.433783, 0.149588, 3, 22), (400, 0.562812, 0.149991, 2, 102)],
)
def test_goldens_at_the_parameters_of_the_paper(
    k: int, unadjusted: float, adjusted: float, twentieth: int, last: int
) -> None:
    assert fair_table(k, 0.3, 0.15, "none").fail == pytest.approx(unadjusted, abs=1e-6)
    found = fair_table(k, 0.3, 0.15)
    assert found.fail == pytest.approx(adjusted, abs=1e-6)
    assert (found.minimum[19], found.minimum[-1]) == (twentieth, last)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=1, max_size=60),
    st.integers(1, 60),
    st.floats(0, 1),
    st.floats(0.01, 0.5),
    st.sampled_from(["closest", "conservative", "none"]),
)
def test_every_prefix_holds_while_protected_documents_last(
    listed: list[tuple[bool, int]], k: int, p: float, alpha: float, adjust: str
) -> None:
    listed = sorted(listed, key=lambda one: -one[1])
    protected, scores = [one for one, _ in listed], [float(score) for _, score in listed]
    table = fair_table(k, p, alpha, adjust).minimum
    order = fair_order(protected, scores, table)
    assert len(set(order)) == len(order) == min(k, len(listed))
    for i in range(1, len(order) + 1):
        held = sum(protected[place] for place in order[:i])
        assert held >= min(table[i - 1], sum(protected))
    for kind in (True, False):  # either kind stays in the order it came in
        of_kind = [place for place in order if protected[place] is kind]
        assert of_kind == sorted(of_kind)
    assert meets([protected[place] for place in order], table) == (sum(protected) >= max(table[: len(order)]))


@given(st.integers(1, 40), st.floats(0.05, 0.95), st.floats(0.02, 0.4))
def test_a_conservative_table_keeps_its_promise_the_closest_is_near(k: int, p: float, alpha: float) -> None:
    closest, kept = fair_table(k, p, alpha), fair_table(k, p, alpha, "conservative")
    assert kept.fail <= alpha and abs(closest.fail - alpha) <= abs(kept.fail - alpha)
    assert all(a <= b for a, b in zip(kept.minimum, closest.minimum, strict=True))


@pytest.mark.parametrize(("n", "protected"), [(n, n1) for n in range(1, 13) for n1 in range(n + 1)])
def test_draws_without_replacement_are_those_that_enumeration_counts(n: int, protected: int) -> None:
    """Every set of places that the protected documents may have in a random order is as likely as any other."""
    orders = []
    for places in combinations(range(n), protected):
        held = np.zeros(n, dtype=int)
        held[list(places)] = 1
        orders.append(held.cumsum())
    counts = np.array(orders)
    for k in {1, n // 2 + 1, n}:
        for adjust in ("none", "closest", "conservative"):
            found = fair_table(k, (n, protected), 0.2, adjust)
            failing = (counts[:, :k] < found.minimum).any(axis=1).mean()
            assert found.fail == pytest.approx(failing, abs=1e-12)
            at_level = [
                next(j for j in range(i + 2) if (counts[:, i] <= j).mean() >= found.level * (1 - 1e-9))
                for i in range(k)
            ]
            assert list(found.minimum) == at_level


def fair_star(parameters: str = "") -> Ranker:
    options = RankerOptions((), Path("kept"), GENDER, checkpoint=parameters)
    made: Ranker = registry.lookup("ranker", "fair-star")(options)
    return made


def listed(groups: str, scores: tuple[float, ...] | None = None) -> Candidates:
    """A list of female (f), male (m), mixed (x) and unknown (?) documents, by falling score."""
    of = {"f": ("female",), "m": ("male",), "x": ("male", "female"), "?": ()}
    documents = tuple(
        Document(f"{group}{place}", "", groups={"gender": of[group]} if of[group] else {})
        for place, group in enumerate(groups)
    )
    return Candidates(Query("q", ""), documents, {}, scores or tuple(map(float, range(len(groups), 0, -1))))


def test_the_ranker_moves_protected_documents_up_as_far_as_the_table_asks() -> None:
    found, scores = fair_star("k=10,p=0.5,alpha=0.1,adjust=none").ordered(listed("mmm?mxmfmfff"))
    # documents of no group, and mixed ones, are not protected: the table asks for one at 4, two at 7, three at 9
    expected = ["m0", "m1", "m2", "f7", "?3", "m4", "f9", "x5", "f10", "m6", "m8", "f11"]
    assert list(found.doc_ids) == expected and scores is None
    assert fair_star().ordered(listed("mmmmf"))[0].doc_ids == ("m0", "m1", "m2", "m3", "f4")


def test_equal_scores_put_the_protected_first_and_one_document_stays() -> None:
    assert fair_star().ordered(listed("mfmf", (1.0, 1.0, 1.0, 0.5)))[0].doc_ids == ("f1", "m0", "m2", "f3")
    assert fair_star().ordered(listed("m"))[0].doc_ids == ("m0",)


def test_it_says_when_protected_documents_run_out() -> None:
    ranker = fair_star("k=10,p=0.5,alpha=0.1,adjust=none")
    assert ranker.remark(ranker.ordered(listed("mmmmmmmmmf"))[0]) == TOO_FEW
    assert ranker.remark(ranker.ordered(listed("mmmmmmmfff"))[0]) == ""


def test_a_finite_pool_has_a_table_of_its_own() -> None:
    found = fair_star("null=hypergeometric,alpha=0.1").ordered(listed("m" * 10 + "f" * 10))[0]
    table = fair_table(20, (20, 10), 0.1).minimum
    assert meets([doc_id[0] == "f" for doc_id in found.doc_ids], table) and table[-1] == 10
    with pytest.raises(UsageError, match="takes the share of protected documents from each list"):
        fair_star("null=hypergeometric,p=0.3")


DOCUMENTS_BY_WORDS = (
    Document("e", "Nobody"),
    Document("c", "Chess"),
    Document("b", "Film and films", "Also a film"),
    Document("d", "Somebody"),
    Document("a", "A film"),
    Document("f", "A film"),
)


def ranker_by_words() -> ScoringRanker:
    made: ScoringRanker = registry.lookup("ranker", "bm25")(RankerOptions(DOCUMENTS_BY_WORDS, Path("kept")))
    return made


def ranked(text: str, documents: tuple[Document, ...] = DOCUMENTS_BY_WORDS) -> Ranked:
    probe = Probe("q/neutral/o0/r0", Candidates(Query("q", text), documents, {}), "neutral", "neutral")
    return drive(ranker_by_words().steps(probe), asks_nothing)


def ranking(text: str, documents: tuple[Document, ...] = DOCUMENTS_BY_WORDS) -> Ranking:
    found = ranked(text, documents).ranking
    assert found is not None
    return found


def asks_nothing(chat: Chat) -> Completion:
    raise AssertionError(chat)


def test_it_asks_nothing_and_ties_keep_their_order() -> None:
    found = ranked("Film")
    assert found.ranking is not None and found.ranking.doc_ids == ("b", "a", "f", "e", "c", "d")
    assert found.windows == () and found.ranking.query_id == "q"
    scores = found.ranking.scores
    assert scores is not None
    assert scores[0] > scores[1] == scores[2] > scores[3] == scores[4] == scores[5] == 0
    assert ranking("Film", DOCUMENTS_BY_WORDS[::-1]).doc_ids == ("b", "f", "a", "d", "c", "e")


@pytest.mark.parametrize("text", ["Mathematics", "", "?", "[3] > [1]"])
def test_a_query_that_matches_nothing_keeps_the_order(text: str) -> None:
    found = ranking(text)
    assert found.doc_ids == ("e", "c", "b", "d", "a", "f") and found.scores == (0.0,) * 6


def test_a_part_of_the_collection_is_ranked_with_the_statistics_of_all() -> None:
    whole, part = ranking("film"), ranking("film", DOCUMENTS_BY_WORDS[3:5])
    assert part.doc_ids == ("a", "d")
    assert whole.scores is not None and part.scores is not None and part.scores[0] == whole.scores[1]


def test_with_each_list_for_itself_words_are_counted_among_its_candidates_and_nothing_is_kept() -> None:
    """As an index of the list alone has them, whatever other documents there are."""
    alone = registry.lookup("ranker", "bm25")(RankerOptions((), Path("kept"), each_list=True))
    for documents in (DOCUMENTS_BY_WORDS, DOCUMENTS_BY_WORDS[2:], DOCUMENTS_BY_WORDS[2:]):
        stored = registry.lookup("ranker", "bm25")(RankerOptions(documents, Path("elsewhere")))
        candidates = Candidates(Query("q", "a film"), documents, {})
        assert alone.scores(candidates) == stored.scores(candidates)
    assert not Path("kept").exists()
    assert "each list" in alone.identity
    assert alone.identity.split(" index=")[0] == stored.identity.split(" index=")[0]


def scores(text: str, *texts: str) -> list[float]:
    documents = tuple(Document(str(number), "", of) for number, of in enumerate(texts))
    ranker_by_words = registry.lookup("ranker", "bm25-okapi")(RankerOptions((), Path()))
    found: list[float] = ranker_by_words.scores(Candidates(Query("q", text), documents, {}))
    return found


def test_scores_by_hand() -> None:
    """N = 4; lengths 2, 3, 1, 2, mean 2. `film` stands in 1, `the` in 3 (idf negative), `a` and `war` in 1 each."""
    rare, common = math.log(3.5 / 1.5), math.log(1.5 / 3.5)
    least = 0.25 * (3 * rare + common) / 4  # of film, a, war and the
    found = scores("the film film gone", "the film", "the war a", "the", "a a")
    # `a` stands in two items, so its idf is ln(2.5/2.5) = 0.
    least = 0.25 * (2 * rare + 0 + common) / 4
    first = 1.5 * (0.25 + 0.75 * 2 / 2)
    expected = [
        (least + 2 * rare) * 2.5 / (1 + first),
        least * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 3 / 2)),
        least * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 1 / 2)),
        0.0,
    ]
    assert found == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.text("ab ", max_size=8), min_size=1, max_size=5), st.text("abc ", max_size=5))
def test_any_list_has_finite_scores_zero_without_a_common_word(texts: list[str], query: str) -> None:
    found = scores(query, *texts)
    assert all(map(math.isfinite, found))
    words = set(query.split())
    assert all(value == 0 for value, text in zip(found, texts, strict=True) if not words & set(text.split()))
