"""LoRA adapters for models in this process: which one it is, whose it is, and whether it does anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmfair.checkpoints import Checkpoint, files_sha256, folder_fingerprint
from llmfair.errors import BackendError, UsageError
from llmfair.io import files
from llmfair.nouns import Labels, Message

MANIFEST, SCHEMA = "llmfair.json", 1
CHECKED = {"base", "template_sha256", "adapter_sha256", "prompt", "dataset", "split"}
LABELS = Labels(("A", "B"))
PROBES = tuple(
    (Message("user", f"{'Please ' * number}answer with one letter, A or B."),) for number in range(8)
)
"""Questions whose margins tell whether an adapter does anything."""


@dataclass(frozen=True)
class Adapter:
    """An adapter's folder: `settings` as peft wrote them, `sha256` of these and of the weights.

    `manifest`: what `llmfair finetune-lora` wrote beside them (`llmfair.json`); None for another's adapter.
    """

    folder: Path
    settings: Mapping[str, Any]
    sha256: str
    manifest: Mapping[str, Any] | None = None

    @property
    def rank(self) -> int:
        """The largest rank of its matrices."""
        ranks = [self.settings.get("r", 8), *(self.settings.get("rank_pattern") or {}).values()]
        return max(int(rank) for rank in ranks)

    def require_template(self, sha256: str) -> None:
        """Raises UsageError unless prompts are rendered as they were in training."""
        if self.manifest is not None and self.manifest["template_sha256"] != sha256:
            raise UsageError(
                f"the adapter {self.folder} was trained with another chat template than this model's.",
                "ask it with the tokenizer files it was trained with",
            )


def read_adapter(folder: Path, checkpoint: Checkpoint) -> Adapter:
    """The adapter of a folder. Raises UsageError for a folder without one, or one of another model."""
    path = folder / "adapter_config.json"
    try:
        settings = json.loads(files.text(path, files.MOST_RECORDED))
        base = str(settings["base_model_name_or_path"])
        digest = files_sha256([path, folder / "adapter_model.safetensors"])
        manifest = read_manifest(folder)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{folder} holds no adapter: {error}.", "name a folder with adapter_config.json and its weights"
        ) from None
    if manifest is not None and manifest["adapter_sha256"] != digest:
        raise UsageError(
            f"{folder} does not hold the adapter that {MANIFEST} describes.",
            "train it again, or remove that file",
        )
    # Its base is this checkpoint by its files, or by name, its folder's after a move.
    version = None
    if manifest is not None:
        base, trained = str(manifest["base"]["name"]), manifest["base"]
        if str(trained["identity"]).startswith("folder ") == checkpoint.identity.startswith("folder "):
            version = trained["fingerprint"]
    elif not checkpoint.revision and Path(base).is_dir():
        version = folder_fingerprint(Path(base))
    same = Path(base).name == Path(checkpoint.source).name or base in (checkpoint.name, checkpoint.source)
    if not (same if version is None else version == checkpoint.version):
        raise UsageError(
            f"the adapter {folder} belongs to {base}, not to {checkpoint.name} as it is now.",
            f"ask {base} as it was then with -m, or train the adapter again",
        )
    return Adapter(folder, settings, digest, manifest)


def read_manifest(folder: Path) -> Mapping[str, Any] | None:
    """What was written down when an adapter was trained; None for a folder without it. Raises UsageError."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    manifest: dict[str, Any] = files.read_document(path, dict[str, Any], "train the adapter again")
    if manifest.get("schema") != SCHEMA or not manifest.keys() >= CHECKED:
        raise UsageError(
            f"{path} is not an adapter's manifest of schema {SCHEMA}.", "train the adapter again"
        )
    return manifest


def require_effect(
    folder: Path, before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]]
) -> None:
    """Raises BackendError for an adapter that moves no margin: its weights are zero, or their names do not fit."""
    if list(before) == list(after):
        raise BackendError(
            f"the adapter {folder} changes nothing: {len(before)} questions have the same answers without it.",
            "train it for longer, or check that its weights belong to this model",
        )
