"""Run folders, cache and pages are their owner's alone, unless they are to be shared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import llmfair as api
from llmfair.backends.python import imported
from llmfair.io import files
from tests.cli.command import only_run, ran

AUDIT = ("listwise", "-n", "1", "--orders", "1", "--conditions", "neutral", "--no-repeat", "-q")


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def others_may(*folders: str) -> dict[str, str]:
    """What others than the owner have any right to, with its rights."""
    assert all(Path(folder).exists() for folder in folders)
    found = [path for folder in folders for path in (Path(folder), *Path(folder).rglob("*"))]
    return {str(path): oct(path.stat().st_mode & 0o777) for path in found if path.stat().st_mode & 0o077}


@pytest.mark.whole
def test_what_a_command_writes_is_private_unless_it_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    ran(*AUDIT)
    ran("report", only_run(), "-o", "page.html", "--figures", "svg")
    assert others_may("runs", "plots", "page.html") == {}
    assert os.umask(0o022) == 0o022
    for number, way in enumerate(("--shared", "variable", "file")):
        runs = f"shared-{number}"
        if way == "variable":
            monkeypatch.setenv("LLMFAIR_SHARED", "1")
        if way == "file":
            monkeypatch.delenv("LLMFAIR_SHARED")
            Path("llmfair.toml").write_text("shared = true\n")
        ran(*AUDIT, "--no-report", "--runs-dir", runs, *(["--shared"] if way == "--shared" else []))
        kept = only_run(Path(runs))
        assert kept.stat().st_mode & 0o777 == 0o755
        assert all(path.stat().st_mode & 0o777 == 0o644 for path in kept.iterdir() if path.is_file())


def test_weights_that_a_backend_downloads_are_kept_as_the_user_keeps_files() -> None:
    with files.private():
        with files.usual():
            Path("weights").touch()
        Path("answers").touch()
    assert [Path(name).stat().st_mode & 0o777 for name in ("weights", "answers")] == [0o644, 0o600]


def test_a_thread_that_is_still_loading_keeps_the_usual_umask_of_both() -> None:
    with files.private():
        first, second = files.usual(), files.usual()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)  # which began first, and is done first
        Path("weights").touch()
        second.__exit__(None, None, None)
        Path("answers").touch()
    assert [Path(name).stat().st_mode & 0o777 for name in ("weights", "answers")] == [0o644, 0o600]


def test_what_a_ranker_s_module_leaves_behind_is_kept_as_the_user_keeps_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine_downloads.py").write_text("open('weights', 'w').close()\nrank = sorted\n")
    with files.private():
        imported("mine_downloads", "rank", "python")
    assert Path("weights").stat().st_mode & 0o777 == 0o644


def test_a_stricter_umask_stays() -> None:
    os.umask(0o277)
    with files.private():
        Path("file").touch()
    assert Path("file").stat().st_mode & 0o777 == 0o400


def test_a_run_of_the_api_is_a_private_folder() -> None:
    api.audit_listwise(limit=1, orders=1, conditions="neutral", repeat=False)
    assert only_run().stat().st_mode & 0o777 == 0o700
