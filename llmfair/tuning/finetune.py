"""`llmfair finetune-lora` from data to adapter folder, read from top to bottom.

Pairs -> the base's own margins -> labels -> training, validated as it goes -> the test queries, once -> the folder.
Under several processes each does its share of every forward pass; the first alone writes.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from errno import ENOSPC
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

import llmfair
from llmfair.audits.aggregates import Inference
from llmfair.backends.local import ChatTemplate, label_answers
from llmfair.checkpoints import Checkpoint, require_local, tokenizer_of
from llmfair.errors import LlmfairError
from llmfair.io.files import FULL, json_text, plain, read
from llmfair.report.tables import count
from llmfair.rundir import now
from llmfair.settings import FinetuneSettings, band_of
from llmfair.settings.tuning import ORDERS
from llmfair.stats.intervals import FEWEST_QUERIES
from llmfair.tuning import lora
from llmfair.tuning.design import TuningDesign, make_tuning_design, recipe_of
from llmfair.tuning.drawing import (
    PARTS,
    Floats,
    PairGroup,
    Stratum,
    TrainingPair,
    chats_of,
    counting,
    in_pieces,
    label,
    row,
)
from llmfair.tuning.effects import ADAPTER as AFTER
from llmfair.tuning.effects import (
    BASE,
    BASELINE,
    AnsweredPairs,
    changes,
    measure,
    metrics_csv,
    missed,
    offset_of,
    results_of,
    target_counts,
    validate,
    with_text,
)
from llmfair.tuning.lora import quantization, require_trainable, train
from llmfair.tuning.results import (
    AdapterDir,
    FinetunePlan,
    FinetuneResults,
    Needs,
    PromptAsAsked,
    PromptTokens,
    TrainingFacts,
    Validation,
    pairs_text,
    sha256,
)
from llmfair.tuning.words import audit_of, judged

if TYPE_CHECKING:
    from llmfair.backends.local import LocalModel
    from llmfair.tuning.drawing import Example, ExampleGroup


# A full disk in one sentence, whichever library was writing.


LEAST_ROOM = 2**20


@contextmanager
def room_wanted(folder: Path) -> Iterator[None]:
    """For what is written below a folder that is there; each library has an error of its own for a full disk.

    Raises LlmfairError where one ends it.
    """
    try:
        yield
    except LlmfairError:
        raise
    except Exception as error:
        full = (isinstance(error, OSError) and error.errno in FULL) or os.strerror(ENOSPC) in str(error)
        if full or shutil.disk_usage(folder).free < LEAST_ROOM:
            place = getattr(error, "filename", None) or folder
            raise LlmfairError(
                f"cannot write {place}: no space left on device.", "make room; the same command continues"
            ) from error
        raise


NONE_KEPT = "no checkpoint kept the gates on the validation queries"
TRAINING, MEASURING = "Training", "Measuring"
Tell = Callable[[int, str], None]
Card = Callable[[FinetuneResults], str]
PIECE = 2048
"""Prompts that each process asks between two words on how far it is."""


class TrainingWatch:
    """Shows how far a training is, nothing by itself. Nothing is shown but in the first process."""

    def begin(self, folder: Path, design: TuningDesign) -> None:
        pass

    def labelled(self, counts: Mapping[Stratum, int]) -> None:
        """How many pairs of each stratum count in the loss."""

    def stage(self, name: str, total: int) -> AbstractContextManager[Tell]:
        """`with watch.stage(TRAINING, prompts) as tell:` and `tell(done, words)`."""
        return nullcontext(lambda done, words: None)


@dataclass(frozen=True)
class Done:
    """An adapter folder and its results; `before` says that an earlier command finished it."""

    folder: AdapterDir
    results: FinetuneResults
    before: bool


def finetune(settings: FinetuneSettings, card: Card, watch: TrainingWatch | None = None) -> Done:
    """Trains an adapter, or goes on with it, and measures it; `card` writes the model card from the results.

    Raises UsageError, MissingExtra and BackendError before anything is trained, RunConflict for a folder of other
    settings. When no checkpoint keeps the gates, everything is written too, and the results' status is `rejected`.
    """
    require_local("peft", "accelerate")
    design, watch = make_tuning_design(settings), watch or TrainingWatch()
    folder = design.folder()
    lora.join()
    with ExitStack() as held:

        def take() -> bool:
            if not folder.finished:  # said before a folder belongs to these settings
                require_trainable(recipe_of(settings), design.place().dtype)
                quantization(settings.load_in_4bit, design.place().device)
            folder.begin(design.identity(), plain(design.drawn.split))
            held.enter_context(folder.locked())
            return folder.finished

        done = lora.first(take)
        if not done:
            watch.begin(folder.path, design)
            with room_wanted(folder.path):
                _train_and_measure(design, folder, card, watch)
    return Done(folder, read(folder.results, FinetuneResults), done)


def _train_and_measure(design: TuningDesign, folder: AdapterDir, card: Card, watch: TrainingWatch) -> None:
    from llmfair.backends.local import load_model
    from llmfair.tuning.drawing import render

    started, settings, drawn = time.monotonic(), design.settings, design.drawn
    place, engine = design.place(), design.engine
    in_4bit = quantization(settings.load_in_4bit, place.device)
    model = load_model(design.checkpoint, place, design.options, engine["attention"], **in_4bit)
    template = model.template
    assert template is not None  # a causal model has one

    rendered: dict[str, Example] = {}

    def examples(groups: Sequence[PairGroup]) -> list[ExampleGroup]:
        """Every pair is cut into tokens once, whatever is known of its target meanwhile."""
        missing = {pair.pair_id: pair for pair in chain(*groups) if pair.pair_id not in rendered}
        (found,) = render([(*missing.values(),)], design.ranker, template, design.checkpoint.context)
        rendered.update(zip(missing, found, strict=True))
        return [
            tuple(
                replace(
                    rendered[pair.pair_id],
                    target=0.5 if pair.target is None else pair.target,
                    weight=pair.weight,
                )
                for pair in group
            )
            for group in groups
        ]

    # The base's own answers: on what is trained on, for labels; on the rest, for before.
    trained_on = chain(
        *(in_pieces([*chain(*strata.values())], sum(PARTS.values())) for strata in drawn.train.values())
    )
    asked = [*trained_on, *drawn.validation, *drawn.test]
    known = lora.first(folder.read_pairs)
    if not all(pair.pair_id in known for pair in chain(*asked)):
        with watch.stage(f"Asking {design.checkpoint.name}", 2 * sum(map(len, asked))) as tell:
            found = margins_of(model, examples(asked), engine["batch_tokens"], tell)
        margins = chain(*(of_it.tolist() for of_it in found))
        known = {pair.pair_id: (z1, z2) for pair, (z1, z2) in zip(chain(*asked), margins, strict=True)}
    labelled = label(
        drawn.train,
        known,
        design.attribute,
        settings.labels,
        settings.anchor,
        settings.seed,
        settings.soft_labels,
    )
    watch.labelled(counting(labelled))
    pairs = pairs_text(_rows(design, labelled, known))
    lora.require_equal(sha256(pairs), "the pairs to train on")
    lora.first(lambda: folder.write_pairs(pairs))

    # Training; validation is the same measure as the final one, on other queries.
    groups = examples([tuple(labelled[pair.pair_id] for pair in group) for group in drawn.groups])
    inference, band = Inference(level=settings.level, seed=settings.seed), band_of(settings.band)
    before, on_validation = _answers(design, drawn.validation, known), examples(drawn.validation)
    base_figures = measure(before, before, inference, band)

    def check() -> Validation:
        found = margins_of(model, on_validation, engine["batch_tokens"])
        after = AnsweredPairs.of(drawn.validation, found, design.attribute)
        return validate(base_figures, measure(after, before, inference, band))

    recipe = recipe_of(settings)
    with watch.stage(TRAINING, recipe.prompts) as tell:
        trained = train(model, groups, check, recipe, folder.path, tell)

    validated = check()

    # The test queries, once.
    with watch.stage(MEASURING, 2 * sum(map(len, drawn.test))) as tell:
        found = margins_of(model, examples(drawn.test), engine["batch_tokens"], tell)
    base, after = _answers(design, drawn.test, known), AnsweredPairs.of(drawn.test, found, design.attribute)
    of_training = [pair for strata in drawn.train.values() for pair in chain(*strata.values())]
    offset = offset_of(of_training, np.array([known[pair.pair_id] for pair in of_training]))
    answered = {BASE: base, AFTER: after, BASELINE: base.shifted_by(offset)}
    figures = {name: measure(answers, base, inference, band) for name, answers in answered.items()}
    training = TrainingFacts(
        **structs.asdict(trained),
        prompts_per_second=trained.prompts / trained.seconds if trained.seconds else None,
        validation=structs.replace(validated, gates=with_text(validated.gates)),
        why=f"{NONE_KEPT}: {missed(validated.gates)}." if trained.rejected else None,
        offset=offset,
        processes=lora.world(),
    )
    results = judged(
        results_of(
            design.told(folder.path.name),
            figures,
            changes(base, after, settings.level),
            validate(figures[BASE], figures[AFTER]),
            training,
        ),
        audit_of(settings, f"hf:{design.checkpoint.name}", folder.path),
    )
    seconds = time.monotonic() - started
    manifest = manifest_of(design, model, [*labelled.values()], sha256(pairs), results, seconds)
    files = {"metrics.csv": metrics_csv(results.rows), "results.json": json_text(results)}
    lora.first(lambda: folder.finish(manifest, card(results), files, passed=not trained.rejected))


# What the manifest says of where an adapter belongs and where it comes from (keys: `results.py`).


LIBRARIES = ("torch", "transformers", "peft", "accelerate")
COPIED = ("counts", "overlap", "figure_4", "gates_on_test", "objective", "changes", "training")


def manifest_of(
    design: TuningDesign,
    model: LocalModel,
    labelled: Sequence[TrainingPair],
    pairs_sha256: str,
    results: FinetuneResults,
    seconds: float,
) -> dict[str, Any]:
    """The manifest but for the adapter's sha256."""
    settings, checkpoint, template = design.settings, design.checkpoint, model.template
    assert template is not None  # a causal model has one
    return {
        "task": "finetune-lora",
        "status": results.status,
        "made": now(),
        "seconds": seconds,
        "versions": {
            "llmfair": llmfair.__version__,
            "python": platform.python_version(),
            **{library: version(library) for library in LIBRARIES},
        },
        "base": {
            "name": checkpoint.name,
            "identity": checkpoint.identity,
            "fingerprint": checkpoint.version,
            "dtype": model.place.dtype,
            "load_in_4bit": settings.load_in_4bit,
            "place": model.place.why,
        },
        "template_sha256": template.sha256,
        "template_args": dict(template.template_kwargs),
        "system": "folded" if template.folded else "separate",
        "prompt": {
            "name": settings.prompt,
            "sha256": design.prompt.sha256,
            "text": design.prompt.text,
            "form": settings.form,
            "input": settings.input,
            "words": settings.words,
        },
        "attribute": design.attribute.name,
        "dataset": {"name": design.dataset.name, "lists_sha256": design.identity()["lists_sha256"]},
        "answers": answers_of(design, template),
        "settings": design.identity(),
        "split": plain(design.drawn.split),
        "targets": target_counts(labelled),
        "pairs_sha256": pairs_sha256,
        **{key: plain(getattr(results, key)) for key in COPIED},
    }


def answers_of(design: TuningDesign, template: ChatTemplate) -> dict[str, Any]:
    """The answers between which the model chooses: texts, what all begin with, and the token ids where they part."""
    pair = design.drawn.groups[0][0]
    chats = chats_of(pair, design.ranker)
    assert len(chats) == ORDERS
    texts = label_answers(chats[0].expects)
    prompt = template.ids(chats[0].messages)
    ids, labels = template.label_ids(chats[0].messages, texts)
    return {"texts": texts, "ids": labels, "forced": list(ids[len(prompt) :])}


def margins_of(
    model: LocalModel, groups: Sequence[ExampleGroup], batch_tokens: int, tell: Tell | None = None
) -> list[Floats]:
    """Margins (pairs, 2) of every group, each process calculating its share of them."""
    from llmfair.tuning.head import pair_margins

    found: list[Floats] = []
    piece: list[ExampleGroup] = []
    for place, group in enumerate(groups, 1):
        piece.append(group)
        if 2 * sum(map(len, piece)) >= PIECE * lora.world() or place == len(groups):
            found += lora.shared_out(piece, lambda own: pair_margins(model, own, batch_tokens))
            piece = []
            if tell is not None:
                tell(2 * sum(map(len, found)), "")
    return found


def _answers(
    design: TuningDesign, groups: Sequence[PairGroup], known: Mapping[str, tuple[float, float]]
) -> AnsweredPairs:
    """The base's answers on these groups."""
    margins = [np.array([known[pair.pair_id] for pair in group]) for group in groups]
    return AnsweredPairs.of(groups, margins, design.attribute)


def _rows(
    design: TuningDesign, labelled: Mapping[str, TrainingPair], known: Mapping[str, tuple[float, float]]
) -> Iterator[dict[str, Any]]:
    """The lines of `pairs.jsonl`: what is trained on, then what is measured, each pair once."""
    relevance = {query.query_id: design.dataset.candidates(query).relevance for query in design.queries}
    parts = {
        "train": labelled.values(),
        "validation": chain(*design.drawn.validation),
        "test": chain(*design.drawn.test),
    }
    for part, pairs in parts.items():
        for pair in pairs:
            z1, z2 = known[pair.pair_id]
            line = row(pair, design.attribute, relevance[pair.query.query_id])
            yield {**line, "part": part, "z1": z1, "z2": z2}


# What a training would take, counted and computed before anything is asked.


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
    mean, test, warnings = sum(lengths) / len(lengths), len(design.drawn.split.test), []
    if test < FEWEST_QUERIES:
        warnings = [
            f"only {count(test, 'query', 'queries')} to test on: the effect on unseen queries cannot be assessed, "
            f"which needs {FEWEST_QUERIES}; take a larger dataset, or a lower --train-share"
        ]
    return FinetunePlan(
        **design.told(str(design.folder().path)),
        status="planned",
        warnings=warnings,
        steps=recipe_of(settings).steps,
        tokens=PromptTokens(mean, max(lengths), shared, len(asked)),
        estimate=estimate(design.checkpoint, settings, mean, shared),
        prompts=[prompt for _, _, prompt in asked[:SHOWN]],
    )


def _asked(
    design: TuningDesign, template: ChatTemplate
) -> Iterator[tuple[Sequence[int], str, PromptAsAsked]]:
    """Prompts from all groups alike, each with its token ids and its query."""
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
        next((at for at, ids in enumerate(zip(*of, strict=False)) if len({*ids}) > 1), min(map(len, of)))
        for of in by_query.values()
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
