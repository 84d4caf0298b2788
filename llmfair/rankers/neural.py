"""Models of this machine as rankers: cross-encoders, which read query and page together, and encoders."""

from __future__ import annotations

import logging
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from llmfair import checkpoints
from llmfair.control_tokens import plain
from llmfair.errors import UsageError
from llmfair.nouns import Candidates, Document, Query
from llmfair.prompts import load_prompt
from llmfair.rankers.base import RankerOptions, ScoringRanker
from llmfair.registry import register

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def _loaded(checkpoint: checkpoints.Checkpoint, name: str, make: Callable[..., T], **settings: Any) -> T:
    """What `make` reads of a checkpoint. Raises BackendError for files that are missing or broken."""
    from transformers.utils import logging as progress

    progress.disable_progress_bar()
    smaller, hint = "--backend-arg device=cpu", f"name another checkpoint: {name}:NAME"
    with checkpoints.loading(checkpoint.name, smaller=smaller, kind=f" as {name}", hint=hint):
        return make(checkpoint.source, revision=checkpoint.revision, **settings)


# MonoT5 and MonoBERT: cross-encoders that say how relevant a page is (Nogueira et al. 2020; Nogueira and Cho 2019).
# They see 512 tokens: the query is cut first, at 64, then the page to what is left, never the words that close the
# input.

QUERY_TOKENS = 64
TOKENS = 512
ARGUMENTS: Mapping[str, Any] = {"device": "auto", "dtype": "auto", "batch_tokens": 16_384}


Input = Mapping[str, list[int]]
"""What the model reads for one passage of a page: `input_ids`, and where it asks which text each belongs to."""


class CrossEncoder(ScoringRanker):
    """Candidates by falling score of title and text; of a long page the first passage counts, or the best one.

    `default`: the authors' checkpoint; `auto`: the class of transformers. Raises MissingExtra, UsageError,
    BackendError.
    """

    name: ClassVar[str]
    default: ClassVar[str]
    auto: ClassVar[str]
    worded = True
    costly = True

    def __init__(self, options: RankerOptions) -> None:
        checkpoints.require_local()
        self.checkpoint: checkpoints.Checkpoint = checkpoints.find_checkpoint(
            options.checkpoint or self.default
        )
        self.passages = options.passages
        self.arguments = checkpoints.arguments_of(self.name, options.backend_args, ARGUMENTS)
        self.dtype = checkpoints.dtype_of(self.checkpoint, self.arguments["dtype"])[0]
        self.tokens = min(TOKENS, self.checkpoint.context or TOKENS)
        self.attribute = options.attribute
        self.prompt = load_prompt("neural")
        self.identity = (
            f"{self.name} {self.checkpoint.identity} {self.dtype} passages={self.passages} "
            f"query={QUERY_TOKENS} tokens={self.tokens} prompt={self.prompt.sha256[:12]}"
        )

    def wording(self, query: Query, variant: str) -> str:
        """The query with the word of the side that the variant names."""
        values, wording = {"query": query.text}, "neutral"
        if self.attribute is not None and (group := self.attribute.named.get(variant)) is not None:
            values["word"], wording = self.attribute.word(group), "sensitive"
        (message,) = self.prompt.render(values, wording)
        return message.content

    def scores(self, candidates: Candidates) -> list[float]:
        """Each candidate's score, the logarithm of a probability or a logit; its best passage's under `max`."""
        import torch

        places, inputs = list[int](), list[Input]()
        for place, document in enumerate(candidates.documents):
            passages = self.inputs(candidates.query.text, document)
            places += [place] * len(passages)
            inputs += passages
        best = [-float("inf")] * len(candidates.documents)
        room = self.arguments["batch_tokens"]
        smaller = f"--backend-arg batch_tokens={max(TOKENS, room // 4)}"
        for rows in checkpoints.batches([len(read["input_ids"]) for read in inputs], room):
            batch = [dict(inputs[row]) for row in rows]
            padded = self._tokenizer.pad(
                batch, padding_side="right", return_tensors="pt"
            )  # which changes none
            many = f"{self.name} with {len(rows)} passages at once does not fit the memory."
            with torch.inference_mode(), checkpoints.fits(many, smaller):
                scores = self._logits(padded.to(self._model.device)).tolist()
            for row, score in zip(rows, scores, strict=True):
                best[places[row]] = max(best[places[row]], score)
        return best

    def inputs(self, query: str, document: Document) -> list[Input]:
        """What is read for one candidate: its start, or under `max` windows that overlap by half."""
        page = f"{document.title}\n{document.text}".strip()
        passages = self._inputs(plain(query, self._tokenizer), plain(page, self._tokenizer))
        return passages if self.passages == "max" else passages[:1]

    @abstractmethod
    def _inputs(self, query: str, page: str) -> list[Input]:
        """The page's passages, the first first."""

    @abstractmethod
    def _logits(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores of a batch, (rows,)."""

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        tokenizer = _loaded(self.checkpoint, self.name, AutoTokenizer.from_pretrained)
        tokenizer.model_max_length = sys.maxsize  # pages are cut here, and it need not warn of their length
        return tokenizer

    @cached_property
    def _model(self) -> Any:
        import torch
        import transformers

        device = checkpoints.device_of(self.arguments["device"])[0]

        def model(*where: Any, **settings: Any) -> Any:
            return getattr(transformers, self.auto).from_pretrained(*where, **settings).eval().to(device)

        return _loaded(self.checkpoint, self.name, model, dtype=getattr(torch, self.dtype))

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)


@register("ranker", "monot5")
class MonoT5(CrossEncoder):
    """log P(true) against false, as the first word a T5 answers to `Query: … Document: … Relevant:`."""

    name, default, auto = "monot5", "castorini/monot5-base-msmarco", "AutoModelForSeq2SeqLM"

    def _inputs(self, query: str, page: str) -> list[Input]:
        # Words are tokenized apart from each other, so that pieces may be put together from lists of ids.
        head = [*self._ids("Query:"), *self._ids(query)[:QUERY_TOKENS], *self._ids("Document:")]
        end = self._tokenizer.eos_token_id
        tail = [*self._ids("Relevant:"), *([] if end is None else [end])]
        room = self.tokens - len(head) - len(tail)
        page_ids, half = self._ids(page), max(1, room // 2)
        starts = (0, *range(half, max(0, len(page_ids) - room) + room // 2, half))
        return [{"input_ids": [*head, *page_ids[start : start + room], *tail]} for start in starts]

    def _logits(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        start = batch["input_ids"][:, :1].clone().fill_(self._model.config.decoder_start_token_id)
        logits = self._model(**batch, decoder_input_ids=start, use_cache=False).logits
        return _log_share(logits[:, -1, self._answers])

    @cached_property
    def _answers(self) -> list[int]:
        """The ids of false and true. Raises UsageError where either is not one piece."""
        ids = []
        for word in ("false", "true"):
            pieces = self._ids(word)
            if len(pieces) != 1 or pieces[0] == self._tokenizer.unk_token_id:
                raise UsageError(
                    f"the tokenizer of {self.checkpoint.name} has no piece ▁{word}, which MonoT5 answers with.",
                    "name a checkpoint of MonoT5 with -m monot5:NAME",
                )
            ids += pieces
        return ids


@register("ranker", "monobert")
class MonoBert(CrossEncoder):
    """A BERT that classifies the pair of query and page: log P(relevant), or the one logit it has."""

    name, default = "monobert", "castorini/monobert-large-msmarco"
    auto = "AutoModelForSequenceClassification"

    def _inputs(self, query: str, page: str) -> list[Input]:
        ends = self._tokenizer(query, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if len(ends) > QUERY_TOKENS:
            query = query[: ends[QUERY_TOKENS - 1][1]]
        room = self.tokens - len(self._ids(query)) - self._tokenizer.num_special_tokens_to_add(pair=True)
        encoded = self._tokenizer(
            query,
            page,
            truncation="only_second",
            max_length=self.tokens,
            stride=room - max(1, room // 2),
            return_overflowing_tokens=True,
        )
        names = [name for name in ("input_ids", "token_type_ids") if name in encoded]
        rows = zip(*(encoded[name] for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _logits(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        logits: torch.Tensor = self._model(**batch).logits
        if logits.shape[1] > 2:
            raise UsageError(
                f"{self.checkpoint.name} tells {logits.shape[1]} classes apart, MonoBERT one or two.",
                "name another checkpoint with -m monobert:NAME",
            )
        return logits[:, 0] if logits.shape[1] == 1 else _log_share(logits)


def _log_share(logits: torch.Tensor) -> torch.Tensor:
    """The log-softmax of the second of two logits, (rows, 2) to (rows,), in float64: else the best pages would tie."""
    import torch

    false, true = logits.double().unbind(-1)
    return torch.nn.functional.logsigmoid(true - false)


# Encoders of sentence-transformers. How texts are pooled, padded, prompted and compared is what each checkpoint
# declares, but that `contriever` is compared by dot product [Izacard et al. 2022], of `splade` 256 terms count
# [official code of Fair-RAG], and `sbert` is a name for all-mpnet-base-v2 [Reimers and Gurevych 2019].


ENCODER_ARGUMENTS: Mapping[str, Any] = {"device": "auto", "batch_size": 32}
"""What `--backend-arg` takes, with the defaults."""
AT_ONCE = 256
"""Items whose vectors are held at once: a sparse one has a place for every word that there is."""


KINDS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "dense": ("SentenceTransformer", "", {}),
    "sparse": ("SparseEncoder", "", {}),
    "contriever": ("SentenceTransformer", "facebook/contriever", {"similarity_fn_name": "dot"}),
    "sbert": ("SentenceTransformer", "sentence-transformers/all-mpnet-base-v2", {}),
    "splade": ("SparseEncoder", "naver/splade_v2_max", {"max_active_dims": 256}),
}
"""By name a class of sentence-transformers, a checkpoint, and settings beyond those that a checkpoint declares."""
SBERT = "sbert"


def named_encoder(name: str, options: RankerOptions) -> Encoder:
    """What a parameter names: `sbert`, or a checkpoint. Raises MissingExtra, UsageError, and BackendError for none."""
    if name == SBERT:
        return Encoder(SBERT, replace(options, checkpoint=""))
    return Encoder("dense", replace(options, checkpoint=name))


class Encoder(ScoringRanker):
    """Candidates by falling likeness of query and title with text. The model is loaded for the first list."""

    costly: ClassVar[bool] = True
    scored_together = AT_ONCE

    def __init__(self, name: str, options: RankerOptions) -> None:
        self.name, (self._class, of_kind, self._settings) = name, KINDS[name]
        if of_kind and options.checkpoint:
            raise UsageError(
                f"{name} is {of_kind}, so it cannot be '{options.checkpoint}'.",
                f"dense:{options.checkpoint} or sparse:{options.checkpoint}",
            )
        if not (checkpoint := options.checkpoint or of_kind):
            raise UsageError(f"{name} names no checkpoint.", f"for example {name}:ORG/NAME, or a folder")
        checkpoints.require_local("sentence_transformers")
        self.arguments = checkpoints.arguments_of(name, options.backend_args, ENCODER_ARGUMENTS)
        self.checkpoint = checkpoints.find_checkpoint(checkpoint)
        settings = "".join(f" {key}={value}" for key, value in self._settings.items())
        parts = []  # further parts of a folder, such as how it pools; a repository's version says it
        if not self.checkpoint.revision:
            parts = [path for path in Path(self.checkpoint.source).glob("*/*") if path.is_file()]
        of_parts = f" parts={checkpoints.files_sha256(parts)[:12]}" if parts else ""
        self._last: tuple[tuple[Document, ...], list[Any]] | None = None
        self.identity = f"{name} {self.checkpoint.identity}{of_parts}{settings}"

    def scores(self, candidates: Candidates) -> list[float]:
        """The likeness of each candidate, as the checkpoint declares it: cosine or dot product."""
        import torch

        with torch.inference_mode():
            query = self._encoded("query", [candidates.query.text])
            parts = [self._model.similarity(query, of)[0] for of in self._vectors(candidates.documents)]
            scores: list[float] = torch.cat(parts).double().tolist() if parts else []
        return scores

    def vectors(self, what: Literal["query", "document"], texts: Iterable[str]) -> NDArray[np.float32]:
        """Dense vectors of texts, (texts, places), as queries or documents are encoded."""
        import torch

        with torch.inference_mode():
            encoded: NDArray[np.float32] = self._encoded(what, texts).float().cpu().numpy()
        return encoded

    def _vectors(self, documents: tuple[Document, ...]) -> Iterable[Any]:
        """Those of the items, some at a time; queries of one corpus that follow each other share dense ones."""
        if self._last is not None and self._last[0] is documents:
            return self._last[1]
        texts = [f"{item.title} {item.text}" for item in documents]
        starts = range(0, len(documents), AT_ONCE)
        chunks = (self._encoded("document", texts[start : start + AT_ONCE]) for start in starts)
        if self._class == "SparseEncoder":
            return chunks
        self._last = documents, [*chunks]
        return self._last[1]

    def _encoded(self, what: str, texts: Iterable[str]) -> Any:
        """Vectors, (texts, places). Raises BackendError for a batch that does not fit the memory."""
        texts = [plain(text.strip(), self._model.tokenizer) for text in texts]
        more = {"convert_to_sparse_tensor": False} if self._class == "SparseEncoder" else {}
        size = self.arguments["batch_size"]
        many = f"{self.name} with {size} texts at once does not fit the memory."
        with checkpoints.fits(many, "--backend-arg batch_size=4 where it ranks, or a smaller checkpoint"):
            return getattr(self._model, f"encode_{what}")(
                texts, batch_size=size, convert_to_tensor=True, show_progress_bar=False, **more
            )

    @cached_property
    def _model(self) -> Any:
        import sentence_transformers

        # mean pooling by default is no news
        logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
        make = getattr(sentence_transformers, self._class)
        settings = {"device": checkpoints.device_of(self.arguments["device"])[0], **self._settings}
        return _loaded(self.checkpoint, self.name, make, **settings).eval()


for _name in KINDS:
    register("ranker", _name)(partial(Encoder, _name))


def vectors_of(encoder: Encoder) -> Callable[[Candidates], NDArray[np.float64]]:
    """Gives vectors of documents, each encoded once, and how like the query each is: (candidates, places + 1)."""
    known: dict[str, NDArray[np.float32]] = {}

    def vectors(candidates: Candidates) -> NDArray[np.float64]:
        if new := {item.doc_id: item for item in candidates.documents if item.doc_id not in known}:
            texts = [f"{item.title} {item.text}" for item in new.values()]
            known.update(zip(new, encoder.vectors("document", texts), strict=True))
        (query,) = unit(encoder.vectors("query", [candidates.query.text]))
        units = unit(np.array([known[doc_id] for doc_id in candidates.doc_ids]))
        return np.column_stack([units, units @ query])

    return vectors


def unit(vectors: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Vectors of length 1, zeros as they are; shape (n, places)."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: NDArray[np.float64] = np.divide(vectors, lengths, out=np.zeros(vectors.shape), where=lengths > 0)
    return units
