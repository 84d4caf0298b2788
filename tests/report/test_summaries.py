"""The summaries that a law or a standard asks for: by hand, and as `llmfair report RUN --format` gives them."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest

from llmfair.report.summaries import (
    Category,
    Sample,
    category_of,
    compared,
    cutoff,
    entries_of,
    independent,
    kept_of,
    odds_of,
)
from llmfair.results import Figure
from llmfair.settings.commands import ABOUT_AUDITS
from llmfair.stats.selection import impact_ratios
from tests.cli.command import llmfair, ran, refuses
from tests.folders import balanced, write, write_folder
from tests.report.reading import read

Counts = dict[str | None, tuple[int, int]]
"""Of each category, how many are selected, and how many there are."""


def of_counts(counts: Counts, people: Sequence[str] = (), odds: Figure | None = None) -> dict[str, Category]:
    """The categories that so many people make, a list for everybody, by name; `odds` of a against b."""
    labels = [label for label, (_, n) in counts.items() for _ in range(n)]
    chosen = [place < selected for selected, n in counts.values() for place in range(n)]
    everybody = people or [f"p{place}" for place in range(len(labels))]
    sample = Sample("neutral", everybody, everybody, chosen, "selection rate", "")
    ratios = dict(zip(kept_of(labels), impact_ratios(entries_of(labels, sample)), strict=True))
    rows = compared("sex", labels, sample, ratios, {("a", "b"): odds} if odds else {})
    return {row["category"]: row for row in rows}


def test_rates_and_ratios_are_those_of_all_lists_together() -> None:
    odds = Figure(0.5, 0.4, 0.6, 9, None, None, None, None)
    found = of_counts({"a": (20, 80), "b": (30, 80)}, odds=odds)
    assert (found["a"]["rate"], found["a"]["impact_ratio"], found["a"]["against"]) == (0.25, 2 / 3, "b")
    assert found["a"]["below_four_fifths"] and found["b"]["below_four_fifths"] is None
    # z = .125 / sqrt(.3125 · .6875 · 2/80) = 1.7056, as any table of the normal has it
    assert found["a"]["p_two_proportion"] == pytest.approx(0.0881, abs=1e-4)
    assert independent(1, 4, 3, 4)[1] == pytest.approx(34 / 70)  # Fisher's lady tasting tea, both sides
    assert (found["a"]["odds"], found["b"]["odds"]) == (0.5, None)


def test_four_fifths_exactly_is_not_below() -> None:
    assert of_counts({"a": (12, 50), "b": (15, 50)})["a"]["below_four_fifths"] is False


def test_a_category_under_two_percent_is_shown_without_ratio_and_sets_no_highest_rate() -> None:
    found = of_counts({"a": (10, 25), "b": (20, 25), "few": (1, 1)})  # 1 of 51
    few = found["few"]
    assert (few["rate"], few["applications"], few["impact_ratio"]) == (1, 1, None)
    assert "under 2 %" in str(few["reason"]) and found["a"]["against"] == "b"
    assert of_counts({"a": (10, 25), "b": (20, 24), "few": (1, 1)})["a"]["against"] == "few"  # 1 of 50


def test_who_is_in_no_category_is_counted_and_in_no_rate() -> None:
    found = of_counts({"a": (1, 4), None: (3, 3), "b": (2, 4)})
    assert [*found] == ["a", "b", "unknown"]
    assert (found["unknown"]["people"], found["unknown"]["rate"]) == (3, None)
    assert found["a"]["impact_ratio"] == 0.5 and found["a"]["share"] == pytest.approx(4 / 11)


def test_nobody_selected_has_a_reason_and_no_ratio() -> None:
    found = of_counts({"a": (0, 40), "b": (20, 40)})
    assert (found["a"]["rate"], found["a"]["impact_ratio"]) == (0, None)
    assert found["a"]["reason"] == "nobody of the category is selected: no ratio"
    assert found["a"]["below_four_fifths"]
    found = of_counts({"a": (0, 40), "b": (0, 40)})
    assert [of["impact_ratio"] for of in found.values()] == [None, None]
    assert {of["reason"] for of in found.values()} == {"nobody of any category is selected: no ratio"}


def test_a_person_of_several_lists_is_one() -> None:
    found = of_counts({"a": (1, 2), "b": (1, 2)}, people=["one", "one", "two", "three"])
    assert [(of["people"], of["applications"]) for of in found.values()] == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("groups", "category"),
    [
        ({"sex": ["F"], "race": ["X"]}, "F*X"),
        ({"sex": ["F"]}, None),
        ({"sex": ["F"], "race": ["X", "Y"]}, None),
        ({"sex": ["F"], "race": ["Unknown"]}, None),
        ({"sex": ["@UNKNOWN"], "race": ["X"]}, None),
    ],
)
def test_an_intersection_takes_one_known_group_of_each(
    groups: dict[str, list[str]], category: str | None
) -> None:
    assert category_of(groups, ("sex", "race")) == category


def test_how_many_are_selected_follows_the_measures() -> None:
    assert cutoff(["P@5", "ImpactRatio@10(reference=a)", "nDCG@3"]) == 10
    assert (cutoff(["nDCG@3", "P@5"]), cutoff(["ExpRatio"])) == (5, 20)


# As a command: a run whose files are then those of another ranking, of people with a sex and a race.


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    lists = balanced(6, 8, 6)
    data = write_folder(folder / "lists", lists, queries={query: f"Title {query}f0" for query in lists})
    asked = ("-d", data, "--orders", "1", "--passes", "1", "--no-report", "-q")
    ran("listwise", *asked, "-m", "fake:biased,listwise=-4", "-o", folder / "run")
    ran("listwise", *asked, "-m", "bm25", "-o", folder / "scored")
    ran("pairwise", "-d", data, "--pairs", "4", "--no-report", "-q", "-o", folder / "pairs")
    run = folder / "run"
    people = [doc_id for rows in lists.values() for doc_id, _, _ in rows]
    sexes = {doc_id: "female" if "f" in doc_id else "male" for doc_id in people}
    races = {doc_id: ("X", "Y", "Z")[place % 3] for place, doc_id in enumerate(people)}
    groups = [f"{doc_id}\tgender\t{sex}" for doc_id, sex in sexes.items()]
    groups += [f"{doc_id}\trace\t{race}" for doc_id, race in races.items() if doc_id != "q0f0"]
    write(run / "groups.tsv", groups)
    ranked = [
        (query, sorted((doc_id for doc_id, _, _ in rows), reverse=True)) for query, rows in lists.items()
    ]
    lines = [f"{q} Q0 {doc} {n} {-n} x" for q, docs in ranked for n, doc in enumerate(docs, 1)]  # men first
    write(run / "rankings/neutral.run", lines)
    return folder


@pytest.fixture
def here(made: Path) -> None:
    """The runs, in the folder of the test."""
    for name in ("run", "scored", "pairs"):
        copytree(made / name, name)


def lines_of(*arguments: str) -> list[dict[str, str]]:
    ran("report", *arguments, "--format", "ll144", "-o", "out.csv")
    with Path("out.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("here")
def test_every_attribute_and_every_two_together() -> None:
    lines = lines_of("run", "--at", "9")
    assert [*dict.fromkeys(line["attribute"] for line in lines)] == ["gender", "race", "gender*race"]
    printed = ran("report", "run", "--at", "9", "--format", "ll144", "--json").json["rows"]
    assert [row["rate"] for row in printed if row["rate"]] == [
        float(of["rate"]) for of in lines if of["rate"]
    ]
    found = {(line["attribute"], line["category"]): line for line in lines}
    female = found["gender", "female"]  # behind all six men of a list the first three of eight
    assert (female["applications"], female["selected"], female["impact_ratio"]) == ("48", "18", "0.375")
    assert float(female["low"]) < 0.375 < float(female["high"]) and float(female["p_by_list"]) < 0.001
    assert found["race", "unknown"]["people"] == "1"
    assert found["gender*race", "male*X"]["rate"] == "1.0"
    assert {line["attribute"] for line in lines_of("run", "--at", "9", "-a", "gender,race")} == {
        "gender",
        "race",
        "gender*race",
    }
    assert {line["attribute"] for line in lines_of("run", "--at", "9", "-a", "gender*race")} == {
        "gender*race"
    }


@pytest.mark.usefixtures("here")
def test_the_odds_of_the_run_stand_beside_the_ratio() -> None:
    female, male, *_ = lines_of("run", "-a", "gender", "--at", "9")
    rows = json.loads(Path("run/results.json").read_text("utf-8"))["rows"]
    (row,) = [
        r
        for r in rows
        if (r["measure"], r["condition"], r["stratum"]) == ("PreferenceOdds", "neutral", "all")
    ]
    assert [float(female[name]) for name in ("odds", "odds_low", "odds_high")] == [
        row[name] for name in ("value", "low", "high")
    ]
    assert male["odds"] == ""


def test_odds_of_several_groups_are_read_either_way_round() -> None:
    figure = {"group": "", "stratum": "all", "low": 0.25, "high": 1.0, "n": 9}
    of = {"measure": "PreferenceOdds", "condition": "neutral", "contrast": "Asian:Black", "value": 0.5}
    bound = of | {"contrast": "Asian:White", "value": None, "low": None}
    rows = [SimpleNamespace(**figure | of), SimpleNamespace(**figure | bound)]
    attribute = {"crossed": ["sex", "race"], "words": {"protected": "x", "unprotected": "y"}}
    source: Any = SimpleNamespace(
        manifest=SimpleNamespace(settings={"attribute": attribute}),
        results=SimpleNamespace(of_all=lambda: rows, attribute="both"),
    )
    audited, odds = odds_of(source, "neutral")
    assert audited == "sex*race" and {*odds} == {("Asian", "Black"), ("Black", "Asian")}
    turned = odds["Black", "Asian"]
    assert (turned.value, turned.low, turned.high) == (2, 1, 4)


@pytest.mark.usefixtures("here")
def test_of_a_ranker_with_scores_those_above_the_median_count() -> None:
    scores = [line.split("\t") for line in Path("scored/scores.tsv").read_text("utf-8").splitlines()]
    values = sorted(float(score) for _, _, score in scores)
    middle = (values[41] + values[42]) / 2
    above = sum(float(score) > middle for _, doc_id, score in scores if "f" in doc_id)
    female, *_ = lines_of("scored")
    assert (female["measure"], female["selected"]) == ("scoring rate", str(above))
    assert lines_of("scored", "--at", "5")[0]["measure"] == "selection rate at 5"


@pytest.mark.usefixtures("here")
def test_what_people_know_is_told_or_named_as_missing() -> None:
    missing = ran("report", "run", "--format", "ll144", "--at", "9").out
    assert "| dates of the data | MISSING: data_dates in [audit] of llmfair.toml |" in missing
    assert "- Were categories dealt at random, the least ratio would average " in missing
    assert "The law sets no threshold" in missing and "no legal advice" in missing
    assert (
        f"| results.json, SHA-256 | {hashlib.sha256(Path('run/results.json').read_bytes()).hexdigest()} |"
        in missing
    )
    Path("llmfair.toml").write_text(
        '[audit]\ndata_dates = "spring"\ndistribution_date = 2026-03-01\nhazard = "<b>no job</b>"\n'
    )
    told = ran("report", "run", "--format", "ll144", "--at", "9").out
    assert (
        "| dates of the data | spring |" in told and "| distribution date of the tool | 2026-03-01 |" in told
    )
    ran("report", "run", "--format", "profile", "-o", "profile.html")
    page = read(Path("profile.html"))
    assert "<b>no job</b>" in "".join(page.text) and "review_after in [audit]" in "".join(page.text)
    assert '<th scope="col"></th>' not in Path("profile.html").read_text("utf-8")
    Path("llmfair.toml").write_text('[audit]\nhazzard = "x"\n')
    refuses("audit.hazzard is not a setting. Did you mean 'hazard'?", "report", "run", "--format", "profile")
    Path("llmfair.toml").write_text("[audit]\nhazard = 5\n")
    refuses("audit.hazard is 5, but takes a text.", "report", "run", "--format", "profile")


@pytest.mark.usefixtures("here")
def test_a_profile_has_a_scenario_for_each_finding() -> None:
    ran("report", "run", "--format", "profile", "-o", "profile.csv")
    with Path("profile.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["scenario"].rpartition(" ")[2]: row for row in csv.DictReader(file)}
    assert [*rows] == ["neutral", "male", "female"]  # and not the repeat, which is no finding of its own
    found = json.loads(Path("run/results.json").read_text("utf-8"))["findings"]["neutral"]["conclusion"]
    assert found == "outside" and rows["neutral"]["group at risk"] == "female"
    assert rows["neutral"]["measurement"].endswith("outside")
    assert rows["neutral"]["acceptability threshold"] == "odds from 0.8 to 1.25"
    assert rows["neutral"]["mitigation"].startswith("MISSING")
    ran("mitigate", "run", "--remedy", "fair-star:p=0.5", "--no-report", "-q")
    assert "tried: " in ran("report", "run", "--format", "profile").out
    assert "pairs relevant" in ran("report", "pairs", "--format", "profile").out


@pytest.mark.usefixtures("here")
def test_what_cannot_be_summarised_is_refused() -> None:
    shape = ("--format", "ll144")
    refuses("pairs has no ranked lists.", "report", "pairs", *shape)
    refuses("is of one run.", "report", "run", "scored", *shape)
    refuses("its ending says which: .md, .csv, .html", "report", "run", *shape, "-o", "x.pdf")
    refuses(
        "no list has more than 14, so everybody would be selected.", "report", "run", *shape, "--at", "14"
    )
    refuses("Did you mean 'gender'?", "report", "run", *shape, "--at", "9", "-a", "gendr")
    assert llmfair("report", "run", *shape, "-o", "x.csv", "--at", "3").out == "x.csv\n"
    Path("run/groups.tsv").unlink()
    refuses("groups.tsv", "report", "run", *shape, "--at", "3")
    Path("run/results.json").unlink()
    refuses("run has no results yet", "report", "run", *shape)


def test_the_page_names_every_key() -> None:
    page = Path(__file__).parents[2] / "docs/summaries.md"
    (block,) = re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert tomllib.loads(block)["audit"].keys() == ABOUT_AUDITS.keys()
