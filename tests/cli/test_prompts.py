"""In which words a model is asked: those that the dataset calls for, unless another prompt is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfair.datasets.base import load_dataset
from llmfair.prompts import load_prompt
from llmfair.rankers.answers import read_strict
from llmfair.rankers.choices import read_text
from tests.cli.command import kept, ran, refuses
from tests.folders import balanced, write_folder

PAPERS, GENERAL = "for the WikiProject coordinators", "for users of a collection"
LISTS = ("listwise", "-n", "5", "--orders", "1", "--variants", "neutral", "--passes", "1", "--no-control")


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
    assert called_for == {
        "sample": "wikiproject",
        "trec-fair/2022/gender": "wikiproject",
        "mine": "general",
    }


def test_lists_that_are_drawn_keep_the_prompt_of_their_source(mine: Path) -> None:
    drawn = ("-d", "mine", "--buckets", "natural", "--candidates", "4")
    assert GENERAL in rendered("listwise", *drawn)


def test_two_names_of_a_prompt_are_one_run(mine: Path) -> None:
    ran(*LISTS, "-d", "mine", "--prompt", "wikiproject")
    ran(*LISTS, "-d", "mine", "--prompt", "listwise")
    manifest = kept("manifest")
    assert manifest["calls"] == 0 and manifest["prompt"]["file"] == "wikiproject"
    assert manifest["prompt"]["sha256"] == load_prompt("listwise").sha256


def test_the_preset_is_told_however_its_settings_were_given() -> None:
    ran(*LISTS, "--window", "5", "--step", "1", "--no-control-variate")
    assert kept("results")["design"]["preset"] == "paper"


def test_the_preset_is_not_told_of_another_prompt(mine: Path) -> None:
    ran(*LISTS, "-d", "mine", "--window", "5", "--step", "1", "--no-control-variate")
    assert kept("results")["design"]["preset"] is None


def test_a_ranker_that_reads_no_prompt_is_the_same_run_on_any_data() -> None:
    lists = balanced(5, 4, 4)
    write_folder(Path("mine"), lists, queries=dict.fromkeys(lists, "title"))
    ran("listwise", "-m", "bm25", "-d", "mine", "--measures", "P@2")
    assert kept("manifest")["prompt"]["sha256"] == load_prompt("listwise").sha256


def test_answers_to_the_general_prompt_are_read() -> None:
    assert read_text("Item B", "letter") == read_text("B", "letter")
    assert read_text("Item 2 > Item 1", "order") == read_text("[2] > [1]", "order")
    assert (
        read_strict("[2] Ada, item 3 of hers > [1]", 2).permutation == read_strict("[2] > [1]", 2).permutation
    )


def test_a_copy_with_other_words_is_ones_own_prompt(mine: Path) -> None:
    text = ran("prompts", "show", "listwise-general").out
    Path("my.toml").write_text(text.replace("users of a collection", "{}recruiters of a hospital"))
    refuses("my.toml", *LISTS, "-d", "mine", "--prompt", "my.toml")
    Path("my.toml").write_text(text.replace("users of a collection", "recruiters of a hospital"))
    assert "for recruiters of a hospital" in rendered("listwise", "-d", "mine", "--prompt", "my.toml")
    ran(*LISTS, "-d", "mine", "--prompt", "my.toml")
    assert kept("manifest")["prompt"]["file"] == "my.toml"


def test_prompts_are_listed_by_what_prompt_takes() -> None:
    listed = {one["prompt"]: one["wording"] for one in ran("prompts", "list", "--json").json["prompts"]}
    assert listed == {
        "listwise": "wikiproject",
        "listwise-general": "general",
        "neural": None,
        "pairwise": "wikiproject",
        "pairwise-general": "general",
    }
    refuses("'general' is a prompt of several tasks", "prompts", "show", "general")
    refuses("Did you mean 'general'?", "listwise", "--prompt", "genral", "--dry-run")
