"""Drawn lists kept on disk, where the data are so large that drawing them takes seconds.

A file is the SHA-256 of what follows and of what it is kept under, and JSON packed by gzip, which nothing looks into
that was harmed or comes from elsewhere: it is drawn anew.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from llmfair.datasets.base import DocumentSource
from llmfair.datasets.buckets import Drawn, DrawPlan, draw
from llmfair.io import files
from llmfair.io.files import whole
from llmfair.nouns import Attribute, Candidates, Document, Query

FORM = 4  # the form in which lists are kept
MOST = 256 << 20


def drawn_once(
    source: DocumentSource, attribute: Attribute, plan: DrawPlan, seed: int, folder: Path
) -> Drawn:
    """`draw`, kept below `folder` where the source has a fingerprint, so that the next start is quick."""
    if source.fingerprint is None:
        return draw(source, attribute, plan, seed)
    asked = [FORM, source.fingerprint, asdict(attribute), asdict(plan), seed]
    key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    path = folder / f"{key[:32]}.lists"
    with suppress(OSError):
        kept = files.content(path, MOST)
        if kept[:32] == _digest(key, kept[32:]):
            return _unpacked(source, json.loads(gzip.decompress(kept[32:])))
    drawn = draw(source, attribute, plan, seed)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        packed = gzip.compress(json.dumps(_packed(drawn)).encode(), 1, mtime=0)
        with whole(path) as file:
            file.write(_digest(key, packed) + packed)
    return drawn


def _digest(key: str, packed: bytes) -> bytes:
    return hashlib.sha256(key.encode() + packed).digest()


def _packed(drawn: Drawn) -> dict[str, Any]:
    return {
        "queries": [[query.query_id, query.text, *query.keywords] for query in drawn.queries],
        "qrels": drawn.qrels,
        "documents": [[d.doc_id, d.title, d.text, d.groups, d.numbers] for d in drawn.documents.values()],
        "left_out": drawn.left_out,
        "shrunk": drawn.shrunk,
        "source": drawn.source,
        "stand_ins": [[d.doc_id, d.groups] for d in drawn.stand_ins.values()],
        "relevant": drawn.relevant_counts,
    }


def _unpacked(source: DocumentSource, stored: Mapping[str, Any]) -> Drawn:
    """What `_packed` wrote; a query's judgements stand in the order of its list."""

    def tuples(groups: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        return {attribute: tuple(names) for attribute, names in groups.items()}

    documents = {
        doc_id: Document(doc_id, title, text, tuples(groups), numbers)
        for doc_id, title, text, groups, numbers in stored["documents"]
    }
    queries = [Query(query_id, text, tuple(keywords)) for query_id, text, *keywords in stored["queries"]]
    lists = {
        query.query_id: Candidates(
            query,
            tuple(documents[doc_id] for doc_id in stored["qrels"][query.query_id]),
            stored["qrels"][query.query_id],
        )
        for query in queries
    }
    return Drawn(
        source.name,
        source.prompt,
        source.attributes,
        queries,
        lists,
        stored["qrels"],
        documents,
        stored["left_out"],
        stored["shrunk"],
        stored["source"],
        {name: Document(name, "", groups=tuples(groups)) for name, groups in stored["stand_ins"]},
        stored["relevant"],
    )
