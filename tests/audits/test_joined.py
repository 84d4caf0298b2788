"""Real TREC 2022 topics and biographies as a folder: degenerate topics are counted, never dropped in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import llmfair, only_run, ran, table
from tests.joined import write_joined

pytestmark = pytest.mark.whole

# No relevant woman; and "Women", whose relevant pages are all about women (data.md 11).
NO_WOMAN = {"265", "403", "1509", "1630", "1715", "2230"}
NO_MAN = {"2859"}
ONE_ARM = ("--orders", "1", "--conditions", "neutral", "--no-repeat")


def test_an_audit_of_22_topics_counts_what_is_undefined() -> None:
    write_joined(Path("joined"))
    measures = "P@20,nDCG@20,ExpRatio,ExpRatio(stratum=relevant)"
    asked = ("listwise", "-d", "joined", "--measures", measures, "--orders", "1", "--passes", "1")
    results = ran(*asked, "--json").json
    assert results["design"]["queries"] == 22 and results["design"]["candidates"] == [24, 138]
    undefined = results["undefined"]["ExpRatio(stratum=relevant)"]
    for condition in ("neutral", "male", "female", "repeat", "initial"):
        assert undefined[condition] == {"no_protected": len(NO_WOMAN), "no_unprotected": len(NO_MAN)}
    rows = {(row["measure"], row["condition"]): row for row in results["rows"]}
    assert rows["ExpRatio(stratum=relevant)", "neutral"]["n"] == 22 - 7
    assert rows["ExpRatio", "neutral"]["n"] == 22
    empty = {
        (row["query_id"], row["reason"])
        for row in table(only_run() / "per_query.csv")
        if row["measure"] == "ExpRatio(stratum=relevant)"
        and row["condition"] == "neutral"
        and not row["value"]
    }
    assert empty == {(q, "no_protected") for q in NO_WOMAN} | {(q, "no_unprotected") for q in NO_MAN}
    assert "undefined: no protected (6 queries); no unprotected (1 query)" in llmfair(*asked, "-v").out


def test_people_without_a_continent_keep_their_rank_and_are_in_neither_mean() -> None:
    write_joined(Path("joined"))
    assert llmfair("datasets", "show", "joined", "--json").json["attributes"]["location"]["unknown"] == 28
    ran("listwise", "-d", "joined", "-a", "location", *ONE_ARM, "--passes", "1", "-q")
    rows = [json.loads(line) for line in (only_run() / "candidates.jsonl").read_text().splitlines()]
    without = sum(side is None for row in rows for side in row["side"])
    assert without > 0
    ranked = (only_run() / "rankings" / "neutral.run").read_text().splitlines()
    assert len(ranked) == sum(len(row["doc_ids"]) for row in rows)


def test_equal_buckets_drop_the_degenerate_topics_and_say_so() -> None:
    write_joined(Path("joined"))
    found = ran("listwise", "-d", "joined", "--buckets", "equal", "--candidates", "20", *ONE_ARM, "--json")
    assert found.json["design"]["left_out"].keys() == NO_WOMAN | NO_MAN
