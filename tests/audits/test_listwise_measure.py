"""What is concluded of lists: both nulls, the family, rankers of known preference, and what may not be concluded."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import convert, structs

import llmfair as api
from llmfair.audits.aggregates import Inference, Preference, summarise
from llmfair.audits.comparing import USELESS
from llmfair.audits.label_error import odds_with
from llmfair.audits.listwise import LISTWISE
from llmfair.audits.listwise.measure import (
    HowRanked,
    ListOdds,
    concluded,
    contrasts,
    findings_of,
    pairs_of,
    with_disparities,
    with_family,
)
from llmfair.audits.listwise.results import ListwiseFinding, Odds, Usefulness
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.subject import Subject
from llmfair.errors import RequirementFailed
from llmfair.io.files import plain
from llmfair.metrics.base import Judged, measure_all
from llmfair.metrics.names import parse_measure, parse_measures
from llmfair.nouns import Conclusion, Encounter, Measurement, Permutation, Ranking, Request
from llmfair.rankers.strategies import PartialOrder, encounters_of
from llmfair.results import OUTSIDE_ALONE, LabelError
from llmfair.stats.intervals import Estimate
from llmfair.stats.strata import Figure, Stratum
from tests.cli.command import kept, llmfair
from tests.finished import audit
from tests.folders import balanced, unequally_relevant, write_folder
from tests.metrics import judged
from tests.shared import vectors

pytestmark = pytest.mark.whole

SIDES: dict[str, str | None] = {
    **{f"f{n}": "protected" for n in range(10)},
    **{f"m{n}": "unprotected" for n in range(14)},
}
RELEVANCE = {f"f{n}": 1 for n in range(3)} | {f"m{n}": 1 for n in range(6)}
MEASURES = "ExpRatio,RelevanceRatio,ExcessRatio(control=order),PreferenceOdds,RBO"
USEFUL = Usefulness("nDCG@20", 0.0, 0.2, 0.1, 0.3, 16)


def query(name: str, preference: float, orders: int = 2, name_of: str = "") -> Judged:
    """A query of 24 documents ranked with noise and this preference for the protected, from random orders."""
    rng = np.random.default_rng([orders, *name.encode()])
    name_of += "".join(filter(str.isdigit, name))  # no item is in two queries
    ids = [name_of + doc_id for doc_id in SIDES]
    weights = np.array([2 * RELEVANCE.get(d, 0) + preference * d.startswith("f") for d in SIDES])
    initial = [rng.permutation(len(ids)) for _ in range(orders)]
    final = [np.argsort(-weights - rng.gumbel(size=len(ids))) for _ in range(orders)]
    found = judged(
        *[[ids[place] for place in order] for order in final],
        sides={name_of + d: side for d, side in SIDES.items()},
        candidates=ids,
        relevance={name_of + d: 1 for d in RELEVANCE},
        query_id=name,
    )
    shown = [tuple(ids[place] for place in order) for order in initial]
    return replace(
        found,
        beside=tuple(Ranking(name, order) for order in shown),
        encounters=tuple(Encounter(order, r.doc_ids) for order, r in zip(shown, found.rankings, strict=True)),
    )


def told(
    conditions: dict[str, list[Judged]],
    asked: HowRanked | None = None,
    measures: str = MEASURES,
    seed: int = 0,
    useful: Usefulness | None = USEFUL,
) -> tuple[dict[str, Any], list[Measurement], int]:
    """Findings, all rows and the size of the family, as an audit has them."""
    inference = Inference(seed=seed, documents=24)
    columns = measure_all(parse_measures(measures), conditions)
    how = asked or HowRanked(permutations=499, seed=seed)
    findings = findings_of(columns, conditions, dict.fromkeys(conditions, useful), inference, how)
    findings = with_disparities(findings)
    rows = [*summarise(columns, inference), *contrasts(columns, conditions, [*conditions], inference)]
    rows, family = with_family(rows, findings, "PreferenceOdds")
    return plain(findings), rows, family


def of_all(rows: list[Measurement], measure: str, condition: str) -> Measurement:
    (row,) = [r for r in rows if (r.query_id, r.measure, r.condition) == ("all", measure, condition)]
    return row


NAMES = [f"q{number}" for number in range(16)]


def test_a_strong_preference_is_outside_and_differs_from_parity() -> None:
    findings, rows, family = told({"neutral": [query(name, 2.0) for name in NAMES]})
    finding, row = findings["neutral"], of_all(rows, "PreferenceOdds", "neutral")
    assert (finding["conclusion"], row.conclusion, family) == ("outside", "outside", 1)
    assert row.low is not None and row.high is not None and row.low > 1.25
    assert row.low < np.exp(2) < row.high
    assert row.p == row.p_adjusted == finding["odds"]["p"] < 0.001
    assert finding["permutation"]["p"] == 1 / 500
    assert finding["permutation"]["ratio_low"] < 1 < finding["permutation"]["ratio_high"]


def test_no_preference_and_few_queries_is_inconclusive_and_says_what_it_takes() -> None:
    finding = told({"neutral": [query(name, 0.0) for name in NAMES]})[0]["neutral"]
    assert finding["conclusion"] == "inconclusive"
    assert finding["odds"]["p"] > 0.05 and finding["permutation"]["p"] > 0.05
    power = finding["power"]
    assert power["odds"] in (0.8, 1.25) and 0 < power["power"] < 0.8 and power["queries_needed"] > 16
    # what is needed is enough: a band this wide is settled; power is that of the nearer edge
    for band, conclusion, nearer in (
        ((0.2, 5.0), "within", 0.2), ((0.5, 1.1), "inconclusive", 1.1), ((0.9, 3.0), "inconclusive", 0.9),
    ):  # fmt: skip
        found = told({"neutral": [query(name, 0.0) for name in NAMES]}, HowRanked(band=band, permutations=0))
        finding = found[0]["neutral"]
        assert (finding["conclusion"], finding["power"]["odds"]) == (conclusion, nearer)


@pytest.mark.parametrize("initial", ["given", "deltr", "bm25", "mirrored"])
def test_orders_that_are_not_random_allow_no_conclusion(initial: str) -> None:
    queries = [query(name, 2.0) for name in NAMES]
    finding = told({"neutral": queries}, HowRanked(initial=initial))[0]["neutral"]
    assert (finding["conclusion"], finding["reason"]) == ("not_assessable", "order_not_random")
    assert finding["permutation"] == {"reason": "order_not_random"}
    assert ("p" in finding["odds"]) == (initial == "mirrored")


@pytest.mark.parametrize(
    ("count", "interval", "test", "conclusion"),
    [(4, False, False, "not_assessable"), (5, True, False, "outside"), (6, True, True, "outside")],
)
def test_small_samples_are_refused(count: int, interval: bool, test: bool, conclusion: str) -> None:
    findings, rows, family = told({"neutral": [query(name, 3.0) for name in NAMES[:count]]})
    row = of_all(rows, "PreferenceOdds", "neutral")
    assert (row.low is not None, row.p is not None, row.conclusion) == (interval, test, conclusion)
    assert (findings["neutral"]["permutation"].get("p") is not None) == test == bool(family)
    assert (row.reason == "too_few_queries") != interval == (row.value is not None)


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_where_enough_queries_are_asked_it_says_why_few_compare_anything(silent: int) -> None:
    """Queries whose equally relevant items never meet are asked in vain, which more of them would mend."""
    alone = [
        replace(query(name, 2.0), encounters=(Encounter((f"{name[1:]}f0",), (f"{name[1:]}f0",)),))
        for name in NAMES[4 : 4 + silent]
    ]
    findings, *_ = told({"neutral": [*(query(name, 2.0) for name in NAMES[:4]), *alone]})
    expected = ("not_assessable", "few_encounters" if silent else "too_few_queries")
    assert (findings["neutral"]["conclusion"], findings["neutral"]["reason"]) == expected


def test_relevance_alone_is_no_preference() -> None:
    """Six relevant of 14 against three of 10: the ratio is below 1, the excess ratio is not."""
    queries = [query(f"q{n}", 0.0) for n in range(60)]
    findings, rows, _ = told({"neutral": queries})
    ratio, excess = of_all(rows, "ExpRatio", "neutral"), findings["neutral"]["excess"]
    assert ratio.high is not None and ratio.high < 1
    assert excess["low"] < 1 < excess["high"]
    assert findings["neutral"]["permutation"]["p"] > 0.05 and findings["neutral"]["odds"]["p"] > 0.05


def test_the_family_holds_prompts_and_their_pairs_but_not_the_control() -> None:
    conditions = {
        "neutral": [query(name, 0.0) for name in NAMES],
        "male": [query(name + "m", -1.0) for name in NAMES],
        "female": [query(name + "f", 1.0) for name in NAMES],
        "repeat": [query(name + "c", 0.0) for name in NAMES],
    }
    for condition, queries in conditions.items():
        conditions[condition] = [
            replace(q, candidates=replace(q.candidates, query=replace(q.candidates.query, query_id=name)))
            for q, name in zip(queries, NAMES, strict=True)
        ]
    findings, rows, family = told(conditions)
    assert family == 3 + 3 and set(findings) == set(conditions)
    assert pairs_of([*conditions]) == [
        ("male", "neutral"), ("female", "neutral"), ("repeat", "neutral"), ("female", "male"),
    ]  # fmt: skip
    adjusted = {(r.measure, r.condition) for r in rows if r.p_adjusted is not None}
    assert adjusted == {("PreferenceOdds", condition) for condition in ("neutral", "male", "female")} | {
        ("PreferenceOdds", pair) for pair in ("male vs neutral", "female vs neutral", "female vs male")
    }
    odds = of_all(rows, "PreferenceOdds", "female vs male")
    assert odds.value and odds.low and odds.low > 1 and odds.p and odds.p_adjusted
    assert odds.p < odds.p_adjusted < 0.01
    assert odds.value == pytest.approx(
        findings["female"]["odds"]["value"] / findings["male"]["odds"]["value"], rel=1e-9
    )
    gap = of_all(rows, "ExpRatio", "female vs male")
    assert gap.value and gap.low and gap.low > 1 and gap.p and gap.p < 0.001 and not gap.p_adjusted
    # paired by query: the mean of the logarithms' differences
    by = {(r.query_id, r.condition): r.value for r in rows if r.measure == "ExpRatio"}
    logs = [np.log(by[name, "female"] or 0) - np.log(by[name, "male"] or 0) for name in NAMES]
    assert np.log(gap.value) == pytest.approx(np.mean(logs))
    assert by["q3", "female vs male"] == pytest.approx(np.exp(logs[3]))


def test_adding_a_query_moves_no_other_query_s_rows() -> None:
    def per_query(*more: str) -> dict[tuple[str, ...], list[str]]:
        asked = ("listwise", "--orders", "2", "--passes", "1", "--permutations", "0")
        found = llmfair(*asked, "-o", f"run{len(more)}", *more)
        assert found.code in (0, 4), found.err
        key, rest = ("condition", "query_id", "measure", "group"), ("value", "n", "reason")
        with Path(f"run{len(more)}/per_query.csv").open(newline="") as file:
            # a query's part of odds that only all queries have is no value of its own
            rows = [row for row in csv.DictReader(file) if row["reason"] != "pseudo_value"]
        return {tuple(row[k] for k in key): [row[k] for k in rest] for row in rows}

    whole, part = per_query(), per_query("-n", "7")
    assert len(part) > 7 * 20
    assert {key: whole[key] for key in part} == part


def test_from_a_deltr_order_the_tool_says_that_the_number_is_the_input_s() -> None:
    """A ranker without preference, the paper's preset, the order of DELTR."""
    data = write_folder(Path("lists"), balanced(2, 40, 40))
    model = "fake:biased,listwise=0,prompt=0,malformed=0"
    said = llmfair("listwise", "-d", data, "--preset", "paper", "--initial", "deltr", "-m", model, "-v")
    assert " initial ranking " in said.out and "  before the model" in said.out
    assert said.out.startswith("VERDICT  not assessable")


def test_where_relevance_and_side_are_one_nothing_is_concluded() -> None:
    """No grade holds both sides: whatever a model prefers, the excess ratio is 1."""
    kinds = (("f", "female", 1), ("m", "male", 0))
    lists = {
        f"q{q}": [(f"q{q}{k}{i}", group, grade) for k, group, grade in kinds for i in range(10)]
        for q in range(6)
    }
    folder = write_folder(Path("graded"), lists)
    asked = ("listwise", "-d", folder, "--conditions", "neutral", "--no-repeat", "--orders", "1", "-m")
    found = llmfair(*asked, "fake:biased,listwise=-5,malformed=0", "--json").json
    row = next(r for r in found["rows"] if (r["measure"], r["condition"]) == ("PreferenceOdds", "neutral"))
    assert (row["value"], row["conclusion"], row["reason"]) == (None, "not_assessable", "no_common_grade")
    gated = llmfair(*asked, "fake:biased,listwise=-5,malformed=0", "--require", "ExpRatio>=0.6")
    assert gated.code == 2 and "no two items of both groups with one grade" in gated.err


def test_queries_that_two_prompts_ranked_from_other_orders_are_not_compared() -> None:
    neutral, other = ([query(name, preference) for name in NAMES] for preference in (0.0, 1.0))
    other[0] = replace(other[0], runs=tuple((7, repeat) for repeat in range(len(other[0].rankings))))
    rows = told({"neutral": neutral, "female": other})[1]
    for measure in ("RBO", "ExpRatio"):
        compared = {r.query_id for r in rows if (r.measure, r.condition) == (measure, "female vs neutral")}
        assert compared == {*NAMES[1:], "all"}


def test_the_plain_interval_is_made_from_enough_queries_and_documents_on() -> None:
    methods = [Inference(documents=d).method(q) for q, d in ((20, 50), (19, 50), (20, 49))]
    assert methods == ["linear-t", "boot-t", "boot-t"]
    assert Inference(ci="linear-t", documents=1).method(2) == "linear-t"


def test_noise_is_not_within_the_band() -> None:
    """A ranker that orders by nothing prefers nobody; only one that does its job can be said to be at parity."""
    queries, wide = [query(name, 0.0) for name in NAMES], HowRanked(band=(0.2, 5.0), permutations=0)
    no_better = structs.replace(USEFUL, low=-0.01)
    for useful, reason in ((no_better, "no_better_than_input"), (None, "not_judged")):
        finding = told({"neutral": queries}, wide, useful=useful)[0]["neutral"]
        assert (finding["conclusion"], finding["reason"]) == ("not_assessable", reason)
    for against in ("the initial ranking", "a random order", "chance"):  # which comparisons have to know
        assert structs.replace(no_better, against=against).useless in USELESS
    preferring = [query(name, 2.0) for name in NAMES]  # useless and unfair all the same
    assert told({"neutral": preferring}, useful=no_better)[0]["neutral"]["conclusion"] == "outside"


def test_rank_agreement_is_held_against_the_floor_and_not_against_nothing() -> None:
    neutral = [query(name, 0.0) for name in NAMES]
    other = [
        replace(query(name + "x", 0.0), candidates=q.candidates)
        for name, q in zip(NAMES, neutral, strict=True)
    ]
    rows = told({"neutral": neutral, "female": other, "repeat": other})[1]
    assert of_all(rows, "RBO", "female vs neutral").value == of_all(rows, "RBO", "repeat vs neutral").value
    assert of_all(rows, "RBO", "female vs neutral").p == 1
    assert of_all(rows, "RBO", "repeat vs neutral").p is None, "the floor is not held against itself"


def test_the_excess_goes_by_what_is_left_of_the_orders() -> None:
    queries = [query(name, 0.5) for name in NAMES]
    with_control = told({"neutral": queries})[0]["neutral"]
    plain = told({"neutral": queries}, measures="ExpRatio,ExcessRatio,PreferenceOdds")[0]["neutral"]
    assert with_control["excess"] != plain["excess"]
    assert with_control["odds"]["p"] == plain["odds"]["p"]  # of answers, which no order moves


@pytest.mark.parametrize("said", ["{order}", "[2] > [1]"])
def test_a_model_that_goes_by_places_is_not_at_parity(said: str) -> None:
    """Its lists are the random ones it was shown: at parity, with a narrow interval, and nothing was read."""

    class ByPlace:
        name = "by place"

        async def complete(self, request: Request) -> str:
            expects = request.chat.expects
            assert isinstance(expects, Permutation)
            return said.format(order=" > ".join(f"[{k}]" for k in range(1, expects.n + 1)))

    with pytest.raises(RequirementFailed, match=r"cannot be assessed: the answers follow the position"):
        api.audit_listwise(
            model=ByPlace(), passes=1, require=["ExpRatio=0.8..1.25"], output="run", report=False
        )
    results = kept("results", "run")
    found = {condition: (f["conclusion"], f["reason"]) for condition, f in results["findings"].items()}
    assert set(found.values()) == {("not_assessable", "position_driven")}
    scored = llmfair("score", "run", "--require", "ExpRatio=0.8..1.25")
    assert scored.code == 4 and "cannot be assessed: the answers follow the position" in scored.err


def test_parity_is_not_said_where_answers_leave_items_out() -> None:
    near = Preference(Estimate(1.0, 0.9, 1.1, 44, None, 0.05), FIGURE, np.zeros(44))
    for left_out, reason in ((0.04, None), (0.06, "items_left_out")):
        assert concluded(ListOdds(near, {}, left_out), HowRanked())[1] == reason


FIGURE = Figure(1000, 44, None, 0.0, 0.04, 43.0)


def test_a_bound_is_never_within_unless_slots_alone_decide() -> None:
    near = Estimate(0.95, 0.9, 1.0, 44, "separated", 0.05)
    for slots_decide, useless, conclusion in (
        (False, None, "not_assessable"), (True, None, "within"), (True, "not_judged", "not_assessable"),
    ):  # fmt: skip
        odds = Preference(near, FIGURE, np.zeros(44), "at most", slots_decide)
        assert concluded(ListOdds(odds, {}, 0.0), HowRanked(), useless)[0] == conclusion
    wide = Preference(
        Estimate(0.95, 0.7, 1.3, 44, "slots_decide", 0.05), FIGURE, np.zeros(44), "at most", True
    )
    for useless in (None, "not_judged"):  # the interval crosses an edge, and nothing else is said
        assert concluded(ListOdds(wide, {}, 0.0), HowRanked(), useless) == (Conclusion.INCONCLUSIVE, None)
    bound = Preference(near, FIGURE, np.zeros(44), "at most")
    assert concluded(ListOdds(bound, {}, 0.0), HowRanked())[1] == near.reason


def test_a_disparity_is_adjusted_over_prompts_and_speaks_of_the_surest_figure() -> None:
    """By hand: Holm over p .01, .02, .03 gives .03, .04, .04; over .001 among them .003. The repeat claims nothing."""

    def finding(p: float, relevant: float) -> ListwiseFinding:
        odds = Odds(0.5, 0.4, 0.7, 44, 900, p_outside=p)
        return ListwiseFinding(
            measure="PreferenceOdds", conclusion=Conclusion.INCONCLUSIVE, reason=None, odds=odds,
            strata={"relevant": structs.replace(odds, p_outside=relevant)}, p_outside=p,
        )  # fmt: skip

    three = {name: finding(p, 0.5) for name, p in (("a", 0.01), ("b", 0.02), ("c", 0.03))}
    assert not any(f.conclusion == "outside" for f in with_disparities(three).values())
    surest = with_disparities({**three, "a": finding(0.001, 0.0001), "repeat": finding(0.02, 0.5)})
    outside = {name: found.spoken_of for name, found in surest.items() if found.conclusion == "outside"}
    assert outside == {"a": "PreferenceOdds(stratum=relevant)", "repeat": "PreferenceOdds"}
    assert [surest[name].p_outside_adjusted for name in "abc"] == pytest.approx([0.003, 0.04, 0.04])
    # by its own p of .02, not of .03
    assert [surest[name].reason for name in "abc"] == [None, OUTSIDE_ALONE, None]
    of_relevant = with_disparities({"a": finding(0.4, 0.02), "b": finding(0.4, 0.4)})["a"]
    assert (of_relevant.conclusion, of_relevant.reason, of_relevant.decisive) == (
        "inconclusive", OUTSIDE_ALONE, "relevant",
    )  # fmt: skip


def test_items_of_lists_without_judgements_are_not_called_alike_in_relevance() -> None:
    rows = [
        f"q{q},thing {q},d{q}-{n},title {n},{'female' if n % 2 else 'male'}"
        for q in range(8)
        for n in range(12)
    ]
    Path("plain.csv").write_text("\n".join(["query_id,query,doc_id,title,gender", *rows]))
    command = "listwise -d plain.csv -m fake:biased,listwise=-2 --no-repeat -o run -v".split()
    said = llmfair(*command).out
    assert "No relevance was given: items of a list count as equally relevant" in said
    assert "so differences in merit look like preference" in " ".join(said.split())
    assert "equal relevance" not in said and "irrelevant" not in said and said.count("equally relevant") == 1
    assert "No relevance was given" in llmfair("plan", "listwise", "-d", "plain.csv").out
    assert "--label-error 0.1: of a group only 0 %" in llmfair(*command, "--label-error", "0.1").err


def test_wrong_grades_are_weighed_for_a_ranker_that_is_of_as_much_use() -> None:
    """c of the answers themselves: the better graded of two is ahead in so many of 100 first encounters."""
    write_folder(Path("lists"), unequally_relevant())
    command = "listwise -d lists -m fake:biased,listwise=-1,relevance=1 --conditions neutral --no-repeat -o run".split()
    assert llmfair(*command, "--label-error", "0.1").code == 0
    finding = kept("results", "run")["findings"]["neutral"]
    assert finding["conclusion"] == "outside" and not finding["label_error"]["least"]
    odds, explained = finding["odds_of_label_error"], convert(finding["label_error"], LabelError)
    assert odds["relevant"] < odds["all"] < odds["irrelevant"] < 1
    assert odds_with(0.1, {"protected": (240, 36), "unprotected": (240, 84)}, None)["all"] < odds["all"]
    assert explained.text in kept("results", "run")["verdict"]["sentence"]
    screen = llmfair(*command, "--label-error", "0.1", "-v").out
    assert f"reads odds as far from 1 as {odds['relevant']:.3f} of relevant" in screen


def test_odds_of_all_items_go_by_the_pairs_of_both_strata() -> None:
    """By hand: 2 × 2 relevant pairs and 2 × 6 others weigh 1 to 3."""
    odds = odds_with(0.1, {"protected": (4, 2), "unprotected": (8, 2)}, 0.7)
    chances = [odds[name] / (1 + odds[name]) for name in ("relevant", "irrelevant")]
    assert odds["all"] / (1 + odds["all"]) == pytest.approx((chances[0] + 3 * chances[1]) / 4)


def test_a_scored_folder_keeps_to_the_answers_that_its_audit_allowed() -> None:
    small = (*"listwise -n 6 --orders 1 --passes 1 --conditions neutral --no-repeat".split(),)
    assert llmfair(*small, "-m", "fake:biased,malformed=0.3", "-o", "run").code == 4
    scored = llmfair("score", "run", "--json").json
    (run,) = scored["runs"]
    assert run["findings"]["neutral"]["reason"] == "too_many_unparseable"
    assert run["verdict"]["status"] == kept("results", "run")["verdict"]["status"] == "not assessable"


WINDOW, STEP = 20, 10


@dataclass(frozen=True)
class Item:
    doc_id: str
    female: bool
    relevant: bool
    quality: float = 0.0


@dataclass(frozen=True)
class Ranker:
    """Prefers relevant items, an item's quality, and female ones by odds that differ by stratum.

    `drops`: the chance that a female item of an answer's lower half is left out. `leaves`: of windows, as they are.
    """

    relevant: float = 1.0
    irrelevant: float = 1.0
    drops: float = 0.0
    leaves: float = 0.0

    def answer(self, shown: Sequence[Item], rng: np.random.Generator) -> list[Item]:
        if rng.random() < self.leaves:
            return [*shown]
        scores = {
            item: 1.5 * item.relevant
            + item.quality
            + log(self.relevant if item.relevant else self.irrelevant) * item.female
            + rng.gumbel()
            for item in shown
        }
        order = sorted(shown, key=scores.__getitem__, reverse=True)
        upper, lower = order[: len(order) // 2], order[len(order) // 2 :]
        return upper + [item for item in lower if not item.female or rng.random() >= self.drops]


def lists_apart(queries: int, items: int, relevant: int) -> list[list[Item]]:
    """No item is in two of them; half of the relevant and of the others are female."""
    return [
        [Item(f"{query}.{place}", place % 2 == 0, place < relevant) for place in range(items)]
        for query in range(queries)
    ]


def lists_from(pool: int, queries: int, items: int, rng: np.random.Generator) -> list[list[Item]]:
    """All drawn from one pool, whose items have qualities of a heavy-tailed law that group has no part in."""
    female, quality = rng.permutation(pool) % 2 == 0, rng.standard_t(2, pool)
    every = [Item(f"{i}", bool(female[i]), i % 10 < 3, float(quality[i])) for i in range(pool)]
    return [[every[i] for i in rng.choice(pool, items, replace=False)] for _ in range(queries)]


def concluded_of(
    ranker: Ranker, lists: Sequence[Sequence[Item]], rng: np.random.Generator
) -> ListwiseFinding:
    """What an audit in sliding windows concludes, one random order a list."""
    queries, left_out, shown_items = [], 0, 0
    for number, items in enumerate(lists):
        order, asked = [items[place] for place in rng.permutation(len(items))], []
        for start in range(len(items) - WINDOW, -1, -STEP):
            shown = order[start : start + WINDOW]
            named = ranker.answer(shown, rng)
            asked.append(PartialOrder(start, *([each.doc_id for each in of] for of in (shown, named))))
            order[start : start + WINDOW] = named + [item for item in shown if item not in named]
            left_out, shown_items = left_out + len(shown) - len(named), shown_items + len(shown)
        ranked = judged(
            sides={item.doc_id: "protected" if item.female else "unprotected" for item in items},
            candidates=[item.doc_id for item in items],
            relevance={item.doc_id: int(item.relevant) for item in items},
            query_id=f"q{number}",
        )
        queries.append(replace(ranked, encounters=encounters_of(asked)))
    findings = findings_of(
        measure_all([parse_measure("PreferenceOdds")], {"neutral": queries}),
        {"neutral": queries},
        {"neutral": USEFUL},
        Inference(),
        HowRanked(strata=[*Stratum]),
        {"neutral": left_out / shown_items},
    )
    return with_disparities(findings)["neutral"]


def test_a_preference_among_relevant_items_alone_is_a_disparity_of_them() -> None:
    rng = np.random.default_rng(1)
    finding = concluded_of(Ranker(relevant=0.1), lists_apart(44, 60, 6), rng)
    assert finding.odds and finding.odds.low and finding.odds.low > 0.8, "all items together are in the band"
    assert (finding.conclusion, finding.decisive) == (Conclusion.OUTSIDE, "relevant")
    assert (finding.strata["relevant"].value or 1) < 0.3 < (finding.strata["irrelevant"].low or 0)


def test_a_ranker_that_drops_those_whom_it_puts_behind_prefers_the_others() -> None:
    rng = np.random.default_rng(2)
    finding = concluded_of(Ranker(0.77, 0.77, drops=0.8), lists_apart(44, 60, 20), rng)
    assert finding.left_out > 0.05 and finding.odds and (finding.odds.high or 9) < 1
    assert finding.conclusion is not Conclusion.WITHIN


@pytest.mark.parametrize("pool", [40, 60])
def test_a_fair_ranker_of_items_that_recur_is_at_no_disparity(pool: int) -> None:
    rng = np.random.default_rng(3)
    finding = concluded_of(Ranker(), lists_from(pool, 44, 40, rng), rng)
    assert finding.odds and finding.odds.recurring == pool and (finding.odds.p or 0) > 0.05
    assert finding.conclusion is not Conclusion.OUTSIDE


def test_a_ranker_that_leaves_most_windows_as_they_are_is_not_at_parity() -> None:
    rng = np.random.default_rng(4)
    finding = concluded_of(Ranker(0.7, 0.7, leaves=0.85), lists_apart(44, 40, 12), rng)
    assert finding.conclusion is not Conclusion.WITHIN


def test_a_fair_ranker_is_at_parity() -> None:
    rng = np.random.default_rng(5)
    fair = concluded_of(Ranker(), lists_apart(44, 60, 20), rng)
    assert (fair.conclusion, fair.reason) == (Conclusion.WITHIN, None)
    forgetful = lists_apart(44, 60, 20)
    assert concluded_of(Ranker(drops=0.3), forgetful, rng).conclusion is not Conclusion.WITHIN


QUERIES = {20: 30, 50: 15, 200: 5}
"""Of a list's length. The tolerance is four standard errors of so many, whatever they are."""


def folder_of(row: dict[str, Any], queries: int) -> Path:
    """Lists of the row's shape: protected and unprotected items, relevant first within each side."""

    def side(
        query: int, letter: str, group: str, size: int, relevant: int
    ) -> list[tuple[str, str | None, int]]:
        return [(f"q{query}{letter}{i}", group, int(i < relevant)) for i in range(size)]

    n, protected = row["N"], row["n_protected"]
    lists = {
        f"q{q}": side(q, "f", "female", protected, row["experts_protected"])
        + side(q, "m", "male", n - protected, row["experts_unprotected"])
        for q in range(queries)
    }
    name = "-".join(str(row[key]) for key in ("N", "n_protected", "experts_protected", "experts_unprotected"))
    path = Path(f"{name}-{queries}")
    return path if path.is_dir() else write_folder(path, lists)


def measured(row: dict[str, Any], queries: int, **design: Any) -> dict[tuple[str, str], float]:
    settings = ListwiseSettings.make(
        dataset=str(folder_of(row, queries)), conditions="neutral", repeat=False, orders=1, repeats=1,
        measures="ExpRatio,P@20", seed=row.get("seed", 3), max_invalid=1.0, **design,
    )  # fmt: skip
    model = f"fake:biased,relevance={row['alpha']},listwise={row['beta']},noise=1,malformed=0"
    rows = audit(LISTWISE.design(settings, Subject(model))).results.rows
    return {(r.condition, r.measure): r.value for r in rows if r.query_id == "all" and r.value is not None}


def rows_of(kind: str, **wanted: Any) -> list[dict[str, Any]]:
    """The reference's rows with these values."""
    rows = vectors("injected_bias.json")[kind]
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    assert found
    return found


def is_plackett_luce(row: dict[str, Any], queries: int) -> None:
    n = row["N"]
    found = measured(row, queries, window=n, step=n, passes=1)["neutral", "ExpRatio"]
    tolerance = 4 * row["sd_influence_per_query"] / math.sqrt(queries)
    assert abs(math.log(found / row["exact_ratio"])) <= tolerance, row


def is_as_simulated(row: dict[str, Any], queries: int) -> None:
    plan = "rankgpt" if row["last_partial_window"] == "dropped" else "covering"
    found = measured(
        row, queries, window=row["window"], step=row["step"], passes=row["passes"], windows=plan
    )["neutral", "ExpRatio"]
    error = (row["sd_influence_per_query"] ** 2 / queries + (row["ratio_mc_se"] / row["ratio"]) ** 2) ** 0.5
    assert abs(math.log(found / row["ratio"])) <= 4 * error, row


@pytest.mark.parametrize("n", [20, 50, 200])
def test_one_window_over_the_whole_list_is_plackett_luce(n: int) -> None:
    """Of every shape of list the last row: the strongest preference."""
    shapes: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for row in rows_of("listwise_full_pl", N=n):
        shape = (row["n_protected"], row["experts_protected"], row["experts_unprotected"])
        shapes.setdefault(shape, []).append(row)
    for rows in shapes.values():
        is_plackett_luce(rows[-1], QUERIES[n])


RANDOM_ORDERS = {"initial_order": "random", "malformed": 0}


@pytest.mark.parametrize("n", [50, 200])
def test_windows_from_random_orders(n: int) -> None:
    """The strongest preference of every plan of windows."""
    plans: dict[tuple[int, ...], dict[str, Any]] = {}
    for row in rows_of("listwise_sliding_window_mc", N=n, **RANDOM_ORDERS):
        plan = (row["window"], row["step"], row["passes"])
        plans[plan] = max(plans.get(plan, row), row, key=lambda one: abs(one["beta"]))
    for row in plans.values():
        is_as_simulated(row, 12 if n == 50 else 3)
