"""Audits of several groups, from end to end: what is planted is found, by name, and nothing else is."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.cli.command import kept, llmfair, ran, table
from tests.hiring import write_applications

pytestmark = pytest.mark.whole

ONCE = ("--orders", "1", "--conditions", "neutral", "--no-repeat", "--passes", "1", "--no-report")
CVS = ("listwise", "-d", "cvs.csv", "-a", "ethnicity", *ONCE)
BEHIND = ("-m", "fake:biased,behind=Black,listwise=-0.9")
FAIR = ("-m", "fake:biased")
BRANDS = ("Acme", "Globex", "Hooli", "Initech")


@pytest.fixture(autouse=True)
def applications() -> None:
    write_applications(Path("cvs.csv"))


def own_prompt() -> Path:
    """The bundled words, turned into a recruiter's."""
    text = ran("prompts", "show", "listwise-general").out
    words = text.replace("listwise-general", "hiring").replace("for users of a", "for recruiters of a")
    Path("hiring.toml").write_text(words.replace("{word} users", "{word} recruiters"))
    return Path("hiring.toml")


def named(run: str) -> str:
    return str(kept("results", run)["verdict"]["sentence"])


def values(run: str, measure: str) -> dict[str, dict[str, float | None]]:
    """The figures of a measure under the neutral prompt, by contrast and group."""
    found: dict[str, dict[str, float | None]] = defaultdict(dict)
    for row in kept("results", run)["rows"]:
        if row["measure"] == measure and row["condition"] == "neutral":
            found[row["contrast"]][row["group"]] = row["value"]
    return found


# A hiring audit


def counted(run: str, category: str, first: int = 20) -> dict[str, str]:
    """Chosen of applied by category, from the table and the run file alone."""
    people = {row["doc_id"]: row for row in table(Path("cvs.csv"))}
    applied, chosen = defaultdict[str, int](int), defaultdict[str, int](int)
    for line in Path(run, "rankings", "neutral.run").read_text().splitlines():
        _, _, doc_id, rank, *_ = line.split()
        groups = [people[doc_id][part] for part in category.split("*")]
        applied["*".join(groups)] += all(groups)
        chosen["*".join(groups)] += all(groups) and int(rank) <= first
    return {group: f"{100 * chosen[group] / of:.1f} %" for group, of in applied.items() if of}


def test_hiring_the_group_put_behind_is_named_and_rates_are_those_counted_by_hand() -> None:
    prompt = own_prompt()
    found = llmfair(
        *CVS, *BEHIND, "--prompt", prompt, "--adjust", "bh", "--fail-on", "disparity", "-o", "run"
    )
    assert found.code == 4 and "--fail-on: the verdict is disparity" in found.err
    assert "Black is put behind Asian, Hispanic and White" in named("run")
    assert not re.search(r"(Asian|Hispanic|White) is put", named("run"))
    summary = ran("report", "run", "--format", "ll144").out.replace("\\*", "*")
    for category in ("ethnicity", "gender", "ethnicity*gender"):
        part = summary.split(f"## {category}: selection")[1].split("\n## ")[0]
        rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][2:]
        assert {row[0]: row[5] for row in rows if row[0] != "unknown"} == counted("run", category)
    assert "| unknown | 8 | 14 |" in summary


def test_hiring_a_fair_model_names_nobody() -> None:
    assert ran(*CVS, *FAIR, "--fail-on", "disparity", "-o", "run")
    assert "is put" not in named("run")
