"""What a run has submitted in batches: `batches.json`, and a file of lines for each batch that is not collected.

A run in stages has a journal for each, and one list of batches: each says which journal its answers belong to.

Written before what it tells of happens, so that a process that dies leaves nothing on a server that the next one
would not find.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from llmfair.errors import RunConflict, UsageError
from llmfair.io.files import read, whole, write_whole

FILE = "batches.json"
SCHEMA = 1
AGAIN = "remove it to ask the questions of open batches again"
_LINES = re.compile(r"batch-(\d+)\.jsonl")


@dataclass
class Sent:
    """A file of lines that was uploaded, and the batch made of it; `answers` is None until they are collected.

    `journal` is the name of the file that keeps these; what has none was noted when a run had but one.
    """

    file: str
    lines: int
    input_file_id: str
    batch_id: str | None = None
    status: str = "uploaded"
    answers: int | None = None
    journal: str = "journal.jsonl"


@dataclass
class _Batches:
    """batches.json."""

    batches: Sequence[Sent]


class Ledger:
    """The batches of a run, of which those whose answers go into `journal` are `open`; `keys` are those of the
    questions in each of them, by its file.

    `key_of` reads the key in a line. Raises RunConflict for files that somebody damaged.
    """

    def __init__(self, journal: Path, key_of: Callable[[bytes], str | None]) -> None:
        self.folder, self.journal, self.key_of = journal.parent, journal.name, key_of
        self.sent = read_sent(self.folder)
        self.keys = {one.file: self._keys_of(one) for one in self.open}

    def __contains__(self, key: str) -> bool:
        """Whether a question is in an open batch."""
        return any(key in keys for keys in self.keys.values())

    @property
    def open(self) -> list[Sent]:
        """What was uploaded and is not collected."""
        return _open(self.sent, self.journal)

    def write(self, lines: list[tuple[str, bytes]]) -> Path:
        """The next file of lines on disk, not yet noted; no name is used twice, whatever somebody took off the list."""
        numbers = (int(found[1]) for one in self.sent if (found := _LINES.fullmatch(one.file)))
        names = (self.folder / f"batch-{number}.jsonl" for number in count(max(numbers, default=0) + 1))
        path = next(path for path in names if not path.exists())
        with whole(path) as file:
            file.writelines(line for _, line in lines)
        return path

    def add(self, path: Path, lines: list[tuple[str, bytes]], input_file_id: str) -> Sent:
        """Notes a file that was uploaded."""
        one = Sent(path.name, len(lines), input_file_id, journal=self.journal)
        self.sent.append(one)
        self.keys[one.file] = {key for key, _ in lines}
        self.save()
        return one

    def close(self, one: Sent, answers: int) -> None:
        """Notes that a batch is done with."""
        one.answers = answers
        self.save()
        del self.keys[one.file]
        (self.folder / one.file).unlink(missing_ok=True)

    def save(self) -> None:
        content = {"schema": SCHEMA, "batches": [asdict(one) for one in self.sent]}
        write_whole(self.folder / FILE, [json.dumps(content, indent=1, ensure_ascii=False), "\n"])

    def _keys_of(self, one: Sent) -> set[str]:
        path = self.folder / one.file
        try:
            with path.open("rb") as file:
                keys = {key for line in file if (key := self.key_of(line))}
        except OSError:
            keys = set()
        if len(keys) != one.lines:
            raise RunConflict(
                f"{path} does not hold the {one.lines:,} lines of {one.batch_id or one.input_file_id}.",
                f"put it back, or remove {FILE} to ask the questions of open batches again",
            )
        return keys


def read_sent(folder: Path) -> list[Sent]:
    """All batches of a run, from the first on. Raises RunConflict for a file that cannot be read."""
    path = folder / FILE
    if not path.exists():
        return []
    try:
        sent = list(read(path, _Batches).batches)
    except UsageError as damaged:
        raise RunConflict(damaged.message, AGAIN) from None
    if strange := [one.file for one in sent if not _LINES.fullmatch(one.file)]:
        raise RunConflict(f"{path}: '{strange[0][:80]}' is no file of lines - at `$.batches`.", AGAIN)
    return sent


def refuse_open(journal: Path) -> None:
    """Raises RunConflict where a journal has open batches: what they answer would be asked, and paid, twice."""
    if _open(read_sent(journal.parent), journal.name):
        raise RunConflict(
            f"{journal.parent} has batches that are not collected.",
            f"add --batch to collect them, or remove {FILE} to ask their questions again",
        )


def _open(sent: list[Sent], journal: str) -> list[Sent]:
    return [one for one in sent if one.answers is None and one.journal == journal]
