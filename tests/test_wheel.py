"""What is installed is whole: prompts, data and types travel in the wheel, nothing else does."""

from __future__ import annotations

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
        "llmfair/data/attributes.toml",
        "llmfair/data/sample/docs.jsonl",
        "llmfair/report/page.html.j2",
        "llmfair/py.typed",
    ):
        assert wanted in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"llmfair"}
    assert not [name for name in names if "test" in name or "shared" in name]


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
