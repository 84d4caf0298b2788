"""`hf:NAME`: a transformers model in this process, from a folder or the Hugging Face Hub."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llmfair import checkpoints
from llmfair.backends.base import BackendOptions, require_room
from llmfair.backends.local import ChatTemplate, InProcess, LocalModel, grammar_of, label_answers, load_model
from llmfair.backends.openai import finish_of
from llmfair.errors import BackendError, UsageError
from llmfair.nouns import Completion, Finish, Request
from llmfair.registry import register

ARGUMENTS = {
    "attention": "sdpa",  # how transformers calculates it: sdpa, eager, flash_attention_2
    "batch_tokens": 8192,  # positions of a batch: rows × longest
    "device": "auto",
    "dtype": "auto",  # the checkpoint's
    "num_beams": 1,
}
"""What `--backend-arg` takes, with the defaults."""


@register("backend", "hf")
def hf(name: str, options: BackendOptions) -> LocalBackend:
    """A model by folder or repository. Raises MissingExtra, UsageError, and BackendError for one not to be had."""
    checkpoints.require_local()
    return LocalBackend(checkpoints.find_checkpoint(name), options)


@dataclass(frozen=True, eq=False, slots=True)
class Job:
    """A request as the model takes it: its prompt, and the labels to be compared or the grammar to be kept."""

    request: Request
    ids: Sequence[int]
    labels: Mapping[str, int] | None
    grammar: str | None


class LocalBackend(InProcess[Job]):
    """A model in this process; `facts` say where it runs and why, for the manifest, once it is loaded."""

    max_workers = 64

    def __init__(self, checkpoint: checkpoints.Checkpoint, options: BackendOptions) -> None:
        self.checkpoint = checkpoint
        # Switched off and not there are the same, bit by bit.
        self.options = options = options if options.adapted else replace(options, adapter=None)
        wished = {name: value for name, value in options.wishes.items() if name in ARGUMENTS}
        self.arguments = read_arguments({**wished, **options.backend_args})
        self.capabilities = frozenset({"seed", "adapter", "backend_args"})
        if not checkpoint.encoder_decoder:
            self.capabilities |= {"constrain", "margins", "forced_margins", "system_role"}
        self.dtype, self._why_dtype = checkpoints.dtype_of(checkpoint, self.arguments["dtype"])
        self.facts: Mapping[str, Any] = {}
        self.adapter: checkpoints.Adapter | None = None
        parts = ["hf", checkpoint.identity, self.dtype]
        if options.system == "fold":
            parts.append("fold")
        if self.arguments["num_beams"] != 1:
            parts.append(f"num_beams={self.arguments['num_beams']}")
        if options.adapter is not None:
            self.adapter = checkpoints.read_adapter(options.adapter, checkpoint)
            parts.append(f"adapter={self.adapter.sha256[:16]}")
        self.identity = " ".join(parts)
        super().__init__(self.arguments["batch_tokens"])

    async def complete(self, request: Request) -> Completion:
        """One answer. Raises ContextTooLong before the model sees the prompt, and what loading it raises."""
        sampling, messages, expects = request.sampling, request.chat.messages, request.chat.expects
        if unknown := set(sampling.extra) - {"chat_template_kwargs"}:
            raise UsageError(
                f"--extra {sorted(unknown)[0]} is for servers; {self.checkpoint.name} runs in this process.",
                f"--backend-arg takes {', '.join(ARGUMENTS)}",
            )

        def job() -> tuple[Job, Hashable, int]:
            """The request as the model takes it, what may share its pass, and its positions."""
            template, labels = self._model.template, None
            if sampling.margins and template is not None:
                ids, labels = template.label_ids(messages, label_answers(expects))
            else:
                ids = self._model.prompt(messages)
            most = 0 if labels else sampling.max_tokens
            require_room(request, len(ids), most, self.checkpoint.context, self.checkpoint.name)
            kind = len(labels) if labels else (most, sampling.temperature, sampling.top_p)
            grammar = grammar_of(expects) if sampling.constrain else None
            return Job(request, ids, labels, grammar), kind, len(ids) + most

        return await self.answer(job)

    # On the model's thread

    def _load(self) -> None:
        from importlib.metadata import version

        device, why = checkpoints.device_of(self.arguments["device"])
        place = checkpoints.Place(device, self.dtype, f"{device}: {why}; {self.dtype}: {self._why_dtype}")
        model = load_model(self.checkpoint, place, self.options, self.arguments["attention"])
        model.cancelled = self.closing.is_set
        if self.adapter is not None and model.template is not None:
            self.adapter.require_template(model.template.sha256)
            after = _probe(model, model.template)
            with model.model.disable_adapter():
                checkpoints.require_effect(self.adapter.folder, _probe(model, model.template), after)
        self._model = model
        self.facts = {
            "checkpoint": self.checkpoint.identity,
            "place": place.why,
            "system": None if model.template is None else "folded" if model.template.folded else "separate",
            "versions": {package: version(package) for package in ("torch", "transformers")},
        }

    def _run(self, batch: Sequence[Job]) -> list[Completion]:
        """The answers of one batch; one that is too large for the memory is run in halves."""
        import torch

        try:
            return self._compare(batch) if batch[0].labels else self._say(batch)
        except torch.OutOfMemoryError:
            pass  # out here the batch's own tensors are gone
        longest = max(len(job.ids) for job in batch)
        if len(batch) == 1:
            raise BackendError(
                f"the memory of {self._model.place.device} is too small for a prompt of {longest:,} tokens.",
                "choose a smaller window, --backend-arg dtype=bfloat16, or a smaller model",
            )
        self.batch_tokens = max(1, self.batch_tokens // 2)
        half = len(batch) // 2
        return [*self._run(batch[:half]), *self._run(batch[half:])]

    def _compare(self, batch: Sequence[Job]) -> list[Completion]:
        """Each label's log-probability; the text is the token the model would say."""
        scores = self._model.margins([(job.ids, job.labels or {}) for job in batch])
        decode, name = self._model.decode, self.checkpoint.name
        return [
            Completion(
                decode([likeliest]).strip(), Finish.STOP, len(job.ids), 1, logprobs=logprobs, model=name
            )
            for job, (logprobs, likeliest) in zip(batch, scores, strict=True)
        ]

    def _say(self, batch: Sequence[Job]) -> list[Completion]:
        answers = self._model.generate(
            [job.ids for job in batch],
            # seeds of their own: equal ones would make equal draws of unlike prompts
            [int.from_bytes(hashlib.sha256(job.request.key.encode()).digest()[:7]) for job in batch],
            [job.grammar for job in batch],
            batch[0].request.sampling,
            self.arguments["num_beams"],
        )
        completions = []
        for job, (ids, ended) in zip(batch, answers, strict=True):
            text = self._model.decode(ids)
            for stop in job.request.sampling.stop:
                text, end, _ = text.partition(stop)
                ended = ended or bool(end)
            finish = finish_of("stop" if ended else "length", text, job.request.chat.expects)
            completions.append(Completion(text, finish, len(job.ids), len(ids), model=self.checkpoint.name))
        return completions


def read_arguments(settings: Mapping[str, str]) -> dict[str, Any]:
    """`--backend-arg` over the defaults. Raises UsageError for an unknown name or a wrong value."""
    return checkpoints.arguments_of("hf:", settings, ARGUMENTS)


def _probe(model: LocalModel, template: ChatTemplate) -> list[Mapping[str, float]]:
    answers = label_answers(checkpoints.LABELS)
    scores = model.margins([template.label_ids(messages, answers) for messages in checkpoints.PROBES])
    return [logprobs for logprobs, _ in scores]
