"""Run folders that somebody or something damaged: one sentence naming the file and the field, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.api import open_run
from llmfair.asking.journal import read_rows
from llmfair.errors import UsageError, warn
from tests.cli.command import COMMANDS, copied, kept, llmfair, ran, refuses

READERS = (
    ("runs", "show", "hurt"),
    ("runs", "show", "hurt", "--json"),
    ("runs", "show", "hurt", "--answers"),
    ("runs", "show", "hurt", "--failures"),
    ("runs", "check", "hurt"),
    ("runs", "list", "--runs-dir", "."),
    ("score", "hurt"),
    ("compare", "whole", "hurt"),
    ("compare", "hurt", "whole"),
    ("report", "hurt"),
    ("report", "whole", "hurt", "-o", "both.html"),
)


def hurt(kind: str, file: str, harm: Callable[[Any], Any]) -> None:
    for name in ("hurt", "whole"):
        shutil.rmtree(name, ignore_errors=True)
        copied(kind, name)
    path = Path("hurt", file)
    path.write_text(json.dumps(harm(json.loads(path.read_text()))))


HARMS: list[Any] = [None, 7.5, "x", [], {}, "\ud800", float("nan"), float("inf"), 10**400]
"""What stands in the place of a value."""


def spoilt(document: Any, path: list[int], harm: Any, gone: bool) -> Any:
    """The document with one value, found by going down by these numbers, replaced or left out."""
    if not path or not isinstance(document, dict | list) or not document:
        return harm
    keys = [*document] if isinstance(document, dict) else [*range(len(document))]
    key = keys[path[0] % len(keys)]
    changed = document.copy()
    if gone and len(path) == 1:
        del changed[key]
    else:
        changed[key] = spoilt(document[key], path[1:], harm, gone)
    return changed


@pytest.mark.parametrize("kind", ["listwise", "pairwise", "sequential"])
@pytest.mark.parametrize("file", ["manifest.json", "results.json"])
@given(
    st.lists(st.integers(0, 99), max_size=3), st.sampled_from(HARMS), st.booleans(), st.sampled_from(READERS)
)
def test_a_damaged_document_is_told_in_a_sentence(
    kind: str, file: str, path: list[int], harm: Any, gone: bool, command: tuple[str, ...]
) -> None:
    """No command ends unexpectedly; where one is refused, it is for this file."""
    hurt(kind, file, lambda document: spoilt(document, path, harm, gone))
    found = llmfair(*command)
    assert found.code in (0, 1, 2) and "unexpected" not in found.err, found.err
    assert found.code != 2 or f"hurt/{file}:" in found.err, found.err


def staged(found: dict[str, Any]) -> dict[str, Any]:
    name = "../secret"
    return {**found, "stages": {name: True}, "settings": {**found["settings"], "stages": {name: "x"}}}


def flagged(**flags: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda found: found | {"flags": found["flags"] | flags}


@pytest.mark.parametrize(
    ("file", "harm", "says"),
    [
        ("results.json", lambda found: {**found, "rows": [*found["rows"], found["rows"][0]]}, "is there twice in `rows`"),
        ("results.json", lambda found: {**found, "chains": {}}, "Condition '{}' is missing in `chains`"),
        ("results.json", lambda found: {**found, "task": "elsewhere"}, "elsewhere"),
        ("manifest.json", lambda found: {**found, "task": "elsewhere"}, "elsewhere"),
        ("manifest.json", staged, "`$.stages`"),
        ("manifest.json", flagged(strateggy="windows"), "no flag `strateggy` is known here - at `$.flags`."),
        ("manifest.json", flagged(limit="many"), "flags.limit is 'many', but takes a whole number from 1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
def test_what_is_wrong_is_named(kind: str, file: str, harm: Callable[[Any], Any], says: str) -> None:
    hurt(kind, file, harm)
    found = llmfair("runs", "show" if file == "results.json" else "check", "hurt")
    condition = kept("results", "whole")["design"]["conditions"][0]
    assert found.code == 2 and f"hurt/{file}: " in found.err and says.format(condition) in found.err


@pytest.mark.whole
@pytest.mark.parametrize(
    "file", ["manifest.json", "results.json", "journal.jsonl", "per_query.csv", "candidates.jsonl"]
)
def test_a_file_of_gigabytes_takes_little_memory(file: str) -> None:
    hurt("listwise", "results.json", lambda document: document)
    os.truncate(Path("hurt", file), 600 << 20)
    tracemalloc.start()
    for command in (("runs", "list", "--runs-dir", "."), ("runs", "check", "hurt")):
        found = llmfair(*command)
        assert found.code in (0, 1, 2) and "unexpected" not in found.err, found.err
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 300 << 20


def test_a_journal_s_first_line_is_checked() -> None:
    for line, message in (
        ("null", "journal.jsonl:1: this is not the first line of a journal"),
        (
            '{"journal":1,"run":"x","identity":"another"}',
            "journal.jsonl:1: holds answers of 'another', not of",
        ),
    ):
        hurt("listwise", "results.json", lambda document: document)
        path = Path("hurt", "journal.jsonl")
        path.write_text("\n".join([line, *path.read_text().splitlines()[1:]]) + "\n")
        found = llmfair("runs", "check", "hurt")
        assert found.code == 1 and message in found.out


@pytest.mark.parametrize("tokens", ["2.5", "-7", "NaN", "99999999999999999999"])
def test_a_count_of_tokens_that_is_none_is_a_damaged_line(tokens: str) -> None:
    path = Path("journal.jsonl")
    row = '{"key":"k","probe":"p","text":"a","finish":"stop","about":{},"chat":[],"prompt_tokens":%s}'
    path.write_text("\n".join(["{}", row % tokens, row % "7", ""]))
    damaged: list[int] = []
    assert [found["prompt_tokens"] for found in read_rows(path, damaged)] == [7] and damaged == [2]


PER_QUERY: dict[str, tuple[Callable[[str], str | None], str]] = {
    "gone": (lambda text: None, "hurt/per_query.csv: cannot be read"),
    "torn": (lambda text: text[: len(text) // 2].rpartition(",")[0], "hurt/per_query.csv:"),
    "no number": (lambda text: text.replace(",0.", ",o.", 1), "hurt/per_query.csv:"),
    "digits of another script": (lambda text: text.replace(",0.", ",٠.", 1), "is not a finite number"),
    "without a column": (lambda text: text.replace("query_id", "query", 1), "hurt/per_query.csv:2: "),
}


@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
@pytest.mark.parametrize("harm", PER_QUERY)
def test_figures_of_queries_that_are_damaged(kind: str, harm: str) -> None:
    hurt(kind, "results.json", lambda document: document)
    (broken, message), path = PER_QUERY[harm], Path("hurt", "per_query.csv")
    text = broken(path.read_text())
    path.unlink() if text is None else path.write_text(text)
    if kind == "listwise":  # pairs are compared by their verdicts
        for one, other in (("whole", "hurt"), ("hurt", "whole")):
            found = llmfair("compare", one, other)
            assert found.code == 2 and message in found.err
    with pytest.raises(UsageError, match=message if text is not None else "keeps no figures"):
        _ = open_run("hurt").per_query


def test_a_ranking_of_a_query_that_has_no_list() -> None:
    hurt("listwise", "results.json", lambda document: document)
    path = Path("hurt", "rankings", "female.run")
    path.write_text("nobody" + path.read_text())
    refuses(f"{path}: ranks the query nobodyfilm, which candidates.jsonl lacks.", "report", "hurt")


JOURNAL: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "about nothing": lambda row: row | {"about": {}},
    "about null": lambda row: row | {"about": None},
    "of no probe": lambda row: {name: value for name, value in row.items() if name != "probe"},
    "of no chat": lambda row: {name: value for name, value in row.items() if name != "chat"},
}


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
@pytest.mark.parametrize("harm", JOURNAL)
def test_a_line_of_the_journal_that_is_none_of_the_audits(kind: str, harm: str) -> None:
    hurt(kind, "results.json", lambda document: document)
    path = Path("hurt", "journal.jsonl")
    head, first, *others = path.read_text().splitlines()
    lines = [head, json.dumps(JOURNAL[harm](json.loads(first))), *others]
    path.write_text("".join(f"{line}\n" for line in lines))
    for command in (("runs", "show", "hurt", "--answers"), ("report", "hurt")):
        warn.cache_clear()
        found = llmfair(*command)
        assert (found.code, "Traceback" in found.err) == (0, False), (command, found.err)
        assert "hurt/journal.jsonl: 1 line cannot be read as answers of this audit" in found.err


@pytest.mark.parametrize("kind", ["listwise", "pairwise", "sequential"])
@pytest.mark.parametrize("manifest", ["{", None, '{"schema": 1, "settings": {}}'])
def test_a_lost_manifest_strands_no_answer(kind: str, manifest: str | None) -> None:
    """The same command makes it anew, and asks nothing."""
    copied(kind, "kept")
    path = Path("kept", "manifest.json")
    path.unlink() if manifest is None else path.write_text(manifest)
    warn.cache_clear()
    found = ran(*COMMANDS[kind], "-o", "kept")
    assert ("manifest.json" in found.err and "set aside" in found.err) is (manifest is not None)
    assert kept("manifest", "kept")["calls"] == 0 and kept("manifest", "kept")["status"] == "complete"
    aside = Path("kept", "manifest.1.json")
    assert (aside.read_text() if aside.exists() else None) == manifest


def test_a_manifest_is_made_anew_for_the_model_alone_that_answered() -> None:
    copied("listwise", "kept")
    Path("kept", "manifest.json").write_text("")
    refuses("holds answers of", *COMMANDS["listwise"], "-m", "fake:oracle", "-o", "kept", code=1)


@pytest.mark.parametrize("file", ["journal.jsonl", ".lock", "metrics.csv", "texts.jsonl"])
@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_what_is_no_file_is_named(file: str, what: str) -> None:
    copied("listwise", "kept")
    path = Path("kept", file)
    path.unlink(missing_ok=True)
    path.mkdir() if what == "folder" else os.mkfifo(path)
    found = llmfair(*COMMANDS["listwise"], "-o", "kept")
    assert "unexpected" not in found.err
    assert found.code == 0 or f"kept/{file}" in found.err


@pytest.mark.parametrize(
    "command",
    [("runs", "list"), ("runs", "show", "x"), ("runs", "check", "x"), ("report", "x"), ("compare", "x", "y")],
)
def test_what_nobody_expects_comes_with_its_traceback(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError("by nobody")

    for name in ("find_run", "list_runs"):
        monkeypatch.setattr(f"llmfair.rundir.{name}", breaks)
    found = llmfair(*command)
    assert found.code == 1
    assert found.err == "Error: unexpected ZeroDivisionError: by nobody\n  repeat with -v for the traceback\n"
    assert "in breaks" in llmfair(*command, "-v").err


def test_no_flag_is_suggested_that_a_command_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError("by nobody")

    monkeypatch.setattr("llmfair.registry.names", breaks)
    assert llmfair("doctor").err == "Error: unexpected ZeroDivisionError: by nobody\n"
