"""The files beside the code: licence, citation, container."""

from __future__ import annotations

import json
import shutil
import tarfile
import tomllib
import zipfile
from pathlib import Path

import yaml

import llmfair
from tests.building import built

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


def test_contributing_is_five_lines() -> None:
    lines = (ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines()
    assert lines[0].startswith("# ") and len([line for line in lines[1:] if line]) == 5


def test_the_source_archive_holds_what_the_pages_link_to(tmp_path: Path) -> None:
    with tarfile.open(built("sdist", ROOT, tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    beside = {path.name for path in ROOT.glob("*") if path.is_file() and not path.name.startswith(".")}
    assert beside | {"docs/reading.md", ".ci/run", "prompts/listwise.toml", "tests/test_project.py"} <= names


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
