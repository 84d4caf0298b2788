"""Every test starts in an empty folder, with no key and no setting of the machine's own."""

from __future__ import annotations

import difflib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.disks import SmallDisk, mounted

# before torch is imported, here and in processes: threads of a tiny model's product only wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")
# the package is compiled once, not anew by each of the many processes that tests start
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("PYTHONUNBUFFERED", None)  # which hides what only the last flush can fail at
# a runner in the background, or under nohup, ignores what tests send to the commands that they start, which would inherit it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
settings.register_profile("quick", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("thorough", deadline=None)


TERMINAL = {"FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"}
"""What a CI system may say of its terminal, which is none."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-snapshots",
        action="store_true",
        help="run what holds tests/snapshots and the transcripts of the pages, and write them anew",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Properties are held against fewer examples where slow tests are left out, against 100 where they are not."""
    config.option.markexpr = config.option.markexpr or unasked(config)
    settings.load_profile("quick" if "not slow" in config.option.markexpr else "thorough")


def unasked(config: pytest.Config) -> str:
    """What runs where no -m says it: of a test named by its id all, of a file or with -k all but the slow ones."""
    if config.option.rewrite_snapshots or any("::" in argument for argument in config.args):
        return ""
    everything = config.args_source is not pytest.Config.ArgsSource.ARGS or config.args == config.getini(
        "testpaths"
    )
    return "not whole and not slow" if everything and not config.option.keyword else "not slow"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of local models come first, so that one worker of two has them: torch takes seconds to import."""
    if config.option.rewrite_snapshots:
        items[:] = [item for item in items if "rewriting" in getattr(item, "fixturenames", ())]
    items.sort(key=lambda item: not hasattr(getattr(item, "module", None), "models"))


SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture
def rewriting(pytestconfig: pytest.Config) -> bool:
    """Whether what is held is written anew instead."""
    return bool(pytestconfig.getoption("rewrite_snapshots"))


@pytest.fixture
def snapshot(rewriting: bool) -> Callable[[str, str], None]:
    """Holds a text, whole, against `tests/snapshots/NAME.txt`; `pytest --rewrite-snapshots` writes it there."""

    def hold(name: str, text: str) -> None:
        path = SNAPSHOTS / f"{name}.txt"
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
        if rewriting:
            path.write_text(text, encoding="utf-8")
            return
        kept = path.read_text("utf-8") if path.is_file() else ""
        changes = difflib.unified_diff(
            kept.splitlines(), text.splitlines(), str(path), "now", lineterm="", n=1
        )
        if kept != text:
            pytest.fail("\n".join([*changes, "is it meant? pytest --rewrite-snapshots"]), pytrace=False)

    return hold


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        ours = name.startswith(("OPENAI_", "LLMFAIR_"))
        if ours or name.lower().endswith("_proxy") or name in TERMINAL:
            monkeypatch.delenv(name)
    monkeypatch.setenv("LLMFAIR_CACHE_DIR", str(tmp_path / "cache"))
    # drawn figures would double what audits take; tests/report has them
    monkeypatch.setenv("LLMFAIR_REPORT", "0")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A file system that fills up."""
    with mounted(tmp_path / "small") as disk:
        yield disk


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without their figures, a second each: for tests of what is beside them."""
    monkeypatch.setattr(
        "llmfair.report.html.inline_svg", lambda plot: f'<svg aria-label="{plot.name}"></svg>'
    )
