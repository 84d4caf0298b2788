"""What the documentation shows is what the commands print, and what it names exists."""

from __future__ import annotations

import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from math import exp
from pathlib import Path
from shutil import copytree
from types import ModuleType

import pytest

import llmfair as package
from llmfair import registry
from llmfair.audits.listwise import plan
from llmfair.backends.fake import answerers, defaults, models_of
from llmfair.backends.simulated import BIASED
from llmfair.cli.app import command
from llmfair.prompts import load_prompt
from tests import models
from tests.cli.command import llmfair, ran
from tests.folders import balanced, write, write_folder

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("undrawn")]

ROOT = Path(__file__).resolve().parents[1]
PATHS = {
    page.name: page
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
}
PAGES = {name: path.read_text("utf-8") for name, path in PATHS.items()}
CODE = re.compile(r"`([a-z_]+)`")
QUOTED = re.compile(r"`([^`]+)`")
LINES = 24
"""Of a terminal nobody has made larger."""
ASKING = {"listwise", "pairwise", "finetune-lora"}
ENDINGS = {"csv", "html", "json", "jsonl", "py", "toml"}
"""Of the files that pages name."""


def blocks(kind: str) -> list[tuple[str, str]]:
    """The fenced blocks of a kind: page and text."""
    fenced = re.compile(rf"^```{kind}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [(name, block) for name, text in PAGES.items() for block in fenced.findall(text)]


def transcript(block: str) -> list[tuple[str, str]]:
    """Command lines and what the page prints below them."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(line, printed) for line, _, printed in (part.partition("\n") for part in parts)]


def tidy(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


CONSOLE = blocks("console")
JOINED = [(page, block.replace("\\\n", " ")) for page, block in blocks("sh")]
SHELL = [(page, line) for page, text in JOINED for line in text.splitlines() if line.startswith("llmfair ")]


@pytest.mark.parametrize(
    ("page", "block"), CONSOLE, ids=[f"{page}: {transcript(b)[-1][0]}" for page, b in CONSOLE]
)
def test_transcripts(page: str, block: str, rewriting: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of a block run one after the other in one folder, empty at first."""
    monkeypatch.delenv("LLMFAIR_REPORT", raising=False)
    anew = ""
    for line, printed in transcript(block):
        program, *arguments = shlex.split(line)
        assert program == "llmfair"
        found = llmfair(*arguments).out
        assert rewriting or tidy(found) == tidy(printed), line
        anew += "\n".join([f"$ {line}", *map(str.rstrip, found.rstrip().splitlines()), ""])
    if rewriting:
        PATHS[page].write_text(PATHS[page].read_text("utf-8").replace(block, anew), encoding="utf-8")


def test_the_table_of_injected_preferences_is_what_the_transcript_finds() -> None:
    """README: in the default simulated model one log odds is of the protected item, one of the group named."""
    preferred, named = BIASED["listwise"], BIASED["prompt"]
    injected = {"neutral": preferred, "male": preferred - named, "female": preferred + named}
    (shown,) = [block for page, block in CONSOLE if page == "README.md"]
    for prompt, log_odds in injected.items():
        ((odds, cells),) = re.findall(rf"^\| {prompt} \| ([0-9.]+) (.*)", PAGES["README.md"], re.M)
        assert float(odds) == round(exp(log_odds), 3)
        figures = re.findall(r"\| (\S+) \[(\S+), (\S+)\]", cells)
        assert len(figures) == 3  # of all, of relevant and of irrelevant items
        assert all(float(low) <= float(odds) <= float(high) for _, low, high in figures)
        value, low, high = figures[0]
        assert re.search(rf"^ {prompt} .* {value} \[{low}, {high}\]", shown, re.M), prompt


def test_ten_questions_are_answered_on_the_first_screen() -> None:
    """docs/reading.md: the words of each column stand in the first lines of what its command prints."""
    section = PAGES["reading.md"].partition("## Ten questions")[2].partition("\n## ")[0]
    before, head, _, *rows = re.split(r"^(?=\|)", section, flags=re.MULTILINE)
    for line in QUOTED.findall(before):
        ran(*shlex.split(line)[1:])
    screens = []
    for (line,) in map(QUOTED.findall, head.split("|")[2:-1]):
        lines = ran(*shlex.split(line)[1:]).out.splitlines()[:LINES]
        screens.append(" ".join(" ".join(lines).split()))
    assert len(rows) == 10
    for row in rows:
        question, *answers = row.split("|")[1:-1]
        assert len(answers) == len(screens)
        for answer, screen in zip(answers, screens, strict=True):
            words = QUOTED.findall(answer)
            assert words and all(word in screen for word in words), (question, answer, screen)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models by the names that the pages give them."""
    models.needs_local()
    folder = tmp_path_factory.mktemp("ORG")
    models.causal(folder / "NAME")
    models.t5(folder / "T5")
    models.bert(folder / "BERT")
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs that pages report on, by the names that they give them."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LLMFAIR_REPORT", "0")
        patched.setenv("LLMFAIR_CACHE_DIR", str(folder / "cache"))
        for name, model in (("first", "fake:biased"), ("second", "fake:oracle")):
            ran("listwise", "-o", folder / name, "-m", model, "-n", "6", "--orders", "1")
    return folder


PIPELINE = """
class Reranker:
    def transform(self, frame):
        return frame.assign(score=frame["text"].str.len())

reranker = Reranker()
"""
LONG = ("--figures", "llmfair study windows")
"""What takes seconds, and has tests of its own in tests/cli."""


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(
            line, id=f"{page}: {line}", marks=pytest.mark.slow if any(words in line for words in LONG) else ()
        )
        for page, line in SHELL
    ],
)
def test_commands(line: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions to models are counted, not asked, unless the model is simulated or in this process."""
    for name in (
        "MOST_AUDITS",
        "FEWEST_AUDITS",
    ):  # that a plan simulates: one is enough for a plan to be made
        monkeypatch.setattr(plan, name, 1)
    if "ORG/" in line and "openai:" not in line:
        Path("ORG").symlink_to(request.getfixturevalue("checkpoints"))
    lists = balanced(12, 6, 6)
    write_folder(Path("mine"), lists)
    if "my.run" in line:
        ranked = [(q, doc, rank) for q, docs in lists.items() for rank, (doc, _, _) in enumerate(docs)]
        write(Path("my.run"), [f"{query} Q0 {doc} {rank + 1} {-rank} my" for query, doc, rank in ranked])
    if "llmfair report" in line or "llmfair mitigate" in line:
        for name in ("first", "second"):
            copytree(request.getfixturevalue("runs") / name, name)
    if "adapters/fair" in line:  # as training leaves it
        models.adapter(Path("ORG/NAME").resolve(), Path("adapters/fair"))
    if "cross-encoder:" in line:
        pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    if "my_ranker" in line:  # as the page shows it
        (shown,) = (block for _, block in blocks("python") if block.startswith("def overlap("))
        Path("my_ranker.py").write_text(shown)
    if "my_pipeline" in line:
        Path("my_pipeline.py").write_text(PIPELINE)
    if "log.jsonl" in line:  # as the lines before leave it
        (made,) = (block.rpartition("llmfair")[0] for _, block in blocks("sh") if '"log.jsonl"' in block)
        subprocess.run(["bash", "-c", made], check=True)
    if "--prompt my.toml" in line:  # as the line before leaves it
        Path("my.toml").write_text(load_prompt("listwise-general").text)
    _, name, *arguments = shlex.split(line.partition(" > ")[0], comments=True)
    if name in ASKING and "fake:" not in line and "--merge" not in line:
        arguments = [argument for argument in arguments if argument != "--dry-run"] + ["--dry-run"]
    ran(name, *arguments)


PAPERS = [block for page, block in blocks("bash") if page == "reproducing.md"]
RECORDING = r"""
pip() { :; }
llmfair() {
  printf '%q ' "$@"; echo
  while [ $# -gt 0 ]; do
    case $1 in -o) mkdir -p "$2";; --runs-dir) mkdir -p "$2/run";; esac
    shift
  done
}
"""
"""A shell that writes commands down; the folders that they would leave are there, for patterns to meet."""


def expanded(block: str) -> list[list[str]]:
    """The commands of a block as a shell gives them, with loops and patterns expanded."""
    lines = subprocess.run(
        ["bash", "-ec", RECORDING + block], capture_output=True, text=True, check=True
    ).stdout
    return [shlex.split(line) for line in lines.splitlines()]


@pytest.mark.parametrize("block", PAPERS, ids=[block.partition("\n")[0] for block in PAPERS])
def test_blocks_that_reproduce_name_flags_that_exist(block: str) -> None:
    for arguments in expanded(block):
        node, words = command(), [*arguments]
        while words and words[0] in getattr(node, "commands", {}):
            node = node.commands[words.pop(0)]
        known = {name for item in node.params for name in (*item.opts, *item.secondary_opts)}
        flags = {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)}
        assert not hasattr(node, "commands") and flags <= known, arguments


@pytest.mark.parametrize(("page", "shown"), [("README.md", "5 rows x"), ("commands.md", "fake:biased")])
def test_the_python_of_a_page_runs(page: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = [block for name, block in blocks("python") if name == page]
    module = ModuleType("of_a_page")
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, module.__name__, module)
        exec(compile(block, page, "exec"), module.__dict__)
    printed = capsys.readouterr().out
    assert "Listwise · sample" in printed and shown in printed


@pytest.fixture
def unregistered() -> Iterator[None]:
    """Forgets what a page registers, and none of ours, which are found once."""
    for kind in registry._found:
        registry.names(kind)
    before = {kind: dict(known) for kind, known in registry._found.items()}
    yield
    for kind, known in registry._found.items():
        known.clear()
        known.update(before[kind])


def test_the_examples_of_extending_work_as_they_stand(unregistered: None) -> None:
    found = [block for page, block in blocks("python") if page == "extending.md"]
    assert len(found) == 5
    for number, block in enumerate(found):
        module = ModuleType(f"extending_{number}")
        sys.modules[module.__name__] = module
        exec(compile(block, module.__name__, "exec"), module.__dict__)
    asked = ("listwise", "-n", "6", "--orders", "2", "--conditions", "neutral", "-m", "parrot:x", "--json")
    results = llmfair(*asked, "--measures", "FirstSeen,P@20").json
    rows = [row for row in results["rows"] if row["measure"] == "FirstSeen" and row["condition"] == "neutral"]
    assert {row["group"] for row in rows} == {"protected", "unprotected"}
    assert all(row["value"] >= 1 and row["low"] is not None for row in rows)
    assert min(row["value"] for row in rows) < 2 and results["model"] == "parrot:x"
    design = llmfair("listwise", "-n", "2", "--orders", "1", "--strategy", "bubble", "--json").json["design"]
    assert (design["strategy"], design["calls"]) == ("bubble", 2 * 4 * 39)
    results = llmfair(
        "pairwise", "--pairs", "4", "--measures", "Agreed,Agreed(agg=mean),FlipRate", "--json"
    ).json
    figures = {(row["measure"], row["condition"]): row for row in results["rows"]}
    for kind in results["design"]["conditions"]:
        assert 0 <= figures["Agreed", kind]["value"] <= 1
        assert figures["Agreed", kind]["reason"] == "no_interval"
        mean = figures["Agreed(agg=mean)", kind]
        assert mean["low"] <= mean["value"] <= mean["high"]
    ran("listwise", "-n", "6", "-q", "--no-report", "-o", "run")
    before, after = ran("mitigate", "run", "--remedy", "backwards", "--json").json["remedies"]
    odds, turned = (one["figures"]["PreferenceOdds(of=ranking)"]["value"] for one in (before, after))
    assert after["title"] == "backwards" and turned == pytest.approx(1 / odds)


def test_the_attribute_of_own_data_is_one() -> None:
    (table,) = [block for page, block in blocks("toml") if page == "own-data.md"]
    folder = write_folder(Path("mine"), balanced(2, 2, 2))
    (folder / "attributes.toml").write_text(table)
    groups = (folder / "groups.tsv").read_text()
    groups = groups.replace("gender\tfemale", "occupation\tnurse").replace(
        "gender\tmale", "occupation\tpilot"
    )
    (folder / "groups.tsv").write_text(groups)
    found = llmfair("listwise", "-d", folder, "-a", "occupation", "--dry-run")
    assert found.code == 0 and "neutral, other, caring" in found.out, found.err


def test_links_lead_somewhere() -> None:
    for name, text in PAGES.items():
        folder = ROOT if (ROOT / name).exists() else ROOT / "docs"
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (folder / target).exists(), (name, target)


def test_every_table_names_commands_that_exist() -> None:
    for name, text in PAGES.items():
        for word in re.findall(r"`llmfair ([a-z-]+)", text):
            assert llmfair(word, "--help").code == 0, (name, word)


def test_the_readme_is_short_and_the_table_of_commands_is_whole() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 120
    table = PAGES["commands.md"].partition("\n## ")[0]
    assert {*re.findall(r"^\| `llmfair ([a-z-]+)", table, re.M)} | {"measures"} == {*command().commands}


def test_the_table_of_commands_names_python_functions_that_exist() -> None:
    table = PAGES["commands.md"].partition("\n## ")[0]
    named = [n for r in table.splitlines() if r.startswith("| `") for n in CODE.findall(r.split("|")[5])]
    assert len(named) > 10 and all(callable(getattr(package, name)) for name in named)


def test_the_names_of_the_design_exist() -> None:
    """docs/design.md: what is code in its text, with a dot, is a file's name or stands in the package."""
    quoted = re.findall(r"`([A-Za-z_]+(?:\.[A-Za-z_]+)+)`", PAGES["design.md"])
    names = [name for name in quoted if name.rpartition(".")[2] not in ENDINGS]
    assert len({*names}) > 50
    for name in names:
        pkgutil.resolve_name(f"llmfair.{name}")  # AttributeError names what is missing


def test_it_opens_with_the_two_set_up_commands() -> None:
    lines = [line for line in PAGES["README.md"].splitlines() if line.strip()]
    assert lines[:2] == ["# llmfair", "```"]
    assert lines[2].startswith("pip install . && llmfair listwise ")
    assert lines[3].startswith('pip install -e ".[test]" && pytest ')


def test_it_says_how_to_plant_a_bias() -> None:
    page = PAGES["own-model.md"]
    always, further = defaults("biased", answerers())
    for name, default in {**always, **further}.items():
        assert re.search(rf"`{name}` [^`]*\b{abs(default):g}\b", page), name
    for model in models_of(answerers().values()):
        assert f"fake:{model}" in page and f"fake:{model}" in llmfair("doctor").out
    (example,) = re.findall(r"`llmfair (pairwise -m fake:\S+)`", page)
    ran(*example.split(), "--dry-run")
