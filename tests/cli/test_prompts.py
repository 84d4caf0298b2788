"""In which words a model is asked: those that the dataset calls for, unless another prompt is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfair.datasets.base import load_dataset
from llmfair.prompts import load_prompt
from tests.cli.command import kept, ran, refuses
from tests.folders import balanced, write_folder

PAPERS, GENERAL = "for the WikiProject coordinators", "for users of a collection"
LISTS = ("listwise", "-n", "5", "--orders", "1", "--conditions", "neutral", "--passes", "1", "--no-repeat")


@pytest.fixture
def mine() -> Path:
    return write_folder(Path("mine"), balanced(5, 4, 4))


def rendered(task: str, *flags: str) -> str:
    return ran("prompts", "render", task, *flags).out


@pytest.mark.parametrize("task", ["listwise", "pairwise"])
def test_a_folder_is_asked_about_in_words_for_items_of_any_sort(task: str, mine: Path) -> None:
    assert GENERAL in rendered(task, "-d", "mine")
    for flags in (("--prompt", "wikiproject"), ("--prompt", task), ("--preset", "paper")):
        assert PAPERS in rendered(task, "-d", "mine", *flags)


@pytest.mark.parametrize("task", ["listwise", "pairwise"])
def test_the_sample_is_asked_about_as_in_the_paper(task: str) -> None:
    assert PAPERS in rendered(task)
    assert GENERAL in rendered(task, "--prompt", "general")
    assert GENERAL in rendered(task, "--preset", "paper", "--prompt", "general")


def test_which_prompt_it_calls_for_is_a_datasets_own_property(mine: Path) -> None:
    called_for = {name: load_dataset(name).prompt for name in ("sample", "trec-fair/2022/gender", "mine")}
    assert called_for == {"sample": "wikiproject", "trec-fair/2022/gender": "wikiproject", "mine": "general"}


@pytest.mark.parametrize(("data", "preset"), [((), "paper"), (("-d", "mine"), None)])
def test_the_preset_is_told_however_its_settings_were_given_and_not_of_another_prompt(
    mine: Path, data: tuple[str, ...], preset: str | None
) -> None:
    ran(*LISTS, *data, "--window", "5", "--step", "1", "--no-control-variate")
    assert kept("results")["design"]["preset"] == preset


def test_a_copy_with_other_words_is_ones_own_prompt(mine: Path) -> None:
    text = ran("prompts", "show", "listwise-general").out
    Path("my.toml").write_text(text.replace("users of a collection", "{}recruiters of a hospital"))
    refuses("my.toml", *LISTS, "-d", "mine", "--prompt", "my.toml")
    Path("my.toml").write_text(text.replace("users of a collection", "recruiters of a hospital"))
    assert "for recruiters of a hospital" in rendered("listwise", "-d", "mine", "--prompt", "my.toml")
    found = ran(*LISTS, "-d", "mine", "--prompt", "my.toml", "--json").json
    assert found["sees"].startswith("prompt my.toml ") and found["sees"].endswith(", titles only")
    assert kept("manifest")["prompt"]["file"] == "my.toml"


def test_a_name_of_several_prompts_and_one_of_none() -> None:
    refuses("'general' is a prompt of several tasks", "prompts", "show", "general")
    refuses("Did you mean 'general'?", "listwise", "--prompt", "genral", "--dry-run")


def test_texts_that_are_shown_are_said_to_be(mine: Path) -> None:
    planned = ran("listwise", "-n", "5", "--input", "text", "--words", "90", "--dry-run", "--json").json
    assert planned["sees"] == "prompt wikiproject, titles and texts, 90 words at most"
    planned = ran("listwise", "-d", "mine", "--dry-run", "--json").json
    assert planned["sees"] == "prompt general, titles only"
    path = mine / "docs.jsonl"
    path.write_text(path.read_text().replace('"title"', '"text": "Text.", "title"', 1))
    planned = ran("listwise", "-d", "mine", "--dry-run", "--json").json
    assert planned["sees"] == "prompt general, titles only (1 item has text: --input text shows it)"
    planned = ran("listwise", "-d", "mine", "--input", "text", "--dry-run", "--json").json
    assert planned["sees"] == "prompt general, titles and texts, 300 words at most (1 item has text, of 40)"


@pytest.mark.whole
def test_two_prompts_of_one_name_are_told_apart(mine: Path) -> None:
    text = load_prompt("listwise-general").text
    ran(*LISTS, "-d", "mine", "-o", "general")
    for name in ("one", "two"):
        Path("my.toml").write_text(text.replace("users of a collection", f"users of collection {name}"))
        ran(*LISTS, "-d", "mine", "--prompt", "my.toml", "-o", name)
    first, second = (f"my.toml {kept('manifest', name)['prompt']['sha256'][:8]}" for name in ("one", "two"))
    for name, prompt in (("one", first), ("two", second)):
        assert f"prompt {prompt}, titles only" in ran("runs", "show", name).out.splitlines()
    table = ran("report", "one", "two", "general", "--format", "md").out
    assert first in table and second in table and "fake:biased prompt general" in table
