"""MonoT5 and MonoBERT: cross-encoders that read query and page together and say how relevant it is.

`monot5` and `monobert` take the checkpoints of their authors, `monot5:NAME` any compatible one, a folder or a
repository. They see 512 tokens: the query is cut first, at 64, then the page to what is left, never the words
that close the input (Nogueira et al. 2020; Nogueira and Cho 2019).
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from llmfair.checkpoints import Checkpoint, arguments_of, device_of, dtype_of, find_checkpoint, require_local
from llmfair.control_tokens import without_control_tokens
from llmfair.errors import BackendError, UsageError, line_of
from llmfair.io import files
from llmfair.nouns import Candidates, Document, Query
from llmfair.prompts import load_prompt
from llmfair.rankers.base import RankerOptions, ScoringRanker
from llmfair.registry import register

if TYPE_CHECKING:
    import torch

QUERY_TOKENS = 64
TOKENS = 512
ARGUMENTS: Mapping[str, Any] = {"device": "auto", "dtype": "auto", "batch_tokens": 16_384}
"""What `--backend-arg` takes, with the defaults."""


@register("ranker", "monot5")
def monot5(options: RankerOptions) -> MonoT5:
    """MonoT5 over titles and texts. Raises MissingExtra, UsageError, and BackendError for no checkpoint."""
    return MonoT5(options, "castorini/monot5-base-msmarco")


@register("ranker", "monobert")
def monobert(options: RankerOptions) -> MonoBert:
    """MonoBERT over titles and texts. Raises MissingExtra, UsageError, and BackendError for no checkpoint."""
    return MonoBert(options, "castorini/monobert-large-msmarco")


@dataclass(frozen=True, slots=True)
class Input:
    """What the model reads for one passage of a page: token ids, and which text each belongs to where it asks."""

    ids: list[int]
    segments: list[int] | None = None


class CrossEncoder(ScoringRanker):
    """Candidates by falling score of title and text; of a long page the first passage counts, or the best one.

    Passages are scored in batches of like lengths, padded on the right, which changes no score.
    """

    name: str
    worded = True
    made_for_texts = True
    costly = True

    def __init__(self, options: RankerOptions, default: str) -> None:
        require_local()
        self.checkpoint: Checkpoint = find_checkpoint(options.checkpoint or default)
        self.passages = options.passages
        self.arguments = arguments_of(self.name, options.backend_args, ARGUMENTS)
        self.dtype = dtype_of(self.checkpoint, self.arguments["dtype"])[0]
        self.tokens = min(TOKENS, self.checkpoint.context or TOKENS)
        self.attribute = options.attribute
        self.prompt = load_prompt("neural")
        self.identity = (
            f"{self.name} {self.checkpoint.identity} {self.dtype} passages={self.passages} "
            f"query={QUERY_TOKENS} tokens={self.tokens} prompt={self.prompt.sha256[:12]}"
        )

    def wording(self, query: Query, variant: str) -> str:
        """The query with the word of the side that the variant names."""
        side = None if self.attribute is None else self.attribute.variants.get(variant)
        if self.attribute is None or side is None:
            (message,) = self.prompt.render({"query": query.text}, "neutral")
        else:
            values = {"query": query.text, "word": self.attribute.words[side]}
            (message,) = self.prompt.render(values, "sensitive")
        return message.content

    def scores(self, candidates: Candidates) -> list[float]:
        """Each candidate's score, the logarithm of a probability or a logit; its best passage's under `max`."""
        inputs = [
            (place, passage)
            for place, document in enumerate(candidates.documents)
            for passage in self.inputs(candidates.query.text, document)
        ]
        best = [-float("inf")] * len(candidates.documents)
        for (place, _), score in zip(inputs, self._score([one for _, one in inputs]), strict=True):
            best[place] = max(best[place], score)
        return best

    def inputs(self, query: str, document: Document) -> list[Input]:
        """What is read for one candidate: its start, or under `max` windows that overlap by half."""
        found = self._inputs(self._plain(query), self._plain(f"{document.title}\n{document.text}".strip()))
        return found if self.passages == "max" else found[:1]

    @abstractmethod
    def _inputs(self, query: str, page: str) -> list[Input]:
        """The page's passages, the first first."""

    @abstractmethod
    def _logits(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None) -> torch.Tensor:
        """Scores of a batch, (rows,)."""

    @abstractmethod
    def _load(self, **settings: Any) -> Any:
        """The model, with whatever of it has to be checked."""

    def _score(self, inputs: Sequence[Input]) -> list[float]:
        """The inputs' scores, in their order. Raises BackendError for a batch that does not fit the memory."""
        import torch

        found = [0.0] * len(inputs)
        for batch in self._batches(inputs):
            rows = [inputs[place] for place in batch]
            ids, mask = _rectangle([row.ids for row in rows], self._pad)
            segments = None
            if rows[0].segments is not None:
                segments = _rectangle([row.segments or [] for row in rows], 0)[0].to(self._model.device)
            try:
                with torch.inference_mode():
                    scores = self._logits(ids.to(self._model.device), mask.to(self._model.device), segments)
            except torch.OutOfMemoryError:
                raise BackendError(
                    f"{self.name} does not fit the memory with {len(batch)} passages at once.",
                    f"--backend-arg batch_tokens={max(TOKENS, self.arguments['batch_tokens'] // 4)}",
                ) from None
            for place, score in zip(batch, scores.tolist(), strict=True):
                found[place] = score
        return found

    def _batches(self, inputs: Sequence[Input]) -> Iterator[list[int]]:
        """Places of inputs of like lengths, rows × longest within the limit."""
        by_length = sorted(range(len(inputs)), key=lambda place: -len(inputs[place].ids))
        while by_length:
            rows = max(1, self.arguments["batch_tokens"] // len(inputs[by_length[0]].ids))
            batch, by_length = by_length[:rows], by_length[rows:]
            yield batch

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        tokenizer = self._from_checkpoint(AutoTokenizer)
        tokenizer.model_max_length = sys.maxsize  # pages are cut here, and it need not warn of their length
        return tokenizer

    @cached_property
    def _pad(self) -> int:
        return int(self._tokenizer.pad_token_id or 0)

    @cached_property
    def _model(self) -> Any:
        import torch
        from transformers.utils import logging

        logging.disable_progress_bar()
        try:
            model = self._load(dtype=getattr(torch, self.dtype))
            return model.eval().to(device_of(self.arguments["device"])[0])
        except torch.OutOfMemoryError:
            raise BackendError(
                f"{self.checkpoint.name} does not fit the memory.", "--backend-arg device=cpu"
            ) from None

    @files.usual()
    def _from_checkpoint(self, kind: Any, **settings: Any) -> Any:
        """Raises BackendError for files that are missing or broken."""
        where = {"revision": self.checkpoint.revision} if self.checkpoint.revision else {}
        try:
            return kind.from_pretrained(self.checkpoint.source, **where, **settings)
        except Exception as error:  # each library has its own for files that are missing or broken
            raise BackendError(
                f"{self.checkpoint.name} cannot be loaded as {self.name}: {line_of(error)}.",
                f"name another checkpoint with -m {self.name}:NAME",
            ) from error

    def _plain(self, text: str) -> str:
        """What the tokenizer can encode, and reads as nothing but text.

        Half a surrogate pair has no UTF-8, which tokenizers ask for; it becomes `?`.
        """
        encodable = text.encode("utf-8", "replace").decode("utf-8")
        return without_control_tokens(encodable, tuple(self._tokenizer.all_special_tokens))

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def _windows(self, tokens: Sequence[int], room: int) -> Iterator[list[int]]:
        """A page in windows of `room` tokens that overlap by half; the last one ends with the page."""
        yield list(tokens[:room])
        for start in range(max(1, room // 2), max(0, len(tokens) - room) + room // 2, max(1, room // 2)):
            yield list(tokens[start : start + room])


class MonoT5(CrossEncoder):
    """log P(true) against false, as the first word a T5 answers to `Query: … Document: … Relevant:`."""

    name = "monot5"

    def _inputs(self, query: str, page: str) -> list[Input]:
        # Words are tokenized apart from each other, so that pieces may be put together from lists of ids.
        head = [*self._ids("Query:"), *self._ids(query)[:QUERY_TOKENS], *self._ids("Document:")]
        tail = [*self._ids("Relevant:"), *self._end]
        room = self.tokens - len(head) - len(tail)
        return [Input([*head, *window, *tail]) for window in self._windows(self._ids(page), room)]

    @property
    def _end(self) -> list[int]:
        end = self._tokenizer.eos_token_id
        return [] if end is None else [end]

    def _load(self, **settings: Any) -> Any:
        from transformers import AutoModelForSeq2SeqLM

        return self._from_checkpoint(AutoModelForSeq2SeqLM, **settings)

    def _logits(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None) -> torch.Tensor:
        import torch

        start = torch.full((ids.shape[0], 1), self._model.config.decoder_start_token_id, device=ids.device)
        logits = self._model(
            input_ids=ids, attention_mask=mask, decoder_input_ids=start, use_cache=False
        ).logits
        return _log_share(logits[:, -1, self._answers])

    @cached_property
    def _answers(self) -> list[int]:
        """The ids of false and true. Raises UsageError where either is not one piece."""
        found = []
        for word in ("false", "true"):
            pieces = self._ids(word)
            if len(pieces) != 1 or pieces[0] == self._tokenizer.unk_token_id:
                raise UsageError(
                    f"the tokenizer of {self.checkpoint.name} has no piece ▁{word}, which MonoT5 answers with.",
                    "name a checkpoint of MonoT5 with -m monot5:NAME",
                )
            found += pieces
        return found


class MonoBert(CrossEncoder):
    """A BERT that classifies the pair of query and page: log P(relevant), or the one logit it has."""

    name = "monobert"

    def _inputs(self, query: str, page: str) -> list[Input]:
        query = self._cut(query)
        room = self.tokens - len(self._ids(query)) - self._tokenizer.num_special_tokens_to_add(pair=True)
        found = self._tokenizer(
            query,
            page,
            truncation="only_second",
            max_length=self.tokens,
            stride=room - max(1, room // 2),
            return_overflowing_tokens=True,
        )
        segments = found.get("token_type_ids") or [None] * len(found["input_ids"])
        return [
            Input(list(ids), own and list(own)) for ids, own in zip(found["input_ids"], segments, strict=True)
        ]

    def _cut(self, query: str) -> str:
        """The query's text up to its 64th token."""
        ends = self._tokenizer(query, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return query[: ends[QUERY_TOKENS - 1][1]] if len(ends) > QUERY_TOKENS else query

    def _load(self, **settings: Any) -> Any:
        from transformers import AutoModelForSequenceClassification

        model = self._from_checkpoint(AutoModelForSequenceClassification, **settings)
        if model.config.num_labels not in (1, 2):
            raise UsageError(
                f"{self.checkpoint.name} tells {model.config.num_labels} classes apart, MonoBERT one or two.",
                "name another checkpoint with -m monobert:NAME",
            )
        return model

    def _logits(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None) -> torch.Tensor:
        typed = {} if segments is None else {"token_type_ids": segments}
        logits: torch.Tensor = self._model(input_ids=ids, attention_mask=mask, **typed).logits
        return logits[:, 0] if logits.shape[1] == 1 else _log_share(logits)


def _log_share(logits: torch.Tensor) -> torch.Tensor:
    """The log-softmax of the second of two logits, (rows, 2) to (rows,).

    In float64, where the logarithm of a probability near 1 does not round to 0: the best pages would tie.
    """
    import torch

    false, true = logits.double().unbind(-1)
    return torch.nn.functional.logsigmoid(true - false)


def _rectangle(rows: Sequence[Sequence[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows padded on the right, and where they stand."""
    import torch

    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[number, : len(row)] = 1
    return ids, mask
