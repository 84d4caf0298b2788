"""Fetching over real HTTP on loopback: continued, compared, refused, never done twice, and done again where it must be."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmfair.audits.lists import engine_of
from llmfair.datasets import fetch
from llmfair.datasets import pages as stored
from llmfair.datasets.base import Collection, cache_folder, load_dataset
from llmfair.datasets.fetch import blocks
from llmfair.datasets.trec_fair import TrecFair
from llmfair.errors import LlmfairError
from llmfair.io.files import TABLE, note, whole, write_whole
from tests.cli.command import Outcome, llmfair, ran, refusal, refuses, well
from tests.datasets.trec_sources import (
    FETCH,
    NAME,
    FileServer,
    Made,
    Sources,
    article_2022,
    downloads,
    large_2022,
    lines,
    made,
    metadata_2022,
    pointed_at,
    sources_2021,
    sources_2022,
    topic_2022,
)
from tests.servers import serving

META, DOCS, TOPICS = "2022/metadata", "2022/docs", "2022/train/topics"
Serve = Callable[..., FileServer]


@pytest.fixture(autouse=True)
def unwaiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "PAUSES", (0.0,) * 5)


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a server of these sources and points ir_datasets at it."""
    with ExitStack() as stack:

        def start(sources: Sources, md5: dict[str, str] | None = None, **switches: Any) -> FileServer:
            server = stack.enter_context(FileServer(sources, **switches).running())
            stack.enter_context(pointed_at(downloads(server, md5), tmp_path / "home", monkeypatch))
            return server

        yield start


def command(*flags: str | Path, name: str = "trec-fair/2022") -> Outcome:
    return llmfair("datasets", "fetch", name, "--yes", *flags)


def folder(name: str = "trec-fair-2022-train") -> Path:
    return cache_folder() / "datasets" / name


def sha256() -> str:
    return hashlib.sha256((folder() / "pages.db").read_bytes()).hexdigest()


def left_over() -> list[str]:
    """Files of the downloads folder."""
    return sorted(path.name for path in (cache_folder() / "downloads").rglob("*") if path.is_file())


def part(key: str) -> Path:
    """Where the unfinished download of a source lies."""
    names = {META: "trec_2022_articles_discrete.json.gz", DOCS: "trec_corpus_20220301_plain.json.gz"}
    path = cache_folder() / "downloads" / "trec-fair" / "2022" / (names[key] + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.mark.whole
def test_a_fetch_says_its_sizes_keeps_the_result_alone_and_is_not_repeated(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(sources_2022())
    folder().mkdir(parents=True)
    (folder() / ".0123456789abcdef.tmp").write_text("what a killed fetch left")
    found = well(command())
    first = found.err.splitlines()[0]
    assert first.startswith("trec-fair/2022/train: downloads")
    assert "trec_corpus_20220301_plain.json.gz" in first
    assert "of disk" in found.err and "are free" in found.err and left_over() == []
    assert re.search(r"\ntrec_corpus_\w+.json.gz: read  0.0/0.0 MB  [\d.,]+ MB/s\n", found.err)
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", found.err), "no control characters without a screen"
    record = json.loads((folder() / "fetch.json").read_text())
    sums = {of["md5"] for step in ("topics", "metadata", "pages") for of in record[step]["sources"]}
    assert sums == {hashlib.md5(body).hexdigest() for body in server.files.values()}
    requests = len(server.requests)
    again = command("--json")
    assert again.code == 0 and again.json["already_fetched"] and len(server.requests) == requests

    def stays() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder().iterdir() if path.name != TABLE}

    before = stays()
    monkeypatch.setenv("LLMFAIR_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert command("--json").code == 0
    assert before == stays() and len(before) == 4, "equal sources give equal bytes"


def test_it_asks_unless_told_otherwise(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(sources_2022())
    found = llmfair("datasets", "fetch", "trec-fair/2022/gender", "--json")
    assert found.code == 2 and "--yes" in found.json["error"]["hint"]
    screen = StringIO("n\n")
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", screen)
    found = llmfair("datasets", "fetch", "trec-fair/2022/gender")
    assert found.code == 1 and "Nothing was downloaded." in found.err and server.requests == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("sample",), "nothing to fetch for 'sample'"),
        (("trec-fair/2022/gendr",), "Did you mean 'trec-fair/2022/gender'?"),
        (("trec-fair/2022/eval",), "published by NIST only"),
        (("trec-fair/2022", "--corpus", "nothing.gz"), "nothing.gz: there is no such file"),
        (("trec-fair/2022", "--corpus", "ftp://x/y"), "only http and https"),
        (("trec-fair/2022", "--corpus", "u:secret@host/file"), "\nError: ***@host/file: there is no such file"),
        (("trec-fair/2022", "--titles", "t.tsv", "--text-words", "3"), "--titles replaces the corpus"),
        (("trec-fair/2022", "--text-words", "-1"), "--text-words"),
    ],
)  # fmt: skip
def test_what_cannot_be_fetched(arguments: tuple[str, ...], text: str) -> None:
    found = llmfair("datasets", "fetch", *arguments, "--yes")
    assert found.code == 2 and text in f"\n{found.err}", found.err


@pytest.mark.whole
def test_other_copies_are_read_plain_or_packed_from_disk_or_elsewhere(serve: Serve, tmp_path: Path) -> None:
    sources = sources_2022()
    server = serve(sources | {"mine/corpus.json": gzip.decompress(sources[DOCS])})
    topics, metadata = tmp_path / "topics.jsonl.gz", tmp_path / "metadata.json"
    topics.write_bytes(gzip.compress(sources[TOPICS]))
    metadata.write_bytes(gzip.decompress(sources[META]))
    well(command("--topics", topics, "--metadata", metadata, "--corpus", server.url("mine/corpus.json")))
    assert {request.name for request in server.requests} == {"mine/corpus.json"}
    assert metadata.exists() and left_over() == []
    digest = sha256()
    assert command("--metadata", server.url(META)).code == 0, "another copy is read when it is named"
    assert {request.name for request in server.requests} == {"mine/corpus.json", META, DOCS}
    assert sha256() == digest


@pytest.mark.whole
def test_topics_of_a_file_keep_their_keywords(serve: Serve, tmp_path: Path) -> None:
    serve(sources_2022())
    topics, name = tmp_path / "topics.jsonl", "trec-fair/2022/eval"
    rows = [topic_2022(query_id, "T", [307, 339, 339]) for query_id in (5, 6, 7)]
    topics.write_bytes(
        lines([rows[0] | {"keywords": ["a b", " ", "c"]}, rows[1] | {"keywords": "d e"}, rows[2]], pack=False)
    )
    well(command("--topics", topics, name=name))
    source: TrecFair = load_dataset("trec-fair/2022/eval/gender")
    assert [topic.keywords for topic in source.topics] == [("a b", "c"), ("d e",), ()]
    assert list(source.relevant("5")) == ["307", "339"]
    listed = json.loads((folder("trec-fair-2022-eval") / "topics.json").read_text())
    assert listed[2] == {"query_id": "7", "text": "T", "relevant": [307, 339]}


@pytest.mark.whole
def test_topics_and_judgements_of_2021_come_apart(serve: Serve) -> None:
    topic = {"id": 9, "title": "Film", "keywords": ["a b", "c"], "scope": "s"}
    qrels = lines([{"id": 9, "rel_docs": [316, 12, 316]}])
    apart = {"2021/eval/topics": lines([topic]), "2021/eval/qrels": qrels}
    serve(sources_2021() | apart)
    record = well(command("--json", name="trec-fair/2021/eval")).json
    assert record["topics"]["relevance_rows"] == 2
    source: TrecFair = load_dataset("trec-fair/2021/eval/location")
    assert [(topic.text, topic.keywords) for topic in source.topics] == [("Film", ("a b", "c"))]
    assert list(source.relevant("9")) == ["12", "316"]
    serve(sources_2021() | apart | {"2021/eval/qrels": lines([])})
    shutil.rmtree(cache_folder())
    refusal(command(name="trec-fair/2021/eval"), "rel_docs: no topic has any")


@pytest.mark.whole
def test_files_that_ir_datasets_holds_are_used_as_they_are(serve: Serve, tmp_path: Path) -> None:
    server = serve(sources_2022())
    home = tmp_path / "home"
    (home / "downloads").mkdir(parents=True)
    held = home / "downloads" / hashlib.md5(server.files[DOCS]).hexdigest()
    held.write_bytes(server.files[DOCS])
    assert command("--text-words", "3").code == 0
    assert {request.name for request in server.requests} == {TOPICS, META}
    assert held.exists()
    source: TrecFair = load_dataset("trec-fair/2022/gender")
    assert source.load(["307"])["307"].text == "one two three"
    assert command("--json").json["already_fetched"], "more is there than is asked for"


@pytest.mark.whole
def test_titles_replace_the_corpus(serve: Serve, tmp_path: Path) -> None:
    server = serve(sources_2022())
    titles = tmp_path / "titles.tsv"
    titles.write_text("page_id\ttitle\n339\tAyn_Rand\n307\tAbraham_Lincoln\n505\tNobody\n307\tTwice\n")
    found = well(command("--titles", titles, "--json"))
    assert found.json["pages"]["pages_without_title"] == 8
    assert DOCS not in {request.name for request in server.requests}
    source: TrecFair = load_dataset("trec-fair/2022/gender")
    assert [page.title for page in source.load(["307", "339"]).values()] == ["Abraham Lincoln", "Ayn Rand"]


@pytest.mark.whole
def test_text_of_2021_needs_an_extra(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(sources_2021())
    monkeypatch.setitem(sys.modules, "pyautocorpus", None)
    found = command("--text-words", "3", name="trec-fair/2021")
    assert found.code == 1 and "pip install 'ir_datasets[pyautocorpus]'" in found.err and not server.requests

    class Textifier:
        def textify(self, markup: str) -> str:
            if "<!--" in markup:
                before = markup[: markup.index("<!--")].encode()
                raise ValueError("Expected markup type 'comment'", len(before))
            return markup.replace("'''", "")

    monkeypatch.setitem(sys.modules, "pyautocorpus", SimpleNamespace(Textifier=Textifier))
    assert command("--text-words", "3", name="trec-fair/2021").code == 0
    source: TrecFair = load_dataset("trec-fair/2021/location")
    assert source.load(["316"])["316"].text == "It is [[wikitext|text]]."
    assert source.load(["67277921"])["67277921"].text == "plain", "an unclosed comment ends the article"


@pytest.mark.whole
@pytest.mark.parametrize("flag", [None, "--stream"])
def test_a_broken_connection_continues_where_it_broke(serve: Serve, flag: str | None) -> None:
    sources = large_2022(300, seed=1)
    serve(sources)
    assert command("--keep-downloads").code == 0 and len(left_over()) == 3
    expected = sha256()
    shutil.rmtree(cache_folder())
    server = serve(sources, cuts=[10_000, 20_000, 30_000, 40_000, 50_000])
    well(command(*[flag] if flag else []))
    assert sha256() == expected and left_over() == []
    for key in (META, DOCS):
        assert server.sent(key) == len(sources[key])
        starts = [request.start for request in server.requests if request.name == key]
        assert starts == sorted(set(starts))


@pytest.mark.whole
def test_a_server_that_stays_away_is_said_and_nothing_is_lost(serve: Serve) -> None:
    server = serve(sources_2022(), cuts=[10**9, 10**9, 100, 0, 0, 0, 0, 0])
    found = refusal(command(), "the reply of the server breaks off", code=1)
    assert "the same command continues" in found.err and part(DOCS).stat().st_size == 100
    assert command().code == 0 and server.requests[-1].start == 100


@pytest.mark.whole
def test_a_server_without_range_restarts_the_file(serve: Serve) -> None:
    sources = large_2022(100, seed=2)
    server = serve(sources, ranges=False, cuts=[10**9, 10**9, 20_000, 40_000])  # of the corpus
    part(DOCS).write_bytes(sources[DOCS][:5_000])
    assert command("--keep-downloads").code == 0
    assert part(DOCS).with_suffix("").read_bytes() == sources[DOCS]
    assert server.sent(DOCS) == 20_000 + 40_000 + len(sources[DOCS])


@pytest.mark.whole
def test_a_wrong_md5_names_both_sums_and_leaves_the_file(serve: Serve) -> None:
    sources = sources_2022()
    serve(sources, md5={DOCS: "0" * 32})
    found = command()
    actual = hashlib.md5(sources[DOCS]).hexdigest()
    assert found.code == 1 and actual in found.err and "0" * 32 in found.err
    assert left_over() == ["trec_corpus_20220301_plain.json.gz.bad"]
    refusal(command("--stream"), "0" * 32, code=1)
    assert not (folder() / "pages.db").exists()
    with pytest.raises(LlmfairError, match="not fetched completely"):
        load_dataset("trec-fair/2022/gender").load(["307"])


def test_nothing_is_downloaded_without_room_or_beside_another_fetch(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(sources_2022())
    folder().mkdir(parents=True)
    with (folder().parent / ".fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refusal(command(), "is in use by another process", code=1)
    monkeypatch.setattr(fetch, "KEPT_BYTES", 10**18)
    refusal(command(), "1000000000.0 GB are needed", code=1)
    assert server.requests == []


@pytest.mark.whole
def test_a_stopped_pass_starts_again_without_a_request(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(sources_2022())

    def stop(*arguments: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stored, "keep_pages", stop)
        assert command().code == 130
    assert left_over() == ["trec_corpus_20220301_plain.json.gz"]
    requests = len(server.requests)
    assert command().code == 0
    assert len(server.requests) == requests and left_over() == []


# One wrong line in a file that is given: which file, which line, which field


TOPIC, PAGE = topic_2022(84, "T", [307, 339]), metadata_2022(307, ["male"], ["Europe"])
DEEP = b'{"x": ' + b"[" * 100_000
ONE_WRONG_LINE: list[tuple[str, bytes | dict[str, Any], str]] = [
    ("--topics", TOPIC | {"rel_docs": [2**63]}, "rel_docs[0]: expected `int` <= 9223372036854775807"),
    ("--topics", TOPIC | {"title": "\ud800"}, "title: expected `str` matching"),
    ("--topics", {"id": 84, "title": "T", "rel_docs": "3"}, "rel_docs: expected `array`, got `str`"),
    ("--topics", TOPIC | {"id": "8 4"}, "id: expected `str` matching"),
    ("--topics", TOPIC | {"keywords": 5}, "keywords: expected `str | array | null`, got `int`"),
    ("--topics", {"\ud800": 1} | TOPIC, "'utf-8' codec can't encode"),
    ("--topics", TOPIC | {"id": 1}, "id: topic '1' is there already"),
    ("--topics", DEEP, "not JSON: "),
    ("--metadata", PAGE | {"gender": "female"}, "gender: expected `array | null`, got `str`"),
    ("--metadata", b'{"x": 0, "page_id": Infinity}', "page_id: expected `int | str`"),
    ("--metadata", b" " * fetch.LONGEST, "longer than 32 MB"),
    ("--corpus", article_2022(2**64, "T"), "id: expected `int | str`"),
    ("--titles", b"9" * 5000 + b"\tTitle", "expected page_id, a tab, title"),
]  # fmt: skip


@pytest.mark.parametrize(("flag", "wrong", "text"), ONE_WRONG_LINE)
def test_one_wrong_line_is_named(tmp_path: Path, flag: str, wrong: bytes | dict[str, Any], text: str) -> None:
    right: dict[str, Any] = {
        "--topics": topic_2022(1, "A", [307]),
        "--metadata": metadata_2022(1, None, []),
        "--corpus": article_2022(1, "Page"),
        "--titles": "1\tPage",
    }
    del right["--corpus" if flag == "--titles" else "--titles"]
    given: list[str | Path] = []
    for name, line in right.items():
        path = tmp_path / name.strip("-")
        first = line.encode() + b"\n" if isinstance(line, str) else lines([line], pack=False)
        second = wrong if isinstance(wrong, bytes) else lines([wrong], pack=False)
        path.write_bytes(first + (second if name == flag else b""))
        given += [name, path]
    words = ("--text-words", "1") if "--corpus" in right else ()
    refusal(command(*given, *words, name=NAME), f"{tmp_path / flag.strip('-')}:2: {text}")


# Servers that answer oddly: each download ends, in a sentence, and nothing that was not asked for is joined


CONTENT = bytes(range(256)) * 400
Answer = Callable[[int], bytes]


def got(answer: Answer, start: int = 0) -> tuple[bytes, list[int]]:
    """What is downloaded of a server that sends these bytes to a request from some byte on, and where each began."""
    asked: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
            asked.append(start)
            assert len(asked) < 200
            self.wfile.write(answer(start))

        def log_message(self, format: str, *args: Any) -> None: ...

    with serving(Handler) as port:
        return b"".join(blocks(f"http://127.0.0.1:{port}/file", start)), asked


def reply(*headers: str, body: bytes = b"", status: int = 200) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status} X", *headers))
    return head.encode() + b"\r\n" + body


def some(start: int, count: int, told: str = "") -> bytes:
    """So many bytes of the content from `start` on, with a length that says that all of them come."""
    said = told or f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"
    headers = (f"Content-Length: {len(CONTENT) - start}", *((f"Content-Range: {said}",) if start else ()))
    return reply(*headers, body=CONTENT[start : start + count], status=206 if start else 200)


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (reply("Content-Length: abc", body=b"hello"), "sends is no HTTP reply"),
        (reply("Content-Length: -5", body=b"hello"), "sends is no HTTP reply"),
        (reply("Location: http://[::1/", status=302), "leads to what is no address"),
        (reply("Location: http://127.0.0.1:x/", status=302), "leads to what is no address"),
        (reply("Location: file:///etc/passwd", status=302), "leads to what is no address"),
        (reply("Transfer-Encoding: chunked", body=b"-5\r\nabc\r\n"), "sends is no HTTP reply"),
    ],
)
def test_what_no_server_says_ends_in_a_sentence(sent: bytes, says: str) -> None:
    with pytest.raises(LlmfairError, match=rf"^http://127\.0\.0\.1:\d+/file: .*{says}"):
        got(lambda start: sent)


@pytest.mark.parametrize("told", ["bytes 0-9/102400", "bytes */102400", " "])
def test_another_part_than_the_one_asked_for_is_not_joined_to_the_file(told: str) -> None:
    with pytest.raises(LlmfairError, match="sends another part than was asked for"):
        got(lambda start: some(start, 50, told), start=100)
    assert got(lambda start: some(start, len(CONTENT)), start=100)[0] == CONTENT[100:]


def test_a_server_that_gives_a_byte_at_a_time_does_not_keep_the_command_for_ever() -> None:
    asked = []

    def byte(start: int) -> bytes:
        asked.append(start)
        return some(start, 1)

    with pytest.raises(LlmfairError, match="the reply of the server breaks off"):
        got(byte)
    assert asked == [0, 1, 2, 3, 4, 5]
    found, starts = got(lambda start: some(start, fetch.LEAST))
    assert found == CONTENT and len(starts) == 11, "enough at a time"


# Fetched again: from corrected copies, otherwise indexed, broken off; what was there works on


GENDER = f"{NAME}/gender"
REFINE = ("refine", "-d", GENDER, "--max-iterations", "1", "-q", "--no-report")
EVAL = "trec-fair-2022-eval"


def again(place: Path, given: Made, *flags: str) -> tuple[str, ...]:
    """The command that fetches from these sources."""
    place.mkdir(exist_ok=True)
    return ("datasets", "fetch", NAME, "--yes", "--json", *given.copies(place), *flags)


def corrected(given: Made) -> Made:
    """Other judgements: a third of them are withdrawn."""
    return Made(given.texts, [pages[::3] + pages[1::3] for pages in given.relevant])


def judged() -> list[list[int]]:
    source: TrecFair = load_dataset(GENDER)
    return [[int(page) for page in source.relevant(topic.query_id)] for topic in source.topics]


@pytest.mark.whole
@pytest.mark.parametrize("name", ["topics.json", "groups.db", "pages.db"])
def test_a_fetch_that_ends_between_two_files_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    given = made(100)
    ran(*again(tmp_path / "a", given, "--index", "pool"))

    def stop(path: Path, *_: Any, **__: Any) -> Any:
        if path.name == name:
            raise KeyboardInterrupt
        return (write_whole if path.suffix == ".json" else whole)(path, *_, **__)

    other = again(tmp_path / "b", corrected(given), "--index", "pool")
    with monkeypatch.context() as patch:
        patch.setattr(stored, "whole", stop)
        patch.setattr(stored, "write_whole", stop)
        assert llmfair(*other).code == 130
    assert FETCH in refuses("was not fetched completely", *REFINE).err
    pages = {page for pages in corrected(given).relevant for page in pages}
    assert ran(*other).json["pages"]["index"]["documents"] == len(pages)
    assert judged() == [sorted(pages) for pages in corrected(given).relevant]


@pytest.mark.whole
def test_copies_that_are_older_than_what_was_made_of_them_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching = again(tmp_path / "a", made(100))
    ran(*fetching)
    with monkeypatch.context() as patch:
        patch.delattr(fetch, "md5_of")
        assert ran(*fetching).json["already_fetched"]
    for path in (tmp_path / "a").iterdir():
        path.touch()
    assert ran(*fetching).json["already_fetched"]


@pytest.mark.whole
def test_a_broken_copy_takes_nothing_away(tmp_path: Path) -> None:
    ran(*again(tmp_path / "a", made(100), "--index", "pool"))
    ran(*REFINE, "-o", "run")
    record = (folder(EVAL) / "fetch.json").read_bytes()
    broken = tmp_path / "broken"
    broken.write_text('{"id": 1, "page_id": 1, "title": "T", "rel_docs": [1]}\n[1]\n')
    for flag in ("--topics", "--metadata", "--corpus"):
        flags = [*made(100).copies(tmp_path / "a")]
        flags[flags.index(flag) + 1] = str(broken)
        refusal(command(*flags, name=NAME), "broken:2: ")
    assert (folder(EVAL) / "fetch.json").read_bytes() == record
    ran("runs", "check", "run")


@pytest.mark.whole
@pytest.mark.parametrize(("scope", "what"), [("pool", "topics"), ("full", "corpus")])
def test_corrected_copies_are_indexed_in_place_of_those_before(tmp_path: Path, scope: str, what: str) -> None:
    given = made(120)
    ran(*again(tmp_path / "a", given, "--index", scope))
    other = corrected(given) if what == "topics" else Made(made(120, words=50).texts, given.relevant)
    assert not ran(*again(tmp_path / "b", other, "--index", scope)).json["already_fetched"]
    engine = engine_of(Collection(load_dataset(GENDER)))
    pool = {page for pages in other.relevant for page in pages}
    searched = [page for page in other.texts if scope == "full" or page in pool]
    assert engine.count() == len(searched)
    said = {str(page) for page in searched if "w7" in other.texts[page].split()}
    assert {hit.doc_id for hit in engine.search("w7", 300)} == said
    assert judged() == [sorted(pages) for pages in other.relevant]


@pytest.mark.whole
def test_an_index_of_another_scope_or_analyzer_is_replaced(tmp_path: Path) -> None:
    given = made(60)
    ran(*again(tmp_path, given, "--index", "pool"))
    place = folder(EVAL) / "index-pool"
    assert [path.name for path in place.iterdir() if path.suffix != ".lock"] == ["english"]
    (place / "english.tmp").mkdir()
    ran(*again(tmp_path, given, "--index", "pool", "--analyzer", "standard"))
    assert [path.name for path in place.iterdir() if path.is_dir()] == ["standard"]
    kept = ran("datasets", "fetch", NAME, "--yes", "--json").json
    assert kept["already_fetched"] and kept["pages"]["index"]["analyzer"] == "standard"
    refuses("was indexed with --analyzer standard, not english", *REFINE, code=1)
    ran(*REFINE, "--analyzer", "standard", "-o", "run")
    ran(*again(tmp_path, given, "--index", "full"))
    assert not place.exists()
    words = ran(*again(tmp_path, given, "--text-words", "3")).json
    assert words["pages"]["index"]["scope"] == "full", "which keeps the index"


@pytest.mark.parametrize("of", ["topics", "metadata", "docs"])
def test_other_content_of_the_same_path_is_fetched(tmp_path: Path, of: str) -> None:
    command = again(tmp_path, made(100))
    ran(*command)
    assert ran(*again(tmp_path, made(100))).json["already_fetched"]  # written anew, and the same
    place = next(path for path in tmp_path.iterdir() if path.name.endswith(of))
    content = place.read_bytes()
    # of the same size, or of another
    place.write_bytes(content.replace(b"w1 w2", b"w1 w9") if of == "topics" else content + content)
    record = ran(*command).json
    assert not record["already_fetched"]
    if of == "topics":
        assert [topic.text for topic in load_dataset(GENDER).topics][1] == "w1 w9"
    assert ran(*command).json["already_fetched"]


# Files of a fetched collection that are gone, cut or altered: refused, and made again by the fetch


HARMS: dict[str, Callable[[bytes], bytes]] = {
    "topics.json": lambda content: content[: len(content) // 2],
    "pages.db": lambda content: content[:-8] + bytes([content[-8] ^ 1]) + content[-7:],
    "index-full/pages.db": lambda content: b"PK\x03\x04" + content[4:],
}


@pytest.mark.whole
def test_harmed_files_are_refused_until_they_are_fetched_again(tmp_path: Path) -> None:
    fetching = again(tmp_path, made(200), "--index", "full")
    ran(*fetching)
    show = ("datasets", "show", f"{NAME}/location")
    before = ran(*show, "--json").json
    for name, harm in HARMS.items():
        path = folder(EVAL) / name
        reads = ("refine", "-d", GENDER, "-q", "--no-report", "--dry-run") if "/" in name else show
        path.write_bytes(harm(path.read_bytes()))
        for _ in range(2):  # harmed, then gone
            found = refuses(f"{path} cannot be used: ", *reads)
            assert f"{FETCH}    fetches it again" in found.err
            path.unlink(missing_ok=True)
        assert not ran(*fetching).json["already_fetched"]
        assert ran(*show, "--json").json == before
    for name in ("topics.json", "pages.db"):  # which nobody noted
        path = folder(EVAL) / name
        path.write_bytes(HARMS["topics.json"](path.read_bytes()))
        note(folder(EVAL), [name])
        refuses(f"{path} cannot be read: ", *show)
