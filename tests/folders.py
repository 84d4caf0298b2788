"""Small dataset folders for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from llmfair.io.files import TABLE


def write_folder(
    path: Path,
    lists: Mapping[str, Sequence[tuple[str, str | None, int]]],
    titles: Mapping[str, str] | None = None,
    queries: Mapping[str, str] | None = None,
) -> Path:
    """A folder from `{query_id: [(doc_id, gender or None, relevance), …]}`."""
    path.mkdir(parents=True, exist_ok=True)
    documents = {doc_id: gender for rows in lists.values() for doc_id, gender, _ in rows}
    shown = titles or {}
    rows = ({"doc_id": d, "title": shown.get(d, f"Title {d}")} for d in documents)
    write(path / "docs.jsonl", map(json.dumps, rows))
    write(path / "queries.tsv", (f"{q}\t{(queries or {}).get(q, f'Topic {q}')}" for q in lists))
    write(path / "qrels.txt", (f"{q} 0 {d} {rel}" for q, rows in lists.items() for d, _, rel in rows))
    write(path / "groups.tsv", (f"{d}\tgender\t{gender}" for d, gender in documents.items() if gender))
    return path


def balanced(queries: int, protected: int, unprotected: int) -> dict[str, list[tuple[str, str | None, int]]]:
    """Lists whose first half of each side is relevant."""
    return {
        f"q{q}": [
            *((f"q{q}f{i}", "female", int(i < protected // 2)) for i in range(protected)),
            *((f"q{q}m{i}", "male", int(i < unprotected // 2)) for i in range(unprotected)),
        ]
        for q in range(queries)
    }


def unequally_relevant() -> dict[str, list[tuple[str, str | None, int]]]:
    """Twelve lists of 20 items of either group, of which 3 and 7 are relevant."""
    return {
        f"q{q}": [
            (f"q{q}{side}{n}", side, int(n < relevant))
            for side, relevant in (("female", 3), ("male", 7))
            for n in range(20)
        ]
        for q in range(12)
    }


def folder_of(queries: int, protected: int = 20, unprotected: int = 20) -> str:
    """A folder of balanced lists, named by its shape and made once."""
    path = Path(f"{queries}-{protected}-{unprotected}")
    return str(path if path.is_dir() else write_folder(path, balanced(queries, protected, unprotected)))


def write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def content(path: Path) -> bytes:
    """What a file holds, but for when other files were changed, as the table of a fetched collection has it."""
    found = path.read_bytes()
    if path.name != TABLE:
        return found
    return json.dumps({n: [size, digest] for n, (size, _, digest) in json.loads(found).items()}).encode()
