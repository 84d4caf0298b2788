"""Every test starts in an empty folder, with no key and no setting of the machine's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "LLMFAIR_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LLMFAIR_CACHE_DIR", str(tmp_path / "cache"))
    # drawn figures would double what audits take; tests/report has them
    monkeypatch.setenv("LLMFAIR_REPORT", "0")
    monkeypatch.chdir(tmp_path)
