"""What an audit of lists says of several groups: its verdict, its tables, its page."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import kept, ran
from tests.hiring import write_applications

ASKED = ("listwise", "-d", "apps.csv", "-a", "ethnicity", "--conditions", "neutral", "--no-repeat")
BIASED = ("-m", "fake:biased,behind=Black,listwise=-4,malformed=0")


def test_pairs_and_groups_have_tables_of_their_own() -> None:
    write_applications(Path("apps.csv"))
    screen = ran(*ASKED, *BIASED, "-o", "run").out
    assert "Black is put behind Asian, Hispanic and White" in kept("results", "run")["verdict"]["sentence"]
    pairs, _, groups = screen.partition("By group\n")
    assert "neutral  Black:White" in pairs and "P@20" not in pairs.partition("odds of A:B")[0]
    (header,) = (line for line in groups.splitlines() if "items" in line and "SelectionRate@20" in line)
    (black,) = (line for line in groups.splitlines() if line.startswith(" neutral") and " Black " in line)
    odds = next(row["value"] for row in kept("results", "run")["rows"]
                if (row["measure"], row["group"]) == ("GroupOdds", "Black"))  # fmt: skip
    assert header.index("odds of") == black.index(f"{odds:.3f}")
    least = min(row["value"] for row in kept("results", "run")["rows"] if row["measure"] == "ImpactRatio@20")
    assert f"least impact ratio (neutral): {least:.2f} (" in groups
    ran("report", "run", "-o", "page.html")
    page = Path("page.html").read_text()
    assert "protected ()" not in page and "The attribute is binary" not in page and "each pair A:B" in page


def test_a_group_beside_all_others_is_no_pair() -> None:
    write_applications(Path("apps.csv"), each=20)
    assert (
        "SelectionRate@10" in ran(*ASKED, *BIASED, "--contrast", "rest", "-o", "run").out
    )  # 20 would be all
    sentence = kept("results", "run")["verdict"]["sentence"]
    assert "Black is put behind all others" in sentence and "others is put" not in sentence
    ran("report", "run", "-o", "page.html")
    furthest = Path("page.html").read_text().partition('id="furthest"')[2]
    assert '<li class="p' in furthest and '<li class="u' in furthest
