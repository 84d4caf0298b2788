"""The real TREC 2022 × Pantheon material, written as a folder of one's own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.folders import write
from tests.shared import realdata


def write_joined(path: Path) -> Path:
    """22 topics with their candidate lists; gender, and continent of birth (Europe unprotected) as location.

    Pantheon counts North and South America; the region of a country is not ours to guess, so both are given
    as they stand, and attributes.toml puts every continent but Europe on the protected side.
    """
    path.mkdir(parents=True, exist_ok=True)
    source = realdata("joined")
    documents = [json.loads(line) for line in (source / "docs.jsonl").read_text("utf-8").splitlines()]
    topics = [json.loads(line) for line in (source / "candidates.jsonl").read_text("utf-8").splitlines()]
    write(path / "docs.jsonl", (json.dumps({"doc_id": d["page_id"], "title": d["title"]}) for d in documents))
    write(path / "queries.tsv", (f"{topic['topic_id']}\t{topic['title']}" for topic in topics))
    write(
        path / "qrels.txt",
        (f"{t['topic_id']} 0 {item['page_id']} {item['rel']}" for t in topics for item in t["items"]),
    )
    groups = [f"{d['page_id']}\tgender\t{d['gender']}" for d in documents]
    groups += [f"{d['page_id']}\tlocation\t{d['continent']}" for d in documents if d["continent"]]
    write(path / "groups.tsv", groups)
    return path
