"""Bad input: one sentence and a way out on stderr, the right exit code, no traceback; with --json one document."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import llmfair, only_run
from tests.folders import balanced, write_folder
from tests.servers import Server

SMALL = ("listwise", "-n", "1", "--orders", "1", "--passes", "1")
Case = Callable[[], tuple[str | Path, ...]]


def broken_prompt() -> tuple[str, ...]:
    Path("mine.toml").write_text('id = "mine"\nsource = \n')
    return (*SMALL, "--prompt", "mine.toml")


def prompt_without_a_placeholder() -> tuple[str, ...]:
    llmfair("prompts", "show", "listwise")
    text = llmfair("prompts", "show", "listwise").out.replace("{title}", "{titel}")
    Path("mine.toml").write_text(text)
    return (*SMALL, "--prompt", "mine.toml")


def folder_of_other_settings() -> tuple[str, ...]:
    assert llmfair(*SMALL, "-o", "run").code == 0
    return (*SMALL, "-o", "run", "--seed", "9")


def foreign_journal() -> tuple[str, ...]:
    assert llmfair(*SMALL, "-o", "run").code == 0
    Path("run/journal.jsonl").write_text("garbage\n")
    return (*SMALL, "-o", "run")


def output_below_a_file() -> tuple[str, ...]:
    Path("file").write_text("")
    return (*SMALL, "-o", "file/run")


def broken_folder() -> tuple[str | Path, ...]:
    folder = write_folder(Path("mine"), balanced(1, 2, 2))
    (folder / "docs.jsonl").write_text("oops\n")
    return ("listwise", "-d", folder)


def folder_without_mirror() -> tuple[str | Path, ...]:
    folder = write_folder(Path("mine"), balanced(1, 2, 4))
    return ("listwise", "-d", folder, "--initial", "mirrored", "--orders", "2")


CASES: list[tuple[str, Case, int, str]] = [
    ("unknown dataset", lambda: ("listwise", "-d", "sampel"), 2, "no dataset 'sampel'. Did you mean 'sample'?"),
    ("unknown prefix", lambda: ("listwise", "-m", "opnai:gpt"), 2, "no backend 'opnai'. Did you mean 'openai'?"),
    ("no prefix", lambda: ("listwise", "-m", "gpt-4"), 2, "'gpt-4' is not a model."),
    ("unknown simulated model", lambda: ("listwise", "-m", "fake:biasd"), 2, "Did you mean 'biased'?"),
    ("unknown parameter", lambda: ("listwise", "-m", "fake:biased,noize=1"), 2, "Did you mean 'noise'?"),
    ("bad parameter", lambda: ("listwise", "-m", "fake:biased,noise=x"), 2, "is not a number"),
    ("missing key", lambda: (*SMALL, "-m", "openai:gpt-4o"), 1, "api.openai.com needs a key."),
    ("unreachable", lambda: (*SMALL, "-m", "openai:x", "--base-url", "http://127.0.0.1:9/v1"), 1, "connection refused"),
    ("bad URL", lambda: (*SMALL, "-m", "openai:x", "--base-url", "nowhere"), 2, "is not the address of a server"),
    ("window under step", lambda: (*SMALL, "--window", "4", "--step", "5"), 2, "--step 5 is larger than --window 4"),
    ("window of one", lambda: (*SMALL, "--window", "1", "--step", "1"), 2, "--window is 1"),
    ("not writable", output_below_a_file, 2, "cannot write the run folder"),
    ("foreign journal", foreign_journal, 1, "journal.jsonl:1: this is not the first line of a journal."),
    ("broken prompt", broken_prompt, 2, "prompt mine.toml is not TOML"),
    ("prompt placeholder", prompt_without_a_placeholder, 2, "placeholder 'titel' is not declared"),
    ("unknown prompt", lambda: (*SMALL, "--prompt", "listwize"), 2, "no prompt 'listwize'. Did you mean 'listwise'?"),
    ("other settings", folder_of_other_settings, 1, "seed: 0 there, 9 now"),
    ("limit of none", lambda: ("listwise", "--limit", "0"), 2, "--limit is 0, but is at least 1."),
    ("limit no number", lambda: ("listwise", "--limit", "x"), 2, "'--limit'"),
    ("unknown flag", lambda: ("listwise", "--windw", "5"), 2, "--windw"),
    ("unknown command", lambda: ("listwize",), 2, "listwize"),
    ("unknown measure", lambda: (*SMALL, "--measures", "nDCQ@20"), 2, "no measure 'nDCQ'. Did you mean 'nDCG'?"),
    ("measure of pairs", lambda: (*SMALL, "--measures", "AdjustedOdds"), 2, "AdjustedOdds is a measure of pairs"),
    ("measure of lists", lambda: ("pairwise", "--measures", "P@20"), 2, "P is a measure of lists"),
    ("gate of lists", lambda: ("pairwise", "--require", "ExpRatio>=0.8"), 2, "ExpRatio is a measure of lists"),
    ("ranker of pairs", lambda: ("pairwise", "-m", "bm25"), 2, "bm25 is a ranker, which answers no questions."),
    ("unknown variant", lambda: (*SMALL, "--variants", "femal"), 2, "Did you mean 'female'?"),
    ("unknown attribute", lambda: (*SMALL, "-a", "gendr"), 2, "Did you mean 'gender'?"),
    ("unknown query", lambda: (*SMALL, "--queries", "phisics"), 2, "Did you mean 'physics'?"),
    ("unknown policy", lambda: (*SMALL, "--on-bad-answer", "retrie"), 2, "--on-bad-answer 'retrie'"),
    ("unknown choice", lambda: (*SMALL, "--read", "loose"), 2, "'loose' is not one of"),
    ("two models, one folder", lambda: (*SMALL, "-m", "fake:oracle", "-m", "fake:random", "-o", "x"), 2, "several models"),
    ("bad extra", lambda: (*SMALL, "-m", "openai:x", "--base-url", "http://127.0.0.1:9", "--extra", "a=b"), 2, "not JSON"),
    ("extra that is no number", lambda: (*SMALL, "-m", "openai:x", "--base-url", "http://127.0.0.1:9", "--extra", "a=1e999"), 2, "not JSON"),
    ("broken folder", broken_folder, 2, "docs.jsonl:1: not a JSON object"),
    ("unequal sides", folder_without_mirror, 2, "needs equal numbers of both sides"),
    ("no run", lambda: ("runs", "show", "nothing"), 2, "no run 'nothing'"),
    ("no folder to show", lambda: ("datasets", "show", "nothing"), 2, "no dataset 'nothing'"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "code", "message"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_one_sentence_and_a_way_out(case: Case, code: int, message: str) -> None:
    arguments = case()
    found = llmfair(*arguments)
    assert found.code == code, found.err
    lines = found.err.splitlines()
    if "calls; window" in lines[0]:
        del lines[0]  # what was about to be asked of a server that cannot be
    assert lines[0].startswith("Error: ") and message in found.err
    assert found.out == "" and "Traceback" not in found.err
    assert 2 <= len(lines) <= 3 and lines[-1].startswith("  ") and lines[-1].strip(), "an indented hint"
    if arguments[0] != "listwize":
        as_json = llmfair(*arguments, "--json")
        assert as_json.code == code
        document = json.loads(as_json.out)
        assert document["exit_code"] == code and message in document["error"]["message"]
        assert document["error"]["hint"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission() -> None:
    Path("locked").mkdir(mode=0o500)
    found = llmfair(*SMALL, "--runs-dir", "locked")
    assert found.code == 2 and "cannot write" in found.err


def test_a_corrupt_line_in_the_middle_is_named_and_asked_again() -> None:
    with Server() as server:
        arguments = (*SMALL, "-m", "openai:x", "--base-url", server.base_url, "--no-cache")
        assert llmfair(*arguments).code == 0
        journal = only_run() / "journal.jsonl"
        lines = journal.read_text().splitlines()
        lines[3] = lines[3][:50] + "\x00garbage"
        journal.write_text("\n".join(lines) + "\n")
        before = len(server.requests)
        found = llmfair(*arguments)
        assert found.code == 0 and "journal.jsonl:4: not readable, skipped" in found.err
        assert len(server.requests) == before + 1
        assert llmfair("runs", "check", only_run()).code == 0


def test_a_missing_extra_sentence_for_an_unexpected_error_names_v(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("llmfair.audits.listwise.making.make_design", broken)
    found = llmfair(*SMALL)
    assert found.code == 1 and "unexpected RuntimeError: a bug" in found.err
    assert "-v" in found.err and "Traceback" not in found.err
    assert "Traceback" in llmfair(*SMALL, "-v").err


@pytest.mark.parametrize(
    "flags",
    [("--extra", "foo"), ("--extra", "a=b"), ("--template-arg", "x"), ("--measures", "AdjustedOdds")],
)
def test_a_malformed_flag_leaves_no_run_behind(flags: tuple[str, ...]) -> None:
    assert llmfair(*SMALL, "-m", "openai:x", "--base-url", "http://127.0.0.1:9/v1", *flags).code == 2
    assert not Path("runs").exists()


def test_no_model_is_asked_while_another_cannot_be() -> None:
    found = llmfair("pairwise", "-n", "1", "-m", "fake:biased", "-m", "bm25")
    assert found.code == 2 and "bm25 is a ranker" in found.err and not Path("runs").exists()


def test_the_help_of_pairs_speaks_of_pairs() -> None:
    told = " ".join(llmfair("pairwise", "--help").out.replace("│", " ").split())
    for of_lists in ("fake:… or bm25", "by the window's size", "Shuffles of the permutation test"):
        assert of_lists not in told
    assert "no pair twice" in told
