"""`llmfair finetune-lora` from data to adapter folder, read from top to bottom.

Pairs -> the base's own margins -> labels -> training, validated as it goes -> the test queries, once -> the folder.
Under several processes each does its share of every forward pass; the first alone writes.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

import llmfair
from llmfair import checkpoints
from llmfair.audits import lists
from llmfair.audits.aggregates import Inference
from llmfair.audits.subject import backend_args, template_args
from llmfair.backends import local
from llmfair.backends.base import BackendOptions
from llmfair.backends.hf import read_arguments
from llmfair.backends.local import ChatTemplate, LocalModel, label_answers
from llmfair.datasets.base import Dataset
from llmfair.errors import MissingExtra, UsageError
from llmfair.io.files import SCHEMA, json_text, plain, read_document, read_lines, write_whole
from llmfair.nouns import Attribute, Document, Query, Side, picked
from llmfair.probes import pairwise_probes
from llmfair.prompts import load_prompt
from llmfair.rankers.pairwise import PairwiseRanker
from llmfair.results import Words, lines_of
from llmfair.rundir import COLUMNS, csv_text, folder_name, now
from llmfair.settings.commands import FinetuneSettings
from llmfair.settings.declaration import band_of
from llmfair.stats.intervals import FEWEST_QUERIES
from llmfair.tuning import drawing, effects, processes
from llmfair.tuning import results as typed
from llmfair.tuning.drawing import ExampleGroup, Floats, PairDraw, PairGroup, TrainingPair
from llmfair.tuning.effects import ADAPTER, BASE, BASELINE, PAIR_STRATA, AnsweredPairs, Figures
from llmfair.tuning.results import AdapterDir, FinetuneResults
from llmfair.tuning.words import MEASURING, TRAINING, TrainingProgress, audit_of, judged, model_card


@dataclass(frozen=True)
class TuningDesign:
    """Everything an adapter is trained and measured on, known before a model is loaded."""

    settings: FinetuneSettings
    dataset: Dataset
    attribute: Attribute
    queries: Sequence[Query]
    ranker: PairwiseRanker
    checkpoint: checkpoints.Checkpoint
    drawn: PairDraw
    held_out: typed.HeldOut
    engine: Mapping[str, Any]
    """`--backend-arg` over its defaults: device, attention, batch_tokens."""

    def place(self) -> checkpoints.Place:
        """Where the base runs and in which type: on a GPU in bfloat16, else as it was saved, unless told."""
        device, why = checkpoints.device_of(self.engine["device"])
        if self.settings.dtype == "auto" and device != "cpu":
            dtype, why_dtype = "bfloat16", "as bases of adapters are held on a GPU"
        else:
            dtype, why_dtype = checkpoints.dtype_of(self.checkpoint, self.settings.dtype)
        of_process = f":{os.environ.get('LOCAL_RANK', '0')}" * (device == "cuda" and processes.world() > 1)
        return checkpoints.Place(device + of_process, dtype, f"{device}: {why}; {dtype}: {why_dtype}")

    def identity(self) -> dict[str, Any]:
        """All that can change the adapter or its figures, for the folder's name and against mixing runs."""
        settings = self.settings
        return {
            **settings.of_result(),
            **picked(settings, ("level", "band", "grades")),
            **lists.lists_identity(self.dataset, self.attribute, self.queries),
            "task": "finetune-lora",
            "identity": self.checkpoint.identity,
            "prompt_sha256": self.ranker.prompt.sha256,
        }

    def folder(self) -> AdapterDir:
        """The folder that --output says, or one derived from the settings."""
        parts = (*lists.name_parts(self.dataset, self.attribute), Path(self.checkpoint.source).name)
        return AdapterDir(self.settings.output or Path("adapters") / folder_name(parts, self.identity()))

    def of_training(self, run: str) -> dict[str, Any]:
        """The fields of `OfTraining`."""
        settings, drawn = self.settings, self.drawn
        split = {part: len(query_ids) for part, query_ids in plain(drawn.split).items()}
        names = {*typed.TuningFacts.__struct_fields__} - {"preset", "split"}
        chosen = picked(settings, names)
        return {
            "schema": SCHEMA, "task": "finetune-lora", "run": run, "dataset": self.dataset.name,
            "attribute": self.attribute.name, "model": f"hf:{self.checkpoint.name}",
            "words": Words(*(self.attribute.words[side] for side in Side)), "level": settings.level,
            "band": band_of(settings.band), "counts": drawn.counts(), "overlap": drawn.overlap(),
            "design": typed.TuningFacts(preset=settings.preset_name(), split=split, **chosen),
            "held_out": self.held_out,
        }  # fmt: skip


def require_trainable(settings: FinetuneSettings, dtype: str) -> None:
    """Raises UsageError for what is not offered, and MissingExtra."""
    if (report := settings.report_to) != "none" and find_spec(report) is None:
        raise MissingExtra(f"--report-to {report} needs {report}.", f"pip install {report}")
    for name in ("FSDP", "DEEPSPEED"):
        if os.environ.get(f"ACCELERATE_USE_{name}", "").lower() in ("1", "true"):
            raise UsageError(
                f"adapters are not trained with {name}: its checkpoints lose or repeat weights.",
                "start it with torchrun --nproc-per-node N, which needs one GPU's memory per copy of the base",
            )
    if dtype == "float16":
        raise UsageError("float16 needs its gradients scaled.", "use --dtype bfloat16 or float32")


def quantization(in_4bit: bool, device: str) -> dict[str, Any]:
    """What `load_model` needs to hold the base in 4 bits (NF4, products in bfloat16); nothing otherwise. Raises
    MissingExtra without bitsandbytes, and UsageError without a GPU."""
    if not in_4bit:
        return {}
    if find_spec("bitsandbytes") is None:
        raise MissingExtra("--load-in-4bit needs bitsandbytes.", "pip install bitsandbytes")
    if not device.startswith("cuda"):
        raise UsageError("--load-in-4bit needs an NVIDIA GPU.", "leave it out")
    import torch
    from transformers import BitsAndBytesConfig

    config = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )
    return {"quantization_config": config}


def make_tuning_design(settings: FinetuneSettings) -> TuningDesign:
    """Loads what the settings name and draws the pairs. Raises MissingExtra, UsageError and BackendError."""
    assert settings.base_model is not None  # checked by the settings
    engine = read_arguments(backend_args(settings.backend_arg))
    checkpoint = checkpoints.find_checkpoint(settings.base_model.removeprefix("hf:"))
    if checkpoint.encoder_decoder:
        raise UsageError(
            f"{checkpoint.name} reads a task and writes an answer; adapters are trained on models that carry a "
            "conversation on.",
            "choose an instruction-tuned causal model",
        )
    processes.groups_at_a_time(settings, processes.world())
    dataset, attribute = lists.load_lists(settings)
    lists.check_two_groups(attribute, "finetune-lora")
    queries = lists.selected_queries(dataset, settings)
    candidates = [dataset.candidates(query) for query in queries]
    settings, prompt = lists.with_prompt(settings, dataset, "pairwise")
    ranker = PairwiseRanker(
        prompt=prompt, form=settings.form, answers="margin", input=settings.input, words=settings.words
    )
    usable, grades, most = drawing.balances(candidates, attribute), settings.grades, settings.pairs
    precision = [
        drawing.expected([
            len(pairwise_probes(of, attribute, stratum, most, settings.seed, ranker.shown, grades=grades))
            for of in candidates if of.query.query_id in usable
        ])
        for stratum in PAIR_STRATA
    ]  # fmt: skip
    of: dict[str, Any] = {"strata": precision, "band": band_of(settings.band), "level": settings.level}
    if (share := settings.train_share) is None:
        share = drawing.train_share(len(usable), drawing.held_out(0, **of).needed)
        settings = replace(settings, train_share=share)
    split = drawing.split_queries(candidates, attribute, share, settings.split_seed)
    drawn = drawing.draw(candidates, attribute, split, settings, ranker.shown)
    held_out = drawing.held_out(len(split.test), **of)
    return TuningDesign(settings, dataset, attribute, queries, ranker, checkpoint, drawn, held_out, engine)


@dataclass(frozen=True)
class Done:
    """An adapter folder and its results; `before`: an earlier command finished it."""

    folder: AdapterDir
    results: FinetuneResults
    before: bool


def finetune(settings: FinetuneSettings, watch: TrainingProgress) -> Done:
    """Trains an adapter, or goes on with it, and measures it.

    Raises UsageError, MissingExtra and BackendError before anything is trained, RunConflict for a folder of other
    settings. When no checkpoint keeps the gates, everything is written too, and the results' status is `rejected`.
    """
    checkpoints.require_local("peft", "accelerate")
    design = make_tuning_design(settings)
    settings, drawn, folder = design.settings, design.drawn, design.folder()
    if processes.world() > 1:
        from accelerate import PartialState

        PartialState()  # the processes are known to each other
    with ExitStack() as lock:

        def take() -> bool:
            if not folder.finished:  # said before a folder belongs to these settings
                require_trainable(settings, design.place().dtype)
                quantization(settings.load_in_4bit, design.place().device)
            folder.begin(design.identity(), plain(drawn.split))
            lock.enter_context(folder.locked())
            return folder.finished

        if processes.first(take):
            return Done(folder, read_document(folder.results, FinetuneResults), before=True)
        from llmfair.tuning import head, lora

        watch.begin(folder.path, design)
        started, place = time.monotonic(), design.place()
        engine, checkpoint = design.engine, design.checkpoint
        options = BackendOptions(system=settings.system, template_args=template_args(settings.template_arg))
        in_4bit = quantization(settings.load_in_4bit, place.device)
        model = local.load_model(checkpoint, place, options, engine["attention"], **in_4bit)
        template = model.template
        assert template is not None  # a causal model has one

        def examples(groups: Sequence[PairGroup]) -> list[ExampleGroup]:
            return drawing.render(groups, design.ranker, template, checkpoint.context)

        def answers(groups: Sequence[PairGroup], tell: processes.Tell = lambda done, words: None) -> Floats:
            return head.margins_of(model, examples(groups), engine["batch_tokens"], tell)

        # The base's own answers: on what is trained on, for labels; on the rest, for before.
        train = ([*chain(*strata.values())] for strata in drawn.train.values())
        trained_on = chain(*(drawing.in_pieces(pairs, drawing.OF_A_GROUP) for pairs in train))
        groups = [*trained_on, *drawn.validation, *drawn.test]
        margins = processes.first(folder.margins)
        if not all(pair.pair_id in margins for pair in chain(*groups)):
            with watch.stage(f"Asking {checkpoint.name}", 2 * sum(map(len, groups))) as tell:
                both = answers(groups, tell).tolist()
            margins = {pair.pair_id: (z1, z2) for pair, (z1, z2) in zip(chain(*groups), both, strict=True)}
        labelled = drawing.label(drawn.train, margins, design.attribute, settings)
        pairs = typed.pairs_text(_rows(design, labelled, margins))
        processes.first(lambda: write_whole(folder.pairs, [pairs]))

        # Training; validation is the same measure as the final one, on other queries.
        def figures_of(after: AnsweredPairs, base: AnsweredPairs) -> Figures:
            inference = Inference(level=settings.level, seed=settings.seed)
            return effects.measure(after, base, inference, band_of(settings.band))

        training, validation, test = (
            AnsweredPairs(pairs, np.array([margins[pair.pair_id] for pair in pairs]), design.attribute)
            for pairs in drawn.parts.values()
        )
        offset = effects.offset_of(training)
        before, on_test = (
            (figures_of(base, base), figures_of(base.shifted_by(offset), base)) for base in (validation, test)
        )

        def check() -> typed.Validation:
            after = replace(validation, margins=answers(drawn.validation))
            return effects.validate(*before, figures_of(after, validation))

        groups = [tuple(labelled[pair.pair_id] for pair in group) for group in drawn.groups]
        with watch.stage(TRAINING, processes.prompts_of(settings)) as tell:
            record = lora.train(model, examples(groups), check, settings, folder.path, tell)
        validated, why = check(), None
        if record.rejected:
            missed = effects.gates_text(validated.gates, missed=True)
            why = f"no checkpoint kept the gates on the validation queries: {missed}."

        # The test queries, once.
        with watch.stage(MEASURING, 2 * len(test.pairs)) as tell:
            after = replace(test, margins=answers(drawn.test, tell))
        figures = {BASE: on_test[0], ADAPTER: figures_of(after, test), BASELINE: on_test[1]}
        results = effects.results_of(
            design.of_training(folder.path.name),
            figures,
            effects.changes(test, after, settings.level),
            effects.validate(*on_test, figures[ADAPTER]),
            typed.TrainingFacts(**structs.asdict(record), validation=validated, why=why, offset=offset),
        )
        results = judged(results, audit_of(settings, results.model, folder.path))
        manifest = manifest_of(design, model, template, results.status) | {
            "seconds": time.monotonic() - started,
            "pairs_sha256": sha256(pairs.encode("utf-8", "backslashreplace")).hexdigest(),
        }
        files = {
            "metrics.csv": csv_text(COLUMNS, lines_of(results.rows)),
            "results.json": json_text(results),
            "README.md": model_card(results),
        }
        processes.first(lambda: folder.finish(manifest, files, passed=not record.rejected))
        return Done(folder, results, before=False)


def _rows(
    design: TuningDesign, labelled: Mapping[str, TrainingPair], margins: drawing.Margins
) -> Iterator[typed.PairRow]:
    """The lines of `pairs.jsonl`: what is trained on, then what is measured, each pair once."""
    attribute = design.attribute
    relevance = {query.query_id: design.dataset.candidates(query).relevance for query in design.queries}

    def item(document: Document, query_id: str) -> typed.PairItem:
        groups = document.groups.get(attribute.name, ())
        grade = relevance[query_id].get(document.doc_id, 0)
        return typed.PairItem(document.doc_id, document.title, groups, attribute.side(document), grade)

    for part, pairs in {**design.drawn.parts, "train": labelled.values()}.items():
        for pair in pairs:
            query, (z1, z2) = pair.query, margins[pair.pair_id]
            a, b = item(pair.a, query.query_id), item(pair.b, query.query_id)
            yield typed.PairRow(
                pair.pair_id, query.query_id, query.text, pair.stratum, a, b, pair.target, pair.weight, part, z1, z2
            )  # fmt: skip


def manifest_of(
    design: TuningDesign, model: LocalModel, template: ChatTemplate, status: str
) -> dict[str, Any]:
    """What the manifest says of where an adapter belongs and comes from (keys: `results.py`); `answers`: the texts
    between which the model chooses, what all begin with, and the token ids where they part."""
    settings, checkpoint, prompt = design.settings, design.checkpoint, design.ranker.prompt
    chat, _ = drawing.chats_of(design.drawn.groups[0][0], design.ranker)
    texts = label_answers(chat.expects)
    ids, labels = template.label_ids(chat.messages, texts)
    identity, libraries = design.identity(), ("torch", "transformers", "peft", "accelerate")
    return {
        "task": "finetune-lora",
        "status": status,
        "made": now(),
        "versions": {
            "llmfair": llmfair.__version__, "python": platform.python_version(),
            **{library: version(library) for library in libraries},
        },
        "base": {
            "name": checkpoint.name, "identity": checkpoint.identity, "fingerprint": checkpoint.version,
            "dtype": model.place.dtype, "load_in_4bit": settings.load_in_4bit, "place": model.place.why,
        },
        "template_sha256": template.sha256,
        "template_args": dict(template.template_kwargs),
        "system": "folded" if template.folded else "separate",
        "prompt": {
            "name": settings.prompt, "sha256": prompt.sha256, "text": prompt.text,
            **picked(settings, ("form", "input", "words")),
        },
        "attribute": design.attribute.name,
        "dataset": {"name": design.dataset.name, "lists_sha256": identity["lists_sha256"]},
        "answers": {"texts": texts, "ids": labels, "forced": list(ids[len(template.ids(chat.messages)) :])},
        "settings": identity,
        "split": plain(design.drawn.split),
    }  # fmt: skip


SAMPLED = 100
"""So many pairs are cut into tokens; the others are taken to be as long."""
PEAKS = {"A100": 312e12, "H200": 790e12, "CPU of 0.5 TFLOP/s": 0.5e12}
"""Dense operations a second: bfloat16 of GPUs, float32 of about eight cores with AVX2. Half of it is had."""
BYTES_PER_TOKEN = 4.5 * 2**20 / (32 * 4096)
"""Kept for the backward pass of adapted attention, per layer and unit of width [measured on 32 layers of 4096]."""


def plan_finetune(settings: FinetuneSettings) -> typed.FinetunePlan:
    """Counts, tokens, steps, memory, time and the first prompts. Loads a tokenizer, no weights."""
    design = make_tuning_design(settings)
    tokenizer = checkpoints.tokenizer_of(design.checkpoint)
    template = ChatTemplate(tokenizer, settings.system, template_args(settings.template_arg))
    pairs, by_query = [*chain(*design.drawn.groups)], dict[str, list[list[int]]]()
    prompts = list[typed.PromptAsAsked]()
    for pair in islice(pairs[:: max(1, len(pairs) // SAMPLED)], SAMPLED):
        for chat in drawing.chats_of(pair, design.ranker):
            ids, labels = template.label_ids(chat.messages, label_answers(chat.expects))
            by_query.setdefault(pair.query.query_id, []).append(ids)
            prompts.append(typed.PromptAsAsked(pair.pair_id, tokenizer.decode(ids), labels))
    lengths = [len(ids) for ids in chain(*by_query.values())]
    common = [local.common_prefix(of_query) for of_query in by_query.values()]
    mean, shared = sum(lengths) / len(lengths), sum(common) / len(common)
    few = (
        f"fewer than {FEWEST_QUERIES} queries to test on: the effect on unseen queries cannot be assessed; take a "
        "larger dataset, or a lower --train-share"
    )
    return typed.FinetunePlan(
        **design.of_training(str(design.folder().path)),
        status="planned",
        warnings=[few] * (len(design.drawn.split.test) < FEWEST_QUERIES),
        steps=processes.steps_of(settings),
        tokens=typed.PromptTokens(mean, max(lengths), shared, len(lengths)),
        estimate=estimate(design.checkpoint, settings, mean, shared),
        prompts=prompts[:3],
    )


def estimate(
    checkpoint: checkpoints.Checkpoint, settings: FinetuneSettings, tokens: float, shared: float
) -> typed.Needs | None:
    """Memory, and time at half of a device's peak: 4N operations a token for N weights of a frozen base. None for a
    configuration that does not say how large the model is."""
    config: Mapping[str, Any] = checkpoint.text_config
    names = ("hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "vocab_size")
    sizes: list[Any] = [config.get(name) for name in names]
    if not all(isinstance(size, int) for size in sizes) or any("expert" in name for name in config):
        return None  # of experts a token passes some
    width, layers, inner, heads, vocabulary = sizes
    of_head = int(config.get("head_dim") or width // heads)
    keys = int(config.get("num_key_value_heads") or heads) * of_head
    weights = layers * (2 * width * heads * of_head + 2 * width * keys + 3 * width * inner)
    size = 0.55 if settings.load_in_4bit else 4 if settings.dtype == "float32" else 2
    embedded = vocabulary * width * (1 if config.get("tie_word_embeddings") else 2)
    own = tokens if settings.layout == "padded" else shared / settings.group_size + tokens - shared
    operations = 4 * weights * processes.prompts_of(settings) * own
    # A group is one batch, whatever batches the base is asked in.
    training = BYTES_PER_TOKEN * layers * width * tokens * settings.group_size
    seconds = {name: operations / (peak / 2) for name, peak in PEAKS.items()}
    of_weights = (weights * size + embedded * 2) / 2**30
    return typed.Needs(weights + embedded, of_weights, training / 2**30, operations / 1e15, seconds)


# `llmfair finetune-lora --merge DIR -o OUT`: a base and its adapter as one model, and how far that is from both.

PROBES = 200
"""Pairs whose answers are asked before and after."""


def merge_adapter(settings: FinetuneSettings) -> typed.MergeResults:
    """Merges the adapter of `settings.merge` into its base, written to `settings.output`; what that changed. Raises
    UsageError for a folder without a manifest, or of another base, and what loading and writing raise."""
    checkpoints.require_local("peft")
    from llmfair.tuning.head import merge

    assert settings.merge is not None and settings.output is not None  # checked by the settings
    if (manifest := checkpoints.read_manifest(settings.merge)) is None:
        raise UsageError(
            f"{settings.merge} holds no finished adapter of llmfair: it has no llmfair.json.",
            "the command that began it completes it",
        )
    base, asked = manifest["base"], manifest["prompt"]
    checkpoint = checkpoints.find_checkpoint((settings.base_model or base["name"]).removeprefix("hf:"))
    checkpoints.read_adapter(settings.merge, checkpoint)
    engine = read_arguments(backend_args(settings.backend_arg))
    device, why = checkpoints.device_of(engine["device"])
    options = BackendOptions(
        system="fold" if manifest["system"] == "folded" else "separate",
        adapter=settings.merge,
        template_args=manifest["template_args"],
    )
    model = local.load_model(
        checkpoint, checkpoints.Place(device, base["dtype"], why), options, engine["attention"]
    )
    assert model.template is not None  # it was trained with one
    how = {name: asked[name] for name in ("form", "input", "words")}
    ranker = PairwiseRanker(prompt=load_prompt(asked["name"], "pairwise"), answers="margin", **how)
    examples = drawing.render([probes_of(settings.merge)], ranker, model.template, checkpoint.context)
    cost = merge(model, settings.output, examples, engine["batch_tokens"])
    return typed.MergeResults(
        schema=SCHEMA, status="complete", task="merge", adapter=str(settings.merge), base=checkpoint.name,
        dtype=base["dtype"], output=str(settings.output), form=asked["form"], **cost,
    )  # fmt: skip


def probes_of(folder: Path) -> PairGroup:
    """Up to `PROBES` pairs that the adapter was measured on, at even distances and so of all queries and strata. By
    title alone: `pairs.jsonl` holds no texts, and the data may be gone. Raises UsageError where it cannot be read."""
    rows = [row for row in read_lines(AdapterDir(folder).pairs, typed.PairRow) if row.part == "test"]
    most, pairs = min(PROBES, len(rows)), list[TrainingPair]()
    for row in (rows[place * len(rows) // most] for place in range(most)):
        a, b = (Document(item.doc_id, item.title) for item in (row.a, row.b))
        pairs.append(TrainingPair(row.pair_id, Query(row.query_id, row.query), row.stratum, a, b))
    return tuple(pairs)
