"""What the README shows is what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from llmfair.backends.fake import MODELS
from tests.cli.command import llmfair

README = (Path(__file__).resolve().parents[1] / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", README, re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """Command lines and what the README prints below them."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, printed) for command, _, printed in (part.partition("\n") for part in parts)]


def tidy(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("block", BLOCKS, ids=[commands(block)[-1][0] for block in BLOCKS])
def test_transcripts(block: str) -> None:
    """The commands of a block run one after the other in one folder, empty at first."""
    for command, printed in commands(block):
        program, *arguments = shlex.split(command)
        assert program == "llmfair"
        found = llmfair(*arguments)
        assert tidy(found.out) == tidy(printed), command


def test_it_opens_with_the_two_set_up_commands() -> None:
    lines = [line for line in README.splitlines() if line.strip()]
    assert lines[:2] == ["# llmfair", "```"]
    assert lines[2].startswith("pip install . && llmfair listwise ")
    assert lines[3].startswith('pip install -e ".[test]" && pytest ')


def test_it_says_how_to_plant_a_bias() -> None:
    for name, default in MODELS["biased"].items():
        assert re.search(rf"`{name}` [^`]*\b{abs(default):g}\b", README), name
    for model in MODELS:
        assert f"fake:{model}" in README and f"fake:{model}" in llmfair("doctor").out
    (command,) = re.findall(r"`llmfair (pairwise -m fake:\S+)`", README)
    assert llmfair(*command.split(), "--dry-run").code == 0


def test_every_command_in_the_table_exists() -> None:
    for command in ("listwise", "datasets list", "datasets show", "prompts list", "prompts show", "prompts render",
                    "runs list", "runs show", "runs check", "doctor", "score"):  # fmt: skip
        found = llmfair(*command.split(), "--help")
        assert found.code == 0, found.err
        if command == "listwise":
            assert "LLMFAIR_WINDOW" in found.out
    assert llmfair("--version").out.startswith("llmfair 0.")
    first = llmfair()
    assert first.code == 0 and len(first.out.splitlines()) <= 5
