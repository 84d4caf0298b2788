"""Checkpoints and adapters for models in this process: where one is, exactly which it is, and where it will run.

A checkpoint is a folder, or a repository of the Hugging Face Hub (`ORG/NAME`, `ORG/NAME@REVISION`). Nothing here
imports torch before it is needed: which checkpoint is meant has to be known before any model is loaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llmfair.errors import BackendError, MissingExtra, UsageError, did_you_mean, line_of
from llmfair.io import files
from llmfair.nouns import Labels, Message

INSTALL = "pip install 'llmfair[local]'"
WEIGHTS = (".safetensors", ".bin", ".pt", ".h5", ".gguf")
SAMPLE_BYTES = 65_536
SMALLER = "use a smaller --backend-arg batch_tokens, --backend-arg dtype=bfloat16, or a smaller model"
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Checkpoint:
    """A model's files: `name` as it was written, `config.json` as read, and what tells them from any others.

    `version` is the commit of a repository, or the fingerprint of a folder; `source` and `revision` are what
    `from_pretrained` takes.
    """

    name: str
    config: Mapping[str, Any]
    version: str
    source: str
    revision: str | None = None

    @property
    def identity(self) -> str:
        """Which weights these are: a folder that moves stays the same one."""
        return f"{self.source}@{self.version}" if self.revision else f"folder {self.version[:16]}"

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The part of the configuration that speaks of the language model, where there are others."""
        config: Mapping[str, Any] = self.config.get("text_config") or self.config
        return config

    @property
    def dtype(self) -> str:
        """The type its weights were saved in."""
        for config in (self.config, self.text_config):
            for key in ("dtype", "torch_dtype"):
                if isinstance(name := config.get(key), str):
                    return name.removeprefix("torch.")
        return "float32"

    @property
    def encoder_decoder(self) -> bool:
        """Whether it reads a task and writes an answer, such as T5, instead of carrying a conversation on."""
        return bool(self.config.get("is_encoder_decoder"))

    @property
    def context(self) -> int | None:
        """The most tokens of a prompt and its answer together, where the model has such a limit."""
        if self.encoder_decoder:
            return None
        context = self.text_config.get("max_position_embeddings")
        return context if isinstance(context, int) else None


def find_checkpoint(name: str) -> Checkpoint:
    """The checkpoint of a name: a folder, else a repository, from the local cache as it stands, or from the Hub.

    Raises MissingExtra, UsageError for what is no model, BackendError for what cannot be fetched.
    """
    if find_spec("transformers") is None:
        raise MissingExtra("models in this process need transformers.", INSTALL)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return Checkpoint(name, read_config(folder, name), folder_fingerprint(folder), str(folder.resolve()))
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UsageError(f"there is no folder {name}.", "name a folder, or a repository as ORG/NAME")
    repository, _, revision = name.partition("@")
    config = _fetch_config(repository, revision or None)
    commit = config.parent.name
    return Checkpoint(name, read_config(config.parent, name), commit, repository, commit)


@contextmanager
def loading(
    what: str, device: str = "", smaller: str = SMALLER, kind: str = "", hint: str = "-v shows where"
) -> Iterator[None]:
    """Loads under the user's own umask. Raises BackendError for broken files, or more than the device has room for."""
    try:
        with files.usual():
            yield
    except Exception as error:  # each library has its own for files that are missing or broken
        if type(error).__name__ == "OutOfMemoryError":
            raise BackendError(
                f"{what} does not fit the memory{device and f' of {device}'}.", smaller
            ) from None
        raise BackendError(f"{what} cannot be loaded{kind}: {line_of(error)}.", hint) from error


@contextmanager
def fits(otherwise: str, smaller: str) -> Iterator[None]:
    """Raises BackendError for what does not fit the memory."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise BackendError(otherwise, smaller) from None


def batches(lengths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Places of inputs, the longest first: together at most `room` positions (inputs × longest), or one alone."""
    left = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    while left:
        fit = max(1, room // max(1, lengths[left[0]]))
        yield left[:fit]
        left = left[fit:]


def tokenizer_of(checkpoint: Checkpoint) -> Any:
    """A checkpoint's tokenizer, without its weights. Raises BackendError for files that are missing or broken."""
    import transformers

    with loading(f"the tokenizer of {checkpoint.name}"):
        return transformers.AutoTokenizer.from_pretrained(checkpoint.source, revision=checkpoint.revision)


def already_read(cache: Any) -> dict[str, Any]:
    """The argument of a model's call that gives it keys and values of what it has read before; nothing for None."""
    from transformers import __version__

    renamed = tuple(map(int, __version__.split(".")[:2])) >= (5, 24)
    return {} if cache is None else {"cache" if renamed else "past_key_values": cache}


def require_local(*packages: str) -> None:
    """Raises MissingExtra unless models can be run in this process, and these further packages are there."""
    if missing := [package for package in ("torch", "transformers", *packages) if find_spec(package) is None]:
        raise MissingExtra(f"models in this process need {' and '.join(missing)}.", INSTALL)


def read_config(folder: Path, name: str) -> dict[str, Any]:
    """A model's `config.json`. Raises UsageError."""
    path = folder / "config.json"
    if not path.is_file():
        raise UsageError(
            f"{name} holds no model: it has no config.json.", "name a folder that save_pretrained wrote"
        )
    config: dict[str, Any] = files.read_document(path, dict[str, Any], "fetch the model again")
    return config


def folder_fingerprint(folder: Path) -> str:
    """SHA-256 over a model's configuration and tokenizer, and its weight files' names, sizes and samples.

    Two trainings of one model differ in every weight, and reading all would take longer than a small audit.
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        if path.suffix in WEIGHTS:
            size = path.stat().st_size
            digest.update(f"{path.name}\0{size}\0".encode())
            with path.open("rb") as file:
                for start in (0, max(0, size // 2), max(0, size - SAMPLE_BYTES)):
                    file.seek(start)
                    digest.update(file.read(SAMPLE_BYTES))
        elif path.suffix in (".json", ".jinja", ".model", ".txt"):
            digest.update(f"{path.name}\0".encode() + bytes.fromhex(files.sha256(path)))
    return digest.hexdigest()


def files_sha256(paths: Iterable[Path]) -> str:
    """SHA-256 over the names and whole contents of these files."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.name}\0".encode() + bytes.fromhex(files.sha256(path)))
    return digest.hexdigest()


@dataclass(frozen=True)
class Place:
    """Where a model runs and in which type, and why."""

    device: str
    dtype: str
    why: str


def dtype_of(checkpoint: Checkpoint, dtype: str = "auto") -> tuple[str, str]:
    """The type a model runs in, and why: as asked, else as it was saved. Raises UsageError for an unknown type."""
    if dtype != "auto":
        if dtype not in DTYPES:
            raise UsageError(f"there is no dtype '{dtype}'.", f"known: auto, {', '.join(DTYPES)}")
        return dtype, "as asked"
    saved = checkpoint.dtype
    if saved in DTYPES:
        return saved, "as the checkpoint was saved"
    return "bfloat16", f"the checkpoint's {saved} is no type to calculate in"


def arguments_of(who: str, settings: Mapping[str, str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`--backend-arg` over the defaults, with numbers for numbers. Raises UsageError for what they are not."""
    for key in settings:
        if key not in defaults:
            raise UsageError(
                f"{who} has no --backend-arg '{key}'.{did_you_mean(key, defaults)}",
                f"known: {', '.join(defaults)}",
            )
    arguments: dict[str, Any] = {**defaults, **settings}
    for key, default in defaults.items():
        if isinstance(default, int):
            text = str(arguments[key])
            if not text.isdecimal() or int(text) < 1:
                raise UsageError(
                    f"--backend-arg {key}={text} is not a number of 1 or more.",
                    f"for example {key}={default}",
                )
            arguments[key] = int(text)
    return arguments


def device_of(name: str = "auto") -> tuple[str, str]:
    """The device a model runs on, and why: as asked, else a GPU where torch finds one."""
    import torch

    if name != "auto":
        return name, "as asked"
    if torch.cuda.is_available():
        return "cuda", f"torch finds {torch.cuda.get_device_name(0)}"
    if torch.backends.mps.is_available():
        return "mps", "torch finds an Apple GPU"
    return "cpu", "torch finds no GPU"


@files.usual()
def _fetch_config(repository: str, revision: str | None) -> Path:
    """`config.json` of a repository in the local cache, whose folder there is named by its commit."""
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_download, hf_hub_url

    not_there = (
        errors.HFValidationError,
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.EntryNotFoundError,
    )
    with suppress(errors.LocalEntryNotFoundError, errors.HFValidationError):
        return Path(hf_hub_download(repository, "config.json", revision=revision, local_files_only=True))
    try:
        # A download tries five times more in 25 s; whether the Hub is there at all, one question tells.
        get_hf_file_metadata(hf_hub_url(repository, "config.json", revision=revision))
        return Path(hf_hub_download(repository, "config.json", revision=revision))
    except errors.GatedRepoError:
        raise BackendError(
            f"the Hub gives {repository} only to those who accepted its terms.",
            f"accept them at https://huggingface.co/{repository} and set HF_TOKEN",
        ) from None
    except (
        Exception
    ) as error:  # each of the library's HTTP clients has its own for a network that is not there
        if isinstance(error, not_there) and not isinstance(error, errors.LocalEntryNotFoundError):
            at = f" at {revision}" if revision else ""
            way_out = "name a folder, or a repository as ORG/NAME"
            raise UsageError(f"the Hub has no model {repository}{at}.", way_out) from None
        raise BackendError(
            f"{repository} is not on this machine, and the Hub cannot be reached: {line_of(error)}.",
            f"fetch it where there is a network (hf download {repository}), or name a folder",
        ) from None


# LoRA adapters: which one it is, whose it is, and whether it does anything.


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
