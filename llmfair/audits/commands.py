"""The command lines that ask the same again, or plan it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from llmfair import registry
from llmfair.audits.subject import Subject
from llmfair.backends.python import GIVEN
from llmfair.errors import UsageError
from llmfair.prompts import wordings
from llmfair.rundir import Manifest, RunDir
from llmfair.settings.commands import AuditSettings, ScoreSettings

REPRODUCES = ("Data", "Model", "Prompt", "Sampling", "Statistics")
"""Panels of flags that can change what is asked or concluded; the others say where, how fast and at what price."""
TRAINABLE = ("hf", "vllm")
"""Backends whose models an adapter can be trained for."""
SHARED_WITH_TRAINING = (
    "dataset", "attribute", "mixed", "seed", "candidates", "buckets", "relevant", "min_relevant", "allow_missing",
    "columns", "attributes", "groups", "run", "input", "words", "grades", "prompt", "system",
    "backend_arg", "template_arg",
)  # fmt: skip
"""Settings that an audit shares with the training of an adapter, so that both are of one thing."""
WAYS: Mapping[str, Mapping[str, Any]] = {
    "again": {},
    "measured": {"measures": None},
    "too_few_queries": {"limit": None, "queries": None},
    "few_encounters": {"limit": None, "queries": None},
    "no_common_grade": {"buckets": "equal"},
    "no_better_than_input": {"input": "text"},
    "no_better_than_chance": {"input": "text"},
    "chance_answers": {"input": "text"},
}
"""What the same audit is asked with to mend what bars a conclusion, by its reason."""
SECRET = re.compile(r"//[^/@\s]+@")


def settings_of(run: RunDir, manifest: Manifest) -> AuditSettings | None:
    """The settings of a run, as far as its manifest has them; None where they are damaged."""
    with suppress(UsageError):
        settings: AuditSettings = registry.lookup("audit", manifest.task).settings.from_flags(
            manifest.flags, run.manifest
        )
        return settings
    return None


def command_of(task: str, settings: AuditSettings, label: str) -> str:
    """The command line that asks the same again, wherever it writes; without what may be a password. `label` says who
    was asked, as results name it: a model's spec, and the folder of an adapter that answered."""
    whom = ("model", "adapter", "adapter_only")
    flags = settings.as_flags(name for name in _asked(settings, REPRODUCES) if name not in whom)
    model, _, adapter = label.partition(" + ")
    asked = ["-m", model, *(["--adapter", adapter, "--adapter-only"] if adapter else [])]
    return SECRET.sub("//", line("llmfair", task, *map(shlex.quote, asked), flags))


def line(*words: str) -> str:
    """A command line of the words that are there."""
    return " ".join(filter(None, words))


def _asked(settings: AuditSettings | ScoreSettings, panels: Collection[str]) -> list[str]:
    """The settings of these panels; no prompt where the only one is that of whoever scores lists."""
    unsaid = getattr(settings, "prompt", None) in ("scores", "pairwise-scores")
    names = (item.name for item in fields(settings) if item.metadata["panel"] in panels)
    return [name for name in names if not (unsaid and name == "prompt")]


def ways_of(task: str, settings: AuditSettings, label: str, texts: bool) -> dict[str, str]:
    """The command lines that ask the same with what each reason calls for, where that is another audit of this kind.

    `texts`: whether items have more to show than titles. None of an object, which no command names, nor of a ranker
    that reads no settings of asking.
    """
    names, ways = {*vars(settings)}, dict[str, str]()
    if label.startswith(f"{GIVEN}:") or Subject(label).ranks:
        return ways
    for reason, changes in {**WAYS, **settings.ways()}.items():
        if changes.keys() <= names and (texts or "input" not in changes):
            other = replace(settings, **changes)
            with suppress(UsageError):  # settings that do not go together
                other.check()
                if other != settings or not changes:
                    ways[reason] = command_of(task, other, label)
    return ways


def continuing(run: RunDir) -> str | None:
    """The command that asks what a run lacks; None where it is complete, or no command names who was asked."""
    manifest = run.read_manifest()
    settings = settings_of(run, manifest)
    if manifest.status == "complete" or settings is None or manifest.model.startswith(f"{GIVEN}:"):
        return None
    asked = command_of(manifest.task, settings, manifest.model)
    return line(asked, settings.as_flags(["batch"]), "-o", shlex.quote(str(run.path)))


def scoring_of(runs: Sequence[Path], settings: ScoreSettings) -> str:
    """The command line that measures the same again, wherever it writes."""
    flags = settings.as_flags(_asked(settings, REPRODUCES))
    return line("llmfair score", *(shlex.quote(str(run)) for run in runs), flags)


def plan_of(task: str, settings: AuditSettings, label: str) -> str:
    """The command line that plans the same design with all queries. A ranker that asks no model, or scores whole lists,
    is named, since its plan is its own."""
    names = (name for name in _asked(settings, ("Data", "Prompt")) if name not in ("limit", "queries"))
    flags, subject = settings.as_flags([*names, "level", "band"]), Subject(label)
    ranker = ("-m", shlex.quote(label)) if subject.ranks or subject.scores_lists else ()
    return line("llmfair plan", task, *ranker, flags)


def training_of(task: str, settings: AuditSettings, label: str) -> str:
    """The command line that trains a model away from the preference of this audit; "" of one not trained here."""
    backend, _, name = label.partition(":")
    if backend not in TRAINABLE or " + " in name:
        return ""
    names = {*vars(settings)}
    prompt = getattr(settings, "prompt", None)
    if task != "pairwise" and prompt not in wordings(task):  # one of the user's own
        names -= {"prompt"}
    flags = settings.as_flags(name for name in SHARED_WITH_TRAINING if name in names)
    return line("llmfair finetune-lora", flags, "-m", shlex.quote(name))
