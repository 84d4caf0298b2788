"""Which engine searches a collection: tantivy unless said, over documents at hand or the index it was fetched with."""

from __future__ import annotations

from collections.abc import Sequence

from llmfair import registry
from llmfair.datasets.base import cache_folder
from llmfair.datasets.collection import Collection
from llmfair.errors import RunConflict, UsageError, did_you_mean
from llmfair.nouns import Fill
from llmfair.retrieval.analysis import ANALYZERS, ENGLISH, Analyzer
from llmfair.retrieval.engine import Engine, EngineKind, EngineOptions, Patience

TANTIVY = "tantivy"


def filling(spec: str, analyzer: str, url: str | None = None) -> Fill:
    """What fills the index of an engine's spec with a collection that is fetched.

    Raises UsageError, and as engines do, for one that cannot be filled now: before anything is downloaded.
    """
    name, index = _named(spec)
    kind: EngineKind = registry.lookup("engine", name)
    return kind.filler(index, url, ANALYZERS[analyzer])


def _named(spec: str) -> tuple[str, str]:
    """Name and index of a spec. Raises UsageError with the nearest name."""
    name, _, index = spec.partition(":")
    known = registry.names("engine")
    if name not in known:
        raise UsageError(
            f"--engine {spec} is unknown.{did_you_mean(name, known)}", f"known: {', '.join(known)}"
        )
    return name, index


def engine_of(
    collection: Collection,
    analyzer: Analyzer = ENGLISH,
    spec: str = TANTIVY,
    url: str | None = None,
    fields: Sequence[str] = (),
    patience: Patience | None = None,
) -> Engine:
    """The engine of this spec, `NAME` or `NAME:INDEX`, over a collection. Raises UsageError, and as engines do."""
    name, index = _named(spec)
    made = collection.index
    if made is not None and not fields and analyzer.name != made.analyzer:
        raise RunConflict(
            f"{collection.name} was indexed with --analyzer {made.analyzer}, not {analyzer.name}.",
            f"--analyzer {made.analyzer} searches it; fetched with --analyzer {analyzer.name} it is indexed anew",
        )
    engine: Engine = registry.lookup("engine", name).open(
        EngineOptions(
            collection=collection.name,
            documents=collection.documents,
            analyzer=analyzer,
            cache=cache_folder(),
            made=made,
            index=index,
            url=url,
            fields=tuple(fields),
            patience=patience or Patience(),
        )
    )
    return engine
