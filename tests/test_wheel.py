"""What is installed is whole: prompts, data and types travel in the wheel, nothing else does."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.building import built

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


def test_it_holds_prompts_data_and_types_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "llmfair/prompts/listwise.toml",
        "llmfair/prompts/rag/lamp-1.toml",
        "llmfair/data/attributes.toml",
        "llmfair/data/rag-sample/questions.jsonl",
        "llmfair/data/sample/docs.jsonl",
        "llmfair/report/page.html.j2",
        "llmfair/report/style.css",
        "llmfair/py.typed",
    ):
        assert wanted in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"llmfair"}
    assert not [name for name in names if "test" in name or "shared" in name]


@pytest.mark.whole
def test_it_holds_every_file_that_is_named_to_a_user(wheel: Path) -> None:
    """In messages, hints, help and pages: who installed the wheel has no checkout to look into."""
    there = set(zipfile.ZipFile(wheel).namelist())
    for path in sorted((ROOT / "llmfair").rglob("*")):
        if path.suffix in (".py", ".j2"):
            text = path.read_text("utf-8")
            told = texts_of(text, "cli" in path.parts) if path.suffix == ".py" else [text]
            named = {file for one in told for file in IN_A_CHECKOUT.findall(one)}
            missing = [file for file in named if f"llmfair/{file}" not in there]
            assert not missing, f"{path.name} names {missing}"


IN_A_CHECKOUT = re.compile(r"(?<![\w./-])(?:(?:data|prompts|docs|benchmarks|tests)/[\w./-]*\w|[a-z-]+\.md\b)")


def texts_of(code: str, help_too: bool) -> list[str]:
    """Every text of a module but its docstrings, which are read as help alone."""
    tree = ast.parse(code)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside
    ]
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
    return texts + docstrings * help_too


def test_it_audits_the_sample_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """Imported from the unpacked wheel, not from the checkout."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import llmfair; assert llmfair.__file__.startswith({str(site)!r});"
        "from llmfair.cli.app import run; sys.exit(run(['listwise', '-n', '2', '--orders', '1', '-m', 'fake:oracle', '-q']))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "neutral" in found.stdout
