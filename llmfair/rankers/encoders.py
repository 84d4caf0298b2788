"""Encoders of sentence-transformers as rankers: query and item become vectors, dense or sparse; their likeness scores.

How texts are pooled, padded, prompted and compared is what each checkpoint declares, but for three that declare less
than their authors do: `contriever` is compared by dot product [Izacard et al. 2022], of `splade` 256 terms count
[official code of Fair-RAG], and `sbert` is a name for all-mpnet-base-v2 [Reimers and Gurevych 2019].
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from llmfair.checkpoints import (
    arguments_of,
    device_of,
    files_sha256,
    find_checkpoint,
    require_local,
)
from llmfair.control_tokens import without_control_tokens
from llmfair.errors import BackendError, UsageError, line_of
from llmfair.io import files
from llmfair.nouns import Candidates, Document
from llmfair.rankers.base import RankerOptions, ScoringRanker
from llmfair.registry import register

ARGUMENTS: Mapping[str, Any] = {"device": "auto", "batch_size": 32}
"""What `--backend-arg` takes, with the defaults."""
AT_ONCE = 256
"""Items whose vectors are held at once: a sparse one has a place for every word that there is."""


@dataclass(frozen=True)
class _Kind:
    """A class of sentence-transformers, and what it is told beyond what a checkpoint declares."""

    kind: str
    checkpoint: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)


KINDS: Mapping[str, _Kind] = {
    "dense": _Kind("SentenceTransformer"),
    "sparse": _Kind("SparseEncoder"),
    "contriever": _Kind("SentenceTransformer", "facebook/contriever", {"similarity_fn_name": "dot"}),
    "sbert": _Kind("SentenceTransformer", "sentence-transformers/all-mpnet-base-v2"),
    "splade": _Kind("SparseEncoder", "naver/splade_v2_max", {"max_active_dims": 256}),
}


SBERT = "sbert"


def named_encoder(name: str, options: RankerOptions) -> Encoder:
    """What a parameter names: `sbert`, or a checkpoint. Raises MissingExtra, UsageError, and BackendError for none."""
    kind, checkpoint = (SBERT, "") if name == SBERT else ("dense", name)
    return Encoder(kind, replace(options, checkpoint=checkpoint))


class Encoder(ScoringRanker):
    """Candidates by falling likeness of query and title with text. The model is loaded for the first list."""

    made_for_texts = True
    costly: ClassVar[bool] = True
    scored_together = AT_ONCE

    def __init__(self, name: str, options: RankerOptions) -> None:
        self.name, self.kind = name, KINDS[name]
        if self.kind.checkpoint and options.checkpoint:
            raise UsageError(
                f"{name} is {self.kind.checkpoint}, so it cannot be '{options.checkpoint}'.",
                f"dense:{options.checkpoint} or sparse:{options.checkpoint}",
            )
        if not (checkpoint := options.checkpoint or self.kind.checkpoint):
            raise UsageError(f"{name} names no checkpoint.", f"for example {name}:ORG/NAME, or a folder")
        require_local("sentence_transformers")
        self.arguments = arguments_of(name, options.backend_args, ARGUMENTS)
        self.checkpoint = find_checkpoint(checkpoint)
        told = "".join(f" {key}={value}" for key, value in self.kind.told.items())
        self._last: tuple[tuple[Document, ...], list[Any]] | None = None
        self.identity = f"{name} {self.checkpoint.identity}{self._parts()}{told}"

    def _parts(self) -> str:
        """Which further parts a folder has, such as how it pools; a repository's version says it."""
        if self.checkpoint.revision:
            return ""
        files = [path for path in Path(self.checkpoint.source).glob("*/*") if path.is_file()]
        return f" parts={files_sha256(files)[:12]}" if files else ""

    def scores(self, candidates: Candidates) -> list[float]:
        """The likeness of each candidate, as the checkpoint declares it: cosine or dot product."""
        import torch

        with torch.inference_mode():
            query = self._encoded("query", [self._plain(candidates.query.text)])
            found = [self._model.similarity(query, of)[0] for of in self._vectors(candidates.documents)]
            scores: list[float] = torch.cat(found).double().tolist() if found else []
        return scores

    def vectors(self, what: Literal["query", "document"], texts: Iterable[str]) -> NDArray[np.float32]:
        """Dense vectors of texts, (texts, places), as queries or documents are encoded."""
        import torch

        with torch.inference_mode():
            found: NDArray[np.float32] = self._encoded(what, [*map(self._plain, texts)]).float().cpu().numpy()
        return found

    def _vectors(self, documents: tuple[Document, ...]) -> Iterable[Any]:
        """Those of the items, some at a time; queries of one corpus that follow each other share dense ones."""
        if self.kind.kind == "SparseEncoder":
            return self._chunks(documents)
        if self._last is None or self._last[0] is not documents:
            self._last = documents, [*self._chunks(documents)]
        return self._last[1]

    def _chunks(self, documents: Sequence[Document]) -> Iterator[Any]:
        for start in range(0, len(documents), AT_ONCE):
            items = documents[start : start + AT_ONCE]
            yield self._encoded("document", [self._plain(f"{item.title} {item.text}") for item in items])

    def _encoded(self, what: str, texts: Sequence[str]) -> Any:
        """Vectors, (texts, places). Raises BackendError for a batch that does not fit the memory."""
        import torch

        more = {"convert_to_sparse_tensor": False} if self.kind.kind == "SparseEncoder" else {}
        encode = getattr(self._model, f"encode_{what}")
        try:
            return encode(
                [*texts],
                batch_size=self.arguments["batch_size"],
                convert_to_tensor=True,
                show_progress_bar=False,
                **more,
            )
        except torch.OutOfMemoryError:
            raise BackendError(
                f"{self.name} does not fit the memory with {self.arguments['batch_size']} texts at once.",
                "--backend-arg batch_size=4 where it ranks, or a smaller checkpoint",
            ) from None

    @cached_property
    @files.usual()
    def _model(self) -> Any:
        """Raises BackendError for files that are missing or broken."""
        import sentence_transformers
        from transformers.utils import logging as shown

        shown.disable_progress_bar()
        logging.getLogger("sentence_transformers").setLevel(
            logging.ERROR
        )  # mean pooling by default is no news
        where = {"revision": self.checkpoint.revision} if self.checkpoint.revision else {}
        device = device_of(self.arguments["device"])[0]
        try:
            model = getattr(sentence_transformers, self.kind.kind)(
                self.checkpoint.source, device=device, **self.kind.told, **where
            )
        except Exception as error:  # each library has its own for files that are missing or broken
            raise BackendError(
                f"{self.checkpoint.name} cannot be loaded as {self.name}: {line_of(error)}.",
                f"name another checkpoint: {self.name}:NAME",
            ) from error
        return model.eval()

    def _plain(self, text: str) -> str:
        """What the tokenizer can encode, and reads as nothing but text."""
        encodable = text.strip().encode("utf-8", "replace").decode("utf-8")
        return without_control_tokens(encodable, tuple(self._model.tokenizer.all_special_tokens))


for _name in KINDS:
    register("ranker", _name)(partial(Encoder, _name))


class Vectors:
    """Vectors of documents, each encoded once, and how like the query each is: (candidates, places + 1)."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._known: dict[str, NDArray[np.float32]] = {}

    def __call__(self, candidates: Candidates) -> NDArray[np.float64]:
        new = [one for one in candidates.documents if one.doc_id not in self._known]
        texts = [f"{one.title} {one.text}" for one in new]
        found = self._encoder.vectors("document", texts) if new else ()
        self._known |= {one.doc_id: vector for one, vector in zip(new, found, strict=True)}
        (query,) = unit(self._encoder.vectors("query", [candidates.query.text]))
        vectors = unit(np.array([self._known[doc_id] for doc_id in candidates.doc_ids]))
        return np.column_stack([vectors, vectors @ query])


def unit(vectors: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Vectors of length 1, zeros as they are; shape (n, places)."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: NDArray[np.float64] = np.divide(vectors, lengths, out=np.zeros(vectors.shape), where=lengths > 0)
    return found
