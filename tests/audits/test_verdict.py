"""The verdict: one status, one sentence and one next step, made from what is concluded of the conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from math import log
from typing import Any

import pytest

from llmfair.audits.commands import plan_of, training_of, ways_of
from llmfair.audits.gates import refused, require_met, statuses_of
from llmfair.audits.kind import Kind, kind_of, kinds
from llmfair.audits.listwise.results import Excess, ListwiseFinding, Usefulness
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.listwise.words import ListwiseWords
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.audits.pairwise.words import PairWords
from llmfair.errors import RequirementFailed, UsageError
from llmfair.nouns import Conclusion, Key
from llmfair.report.phrases import bound_text, cell, interval_text, numbers
from llmfair.report.verdict import STATUSES, VerdictWords
from llmfair.results import UNPARSEABLE, Conclusions, Figure, Requirement, RunVerdict, Words
from llmfair.settings.commands import AuditSettings, PlanningSettings
from llmfair.stats.intervals import conclude, queries_to_settle

ODDS = "AdjustedOdds"
BAND = (0.8, 1.25)
USEFUL = Usefulness("nDCG@20", 0.0, 0.2, 0.1, 0.3, 44)
Interval = tuple[float, float, float]


def figure(value: float | None, low: float | None, high: float | None, n: int = 44) -> Figure:
    return Figure(value, low, high, n, None, None, None, None)


def finding(interval: Interval | None, reason: str | None = None, **more: Any) -> ListwiseFinding:
    said = Conclusion.NOT_ASSESSABLE if interval is None else conclude(*interval[1:], BAND)
    return ListwiseFinding(conclusion=said, reason=reason, **{"measure": ODDS, "useful": USEFUL, **more})


def conclusions(
    of: Mapping[str, Interval | None], *, n: int = 44, reason: str | None = "position_driven", **more: Any
) -> Conclusions:
    """What would be concluded of conditions with these odds and intervals."""
    known: dict[str, Any] = {
        "task": "listwise", "run": "mine", "dataset": "d", "attribute": "gender", "model": "openai:x",
        "words": Words("female", "male"), "level": 0.95, "band": BAND, "measures": [ODDS],
        "keys": [*map(Key, of)],
        "findings": {name: finding(one, None if one else reason) for name, one in of.items()},
        "figures": {(ODDS, name): figure(*one, n=n) for name, one in of.items() if one},
    }  # fmt: skip
    return Conclusions(**{**known, **more})


LESS, MORE, INSIDE, ACROSS = (0.5, 0.4, 0.6), (2.0, 1.6, 2.5), (1.0, 0.9, 1.1), (0.85, 0.7, 1.0)
OF_TWO = (
    "the female one of two equally relevant items is put ahead of the male one 33 times in 100 "
    "(95 % CI 29 to 38, 44 queries)"
)
SPOKEN: dict[str, VerdictWords] = {
    "any": VerdictWords("condition"),
    "lists": ListwiseWords("prompt"),
    "pairs": PairWords(),
}


def test_pairs_of_which_nothing_can_be_said_leave_a_run_of_several_groups_open() -> None:
    def verdict(**odds: Interval | None) -> RunVerdict:
        of: dict[str, Interval | None] = {Key("neutral", contrast=f"{name}:z"): odds[name] for name in odds}
        keys = [Key("neutral", contrast=f"{name}:z") for name in odds]
        return VerdictWords("prompt").verdict(conclusions(of, keys=keys))

    mixed = verdict(a=None, b=INSIDE, c=ACROSS)
    assert (mixed.status, mixed.contrast) == ("inconclusive", "c:z")
    assert "a:z is not assessable" in mixed.sentence
    assert verdict(a=None, b=INSIDE).status == "inconclusive"
    assert verdict(a=None, b=None).status == "not assessable"


def test_many_pairs_outside_are_counted() -> None:
    keys = [Key("neutral", contrast=f"{one}:{other}") for one, other in combinations("abcdefghi", 2)]
    of: dict[str, Interval | None] = dict.fromkeys(keys, LESS)
    sentence = VerdictWords("prompt").verdict(conclusions(of, keys=keys)).sentence
    assert "a is put behind 8 other groups; b is put behind 7 other groups; c is put behind d, e" in sentence
    assert len(sentence) < 1000


@pytest.mark.parametrize("of_a_kind", SPOKEN)
@pytest.mark.parametrize(
    ("of", "status", "condition"),
    [
        ({"a": INSIDE, "b": ACROSS, "c": None, "d": LESS}, "disparity", "d"),
        ({"a": INSIDE, "b": ACROSS, "c": None}, "not assessable", "c"),
        ({"a": INSIDE, "b": ACROSS}, "inconclusive", "b"),
        ({"a": INSIDE, "b": INSIDE}, "parity", "a"),
        ({"a": MORE, "b": LESS}, "disparity", "a"),
    ],
)
def test_the_status_is_the_gravest_and_the_sentence_speaks_of_its_condition(
    of_a_kind: str, of: dict[str, Interval | None], status: str, condition: str
) -> None:
    found = SPOKEN[of_a_kind].verdict(conclusions(of))
    assert (found.status, found.condition) == (status, condition)
    assert f" {condition} " in found.sentence and found.next
    assert not re.search(r"\b(un)?fair", found.sentence)
    assert (found.estimate, found.low, found.high) == (of[condition] or (None, None, None))
    assert found.n == (44 if of[condition] else None)


@pytest.mark.parametrize(
    ("odds", "excess", "says"),
    [
        (LESS, Excess(0.69, 0.65, 0.72, 44), "female items get 31 % less exposure than male ones "
         "at equal relevance (95 % CI 28 to 35 %"),
        (MORE, Excess(1.25, 1.11, 1.43, 44), "male items get 20 % less exposure than female ones "
         "at equal relevance (95 % CI 10 to 30 %"),
        (LESS, Excess(0.97, 0.9, 1.04, 44), OF_TWO),
        (LESS, Excess(1.2, 1.1, 1.3, 44), OF_TWO),
        (LESS, None, OF_TWO),
        (MORE, None, "the male one of two equally relevant items is put ahead of the female one 33 "
         "times in 100 (95 % CI 29 to 38, 44 queries)"),
    ],
)  # fmt: skip
def test_of_lists_it_speaks_of_exposure_where_that_says_the_same(
    odds: Interval, excess: Excess | None, says: str
) -> None:
    found = conclusions({"neutral": odds}, findings={"neutral": finding(odds, excess=excess)})
    said = SPOKEN["lists"].verdict(found).sentence
    assert said.startswith(f"under the neutral prompt {says}")
    assert "44 queries" in said and said.endswith("outside the parity band 0.8–1.25")


def test_others_that_share_the_status_are_named() -> None:
    of = {"neutral": LESS, "male": LESS, "female": MORE, "third": INSIDE}
    said = SPOKEN["lists"].verdict(conclusions(of)).sentence
    assert said.endswith("; disparity also under the male prompt, against male items under the female prompt")
    said = SPOKEN["lists"].verdict(conclusions({"a": ACROSS, "b": ACROSS, "c": ACROSS})).sentence
    assert said.endswith("; inconclusive also under the b and c prompts")


def test_the_next_step() -> None:
    training = "llmfair finetune-lora --dataset d --attribute gender -m org/name"
    lists, trained = SPOKEN["lists"], conclusions({"a": LESS}, training=training)
    assert lists.verdict(conclusions({"a": LESS})).next == (
        "llmfair runs show mine --furthest · mitigate: llmfair mitigate mine"
    )
    assert lists.verdict(trained).next.endswith(f" · mitigate: {training}")
    settled = queries_to_settle(*ACROSS, 44, BAND)
    assert settled is not None
    planned = "llmfair plan listwise --design partition"
    assert lists.verdict(conclusions({"a": ACROSS}, planned=planned)).next == (
        f"about {settled:,} queries would put the whole interval inside the band, if the estimate stays; what a design "
        f"can find: {planned}"
    )
    assert "too near an edge" in lists.verdict(conclusions({"a": (0.8, 0.7, 0.9)})).next
    assert "these answers follow the position" in lists.verdict(conclusions({"a": None})).next
    assert "llmfair report mine" in lists.verdict(conclusions({"a": None}, reason="a new one")).next
    nothing = lists.verdict(conclusions({"a": LESS}, findings={}, measures=["P@20"]))
    assert nothing.status == "not assessable" and nothing.sentence == "nothing is concluded of P@20"


@pytest.mark.parametrize("of_a_kind", SPOKEN)
def test_no_number_of_queries_settles_what_is_but_a_bound(of_a_kind: str) -> None:
    for ends, reason, follows in (
        ((0.5, None, 0.9), "position_driven", "these answers follow the position"),
        ((None, None, 0.9), "always_one_way", "more queries narrow the bound: llmfair plan"),
    ):
        open_still = ListwiseFinding(measure=ODDS, conclusion=Conclusion.INCONCLUSIVE, reason=reason)
        of = conclusions({"a": ACROSS}, findings={"a": open_still}, figures={(ODDS, "a"): figure(*ends)})
        found = SPOKEN[of_a_kind].verdict(of)
        assert "only a bound is known" in found.sentence and "crosses" not in found.sentence
        assert follows in found.next and "settle" not in found.next


@pytest.mark.parametrize(
    ("interval", "says"),
    [
        ((0.79996, 0.71, 0.901), "0.79996 [0.71000, 0.90100]: the interval crosses"),
        ((0.9, 0.801, 1.1), "0.900 [0.801, 1.100]: all of it lies"),
        ((0.9, 0.799, 1.1), "0.900 [0.799, 1.100]: the interval crosses"),
        ((0.8, 0.8, 1.25), "0.80 [0.80, 1.25]: all of it lies"),
        ((0.9, 0.85, 0.9999), "though not at 1"),
        ((0.7, 0.6, 0.7998), "0.7000 [0.6000, 0.7998], outside"),
    ],
)
def test_figures_are_told_so_that_they_agree_with_the_words(interval: Interval, says: str) -> None:
    said = VerdictWords("prompt").verdict(conclusions({"a": interval})).sentence
    assert says in said.replace(" (95 % CI, 44 queries)", "")


def test_the_ends_of_an_interval_are_told_apart() -> None:
    assert numbers([45.2, 45.04, 45.4], decimals=0) == ["45.2", "45.0", "45.4"]
    assert numbers([31.2, 28.4, 35.1], decimals=0) == ["31", "28", "35"]
    assert numbers([21.930943, 21.930942, 21.930943], (0,), decimals=0) == ["21.9"] * 3
    assert numbers([0.01, 0.0083, 0.012]) == ["0.01", "0.0083", "0.012"]
    assert numbers([1.0, 1.0, 1.0], (0.8, 1.0)) == ["1.00", "1.00", "1.00"]
    assert numbers([0.8 + 1e-12], (0.8,)) == ["0.800000"]
    narrow = conclusions({"a": (0.61, 0.609, 0.611)})
    assert "38 times in 100 (95 % CI 38 to 38" not in SPOKEN["lists"].verdict(narrow).sentence


def test_who_reads_no_prompt_is_not_put_under_one() -> None:
    for of in (LESS, INSIDE, ACROSS, None):
        said = SPOKEN["lists"].verdict(conclusions({"neutral": of}, prompted=False)).sentence
        assert "prompt" not in said.partition("another --prompt")[0] and said[0] != " "


@pytest.mark.parametrize(
    ("reason", "problem", "says", "follows"),
    [
        ("position_driven", None, "the position", "another model, or another --prompt: these"),
        ("no_encounter", None, "", "longer windows (--window)"),
        ("chance_answers", None, "", "a more able model, or --input text, so that"),
        ("equal_scores", None, "scores of every", "another model, or this one set up otherwise"),
        (UNPARSEABLE, "no_ids", "", "what it answered: llmfair runs show mine --invalid"),
        (UNPARSEABLE, "truncated", "limit of tokens", "longer answers with --max-tokens; what"),
        (UNPARSEABLE, "refused", "refusals", "another model, or another --prompt; what"),
    ],
)  # fmt: skip
def test_what_bars_a_conclusion_is_mended(reason: str, problem: str | None, says: str, follows: str) -> None:
    for of_a_kind in SPOKEN.values():
        found = of_a_kind.verdict(conclusions({"a": None}, reason=reason, problems={"a": problem}))
        assert says in found.sentence and found.next.startswith(follows)


@pytest.mark.parametrize("of_a_kind", SPOKEN)
def test_odds_with_an_interval_are_no_bound_whatever_the_reason(of_a_kind: str) -> None:
    slots = finding(ACROSS, "slots_decide")
    found = SPOKEN[of_a_kind].verdict(conclusions({"a": ACROSS}, findings={"a": slots}))
    assert "the interval crosses an edge" in found.sentence and "bound" not in found.sentence
    assert "queries would put the whole interval" in found.next and "position" not in found.next


@pytest.mark.parametrize(("share", "says"), [(0.5, True), (0.49, False)])
def test_half_of_the_windows_left_as_they_were_are_told(share: float, says: bool) -> None:
    findings = {"neutral": finding(INSIDE, left_as_shown=share)}
    said = SPOKEN["lists"].verdict(conclusions({"neutral": INSIDE}, findings=findings)).sentence
    assert ("; answers left 50 % of first windows as they were" in said) is says


def test_so_many_queries_settle_it() -> None:
    for value in (0.7, 0.9, 1.0, 1.5):
        queries = queries_to_settle(value, value / 1.5, value * 1.5, 20, BAND)
        assert queries is not None
        half = log(1.5) * (20 / queries) ** 0.5
        ends = (value * 2.718281828**-half, value * 2.718281828**half)
        assert conclude(*ends, BAND) in (Conclusion.OUTSIDE, Conclusion.WITHIN)
    assert queries_to_settle(0.8, 0.7, 0.9, 20, BAND) is None
    assert queries_to_settle(0.9, 0.0, 0.95, 20, BAND) is None


def test_fail_on_takes_a_kind_s_own_words() -> None:
    known = ("repaired", "not assessable")
    assert statuses_of(None, known) == statuses_of("", known) == ()
    assert statuses_of("repaired, 'not assessable',repaired", known) == known
    with pytest.raises(UsageError, match="no verdict 'repaird'"):
        statuses_of("repaird", known)
    for kind in kinds():
        failing = kind.words.statuses[:-1]
        with pytest.raises(UsageError, match="no verdict 'parity' that fails a run"):
            statuses_of("parity", failing)
        assert statuses_of(",".join(failing), failing) == failing
    assert all(set(STATUSES.values()) == {*kind_of(name).words.statuses} for name in ("listwise", "pairwise"))


@pytest.mark.parametrize("status", STATUSES.values())
def test_the_gate_agrees_with_the_verdict(status: str) -> None:
    verdict = RunVerdict(status=status, sentence="so it is", next="go on")
    require_met([], refused(verdict, [other for other in STATUSES.values() if other != status]))
    unmet = Requirement("P@20>=2", "P@20", "neutral", "all", "", 1.0, False, "P@20 is below 2")
    with pytest.raises(RequirementFailed, match=f"the verdict is {status}: so it is; P@20 is below 2"):
        require_met([unmet], refused(verdict, (status,)))


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (None, 0.1504, "at most 0.16"),
        (6.649, None, "at least 6.6"),
        (None, 0.8, "at most 0.8"),
        (None, 0.7996, "at most 0.7996"),
        (1.2501, None, "at least 1.2501"),
        (None, 15.04, "at most 16"),
        (None, 0.00012345, "at most 0.00013"),
        (152.0, None, "at least 150"),
        (None, 0.0, "at most 0"),
        (0.5, 0.7, None),
        (None, None, None),
    ],
)
def test_a_bound_is_rounded_to_where_it_holds_and_stays_on_its_side(
    low: float | None, high: float | None, says: str | None
) -> None:
    assert bound_text(low, high, BAND) == says
    if says is not None:
        row = figure(0.3, low, high)
        assert interval_text(row, BAND) == cell(row, BAND) == says


# The commands that a verdict names: they plan the same design with more queries, and train on what was audited


ASKED: dict[str, Any] = {"dataset": "my data", "attribute": "location", "input": "text"}
ASKED |= {"limit": 6, "queries": "a,b"}


def test_more_queries_are_planned_without_what_leaves_queries_out() -> None:
    planned = plan_of("listwise", ListwiseSettings(**ASKED), "openai:x")
    assert planned == "llmfair plan listwise --dataset 'my data' --attribute location --input text"
    scores = ListwiseSettings.make(strategy="scores", conditions="neutral")
    assert plan_of("listwise", scores, "rerank:m").startswith("llmfair plan listwise -m rerank:m ")


@pytest.mark.parametrize(
    ("task", "prompt", "kept"),
    [
        ("listwise", "wikiproject", True),
        ("listwise", "mine.toml", False),  # words for lists ask nothing about pairs
        ("pairwise", "mine.toml", True),
    ],
)
def test_a_model_is_trained_on_what_was_audited(task: str, prompt: str, kept: bool) -> None:
    settings = {"listwise": ListwiseSettings, "pairwise": PairwiseSettings}[task](**ASKED, prompt=prompt)
    flags = "--dataset 'my data' --attribute location --input text" + f" --prompt {prompt}" * kept
    assert training_of(task, settings, "hf:org/name") == f"llmfair finetune-lora {flags} -m org/name"
    assert training_of(task, settings, "openai:x") == training_of(task, settings, "hf:x + adapter") == ""


def test_what_bars_a_conclusion_has_the_command_that_mends_it() -> None:
    def ways(texts: bool = True, **asked: Any) -> dict[str, str]:
        return ways_of("listwise", ListwiseSettings(**asked), "openai:x", texts)

    mended = ways(limit=3, queries="a,b,c", initial="given", orders=1, measures="P@20")
    assert mended["too_few_queries"] == (
        "llmfair listwise -m openai:x --measures P@20 --initial given --orders 1"
    ), "all queries"
    assert "--initial" not in mended["order_not_random"] and "--measures" not in mended["measured"]
    assert "--input text" in mended["chance_answers"]
    assert {"too_few_queries", "order_not_random", "measured"} & ways().keys() == set(), "nothing to change"
    assert not {"chance_answers", "no_better_than_input"} & ways(texts=False).keys()
    assert ways_of("listwise", ListwiseSettings(), "object:mine", True) == {}, "which no command names"


@pytest.mark.parametrize("interval", [LESS, INSIDE, (0.5, None, 0.6)])
def test_a_sequential_audit_that_is_open_says_nothing_of_its_interval(interval: Any) -> None:
    open_finding = ListwiseFinding(measure=ODDS, conclusion=Conclusion.INCONCLUSIVE, reason=None)
    found = SPOKEN["any"].verdict(conclusions({"a": interval}, findings={"a": open_finding}))
    assert "not settled by the answers so far (--sequential)" in found.sentence
    assert "None" not in found.sentence and "more queries settle it" in found.next


def test_a_kind_without_settings_of_its_own_can_be_planned() -> None:
    kind = Kind()
    kind.settings = AuditSettings
    assert issubclass(kind.plan_settings, PlanningSettings)


@pytest.mark.parametrize("of_a_kind", SPOKEN)
@pytest.mark.parametrize(("n", "of", "warned"), [(6, ACROSS, True), (6, None, False), (44, ACROSS, False)])
def test_few_queries_are_warned_of(of_a_kind: str, n: int, of: Interval | None, warned: bool) -> None:
    said = SPOKEN[of_a_kind].verdict(conclusions({"a": of}, n=n)).sentence
    assert said.endswith("; few queries, so read the interval with care") is warned
