"""Files: read within bounds, written whole or not at all, locked, private, and known again.

Read are regular files alone, and no more of them than their kind holds. A folder may come from somebody else, and hold
links in place of what is written there: a file is written under a name that nobody can foresee and renamed, one that
grows in its place is opened itself.
"""

from __future__ import annotations

import bz2
import csv
import errno
import gzip
import hashlib
import json
import lzma
import math
import os
import re
import stat
import tomllib
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from io import BufferedReader, RawIOBase, TextIOWrapper
from itertools import accumulate, islice
from pathlib import Path
from secrets import token_hex
from socket import gethostname
from types import NoneType
from typing import Any, BinaryIO, Final, TypeVar, get_args, get_type_hints

import orjson
from filelock import FileLock, Timeout
from msgspec import convert, to_builtins

from llmfair.errors import RunConflict, UsageError, did_you_mean
from llmfair.io.text import from_csv

MOST_WHOLE = 4 << 30
"""Bytes of a file that is read as a whole."""
MOST_OF_JSON = 512 << 20
"""Bytes of one JSON document, which takes ten times its size when read."""
MOST_RECORDED = 64 << 20
"""Bytes of a document that programs write beside data and answers."""
MOST_BY_HAND = 1 << 20
"""Bytes of a file that people write: settings, prompts, attributes, shares."""
LONGEST_LINE = 16 << 20
csv.field_size_limit(LONGEST_LINE)
DEEPEST = 100
"""Levels of JSON that a user gives as a flag."""
MOST_NAMES = 1_000
"""Names in a folder that one which is not there is held against."""
GZIP = b"\x1f\x8b"
PACKERS: Mapping[bytes, Callable[[Any], Any]] = {
    GZIP: lambda file: gzip.GzipFile(fileobj=file), b"BZh": bz2.BZ2File, b"\xfd7zXZ": lzma.LZMAFile
}  # fmt: skip
"""What unpacks a file, by what it begins with."""
FREELY, TIMES = 4 << 20, 100
"""A packed file unpacks to this many bytes, and beyond them to so many times its own; texts come to 5 to 20 times."""
NO_TEXTS = {
    b"PK\x03\x04": "a ZIP archive, or a workbook: save a table as CSV",
    b"\x28\xb5\x2f\xfd": "packed by zstd: unpack it, or pack it with gzip",
    b"\x04\x22\x4d\x18": "packed by lz4: unpack it, or pack it with gzip",
}
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)
"""What unpacking raises; an OSError without a number, too."""


def is_deep(text: str) -> bool:
    """Whether JSON is nested deeper than what is made of it follows; brackets within its texts count, too."""
    return max(accumulate((letter in "[{") - (letter in "]}") for letter in text), default=0) > DEEPEST


def stored(path: Path) -> Path:
    """The file, or NAME.gz beside its place where only that is there."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.exists() else path


def opened(path: Path | str) -> BufferedReader:
    """A regular file, to be read. Raises OSError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is not waited for
    except ValueError as error:  # a NUL character, half of a surrogate pair
        raise OSError(errno.EINVAL, f"no name of a file: {error}", str(path)) from None
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "no regular file, but a pipe or a device", str(path))


class Unpacked(RawIOBase):
    """What a packed file holds. Raises OSError for far more than texts come to."""

    def __init__(self, packed: Any, unpacking: Any, place: Path | str) -> None:
        self.packed, self.unpacking, self.place, self.size = packed, unpacking, str(place), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self.unpacking.readinto1(buffer)
        self.size += count
        if self.size > FREELY and self.size > FREELY + TIMES * self.packed.tell():
            raise OSError(errno.EFBIG, f"unpacks to more than {TIMES} times its size", self.place)
        return count


def unpacked(file: Any, place: Path | str) -> Any:
    """What a buffered reader holds, packed or not. Raises OSError for what is no text or packed in no known way."""
    begins = file.peek(6)
    if (packer := next((PACKERS[mark] for mark in PACKERS if begins.startswith(mark)), None)) is not None:
        return BufferedReader(Unpacked(file, packer(file), place), 1 << 16)
    if what := next((NO_TEXTS[mark] for mark in NO_TEXTS if begins.startswith(mark)), ""):
        raise OSError(errno.EINVAL, what, str(place))
    return file


def beside(path: Path | str) -> str:
    """` Did you mean 'x'?` for the nearest name in the folder of a file that is not there, or nothing."""
    path, names = Path(path), list[str]()
    with suppress(OSError, ValueError):
        names = [item.name for item in islice(path.parent.iterdir(), MOST_NAMES)]
    return did_you_mean(path.name, names, alike=0.6)  # any files, most of which are nothing of the kind


def content(path: Path | str, most: int = MOST_WHOLE) -> bytes:
    """All of a file. Raises OSError, of one with more than `most` bytes too."""
    with opened(path) as file:
        return content_of(file, path, most)


def content_of(file: BinaryIO, path: Path | str, most: int) -> bytes:
    """What is left of an opened file. Raises OSError, of more than `most` bytes too."""
    if os.fstat(file.fileno()).st_size <= most and len(content := file.read()) <= most:
        return content
    limit = f"{most >> 20:,} MB" if most < 1 << 30 else f"{most >> 30:,} GB"
    raise OSError(errno.EFBIG, f"larger than {limit}", str(path))


def sha256(path: Path | str) -> str:
    """That of a file of any size. Raises OSError."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text(path: Path | str, most: int = MOST_WHOLE) -> str:
    """All of a file in UTF-8, whatever ends its lines, unpacked if packed. Raises OSError; ValueError if not UTF-8."""
    try:
        with opened(path) as file:
            stream = unpacked(file, path)
            data = content_of(file, path, most) if stream is file else stream.read(most + 1)
    except DAMAGE as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise OSError(errno.EINVAL, f"damaged: {error}", str(path)) from None
    if len(data) > most:
        raise OSError(errno.EFBIG, f"unpacks to more than {most >> 20:,} MB", str(path))
    return decoded(data)


def decoded(content: bytes) -> str:
    """Bytes as a text in UTF-8, whatever ends its lines. Raises ValueError for what is none."""
    return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def toml(path: Path | str) -> dict[str, Any]:
    return toml_of(text(path, MOST_BY_HAND))


def toml_of(written: str) -> dict[str, Any]:
    """What a TOML text says. Raises ValueError."""
    try:
        return tomllib.loads(written)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def pieces(file: BinaryIO | BufferedReader) -> Iterator[bytes]:
    """The lines of a file with their ends; one that is longer than `LONGEST_LINE` in several."""
    return iter(partial(file.readline, LONGEST_LINE), b"")


# Files that are written whole or not at all, and never through a link: those of run folders, caches and reports.


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a disk without room says, a quota, and a limit on the size of files."""
LEFTOVER = f".{'[0-9a-f]' * 16}.tmp"
"""The name of a file until it is whole; a process that is killed meanwhile leaves it."""
A_LINK = "a link, which may lead elsewhere"


def write_whole(path: Path, lines: Iterable[str]) -> None:
    """Writes a text as `whole` does. Raises OSError."""
    with whole(path) as file:
        file.writelines(line.encode("utf-8", "backslashreplace") for line in lines)


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file that is written beside, to the disk itself, and renamed. Raises OSError, naming it.

    So a half-written one is never read, after a power cut neither, nor fills a full disk, and a link in its place is
    replaced. Several processes may write the same file at the same time.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = path.with_name(f".{token_hex(8)}.tmp")
    try:
        with open(temporary, "xb", opener=itself) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and (error.errno in FULL or error.filename == str(temporary)):
            error.filename = str(path)  # writing itself names none
        raise


@contextmanager
def writing(folder: Path, hint: str) -> Iterator[None]:
    """What is in a folder, which is made, is written meanwhile. Raises UsageError, naming it, where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        inside = error.filename is not None and Path(error.filename).is_relative_to(folder)
        name = error.filename if inside else folder
        raise UsageError(f"cannot write {name}: {error.strerror}.", hint) from None


def clear(folder: Path) -> None:
    """Removes what killed processes left of files in a folder, at any depth; nobody else writes there meanwhile."""
    for path in folder.rglob(LEFTOVER):
        path.unlink(missing_ok=True)


def itself(path: str | Path, flags: int) -> int:
    """Opens a file for `open(…, opener=itself)`, made where there is none. Raises OSError, of a link too."""
    try:
        return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = A_LINK
        raise


def make_inside(folder: Path) -> None:
    """Makes a folder that is part of another, where there is none. Raises OSError, of a link too."""
    if folder.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, A_LINK, str(folder))
    folder.mkdir(exist_ok=True)


@contextmanager
def held(path: Path, what: Path, hint: str, wait: bool = False) -> Iterator[None]:
    """Holds `what` by a lock file, in which others read by whom. Raises RunConflict where another process does."""
    lock = FileLock(path, timeout=-1 if wait else 0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        holder = "another process"
        with suppress(OSError):
            holder = content(path).decode("utf-8", "replace").strip()[:200] or holder
        raise RunConflict(f"{what} is in use by {holder}.", hint) from None
    except OSError as error:
        why = A_LINK if error.errno == errno.ELOOP else error.strerror
        raise RunConflict(
            f"{path}: cannot be locked: {why}.", "remove it, or choose another folder"
        ) from None
    try:
        with suppress(OSError), open(path, "w", opener=itself) as file:  # on a full disk it is held, too
            now = datetime.now(UTC).isoformat(timespec="seconds")
            file.write(f"process {os.getpid()} on {gethostname()}, since {now}\n")
        yield
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Whether a process holds this lock file now."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except OSError as error:
        return isinstance(error, Timeout)


# Who may read what is written: its owner alone, unless it is to be shared.


_own: int | None = None
"""The user's own umask, while files are private."""
_shared = False


@contextmanager
def private() -> Iterator[None]:
    """Files and folders made meanwhile, by whatever library and thread, are their owner's alone."""
    global _own, _shared
    before = os.umask(0o077)
    os.umask(before | 0o077)
    _own, _shared = before, False
    try:
        yield
    finally:
        os.umask(before)
        _own, _shared = None, False


def share() -> None:
    global _own, _shared
    if _own is not None:
        os.umask(_own)
    _own, _shared = None, True


@contextmanager
def usual() -> Iterator[None]:
    """The user's own umask, for what others keep besides: weights that several people load. Also a decorator."""
    before = None if _own is None else os.umask(_own)
    try:
        yield
    finally:
        if before is not None:
            os.umask(before)


def make_folder(path: Path) -> None:
    """A folder that holds answers: nobody else may enter it, in a process with a umask of its own either."""
    path.mkdir(0o777 if _shared else 0o700, parents=True, exist_ok=True)


# JSON: bytes in UTF-8, fast, by orjson, and what that refuses by `json`, which takes all that there is; and documents
# of run folders, written the same everywhere and read into types.


T = TypeVar("T")
SCHEMA: Final = 5
"""The version of all documents that commands print and of results."""
AGAIN = "the command that began the run writes it again"


def encode(value: Any) -> bytes:
    """One line without spaces; a moment as ISO 8601, a number that is not finite as null.

    Raises TypeError for what has no form, and what `json` raises for a value that holds itself or is very deep.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # half of a surrogate pair, an integer of more than 64 bits
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=datetime.isoformat)
        return text.encode("utf-8", "backslashreplace")  # JSON writes \ud800 for half a pair


def decode(text: bytes | str) -> Any:
    """What the JSON says, a huge integer as the nearest float. Raises ValueError; RecursionError if very deep."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # NaN, half of a surrogate pair, or no JSON at all
        # `json` itself would take bytes in UTF-16 and UTF-32, too.
        return json.loads(text if isinstance(text, str) else text.decode("utf-8-sig", "surrogatepass"))


def plain(value: Any) -> Any:
    """A value as JSON has it: objects, lists, texts and numbers."""

    def other(value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, float):
            return float(value)
        return int(value) if isinstance(value, int) else str(value)

    return to_builtins(value, str_keys=True, enc_hook=other)


def json_text(content: Any) -> str:
    """A JSON document; NaN and infinity are refused (ValueError), since no reader agrees on them."""
    return json.dumps(plain(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def typed(document: Any, of: type[T], where: str | Path = "results", hint: str = AGAIN) -> T:
    """JSON as a value of this class. Raises UsageError naming the file and the field that is wrong or missing."""
    try:
        return convert(document, of)
    except ValueError as error:  # of half a character, too, where a name or a number should be
        raise UsageError(f"{where}: {error}.", hint) from None


def parsed(text: bytes | str, of: type[T]) -> T:
    """JSON as this class. Raises ValueError, as msgspec words it."""
    try:
        return convert(decode(text), of)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None


def read_document(path: Path, of: Any, hint: str = AGAIN, most: int = MOST_RECORDED) -> Any:
    """A JSON file, packed or not, as this type. Raises UsageError naming file and field."""
    try:
        return parsed(text(path, most).removeprefix("\ufeff"), of)
    except OSError as error:
        raise wrong(path, 0, "", f"cannot be read: {error.strerror}", hint) from None
    except ValueError as error:
        raise wrong(path, 0, *field_of(error), hint) from None


# Lines, of people's own files and of run folders: every mistake is told with its file, line and field.


PATTERNS = {
    "'^\\\\S+\\\\Z'": "is empty or holds white space",
    "'\\\\S'": "is empty",
    "length >= 1": "is empty",
}
"""What is wrong with a text or a list that msgspec holds against one of these."""


def wrong(path: Path | str, line: int, field: str, what: str, hint: str) -> UsageError:
    """`FILE:LINE: FIELD: WHAT`, of a mistake in a file; line 0 and field "" are left out."""
    place = f"{path}:{line}" if line else f"{path}"
    return UsageError(f"{place}: {field}: {what}" if field else f"{place}: {what}", hint)


def field_of(error: Exception) -> tuple[str, str]:
    """The field that msgspec names in an error, and what is wrong with it."""
    what, _, where = str(error).replace(" - at `key` in `$", " - at `$").partition(" - at `$")
    field, name = where.strip(".`"), what.removeprefix("Object missing required field ")
    if name != what:
        return ".".join(filter(None, (field, name.strip("`")))), "is missing"
    if plain := next((plain for pattern, plain in PATTERNS.items() if what.endswith(pattern)), None):
        return field, plain
    return field, f"{what[:1].lower()}{what[1:]}"


def number(text: str) -> float:
    """The finite number that a field holds, in plain digits. Raises ValueError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not text.isascii() or "_" in text or not math.isfinite(value):
        raise ValueError(f"'{text}' is not a finite number")
    return value


def integer(text: str) -> int:
    """The integer that a field holds; stricter than int(), which reads `1_0` and `١`. Raises ValueError."""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError(f"'{text}' is not an integer")
    return int(text)


def whole_lines(path: Path, hint: str, may_be_empty: bool = False) -> Iterator[tuple[int, str]]:
    """The numbered lines of a file in UTF-8 or UTF-16 with their ends, packed or not, without a byte-order mark.

    Raises UsageError naming file and line.
    """
    number = 0
    try:
        with opened(path) as file:
            lines = pieces(stream := unpacked(file, path))
            begins = stream.peek(2)[:2]
            if begins in UTF_16 or begins.count(0) == 1:  # without a mark one of the bytes of a letter is 0
                encoding = UTF_16.get(begins, "utf-16-le" if begins[1:] == b"\0" else "utf-16-be")
                text = TextIOWrapper(stream, encoding, newline="\n")
                lines = (line.encode() for line in iter(partial(text.readline, LONGEST_LINE), ""))
            for number, raw in enumerate(lines, 1):
                if len(raw) >= LONGEST_LINE and not raw.endswith(b"\n"):
                    raise wrong(path, number, "", f"longer than {LONGEST_LINE >> 20} MB", hint)
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except FileNotFoundError as error:
        near = beside(path)
        raise wrong(path, 0, "", f"cannot be read: {error.strerror}{'.' * bool(near)}{near}", hint) from None
    except DAMAGE as error:
        if why := getattr(error, "strerror", None):
            raise wrong(path, number, "", f"cannot be read: {why}", hint) from None
        raise wrong(path, number + 1, "", "the packed file is damaged or cut off here", hint) from None
    except UnicodeDecodeError as error:
        what = f"byte {error.start + 1} of the line" if error.encoding == "utf-8" else error.encoding
        raise wrong(path, number, "", f"not UTF-8 ({what})", "save it as UTF-8") from None
    if not number and not may_be_empty:
        raise wrong(path, 0, "", "is empty", hint)


UTF_16 = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""Marks of a text in UTF-16, as Excel saves "Unicode text"."""


def text_lines(path: Path, hint: str, may_be_empty: bool = False) -> Iterator[tuple[int, str]]:
    """The non-blank ones of them without their ends, be these LF or CRLF."""
    for number, line in whole_lines(path, hint, may_be_empty):
        line = line.rstrip("\r\n")
        if line and not line.isspace():
            yield number, line


def json_lines(path: Path, of: type[T], hint: str, may_be_empty: bool = False) -> Iterator[tuple[int, T]]:
    """Numbered lines of a file of JSON lines, each as this class. Raises UsageError naming file, line and field."""
    for number, line in text_lines(path, hint, may_be_empty):
        try:
            yield number, parsed(line, of)
        except ValueError as error:
            raise wrong(path, number, *field_of(error), hint) from None


def read_lines(path: Path, of: type[T]) -> Iterator[T]:
    """The lines of a file of a run folder, each as this class. Raises UsageError naming file, line and field."""
    return (row for _, row in json_lines(path, of, AGAIN, may_be_empty=True))


def read_csv(path: Path, what: str, of: Callable[[dict[str, str]], T]) -> list[T]:
    """Each line of a file read by `of`, in order. Raises UsageError naming a line that is not `what`."""
    rows = []
    reader = csv.reader((line for _, line in whole_lines(path, AGAIN)), strict=True)
    try:
        names = next(reader)
        for cells in reader:
            if len(cells) != len(names):
                lengths = f"has {len(cells)} cells where the first line names {len(names)}"
                raise wrong(path, reader.line_num, "", lengths, AGAIN)
            rows.append(of(from_csv(dict(zip(names, cells, strict=True)))))
    except (csv.Error, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{path}:{reader.line_num}: is not {what}: {error}.", AGAIN) from None
    return rows


def read_rows(path: Path, what: str, of: type[T]) -> list[T]:
    """Each line as this class, by its fields; an empty cell is None where one may be. Raises as `read_csv` does."""
    types = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(of).items()}

    def read(name: str, cell: str) -> Any:
        if cell == "" and NoneType in types[name]:
            return None
        return number(cell) if float in types[name] else cell

    return read_csv(
        path, what, lambda row: convert({name: read(name, row[name]) for name in types}, of, strict=False)
    )


# Files told from what they were when they were made: by size and time, and by content where only the time differs. So
# a file that was altered is found when it is opened, however large it is, and a copy of another time is as good.


TABLE = "files.json"
"""What is told of the files of a folder, by name: size, bytes; time of the last change, ns; SHA-256."""


def note(folder: Path, names: Iterable[str]) -> None:
    """Keeps what is told of these files of a folder, beside what is known of others. Raises OSError."""
    try:
        table = _table(folder)
    except (OSError, ValueError):  # a damaged one, which is made anew
        table = {}
    for name in names:
        table.pop(name, None)
        if (path := folder / name).exists():
            facts = path.stat()
            table[name] = facts.st_size, facts.st_mtime_ns, sha256(path)
    write_whole(folder / TABLE, [encode(table).decode() + "\n"])


def check(folder: Path, names: Collection[str] | None = None) -> None:
    """Raises OSError for a file of a folder that is gone, ValueError for one that is not what it was."""
    for name, (size, time, digest) in _table(folder).items():
        if names is not None and name not in names:
            continue
        facts = (folder / name).stat()
        if facts.st_size == size and facts.st_mtime_ns == time:
            continue
        if facts.st_size != size or sha256(folder / name) != digest:
            raise ValueError(f"{name} is another file than the one that was made")
        with suppress(OSError):  # so that a copy is not read whole again the next time
            note(folder, [name])


def _table(folder: Path) -> dict[str, tuple[int, int, str]]:
    try:
        return parsed(content(folder / TABLE, MOST_RECORDED), dict[str, tuple[int, int, str]])
    except ValueError:
        raise ValueError(f"{TABLE} is damaged") from None
