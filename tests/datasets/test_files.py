"""Data of one's own and the bundled samples: what is read from them, and how each mistake is named."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import ir_datasets
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import llmfair as api
from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.datasets.answers import load_answers
from llmfair.datasets.attributes import data_folder, read_attributes
from llmfair.datasets.base import attribute_of, cells, facts, fingerprint, load_dataset
from llmfair.datasets.files import DataOptions, read_folder
from llmfair.datasets.judgements import read_any_run
from llmfair.datasets.lamp import read_retrieval, read_useful
from llmfair.errors import UsageError
from llmfair.nouns import Side
from tests.cli.command import llmfair, ran, refuses
from tests.folders import balanced, write, write_folder
from tests.lamp import write_lamp
from tests.shared import realdata

GENDER = (
    '[gender]\nprotected = ["female"]\nunprotected = ["male"]\nwords = {protected = "x", unprotected = "y"}\n'
)


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
    dataset = read_folder(folder)
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
    dataset = read_folder(folder)
    attribute = attribute_of(dataset, "era")
    sides = {d: attribute.side(document) for d, document in dataset.documents.items()}
    assert sides["q0f0"] is Side.PROTECTED and sides["q0f1"] is Side.UNPROTECTED
    assert sides["q0m0"] is None and sides["q0m1"] is None and sides["q1f0"] is None
    assert list(attribute.named) == ["neutral", "modern-age", "historical"]
    mixed = attribute_of(dataset, "era", "unprotected")
    assert mixed.side(dataset.documents["q0m1"]) is Side.UNPROTECTED
    assert facts(dataset)["attributes"]["era"] == {
        "protected": 1, "unprotected": 1, "unknown": 4, "mixed": 1, "other": 1,
    }  # fmt: skip


def test_groups_of_one_s_own_are_told_where_to_be_declared(folder: Path) -> None:
    lines = (folder / "groups.tsv").read_text().replace("\tgender\t", "\tgenders\t").splitlines()
    write(folder / "groups.tsv", [*lines, "q0f0\tage\told"])
    attributes = folder / "attributes.toml"
    with pytest.raises(UsageError, match=r"groups\.tsv:1: attribute: 'genders' is not declared") as caught:
        read_folder(folder)
    assert f"declare [genders] in {attributes}: " in caught.value.hint
    assert [of.name for of in read_folder(folder, wanted=["genders"]).attributes] == ["age", "genders"]
    attributes.write_text(
        GENDER.replace("gender", "genders") + GENDER.replace("gender", "age").replace("female", "old")
    )
    assert [attribute.name for attribute in read_folder(folder).attributes] == ["genders", "age"]


def test_a_query_without_a_judged_irrelevant_document_has_no_list(folder: Path) -> None:
    write(folder / "qrels.txt", ["q0 0 q0f0 1", "q0 0 q0m0 2", "q1 0 q1f0 0", "q1 0 q1m0 1"])
    with pytest.raises(UsageError, match="query 'q0' has no candidate list"):
        _ = read_folder(folder).has_lists


def test_what_is_not_there_is_named(folder: Path) -> None:
    dataset = read_folder(folder)
    for call, says in (
        (lambda: load_dataset("sampel"), "Did you mean 'sample'"),
        (lambda: attribute_of(dataset, "gendr"), "Did you mean 'gender'"),
        (lambda: write(folder / "groups.tsv", ["q0m0\tgender\tmale"]), ""),
        (
            lambda: attribute_of(read_folder(folder), "gender"),
            "no document is in the protected group of gender",
        ),
        (lambda: (folder / "groups.tsv").unlink(), ""),
        (lambda: load_dataset(str(folder)), r"missing: groups\.tsv"),
    ):
        with pytest.raises(UsageError, match=says) if says else nullcontext():
            call()


def test_backgrounds_come_one_for_each_way_of_naming_the_groups(folder: Path) -> None:
    (gender,) = read_folder(folder).attributes
    assert gender.backgrounds == ({"female": 0.495, "male": 0.495, "nonbinary": 0.01},)
    (folder / "attributes.toml").write_text(
        GENDER.replace('["male"]', '["*"]')
        + ("[[gender.background]]\nfemale = 0.4\nmale = 0.6\n[[gender.background]]\nwoman = 1\n")
    )
    (gender,) = read_folder(folder).attributes
    assert gender.backgrounds == ({"female": 0.4, "male": 0.6}, {"woman": 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gender", "not valid TOML"),
        ('[gender]\nprotected = "female"\nunprotected = ["male"]', "gender.protected: expected `array`, got `str`"),
        ('[gender]\nprotected = ["female"]\nunprotected = ["male"]\nwords = {protected = "x"}', "gender.words.unprotected: is missing"),
        ('[gender]\nprotected = ["a"]\nunprotected = ["a"]\nwords = {protected = "x", unprotected = "y"}', "named twice"),
        (GENDER + "background = 1", "gender.background: expected `object | array`, got `int`"),
        (GENDER + "background = { female = 1, mail = 1 }", "'mail' is not a group of it; did you mean 'male'?"),
        (GENDER + "background = { female = 1, male = 0 }", "gender.background[...]: expected `float` > 0.0"),
        (GENDER + "background = { female = 0.5, male = 0.4 }", "the shares sum to 0.9, not to 1"),
    ],
)  # fmt: skip
def test_mistakes_in_attributes(folder: Path, text: str, message: str) -> None:
    (folder / "attributes.toml").write_text(text)
    with pytest.raises(UsageError, match=r"attributes\.toml") as caught:
        _ = read_folder(folder).queries
    assert message in caught.value.message


def test_the_fingerprint_sees_what_a_model_or_a_measure_sees(folder: Path) -> None:
    before = fingerprint(read_folder(folder))
    write(folder / "qrels.txt", (folder / "qrels.txt").read_text().splitlines())
    assert fingerprint(read_folder(folder)) == before
    for file, old, new in [
        ("docs.jsonl", "Title q0f0", "Another title"),
        ("qrels.txt", "q0 0 q0f0 1", "q0 0 q0f0 2"),
        ("groups.tsv", "q0f0\tgender\tfemale", "q0f0\tgender\tmale"),
        ("queries.tsv", "Topic q0", "Subject q0"),
    ]:
        text = (folder / file).read_text()
        (folder / file).write_text(text.replace(old, new))
        assert fingerprint(read_folder(folder)) != before
        (folder / file).write_text(text)


def test_an_attribute_without_words_has_the_neutral_prompt_alone(folder: Path) -> None:
    (folder / "attributes.toml").write_text('[gender]\nprotected = ["female"]\nunprotected = ["*"]\n')
    (attribute,) = read_folder(folder).attributes
    assert [*attribute.named] == ["neutral"]
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


SCORES = {
    f"q{query}": {f"q{query}{sex}{item}": 1 / (3 + item) + (sex == "m") / 7 for item in range(4) for sex in "fm"}
    for query in range(6)
}  # fmt: skip


@pytest.fixture
def data() -> Path:
    return write_folder(Path("data"), balanced(6, 4, 4))


def test_scores_read_the_same_in_every_form(data: Path) -> None:
    rows = [(query, doc, score) for query, scores in SCORES.items() for doc, score in scores.items()]
    ranked = (f"{query} Q0 {doc} {n} {score!r} my\n" for n, (query, doc, score) in enumerate(rows, 1))
    texts = {
        "my.run": "".join(ranked),
        "my.json": json.dumps(SCORES),
        "my.csv": "q_id,doc_id,score\n" + "".join(f"{query},{doc},{score!r}\n" for query, doc, score in rows),
    }
    for name, text in texts.items():
        Path(name).write_text(text)
        Path(f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        for form in (name, f"{name}.gz"):
            assert read_any_run(Path(form)) == read_any_run(Path("my.run")), form
    rerank = ("rerank", "my.json", "my.csv.gz", "--with", "fair-star", "-d", "data", "-o")
    refuses("what is written are TREC's six columns", *rerank[:2], *rerank[3:], "new.json")
    Path("my.csv.gz").rename("other.csv.gz")
    ran("rerank", "my.json", "other.csv.gz", "--with", "fair-star", "-d", "data", "-o", "new")
    assert sorted(path.name for path in Path("new").iterdir()) == ["my.run", "other.run"]
    assert Path("new/my.run").read_text() == Path("new/other.run").read_text().replace("other+", "my+")


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


def test_a_run_of_other_queries_or_documents_is_refused(data: Path) -> None:
    Path("my.json").write_text(json.dumps(SCORES))
    judged = ("score", "my.json", "--qrels", data / "qrels.txt", "--groups")
    write(Path("groups.tsv"), ["0q0f0\tgender\tfemale", "0q0m0\tgender\tmale"])
    refuses("my.json ranks none of the documents that have a group (here 'q0", *judged, "groups.tsv")
    write(Path("qrels.txt"), ["0q0 0 q0f0 1"])
    others = ("score", "my.json", "--qrels", "qrels.txt", "--groups", data / "groups.tsv")
    refuses("my.json ranks none of the queries of qrels.txt (here 'q0', there '0q0').", *others)


# Collections of ir_datasets: what they say, with groups and lists from files, or lists from BM25


NAME = "small/test"


@pytest.fixture
def collection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A real one of files, known by its name in this process."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    topics = ("steam engines", "iron bridges", "glass lenses", "paper mills", "clock towers", "rope walks")
    texts = (f"{topics[i % 6]} and note {i} of {topics[(i + 1) % 6]}" for i in range(60))
    write(tmp_path / "docs.tsv", (f"d{i}\t{text}" for i, text in enumerate(texts)))
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
    flags = "--groups groups.tsv -m fake:biased,malformed=0 -q --no-report -o run --orders 1"
    shown = ran("listwise", "-d", f"irds:{NAME}", *flags.split())
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
    groups = (*data, "--groups", "groups.tsv", "--run")
    refuses("bad.run: document 'gone' is not in irds:small/test", *groups, "bad.run")
    write(Path("other.run"), ["q9 Q0 d0 1 2 x"])
    refuses("other.run ranks none of the queries", *groups, "other.run")
    refuses("--run is said of collections of ir_datasets, and sample", "listwise", "--run", "lists.run")


def test_a_collection_too_large_to_be_indexed_needs_lists(
    collection: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmfair.datasets.tables.MOST_INDEXED", 10)
    with pytest.raises(UsageError, match="has 60 documents, which are not indexed here"):
        _ = load_dataset(f"irds:{NAME}", DataOptions(groups="groups.tsv")).queries


FILES = ("docs.jsonl", "queries.tsv", "qrels.txt", "groups.tsv", "candidates.run")
ROWS = [
    f"q{q} Q0 q{q}{s}{i} {1 + i + 3 * (s == 'm')} {9 - i} x" for q in range(2) for s in "fm" for i in range(3)
]
# Damaged files: read, or refused in one sentence with file, line and field; no traceback


Read = Callable[[Path], object]


def folder_at(path: Path) -> Path:
    made = write_folder(path, balanced(2, 3, 3))
    write(made / "candidates.run", ROWS)
    return made


@pytest.fixture
def ranked(tmp_path: Path) -> Path:
    return folder_at(tmp_path / "mine")


CASES = [
    ("docs.jsonl", rb'"title"', b'"titel"', ":1: title: is missing"),
    ("docs.jsonl", rb'"Title q0f0"', b'" "', ":1: title: is empty"),
    ("docs.jsonl", rb'"q0f0"', b'"a b"', ":1: doc_id: is empty or holds white space"),
    ("docs.jsonl", rb'"q0f1"', b'"q0f0"', ":2: doc_id: 'q0f0' was already given"),
    ("docs.jsonl", rb"\}", b"", ":1: not JSON: "),
    ("queries.tsv", rb"^q0", b"all", ":1: query_id: 'all' stands for all queries"),
    ("queries.tsv", rb"\nq1", b"\nq0", ":2: query_id: 'q0' was already given"),
    ("queries.tsv", rb"\t.*", b"\t ", ":1: text: is empty"),
    ("qrels.txt", rb"q0f2", b"zz", ":3: doc_id: 'zz' is not in docs.jsonl"),
    ("qrels.txt", rb"^q0", b"q7", ":1: query_id: 'q7' is not in queries.tsv"),
    ("qrels.txt", rb"\Z", b"q0 0 q0f0 5\n", ":13: doc_id: 'q0f0' was judged 1 on line 1 and 5 here"),
    ("groups.tsv", rb"gender", b"gendr", ":1: attribute: 'gendr' is not declared; did you mean 'gender'?"),
    ("groups.tsv", rb"female", b"Femal", ":1: group: 'Femal' is not a group of gender; did you mean"),
    ("groups.tsv", rb"^q0f0", b"zz", ":1: doc_id: 'zz' is not in docs.jsonl"),
    ("candidates.run", rb" 2 ", b" 1 ", ":2: rank: 1 was already given on line 1"),
    ("candidates.run", rb"q0f1", b"q0f0", ":2: doc_id: 'q0f0' was already ranked on line 1"),
    ("candidates.run", rb"\n", b"\xe9\xff\n", ":1: not UTF-8"),
    ("candidates.run", rb"(?s).+", b"", ": is empty"),
    pytest.param("candidates.run", rb"^", b"x" * (17 << 20), ":1: longer than 16 MB", id="longer"),
]


@pytest.mark.parametrize(("file", "old", "new", "place"), CASES)
def test_a_broken_folder_says_where(ranked: Path, file: str, old: bytes, new: bytes, place: str) -> None:
    path = ranked / file
    path.write_bytes(re.sub(old, lambda _: new, path.read_bytes(), count=1))
    with pytest.raises(UsageError) as caught:
        _ = read_folder(ranked).queries
    assert caught.value.message.startswith(f"{path}{place}") and caught.value.hint


def test_what_editors_do_to_files_is_accepted(ranked: Path) -> None:
    before = fingerprint(read_folder(ranked))
    for file in FILES:
        content = (ranked / file).read_bytes().rstrip(b"\n")  # no last newline
        (ranked / file).write_bytes(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n\r\n"))
    assert fingerprint(read_folder(ranked)) == before


LISTS = {"q0": ["a", "b"]}
TABLE = "query_id,doc_id,title,gender,relevance\n" + "".join(
    f"q0,{number},t,{'fe' * (number % 2)}male,1\n" for number in range(4)
)
QUESTION: Any = {"id": "q", "input": "?", "gold": ["a"], "items": [{"id": 1, "text": "x"}]}
READERS: dict[str, tuple[str, Read]] = {
    "scores.json": (json.dumps({"q": {"d": 1.5, "e": 2}}), read_any_run),
    "scores.csv": ("q_id,doc_id,score\nq,d,1\nq,e,2\n", read_any_run),
    "my.run": ("q Q0 d 1 1 t\nq Q0 e 2 0 t\n", read_any_run),
    "bm25.json": (json.dumps({"q0": [["a", 1], ["b", 2.5]]}), lambda path: read_retrieval(path, LISTS, ["q0"])),
    "labels.tsv": ("qid\tpid\tdelta\nq0\ta\t1\nq0\tb\t0\n", lambda path: read_useful(path, LISTS)),
    "own.jsonl": (json.dumps(QUESTION) + "\n", lambda path: load_answers(str(path)).queries),
    "table.csv": (TABLE, lambda path: load_dataset(str(path)).queries),
    "table.jsonl": (
        '{"query_id": 1, "doc_id": 2, "title": "t", "gender": ["male"]}\n'
        '{"query_id": 1, "doc_id": 3, "title": "t"}\n',
        lambda path: load_dataset(str(path)).queries,
    ),
    "table.parquet": (TABLE, lambda path: load_dataset(str(path)).queries),
}  # fmt: skip
IN_FOLDERS: dict[str, Read] = {
    **dict.fromkeys([f"mine/{name}" for name in FILES], lambda path: read_folder(path.parent).queries),
    **dict.fromkeys(
        [f"lamp/4_user_dev_{side}.json" for side in ("inputs", "outputs")],
        lambda path: load_answers("lamp/4", path.parent).queries,
    ),
}
damage = st.tuples(
    st.floats(0, 1),
    st.integers(0, 30),
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from([b'"', b"NaN", b"{", b"[", b",,\n", b"null", b"1e999", b'"\\ud800"', b"\0", b"\n\n", b"\t"]),
    ),
)  # fmt: skip


def of_parquet(path: Path, table: str) -> bytes:
    """The table as a file of this kind."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow.parquet import write_table

    write_table(pyarrow.Table.from_pylist([*csv.DictReader(table.splitlines())]), path)
    return path.read_bytes()


def harmed(content: bytes, where: float, length: int, new: bytes) -> bytes:
    at = int(where * len(content))
    return content[:at] + new + content[at + length :]


@pytest.mark.parametrize("name", [*READERS, *IN_FOLDERS])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage)
def test_any_damage_reads_or_is_refused(tmp_path: Path, name: str, harm: tuple[float, int, bytes]) -> None:
    folder_at(tmp_path / "mine")
    write_lamp(tmp_path / "lamp", 4)
    path = named = tmp_path / name
    if name in READERS:
        text, read = READERS[name]
        path.write_bytes(of_parquet(path, text) if name.endswith("parquet") else text.encode())
    else:
        read, named = IN_FOLDERS[name], path.parent
    read(path)
    path.write_bytes(harmed(path.read_bytes(), *harm))
    try:
        read(path)
    except UsageError as error:
        assert f"{named}" in error.message and error.hint and "\n" not in error.message


GENDERED = re.compile(
    r"\b(he|she|his|hers?|him|himself|herself|actress|wom[ae]n|m[ae]n|females?|males?|king|queen|prince|princess"
    r"|mother|father|wife|husband|son|daughter|sister|brother)\b",
    re.IGNORECASE,
)


def test_eight_topics_of_forty_with_ten_in_every_cell_of_both_attributes() -> None:
    found = facts(load_dataset("sample"))
    assert len(found["queries"]) == 8 and found["documents"] <= 200
    for query in found["queries"]:
        assert query["candidates"] == 40
        for counts in query["cells"].values():
            names = (f"{relevance} {side}" for relevance in ("relevant", "irrelevant") for side in Side)
            assert {name: count for name, count in counts.items() if count} == dict.fromkeys(names, 10)


def test_texts_are_short_and_do_not_give_the_gender_away() -> None:
    documents = load_dataset("sample").documents.values()
    titles = [document.title for document in documents]
    assert len(set(titles)) == len(titles)
    for document in documents:
        assert 3 <= len(document.text.split()) <= 25, document.doc_id
        assert not GENDERED.search(document.text), document.text


def test_gender_and_continent_agree_with_pantheon() -> None:
    """Exceptions stand, with their reason, in the sample's README."""
    path = realdata("pantheon") / "pantheon_bios.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        known = {row["title"]: row for row in map(json.loads, file)}
    readme = (data_folder() / "sample" / "README.md").read_text("utf-8")
    checked = 0
    for document in load_dataset("sample").documents.values():
        person = known.get(document.title)
        if person is None or document.title in readme:
            continue
        checked += 1
        assert document.groups["gender"] == (person["gender"],), document.title
        if person["continent"]:
            (continent,) = document.groups["location"]
            assert (continent == "Europe") == (person["continent"] == "Europe"), document.title
    assert checked > 100


def test_topics_documents_and_groups() -> None:
    sample = load_dataset("refine-sample")
    assert len(sample.queries) == 12 and 650 <= len(sample.documents) <= 750
    assert all(3 <= len(query.text.split()) <= 6 for query in sample.queries)
    assert all(2 <= document.text.count(".") <= 3 for document in sample.documents.values())
    genders = Counter(document.groups.get("gender", ("",))[0] for document in sample.documents.values())
    assert set(genders) == {"female", "male", "nonbinary", ""}
    assert len({document.groups["location"] for document in sample.documents.values()}) == 5
    assert set(sample.qrels) == {query.query_id for query in sample.queries}
    assert all(sum(judged.values()) == 32 for judged in sample.qrels.values())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, api.Result]:
    folder = tmp_path_factory.mktemp("runs")
    return {n: api.audit_refine(attribute=n, output=folder / n, report=False) for n in ("gender", "location")}


@pytest.mark.whole
@pytest.mark.parametrize("attribute", ["gender", "location"])
def test_the_first_page_is_skewed_and_refinement_helps(runs: dict[str, api.Result], attribute: str) -> None:
    run = runs[attribute]
    first = [row.value for row in run.per_query if row.measure == "KL@20" and row.condition == "bm25"]
    assert sum(value is not None and value >= 0.1 for value in first) >= 8

    def value(measure: str, condition: str) -> float:
        found = run[measure, condition].value
        assert found is not None
        return found

    assert value("KL@20", "fair-qr") < value("KL@20", "bm25")
    assert value("AWRF@20", "fair-qr") > value("AWRF@20", "bm25")
    assert value("nDCG@20", "fair-qr") >= value("nDCG@20", "bm25") - 0.1


def test_loops_end_for_several_reasons(runs: dict[str, api.Result]) -> None:
    stops = {name for run in runs.values() for name in run.results["stops"]}
    assert stops >= {"no_decrease", "attained", "max_iterations"}
