"""The files beside the code do what they say: licence, citation, container, action, and the scripts of docs/ci.md."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

import llmfair
from tests.building import built
from tests.folders import balanced, write_folder

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def instructions() -> list[tuple[str, str]]:
    """The lines of the Dockerfile: instruction and arguments."""
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    said = (line.partition(" ") for line in lines if not line.startswith("#"))
    return [(word, arguments) for word, _, arguments in said]


def test_the_licence_is_the_one_that_is_declared() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert (PROJECT["license"], PROJECT["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "Apache License\n" in text and "Version 2.0, January 2004" in text
    assert "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in text


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors", "type"} <= {*citation}
    assert str(citation["version"]) == PROJECT["version"] == llmfair.__version__
    assert citation["license"] == PROJECT["license"]


@pytest.mark.whole
def test_the_source_archive_holds_what_the_pages_link_to(tmp_path: Path) -> None:
    with tarfile.open(built("sdist", ROOT, tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    beside = {path.name for path in ROOT.glob("*") if path.is_file() and not path.name.startswith(".")}
    assert beside | {"docs/reading.md", ".ci/run", "prompts/listwise.toml", "tests/test_project.py"} <= names


@pytest.mark.whole
def test_the_image_is_made_of_what_it_copies(tmp_path: Path) -> None:
    """What pip would build there can be built of the copied files alone, licence and command included."""
    said = instructions()
    assert said[0][0] == "FROM" and said[0][1].startswith("python:3.")
    image = tmp_path / "image"
    for sources, target in (arguments.rsplit(" ", 1) for word, arguments in said if word == "COPY"):
        for source in map(Path, sources.split()):
            place = image / target.lstrip("/") / (source.name if target.endswith("/") else "")
            place.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)
    (install,) = (arguments for word, arguments in said if word == "RUN")
    *pip, copied = install.split()
    assert pip == ["pip", "install", "--no-cache-dir"]
    (tmp_path / "wheels").mkdir()
    wheel = built("wheel", image / copied.lstrip("/"), tmp_path / "wheels")
    names = [name.partition("/")[2] for name in zipfile.ZipFile(wheel).namelist()]
    assert {"prompts/listwise.toml", "data/sample/docs.jsonl", "licenses/LICENSE"} <= {*names}
    (command,) = json.loads(dict(said)["ENTRYPOINT"])
    assert command in PROJECT["scripts"]


ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


def stepped(**inputs: str) -> subprocess.CompletedProcess[str]:
    """What the step of the action that audits does with these inputs, as GitHub runs it."""
    (step,) = (step for step in ACTION["runs"]["steps"] if "llmfair" in step.get("run", ""))
    given = {name: declared.get("default", "") for name, declared in ACTION["inputs"].items()}
    given |= {name.replace("_", "-"): value for name, value in inputs.items()}
    variables = {
        name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: given[found[1]], value)
        for name, value in step["env"].items()
    }
    assert step["shell"] == "python"
    return finished([sys.executable, "-c", step["run"]], variables)


def finished(command: Sequence[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A process that finds this `llmfair`, and these variables."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "LLMFAIR_REPORT": "0", **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


SMALL = "listwise -d 'my folder' --conditions neutral --no-repeat --orders 1 --passes 1"
PREFERS = "fake:biased,listwise=-4,malformed=0"


@pytest.mark.whole
@pytest.mark.parametrize(("model", "code"), [("fake:oracle", 0), (PREFERS, 4)])
def test_the_action_s_exit_code_is_the_gate_s(model: str, code: int) -> None:
    write_folder(Path("my folder"), balanced(12, 10, 10))
    found = stepped(arguments=f"{SMALL} -m {model}")
    assert found.returncode == code, found.stderr
    assert ("disparity" in found.stderr) == (code == 4)
    suite = ElementTree.parse("fairness.xml").getroot()
    assert bool(suite.findall(".//failure")) == (code == 4)


def test_the_action_takes_what_the_page_gives_it() -> None:
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (used,) = (step for step in yaml.safe_load(block) if "llmfair" in step["uses"])
    required = {name for name, declared in ACTION["inputs"].items() if declared.get("required")}
    assert required <= {*used["with"]} <= {*ACTION["inputs"]}
    setup, install, _ = ACTION["runs"]["steps"]
    assert setup["uses"].startswith("actions/setup-python@")
    assert install == {"shell": "bash", "run": 'pip install "$GITHUB_ACTION_PATH"'}


@pytest.mark.whole
@pytest.mark.parametrize(
    ("model", "code", "said"),
    [
        ("fake:oracle", 0, ""),
        (PREFERS, 4, "The verdict fails the build"),
        ("fake:nobody", 2, "There is no verdict: exit code 2."),
    ],
)
def test_the_script_of_the_page_ends_as_it_says(model: str, code: int, said: str) -> None:
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    script = re.findall(r"^```bash\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0]
    write_folder(Path("mine"), balanced(12, 10, 10))
    found = finished(["bash", "-c", script], {"RANKER": model})
    assert (found.returncode, said in found.stdout) == (code, True), found.stderr
