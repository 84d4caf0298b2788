"""The loop of FAIR-QR driven by hand: no engine, no server, answers sent as they would come."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.metrics.attention import kullback_leibler, least_divergence
from llmfair.metrics.targets import UNKNOWN
from llmfair.nouns import Chat, Completion, Finish, Query, drive
from llmfair.prompts import load_prompt
from llmfair.rankers.fair_qr import (
    FairQr,
    Page,
    Refined,
    Stop,
    Stopping,
    Topic,
    most_underrepresented,
)

from ..shared import vectors

QUERY = Query("q1", "physicist laboratory prize")
TARGET = {"female": 0.5, "male": 0.5, UNKNOWN: 0.0}
USUAL = Stopping()
PROGRAM = FairQr(load_prompt("refine"), "gender", 4)


def page(*docs: str) -> Page:
    """A page of documents `f1`, `m2`, `u3`: the letter is the group."""
    letters = {"female": "f", "male": "m", UNKNOWN: "u"}
    shares = {
        name: sum(doc[0] == letter for doc in docs) / max(len(docs), 1) for name, letter in letters.items()
    }
    if not docs:
        return Page((), shares, None)
    p, q = (np.array([of[name] for name in TARGET]) for of in (shares, TARGET))
    return Page(docs, shares, kullback_leibler(p, q, 1e-6))


def topic(pages: Mapping[tuple[str, ...], Page], stopping: Stopping = USUAL) -> Topic:
    """Its documents are reordered by name."""
    return Topic(QUERY, TARGET, stopping, lambda added: pages[tuple(added)], sorted)


def answering(*texts: str | Completion) -> tuple[Callable[[Chat], Completion], list[Chat]]:
    """Answers in turn, and the chats that they answered."""
    waiting, asked = iter(texts), list[Chat]()

    def answer(chat: Chat) -> Completion:
        asked.append(chat)
        text = next(waiting)
        return Completion(text, Finish.STOP) if isinstance(text, str) else text

    return answer, asked


def ended(of: Topic, *texts: str | Completion, program: FairQr = PROGRAM) -> tuple[Refined, list[Chat]]:
    answer, asked = answering(*texts)
    return drive(program.steps(of), answer), asked


SKEWED, NEARER, EVEN = (
    page("m1", "m2", "m3", "m4"),
    page("m1", "m2", "m3", "f1"),
    page("m2", "f2", "m1", "f1"),
)
WOMEN, HER = '{"keywords": ["women"]}', '{"keywords": ["her"]}'


def test_attained_ends_the_loop_and_the_page_is_ordered_by_the_original_query() -> None:
    found, asked = ended(topic({(): SKEWED, ("women",): EVEN}), WOMEN)
    assert (found.stop, len(asked)) == (Stop.ATTAINED, 1)
    assert found.kept.page is EVEN and found.final == ("f1", "f2", "m1", "m2")


def test_a_page_that_is_as_near_as_can_be_asks_nothing() -> None:
    found, asked = ended(topic({(): EVEN}))
    assert (found.stop, asked) == (Stop.ATTAINED, [])


def test_no_underrepresented_group() -> None:
    even = topic({(): page("m1", "m2", "f1", "f2"), ("list",): page("u1", "m2", "f1", "f2")})
    found, asked = ended(replace(even, stopping=Stopping(attained=-1.0)))
    assert (found.stop, asked) == (Stop.NO_UNDERREPRESENTED_GROUP, [])


@pytest.mark.parametrize("allowed", [False, True])
def test_unknown_is_asked_for_where_that_is_allowed(allowed: bool) -> None:
    """By the name that the prompt's shares give it, as in the paper."""
    pages = {(): page("m1", "m2", "f1", "f2"), ("list",): page("u1", "m2", "f1", "f2")}
    behind = replace(
        topic(pages, Stopping(1, attained=-1.0)), target={"female": 0.4, "male": 0.4, UNKNOWN: 0.2}
    )
    program = replace(PROGRAM, form="paper", allow_unknown=allowed)
    found, asked = ended(behind, *["list"] * allowed, program=program)
    if not allowed:
        assert (found.stop, asked) == (Stop.UNKNOWN_UNDERREPRESENTED, [])
        return
    assert [one.subgroup for one in found.rounds] == [None, UNKNOWN]
    text = asked[0].messages[0].content
    assert '"Unknown": 0.200' in text and text.endswith("you might want to include keywords about Unknown.")
    assert UNKNOWN not in text and asked[0].about["subgroup"] == "Unknown"


def test_unreadable_twice_ends_the_loop_and_the_second_is_another_draw() -> None:
    found, asked = ended(topic({(): SKEWED}), "I'm sorry, but I can't help with that.", "")
    assert found.stop is Stop.UNPARSEABLE
    assert [chat.draw for chat in asked] == [0, 100]
    assert [reply.read.reply_class for reply in found.rounds[1].replies] == ["refused", "empty"]
    assert found.final == SKEWED.doc_ids and found.kept.iteration == 0


def test_a_reply_that_can_be_read_at_the_second_time_goes_on() -> None:
    found, _ = ended(topic({(): SKEWED, ("women",): EVEN}), Completion("wom", Finish.LENGTH), WOMEN)
    assert found.stop is Stop.ATTAINED
    assert [reply.read.reply_class for reply in found.replies] == ["truncated", "ok"]


def test_no_keywords_where_all_stand_in_the_query() -> None:
    found, asked = ended(topic({(): SKEWED}), '{"keywords": ["Physicist", "PRIZE"]}')
    assert (found.stop, len(asked)) == (Stop.NO_KEYWORDS, 1)


def test_no_result_for_the_original_query() -> None:
    found, asked = ended(topic({(): page()}))
    assert (found.stop, asked, found.final) == (Stop.NO_RESULT, [], ())


@pytest.mark.parametrize("worse", [page("m4", "m3", "m2", "m1"), page()])
def test_overshoot_returns_the_list_before_it(worse: Page) -> None:
    found, _ = ended(topic({(): SKEWED, ("women",): NEARER, ("women", "her"): worse}), WOMEN, HER)
    assert found.stop is Stop.NO_DECREASE
    assert [one.accepted for one in found.rounds] == [True, True, False]
    assert found.kept.page is NEARER and found.final == tuple(sorted(NEARER.doc_ids))


def test_a_first_round_that_is_worse_leaves_the_list_as_it_was_byte_for_byte() -> None:
    before, _ = ended(topic({(): SKEWED}, Stopping(max_iterations=0)))
    found, _ = ended(topic({(): SKEWED, ("women",): page("u1", "u2")}), WOMEN)
    assert (found.stop, found.final) == (Stop.NO_DECREASE, before.final)


def test_max_iterations() -> None:
    found, asked = ended(topic({(): SKEWED, ("women",): NEARER}, Stopping(max_iterations=1)), WOMEN)
    assert (found.stop, len(asked), found.kept.added) == (Stop.MAX_ITERATIONS, 1, ("women",))


def test_no_round_at_all_is_the_original_query() -> None:
    found, asked = ended(topic({(): SKEWED}, Stopping(max_iterations=0)))
    assert (found.stop, asked, found.final) == (Stop.MAX_ITERATIONS, [], SKEWED.doc_ids)


def test_words_accumulate_or_the_latest_replace_them() -> None:
    pages = {(): SKEWED, ("women",): NEARER, ("women", "her"): EVEN, ("her",): EVEN}
    added, chats = ended(topic(pages), WOMEN, HER)
    assert added.kept.added == ("women", "her") and added.kept.new == ("her",)
    assert "query: physicist laboratory prize women are" in chats[1].messages[0].content
    last, _ = ended(topic(pages), WOMEN, HER, program=replace(PROGRAM, keep="last"))
    assert last.kept.added == ("her",)


def test_words_that_the_query_has_already_are_dropped() -> None:
    found, _ = ended(topic({(): SKEWED, ("women",): EVEN}), '{"keywords": ["women prize", "Women"]}')
    assert found.kept.added == ("women",)


def test_what_the_model_is_told() -> None:
    _, (chat,) = ended(topic({(): SKEWED, ("women",): EVEN}), WOMEN)
    said = chat.messages[0].content
    assert '{"female": 0.500, "male": 0.500}, which shows' in said
    assert 'distribution of: {"female": 0.000, "male": 1.000}.' in said
    assert "first 4 documents" in said and "keywords about female.\n\nReply with one JSON object" in said
    about = {"task": "refine", "query_id": "q1", "iteration": 1, "subgroup": "female"}
    assert chat.about == {**about, "query": "physicist laboratory prize"}


def test_the_form_of_the_paper_is_its_appendix_alone() -> None:
    program = replace(PROGRAM, form="paper")
    _, (chat,) = ended(topic({(): SKEWED, ("women",): EVEN}), "women", program=program)
    assert chat.messages[0].content.endswith("you might want to include keywords about female.")


def test_ties_go_to_the_first_group() -> None:
    target = {"b": 0.4, "a": 0.4, UNKNOWN: 0.2}
    assert most_underrepresented(target, {"b": 0.1, "a": 0.1, UNKNOWN: 0.0}) == "b"
    assert most_underrepresented(target, {"b": 0.2, "a": 0.1, UNKNOWN: 0.0}) == "a"
    assert most_underrepresented(target, {"b": 0.5, "a": 0.5, UNKNOWN: 0.0}) == UNKNOWN
    assert most_underrepresented(target, {"b": 0.5, "a": 0.5, UNKNOWN: 0.0}, allow_unknown=False) is None
    # 0.3 - 0.1 is a little less than 0.4 - 0.2 as computed
    assert most_underrepresented({"b": 0.3, "a": 0.4, "c": 0.3}, {"b": 0.1, "a": 0.2, "c": 0.7}) == "b"


def test_the_same_shares_summed_in_another_order_are_no_nearer() -> None:
    for better, first, second in (
        ("lower", 0.04649266051035899, 0.04649266051035883),
        ("higher", 0.92, 0.92 + 1e-15),
    ):
        stopping = Stopping(better=better, attained=None)  # type: ignore[arg-type]
        assert stopping.after([first, second]) is Stop.NO_DECREASE
        assert stopping.kept([first, second]) == 0


@given(st.lists(st.floats(0, 2) | st.none(), min_size=1, max_size=8), st.integers(0, 6))
def test_what_is_accepted_falls_strictly(values: Sequence[float | None], most: int) -> None:
    stopping = Stopping(max_iterations=most)
    seen = next((values[:n] for n in range(1, len(values) + 1) if stopping.after(values[:n])), values)
    accepted = [np.inf if value is None else value for value in seen[: stopping.kept(seen) + 1]]
    assert all(after < before for before, after in itertools.pairwise(accepted))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=4).filter(lambda shares: sum(shares) > 1e-3),
    st.integers(1, 8),
    st.sampled_from(["current-target", "target-current"]),
)
def test_the_least_attainable_divergence_is_that_of_all_pages(
    shares: list[float], k: int, direction: str
) -> None:
    target = np.array(shares) / sum(shares)

    def kl(counts: Sequence[int]) -> float:
        current = np.array(counts) / k
        pair = (current, target) if direction == "current-target" else (target, current)
        return kullback_leibler(*pair, 1e-6)

    pages = (one for one in itertools.product(range(k + 1), repeat=len(shares)) if sum(one) == k)
    assert least_divergence(target, k, direction) == pytest.approx(min(map(kl, pages)), abs=1e-12)


def test_the_least_attainable_divergence_of_the_published_example() -> None:
    assert least_divergence(np.array([0.61, 0.22, 0.01, 0.16]), 20) == pytest.approx(0.0124, abs=5e-5)


# The reference figures


def test_reference_stopping() -> None:
    found = [case for case in vectors("fairqr_loop")["cases"] if "stopping" in case["tags"]]
    assert len(found) == 9
    for case in found:
        given_, expected = case["input"], case["expected"]
        stopping = Stopping(given_["max_refinements"], attained=given_["threshold"])
        values = given_["divergence_by_iteration"]
        n = next((n for n in range(1, len(values) + 1) if stopping.after(values[:n])), len(values))
        reason = {Stop.ATTAINED: "threshold", None: "exhausted"}.get(
            stop := stopping.after(values[:n]), str(stop)
        )
        assert (n - 1, stopping.kept(values[:n]), reason) == (
            expected["stopped_after_refinements"], expected["kept_iteration"], expected["reason"],
        ), case["id"]  # fmt: skip


def test_reference_groups() -> None:
    found = [case for case in vectors("fairqr_loop")["cases"] if "kl" in case["tags"]]
    assert len(found) == 12
    for case in found:
        names = case["input"]["groups"]
        target, current = (dict(zip(names, case["input"][of], strict=True)) for of in ("target", "current"))
        assert (
            most_underrepresented(target, current) == case["expected"]["most_underrepresented_by_difference"]
        )
