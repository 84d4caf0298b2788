"""What the shell is offered after Tab: every command, flag, id and run folder; at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmfair import registry
from llmfair.backends.fake import answerers, models_of
from llmfair.cli import complete
from tests.fresh import loaded_by, printed_by
from tests.pace import within

pytestmark = pytest.mark.whole

KINDS: dict[str, registry.What] = {
    "backends": "backend", "rankers": "ranker", "strategies": "strategy", "measures": "measure",
    "datasets": "dataset",
}  # fmt: skip


EACH = """
import json, os, sys
lines = [json.loads(line) for line in sys.stdin]
from llmfair.cli import app
for words in lines:
    if os.fork() == 0:
        os.environ |= {"COMP_WORDS": " ".join(["llmfair", *words]), "COMP_CWORD": str(len(words))}
        sys.argv = ["llmfair"]
        app.main()
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, words
    print("--", flush=True)
"""
"""A process for each, forked from one that has imported what all of them need."""


def offered_each(*asked: tuple[str, ...]) -> list[list[str]]:
    """What bash is told after each of these words."""
    found = subprocess.run(
        [sys.executable, "-c", EACH],
        env={**os.environ, "_LLMFAIR_COMPLETE": "complete_bash"},
        input="".join(f"{json.dumps(words)}\n" for words in asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    return [part.split() for part in found.stdout.split("--\n")[:-1]]


def offered(*words: str, code: int = 0) -> list[str]:
    """What bash is told after these words, the last of which is being written."""
    asked = {
        "_LLMFAIR_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["llmfair", *words]),
        "COMP_CWORD": str(len(words)),
    }
    found = subprocess.run(
        [sys.executable, "-m", "llmfair"], env={**os.environ, **asked}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (code, "")
    return found.stdout.split()


def test_names_are_those_that_are_registered() -> None:
    # of an interpreter of its own: other tests register what is theirs
    asked = f"import json; from llmfair.registry import names; print(json.dumps([names(k) for k in {[*KINDS.values()]}]))"
    for group, known in zip(KINDS, json.loads(printed_by(asked)), strict=True):
        assert [*complete.KNOWN.get(group, complete.strategies())] == known
    assert [*complete.FAKE] == sorted(f"fake:{name}" for name in models_of(answerers().values()))


def test_what_is_offered() -> None:
    expected: list[tuple[tuple[str, ...], list[str]]] = [
        (("pla",), ["plan"]),
        (("plan", ""), ["listwise", "pairwise", "rag", "refine"]),
        (("listwise", "--max-c"), ["--max-calls", "--max-cost"]),
        (("listwise", "-d", "trec-fair/2022/"), ["trec-fair/2022/eval/gender", "trec-fair/2022/eval/location", "trec-fair/2022/gender", "trec-fair/2022/location"]),
        (("pairwise", "--attribute", ""), ["gender", "location"]),
        (("listwise", "--measures", "P@20,Exp"), ["P@20,ExpRatio", "P@20,Exposure"]),
        (("listwise", "-m", "mono"), ["monobert", "monot5"]),
        (("pairwise", "-m", "op"), ["openai:"]),
        (("listwise", "--initial", "r"), ["random"]),
        (("refine", "--baseline", "fa"), ["fair-star"]),
        (("listwise", "--preset", "paper+d"), ["paper+deltr"]),
        (("prompts", "show", "list"), ["listwise", "listwise-fair", "listwise-general", "listwise-general-fair"]),
        (("listwise", "--prompt", "ge"), ["general"]),
        (("datasets", "show", "sa"), ["sample"]),
        (("doctor", "-m", "fake:"), ["fake:biased", "fake:name", "fake:oracle", "fake:random", "fake:reader", "fake:refiner"]),
    ]  # fmt: skip
    found = offered_each(*[words for words, _ in expected])
    for (words, says), told in zip(expected, found, strict=True):
        assert told == says, words


def test_folders_are_offered_as_runs_and_datasets_with_attributes_of_their_own() -> None:
    for name in ("listwise-one", "listwise-two", "other"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "manifest.json").touch()
    Path("runs/listwise-nothing").mkdir()
    Path("mine").mkdir()
    Path("mine/groups.tsv").touch()
    Path("mine/attributes.toml").write_text('[seniority]\nprotected = ["junior"]\n')
    Path("broken").mkdir()
    Path("broken/attributes.toml").write_text("[")
    assert offered_each(
        ("runs", "show", "li"), ("compare", "listwise-one", "li"), ("report", "runs/o"),
        ("runs", "check", "--runs-dir", "nowhere", "li"), ("listwise", "-d", "mi"),
        ("listwise", "-d", "mine", "-a", ""), ("listwise", "-d", "broken", "-a", "g"),
    ) == [
        ["listwise-one", "listwise-two"],
        ["listwise-two"],
        ["runs/other"],
        [],
        ["mine"],
        ["seniority", "gender", "location"],
        ["gender"],
    ]  # fmt: skip


def test_names_of_other_packages_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "site" / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[llmfair.measures]\nTheirRatio = not.imported:ever\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), *sys.path]))
    assert offered("listwise", "--measures", "Their") == ["TheirRatio"]


def test_it_answers_within_the_bar_and_imports_nothing_heavy() -> None:
    within(0.4, lambda: offered("listwise", "--measures", "Exp"))
    loaded = loaded_by(
        "from llmfair.cli import complete; import typer\n"
        "complete.measures('E'); complete.models(); complete.datasets('s'); complete.prompts()"
    )
    assert not loaded & {"numpy", "rich", "scipy", "torch", "ir_measures"}


def test_the_script_that_a_shell_runs_asks_for_what_is_offered() -> None:
    asked = {**os.environ, "_LLMFAIR_COMPLETE": "source_bash"}
    found = subprocess.run(
        [sys.executable, "-m", "llmfair"], env=asked, capture_output=True, text=True, check=True
    )
    assert "_LLMFAIR_COMPLETE=complete_bash" in found.stdout and "complete -o default" in found.stdout
