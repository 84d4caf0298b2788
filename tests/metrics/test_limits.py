"""What no order of a list passes, where the target of a measure holds groups that the list does not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.metrics.base import Judged, Undefined, limit_notes
from llmfair.metrics.names import parse_measure, parse_measures
from llmfair.nouns import Ranking
from tests.cli.command import kept, ran, table
from tests.folders import write_folder
from tests.metrics import attribute_with, grouped, raw

GENDER = attribute_with("gender", "f", "m", "nonbinary")
NAMES = (
    "AWRF",
    "AWRF(log=2)@2",
    "AWRF(unknown=drop)@3",
    "KL@3",
    "KL(direction=target-current)",
    "KL(eps=0.01)@2",
)


def query(listed: Sequence[Sequence[str]], others: Sequence[Sequence[str]]) -> Judged:
    """A list whose documents have these groups; what is relevant besides is in no list."""
    memberships = {f"d{place}": {"gender": tuple(names)} for place, names in enumerate([*listed, *others])}
    ranking = [f"d{place}" for place in range(len(listed))]
    return grouped(ranking, memberships, GENDER, relevant=[*memberships])


GROUPS = st.lists(st.sampled_from(["f", "m", "nonbinary"]), unique=True, max_size=2)


@settings(deadline=None)
@given(st.lists(GROUPS, min_size=1, max_size=3), st.lists(GROUPS, max_size=6))
def test_no_order_passes_it(listed: list[list[str]], others: list[list[str]]) -> None:
    judged = query(listed, others)
    for name in NAMES:
        measure = parse_measure(name)
        limit = measure.limit(judged)
        for order in permutations(judged.doc_ids):
            found = raw(name, replace(judged, rankings=(Ranking("q", order),)))
            if isinstance(found, Undefined):
                continue
            assert limit is not None and isinstance(found, float)
            if measure.definition.better == "higher":
                assert found <= limit.best + 1e-9 and limit.best <= limit.perfect == 1
            else:
                assert found >= limit.best - 1e-9 and limit.best >= limit.perfect == 0


def test_a_list_with_the_target_s_shares_of_what_it_has_reaches_it() -> None:
    """Half of the relevant documents are men and women alike, the other half is in no list."""
    judged = query([["f"], ["m"]], [["nonbinary"], ["nonbinary"]])
    for name in ("AWRF", "KL", "KL(direction=target-current)"):
        limit = parse_measure(name).limit(judged)
        assert limit is not None and raw(name, judged) == pytest.approx(limit.best, abs=1e-9)
        assert abs(limit.best - limit.perfect) > 0.1


def test_what_is_said_of_it() -> None:
    missing, whole = query([["f"], ["m"]], [["nonbinary"]] * 2), query([["f"], ["m"]], [])
    names = parse_measures("AWRF,KL@2,nDCGxAWRF,nDCGxAWRF(ideal=1),P@2")
    notes = limit_notes(names, [missing])
    why = "on average, since targets hold groups that the lists do not have"
    assert notes == {
        "AWRF": f"no order of these lists goes above 0.784 {why}",
        "KL@2": f"no order of these lists goes below 0.693 {why}",
        "nDCGxAWRF": f"no order of these lists goes above 0.784 {why}",
    }
    assert limit_notes(names, [whole]) == {} == limit_notes(names, [])


@pytest.mark.whole
def test_a_perfect_ranker_of_drawn_lists_is_shown_what_it_could_read() -> None:
    """More than half of what is relevant is of no known group, and in no drawn list."""
    lists: dict[str, list[tuple[str, str | None, int]]] = {
        f"q{q}": [
            (f"q{q}d{place}", "female" if place < 12 else "male" if place < 24 else None, 1)
            for place in range(60)
        ]
        for q in range(5)
    }
    write_folder(Path("mine"), lists)
    audit = (
        "listwise", "-d", "mine", "-m", "fake:oracle,malformed=0", "--measures", "AWRF@20", "--orders", "1",
        "--conditions", "neutral", "--no-repeat", "--candidates", "20", "-o", "run",
    )  # fmt: skip
    told = ran(*audit, "-v").out
    said = "no order of these lists goes above 0.726 on average, since targets hold groups"
    assert said in told and said in kept("results", "run")["limits"]["AWRF@20"]
    (read,) = [
        float(row["value"])
        for row in table(Path("run/metrics.csv"))
        if (row["measure"], row["condition"], row["query_id"]) == ("AWRF@20", "neutral", "all")
    ]
    assert 0.72 < read <= 0.726
    assert "the journal is readable" in ran("runs", "check", "run").out
    ran("report", "run")
    assert said in Path("run/report.html").read_text()
    assert said in ran("score", "run", "--measures", "AWRF@20").out
    dropped = ran("score", "run", "--measures", "AWRF(unknown=drop)@20", "--json").json
    assert "limits" not in dropped, "of the known groups the lists have all that are relevant"
