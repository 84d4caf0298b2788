"""A folder of one's own: what is read from it, and how each mistake is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import ir_datasets
import pytest

from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.datasets.attributes import read_attributes
from llmfair.datasets.base import attribute_of, cells, facts, fingerprint, load_dataset
from llmfair.datasets.files import DataOptions, Folder
from llmfair.errors import UsageError
from llmfair.nouns import Side
from tests.cli.command import llmfair, ran, refuses
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
        ("gender = 1", "gender: expected `object`, got `int`"),
        ('[gender]\nprotected = "female"\nunprotected = ["male"]', "gender.protected: expected `array`, got `str`"),
        ('[gender]\nprotected = ["female"]\nunprotected = ["male"]\nwords = {protected = "x"}', "gender.words.unprotected: is missing"),
        ('[gender]\nprotected = ["a"]\nunprotected = ["a"]\nwords = {protected = "x", unprotected = "y"}', "named twice"),
        (GENDER + "background = 1", "gender.background: expected `object | array`, got `int`"),
        (GENDER + "background = { female = 1, mail = 1 }", "'mail' is not a group of it; did you mean 'male'?"),
        (GENDER + "background = { female = 1, male = 0 }", "gender.background[...]: expected `float` > 0.0"),
        (GENDER + "background = { female = 0.5, male = true }", "gender.background[...]: expected `float`, got `bool`"),
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
    design = make_design(ListwiseSettings.make(dataset=str(folder)))
    assert [condition.name for condition in design.conditions] == ["neutral", "repeat"]
    with pytest.raises(UsageError, match="has no prompt 'female'") as caught:
        make_design(ListwiseSettings.make(dataset=str(folder), conditions="female"))
    assert caught.value.hint == "--conditions takes neutral"


@pytest.mark.parametrize(
    ("protected", "unprotected", "words"),
    [
        (["a"], ["b"], ["a", "b"]),
        (["a"], ["*"], ["a", "non-a"]),
        (["a", "b"], ["*"], ["a or b", "other"]),
        (["*"], ["a", "b", "c"], ["other", "a, b or c"]),
        (["a", "b", "c", "d"], ["e"], ["a, b, …", "e"]),
    ],
)
def test_sides_without_words_are_called_by_their_groups(
    tmp_path: Path, protected: list[str], unprotected: list[str], words: list[str]
) -> None:
    path = tmp_path / "attributes.toml"
    path.write_text(f"[a]\nprotected = {json.dumps(protected)}\nunprotected = {json.dumps(unprotected)}\n")
    attribute = read_attributes(path)["a"]
    assert [attribute.words[side] for side in Side] == words


# Runs as ranx keeps them


SCORES = {
    f"q{query}": {f"q{query}{sex}{item}": 1 / (3 + item) + (sex == "m") / 7 for item in range(4) for sex in "fm"}
    for query in range(6)
}  # fmt: skip


def written(name: str) -> Path:
    path = Path(name)
    rows = [(query, doc, score) for query, scores in SCORES.items() for doc, score in scores.items()]
    text = {
        ".json": json.dumps(SCORES),
        ".csv": "q_id,doc_id,score\n" + "".join(f"{query},{doc},{score!r}\n" for query, doc, score in rows),
        ".run": "".join(f"{query} Q0 {doc} {place} {score!r} my\n" for place, (query, doc, score) in enumerate(rows, 1)),
    }[Path(name.removesuffix(".gz")).suffix]  # fmt: skip
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.fixture
def data() -> Path:
    return write_folder(Path("data"), balanced(6, 4, 4))


@pytest.mark.parametrize("name", ["my.json", "my.csv", "my.csv.gz", "my.json.gz"])
def test_scores_read_the_same_in_every_form(name: str, data: Path) -> None:
    def measured(path: Path) -> str:
        return ran("score", str(path), "-d", "data", "--json").out.replace(path.name, "my.run")

    assert measured(written(name)) == measured(written("my.run"))
    ran("rerank", name, "--with", "fair-star", "-d", "data", "-o", "new.run")
    ran("rerank", "my.run", "--with", "fair-star", "-d", "data", "-o", "same.run")
    assert Path("new.run").read_text() == Path("same.run").read_text()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("my.json", '{"q1": {"d1": NaN}}', "my.json: [...][...]: expected `float`"),
        ("my.json", '{"q 1": {"d1": 1}}', "is empty or holds white space"),
        ("my.json", '{"all": {"d1": 1}}', "my.json: query_id: 'all' stands for all queries"),
        ("my.csv", "q_id,doc_id\nq1,d1\n", "my.csv:2: score: there is no such column (q_id, doc_id)"),
        ("my.csv", "q_id,doc_id,score\nq1,d1,1\nq1,d1,2\n", "my.csv:3: doc_id: 'd1' was already ranked"),
        ("my.csv", "q_id,doc_id,score\nq1,d1,inf\n", "my.csv:2: score: 'inf' is not a finite number"),
        ("my.csv", "q_id,doc_id,score\nq1,,1\n", "my.csv:2: doc_id: '' is no id"),
    ],
)  # fmt: skip
def test_a_slip_has_its_place(name: str, text: str, message: str, data: Path) -> None:
    Path(name).write_text(text)
    refuses(message, "score", name, "-d", "data")


def test_what_rerank_writes_is_called_a_run(data: Path) -> None:
    written("my.json"), written("other.csv.gz")
    refuses(
        "what is written are TREC's six columns",
        *"rerank my.json --with fair-star -d data -o new.json".split(),
    )
    ran("rerank", "my.json", "other.csv.gz", "--with", "fair-star", "-d", "data", "-o", "new")
    assert sorted(path.name for path in Path("new").iterdir()) == ["my.run", "other.run"]
    ran("score", "new/my.run", "new/other.run", "-d", "data")


# Collections of ir_datasets: what they say, with groups and lists from files, or lists from BM25


NAME = "small/test"


@pytest.fixture
def collection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A real one of files, known by its name in this process."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    topics = ("steam engines", "iron bridges", "glass lenses", "paper mills", "clock towers", "rope walks")
    write(
        tmp_path / "docs.tsv",
        (f"d{i}\t{topics[i % 6]} and note {i} of {topics[(i + 1) % 6]}" for i in range(60)),
    )
    write(tmp_path / "queries.tsv", (f"q{i}\t{topic}" for i, topic in enumerate(topics)))
    write(tmp_path / "qrels.txt", (f"q{i % 6} 0 d{i} {int(i < 30)}" for i in range(60)))
    write(tmp_path / "groups.tsv", (f"d{i}\tgender\t{('female', 'male')[i // 6 % 2]}" for i in range(60)))
    write(tmp_path / "lists.run", (f"q{i % 6} Q0 d{i} {i} {60 - i} x" for i in range(60)))
    made = ir_datasets.create_dataset(
        docs_tsv=str(tmp_path / "docs.tsv"), queries_tsv=str(tmp_path / "queries.tsv"), qrels_trec=str(tmp_path / "qrels.txt")
    )  # fmt: skip
    known = ir_datasets.load
    monkeypatch.setattr(ir_datasets, "load", lambda name: made if name == NAME else known(name))
    monkeypatch.chdir(tmp_path)


def test_lists_are_those_of_a_run(collection: None) -> None:
    dataset = load_dataset(f"irds:{NAME}", DataOptions(groups="groups.tsv", run="lists.run"))
    first = dataset.candidates(dataset.queries[0])
    assert len(dataset.queries) == 6 and first.doc_ids[:3] == ("d0", "d6", "d12")
    assert first.relevance["d0"] == 1 and first.relevance["d54"] == 0
    assert first.documents[1].groups == {"gender": ("male",)} and "steam engines" in first.documents[0].title


@pytest.mark.whole
def test_without_a_run_bm25_finds_them(collection: None) -> None:
    shown = ran(
        "listwise",
        "-d",
        f"irds:{NAME}",
        *"--groups groups.tsv -m fake:biased,malformed=0 -q --no-report -o run --orders 1".split(),
    )
    assert "irds:small/test" in shown.out
    lists = [json.loads(line) for line in Path("run/candidates.jsonl").read_text().splitlines()]
    assert len(lists) == 6 and all(len(one["doc_ids"]) >= 20 for one in lists)
    assert llmfair("runs", "check", "run").code == 0


def test_what_is_lacking_is_named(collection: None) -> None:
    data = ("listwise", "-d", f"irds:{NAME}")
    refuses("irds:small/test says nothing of groups.", *data)
    refuses("ir_datasets has no 'none/such'", "listwise", "-d", "irds:none/such", "--groups", "groups.tsv")
    refuses("none.tsv: cannot be read", *data, "--groups", "none.tsv")
    write(Path("bad.tsv"), ["d1\tgender\tfemal"])
    refuses("bad.tsv:1: group: 'femal' is not a group of gender", *data, "--groups", "bad.tsv")
    write(Path("bad.run"), ["q0 Q0 d0 1 2 x", "q0 Q0 gone 2 1 x"])
    refuses(
        "bad.run: document 'gone' is not in irds:small/test",
        *data,
        *"--groups groups.tsv --run bad.run".split(),
    )
    write(Path("other.run"), ["q9 Q0 d0 1 2 x"])
    refuses("other.run ranks none of the queries", *data, "--groups", "groups.tsv", "--run", "other.run")
    refuses(
        "--run is said of collections of ir_datasets, and sample is none", "listwise", "--run", "lists.run"
    )


def test_a_collection_too_large_to_be_indexed_needs_lists(
    collection: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmfair.datasets.irds.MOST_INDEXED", 10)
    with pytest.raises(UsageError, match="has 60 documents, which are not indexed here"):
        _ = load_dataset(f"irds:{NAME}", DataOptions(groups="groups.tsv")).queries
