"""Fetching over real HTTP on loopback: continued, compared, refused, and never done twice."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from llmfair import terminal
from llmfair.cli.datasets import transfers
from llmfair.datasets import distill, download, fetch
from llmfair.datasets.base import DocumentSource, cache_folder, load_dataset
from llmfair.io.files import TABLE
from tests.cli.command import Outcome, llmfair, process, refusal, well
from tests.datasets.trec_sources import (
    FileServer,
    Sources,
    article_2022,
    downloads,
    large_2022,
    lines,
    metadata_2022,
    pointed_at,
    process_environment,
    sources_2021,
    sources_2022,
    topic_2022,
)

pytestmark = pytest.mark.whole

META, DOCS, TOPICS = "2022/metadata", "2022/docs", "2022/train/topics"
Serve = Callable[..., FileServer]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a server of these sources and points ir_datasets at it."""
    monkeypatch.setattr(download, "PAUSES", (0.0,) * 5)
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


def kept() -> dict[str, bytes]:
    """What stays of a fetch."""
    return {path.name: path.read_bytes() for path in folder().rglob("*") if path.is_file()}


def left_over() -> list[str]:
    """Files of the downloads folder."""
    return sorted(path.name for path in (cache_folder() / "downloads").rglob("*") if path.is_file())


def part(key: str) -> Path:
    """Where the unfinished download of a source lies."""
    names = {META: "trec_2022_articles_discrete.json.gz", DOCS: "trec_corpus_20220301_plain.json.gz"}
    path = cache_folder() / "downloads" / "trec-fair" / "2022" / (names[key] + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


# What it does


def test_a_fetch_says_its_sizes_keeps_the_result_alone_and_is_not_repeated(serve: Serve) -> None:
    server = serve(sources_2022())
    found = well(command())
    first = found.err.splitlines()[0]
    assert (
        first.startswith("trec-fair/2022/train: downloads") and "trec_corpus_20220301_plain.json.gz" in first
    )
    assert "of disk" in found.err and "are free" in found.err
    assert left_over() == []
    record = json.loads((folder() / "fetch.json").read_text())
    assert {
        source["md5"] for step in ("topics", "metadata", "pages") for source in record[step]["sources"]
    } == {hashlib.md5(body).hexdigest() for body in server.files.values()}
    requests = len(server.requests)
    again = command("--json")
    assert again.code == 0 and again.json["already_fetched"] and len(server.requests) == requests


def test_equal_sources_give_equal_bytes(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(sources_2022())
    folder().mkdir(parents=True)
    (folder() / ".0123456789abcdef.tmp").write_text("what a killed fetch left")
    assert command("--json").code == 0
    before = kept()
    monkeypatch.setenv("LLMFAIR_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert command("--json").code == 0
    after = kept()
    for found in (before, after):  # the times of files
        del found[TABLE]
    assert before == after and len(before) == 4


def test_it_asks_unless_told_otherwise(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(sources_2022())
    found = llmfair("datasets", "fetch", "trec-fair/2022/gender", "--json")
    assert found.code == 2 and "--yes" in found.json["error"]["hint"]
    screen = io.StringIO("n\n")
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", screen)
    found = llmfair("datasets", "fetch", "trec-fair/2022/gender")
    assert found.code == 1 and "Nothing was downloaded." in found.err and found.out == ""
    assert server.requests == []


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("sample",), 2, "nothing to fetch for 'sample'"),
        (("trec-fair/2022/gendr",), 2, "Did you mean 'trec-fair/2022/gender'?"),
        (("trec-fair/2022/eval",), 2, "published by NIST only"),
        (("trec-fair/2022", "--corpus", "nothing.gz"), 2, "nothing.gz: there is no such file"),
        (("trec-fair/2022", "--corpus", "ftp://x/y"), 2, "only http and https"),
        (("trec-fair/2022", "--titles", "t.tsv", "--text-words", "3"), 2, "--titles replaces the corpus"),
        (("trec-fair/2022", "--text-words", "-1"), 2, "--text-words"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_fetched(arguments: tuple[str, ...], code: int, text: str) -> None:
    found = llmfair("datasets", "fetch", *arguments, "--yes")
    assert found.code == code and text in found.err, found.err


def test_other_copies_are_read_plain_or_packed_from_disk_or_elsewhere(serve: Serve, tmp_path: Path) -> None:
    sources = sources_2022()
    server = serve(sources | {"mine/corpus.json": gzip.decompress(sources[DOCS])})
    topics, metadata = tmp_path / "topics.jsonl.gz", tmp_path / "metadata.json"
    topics.write_bytes(gzip.compress(sources[TOPICS]))
    metadata.write_bytes(gzip.decompress(sources[META]))
    well(command("--topics", topics, "--metadata", metadata, "--corpus", server.url("mine/corpus.json")))
    assert {request.name for request in server.requests} == {"mine/corpus.json"}
    assert metadata.exists() and left_over() == []
    own = sha256()
    assert command("--metadata", server.url(META)).code == 0, "another copy is read when it is named"
    assert {request.name for request in server.requests} == {"mine/corpus.json", META, DOCS}
    assert sha256() == own


def test_the_eval_topics_of_2022_come_from_a_file(serve: Serve, tmp_path: Path) -> None:
    serve(sources_2022())
    topics = tmp_path / "trec_2022_eval_reldocs.jsonl.gz"
    topics.write_bytes(lines([topic_2022(5, "Eval", [307, 339, 339])]))
    well(command("--topics", topics, name="trec-fair/2022/eval"))
    source: DocumentSource = load_dataset("trec-fair/2022/eval/gender")
    assert [topic.text for topic in source.topics] == ["Eval"] and list(source.relevant("5")) == [
        "307",
        "339",
    ]


def test_topics_of_a_file_keep_their_keywords(serve: Serve, tmp_path: Path) -> None:
    serve(sources_2022())
    topics, name = tmp_path / "topics.jsonl", "trec-fair/2022/eval"
    rows = [topic_2022(query_id, "T", [307, 339]) for query_id in (5, 6, 7)]
    topics.write_bytes(lines([{**rows[0], "keywords": 5}, rows[1]], pack=False))
    refusal(
        command("--topics", topics, name=name),
        "topics.jsonl:1: keywords: expected `str | array | null`, got `int`",
    )
    topics.write_bytes(
        lines([rows[0] | {"keywords": ["a b", " ", "c"]}, rows[1] | {"keywords": "d e"}, rows[2]], pack=False)
    )
    well(command("--topics", topics, name=name))
    source: DocumentSource = load_dataset("trec-fair/2022/eval/gender")
    assert [topic.keywords for topic in source.topics] == [("a b", "c"), ("d e",), ()]
    listed = json.loads((folder("trec-fair-2022-eval") / "topics.json").read_text())
    assert listed[2] == {"query_id": "7", "text": "T", "relevant": [307, 339]}


def test_files_that_ir_datasets_holds_are_used_as_they_are(serve: Serve, tmp_path: Path) -> None:
    server = serve(sources_2022())
    home = tmp_path / "home"
    (home / "downloads").mkdir(parents=True)
    held = home / "downloads" / hashlib.md5(server.files[DOCS]).hexdigest()
    held.write_bytes(server.files[DOCS])
    assert command().code == 0
    assert {request.name for request in server.requests} == {TOPICS, META}
    assert held.exists() and (home / "trec-fair" / "2022" / "trec_2022_train_reldocs.jsonl").exists()


def test_titles_replace_the_corpus(serve: Serve, tmp_path: Path) -> None:
    server = serve(sources_2022())
    titles = tmp_path / "titles.tsv"
    titles.write_text("page_id\ttitle\n339\tAyn_Rand\n307\tAbraham_Lincoln\n505\tNobody\n307\tTwice\n")
    found = well(command("--titles", titles, "--json"))
    assert found.json["pages"]["pages_without_title"] == 8 and found.json["pages"]["duplicate_lines"] == 1
    assert DOCS not in {request.name for request in server.requests}
    source: DocumentSource = load_dataset("trec-fair/2022/gender")
    assert [page.title for page in source.load(["307", "339"]).values()] == ["Abraham Lincoln", "Ayn Rand"]
    titles.write_text("339\tAyn_Rand\n307 Abraham\n")
    other = tmp_path / "other.tsv"
    other.write_bytes(titles.read_bytes())
    refusal(command("--titles", other), "other.tsv:2: expected page_id, a tab, title")


def test_text_words(serve: Serve) -> None:
    serve(sources_2022())
    assert command("--text-words", "3").code == 0
    source: DocumentSource = load_dataset("trec-fair/2022/gender")
    assert source.load(["307"])["307"].text == "one two three"
    assert command("--json").json["already_fetched"], "more is kept than is asked for"


def test_text_of_2021_needs_an_extra(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(sources_2021())
    monkeypatch.setitem(sys.modules, "pyautocorpus", None)
    found = command("--text-words", "3", name="trec-fair/2021")
    assert (
        found.code == 1 and "pip install 'ir_datasets[pyautocorpus]'" in found.err and server.requests == []
    )

    class Textifier:
        def textify(self, markup: str) -> str:
            if "<!--" in markup:
                raise ValueError(
                    "Expected markup type 'comment'", len(markup[: markup.index("<!--")].encode())
                )
            return markup.replace("'''", "")

    monkeypatch.setitem(sys.modules, "pyautocorpus", SimpleNamespace(Textifier=Textifier))
    assert command("--text-words", "3", name="trec-fair/2021").code == 0
    source: DocumentSource = load_dataset("trec-fair/2021/location")
    assert source.load(["316"])["316"].text == "It is [[wikitext|text]]."
    assert source.load(["67277921"])["67277921"].text == "plain", "an unclosed comment ends the article"


def test_steps_are_shown_as_lines_or_as_bars(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(sources_2022(), ranges=False, cuts=[10**9, 100])
    found = command()
    (line,) = [
        line
        for line in found.err.splitlines()
        if "metadata" not in line and "corpus" in line and ": read" in line
    ]
    assert re.fullmatch(r"trec_corpus_20220301_plain.json.gz: read  0.0/0.0 MB  [\d.,]+ MB/s", line)
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", found.err), "no control characters without a screen"
    shown = io.StringIO()
    screen = Console(file=shown, force_terminal=True, highlight=False, width=120, _environ={"TERM": "xterm"})
    monkeypatch.setattr(terminal, "console", lambda stderr=False: screen)
    with transfers() as progress:
        progress.step("corpus: download", 2_000_000, 500_000)
        progress.advance(500_000)
    assert "corpus: download" in shown.getvalue() and "1.0/2.0 MB" in shown.getvalue()


# What goes wrong


def test_a_broken_connection_continues_where_it_broke(serve: Serve) -> None:
    sources = large_2022(300, seed=1)
    server = serve(sources, cuts=[10_000, 20_000, 30_000, 40_000, 50_000])
    assert command().code == 0
    for key in (META, DOCS):
        assert server.sent(key) == len(sources[key])
        starts = [request.start for request in server.requests if request.name == key]
        assert starts == sorted(set(starts))


def test_a_server_that_stays_away_is_said_and_nothing_is_lost(serve: Serve) -> None:
    sources = sources_2022()
    server = serve(sources, cuts=[10**9, 10**9, 100, 0, 0, 0, 0, 0])
    found = refusal(command(), "the reply of the server breaks off", code=1)
    assert "the same command continues" in found.err
    assert part(DOCS).stat().st_size == 100
    assert command().code == 0
    assert server.requests[-1].start == 100


def test_a_server_without_range_restarts_the_file(serve: Serve) -> None:
    sources = large_2022(100, seed=2)
    serve(sources)
    assert command().code == 0
    expected = sha256()
    shutil.rmtree(folder())
    server = serve(sources, ranges=False, cuts=[10**9, 20_000, 40_000])  # metadata whole
    part(DOCS).write_bytes(sources[DOCS][:5_000])
    assert command().code == 0
    assert sha256() == expected
    assert server.sent(DOCS) == 20_000 + 40_000 + len(sources[DOCS])


def test_a_wrong_md5_names_both_sums_and_leaves_the_file(serve: Serve) -> None:
    sources = sources_2022()
    serve(sources, md5={DOCS: "0" * 32})
    found = command()
    actual = hashlib.md5(sources[DOCS]).hexdigest()
    assert found.code == 1 and actual in found.err and "0" * 32 in found.err
    assert left_over() == ["trec_corpus_20220301_plain.json.gz.bad"]
    assert not (folder() / "pages.db").exists()


def test_too_little_space_is_said_before_anything_is_downloaded(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(sources_2022())
    monkeypatch.setattr(fetch, "KEPT_BYTES", 10**18)
    monkeypatch.setattr(fetch, "SMALLEST", 10**18)
    found = command()
    assert found.code == 1 and "1000000000.0 GB are needed" in found.err and server.requests == []


def test_two_fetches_do_not_write_into_the_same_files(serve: Serve) -> None:
    server = serve(sources_2022())
    folder().mkdir(parents=True)
    with (folder().parent / ".fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = command()
    assert found.code == 1 and "is in use by another process" in found.err and server.requests == []


def test_a_stopped_pass_starts_again_without_a_request(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(sources_2022())

    def stop(*arguments: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(distill, "keep_pages", stop)
        assert command().code == 130
    assert left_over() == ["trec_corpus_20220301_plain.json.gz"]
    requests = len(server.requests)
    assert command().code == 0
    assert len(server.requests) == requests and left_over() == []


def test_streaming_keeps_no_copy_and_survives_a_cut(serve: Serve) -> None:
    sources = large_2022(300, seed=4)
    serve(sources)
    assert command("--keep-downloads").code == 0
    expected = sha256()
    assert len(left_over()) == 2
    shutil.rmtree(folder())
    for path in (cache_folder() / "downloads").rglob("*.gz"):
        path.unlink()
    server = serve(sources, cuts=[10_000, 20_000, 30_000])
    well(command("--stream"))
    assert sha256() == expected and left_over() == []
    assert server.sent(DOCS) == len(sources[DOCS]) and server.sent(META) == len(sources[META])


def test_a_stream_with_a_wrong_md5_leaves_no_result(serve: Serve) -> None:
    serve(sources_2022(), md5={DOCS: "0" * 32})
    found = command("--stream")
    assert found.code == 1 and "0" * 32 in found.err
    assert not (folder() / "pages.db").exists()
    with pytest.raises(Exception, match="not fetched completely"):
        load_dataset("trec-fair/2022/gender").load(["307"])


# One wrong line in a file that is given: which file, which line, which field


TOPIC, PAGE = topic_2022(84, "T", [307, 339]), metadata_2022(307, ["male"], ["Europe"])
DEEP = b'{"x": ' + b"[" * 100_000
ONE_WRONG_LINE: list[tuple[str, bytes | dict[str, Any], str]] = [
    ("--topics", TOPIC | {"rel_docs": "123"}, "rel_docs: expected `array`, got `str`"),
    ("--topics", TOPIC | {"rel_docs": [2**63]}, "rel_docs[0]: expected `int` <= 9223372036854775807"),
    ("--topics", TOPIC | {"title": "\ud800"}, "title: expected `str` matching"),
    ("--topics", TOPIC | {"id": "8 4"}, "id: expected `str` matching"),
    ("--topics", {"id": 84, "title": "T"}, "rel_docs: is missing"),
    ("--topics", {"\ud800": 1} | TOPIC, "'utf-8' codec can't encode"),
    ("--topics", TOPIC | {"id": 1}, "id: topic '1' is there already"),
    ("--topics", DEEP, "not JSON: "),
    ("--metadata", PAGE | {"gender": "female"}, "gender: expected `array | null`, got `str`"),
    ("--metadata", PAGE | {"page_subcont_regions": ["\ud800"]}, "page_subcont_regions[0]: expected `str` matching"),
    ("--metadata", b'{"x": 0, "page_id": Infinity}', "page_id: expected `int | str`"),
    ("--metadata", b'{"page_id": 307, ' + DEEP[1:], "not JSON: "),
    ("--metadata", b" " * download.LONGEST, "longer than 32 MB"),
    ("--corpus", article_2022(2**64, "T"), "id: expected `int | str`"),
    ("--titles", b"9" * 5000 + b"\tTitle", "expected page_id, a tab, title"),
]  # fmt: skip


@pytest.mark.parametrize(("flag", "wrong", "text"), ONE_WRONG_LINE)
def test_one_wrong_line_of_a_file_is_named(
    tmp_path: Path, flag: str, wrong: bytes | dict[str, Any], text: str
) -> None:
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
    refusal(
        llmfair("datasets", "fetch", "trec-fair/2022/eval", "--yes", *given, *words),
        f"{tmp_path / flag.strip('-')}:2: {text}",
    )


def test_a_file_that_links_to_itself_is_none(tmp_path: Path) -> None:
    (tmp_path / "topics").symlink_to("topics")
    refusal(
        llmfair("datasets", "fetch", "trec-fair/2022/eval", "--yes", "--topics", tmp_path / "topics"),
        f"{tmp_path / 'topics'}: there is no such file.",
    )


# Killed


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_killed_it_completes_with_equal_bytes_and_downloads_each_byte_once(
    kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = large_2022(1500, seed=5)
    moments = random.Random(6)
    size = len(sources[META]) + len(sources[DOCS])
    held: list[int] = []
    with FileServer(sources, pause=0.004).running() as server:
        environment = os.environ | process_environment(tmp_path / "pointer", downloads(server))
        arguments = ("datasets", "fetch", "trec-fair/2022", "--yes", "--json")
        for kill in range(1, kills + 1):
            running = process(*arguments, env=environment)
            moment = int(size * (kill - 1 + moments.uniform(0.2, 0.9)) / 3.2)
            while server.sent(META) + server.sent(DOCS) < moment or not part(DOCS).exists():
                time.sleep(0.002)
            running.kill()
            running.communicate()
            assert running.returncode == -signal.SIGKILL
            held.append(part(DOCS).stat().st_size)
        running = process(*arguments, env=environment)
        _, err = running.communicate(timeout=60)
        assert running.returncode == 0, err
        starts: dict[str, list[int]] = {META: [], DOCS: []}
        for request in server.requests:
            if request.name in starts:
                starts[request.name].append(request.start)
        assert starts == {META: [0], DOCS: [0, *held]}
        assert held == sorted(held) and held[-1] < len(sources[DOCS])
        disturbed = sha256()
        server.pause = 0.0
        calm = {"LLMFAIR_CACHE_DIR": str(tmp_path / "calm"), "IR_DATASETS_HOME": str(tmp_path / "calm")}
        running = process(*arguments, env=environment | calm)
        _, err = running.communicate(timeout=60)
        assert running.returncode == 0, err
        calm_pages = tmp_path / "calm" / "datasets" / folder().name / "pages.db"
        assert hashlib.sha256(calm_pages.read_bytes()).hexdigest() == disturbed
