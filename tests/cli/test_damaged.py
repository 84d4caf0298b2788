"""Run folders that somebody or something damaged: one sentence naming the file and the field, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llmfair.api import open_run
from llmfair.asking.journal import read_rows
from llmfair.errors import UsageError, warn
from tests.cli.command import COMMANDS, copied, kept, llmfair, ran, refuses

HARMS: dict[str, Callable[[dict[str, Any], str], Any]] = {
    "gone": lambda document, name: {key: value for key, value in document.items() if key != name},
    "of another type": lambda document, name: {**document, name: 7.5},
    "null": lambda document, name: {**document, name: None},
}
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


def told_in_a_sentence(file: str) -> None:
    """No command ends unexpectedly; where one is refused, it is for this file."""
    for command in READERS:
        found = llmfair(*command)
        assert found.code in (0, 1, 2) and "unexpected" not in found.err, (command, found.err)
        assert found.code != 2 or f"hurt/{file}:" in found.err, (command, found.err)


@pytest.mark.parametrize("kind", ["listwise", "sequential"])
@pytest.mark.parametrize("file", ["manifest.json", "results.json"])
@pytest.mark.parametrize("document", [[], None, {"schema": 1}, {"schema": 2, "task": "pairwise"}])
def test_a_file_of_another_shape(kind: str, file: str, document: object) -> None:
    hurt(kind, file, lambda _: document)
    told_in_a_sentence(file)


@pytest.mark.slow  # every field, by every command; tests.fuzz.runs draws from them
@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
@pytest.mark.parametrize("file", ["manifest.json", "results.json"])
@pytest.mark.parametrize("harm", HARMS)
def test_a_field_of_another_shape(kind: str, file: str, harm: str) -> None:
    for name in json.loads(copied(kind, "run").joinpath(file).read_text()):
        hurt(kind, file, lambda document, name=name: HARMS[harm](document, name))  # type: ignore[misc]
        told_in_a_sentence(file)


@pytest.mark.whole
@pytest.mark.parametrize(
    "value", ["\ud800", float("nan"), float("inf"), 10**400], ids=["half a character", "nan", "inf", "large"]
)
def test_a_value_that_json_has_no_form_for(value: object) -> None:
    for file, harmed in (
        ("results.json", lambda found: {**found, "rows": [{**row, "value": value} for row in found["rows"]]}),
        ("results.json", lambda found: {**found, "design": {**found["design"], "queries": value}}),
        ("manifest.json", lambda found: {**found, "planned_calls": value}),
        ("manifest.json", lambda found: {**found, "cost": value}),
    ):
        hurt("listwise", file, harmed)
        told_in_a_sentence(file)


def test_a_row_that_stands_twice_is_named() -> None:
    hurt("listwise", "results.json", lambda found: {**found, "rows": [*found["rows"], found["rows"][0]]})
    refuses("hurt/results.json: ", "runs", "show", "hurt")


@pytest.mark.parametrize("name", ["../secret", "x" * 5_000, ""])
def test_a_stage_lies_in_the_folder(name: str) -> None:
    def staged(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "stages": {name: True}, "settings": {**found["settings"], "stages": {name: "x"}}}

    hurt("listwise", "manifest.json", staged)
    told_in_a_sentence("manifest.json")


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


def test_results_of_a_kind_that_is_not_installed_say_so() -> None:
    for file in ("manifest.json", "results.json"):
        hurt("pairwise", file, lambda document: {**document, "task": "elsewhere"})
        found = (
            llmfair("runs", "show", "hurt") if file == "results.json" else llmfair("runs", "check", "hurt")
        )
        assert found.code == 2 and f"hurt/{file}" in found.err and "elsewhere" in found.err


PER_QUERY: dict[str, tuple[Callable[[str], str | None], str]] = {
    "gone": (lambda text: None, "hurt/per_query.csv: cannot be read"),
    "torn": (lambda text: text[: len(text) // 2].rpartition(",")[0], "hurt/per_query.csv:"),
    "no number": (lambda text: text.replace(",0.", ",o.", 1), "hurt/per_query.csv:"),
    "a line twice": (lambda text: text + text.splitlines(keepends=True)[-1], "it is there twice"),
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


@pytest.mark.whole
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"strateggy": "windows"}, "no flag `strateggy` is known here - at `$.flags`."),
        ({"limit": "many"}, "flags.limit is 'many', but takes a whole number from 1"),
        ({"input": "nothing"}, "flags.input is 'nothing', but takes one of title, text."),
        ({"level": 7.0}, "flags.level is 7.0, but takes a number above 0 and below 1."),
    ],
)
@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
def test_a_flag_that_nobody_knows_or_takes(kind: str, flags: dict[str, Any], message: str) -> None:
    hurt(kind, "manifest.json", lambda document: document | {"flags": document["flags"] | flags})
    found = llmfair("runs", "check", "hurt")
    assert found.code == 2 and "hurt/manifest.json: " in found.err and message in found.err
    assert llmfair("report", "hurt").code == 0  # which says no command, and shows all else


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
    stranger = (
        f"1 answer is of no probe of this audit and left out, that of {json.loads(first)['probe']!r} first"
    )
    told = stranger if harm == "about nothing" else "1 line cannot be read and left out, this one first"
    for command in (("runs", "show", "hurt", "--answers"), ("report", "hurt")):
        warn.cache_clear()
        found = llmfair(*command)
        assert (found.code, "Traceback" in found.err) == (0, False), (command, found.err)
        assert "hurt/journal.jsonl:" in found.err and told in found.err


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


@pytest.mark.slow  # every field, by every command; tests.fuzz.runs draws from them
@pytest.mark.parametrize("kind", ["listwise", "pairwise", "sequential"])
def test_a_condition_that_a_field_does_not_have(kind: str) -> None:
    document = kept("results", copied(kind, "run"))
    condition = document["design"]["conditions"][0]

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {"odd" if name == condition else name: one for name, one in value.items()}
        return value

    def odd(document: dict[str, Any], name: str) -> dict[str, Any]:
        return document | {name: renamed(document[name])}

    for name in document:
        hurt(kind, "results.json", partial(odd, name=name))
        told_in_a_sentence("results.json")
    for conditions in (["odd"], [*document["design"]["conditions"], "odd"]):
        path, new = Path("hurt", "results.json"), document["design"] | {"conditions": conditions}
        path.write_text(json.dumps(document | {"design": new}))
        found = llmfair("runs", "show", "hurt")
        assert found.code == 2
        assert "hurt/results.json: Condition 'odd' is missing in `chains`." in found.err
    hurt(kind, "results.json", lambda document: {**document, "rows": []})
    told_in_a_sentence("results.json")


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
