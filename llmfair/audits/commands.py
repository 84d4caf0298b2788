"""The command lines that ask the same again, or plan it."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields

from llmfair import registry
from llmfair.audits.subject import Subject
from llmfair.backends.given import PREFIX as GIVEN
from llmfair.errors import UsageError
from llmfair.manifest import Manifest
from llmfair.rundir import RunDir
from llmfair.settings import AuditSettings

REPRODUCES = ("Data", "Model", "Prompt", "Sampling", "Statistics")
"""Panels of flags that can change what is asked or concluded; the others say where, how fast and at what price."""
PLANNED = ("Data", "Prompt")
"""Panels of flags that say what is asked, whoever answers."""
SECRET = re.compile(r"//[^/@\s]+@")


def settings_of(run: RunDir, manifest: Manifest) -> AuditSettings | None:
    """The settings of a run, as far as its manifest has them; None where this version knows them no more."""
    try:
        kind = registry.lookup("audit", manifest.task)
        found: AuditSettings = kind.settings.from_flags(manifest.flags, run.manifest)
        return found
    except UsageError:
        return None


def command_of(task: str, settings: AuditSettings, label: str) -> str:
    """The command line that asks the same again, wherever it writes; without what may be a password.

    `label` says who was asked, as results name it: a model's spec, and the folder of an adapter that answered.
    """
    names = [item.name for item in fields(settings) if item.metadata["panel"] in REPRODUCES]
    flags = settings.as_flags(name for name in names if name not in ("model", "adapter", "adapter_only"))
    model, _, adapter = label.partition(" + ")
    asked = ["-m", model, *(["--adapter", adapter, "--adapter-only"] if adapter else [])]
    return SECRET.sub(
        "//", " ".join(["llmfair", task, *map(shlex.quote, asked), *([flags] if flags else [])])
    )


def continuing(run: RunDir) -> str | None:
    """The command that asks what a run lacks; None where it is complete, or no command names who was asked."""
    manifest = run.read_manifest()
    settings = settings_of(run, manifest)
    if manifest.status == "complete" or settings is None or manifest.model.startswith(f"{GIVEN}:"):
        return None
    asked = command_of(manifest.task, settings, manifest.model), settings.as_flags(["batch"])
    return " ".join([*filter(None, asked), "-o", shlex.quote(str(run.path))])


def plan_of(task: str, settings: AuditSettings, spec: str) -> str:
    """The command line that plans the same design; a ranker that asks no model is named, since its plan is its own."""
    names = [item.name for item in fields(settings) if item.metadata["panel"] in PLANNED]
    flags = settings.as_flags([*names, "level", "band"])
    ranker = ["-m", spec] if Subject(spec).ranks else []
    return " ".join(["llmfair plan", task, *map(shlex.quote, ranker), *([flags] if flags else [])])
