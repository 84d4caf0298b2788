"""Presets: what the paper says, and what it leaves open as options behind its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.errors import UsageError
from llmfair.settings.tuning import FinetuneSettings
from tests import models
from tests.cli.command import kept, llmfair, ran, refuses
from tests.folders import balanced, write_folder


def test_options_of_a_preset_are_laid_over_it() -> None:
    made = ListwiseSettings.make("paper+few-relevant+deltr+rankgpt")
    assert (made.window, made.step, made.passes, made.orders, made.prompt) == (5, 1, 1, 1, "wikiproject")
    assert (made.candidates, made.relevant, made.initial) == (200, 24, "deltr")
    assert (made.read, made.windows) == ("rankgpt", "rankgpt")
    assert made.preset_name() == "paper"
    assert ListwiseSettings.make("paper").initial == "random"


def test_a_flag_wins_over_an_option() -> None:
    flags = tuple("listwise --preset paper+few-relevant --candidates 40 --relevant 10 --dry-run".split())
    assert ran(*flags, "--json").json["candidates"] == [40, 40]


def test_an_adapter_is_trained_in_the_form_of_the_papers_pairs() -> None:
    """Figure 4 starts where Table 3 ends."""
    trained = FinetuneSettings.make("paper", base_model="m")
    assert trained.form == PairwiseSettings.make("paper").form == "order"
    assert FinetuneSettings.make(base_model="m").form == "letter"


def test_an_option_that_is_none_is_named() -> None:
    refuses("no preset option 'deltrr'. Did you mean 'deltr'?", "listwise", "--preset", "paper+deltrr")
    refuses("no preset 'papr'. Did you mean 'paper'?", "listwise", "--preset", "papr+deltr")
    with pytest.raises(UsageError, match="no preset option 'deltr'"):
        PairwiseSettings.make("paper+deltr")


@pytest.mark.whole
def test_few_relevant_items_are_what_the_papers_precision_implies() -> None:
    """Of an order blind to relevance 24/200; of a perfect ranker 0.30 (listwise.md 7), where balanced lists give 0.60."""
    lists = {
        f"q{q}": [(f"q{q}{s}{i}", s, 1) for s in ("female", "male") for i in range(50)] for q in range(5)
    }
    write_folder(Path("pool"), lists)
    flags = ("listwise", "-d", "pool", "--dry-run", "--json", "--preset")
    found = {name: ran(*flags, name).json for name in ("paper", "paper+few-relevant")}
    assert [planned["candidates"] for planned in found.values()] == [[200, 200], [200, 200]]
    reached = [round(planned["reach"]["P@20"]["high"], 1) for planned in found.values()]
    assert reached == [0.6, 0.3]


@pytest.mark.whole
def test_a_ranker_made_for_texts_says_that_it_reads_titles_only() -> None:
    models.needs_local()
    models.t5(Path("T5"))
    lists = balanced(5, 3, 3)
    folder = write_folder(Path("mine"), lists)
    asked = ("listwise", "-m", "monot5:T5", "-d", "mine", "--conditions", "neutral", "--measures", "P@2")
    says = "monot5 was made for passages of text, and of 30 of 30 items it reads the title alone"
    assert says in llmfair(*asked).err
    assert says in kept("manifest")["warnings"][0]
    docs = folder / "docs.jsonl"
    docs.write_text(docs.read_text().replace('"title"', '"text": "Text.", "title"'))
    assert "made for passages" not in llmfair(*asked).err
