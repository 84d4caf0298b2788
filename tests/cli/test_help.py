"""`--help` of every command, found by walking the app itself, what `llmfair` alone says, and what Tab offers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any

import pytest

from llmfair.audits.kind import Kind, kinds
from llmfair.cli.app import command
from llmfair.cli.help import SHORT, AdvancedPanel
from llmfair.cli.options import settings_of_commands
from tests.cli.command import Snapshot, llmfair, refuses, transcript

NOT_SET_BY_VARIABLE = {"help_all", "help", "version", "install_completion", "show_completion"}
FIRST_WEEK = 30
"""Flags that a short page shows, at most: about 25."""


def walk(one: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The app and everything below it, with the words that lead there."""
    yield words, one
    for name, below in getattr(one, "commands", {}).items():
        yield from walk(below, (*words, name))


EVERYTHING = dict(walk(command()))
LEAVES = {words: one for words, one in EVERYTHING.items() if not hasattr(one, "commands")}
LONG = [
    words
    for words, one in LEAVES.items()
    if any(isinstance(i.rich_help_panel, AdvancedPanel) for i in one.params if hasattr(i, "rich_help_panel"))
    and len(one.params) > SHORT + 3  # RUN and the two flags of help beside what a page shows whole
]


def shown(words: tuple[str, ...], flag: str = "--help") -> str:
    return page(words, flag, os.environ.get("COLUMNS", ""))


@cache
def page(words: tuple[str, ...], flag: str, columns: str) -> str:
    """A page of help, made once for each width."""
    found = llmfair(*words, flag)
    assert (found.code, found.err) == (0, ""), words
    return found.out


def examples(text: str) -> list[str]:
    return [line.strip() for line in text.rpartition("Examples\n")[2].partition("\n\n")[0].splitlines()]


def flags(text: str) -> list[str]:
    """The long names of the flags of a page, in order."""
    return [found[1] for found in re.finditer(r"^  (?:-\w, )?(--[a-z0-9-]+)", text, re.MULTILINE)]


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("words", EVERYTHING, ids=lambda words: " ".join(words) or "llmfair")
def test_the_whole_help_names_every_flag_and_variable_and_ends_with_examples(words: tuple[str, ...]) -> None:
    text = shown(words, "--help-all")
    lines = text.splitlines()
    assert lines[0].startswith(" ".join(("Usage: llmfair", *words, "[OPTIONS]")))
    assert "…" not in text.replace("COMMAND …", "").replace("RUN…", "").replace(
        "fake:…", ""
    )  # nothing is cut off
    for item in EVERYTHING[words].params:
        if item.param_type_name == "argument":
            assert item.help and f"  {item.metavar}" in lines
            continue
        if item.hidden:
            assert item.opts[0] not in text.split()
            continue
        if item.opts == ["--help-all"] and words not in LONG:
            assert text == shown(words), "all there is"
            continue
        (line,) = (line for line in lines if re.search(rf"(^| ){item.opts[0]}( |$)", line) and line[2] == "-")
        assert all(name in line for name in (*item.opts, *item.secondary_opts))
        if item.name not in NOT_SET_BY_VARIABLE:
            below = lines[lines.index(line) + 1]
            assert item.envvar and (line.endswith(item.envvar) or below.strip() == item.envvar)
            assert re.fullmatch(r"LLMFAIR_[A-Z0-9_]+", item.envvar)
    told = examples(text)
    assert told and all("llmfair" in example for example in told)


@pytest.mark.parametrize("words", LONG, ids=" ".join)
def test_a_long_help_shows_what_a_first_week_needs_and_counts_the_rest(words: tuple[str, ...]) -> None:
    text, whole = shown(words), shown(words, "--help-all")
    short, every = flags(text), flags(whole)
    with_data = "--dataset" in every  # other commands take those of a run
    assert {"--format", "--help", "--help-all", *["--dataset"] * with_data} <= {*short} < {*every}
    assert short == [name for name in every if name in short], "where they stand on the whole page"
    assert (SHORT - 5) * with_data < len(short) <= FIRST_WEEK
    more = len(every) - len(short)
    assert text.endswith(f"\n\n{more} more flags: llmfair {' '.join(words)} --help-all\n")
    assert "more flags" not in whole and examples(whole) == examples(text)
    for name in short:  # as on the whole page, with its variable and meaning
        entry = re.compile(rf"^  (?:-\w, )?{name}(?=\s).*\n(?:      .*\n)+", re.MULTILINE)
        assert entry.findall(text) == entry.findall(whole), name


def test_pages(snapshot: Snapshot) -> None:
    snapshot("help", transcript("--help", "listwise --help", "finetune-lora --help", "score --help"))


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_a_command_has_two_examples_of_its_own_whose_flags_exist(words: tuple[str, ...]) -> None:
    told = examples(shown(words))
    assert len(told) == 2
    known = {name for item in LEAVES[words].params for name in (*item.opts, *item.secondary_opts)}
    for example in told:
        assert " ".join(("llmfair", *words)) in example
        ours = example.partition(" ".join(("llmfair", *words)))[2]
        flags = [word for word in ours.split() if re.fullmatch(r"--?[a-z][a-z-]*", word)]
        assert {*flags} <= known, example


def test_every_setting_is_a_flag_and_explains_itself() -> None:
    for classes in settings_of_commands().values():
        for settings in classes:
            for item in fields(settings):
                meaning = item.metadata["meaning"]
                assert meaning.endswith(".") and len(meaning) > 10, item.name
                assert meaning[0].isupper() or meaning[0] in "kp" or meaning.startswith("openai:"), item.name


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.name)
def test_fail_on_names_the_verdicts_that_an_audit_has(kind: Kind) -> None:
    (item,) = (item for item in fields(kind.settings) if item.name == "fail_on")
    every = {status for one in kinds() for status in one.words.statuses[:-1]}
    assert {status for status in every if status in item.metadata["meaning"]} == {*kind.words.statuses[:-1]}


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        ("listwise", ()),
        ("pairwise", ("--ci", "--permutations")),
        ("plan listwise", ("--report", "--open", "--fresh", "--dry-run", "--junit", "--label")),
        (
            "calibrate pairwise",
            ("--ci", "--permutations", "--report", "--open", "--fresh", "--dry-run", "--label"),
        ),
    ],
)
def test_what_changes_nothing_is_taken_but_not_shown(words: str, idle: tuple[str, ...]) -> None:
    hidden = {item.opts[0] for item in LEAVES[*words.split(),].params if getattr(item, "hidden", False)}
    assert hidden == {*idle}
    if words == "plan listwise":
        assert llmfair(*words.split(), "-n", "2", "--no-report").code == 0, "as the audit's own flags are"


@pytest.mark.parametrize("width", [40, 200])
def test_no_width_loses_a_flag_or_a_variable(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = shown(("listwise",), "--help-all")
    for item in LEAVES["listwise",].params:
        assert all(name in text for name in item.opts) and (item.envvar or "") in text
    wrapped = [line for line in text.splitlines() if line.startswith(" " * 6)]
    assert max(map(len, wrapped)) <= max(width, 40)


def test_alone_it_says_in_five_lines_what_to_try_first() -> None:
    found = llmfair()
    assert (found.code, found.err) == (0, "")
    lines = found.out.splitlines()
    assert len(lines) == 5 and max(map(len, lines)) <= 80
    for line in lines[:3]:
        words = line.split("  ")[0].split()[1:]
        assert llmfair(*words, "--help").code == 0
    assert "--help" in lines[3] and "README.md" in lines[4]


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version_is_one_line(flag: str) -> None:
    import llmfair as package

    found = llmfair(flag)
    assert (found.code, found.out, found.err) == (0, f"llmfair {package.__version__}\n", "")


def test_a_group_without_a_command_names_them_in_a_sentence() -> None:
    groups = {name: group for name, group in command().commands.items() if hasattr(group, "commands")}
    for name, group in groups.items():
        found = refuses("Missing command.", name)
        assert found.err.splitlines()[1:] == [f"  llmfair {name} {'|'.join(group.commands)}"]
    assert "runs" in groups


@pytest.mark.whole
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("pla", ["plan"]),
        ("listwise --max-c", ["--max-calls", "--max-cost"]),
        ("listwise --initial r", ["random"]),
    ],
)
def test_what_bash_is_offered(words: str, says: list[str]) -> None:
    asked = {"_LLMFAIR_COMPLETE": "complete_bash", "COMP_WORDS": f"llmfair {words}"}
    asked["COMP_CWORD"] = str(len(words.split()))
    found = subprocess.run(
        [sys.executable, "-m", "llmfair"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (found.returncode, found.stderr, found.stdout.split()) == (0, "", says)
