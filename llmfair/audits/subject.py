"""Whom the settings ask: model specs as backends and rankers, and the sampling and limits that they are asked with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from llmfair import registry
from llmfair.asking.limits import Limits
from llmfair.audits.lists import groups_of, training_lists
from llmfair.backends.base import Backend, BackendOptions
from llmfair.backends.python import SCORES, is_scorer
from llmfair.backends.server import Fleet, Server
from llmfair.checkpoints import MANIFEST, read_manifest
from llmfair.datasets.base import Dataset, cache_folder
from llmfair.errors import LlmfairError, UsageError, did_you_mean
from llmfair.io.files import is_deep
from llmfair.nouns import Attribute, Document, Sampling, picked
from llmfair.on_ray import ModelOnRay
from llmfair.rankers.base import Ranker, RankerOptions
from llmfair.settings.commands import Asking, AuditSettings, wished
from llmfair.settings.declaration import seconds

THINKING_TOKENS = 4096
CAPABILITY_HINTS = {
    "constrain": "a model in this process or a vLLM server can; without it unparseable answers are counted",
    "margins": "a model in this process (hf:, vllm:), OpenAI and vLLM servers can; others: --answers text",
    "forced_margins": "a server shows the first token only: add --form letter",
    "adapter": "a model in this process takes an adapter: hf: or vllm:",
    "batch": "OpenAI and servers with its Batch API can: openai:NAME",
    "scores": "rerank:, python:, cross-encoder: and pyterrier: score lists",
    "backend_args": "only a model in this process has an engine: hf: or vllm:",
}


@dataclass(frozen=True)
class Subject:
    """Who is audited. `adapter` is the LoRA adapter of the settings: with `adapted` it answers, without the base that
    it stands on, in the same engine. A backend that is `given` answers under the spec's name."""

    spec: str
    adapter: Path | None = None
    adapted: bool = True
    given: Backend | None = None

    @property
    def label(self) -> str:
        """Whom an audit asks, as results name it: the model's spec, and the adapter's folder if one answers."""
        if self.adapter is None or not self.adapted:
            return self.spec
        return f"{self.spec} + {self.adapter.resolve().name}"

    @cached_property
    def ranks(self) -> bool:
        """Whether it is a ranker that asks no model, such as `bm25` or `monot5:CHECKPOINT`."""
        prefix = self.spec.partition(":")[0]
        return not registry.has("backend", prefix) and registry.has("ranker", prefix)

    @property
    def scores_lists(self) -> bool:
        """Whether what answers for it scores whole lists, and answers no questions."""
        return is_scorer(self.spec) if self.given is None else SCORES in self.given.capabilities

    def backend(self, settings: AuditSettings) -> Backend:
        """What answers its chats. Raises UsageError for an unknown model, and one that cannot do what is asked."""
        if self.given is not None:
            return capable(self.given, self.spec, settings)
        return backend_of(self.spec, settings, self.adapted)

    def ranker(
        self, dataset: Dataset, attribute: Attribute, documents: Sequence[Document] | None = None, **options: Any
    ) -> Ranker:  # fmt: skip
        """The ranker that it is, over all or some of the dataset's documents, with other options that a kind has.
        Raises UsageError for an unknown name."""
        documents = [*dataset.documents.values()] if documents is None else documents
        usual = {"lists": partial(training_lists, dataset), "groups": groups_of(dataset, attribute)}
        return make_ranker(self.spec, documents, attribute, **{**usual, **options})


def make_ranker(spec: str, documents: Iterable[Document], attribute: Attribute, **options: Any) -> Ranker:
    """The ranker that a spec names, `NAME` or `NAME:PARAMETERS`, over these documents. Raises UsageError."""
    name, _, parameters = spec.partition(":")
    made = RankerOptions(tuple(documents), cache_folder(), attribute, parameters, **options)
    ranker: Ranker = registry.lookup("ranker", name)(made)
    return ranker


def adapter_warnings(adapter: Path, identity: Mapping[str, Any], dataset: str) -> Iterator[str]:
    """Why figures may flatter an adapter: queries it was trained on, or a question it was not trained to answer."""
    if (manifest := read_manifest(adapter)) is None:
        yield (
            f"nothing is known of the queries that {adapter.name} was trained on (it has no {MANIFEST}): on those its "
            "figures would flatter it"
        )
        return
    split, asked = manifest["split"], identity["queries"]
    trained, chose = (len({*asked} & {*split[part]}) for part in ("train", "validation"))
    if manifest["dataset"]["name"] == dataset and (trained or chose):
        beside, above = (folder / "test-queries.txt" for folder in (adapter, adapter.parent))
        unseen = beside if beside.is_file() else above  # of a rejected adapter
        yield (
            f"of {len(asked)} queries {adapter.name} was trained on {trained}, and {chose} chose its checkpoint; "
            f"--queries @{unseen} asks those it never saw"
        )
    for name in ("form", "input"):
        there, here = manifest["prompt"][name], identity.get(name)
        if here is not None and there != here:
            yield f"{adapter.name} was trained with --{name} {there}, and is asked with --{name} {here}"
    trained, asked = manifest["prompt"].get("sha256"), identity.get("prompt_sha256")
    if "form" in identity and trained and trained != asked:  # only then the same is asked as in training
        yield f"{adapter.name} was trained with another prompt ({manifest['prompt'].get('name')}) than it is asked with"


def subjects(settings: Asking) -> list[Subject]:
    """Whom the settings ask, one run each: every model, and with an adapter both its base and itself."""
    both = settings.adapter is not None and not settings.adapter_only
    answering = (False, True) if both else (True,)
    return [Subject(model, settings.adapter, adapted) for model in settings.model for adapted in answering]


def unready(settings: AuditSettings) -> list[str]:
    """Why servers could not be asked now, such as a key that is not set, in their backends' words; asks nothing."""
    reasons = []
    for model in settings.model:
        backend = None if Subject(model).ranks else backend_of(model, settings)
        try:
            if ready := getattr(backend, "ready", None):
                ready()
        except LlmfairError as error:
            reasons.append(f"{model}: {error.message.removesuffix('.')}: {error.hint}")
    return reasons


def backend_of(model: str, settings: AuditSettings, adapted: bool = True) -> Backend:
    """The backend a model spec names. Raises UsageError for an unknown prefix or model."""
    prefix, colon, name = model.partition(":")
    example = "for example openai:gpt-4o-mini or fake:biased"
    if Subject(model).ranks:
        raise UsageError(f"{prefix} ranks lists; it answers no questions, so this takes a model.", example)
    if not colon or not name:
        rankers = registry.names("ranker")
        raise UsageError(
            f"'{model}' is not a model.{did_you_mean(model, rankers)}",
            f"write PREFIX:NAME, {example}; lists can also be ranked by {', '.join(rankers)}",
        )
    same = ("server_name", "timeout", "wire", "system", "seed", "adapter")
    options = BackendOptions(
        **picked(settings, same),
        max_reply=int(settings.max_reply * 1e6),
        adapted=adapted,
        backend_args=backend_args(settings.backend_arg),
        wishes=backend_args(settings.backend_arg, wishes=True),
        template_args=template_args(settings.template_arg),
    )
    make = registry.lookup("backend", prefix)
    urls = settings.base_url or (None,)
    options = replace(options, base_url=urls[0])
    backend: Backend = make(name, options)
    if settings.on_ray:
        backend = ModelOnRay(model, options, backend, settings.ray_workers or 1, settings.ray_address)
    elif isinstance(backend, Server) and len(urls) > 1:
        backend = Fleet([backend, *(make(name, replace(options, base_url=url)) for url in urls[1:])])
    return capable(backend, model, settings)


def capable(backend: Backend, model: str, settings: Asking) -> Backend:
    """The backend, if it can do all that the settings ask of it. Raises UsageError."""
    for capability, flag in settings.needs():
        if capability not in backend.capabilities:
            raise UsageError(f"{model} cannot do {flag}.", CAPABILITY_HINTS[capability])
    return backend


def sampling_of(settings: Asking) -> Sampling:
    """The sampling that the settings ask for. Raises UsageError for a malformed `--extra` or `--template-arg`."""
    extra = dict[str, Any]()
    for name, value in (_assignment("--extra", text) for text in settings.extra):
        try:
            extra[name] = _json(value)
        except ValueError:
            raise UsageError(f"--extra {name}: the value is not JSON.", "for example top_k=5") from None
    if template := template_args(settings.template_arg):
        extra["chat_template_kwargs"] = template
    return Sampling(
        temperature=settings.temperature, max_tokens=settings.max_tokens or 0,
        thinking_tokens=THINKING_TOKENS if settings.thinking else 0, seed=settings.model_seed, extra=extra,
        constrain=settings.constrain, margins=settings.margins,
    )  # fmt: skip


def backend_args(given: Iterable[str], wishes: bool = False) -> dict[str, str]:
    """`--backend-arg` as settings that an engine has to have, or those that it is wished to have. Raises UsageError."""
    example = "num_beams?=4" if wishes else "dtype=float32"
    pairs = (_assignment("--backend-arg", text, example) for text in given if wished(text) == wishes)
    return {name.removesuffix("?"): value for name, value in pairs}


def left_out(backend: Backend, model: str, settings: Asking) -> Iterator[str]:
    """What a model was wished to be run with (`--backend-arg k?=v`) and has not. Raises UsageError."""
    for name, value in backend_args(settings.backend_arg, wishes=True).items():
        if name not in getattr(backend, "arguments", ()):
            yield f"{model} has no {name}: {name}={value} is left out"


def template_args(given: Iterable[str]) -> dict[str, Any]:
    """`--template-arg` as what a chat template is given. Raises UsageError."""
    arguments = dict[str, Any]()
    for key, value in (_assignment("--template-arg", text) for text in given):
        arguments[key] = value
        with suppress(ValueError):  # any other text stands as it is
            arguments[key] = _json(value)
    return arguments


def _assignment(flag: str, text: str, example: str = "enable_thinking=false") -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        # not quoted: it may be a key, and nothing tells so
        raise UsageError(f"a value of {flag} is not k=v.", f"for example {flag} {example}")
    return key, value


def _json(text: str) -> Any:
    """What the JSON says. Raises ValueError for none, for NaN and ∞, which requests cannot hold, and for a deep one."""
    if is_deep(text):
        raise ValueError("nested too deeply")
    value = json.loads(text)
    json.dumps(value, allow_nan=False)
    return value


def limits_of(backend: Backend, settings: Asking) -> Limits:
    most = backend.max_workers if settings.at_once is None else min(settings.at_once, backend.max_workers)
    same = ("retries", "max_calls", "adaptive", "rpm", "tpm", "max_cost", "price_in", "price_out")
    return Limits(
        workers=settings.workers or most,
        max_wait=seconds(settings.max_wait),
        outage=seconds(settings.outage),
        **picked(settings, same),
    )
