"""Answers shared between runs: what a model answered once is not asked again, whatever the run folder.

One SQLite file that any number of processes may use at once. It holds answers and what they are filed under, never a
question. Evidence is the run's journal, which gets a row for every answer taken from here.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmfair.asking.journal import COMPLETION_FIELDS, completion_of
from llmfair.errors import LlmfairError
from llmfair.io import files
from llmfair.io.files import decode, encode
from llmfair.nouns import Completion, Finish, picked

FILE = "answers.sqlite"
BUSY_SECONDS = 5.0
GATHER_SECONDS = 0.5
PUT_SECONDS = 0.1  # the event loop waits
TABLE = (
    "CREATE TABLE IF NOT EXISTS "
    "answers (key TEXT PRIMARY KEY, model TEXT NOT NULL, created TEXT NOT NULL, value TEXT NOT NULL)"
)
CHOSEN = (
    "WHERE (:model IS NULL OR model = :model OR substr(model, 1, length(:model) + 1) = :model || ' ') "
    "AND (:before IS NULL OR created < :before)"
)
UNUSABLE = (OSError, sqlite3.Error, UnicodeDecodeError)
"""What a cache that cannot be used raises; the last where SQLite tells of damage in damaged words."""
REMOVES = "llmfair cache clear removes a damaged one"


class Cache:
    """The shared cache, as one run of one model uses it; `model` is the backend's identity.

    Answers are written every half a second, together, or later where another process writes: who puts them waits for
    none. On the first failure `warn` gets one sentence, and from then on the cache knows and keeps nothing.
    """

    def __init__(self, path: Path, model: str, warn: Callable[[str], None]) -> None:
        self.path, self._warn = path, warn
        self.model = model.encode("utf-8", "backslashreplace").decode()  # SQLite refuses lone surrogates
        self._usable = True
        self._rows = dict[str, tuple[str, str, str, str]]()
        self._written = time.monotonic()
        try:
            self._database = _open(path)
        except UNUSABLE as error:
            self._fail(error)

    def get(self, key: str) -> Completion | None:
        """The answer filed under `key`, or None."""
        if not self._usable:
            return None
        try:
            select = "SELECT value FROM answers WHERE key = ?"
            row = self._rows.get(key) or self._database.execute(select, (key,)).fetchone()
        except UNUSABLE as error:
            self._fail(error)
            return None
        try:
            return None if row is None else completion_of(decode(row[-1]))
        except (ValueError, TypeError, AttributeError):  # it holds none, and is asked again
            return None

    def put(self, key: str, completion: Completion) -> None:
        """Takes an answer that came to its end, to be written soon; any other is not for other runs."""
        if self._usable and completion.finish is Finish.STOP:
            answer = picked(completion, COMPLETION_FIELDS)
            self._rows[key] = key, self.model, _stamp(), encode(answer).decode()
            if time.monotonic() > self._written + GATHER_SECONDS:
                self._write()

    def close(self) -> None:
        """Writes what is still to be written."""
        if self._usable:
            self._write(last=True)
        self._usable = False
        if hasattr(self, "_database"):
            self._database.close()

    def _write(self, last: bool = False) -> None:
        """What another process holds up is left to the next time, unless this is the last."""
        if not self._rows:
            return
        try:
            self._database.execute(
                f"PRAGMA busy_timeout = {1000 * (BUSY_SECONDS if last else PUT_SECONDS):.0f}"
            )
            self._database.execute("BEGIN IMMEDIATE")
            insert = "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)"
            self._database.executemany(insert, self._rows.values())
            self._database.execute("COMMIT")
            self._rows.clear()
        except UNUSABLE as error:
            if last or not _is_busy(error):
                self._fail(error)
        self._written = time.monotonic()

    def _fail(self, error: Exception) -> None:
        first, self._usable = self._usable, False
        if first:
            self._warn(
                f"the answer cache {self.path} cannot be used ({_reason(error)}): the run goes on without it; "
                f"{REMOVES}, --no-cache leaves it alone"
            )


@contextmanager
def _looked_into(path: Path) -> Iterator[sqlite3.Connection]:
    """The cache, for a command about it. Raises LlmfairError where it cannot be used."""
    try:
        with closing(_open(path)) as database:
            yield database
    except UNUSABLE as error:
        raise LlmfairError(
            f"the answer cache {path} cannot be used: {_reason(error)}.",
            f"repeat when no other process uses it, or name another folder with LLMFAIR_CACHE_DIR; {REMOVES}",
        ) from error


def facts(path: Path) -> dict[str, Any]:
    """Entries, size in bytes, and each model's entries with the times of the first and last. Raises LlmfairError."""
    rows = list[tuple[str, int, str, str]]()
    if path.is_file():
        with _looked_into(path) as database:
            rows = database.execute(
                "SELECT ifnull(model, ''), count(*), ifnull(min(created), ''), ifnull(max(created), '') "
                "FROM answers GROUP BY 1 ORDER BY 1"  # a damaged file has NULL where none can be
            ).fetchall()
    names = ("model", "entries", "oldest", "newest")
    return {
        "path": str(path),
        "entries": sum(entries for _, entries, _, _ in rows),
        "bytes": sum(part.stat().st_size for part in _parts(path)),
        "models": [dict(zip(names, row, strict=True)) for row in rows],
    }


def count(
    path: Path, model: str | None = None, before: datetime | None = None, remove: bool = False
) -> int | None:
    """How many answers of a model (an identity, or how it begins) and from before a time there are: 0 without a file.

    `remove`: rows are removed, not the file, since other processes may have it open. None for a damaged file of which
    everything is meant: it serves nobody, so then it goes. Raises LlmfairError.
    """
    if not path.is_file():
        return 0
    chosen = {"model": model, "before": None if before is None else _stamp(before)}
    try:
        with _looked_into(path) as database:
            (number,) = database.execute(f"SELECT count(*) FROM answers {CHOSEN}", chosen).fetchone()
            if remove:
                number = database.execute(f"DELETE FROM answers {CHOSEN}", chosen).rowcount
                database.execute("VACUUM")
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return int(number)
    except LlmfairError as error:
        # what is locked or full is another's fault, not the file's; a table of others is
        cause = error.__cause__
        damaged = not isinstance(cause, OSError | sqlite3.OperationalError) or "no such column" in str(cause)
        if damaged and model is None and before is None:
            for part in _parts(path) if remove else ():
                part.unlink(missing_ok=True)
            return None
        raise


def _open(path: Path) -> sqlite3.Connection:
    """A connection to the cache, which is made where there is none. Raises OSError, sqlite3.Error."""
    files.make_folder(path.parent)
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        # It is made by one thread, used by a second and closed by the first, never by two at a time.
        database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            (mode,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise OSError("its file system allows no write-ahead log")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(TABLE)
            return database
        except BaseException as error:
            database.close()
            # Two processes that make the file at once are told so without SQLite's own wait.
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _stamp(at: datetime | None = None) -> str:
    """A time whose alphabetical order is that of time."""
    return (at or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="milliseconds")


def _parts(path: Path) -> list[Path]:
    return [part for end in ("", "-wal", "-shm") if (part := Path(f"{path}{end}")).is_file()]


def _is_busy(error: BaseException) -> bool:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF == sqlite3.SQLITE_BUSY


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
