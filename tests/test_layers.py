"""The house's rules: who may import whom, what is imported lazily, and what the first contact costs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from llmfair import registry
from tests.fresh import loaded_by
from tests.pace import within

PACKAGE = Path(__file__).resolve().parents[1] / "llmfair"
BASICS = {"nouns", "io", "errors", "beginning", "registry", "cluster"}
# Each room may import the rooms named beside it, itself and the basics (architecture: "Who may know whom").
AUDITS_MAY = {
    "settings", "datasets", "probes", "prompts", "rankers", "retrieval", "backends", "asking", "metrics", "stats",
    "rundir", "results", "on_ray", "checkpoints",
}  # fmt: skip
API_MAY = {
    "asking.limits", "audits", "backends.base", "backends.python", "datasets.tables", "documents", "metrics.names",
    "mitigation",
    "report", "results", "rundir", "settings", "terminal", "tuning",
}  # fmt: skip
MAY_IMPORT: dict[str, set[str]] = {
    "io": {"io", "errors", "nouns"},
    "beginning": set(),
    "nouns": {"io"},
    "on_ray": {"errors", "nouns", "registry", "backends.base", "rankers.base"},
    "errors": set(),
    "registry": {"errors"},
    "report": {"audits.kind", "results", "rundir", "stats", "metrics.base", "metrics.names"},
    "results": {"rundir"},
    "documents": {"audits", "mitigation", "results", "tuning"},
    "mitigation": {"audits", *AUDITS_MAY},
    "tuning": {"audits", "terminal", *AUDITS_MAY},
    "audits": AUDITS_MAY,
    "asking": {"backends.base", "backends.faults"},
    "probes": {"prompts"},
    "checkpoints": {"settings"},
    "backends": {"checkpoints", "control_tokens"},
    "rankers": {"prompts", "retrieval", "metrics", "checkpoints", "control_tokens"},
    "datasets": set(),
    "metrics": {"stats"},
    "terminal": {"asking.limits", "report.table", "rundir"},
    "api": API_MAY,
    "rundir": set(),
    **{
        room: set()
        for room in (
            "stats", "retrieval", "prompts", "settings", "control_tokens",
        )
    },
}  # fmt: skip
# What a file may import beside what its room may: pages of commands that are no audit know those.
BESIDE: dict[str, set[str]] = {
    "datasets/tables.py": {"retrieval.bm25"},
    "report/summaries.py": {"audits.listwise.score", "audits.scoring"},
    "report/compare.py": {"audits.comparing", "audits.documents", "audits.runs.exhibits", "audits.scoring"},
}
LAZY = {
    "torch", "transformers", "accelerate", "huggingface_hub", "llguidance", "vllm", "peft", "matplotlib", "pandas", "pyarrow", "datasets", "sentence_transformers", "scipy", "openai", "ir_datasets",
    "ir_measures", "aiohttp", "tantivy", "jinja2", "markupsafe", "ray",
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Imported module names, and whether the import runs when the module is loaded; none of types alone."""
    below: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text("utf-8")), True)]
    while below:
        node, at_load = below.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((f"{node.module}.{alias.name}", at_load) for alias in node.names)
        elif isinstance(
            node, ast.stmt | ast.ExceptHandler | ast.match_case | ast.Module
        ):  # none in expressions
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            below += ((child, at_load and not later) for child in ast.iter_child_nodes(node))


@cache
def imported() -> dict[Path, list[tuple[str, bool]]]:
    """What every module imports; each is parsed once."""
    return {path: list(imports(path)) for path in modules()}


def test_nothing_points_upwards() -> None:
    for path, names in imported().items():
        points_downwards(path, [name for name, _ in names])


def points_downwards(path: Path, names: list[str]) -> None:
    room = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if room in ("cli", "__init__", "__main__"):
        return
    allowed = MAY_IMPORT[room] | BASICS | {room} if room not in BASICS else MAY_IMPORT[room]
    allowed = allowed | BESIDE.get(path.relative_to(PACKAGE).as_posix(), set())
    if path.name == "words.py":  # what people read of a kind, a training, a mitigation
        allowed = allowed | {"report"}
    for name in names:
        if not name.startswith("llmfair."):
            continue
        target = name.removeprefix("llmfair.")
        assert any(target == room or target.startswith(f"{room}.") for room in allowed) or (
            target == "__version__"
        ), f"{path.name} ({room}) imports {name}"


def needs() -> dict[Path, set[Path]]:
    """The files that each file imports when it is loaded; the public names are loaded lazily."""
    files = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in modules()}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}

    def file_of(name: str) -> Path | None:
        while name and name not in files:
            name = name.rpartition(".")[0]
        return files.get(name)

    found = {
        path: {file_of(name) for name, at_load in names if at_load} - {None, path}
        for path, names in imported().items()
    }
    return {p: {one for one in of_it if one} for p, of_it in found.items()} | {PACKAGE / "__init__.py": set()}


def reached(start: Path, graph: dict[Path, set[Path]]) -> set[Path]:
    """Every file that `start` needs, and what those need."""
    found, below = set[Path](), [start]
    while below:
        new = graph[below.pop()] - found
        found |= new
        below += new
    return found


def test_no_two_files_import_each_other() -> None:
    graph = needs()
    circles = [path.relative_to(PACKAGE).as_posix() for path in graph if path in reached(path, graph)]
    assert not circles, f"these import each other, in one step or several: {', '.join(circles)}"


def test_no_file_is_imported_by_a_text_that_names_it() -> None:
    """So is the registry free of what it registers, and no circle is closed where nobody sees it."""
    hidden = [p for p in modules() if re.search(r'import_module\(f?"llmfair\.\w*[."]', p.read_text("utf-8"))]
    assert hidden == [PACKAGE / "cli" / "app.py"]  # its own commands, by name


def test_what_the_report_offers_to_kinds_knows_no_audit() -> None:
    graph, audits = needs(), PACKAGE / "audits"
    offered = {
        needed
        for path, of_it in graph.items()
        for needed in of_it
        if audits in path.parents and PACKAGE / "report" in needed.parents
    }
    assert offered
    for path in offered:
        known = [one.name for one in reached(path, graph) if audits in one.parents]
        assert not known, f"report/{path.name} is imported by audits, and knows {', '.join(known)}"


def test_heavy_libraries_are_imported_inside_functions() -> None:
    for path, names in imported().items():
        for name, at_load in names:
            assert not (at_load and name.split(".")[0] in LAZY), f"{path} imports {name} when loaded"


def test_click_is_never_imported() -> None:
    for path, names in imported().items():
        assert all(name.split(".")[0] != "click" for name, _ in names), path


def test_help_imports_nothing_heavy() -> None:
    loaded = loaded_by("from llmfair.cli.app import run\nassert run(['--help']) == 0")
    assert not loaded & (LAZY | {"numpy"})


def test_the_offline_audit_imports_neither_openai_nor_torch_nor_what_draws(tmp_path: Path) -> None:
    command = "['listwise', '-n', '1', '--orders', '1', '-m', 'fake:oracle', '--quiet']"
    loaded = loaded_by(f"from llmfair.cli.app import run\nassert run({command}) == 0")
    assert not loaded & {"openai", "torch", "pandas", "transformers", "vllm", "aiohttp", "ir_datasets"}
    assert not loaded & {"matplotlib", "jinja2"}, "only a report draws"


def test_a_command_loads_no_other_command_nor_kind() -> None:
    loaded = loaded_by("from llmfair.cli.app import run\nassert run(['listwise', '--help']) == 0")
    assert "llmfair.audits.listwise.settings" in loaded
    unasked = ("cli.datasets", "cli.runs", "audits.pairwise", "audits.rag")
    assert not loaded & {f"llmfair.{name}" for name in unasked}


def test_a_command_without_flags_does_not_wait_for_typer_to_read_them(tmp_path: Path) -> None:
    loaded = loaded_by(
        "import sys; sys.argv[1:] = ['doctor']\nfrom llmfair.cli import app\ntry: app.main()\nexcept SystemExit: pass"
    )
    assert "typer" in loaded and "pydantic" not in loaded


def test_help_answers_within_the_bar() -> None:
    help_of = [sys.executable, "-m", "llmfair", "--help"]
    # most of it reads files and memory, where a neighbour slows it more than the loop it is compared with
    within(0.40, lambda: subprocess.run(help_of, capture_output=True, check=True), tries=10)


def test_what_serves_every_kind_knows_the_prompts_of_none() -> None:
    kinds = {PACKAGE / "audits" / name for name in registry.names("audit")}
    for path in sorted((PACKAGE / "audits").rglob("*.py")):
        if kinds.isdisjoint(path.parents):
            assert "llmfair.probes" not in {name for name, _ in imports(path)}, path


READ_AT_ONCE = """
import importlib, pkgutil
import llmfair, msgspec

def classes(of):
    return {of}.union(*map(classes, of.__subclasses__()))

for module in pkgutil.walk_packages(llmfair.__path__, "llmfair."):
    importlib.import_module(module.name)
for of in classes(msgspec.Struct) - {msgspec.Struct}:
    try:
        msgspec.convert({}, of)
    except msgspec.ValidationError:
        pass
"""


def test_no_typed_reader_kills_python_at_its_end() -> None:
    checked = {**os.environ, "PYTHONMALLOC": "debug"}  # memory that is freed twice is sure to be seen
    subprocess.run([sys.executable, "-c", READ_AT_ONCE], env=checked, check=True)
