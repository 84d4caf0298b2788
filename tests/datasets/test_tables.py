"""Tables as datasets: every form of the same data gives the same bytes, and every slip is named by line and column."""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib.util
import io
import json
import lzma
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llmfair
from llmfair import api
from llmfair.audits.lists import given_of
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.datasets.base import fingerprint, load_dataset
from llmfair.datasets.files import DataOptions
from llmfair.errors import MissingExtra, UsageError
from llmfair.io.tables import rows_of as rows_read
from tests.cli.command import llmfair as command
from tests.cli.command import ran, refuses
from tests.folders import write

Rows = list[dict[str, Any]]
COLUMNS = ("query_id", "query", "doc_id", "title", "text", "relevance", "gender", "location")
without_pyarrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed"
)


def rows_of(queries: int = 6, items: int = 8) -> Rows:
    """Ids that look like numbers, quotes, commas, semicolons, an unjudged item, one of no and one of two groups."""
    rows = []
    for query in range(queries):
        for item in range(items):
            gender = ["female", "male"][item % 2]
            rows.append(
                {
                    "query_id": f"q{query}",
                    "query": f'Topic "{query}", with; signs',
                    "doc_id": f"0{query}{item}",
                    "title": f"Title, {query} “{item}”",
                    "text": f"A text; of item {item}",
                    "relevance": None if item == 7 else int(item < 4),
                    "gender": None if item == 6 else "female|male" if item == 5 and query == 0 else gender,
                    "location": ["Europe", "Asia"][item // 2 % 2],
                }
            )
    return rows


def truths(row: dict[str, Any]) -> dict[str, Any]:
    relevance = row["relevance"]
    return {**row, "relevance": relevance if relevance is None else bool(relevance)}


def separated(path: Path, rows: Rows, delimiter: str = ",", names: Iterable[str] = COLUMNS) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(names)
        writer.writerows(["" if cell is None else cell for cell in row.values()] for row in rows)
    return path


def folder(path: Path, rows: Rows) -> Path:
    path.mkdir()
    documents = {row["doc_id"]: row for row in rows}
    queries = {row["query_id"]: row["query"] for row in rows}
    shown = ("doc_id", "title", "text")
    write(path / "docs.jsonl", (json.dumps({key: row[key] for key in shown}) for row in documents.values()))
    write(path / "queries.tsv", (f"{query_id}\t{text}" for query_id, text in queries.items()))
    judged = [row for row in rows if row["relevance"] is not None]
    write(path / "qrels.txt", (f"{row['query_id']} 0 {row['doc_id']} {row['relevance']}" for row in judged))
    groups = [
        (row["doc_id"], name, group)
        for row in documents.values()
        for name in ("gender", "location")
        for group in (row[name] or "").split("|")
        if group
    ]
    write(path / "groups.tsv", map("\t".join, groups))
    run = (f"{row['query_id']} Q0 {row['doc_id']} {place} 1 x" for place, row in enumerate(rows, start=1))
    write(path / "candidates.run", run)
    return path


def parquet(path: Path, rows: Rows) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def lists_of_groups(rows: Rows) -> Rows:
    return [row | {"gender": row["gender"].split("|") if row["gender"] else []} for row in rows]


def packed(path: Path, rows: Rows, by: Any = gzip) -> Path:
    plain = separated(path.with_suffix(""), rows)
    path.write_bytes(by.compress(plain.read_bytes()))
    return path


def encoded(rows: Rows, encoding: str, delimiter: str = ",", first: str = "") -> Path:
    """As Excel saves a table."""
    path = separated(Path("frame.csv"), rows, delimiter)
    text = first + path.read_bytes().decode()
    path.write_bytes(text.encode(encoding))
    return path


FORMS: Mapping[str, Callable[[Rows], Any]] = {
    "csv": lambda rows: separated(Path("frame.csv"), rows),
    "csv with semicolons": lambda rows: separated(Path("frame.csv"), rows, ";"),
    "csv with tabs": lambda rows: separated(Path("frame.csv"), rows, "\t"),
    "csv with a mark": lambda rows: encoded(rows, "utf-8-sig"),
    "csv that says what separates": lambda rows: encoded(rows, "utf-8", "|", "sep=|\r\n"),
    "Unicode text of Excel": lambda rows: encoded(rows, "utf-16", "\t"),
    "UTF-16 without a mark": lambda rows: encoded(rows, "utf-16-be"),
    "csv.gz": lambda rows: packed(Path("frame.csv.gz"), rows),
    "csv.bz2": lambda rows: packed(Path("frame.csv.bz2"), rows, bz2),
    "csv.xz": lambda rows: packed(Path("frame.csv.xz"), rows, lzma),
    "dicts": lambda rows: rows,
    "dict of columns": lambda rows: {name: [row[name] for row in rows] for name in COLUMNS},
    "pyarrow": lambda rows: __import__("pyarrow").Table.from_pylist(rows),
    "tsv": lambda rows: separated(Path("frame.tsv"), rows, "\t"),
    "jsonl": lambda rows: json_lines(Path("frame.jsonl"), rows),
    "jsonl with true and false": lambda rows: json_lines(Path("frame.jsonl"), [*map(truths, rows)]),
    "jsonl with lists": lambda rows: json_lines(Path("frame.jsonl"), lists_of_groups(rows)),
    "parquet": lambda rows: parquet(Path("frame.parquet"), rows),
    "parquet with lists": lambda rows: parquet(Path("frame.parquet"), lists_of_groups(rows)),
    "pandas": lambda rows: __import__("pandas").DataFrame(rows),
    "pandas, of its own types": lambda rows: __import__("pandas").DataFrame(rows).convert_dtypes().astype({"gender": "category"}),
    "polars": lambda rows: pytest.importorskip("polars").DataFrame(rows),
    "hf": lambda rows: hub(rows),
    "irds": lambda rows: collection(rows),
}  # fmt: skip


def json_lines(path: Path, rows: Rows) -> Path:
    write(path, map(json.dumps, rows))
    return path


def hub(rows: Rows) -> str:
    sys.modules["datasets"] = SimpleNamespace(load_dataset=lambda source, split: rows)  # type: ignore[assignment]
    return "hf:org/frame:test"


def collection(rows: Rows) -> dict[str, Any]:
    """As ir_datasets has one, with groups and lists in files."""
    of = folder(Path("files"), rows)
    documents = {r["doc_id"]: document(**{key: r[key] for key in ("doc_id", "title", "text")}) for r in rows}
    found = SimpleNamespace(
        queries_iter=lambda: [question(query_id, text) for query_id, text in {row["query_id"]: row["query"] for row in rows}.items()],
        qrels_iter=lambda: [SimpleNamespace(**row) for row in rows if row["relevance"] is not None],
        docs_store=lambda: SimpleNamespace(get_many=lambda ids: {one: documents[one] for one in ids if one in documents}),
        docs_iter=lambda: iter(documents.values()),
        docs_count=lambda: len(documents),
    )  # fmt: skip
    sys.modules["ir_datasets"].load = {"frame": found}.__getitem__  # type: ignore[attr-defined]
    lists: dict[str, dict[str, int]] = {}  # scores falling in the order of rows
    for place, row in enumerate(rows):
        lists.setdefault(row["query_id"], {})[row["doc_id"]] = -place
    run = Path("lists.json")
    run.write_text(json.dumps(lists))
    return {"dataset": "irds:frame", "groups": of / "groups.tsv", "run": run}


def document(**fields: str) -> Any:
    return SimpleNamespace(**fields, default_text=lambda: f"{fields['title']} {fields['text']}")


def question(query_id: str, text: str) -> Any:
    return SimpleNamespace(query_id=query_id, text=text, default_text=lambda: text)


def held(data: Any) -> list[Any]:
    """All that an audit sees of data."""
    given = data if isinstance(data, dict) and "dataset" in data else {"dataset": data}
    settings = api.make_settings(ListwiseSettings, given)
    dataset = load_dataset(settings.dataset, given_of(settings))
    lists = [dataset.candidates(query) for query in dataset.queries]
    return [lists, dataset.attributes, dataset.prompt, dataset.has_lists, dataset.describe()]


@pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=without_pyarrow) if "par" in form or "pya" in form else form for form in FORMS],
)
def test_every_form_holds_the_same(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "ir_datasets", SimpleNamespace())
    expected = held(folder(Path("expected"), rows_of()))
    data = FORMS[form](rows_of())
    assert len(expected[0]) == 6 and held(data) == expected
    if not isinstance(data, dict) or "dataset" not in data:
        assert fingerprint(load_dataset(data)) == fingerprint(load_dataset("expected"))


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=8)


@given(
    st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1),
    st.sampled_from(",;\t"),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_cells_are_read_as_they_were_written(
    cells: list[list[str]], separator: str, encoding: str, end: str, quoting: Any
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator=end, quoting=quoting)
    writer.writerows([["a", "b", ""], *cells])
    path = Path("cells.csv")
    path.write_bytes(text.getvalue().encode(encoding))
    lines = accumulate((1 + "".join(row).count("\n") for row in cells), initial=2)
    numbered = zip(lines, cells, strict=False)
    rows = [(line, {"a": a, "b": b}) for line, (a, b, c) in numbered if (a + b + c).strip()]
    assert [*rows_read(path, "")] == rows


def test_columns_of_other_names_and_attributes_of_one_s_own() -> None:
    rows = [
        {"id": row["doc_id"], "q": row["query"], "content": row["text"], "label": row["relevance"], "job": job, "price": 3}
        for row, job in zip(rows_of(), ["nurse", "pilot"] * 24, strict=True)
    ]  # fmt: skip
    path = separated(Path("mine.csv"), rows, names=rows[0])
    Path("attributes.toml").write_text('[occupation]\nprotected = ["nurse"]\nunprotected = ["*"]\n')
    columns = "doc_id=id,query=q,text=content,relevance=label,occupation=job"
    dataset = load_dataset(str(path), DataOptions(columns=columns))
    assert [query.query_id for query in dataset.queries][:2] == ["q1", "q2"]
    (attribute,) = dataset.attributes
    first = dataset.candidates(dataset.queries[0])
    assert attribute.name == "occupation" and first.documents[0].groups == {"occupation": ("nurse",)}
    assert first.documents[0].title == first.documents[0].text == "A text; of item 0"
    Path("attributes.toml").rename("elsewhere.toml")
    same = load_dataset(str(path), DataOptions(columns=columns, attributes="elsewhere.toml"))
    assert fingerprint(same) == fingerprint(dataset)
    flags = f"-d mine.csv --columns {columns} --attributes elsewhere.toml --dry-run"
    shown = ran("listwise", *flags.split()).out
    assert "6 queries × 8" in shown


@pytest.mark.whole
def test_a_run_of_a_frame_is_checked_and_resumed() -> None:
    import pandas

    frame = pandas.DataFrame(rows_of())
    first = llmfair.audit_pairwise(frame, pairs=4, output="run", report=False)
    assert llmfair.audit_pairwise(frame, pairs=4, output="run", report=False).results == first.results
    assert command("runs", "check", "run").code == 0
    with pytest.raises(UsageError, match="title: names two columns"):
        llmfair.audit_listwise(pandas.concat([frame, frame[["title"]]], axis=1))


def test_a_set_of_several_splits_and_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(source: str, split: str | None) -> Any:
        if source == "org/none":
            raise FileNotFoundError("Dataset 'org/none' doesn't exist on the Hub.\nmore")
        return {"train": rows_of(), "test": rows_of()} if source == "org/two" else {"train": rows_of()}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    several = "hf:org/two has several splits.\n  name one: hf:org/two:train, hf:org/two:test"
    refuses(several, "pairwise", "-d", "hf:org/two")
    refuses("hf:org/none: Dataset 'org/none' doesn't exist on the Hub", "pairwise", "-d", "hf:org/none")
    assert len(load_dataset("hf:org/one").queries) == 6
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra) as missing:
        _ = load_dataset("hf:org/one").queries
    assert missing.value.hint == "pip install 'llmfair[hub]'"


def changed(place: int, **cells: Any) -> Rows:
    rows = rows_of()
    rows[place] = rows[place] | cells
    return rows


SLIPS: list[tuple[Rows, str]] = [
    (changed(3, doc_id=""), "mine.csv:5: doc_id: is empty"),
    (changed(3, doc_id="a b"), "mine.csv:5: doc_id: 'a b' holds white space"),
    (changed(0, query_id="all"), "mine.csv:2: query_id: 'all' stands for all queries"),
    (changed(0, query_id="", query=""), "mine.csv:2: query_id: is empty"),
    (changed(1, query="Another"), "mine.csv:3: query: query 'q0' was told otherwise on line 2"),
    (changed(9, doc_id="000", title="x"), "mine.csv:11: doc_id: item '000' was told otherwise on line 2"),
    (changed(1, **{key: rows_of()[0][key] for key in ("doc_id", "title", "text", "gender", "location")}), "mine.csv:3: doc_id: '000' of query 'q0' was already given on line 2"),
    (changed(2, relevance="high"), "mine.csv:4: relevance: 'high' is not an integer"),
    (changed(2, title="", text=""), "mine.csv:4: title: is empty"),
    (changed(4, gender="femal"), "mine.csv:6: gender: 'femal' is not a group of gender; did you mean 'female'?"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *(("mine.csv", rows, message) for rows, message in SLIPS),
        ("mine.csv", b"", "mine.csv: is empty"),
        ("mine.csv", b"query_id,doc_id,title\n", "mine.csv: has no rows"),
        ("mine.csv", b"a,b\n1,2\n", "mine.csv:2: query_id: there is no such column (a, b)"),
        ("mine.csv", b"query_id,doc_id,title,query_id\n1,2,3,4\n", "mine.csv:1: query_id: names two columns"),
        ("mine.csv", b"query_id,doc_id,title\nq,d\n", "mine.csv:2: has 2 cells where the first line names 3"),
        ("mine.csv", b'query_id,doc_id,title\nq,"d,t\n', "mine.csv:2: not a row of 3 cells: unexpected end of data"),
        ("mine.csv", b"query_id,doc_id,title,gendr\nq,d,t,f\nq,e,u,m\n", "mine.csv: no item has a group of gender or location (query_id, doc_id, title, gendr)."),
        ("mine.csv", b"Query_Id,doc_id,title\nq,d,t\n", "mine.csv:2: query_id: there is no such column (Query_Id, doc_id, title); did you mean 'Query_Id'?"),
        ("mine.csv", b"query_id,doc_id,title,RELEVANCE\nq,d,t,1\n", "mine.csv: relevance: there is no such column (query_id, doc_id, title, RELEVANCE); did you mean 'RELEVANCE'?"),
        ("mine.csv", b"query_id,doc_id,title,Text\nq,d d,t,u\n", "mine.csv:2: doc_id: 'd d' holds white space"),
        ("mine.csv", b"query_id,doc_id,Text\nq,d,t\n", "mine.csv:2: title: there is no such column"),
        ("mine.csv", b"\xef\xbb\xbf", "mine.csv: is empty"),
        ("mine.csv", b"sep=;\n\n", "mine.csv: is empty"),
        ("mine.tsv", b"a,b,c\tquery_id\nd\te e\n", "mine.tsv:2: query_id: 'e e' holds white space"),
        ("mine.csv", b"query_id,doc_id\rq,d d\r", "mine.csv:2: doc_id: 'd d' holds white space"),
        ("mine.csv.bz2", bz2.compress(b"\n" * (1 << 25)), ": cannot be read: unpacks to more than 100 times its size"),
        ("mine.csv", b'\n\nquery_id,doc_id,title\n\nq,"d\n",t\nq,d d,t\n', "mine.csv:7: doc_id: 'd d' holds white space"),
        ("mine.csv", b'query_id,doc_id,title\nq,"d\n",t\nq,d,t,u\n', "mine.csv:4: has 4 cells where the first line names 3"),
        ("mine.csv", b'query_id,doc_id,title\nq,"d\n",t\nq,"d"d,t\n', "mine.csv:4: not a row of 3 cells: ',' expected after"),
        ("mine.csv", b"query_id,doc_id,title\nq,d,caf\xe9\n", "mine.csv:2: not UTF-8 (byte 8 of the line)"),
        ("mine.csv.zst", b"\x28\xb5\x2f\xfd", "mine.csv.zst: cannot be read: packed by zstd: unpack it, or pack it with gzip"),
        ("mine.csv", b"PK\x03\x04", "mine.csv: cannot be read: a ZIP archive, or a workbook"),
        ("mine.csv.bz2", bz2.compress(b"query_id,doc_id" + b"\n" * 9)[:-4], "mine.csv.bz2:10: the packed file is damaged or cut off here"),
        ("mine.xlsx", b"PK\x03\x04", "mine.xlsx is no table: its name ends in none of .csv, .tsv, .jsonl, .parquet"),
        ("mine.csv", b"query_id,doc_id,title,gender\nq,d,t,male\n", "mine.csv: no query has two candidates or more"),
        ("mine.jsonl", b'{"query_id": "q", "doc_id": "d"\n', "mine.jsonl:1: not JSON: Expecting ',' delimiter at column"),
        ("mine.jsonl", b'[1]\n', "mine.jsonl:1: expected `object`, got `array`"),
        ("mine.jsonl", b'{"query_id": "q", "doc_id": "d", "title": ["a"]}\n', "mine.jsonl:1: title: is no text or number but list"),
        ("mine.jsonl", b'{"query_id": "q", "doc_id": "d"}\n', "mine.jsonl:1: title: there is no such column"),
        pytest.param("mine.parquet", b"PAR1 no", "mine.parquet: cannot be read as Parquet", marks=without_pyarrow),
    ],
)  # fmt: skip
def test_a_slip_is_named_by_line_and_column(name: str, content: Rows | bytes, message: str) -> None:
    if isinstance(content, bytes):
        Path(name).write_bytes(content)
    else:
        separated(Path(name), content)
    with pytest.raises(UsageError) as refused:
        load_dataset(name)
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"mine.csv", "bytes is no dataset."),
        (None, "NoneType is no dataset."),
        ([{"query_id": "q", "doc_id": "\u3000d\u00a0"}], "frame.jsonl:1: title: there is no such column (query_id, doc_id)"),
        ({"query_id": ["q"], "doc_id": ["d", "e"]}, "no table: All arrays must be of the same length."),
        (Path("folder"), "no dataset 'folder'. Did you mean 'older'?"),
        ("mine.cvs", "no dataset 'mine.cvs'. Did you mean 'mine.csv'?"),
        ("mien.csv", "mien.csv: there is no such file. Did you mean 'mine.csv'?"),
    ],
)  # fmt: skip
def test_what_is_no_dataset_is_said(data: Any, message: str) -> None:
    separated(Path("mine.csv"), rows_of())
    Path("older").mkdir()
    with pytest.raises(UsageError) as refused:
        load_dataset(data)
    assert message in refused.value.message


def test_an_attribute_that_no_item_has_is_named() -> None:
    separated(Path("mine.csv"), rows_of())
    folder(Path("mine"), rows_of())
    declared = '[gender]\nprotected = ["female"]\nunprotected = ["male"]\n[job]\nprotected = ["a"]\nunprotected = ["*"]\n'
    for name in ("mine.csv", "mine"):
        (Path(name) if name == "mine" else Path()).joinpath("attributes.toml").write_text(declared)
        Path("mine/groups.tsv").write_text("000\tgender\tfemale\n001\tgender\tmale\n")
        refuses("no item of mine has a group of 'job'", "listwise", "-d", name, "-a", "job")


def test_columns_that_say_nothing_are_refused() -> None:
    separated(Path("mine.csv"), rows_of())
    for flags, message in (
        ("-d mine.csv --columns sex", "--columns sex: expected NAME=COLUMN, NAME one of query_id,"),
        ("-d mine.csv --columns gendr=sex", "Did you mean 'gender'?"),
        ("-d mine.csv --columns gender=sex", "mine.csv: sex: there is no such column for gender (query_id,"),
        ("--columns gender=sex", "--columns is said of tables, and sample is none"),
        ("-d mine.csv --attributes no.toml", "no.toml: cannot be read"),
    ):
        refuses(message, "listwise", *flags.split())


@without_pyarrow
def test_columns_of_a_parquet_file_that_are_not_looked_at_are_not_read() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = rows_of()
    dates = pa.array([10**8] * len(rows), pa.int32()).cast(pa.date32())  # beyond what Python has
    pq.write_table(pa.Table.from_pylist(rows).append_column("when", dates), "mine.parquet")
    assert len(load_dataset("mine.parquet").queries) == 6
    refuses("cannot be read as Parquet", *"datasets show mine.parquet --columns query=when".split())
    pq.write_table(pa.table({"other": [1, 2]}), "mine.parquet")
    refuses("mine.parquet:1: query_id: there is no such column (other)", "datasets", "show", "mine.parquet")
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), "mine.parquet")
    refuses("mine.parquet: a: names two columns", "datasets", "show", "mine.parquet")


def test_runs_are_scored_and_reranked_against_a_table() -> None:
    rows = rows_of()
    separated(Path("mine.csv"), rows)
    write(Path("my.run"), (f"{row['query_id']} Q0 {row['doc_id']} {n} {-n} x" for n, row in enumerate(rows)))
    folder(Path("mine"), rows)
    plain = ran("score", "my.run", "-d", "mine", "--json").out
    assert ran("score", "my.run", "-d", "mine.csv", "--json").out.replace("mine.csv", "mine") == plain
    names = ("query_id", "query", "id", *COLUMNS[3:])
    separated(Path("other.csv"), rows, names=names)
    ran("score", "my.run", "-d", "other.csv", "--columns", "doc_id=id")
    done = ran(*"rerank my.run --with bm25 -d other.csv --columns doc_id=id -o new.run".split()).out
    assert "-d other.csv --columns doc_id=id" in done


# docs/own-data.md

PAGE = (Path(__file__).resolve().parents[2] / "docs/own-data.md").read_text("utf-8")
SECTION = PAGE.partition("## A table is a dataset")[2].partition("\n## ")[0]
EXAMPLE, LINES, PYTHON = (
    re.findall(rf"^```{kind}\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)[0] for kind in ("csv", "bash", "python")
)  # fmt: skip
NEEDED = {"mine.parquet": "pyarrow", "hf:": "datasets"}


@pytest.fixture
def example() -> Rows:
    """The page's table in every form, by the names that its commands give them."""
    Path("mine.csv").write_text(EXAMPLE)
    rows = [*csv.DictReader(EXAMPLE.splitlines())]
    separated(Path("mine.tsv"), rows, "\t", rows[0])
    json_lines(Path("mine.jsonl"), rows)
    renamed = {"doc_id": "id", "gender": "sex"}
    separated(Path("other.csv"), rows, names=[renamed.get(name, name) for name in rows[0]])
    Path("folder").mkdir()
    Path("folder/mine.csv").write_text(EXAMPLE)
    return rows


@pytest.mark.whole
@pytest.mark.parametrize("line", [line for line in LINES.splitlines() if "irds:" not in line])
def test_the_commands_of_the_page_run(line: str, example: Rows) -> None:
    for word, package in NEEDED.items():
        if word in line:
            pytest.importorskip(package)
    if "mine.parquet" in line:
        parquet(Path("mine.parquet"), [dict(row) for row in example])
    assert "2 queries × 4" in ran(*line.split()[1:], "--dry-run").out


@pytest.mark.whole
def test_the_python_of_the_page_runs(example: Rows, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(PYTHON, "own-data.md", "exec"), {})
    assert "Listwise · frame · gender" in capsys.readouterr().out
