"""`cross-encoder:NAME`: a CrossEncoder of sentence-transformers, from a folder or the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmfair.backends.base import BackendOptions
from llmfair.backends.python import Function, scores_lists
from llmfair.checkpoints import Checkpoint, find_checkpoint, require_local
from llmfair.errors import BackendError, line_of
from llmfair.io import files
from llmfair.registry import register


@register("backend", "cross-encoder")
@scores_lists
def cross_encoder(name: str, options: BackendOptions) -> Function:
    """A model by folder or repository. Raises MissingExtra, UsageError, and BackendError for one not to be had."""
    require_local("sentence_transformers")
    return Encoded(find_checkpoint(name), f"cross-encoder:{name}")


class Encoded(Function):
    """It is loaded for the first list, so that a finished run loads none."""

    def __init__(self, checkpoint: Checkpoint, spec: str) -> None:
        self.checkpoint = checkpoint
        self.model: Any = None
        super().__init__(self.rank_all, spec)
        self.identity, self.max_workers = f"cross-encoder {checkpoint.identity}", 1

    def rank_all(self, query: str, documents: Sequence[str]) -> list[float]:
        """The model's scores, in batches."""
        if self.model is None:
            self.model = _loaded(self.checkpoint)
        pairs = [(query, document) for document in documents]
        return [float(score) for score in self.model.predict(pairs, show_progress_bar=False)]


@files.usual()
def _loaded(checkpoint: Checkpoint) -> Any:
    import sentence_transformers

    try:
        return sentence_transformers.CrossEncoder(checkpoint.source, revision=checkpoint.revision)
    except (OSError, ValueError, RuntimeError) as error:
        raise BackendError(
            f"{checkpoint.name} cannot be loaded: {line_of(error)}.", "name a cross-encoder"
        ) from None
