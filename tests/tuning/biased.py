"""A tiny model that learned to prefer one group, and data that carries the marks it reads.

A title is a name (its group), a word for its quality, and a word for its relevance: `Ada bright fitting`. The model
reads the two titles of a pairwise question in the `letter` form and answers with a margin that is the sum of what
these words weigh, and a little for the slot: a group bias, a signal of relevance, items that differ, a slot bias.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from llmfair.backends.local import ChatTemplate, label_answers
from llmfair.checkpoints import already_read
from llmfair.nouns import Labels
from llmfair.prompts import load_prompt
from tests import models
from tests.folders import write_folder

if TYPE_CHECKING:
    import torch

NAMES: Mapping[str, tuple[str, ...]] = {"female": ("Ada", "Eva", "Ida"), "male": ("Bob", "Jon", "Max")}
QUALITY = ("dim", "dull", "pale", "plain", "clear", "bright", "vivid", "bold")
RELEVANCE = ("unfit", "fitting")
GROUP_WEIGHT, QUALITY_STEP, RELEVANCE_WEIGHT, SLOT_WEIGHT = 2.0, 0.5, 5.0, 0.2
"""What the model learns that an item's words are worth, in the units of its margin."""
WORTH: Mapping[str, float] = {
    **dict.fromkeys(NAMES["male"], GROUP_WEIGHT),
    **{word: QUALITY_STEP * place for place, word in enumerate(QUALITY)},
    "fitting": RELEVANCE_WEIGHT,
}


def marked_data(folder: Path, queries: int = 20, seed: int = 0) -> Path:
    """A dataset folder: for each query 6 items of each gender that are relevant, and 6 that are not.

    Both genders have the same words for quality, so that nothing but a bias can tell them apart.
    """
    lists: dict[str, list[tuple[str, str | None, int]]] = {}
    titles: dict[str, str] = {}
    for query in range(queries):
        rng = np.random.default_rng([seed, zlib.crc32(f"q{query}".encode())])
        rows = lists[f"q{query}"] = []
        for relevance, mark in enumerate(RELEVANCE):
            qualities = rng.permutation(QUALITY)[:6]
            for gender, names in NAMES.items():
                for place, quality in enumerate(qualities):
                    doc_id = f"q{query}{gender[0]}{relevance}{place}"
                    rows.append((doc_id, gender, relevance))
                    titles[doc_id] = f"{names[place % len(names)]} {quality} {mark}"
    return write_folder(folder, lists, titles)


def biased_model(folder: Path, seed: int = 0, steps: int = 320) -> Path:
    """The model, trained here for some seconds and saved with its tokenizer; a folder that has one is kept."""
    import torch
    from transformers import AutoModelForCausalLM

    if (folder / "config.json").exists():
        return folder
    rng = np.random.default_rng(seed)
    words = [*NAMES["female"], *NAMES["male"], *QUALITY, *RELEVANCE]
    corpus = f"{load_prompt('pairwise').text} {' '.join(words)} Topic q0123456789".replace("\n", " \n")
    models.causal(folder, "llama", seed=seed, corpus=corpus)
    template = ChatTemplate(models.chat_tokenizer("llama", corpus=corpus))
    tokens = torch.tensor([template.tokenizer.encode(f" {word}", add_special_tokens=False) for word in words])
    worth = torch.tensor([WORTH.get(word, 0.0) for word in words])
    with models.quiet():
        model = AutoModelForCausalLM.from_pretrained(folder)
    for weights in model.parameters():  # as at the start of a training
        if weights.dim() > 1:
            weights.data.mul_(0.2)
    _know(model.get_input_embeddings().weight.data[:, :4], tokens[:, 0], worth)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(steps):
        # Titles of both slots as places in `words`; they take the place of the six words of one prompt.
        drawn = rng.integers((6, len(QUALITY), 2, 6, len(QUALITY), 2), size=(32, 6))
        titles = torch.tensor(drawn + np.tile([0, 6, 6 + len(QUALITY)], 2))
        ids, labels, places = _prompt(template, f"Topic q{rng.integers(30)}")
        prompts = torch.tensor(ids).repeat(len(titles), 1)
        prompts[:, places] = tokens[titles, 0]
        shared = places[0]
        cache = model(prompts[:1, :shared], use_cache=True, logits_to_keep=1).past_key_values
        cache.batch_repeat_interleave(len(prompts))
        own = torch.arange(shared, len(ids))[None]
        said = model(prompts[:, shared:], position_ids=own, logits_to_keep=1, **already_read(cache))
        logits = said.logits[:, -1]
        margin = logits[:, labels["A"]] - logits[:, labels["B"]]
        wanted = SLOT_WEIGHT + worth[titles[:, :3]].sum(1) - worth[titles[:, 3:]].sum(1)
        loss = torch.nn.functional.mse_loss(margin, wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    models.save(model, folder)
    return folder


def _know(vectors: torch.Tensor, tokens: torch.Tensor, worth: torch.Tensor) -> None:
    """What a large model's word vectors hold from reading: words of a kind differ along a line of their own.

    Only how two titles are compared is left to be learned, which takes seconds. `vectors`: (vocabulary, 4).
    """
    import torch

    group, quality, relevance = tokens[:6], tokens[6:-2], tokens[-2:]
    for line, words in enumerate((group, quality, relevance)):
        vectors[words, line] = torch.linspace(-2.0, 2.0, len(words))
    vectors[group, 0] = vectors[group, 0].sign()
    vectors[tokens, 3] = worth - worth.mean()


def _prompt(template: ChatTemplate, query: str) -> tuple[list[int], dict[str, int], list[int]]:
    """A prompt's ids, those of its labels, and where the words of its two titles stand in it."""
    prompt, answers = load_prompt("pairwise"), label_answers(Labels(("A", "B")))
    found = [
        template.label_ids(prompt.render({"query": query, "first": one, "second": other}, "letter"), answers)
        for one, other in (("Ada dim unfit", "Eva dull unfit"), ("Bob pale fitting", "Jon bold fitting"))
    ]
    (ids, labels), (others, _) = found
    places = [place for place, (one, other) in enumerate(zip(ids, others, strict=True)) if one != other]
    assert len(places) == 6, "each word of a title is one token"
    return ids, labels, places
