"""`nli:NAME`: a transformers classifier in this process that says whether one text entails another.

It takes conversations of two turns, the premise and the hypothesis (`prompts/rag/entailment.toml`), and answers yes
where its class of the name `entailment` is the likeliest, else no.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llmfair import checkpoints
from llmfair.backends.base import BackendOptions
from llmfair.backends.local import InProcess
from llmfair.control_tokens import plain
from llmfair.errors import UsageError
from llmfair.nouns import Completion, Finish, Labels, Request
from llmfair.registry import register

ENTAILMENT = "entailment"
ANSWERS = Labels(("yes", "no"))
TOKENS = 512
"""Of premise and hypothesis together; it is the premise that is cut."""
BATCH_TOKENS = 16_384


@register("backend", "nli")
def nli(name: str, options: BackendOptions) -> Nli:
    """A classifier by folder or repository. Raises MissingExtra, UsageError, BackendError for one not to be had."""
    checkpoints.require_local()
    return Nli(checkpoints.find_checkpoint(name))


class Nli(InProcess[Mapping[str, list[int]]]):
    """A classifier of pairs of texts."""

    capabilities: frozenset[str] = frozenset()
    max_workers = 256

    def __init__(self, checkpoint: checkpoints.Checkpoint) -> None:
        """Raises UsageError for a classifier without one class of that name."""
        super().__init__(BATCH_TOKENS)
        self.checkpoint = checkpoint
        named = checkpoint.config.get("id2label") or {}
        self.classes = [str(named[place]) for place in sorted(named, key=int)]
        listed = ", ".join(self.classes) or "none"
        if [name.lower() for name in self.classes].count(ENTAILMENT) != 1:
            raise UsageError(
                f"nli:{checkpoint.name} has no class '{ENTAILMENT}': its classes are {listed}.",
                "a classifier of natural-language inference has, such as FacebookAI/roberta-large-mnli",
            )
        self.dtype = checkpoints.dtype_of(checkpoint)[0]
        self.identity = f"nli {checkpoint.identity} {self.dtype} tokens={TOKENS}"

    async def complete(self, request: Request) -> Completion:
        """Yes or no. Raises UsageError for another question, and what loading the model raises."""
        messages = request.chat.messages
        if len(messages) != 2 or request.chat.expects != ANSWERS:
            raise UsageError(
                f"nli:{self.checkpoint.name} says whether one text entails another, and answers nothing else.",
                "--attribution takes it; -m takes a model that writes",
            )

        def job() -> tuple[Mapping[str, list[int]], str, int]:
            encoded = encode(self._tokenizer, self._tokens, *(message.content for message in messages))
            return encoded, "pair", len(encoded["input_ids"])

        return await self.answer(job)

    # On the model's thread

    def _load(self) -> None:
        import torch
        import transformers

        transformers.utils.logging.disable_progress_bar()
        self._tokenizer = checkpoints.tokenizer_of(self.checkpoint)
        self._tokenizer.padding_side = "right"
        self._tokens = min(TOKENS, self._tokenizer.model_max_length, self.checkpoint.context or TOKENS)
        source, revision = self.checkpoint.source, self.checkpoint.revision
        device = checkpoints.device_of()[0]
        with checkpoints.loading(self.checkpoint.name, device, "a smaller model"):
            kind = transformers.AutoModelForSequenceClassification
            model = kind.from_pretrained(source, revision=revision, dtype=getattr(torch, self.dtype))
            self._model = model.eval().to(device)

    def _run(self, batch: Sequence[Mapping[str, list[int]]]) -> list[Completion]:
        import torch

        model, tokenizer = self._model, self._tokenizer
        small = f"the memory of {model.device} is too small for {len(batch)} pairs at once."
        with torch.inference_mode(), checkpoints.fits(small, "--workers 8, or a smaller model"):
            inputs = tokenizer.pad([dict(pair) for pair in batch], return_tensors="pt").to(model.device)
            logprobs = model(**inputs).logits.float().log_softmax(-1)
        scores = [dict(zip(self.classes, of_pair, strict=True)) for of_pair in logprobs.tolist()]
        texts = [
            "yes" if max(of_pair, key=of_pair.__getitem__).lower() == ENTAILMENT else "no"
            for of_pair in scores
        ]
        return [
            Completion(
                text, Finish.STOP, len(pair["input_ids"]), 0, logprobs=logs, model=self.checkpoint.name
            )
            for pair, text, logs in zip(batch, texts, scores, strict=True)
        ]


def encode(tokenizer: Any, tokens: int, premise: str, hypothesis: str) -> dict[str, list[int]]:
    """The pair as the model reads it. The premise alone is cut, unless the hypothesis leaves it no room."""
    texts = [plain(text, tokenizer) for text in (premise, hypothesis)]
    room = tokens - tokenizer.num_special_tokens_to_add(pair=True)
    claimed = len(tokenizer(texts[1], add_special_tokens=False, truncation=True, max_length=tokens).input_ids)
    cut = "only_first" if claimed < room else "longest_first"
    return {**tokenizer(*texts, truncation=cut, max_length=tokens)}
