"""Methods that refinement is held against: rankers that order anew what the original query finds.

Each is what `llmfair rerank RUN/rankings/bm25.run --with SPEC` makes of the run's first stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from threading import Lock
from typing import Any

from llmfair import registry
from llmfair.audits.lists import training_lists
from llmfair.audits.refine.settings import BASELINE
from llmfair.audits.subject import Subject
from llmfair.datasets.collection import Collection
from llmfair.datasets.keywords import searched
from llmfair.errors import BackendError, UsageError, did_you_mean
from llmfair.nouns import Attribute, Candidates, Document, Steps
from llmfair.rankers.base import Ranker
from llmfair.retrieval.engine import Engine

ALL = "all"
PAPER = ("dlf-like", "deltr", "fair-star", "mmr", "sbert")
"""The methods of the paper's Table 1 beside BM25, in its order."""
TARGET = "target"
EXAMPLE = "for example --baseline mmr, --baseline fair-star:p=0.5 or --baseline strict=fair-star:alpha=0.01"
_ALIASED = re.compile(r"([\w.-]+)=(.+)")


@dataclass(frozen=True)
class Baseline:
    """A ranker under the name that it has in tables; `spec` is what `llmfair rerank --with` takes."""

    name: str
    spec: str
    ranker: Ranker
    _turn: Lock = field(default_factory=Lock, repr=False, compare=False)

    def steps(self, found: Candidates) -> Steps[Candidates]:
        """Orders what the original query finds, if anything, best first; one query at a time: it may hold a model."""
        yield from ()
        with self._turn:
            return self.ranker.ordered(found)[0] if found.documents else found


def named_specs(given: Sequence[str], reserved: Sequence[str]) -> dict[str, str]:
    """Specs by the names that they have in tables, each once. Raises UsageError."""
    found: dict[str, str] = {}
    for text in chain.from_iterable(PAPER if text.strip() == ALL else (text.strip(),) for text in given):
        aliased = _ALIASED.fullmatch(text)
        name, spec = (aliased[1], aliased[2]) if aliased else (text.partition(":")[0], text)
        if spec == name == BASELINE or (name in PAPER and found.get(name) == spec):
            continue
        _check_known(spec)
        if name in reserved:
            raise UsageError(f"--baseline {text}: {name} is there already.", f"another name: ALIAS={spec}")
        if name in found:
            raise UsageError(
                f"--baseline {text}: {name} is named twice.", f"name one of them: other-{name}={spec}"
            )
        found[name] = spec
    return found


def _check_known(spec: str) -> None:
    known = registry.names("ranker")
    if spec.partition(":")[0] not in known:
        raise UsageError(
            f"--baseline {spec} is unknown.{did_you_mean(spec, [ALL, *known])}",
            f"known: {ALL}, {', '.join(known)}; {EXAMPLE}",
        )


def with_target(spec: str, target: str) -> str:
    """The spec with the target aimed at, where its ranker has one and it names none."""
    name, colon, parameters = spec.partition(":")
    declared: Any = getattr(registry.lookup("ranker", name), "declared", {})
    named = {one.partition("=")[0].strip() for one in parameters.split(",")}
    if TARGET not in declared or TARGET in named or target == declared[TARGET].default:
        return spec
    return f"{spec}{',' if colon else ':'}{TARGET}={target}"


@dataclass(frozen=True)
class FirstStage:
    """What rankers order: the `depth` documents that the engine finds for each topic's keywords or title."""

    engine: Engine
    dataset: Collection
    query_text: str
    depth: int

    def ranker(self, spec: str, attribute: Attribute) -> Ranker:
        """A ranker by its spec. Raises UsageError, and as rankers do."""
        lists = partial(training_lists, self.dataset, self.query_text, self.engine)
        return Subject(spec).ranker(self.dataset, attribute, self.documents, lists=lists)

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """All there are; where these are too many to hold, all that any topic finds."""
        if not self.dataset.too_many:
            return tuple(self.dataset.documents.values())
        queries = (searched(query, self.query_text) for query in self.dataset.queries)
        hits = (self.engine.search(query.text, self.depth) for query in queries)
        found = sorted({hit.doc_id for of_query in hits for hit in of_query})
        return tuple(self.dataset.document(doc_id) for doc_id in found)


def made_baselines(
    specs: Iterator[tuple[str, str]], attribute: Attribute, first_stage: FirstStage
) -> tuple[list[Baseline], list[str]]:
    """The baselines, and what has to be said: of those that need what is not here, too. Raises UsageError."""
    found, said = list[Baseline](), list[str]()
    for name, spec in specs:
        try:
            ranker = first_stage.ranker(spec, attribute)
        except BackendError as error:  # no package, or no checkpoint, of the models that it needs
            said.append(f"--baseline {name} is left out: {error.message.removesuffix('.')}: {error.hint}")
            continue
        found.append(Baseline(name, spec, ranker))
        said += [f"--baseline {name}: {warning}" for warning in ranker.warnings]
    return found, said
