"""What other people wrote: settings that nobody named, run folders with links in them, folders that are packed."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from llmfair.cli.options import settings_of_commands
from llmfair.datasets.base import load_dataset
from llmfair.errors import warn
from llmfair.nouns import Query
from tests.cli.command import COMMANDS, copied, kept, llmfair, ran, refuses
from tests.folders import balanced, write, write_folder

SMALL = ("listwise", "-n", "2", "--orders", "1", "--no-repeat", "--max-invalid", "1", "-q")
root_alone = pytest.mark.skipif(os.geteuid() != 0, reason="needs to give files away")
ME, OTHER, FRIEND = 0, 4242, 4243


@pytest.mark.whole
@root_alone
@pytest.mark.parametrize(
    ("owner", "mode", "folder", "linked_by", "why"),
    [
        (ME, 0o644, ME, None, ""),
        (ME, 0o646, ME, None, "may be written by everybody"),
        (OTHER, 0o644, ME, None, "belongs to somebody else (uid 4242)"),
        (OTHER, 0o644, OTHER, None, ""),  # a folder of a container, worked in by root
        (OTHER, 0o644, FRIEND, None, "belongs to somebody else (uid 4242)"),
        (ME, 0o644, ME, OTHER, "belongs to somebody else (uid 4242)"),
    ],
)
def test_a_file_nobody_named(owner: int, mode: int, folder: int, linked_by: int | None, why: str) -> None:
    """It is obeyed only of whom one trusts; named, it always is."""
    warn.cache_clear()
    path = Path("above/llmfair.toml").resolve()
    (path.parent / "here").mkdir(parents=True)
    written = path if linked_by is None else path.with_name("written")
    written.write_text("seed = 5\n")
    if linked_by is not None:
        path.symlink_to(written)
        os.lchown(path, linked_by, -1)
    written.chmod(mode)
    os.chown(written, owner, -1)
    os.chown(path.parent / "here", folder, -1)
    os.chdir(path.parent / "here")
    found = ran(*SMALL, "-o", "run", "--json")
    assert (f"{path} {why}, so it is passed over; --config {path} obeys it." in found.err) is bool(why)
    assert found.json["design"]["seed"] == (0 if why else 5)
    if why:
        assert ran(*SMALL, "-o", "named", "--json", "--config", path).json["design"]["seed"] == 5


NAMED = """\
model = ["fake:oracle", "python:rank_it:rank"]
base_url = "http://user:secret@127.0.0.1:9/v1"
junit = "their.xml"
quiet = true
"""


@pytest.mark.parametrize(
    "command", [("listwise", "--dry-run"), ("plan", "listwise"), ("listwise", "--config", "llmfair.toml")]
)
def test_what_a_file_does_beyond_the_run_folder_is_told_before_it_is_done(command: tuple[str, ...]) -> None:
    warn.cache_clear()
    Path("llmfair.toml").write_text(NAMED)
    Path("rank_it.py").write_text("raise ImportError('imported')\n")
    found = llmfair(*command)
    told = found.err.partition("imported")[0]
    for part in (
        "model = python:rank_it:rank imports code",
        "base_url = http://***@127.0.0.1:9/v1 is sent what is asked, and your key",
        "junit = their.xml is written",
    ):
        assert part in told, found.err
    assert "fake:oracle" not in told
    flags = llmfair(
        *"listwise -m fake:oracle --junit mine.xml --base-url http://127.0.0.1:9/v1 --dry-run".split()
    )
    assert "imports code" not in flags.err and "is written" not in flags.err


def test_a_setting_does_the_same_for_every_command() -> None:
    one = settings_of_commands()["listwise"][0].effects(
        {"backend_arg": ("dtype=float32", "num_beams?=4", "worker_cls=x")}
    )
    assert one == ["backend_arg = worker_cls=x goes to the engine, which may import code"]
    effects: dict[str, set[str]] = {}
    for classes in settings_of_commands().values():
        for item in (item for settings in classes for item in fields(settings)):
            effect = item.metadata["effect"]
            effects.setdefault(item.name, set()).add(effect.words if effect else "")
    assert {name: words for name, words in effects.items() if len(words) > 1} == {}
    assert {"model", "base_url", "engine_url", "ray_address", "report_to", "junit", "output", "runs_dir"} <= {
        name for name, words in effects.items() if words != {""}
    }


def test_the_model_that_a_run_names_is_told_before_it_is_asked() -> None:
    warn.cache_clear()
    copied("listwise", "run")
    document = kept("manifest", "run") | {"model": "python:rank_it:rank"}
    Path("run/manifest.json").write_text(json.dumps(document))
    assert "model = python:rank_it:rank imports code" in llmfair("mitigate", "run", "--dry-run").err
    warn.cache_clear()
    assert "imports code" not in llmfair("mitigate", "run", "--free", "--dry-run").err


@pytest.mark.whole
@pytest.mark.parametrize(
    ("text", "flags", "code"),
    [
        ('dataset = "sample"\nattribute = "age"\nqrels = "q"\ngroups = "g"', "run", 0),
        ('[score]\noutput = "run"\ndataset = "none"', "run", 0),
        ('dataset = "sample"', "run/rankings/neutral.run --qrels run/qrels.txt --groups run/groups.tsv", 0),
        ('qrels = "q"\ngroups = "g"', "run/rankings/neutral.run -d sample", 0),
        ("", "run -o run", 1),
        ("", "run -d sample", 2),
        ("", "run -a age", 2),
        ("", "run/rankings/neutral.run -d sample --qrels run/qrels.txt --groups run/groups.tsv", 2),
    ],
)
def test_settings_of_a_file_give_way_where_a_run_brings_its_own(text: str, flags: str, code: int) -> None:
    copied("listwise", "run")
    Path("llmfair.toml").write_text(text)
    found = llmfair("score", *flags.split())
    assert found.code == code, found.err


VICTIM = "what must stay\n"
LISTWISE, MITIGATE = (
    (*COMMANDS["listwise"], "-q", "--no-report", "-o", "run"),
    ("mitigate", "run", "--free", "-q", "--no-report"),
)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("place", "command", "says"),
    [
        ("results.json", LISTWISE, ""),
        ("results.json.tmp", LISTWISE, ""),
        ("report.html", ("report", "run"), ""),
        (".lock", LISTWISE, "run/.lock: cannot be locked: a link, which may lead elsewhere."),
        ("journal.jsonl", LISTWISE, "run/journal.jsonl: cannot be opened: a link, which may lead elsewhere."),
        ("rankings/", LISTWISE, "run/rankings is a link, which may lead elsewhere"),
        ("rankings/neutral.run", LISTWISE, "run/rankings/neutral.run is a link, which may lead elsewhere"),
        ("mitigation/", MITIGATE, "run/mitigation is a link, which may lead elsewhere"),
        ("other/rankings/", (*MITIGATE, "-o", "run/other"), "run/other/rankings is a link"),
        ("plots/", ("report", "run", "--figures", "svg"), "cannot write run/plots: a link, which may lead elsewhere."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dangling", [False, True])
def test_links_in_a_run_folder_lead_nowhere(
    place: str, command: tuple[str, ...], says: str, dangling: bool, undrawn: None
) -> None:
    copied("listwise", "run")
    victim = Path("victim").resolve()
    Path("run/metrics.csv").touch()  # or nothing is written
    link = Path("run", place)
    shutil.rmtree(link) if link.is_dir() else link.unlink(missing_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    if place.endswith("/") and not dangling:
        victim.mkdir()
        (victim / "neutral.run").write_text(VICTIM)
    elif not dangling:
        victim.write_text(VICTIM)
    link.symlink_to(victim)
    found = llmfair(*command)
    assert (dangling or says in found.err) and (found.code != 0) is bool(says), found
    assert not says or found.err.count("Error: ") == 1, found.err
    there = victim / "neutral.run" if victim.is_dir() else victim
    assert there.read_text() == VICTIM if not dangling else not os.path.lexists(victim)
    assert [*Path().rglob(".*.tmp")] == []


@pytest.mark.whole
def test_what_a_killed_command_left_is_removed() -> None:
    copied("listwise", "run")
    left = [Path("run", ".0123456789abcdef.tmp"), Path("run/rankings", ".fedcba9876543210.tmp")]
    for path in (*left, Path("run/.mine.tmp")):
        path.write_text("half")
    Path("run/results.json").unlink()
    ran(*LISTWISE)
    assert [path.is_file() for path in (*left, Path("run/.mine.tmp"))] == [False, False, True]


def test_a_batch_of_somebody_else_removes_no_file() -> None:
    copied("listwise", "run")
    batch = {"file": "../victim", "lines": 0, "input_file_id": "x"}
    Path("run/batches.json").write_text(json.dumps({"batches": [batch]}))
    Path("run/results.json").unlink()
    refuses("batches[0].file: expected", *LISTWISE, code=1)


@pytest.fixture(scope="module")
def mitigated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mitigated")
    with contextlib.chdir(folder):
        copied("listwise", "run")
        ran(*MITIGATE)
    return folder / "run"


def edited(name: str) -> Callable[[], object]:
    return lambda: Path("run", name).write_text(Path("run", name).read_text() + "q 0 x 1\n")


def counted(name: str, value: float) -> Callable[[], object]:
    return lambda: Path("run/manifest.json").write_text(json.dumps(kept("manifest", "run") | {name: value}))


@pytest.mark.whole
@pytest.mark.parametrize(
    ("harm", "code", "says"),
    [
        (lambda: None, 0, "every file can be recomputed"),
        (edited("mitigation/rankings/greedy.run"), 1, "mitigation/rankings/greedy.run is not what llmfair mitigate wrote"),
        (edited("mitigation/metrics.csv"), 1, "mitigation/metrics.csv is not what"),
        (lambda: Path("run/mitigation/rankings/new.run").write_text(""), 1, "mitigation/rankings/new.run is not what"),
        (lambda: Path("run/mitigation/rankings/greedy.run").unlink(), 1, "mitigation/rankings/greedy.run is not what"),
        (lambda: Path("run/mitigation/results.json").write_text("{}"), 2, "mitigation/results.json: files: is missing"),
        (lambda: Path("run/report.html").symlink_to("nowhere"), 1, "report.html is a link, which may lead elsewhere"),
        (counted("journal_answers", -5), 2, "Expected `int` >= 0 - at `$.journal_answers`"),
        (counted("cost", -0.5), 2, "Expected `float` >= 0"),
    ],
)  # fmt: skip
def test_what_is_checked_of_a_run(mitigated: Path, harm: Callable[[], object], code: int, says: str) -> None:
    shutil.copytree(mitigated, "run")
    harm()
    found = llmfair("runs", "check", "run")
    assert found.code == code and says in found.out + found.err, found


@pytest.mark.parametrize("kind", ["listwise", "rag"])
def test_packed_files_of_a_folder_are_read_as_they_would_be_unpacked(kind: str) -> None:
    folder = write_folder(Path("mine"), balanced(2, 3, 3))
    ranks = [(f"q{q}", i, side) for q in range(2) for i, side in enumerate("fm", 1)]
    write(folder / "candidates.run", (f"{q} Q0 {q}{side}{i} {i} {-i} own" for q, i, side in ranks))
    write(folder / "keywords.jsonl", ['{"query_id": "q0", "keywords": "packed"}'])
    (folder / "attributes.toml").write_text('[gender]\nprotected = ["male"]\nunprotected = ["female"]\n')
    if kind == "rag":
        documents = map(json.loads, (folder / "docs.jsonl").read_text().splitlines())
        write(folder / "docs.jsonl", (json.dumps(row | {"text": row["title"]}) for row in documents))
        write(folder / "answers.jsonl", (f'{{"query_id": "q{q}", "gold": "Title"}}' for q in range(2)))

    def look() -> tuple[str, list[Query]]:
        return ran(kind, "-d", folder, "--dry-run", "--json").out, [*load_dataset(str(folder)).topics]

    there = look()
    for path in [*folder.iterdir()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert look() == there
