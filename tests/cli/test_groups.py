"""Audits of several groups from end to end, as commands: what was planted beside what is found, by name."""

from __future__ import annotations

import csv
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import kept, llmfair, ran, refuses, table
from tests.hiring import write_applications
from tests.servers import Endpoint

pytestmark = pytest.mark.whole

BEHIND = "fake:biased,behind=Black,listwise=-0.9"
CHANCE = """
import random

def scores(query, documents):
    return [random.Random(query + text).random() for text in documents]
"""
NEUTRAL = ("--conditions", "neutral", "--orders", "1", "--passes", "1", "--no-repeat", "--no-report")
PROMPT = Path(__file__).parents[2] / "prompts/listwise-general.toml"
HIRING = ("listwise", "-d", "cvs.csv", "-a", "ethnicity", *NEUTRAL)


@pytest.fixture(autouse=True)
def applications() -> None:
    write_applications(Path("cvs.csv"))
    Path("chance.py").write_text(CHANCE)


def sentence(run: str) -> str:
    text: str = kept("results", run)["verdict"]["sentence"]
    return text


def figures(run: str, measure: str) -> dict[str, float | None]:
    """Of the neutral prompt, all items alike in relevance, by contrast or group."""
    rows = table(Path(run, "metrics.csv"))
    of = [row for row in rows if row["measure"] == measure and row["condition"] == "neutral"]
    return {
        row["contrast"] or row["group"]: float(row["value"]) if row["value"] else None
        for row in of
        if row["stratum"] == "all"
    }


def counted(run: str, k: int, *columns: str) -> dict[str, tuple[int, int]]:
    """By hand, from the run file: of each group the applications and those among the first k."""
    people = {
        (row["query_id"], row["doc_id"]): "*".join(row[column] for column in columns)
        for row in table(Path("cvs.csv"))
        if all(row[column] for column in columns)
    }
    chosen = Counter[str]()
    for line in Path(run, "rankings/neutral.run").read_text().splitlines():
        query_id, _, doc_id, rank, *_ = line.split()
        if int(rank) <= k and (query_id, doc_id) in people:
            chosen[people[query_id, doc_id]] += 1
    return {group: (number, chosen[group]) for group, number in Counter(people.values()).items()}


def test_a_hiring_audit_names_the_group_that_is_put_behind() -> None:
    words = (
        PROMPT.read_text().replace("listwise-general", "recruiter").replace("a search system", "a recruiter")
    )
    Path("cv.toml").write_text(words)
    asked = (*HIRING, "--prompt", "cv.toml", "--fail-on", "disparity")
    assert llmfair(*asked, "-m", BEHIND, "-o", "run").code == 4
    named = sentence("run").partition("; no other pair")[0]
    assert "Black is put behind" in named and "is put ahead" not in named
    for columns in (("ethnicity",), ("gender",), ("ethnicity", "gender")):
        summary = ran(
            "report", "run", "--format", "ll144", "--at", "10", "-a", "ethnicity,gender"
        ).out.replace("\\*", "*")
        (section,) = re.findall(
            rf"^## {re.escape('*'.join(columns))}: selection.*?(?=^## )", summary, re.M | re.S
        )
        rows = re.findall(
            r"^\| (?!unknown)(\S+) \| \d+ \| (\d+) \| [\d.]+ % \| (\d+) \| ([\d.]+) %", section, re.M
        )
        by_hand = counted("run", 10, *columns)
        assert {group: (int(of), int(chosen)) for group, of, chosen, _ in rows} == by_hand
        rates = {group: chosen / of for group, (of, chosen) in by_hand.items()}
        assert {group: float(rate) for group, *_, rate in rows} == pytest.approx(
            {group: 100 * rate for group, rate in rates.items()}, abs=0.051
        )
    assert llmfair(*asked, "-m", "fake:biased", "-o", "fair").code == 0
    assert "put behind" not in sentence("fair") and "put ahead" not in sentence("fair")


BRANDS = ("Acme", "Globex", "Initech", "Hooli")


def scores(body: dict[str, Any], number: int) -> dict[str, Any]:
    """What is good is ahead, and Globex behind."""
    rows = [
        {
            "index": place,
            "relevance_score": random.Random(text).gauss(("good" in text) - 0.8 * ("Globex" in text), 1.0),
        }
        for place, text in enumerate(body["documents"])
    ]
    return {"results": sorted(rows, key=lambda row: -row["relevance_score"])}


def test_a_shop_learns_which_brand_its_rerank_endpoint_puts_behind() -> None:
    rng = random.Random(0)
    with Path("shop.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("query_id", "query", "doc_id", "title", "relevance", "brand"))
        for number in range(1200):
            brand, good = rng.choice(BRANDS), rng.random() < 0.4
            title = f"{brand} kettle {number}, {'good' if good else 'plain'}"
            writer.writerow(
                (f"q{number // 20}", f"kettle {number // 20}", f"d{number}", title, int(good), brand)
            )
    with Endpoint(scores) as server:
        asked = ("-m", "rerank:stub", "--base-url", server.url, "-d", "shop.csv", "-a", "brand")
        found = llmfair("listwise", *asked, "--no-report", "--fail-on", "disparity", "-o", "shop")
    assert found.code == 4, found
    named = sentence("shop").partition("; no other pair")[0]
    assert "Globex is put behind" in named and "ahead" not in named


@pytest.fixture
def run(applications: None) -> str:
    ran(*HIRING, "-m", BEHIND, "-o", "run")
    return "run"


def test_gates_and_comparisons_are_of_contrasts(run: str) -> None:
    gates = ("PreferenceOdds(contrast='Asian:Black'):neutral>=0.8", "ImpactRatio@20>=0.8")
    found = llmfair(
        *HIRING, "-m", BEHIND, "-o", run, *(word for gate in gates for word in ("--require", gate))
    )
    assert found.code == 4, found
    required = kept("results", run)["requirements"]
    holds = {(gate.get("contrast", ""), gate["group"]): gate["holds"] for gate in required}
    assert holds.pop(("Asian:Black", "")) and not holds[("", "Black")]
    ran(*HIRING, "-m", "fake:biased", "-o", "fair")
    shown = llmfair("compare", "fair", run, "--fail-on", "worse")
    assert shown.code == 4 and "Black:White" in shown.out, shown
    assert ran("runs", "check", run).out.startswith("OK")
    assert "Black" in ran("runs", "show", run, "--furthest").out


def test_a_run_measured_again_says_what_it_said() -> None:
    asked = ("--conditions", "neutral", "--orders", "2", "--passes", "1", "--no-report")
    ran("listwise", "-d", "cvs.csv", "-a", "ethnicity", "-m", BEHIND, *asked, "-o", "run")
    ran("score", "run", "-o", "again", "--no-report")
    (again,) = kept("results", "again")["runs"]
    assert again["verdict"]["sentence"] == sentence("run") and "Black is put behind" in sentence("run")
    odds = figures("run", "PreferenceOdds")
    assert figures("again", "PreferenceOdds") == odds and len(odds) == 6 and None not in odds.values()
    assert not any(condition.startswith("repeat") for condition in again["findings"])


def test_a_spent_budget_is_gone_on_with(run: str) -> None:
    limited = (*HIRING, "-m", BEHIND, "-o", "again", "--no-cache", "--max-calls", "12")
    codes = [llmfair(*limited).code for _ in range(4)]
    assert codes[0] == 3 and codes[-1] == 0, codes
    for name in ("metrics.csv", "per_query.csv"):
        again, once = ([{**row, "run": ""} for row in table(Path(of, name))] for of in ("again", run))
        assert again == once


@pytest.mark.parametrize(
    ("contrast", "pairs", "says"),
    [
        ("reference:White", ["Asian:White", "Black:White", "Hispanic:White"], "Black is put behind"),
        ("rest", [f"{name}:others" for name in ("Asian", "Black", "Hispanic", "White")], "behind all others"),
    ],
)  # fmt: skip
def test_other_contrasts(contrast: str, pairs: list[str], says: str) -> None:
    ran(*HIRING, "-m", BEHIND, "--contrast", contrast, "-o", "other")
    assert kept("results", "other")["design"]["contrasts"] == pairs
    assert says in sentence("other")


def test_groups_that_are_few_and_items_without_one_are_counted(run: str) -> None:
    rows = table(Path("cvs.csv"))
    sizes = Counter(row["ethnicity"] for row in rows)
    assert kept("results", run)["design"]["unknown"] == sizes.pop("")
    ran(*HIRING, "-m", BEHIND, "--min-group", str(sizes["Black"] + 1), "--adjust", "bh", "-o", "large")
    design = kept("results", "large")["design"]
    assert design["few"] == {"Black": sizes["Black"]} and "Black" not in str(design["contrasts"])
    assert design["groups"] == {name: size for name, size in sorted(sizes.items()) if name != "Black"}


def test_attributes_side_by_side_and_crossed() -> None:
    Path("attributes.toml").write_text('[both]\ncross = ["gender", "ethnicity"]\n')
    plain = ("listwise", "-d", "cvs.csv", "-m", "python:chance:scores", "-n", "8", *NEUTRAL)
    found = ran(*plain, "-a", "gender", "-a", "ethnicity", "--runs-dir", "two")
    assert "nonbinary" in found.out and "Hispanic" in found.out and len([*Path("two").iterdir()]) == 2
    ran(*plain, "-a", "gender*ethnicity", "-o", "crossed")
    ran(*plain, "-a", "both", "-o", "declared")
    groups = [kept("results", of)["design"]["groups"] for of in ("crossed", "declared")]
    assert groups[0] == groups[1] and "female*Black" in groups[0]
    refuses("gender", *plain, "-a", "gender,ethnicity")


def swapped(of: str, one: str, other: str) -> Iterator[dict[str, str]]:
    swap = {one: other, other: one}
    for row in table(Path("cvs.csv")):
        yield {**row, of: swap.get(row[of], row[of])}


def test_swapped_labels_swap_rows_and_nothing_else() -> None:
    ran(*HIRING, "-m", "python:chance:scores", "-o", "one")
    rows = [*swapped("ethnicity", "Asian", "White")]
    with Path("cvs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    ran(*HIRING, "-m", "python:chance:scores", "-o", "other")
    swap = {"Asian": "White", "White": "Asian"}
    for measure in ("PreferenceOdds", "SelectionRate@20", "ImpactRatio@20"):
        one, other = figures("one", measure), figures("other", measure)
        assert len(one) > 3, measure
        for contrast, value in one.items():
            first, _, second = (swap.get(name, name) for name in contrast.partition(":"))
            turned = other.get(f"{first}:{second}") if second else other[first]
            if turned is None and second:
                back = other[f"{second}:{first}"]
                turned = None if back is None else 1 / back
            assert turned == pytest.approx(value, abs=1e-9), (measure, contrast)


def test_pairs_of_two_groups_are_the_binary_figures() -> None:
    Path("attributes.toml").write_text('[sex]\nprotected = ["female"]\nunprotected = ["male"]\n')
    rows = [
        {**row, "sex": row["gender"] if row["gender"] != "nonbinary" else "male"}
        for row in table(Path("cvs.csv"))
    ]
    with Path("cvs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    plain = ("listwise", "-d", "cvs.csv", "-m", "python:chance:scores", "-a", "sex", *NEUTRAL)
    ran(*plain, "-o", "binary")
    ran(*plain, "--contrast", "pairs", "-o", "pairs")
    binary, pairs = (
        {
            (row["measure"], row["stratum"], row["condition"]): [row[of] for of in ("value", "low", "high")]
            for row in table(Path(of, "metrics.csv"))
            if row["measure"] in ("PreferenceOdds", "ExpRatio", "UtilRatio")
            and row["contrast"] in ("", "female:male")
        }
        for of in ("binary", "pairs")
    )
    assert binary.keys() == pairs.keys() and binary
    for key, values in binary.items():
        for value, other in zip(values, pairs[key], strict=True):
            assert value == other or float(value) == pytest.approx(float(other), rel=1e-12), key


def test_a_share_of_wrong_grades_is_told_of_every_contrast() -> None:
    ran(*HIRING, "-m", "fake:biased", "--label-error", "0.05", "-o", "run")
    findings = kept("results", "run")["findings"]
    assert len(findings) == 6 and all(of["odds_of_label_error"]["all"] > 0 for of in findings.values())
