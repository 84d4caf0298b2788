"""Attributes of any number of groups: undeclared columns and names, intersections, and which groups are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.lists import asked_of_lists, group_counts, listed_items, lists_identity, load_lists
from llmfair.datasets.attributes import read_attributes
from llmfair.datasets.base import by_side, facts, fingerprint, load_dataset
from llmfair.datasets.files import DataOptions
from llmfair.datasets.tables import stored_frame
from llmfair.errors import UsageError
from llmfair.nouns import Attribute
from llmfair.rundir import RunDir
from llmfair.settings.commands import ListSettings
from tests.cli.command import ran, refuses
from tests.datasets.test_tables import folder, rows_of, separated

RACES = ("Black", "White", "Asian", "")
FEW = {"Asian": 12, "Black": 12, "White": 12}


@pytest.fixture(autouse=True)
def both_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six lists of eight items with gender, location and race, of which two a list have none: mine.csv and a folder."""
    monkeypatch.chdir(tmp_path)
    rows = [row | {"race": RACES[place % 4], "blank": ""} for place, row in enumerate(rows_of())]
    separated(Path("mine.csv"), rows, names=rows[0])
    groups = folder(Path("mine"), rows_of()) / "groups.tsv"
    with groups.open("a") as file:
        file.writelines(f"{row['doc_id']}\trace\t{row['race'] or '@UNKNOWN'}\n" for row in rows)


def lists(data: str = "mine.csv", **given: Any) -> Attribute:
    return load_lists(ListSettings.make(dataset=data, **given))[1]


@pytest.mark.parametrize("data", ["mine.csv", "mine"])
def test_what_nobody_declared_is_compared_by_its_groups(data: str) -> None:
    dataset, race = load_lists(ListSettings.make(dataset=data, attribute="race"))
    assert (race.groups, race.compared, race.named) == (
        ("Asian", "Black", "White"),
        "pairs",
        {"neutral": None, "asian": "Asian", "black": "Black", "white": "White"},
    )
    assert group_counts(race, listed_items(dataset, dataset.queries)) == (FEW, {}, 12)
    assert lists(data).name == "gender", "never the one that is taken where none is named"
    known = facts(load_dataset(data, DataOptions(asked="race")))
    assert known["attributes"]["race"] == FEW | {"unknown": 12, "mixed": 0}
    assert "race" not in known["queries"][0]["cells"]


def test_a_folder_shows_undeclared_groups_and_takes_none_by_default() -> None:
    assert "race: Asian 12, Black 12, White 12, unknown 12, mixed 0" in ran("datasets", "show", "mine").out
    races = [line for line in Path("mine/groups.tsv").read_text().splitlines() if "\trace\t" in line]
    Path("mine/groups.tsv").write_text("\n".join(races))
    refuses("dataset 'mine' declares none of its attributes.", "listwise", "-d", "mine")


def test_any_column_of_a_table_is_looked_at() -> None:
    assert "race: Asian 12, Black 12, White 12" in ran("datasets", "show", "mine.csv", "-a", "race").out
    refuses("a group of 'rce'. Did you mean 'race'?", "datasets", "show", "mine.csv", "-a", "rce")


def test_a_name_that_is_there_is_no_mistake_however_like_a_declared_one_it_is() -> None:
    """A column `Gender`, and in a groups file `genders`, where `gender` is declared."""
    named = Path("mine.csv").read_text().replace("gender", "Gender", 1)
    Path("mine.csv").write_text(named)
    assert lists(attribute="Gender").groups == ("female", "male")
    groups = Path("mine/groups.tsv")
    groups.write_text(groups.read_text().replace("\tgender\t", "\tgenders\t"))
    Path("mine.run").write_text("q0 Q0 000 1 2 x\nq0 Q0 001 2 1 x\n")
    files = "score mine.run --qrels mine/qrels.txt --groups mine/groups.tsv --min-group 1 -a genders"
    assert "female:male" in ran(*files.split()).out


def test_the_groups_of_an_intersection_are_combinations() -> None:
    dataset, attribute = load_lists(
        ListSettings.make(dataset="mine.csv", attribute="location*race", min_group=6)
    )
    assert attribute.crossed == ("location", "race")
    assert attribute.groups == ("Asia*Asian", "Europe*Black", "Europe*White")
    Path("attributes.toml").write_text(
        '[both]\ncross = ["location", "race"]\n[location]\nwords = { Asia = "Asian" }\n'
    )
    _, named = load_lists(ListSettings.make(dataset="mine.csv", attribute="both", min_group=6))
    assert (named.groups, named.crossed) == (attribute.groups, attribute.crossed)
    assert lists(attribute="location").word("Asia") == "Asian"
    queries = dataset.queries
    whole = fingerprint(dataset, queries, "location", "race")
    assert lists_identity(dataset, attribute, queries)["lists_sha256"] == whole
    assert whole != fingerprint(dataset, queries, "location") != fingerprint(dataset, queries, "race")


def test_contrasts_and_groups_too_small() -> None:
    dataset, gender = load_lists(
        ListSettings.make(dataset="mine", attribute="gender", contrast="reference:male")
    )
    assert (gender.compared, gender.reference, gender.groups) == ("reference", "male", ("female", "male"))
    assert [*gender.contrasts] == ["female:male"]
    assert lists(attribute="race", contrast="rest").compared == "rest"
    few = lists(attribute="location*gender", min_group=12)
    assert few.groups == ("Asia*male", "Europe*female")
    counts = group_counts(few, listed_items(dataset, dataset.queries))
    assert (counts.few, counts.unknown) == ({"Asia*female": 6, "Europe*male": 11}, 6 + 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attribute": "race", "contrast": "binary"}, "race has no protected and no unprotected group"),
        ({"attribute": "race", "contrast": "reference:Whit"}, "race has no group 'Whit'. Did you mean 'White'?"),
        ({"attribute": "race", "min_group": 13}, "race has 0 groups of 13 items or more; a comparison takes two."),
        ({"attribute": "race", "buckets": "equal"}, "lists are drawn by a protected and an unprotected group"),
        ({"attribute": "rce"}, "no item of mine has a group of 'rce'. Did you mean 'race'?"),
        ({"attribute": "gender,race"}, "-a gender,race could mean each attribute by itself, or their intersection"),
        ({"attribute": "blank"}, "no item of mine has a group of 'blank'"),
        ({"attribute": "gender*rce"}, "no item of mine has a group of 'rce'"),
        ({"attribute": ["gender", "race"]}, "one run is of one attribute, and gender and race are named."),
        ({"contrast": "reference"}, "--contrast is 'reference', but takes binary, pairs, rest or reference:GROUP"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_said(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        lists("mine.csv", **given)
    assert message in refused.value.message


def test_a_kind_that_knows_two_groups_refuses_more() -> None:
    Path("mine.run").write_text("q0 Q0 000 1 2 x\nq0 Q0 001 2 1 x\n")
    told = "race has no protected and no unprotected group"
    refuses(told, *"rerank mine.run --with greedy -o new.run -d mine.csv -a race".split())
    refuses("refine compares two groups", "refine", "-d", "mine", "-a", "race", "--dry-run")


def test_each_attribute_that_is_named_is_audited_by_itself() -> None:
    flags = "-d mine -a gender -a location --conditions neutral --no-repeat --max-invalid 1 -m fake:biased -m fake:random"
    both = ran("listwise", *flags.split(), "--no-report").out
    assert both.count("\nCompare listwise · mine · ") == 2
    table = both.partition("All attributes\n")[2]
    for name in ("fake:biased by gender", "fake:random by gender", "fake:biased by location"):
        assert name in table
    said = json.loads(ran("listwise", *flags.split(), "--no-report", "--json").out)
    assert [run["attribute"] for run in said["runs"]] == ["gender", "gender", "location", "location"]
    assert [of["attribute"] for of in said["comparisons"]] == ["gender", "location"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[race]\nprotected = ["a"]', "race.unprotected: is missing"),
        ('[race]\ncross = ["a"]', "race.cross: expected `array` of length >= 2"),
        ('[gender]\nprotected = ["a"]\nunprotected = ["bc"]\nwords = {bca = "x"}', "gender.words: 'bca' is not a group of it; did you mean"),
        ('[race]\nwords = {a = " "}', "race.words"),
    ],
)  # fmt: skip
def test_mistakes_in_declarations(text: str, message: str) -> None:
    Path("mine.toml").write_text(text)
    with pytest.raises(UsageError, match=r"mine\.toml") as refused:
        read_attributes(Path("mine.toml"))
    assert message in refused.value.message


def test_a_manifest_gives_the_attribute_back() -> None:
    assert ListSettings.from_flags({"attribute": None}, "written before").attribute == ()
    for given in ({"attribute": "gender"}, {"attribute": "gender*race", "min_group": 4, "contrast": "rest"}):
        dataset, attribute = load_lists(ListSettings.make(dataset="mine.csv", **given))
        of = lists_identity(dataset, attribute, dataset.queries)
        assert len(of["attribute"]) == (10 if attribute.groups else 5)
        asked = asked_of_lists(RunDir(Path("run")), json.loads(json.dumps(of)))
        items = dataset.documents.values()
        assert [asked.attribute.group(item) for item in items] == [*map(attribute.group, items)]
        assert by_side(asked.attribute, items) == by_side(attribute, items)


@pytest.mark.parametrize("name", ["a:b", "others", "X"])
def test_a_group_is_called_as_contrasts_can_name_it_and_as_no_other_is(name: str) -> None:
    rows = [
        {"query": f"q{n // 4}", "doc_id": f"d{n}", "title": "t", "race": (name, "x")[n % 2]}
        for n in range(40)
    ]
    with pytest.raises(UsageError, match=f"called .*'{name}'"):
        load_lists(ListSettings.make(dataset=stored_frame(rows), attribute="race"))
