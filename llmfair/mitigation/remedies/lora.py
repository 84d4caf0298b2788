"""A LoRA adapter of the run's model that was trained away from the preference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from llmfair.audits.commands import TRAINABLE, training_of
from llmfair.audits.kind import kind_of
from llmfair.audits.subject import Subject
from llmfair.backends.adapters import MANIFEST, read_manifest
from llmfair.errors import UsageError
from llmfair.mitigation.remedy import Asking, Audit
from llmfair.mitigation.unmitigated import TASK, Unmitigated
from llmfair.registry import register


@register("remedy", "lora")
class Lora(Asking):
    title = "LoRA adapter"
    does = (
        "The same lists in the same initial orders are asked about once more, of the model with a LoRA adapter "
        "(llmfair finetune-lora trains one; --adapter names it). On queries that it was trained on it is flattered."
    )

    def audit(self, run: Unmitigated) -> Audit:
        backend, _, name = run.model.partition(":")
        if " + " in run.model:
            raise UsageError("the run's model has an adapter already.", "mitigate the run of its base")
        if backend not in TRAINABLE:
            raise UsageError(
                f"{run.model} takes no adapter.",
                f"a model of this machine does: {' or '.join(f'{one}:NAME' for one in TRAINABLE)}",
            )
        adapter = run.chosen.adapter or trained_beside(run, name)
        if adapter is None:
            raise UsageError(
                f"no adapter of {name} is named, and none stands beside the run.",
                f"{training_of(TASK, run.settings, run.model)}    then --adapter FOLDER",
            )
        settings = replace(
            run.settings, conditions=run.condition, repeat=False, adapter=adapter, adapter_only=True
        )
        return Audit(kind_of(TASK), settings, Subject(run.model, adapter), run.condition)


def trained_beside(run: Unmitigated, name: str) -> Path | None:
    """The newest adapter of this model, trained by this attribute, in a folder beside the run's."""
    found = []
    for path in run.run.path.resolve().parent.glob(f"*/{MANIFEST}"):
        try:
            manifest = read_manifest(path.parent) or {}
        except UsageError:
            continue  # damaged
        if manifest.get("base", {}).get("name") == name and manifest.get("attribute") == run.attribute.name:
            found.append((path.stat().st_mtime, path.parent))
    return max(found)[1] if found else None
