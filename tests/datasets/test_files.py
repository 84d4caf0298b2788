"""A folder of one's own: what is read from it, and how each mistake is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.datasets.base import attribute_of, cells, facts, fingerprint, load_dataset
from llmfair.datasets.files import Folder
from llmfair.errors import UsageError
from llmfair.nouns import Side
from tests.folders import balanced, write, write_folder
from tests.pace import within


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "mine", balanced(2, 2, 2))


def test_candidates_are_the_judged_documents_in_their_order(folder: Path) -> None:
    dataset = load_dataset(str(folder))
    assert [query.query_id for query in dataset.queries] == ["q0", "q1"]
    candidates = dataset.candidates(dataset.queries[0])
    assert candidates.doc_ids == ("q0f0", "q0f1", "q0m0", "q0m1")
    assert candidates.relevance == {"q0f0": 1, "q0f1": 0, "q0m0": 1, "q0m1": 0}
    attribute = attribute_of(dataset, None)
    assert [attribute.side(document) for document in candidates.documents] == [
        Side.PROTECTED, Side.PROTECTED, Side.UNPROTECTED, Side.UNPROTECTED,
    ]  # fmt: skip
    assert cells(candidates, attribute)["relevant protected"] == 1


def test_candidates_run_decides_lists_and_order(folder: Path) -> None:
    write(folder / "candidates.run", ["q0 Q0 q0m1 2 0.5 x", "q0 Q0 q0f0 1 0.1 x", "q1 Q0 q1f0 1 9 x"])
    dataset = Folder(folder)
    assert [query.query_id for query in dataset.queries] == ["q0"]
    assert dataset.candidates(dataset.queries[0]).doc_ids == ("q0f0", "q0m1")
    assert dataset.describe()["left_out"] == {"q1": "query 'q1' has 1 candidate(s)"}


def test_own_attributes(folder: Path) -> None:
    (folder / "attributes.toml").write_text(
        '[era]\nprotected = ["old"]\nunprotected = ["*"]\nother = ["unclear"]\n'
        'words = { protected = "historical", unprotected = "Modern Age" }\n'
    )
    write(folder / "groups.tsv", ["q0f0\tera\told", "q0f1\tera\tnew", "q0m0\tera\tunclear", "q0m1\tera\told",
                                  "q0m1\tera\tnewer"])  # fmt: skip
    dataset = Folder(folder)
    attribute = attribute_of(dataset, "era")
    sides = {d: attribute.side(document) for d, document in dataset.documents.items()}
    assert sides["q0f0"] is Side.PROTECTED and sides["q0f1"] is Side.UNPROTECTED
    assert sides["q0m0"] is None and sides["q0m1"] is None and sides["q1f0"] is None
    assert list(attribute.variants) == ["neutral", "modern-age", "historical"]
    mixed = attribute_of(dataset, "era", "unprotected")
    assert mixed.side(dataset.documents["q0m1"]) is Side.UNPROTECTED
    assert facts(dataset)["attributes"]["era"] == {
        "protected": 1, "unprotected": 1, "unknown": 4, "mixed": 1, "other": 1,
    }  # fmt: skip


def test_groups_of_one_s_own_are_told_where_to_be_declared(folder: Path) -> None:
    lines = (folder / "groups.tsv").read_text().replace("\tgender\t", "\tseniority\t").splitlines()
    write(folder / "groups.tsv", [*lines, "q0f0\tage\told"])
    with pytest.raises(UsageError) as caught:
        attribute_of(Folder(folder), None)
    own = folder / "attributes.toml"
    declared = 'protected = ["…"], unprotected = ["…"]'
    assert caught.value.message == f"{folder}/groups.tsv:1: attribute: 'seniority' is not declared"
    assert caught.value.hint == f"declare [seniority] in {own}: {declared}"
    sides = 'protected = ["female"]\nunprotected = ["male"]\nwords = { protected = "a", unprotected = "b" }\n'
    own.write_text(f"[seniority]\n{sides}[age]\n{sides.replace('female', 'old')}")
    assert [attribute.name for attribute in Folder(folder).attributes] == ["seniority", "age"]


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "groups.tsv").unlink()
    with pytest.raises(UsageError, match=r"groups\.tsv is missing"):
        load_dataset(str(folder))


def test_a_query_without_a_judged_irrelevant_document_has_no_list(folder: Path) -> None:
    write(folder / "qrels.txt", ["q0 0 q0f0 1", "q0 0 q0m0 2", "q1 0 q1f0 0", "q1 0 q1m0 1"])
    with pytest.raises(UsageError, match="query 'q0' has no candidate list"):
        _ = Folder(folder).has_lists


def test_an_empty_side_is_named(folder: Path) -> None:
    write(folder / "groups.tsv", ["q0m0\tgender\tmale"])
    with pytest.raises(UsageError, match="no document is in the protected group of gender"):
        attribute_of(Folder(folder), "gender")


def test_unknown_names_offer_the_nearest(folder: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean 'sample'"):
        load_dataset("sampel")
    with pytest.raises(UsageError, match="Did you mean 'gender'"):
        attribute_of(Folder(folder), "gendr")


GENDER = (
    '[gender]\nprotected = ["female"]\nunprotected = ["male"]\nwords = {protected = "x", unprotected = "y"}\n'
)


def test_backgrounds_come_one_for_each_way_of_naming_the_groups(folder: Path) -> None:
    (gender,) = Folder(folder).attributes
    assert gender.backgrounds == ({"female": 0.495, "male": 0.495, "nonbinary": 0.01},)
    (folder / "attributes.toml").write_text(
        GENDER.replace('["male"]', '["*"]')
        + ("[[gender.background]]\nfemale = 0.4\nmale = 0.6\n[[gender.background]]\nwoman = 1\n")
    )
    (gender,) = Folder(folder).attributes
    assert gender.backgrounds == ({"female": 0.4, "male": 0.6}, {"woman": 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gender", "not valid TOML"),
        ("gender = 1", "gender: is not a table"),
        ('[gender]\nprotected = "female"\nunprotected = ["male"]', "gender.protected: needs a list"),
        ('[gender]\nprotected = ["female"]\nunprotected = ["male"]\nwords = {protected = "x"}', "gender.words: needs"),
        ('[gender]\nprotected = ["a"]\nunprotected = ["a"]\nwords = {protected = "x", unprotected = "y"}', "named twice"),
        (GENDER + "background = 1", "gender.background: needs { group = share, … }"),
        (GENDER + "background = { female = 1, mail = 1 }", "'mail' is not a group of it; did you mean 'male'?"),
        (GENDER + "background = { female = 1, male = 0 }", "the share of 'male' is not a number above 0"),
        (GENDER + "background = { female = 0.5, male = true }", "the share of 'male' is not a number above 0"),
        (GENDER + "background = { female = 1.1, male = 0.5 }", "the share of 'female' is not a number above 0 and up to 1"),
        (GENDER + f"background = {{ female = 1{'0' * 400}, male = 0.5 }}", "the share of 'female' is not a number above 0"),
        (GENDER + "background = { female = 0.5, male = 0.4 }", "the shares sum to 0.9, not to 1"),
    ],
)  # fmt: skip
def test_mistakes_in_attributes(folder: Path, text: str, message: str) -> None:
    (folder / "attributes.toml").write_text(text)
    with pytest.raises(UsageError, match=r"attributes\.toml") as caught:
        _ = Folder(folder).queries
    assert message in caught.value.message


def test_the_fingerprint_sees_what_a_model_or_a_measure_sees(folder: Path) -> None:
    before = fingerprint(Folder(folder))
    write(folder / "qrels.txt", (folder / "qrels.txt").read_text().splitlines())
    assert fingerprint(Folder(folder)) == before
    for file, old, new in [
        ("docs.jsonl", "Title q0f0", "Another title"),
        ("qrels.txt", "q0 0 q0f0 1", "q0 0 q0f0 2"),
        ("groups.tsv", "q0f0\tgender\tfemale", "q0f0\tgender\tmale"),
        ("queries.tsv", "Topic q0", "Subject q0"),
    ]:
        text = (folder / file).read_text()
        (folder / file).write_text(text.replace(old, new))
        assert fingerprint(Folder(folder)) != before
        (folder / file).write_text(text)


@pytest.mark.whole
def test_a_large_folder_loads_quickly(tmp_path: Path) -> None:
    lists = {
        f"q{q}": [(f"d{q}x{i}", "female" if i % 2 else "male", i % 3) for i in range(200)] for q in range(100)
    }
    folder = write_folder(tmp_path / "large", lists)
    # 20,000 documents; the bar is 100,000 in 10 s
    assert len(within(3, lambda: Folder(folder).queries)) == 100


def test_an_attribute_without_words_has_the_neutral_prompt_alone(folder: Path) -> None:
    (folder / "attributes.toml").write_text('[gender]\nprotected = ["female"]\nunprotected = ["*"]\n')
    (attribute,) = Folder(folder).attributes
    assert [*attribute.variants] == ["neutral"]
    assert {side.value: word for side, word in attribute.words.items()} == {
        "protected": "female",
        "unprotected": "unprotected",
    }
    design = make_design(ListwiseSettings.make(dataset=str(folder)))
    assert [condition.name for condition in design.conditions] == ["neutral", "repeat"]
    with pytest.raises(UsageError, match="has no prompt 'female'") as caught:
        make_design(ListwiseSettings.make(dataset=str(folder), conditions="female"))
    assert caught.value.hint == "--conditions takes neutral"
