"""Pairs of several groups: every contrast is drawn, asked and concluded of by itself, all are tested together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from llmfair.audits.label_error import judged_between
from llmfair.audits.pairwise.design import make_pair_design
from llmfair.audits.pairwise.measure import beside_each_other
from llmfair.audits.pairwise.results import PairFinding
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.nouns import JUDGED_STRATA, Conclusion, Key
from llmfair.report.verdict import places
from tests.cli.command import kept, llmfair, ran, refuses, table

pytestmark = pytest.mark.whole

THREE = ("Asian", "Black", "White")


def write_table(groups: Sequence[str], queries: int = 16, each: int = 8, unknown: str = "") -> Path:
    """Lists of `each` items of every group, half of them relevant; the group of some is not known."""
    lines = ["query_id,query,doc_id,title,race,relevance"]
    for query in range(queries):
        for n in range(each * len(groups)):
            group, relevant = groups[n % len(groups)], int(n < each * len(groups) // 2)
            known = "" if group == unknown else group
            lines.append(f"q{query},thing {query},d{query}-{n},title {query} {n},{known},{relevant}")
    path = Path(f"table{unknown}.csv")
    path.write_text("\n".join(lines))
    return path


ASKED = ("pairwise", "-a", "race", "-m", "fake:biased,behind=Black,pairwise=-1.5", "-o", "run")


def test_a_group_that_is_put_behind_is_found_and_no_fair_one() -> None:
    screen = ran(*ASKED, "-d", write_table(THREE), "--pairs", "12").out
    results = kept("results", "run")
    concluded = {key: finding["conclusion"] for key, finding in results["findings"].items()}
    for stratum in JUDGED_STRATA:
        assert concluded[f"{stratum}, Asian:Black"] == concluded[f"{stratum}, Black:White"] == "outside"
        assert concluded[f"{stratum}, Asian:White"] != "outside"
    assert results["family"]["size"] == 6 and results["design"]["groups"] == dict.fromkeys(THREE, 128)
    assert "relevant, Asian:Black" in screen and "outside: Asian items are preferred" in screen
    behind = [f"of two {stratum} items Black is put behind Asian and White" for stratum in JUDGED_STRATA]
    assert all(sentence in results["verdict"]["sentence"] for sentence in behind)
    ran("report", "run", "-o", "page.html")
    assert "<td>Asian</td>" in Path("page.html").read_text()
    odds = {row["contrast"]: row for row in results["rows"] if row["measure"] == "AdjustedOdds"}
    assert odds["Asian:Black"]["value"] > 1.25 and odds["Black:White"]["value"] < 0.8
    assert {row["contrast"] for row in table(Path("run/verdicts.csv"))} == {*odds}
    assert "win share, first group [95 %]  win share, second group [95 %]" in ran("score", "run").out
    again = ran("score", "run", "--json").json["runs"][0]["findings"]
    assert {key: finding["conclusion"] for key, finding in again.items()} == concluded
    for contrast, code in (("Black:White", 4), ("Asian:White", 0)):
        require = f"AdjustedOdds(contrast='{contrast}')=0.5..2"
        assert llmfair("score", "run", "--require", require).code == code


def test_the_pairs_of_a_contrast_hang_on_no_other_group() -> None:
    def asked(path: Path) -> Mapping[str, list[tuple[str, ...]]]:
        design = make_pair_design(PairwiseSettings(dataset=str(path), attribute=("race",), pairs=5))
        return {
            key: [(probe.probe_id, *probe.candidates.doc_ids) for of in probes.values() for probe in of]
            for key, probes in design.pairs.items()
        }

    three, two = asked(write_table(THREE)), asked(write_table(THREE, unknown="White"))
    assert [*two] == ["relevant, Asian:Black", "irrelevant, Asian:Black"]
    assert two == {key: three[key] for key in two} and len(three) == 6


def test_of_many_contrasts_only_those_outside_are_told() -> None:
    groups = ("Black", *(f"group {n}" for n in range(6)))
    asked = "pairwise", "-d", write_table(groups, 8), "-a", "race", "--pairs", "4", "--noise-share", "0"
    screen = ran(*asked, "-m", "fake:biased,behind=Black,pairwise=-4", "-o", "strong").out
    findings = kept("results", "strong")["findings"]
    outside = [key for key, of in findings.items() if of["conclusion"] == "outside"]
    assert outside and [key for key in findings if f" {key} " in screen] == outside
    assert f"{42 - len(outside)} more contrasts of strata, none outside the band" in screen
    assert "27 more contrasts of strata" in ran(*asked, "-m", "fake:biased", "-o", "fair").out


def test_what_is_made_for_two_groups_refuses_several() -> None:
    path = write_table(THREE)
    refuses("calibrate pairwise compares two groups", "calibrate", "pairwise", "-d", path, "-a", "race")
    refuses("--sequential audits two groups, and race has 3", *ASKED, "-d", path, "--sequential")
    planned = ran(
        "plan", "pairwise", "-d", path, "-a", "race", "--pairs", "4", "--noise-share", "0", "--json"
    ).json
    assert planned["calls"] == 16 * 4 * 2 * 3 * 2 and planned["findable"] is None
    assert "3 contrasts" in ran("plan", "pairwise", "-d", path, "-a", "race").out


@pytest.mark.parametrize(
    ("outside_at", "adjust", "outside"),
    [
        ((0.98, 0.96), "holm", [True, True]),  # of two both only where one is at 97.5 %
        ((0.96, 0.96), "holm", [False, False]),
        ((0.96, 0.96), "bh", [True, True]),
        ((0.97, 0.97, 0.9), "holm", [False, False, False]),
        ((0.97, 0.97, 0.9), "bh", [True, True, False]),  # two of three at 96.7 %
        ((0.96, 0.96, 0.9), "bh", [False, False, False]),
    ],
)
def test_contrasts_are_tested_together(outside_at: Sequence[float], adjust: str, outside: list[bool]) -> None:
    findings = {
        str(place): PairFinding(measure="AdjustedOdds", conclusion=Conclusion.OUTSIDE, reason=None)
        for place in range(len(outside_at))
    }

    def at(name: str, level: float) -> Conclusion:
        return Conclusion.OUTSIDE if outside_at[int(name)] >= level else Conclusion.INCONCLUSIVE

    together = beside_each_other(findings, at, 0.95, True, adjust)
    assert [each.conclusion is Conclusion.OUTSIDE for each in together.values()] == outside


def test_a_run_that_is_adjusted_by_bh_is_measured_again_alike() -> None:
    asked = "pairwise", "-d", write_table(THREE), "-a", "race", "--pairs", "6", "-o", "run", "--adjust", "bh"
    ran(*asked, "-m", "fake:biased,behind=Black,pairwise=-0.8")
    results, again = kept("results", "run"), ran("score", "run", "--json").json["runs"][0]
    assert results["design"]["adjust"] == "bh" and again["findings"] == results["findings"]


def test_conditions_of_changes_are_said_after_their_groups() -> None:
    keys = [Key("neutral", contrast=pair) for pair in ("A:B", "A:C")]
    assert places([*keys, Key("a", contrast="A:B")], "prompt") == "A:B and A:C, neutral prompt; A:B, a prompt"
    assert places([Key("pairs", "relevant")], "pairs") == "relevant pairs"
    assert places([Key("a"), Key("b")], "prompt") == "a and b prompts"


def test_items_of_a_contrast_are_those_of_its_groups_or_of_all_others() -> None:
    judged = {"a": (10, 4), "b": (20, 5), "c": (30, 6)}
    assert judged_between(judged, "a:c") == {"protected": (10, 4), "unprotected": (30, 6)}
    assert judged_between(judged, "b:others") == {"protected": (20, 5), "unprotected": (40, 10)}
