"""What a training would take, counted and computed before anything is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from llmfair.backends.templates import ChatTemplate, label_answers
from llmfair.checkpoints import Checkpoint, tokenizer_of
from llmfair.report.tables import count
from llmfair.settings import FinetuneSettings
from llmfair.stats.intervals import FEWEST_QUERIES
from llmfair.tuning.design import TuningDesign, make_tuning_design, recipe_of
from llmfair.tuning.results import FinetunePlan, Needs, PromptAsAsked, PromptTokens

SAMPLED = 100
"""So many pairs are cut into tokens; the others are taken to be as long."""
SHOWN = 3
PEAKS = {"A100": 312e12, "H200": 790e12, "CPU of 0.5 TFLOP/s": 0.5e12}
"""Dense operations a second: bfloat16 of GPUs, float32 of about eight cores with AVX2."""
EFFICIENCY = 0.5
BYTES_PER_TOKEN = 4.5 * 2**20 / (32 * 4096)
"""Kept for the backward pass of adapted attention, per layer and unit of width [measured on 32 layers of 4096]."""


def plan_finetune(settings: FinetuneSettings) -> FinetunePlan:
    """Counts, tokens, steps, memory, time and the first prompts. Loads a tokenizer, no weights."""
    design = make_tuning_design(settings)
    tokenizer = tokenizer_of(design.checkpoint)
    template = ChatTemplate(tokenizer, design.options.system, design.options.template_args)
    asked = [*islice(_asked(design, template), 2 * SAMPLED)]
    lengths = [len(ids) for ids, _, _ in asked]
    shared = _shared([ids for ids, _, _ in asked], [query_id for _, query_id, _ in asked])
    mean = sum(lengths) / len(lengths)
    return FinetunePlan(
        **design.told(str(design.folder().path)),
        status="planned",
        warnings=_warnings(len(design.drawn.split.test)),
        steps=recipe_of(settings).steps,
        tokens=PromptTokens(mean, max(lengths), shared, len(asked)),
        estimate=estimate(design.checkpoint, settings, mean, shared),
        prompts=[prompt for _, _, prompt in asked[:SHOWN]],
    )


def _warnings(test: int) -> list[str]:
    """What a training of this split cannot tell, said before it is paid for."""
    if test >= FEWEST_QUERIES:
        return []
    return [
        f"only {count(test, 'query', 'queries')} to test on: the effect on unseen queries cannot be assessed, which "
        f"needs {FEWEST_QUERIES}; take a larger dataset, or a lower --train-share"
    ]


def _asked(
    design: TuningDesign, template: ChatTemplate
) -> Iterator[tuple[Sequence[int], str, PromptAsAsked]]:
    """Prompts from all groups alike, each with its token ids and its query."""
    from llmfair.tuning.examples import chats_of

    pairs = [*chain(*design.drawn.groups)]
    for pair in pairs[:: max(1, len(pairs) // SAMPLED)]:
        for chat in chats_of(pair, design.ranker):
            ids, answers = template.label_ids(chat.messages, label_answers(chat.expects))
            prompt = PromptAsAsked(pair.pair_id, template.tokenizer.decode(ids), answers)
            yield ids, pair.query.query_id, prompt


def _shared(prompts: Sequence[Sequence[int]], query_ids: Sequence[str]) -> float:
    """Tokens that all prompts of a query begin with, on average."""
    by_query: dict[str, list[Sequence[int]]] = {}
    for ids, query_id in zip(prompts, query_ids, strict=True):
        by_query.setdefault(query_id, []).append(ids)
    common = [
        next(
            (place for place, tokens in enumerate(zip(*of_it, strict=False)) if len(set(tokens)) > 1),
            min(map(len, of_it)),
        )
        for of_it in by_query.values()
    ]
    return sum(common) / len(common)


def estimate(
    checkpoint: Checkpoint, settings: FinetuneSettings, tokens: float, shared: float
) -> Needs | None:
    """Memory, and time at half of a device's peak: 4N operations a token for N weights of a frozen base.

    None for a configuration that does not say how large the model is.
    """
    config: Mapping[str, Any] = checkpoint.text_config
    try:
        width, layers, inner = (
            int(config[name]) for name in ("hidden_size", "num_hidden_layers", "intermediate_size")
        )
        heads, vocabulary = int(config["num_attention_heads"]), int(config["vocab_size"])
    except (KeyError, TypeError, ValueError):
        return None
    if any("expert" in name for name in config):  # of which a token passes some
        return None
    head = int(config.get("head_dim") or width // heads)
    keys = int(config.get("num_key_value_heads") or heads) * head
    weights = layers * (2 * width * heads * head + 2 * width * keys + 3 * width * inner)
    size = 0.55 if settings.load_in_4bit else 4 if settings.dtype == "float32" else 2
    embedded = vocabulary * width * (1 if config.get("tie_word_embeddings") else 2)
    gib = 2.0**30
    own = shared / settings.group_size + tokens - shared
    plain, less = (4 * weights * recipe_of(settings).prompts * n for n in (tokens, own))
    return Needs(
        weights=weights + embedded,
        weights_gib=(weights * size + embedded * 2) / gib,
        # A group is one batch, whatever batches the base is asked in.
        training_gib=BYTES_PER_TOKEN * layers * width * tokens * settings.group_size / gib,
        petaflop=plain / 1e15,
        seconds={
            name: {"plain": plain / (peak * EFFICIENCY), "shared": less / (peak * EFFICIENCY)}
            for name, peak in PEAKS.items()
        },
    )
