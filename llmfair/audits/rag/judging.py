"""Attribution by a model that judges: the second stage of an audit of a generator, asked about its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from llmfair import registry
from llmfair.audits.rag.settings import RagSettings
from llmfair.audits.subject import backend_of
from llmfair.backends.base import Backend
from llmfair.errors import UsageError, did_you_mean
from llmfair.metrics.texts import EMPTY, cleaned
from llmfair.nouns import Document, Query
from llmfair.prompts import Prompt, load_prompt
from llmfair.rankers.reader import Read, Shown
from llmfair.rankers.support import Judged, Judging, Pair

STAGE = "attribution"
NLI = "nli"
MODELS = {NLI: "nli:FacebookAI/roberta-large-mnli"}
"""What a word alone stands for."""
BARE = "{output}"
"""The hypothesis of an output that is claimed as it stands."""


@dataclass(frozen=True)
class Judge:
    """The model that is asked, and what it is asked with."""

    spec: str
    prompt: Prompt

    @property
    def by(self) -> str:
        """What names its figures."""
        return NLI if self.spec.startswith(f"{NLI}:") else "judge"

    def backend(self, settings: RagSettings) -> Backend:
        """What answers: the generator's adapter, engine and batches are not the judge's. Raises UsageError."""
        return backend_of(self.spec, replace(settings, adapter=None, backend_arg=(), batch=False))

    def judging(
        self,
        pairs: Callable[[str, Shown], Sequence[Pair]],
        read: Read,
        items: Mapping[str, Document],
        hypothesis: str,
    ) -> Judging:
        """The `pairs` of every output and the items that it was shown, each once."""
        asked = dict.fromkeys(
            pair for shown, output in read.lists.items() for pair in pairs(output.text, shown)
        )
        return Judging(read.query_id, items, [*asked], self.prompt, hypothesis)


def judge_of(attribution: str, others: tuple[str, ...]) -> Judge | None:
    """The model that is asked; None where an output itself tells, by one of the `others`. Raises UsageError."""
    spec = MODELS.get(attribution, attribution)
    if spec in others:
        return None
    prefix, colon, name = spec.partition(":")
    if not colon or not name or not registry.has("backend", prefix):
        known = (*others, *MODELS)
        raise UsageError(
            f"--attribution {attribution} is unknown.{did_you_mean(attribution, known)}",
            f"known: {', '.join(known)}; or a model that judges, such as nli:NAME or openai:NAME",
        )
    return Judge(spec, load_prompt("rag/entailment" if prefix == NLI else "rag/support"))


def probe_of(query: Query) -> str:
    """What the second stage calls its program of a query."""
    return f"{query.query_id}/{STAGE}"


def pairs_of(meaning: str, shown: Shown) -> list[Pair]:
    """What is asked of one output; nothing of an empty one."""
    return [] if cleaned(meaning) == EMPTY else [(doc_id, meaning) for doc_id in shown]


def supporting(judged: Judged | None, pairs: Sequence[Pair]) -> frozenset[str] | None:
    """The items of these pairs that support an output; None where nobody asked, or an answer cannot be read."""
    if judged is None or any(judged.supported.get(pair) is None for pair in pairs):
        return None
    return frozenset(pair[0] for pair in pairs if judged.supported[pair])
