"""OpenAI's Batch API: many questions in one file, answered within a day at half the price, filed in the run's journal.

Every program runs to its first question without an answer. These questions are submitted together; when their batch has
ended, the answers go to the journal, and the programs run on to their next questions, if they have any.

Whatever ends the process, no question is submitted twice. A file of lines is on disk before it is uploaded, the
server's id of it is in `batches.json` before a batch is made of it, and a batch whose own id was never learned is
found by the file's.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from msgspec import Meta, ValidationError, convert

from llmfair.asking.dispatch import Program, dispatch
from llmfair.asking.journal import SHARED, Journal, requests
from llmfair.asking.limits import GO_ON, Budget, Limits, Progress
from llmfair.backends.base import NoBackend, RateLimited, Transient
from llmfair.backends.faults import UNPARSEABLE, nature_of, refusal_of
from llmfair.errors import BackendError, Incomplete, Rejected, RunConflict, Unavailable, UsageError
from llmfair.io.files import decode, encode, json_text, read_document, whole, write_whole
from llmfair.io.net import Client, Reply, ReplyTooLong, Retries, wait
from llmfair.io.text import count as counted
from llmfair.nouns import Chat, Completion, Failure, Request, Sampling, Unanswered, drive

if TYPE_CHECKING:
    from llmfair.asking.cache import Cache
    from llmfair.backends.openai import OpenAI

T = TypeVar("T")
Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:=+~@-]{1,2000}\Z")]
"""Which stands in addresses, and on a terminal."""
ENDPOINT = "/v1/chat/completions"
MOST_LINES = 50_000
MOST_BYTES = 200 * 10**6
ENDED = {"completed", "failed", "expired", "cancelled"}
RUNNING = {"validating", "in_progress", "finalizing", "cancelling"}
MOST_PAGES = 500
"""Of batches that are looked through for one; a list without an end is of no server that is well."""
SETTLE_SECONDS = 5.0
"""How long a batch may take to show in the list of all, after its creation was asked for."""
MOST_ROUNDS = 3
FIRST_POLL, LONGEST_POLL, GROWTH = 30.0, 300.0, 1.5
"""Seconds between looks at a batch, at first and at most, and by how much they grow."""
FILE, SCHEMA = "batches.json", 1
AGAIN = "remove it to ask the questions of open batches again"


# Files and batches of a server


@dataclass(frozen=True)
class Batch:
    """What a server tells of a batch; the files are there as far as there are errors and answers."""

    id: Id
    status: str
    output_file_id: Id | None = None
    error_file_id: Id | None = None
    request_counts: Any = None
    errors: Any = None
    """Told to people alone, so that no shape of them stops a batch; so are the counts."""

    @property
    def words(self) -> str:
        counts = dict[str, int]()
        with suppress(ValidationError):
            counts = convert(self.request_counts, dict[str, int])
        total, completed, failed = (counts.get(name, 0) for name in ("total", "completed", "failed"))
        answered = f", {completed:,} of {total:,} answered" + f", {failed:,} failed" * bool(failed)
        return self.status + answered * bool(total)


def batch_of(body: bytes) -> Batch:
    """What a server tells of a batch. Raises what is UNPARSEABLE for what is none."""
    # servers leave what there is none of empty, too: "", [] or null
    batch = convert({name: value for name, value in decode(body).items() if value}, Batch)
    if batch.status not in ENDED | RUNNING:
        raise ValueError(batch.status)
    return batch


def key_of(line: bytes) -> str | None:
    """The key a line was sent under; None for one that does not say."""
    with suppress(*UNPARSEABLE):
        return convert(decode(line)["custom_id"], str)
    return None


def in_files(lines: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    """Keys and lines in as few files as the server's limits allow, in the order they come."""
    file = list[tuple[str, bytes]]()
    size = 0
    for key, line in lines:
        if file and (len(file) >= MOST_LINES or size + len(line) > MOST_BYTES):
            yield file
            file, size = [], 0
        file.append((key, line))
        size += len(line)
    if file:
        yield file


class Batches:
    """Files and batches of one server.

    What fails in passing is tried again `retries` times, less often while the server has never answered; where it asks
    to wait, `max_wait` seconds at most. `waits(cause, seconds)` hears of each pause. Raises BackendError: MissingKey,
    Unavailable, Rejected.
    """

    def __init__(
        self, backend: OpenAI, retries: int, max_wait: float, waits: Callable[[str, float], None]
    ) -> None:
        self.backend, self._waits = backend, waits
        self.identity, self.name = backend.identity, backend.server
        self._retries = Retries(retries, max_wait, 0.0)

    @cached_property
    def _client(self) -> Client:
        """Made on first use, since a run that has all its answers needs no key. Raises MissingKey."""
        return self.backend.client()

    def close(self) -> None:
        if "_client" in vars(self):
            wait(self._client.close())

    def line(self, request: Request) -> bytes:
        """A request as a line of a file; its answer comes back under the request's key."""
        head = f'{{"custom_id":"{request.key}","method":"POST","url":"{ENDPOINT}","body":'
        return head.encode() + self.backend.body(request) + b"}\n"

    def upload(self, path: Path) -> str:
        """The id of the server's copy of a file of lines."""

        def send(attempt: int) -> str:
            reply = self._client.upload(self.backend.address("files"), path, {"purpose": "batch"})
            return self._read(reply, lambda body: convert(decode(body)["id"], Id))

        return self._retries.persist(send, self._waits)

    def create(self, input_file_id: str, perhaps_made: bool) -> Batch:
        """The one batch over an uploaded file.

        Its creation has no second attempt without a look: where an earlier one may have reached the server, here
        or before a crash (`perhaps_made`), the batch is first looked for among all.
        """
        body = {"input_file_id": input_file_id, "endpoint": ENDPOINT, "completion_window": "24h"}

        def make(attempt: int) -> Batch:
            batch = self._find(input_file_id) if perhaps_made or attempt else None
            return batch or self._ask("POST", "batches", batch_of, encode(body))

        return self._retries.persist(make, self._waits)

    def _find(self, input_file_id: str) -> Batch | None:
        """The batch over a file, if there is one; no second batch is ever made of a file."""

        def page(body: bytes) -> tuple[Batch | None, str]:
            """The batch if it is here, and what asks for the next page; "" after the last."""
            document = decode(body)
            rows = document["data"]
            for row in rows:
                if row.get("input_file_id") == input_file_id:
                    return batch_of(encode(row)), ""
            return None, f"&after={convert(rows[-1]['id'], Id)}" if rows and document.get("has_more") else ""

        for pause in (0.0, SETTLE_SECONDS):
            time.sleep(pause)
            after = ""
            for _ in range(MOST_PAGES):  # the newest batches come first
                batch, after = self._ask("GET", f"batches?limit=100{after}", page)
                if batch is not None:
                    return batch
                if not after:
                    break
        return None

    def state(self, batch_id: str) -> Batch:
        return self._look(f"batches/{batch_id}", batch_of, batch_id)

    def answers(self, batch: Batch, lines: int) -> dict[str, bytes]:
        """The lines that came back of so many, by key, from both files in whatever order; `read` reads one."""

        def keyed(body: bytes) -> dict[str, bytes]:
            """What is no file of lines at all must not pass for one without answers."""
            by_key = {key: line for line in body.split(b"\n") if (key := key_of(line))}
            if body.strip() and not by_key:
                raise ValueError("no line has a key")
            return by_key

        answers = dict[str, bytes]()
        most = lines * self.backend.options.max_reply
        for file_id in filter(None, (batch.error_file_id, batch.output_file_id)):
            answers |= self._look(f"files/{file_id}/content", keyed, batch.id, most)
        return answers

    def read(self, line: bytes, request: Request) -> Completion:
        """The answer in a line; raises what `complete` does where there is none.

        Transient if it was never asked, or the line cannot be read: the others of its batch are paid for, too.
        """
        if len(line) > self.backend.options.max_reply:
            raise self.backend.too_long()
        try:
            row = decode(line)
            response, error = row.get("response"), row.get("error")
            if not isinstance(response, dict):
                code = error.get("code") if isinstance(error, dict) else None
                why = self.backend.hidden(f"{code or 'no reason given'}")
                raise Transient(f"{self.name} did not answer it ({why})")
            status, reply = response.get("status_code") or 200, encode(response.get("body"))
            if self.backend.adapts(status, reply):
                raise Transient(f"{self.name} knows the limit on tokens under its other name")
            return self.backend.read(Reply(status, {}, reply), request)
        except UNPARSEABLE:
            raise Transient(f"{self.name} answers it with something else ({nature_of(line)})") from None

    def refusal(self, batch: Batch) -> Rejected:
        """Why a batch failed as a whole: its first error."""
        try:
            first = convert((batch.errors or {})["data"], list[dict[str, Any]])[0]
        except (ValidationError, LookupError, TypeError):
            first = {}
        where = f" at line {first['line']}" if first.get("line") else ""
        quote = self.backend.quote(refusal_of(400, encode(first)).words)
        return Rejected(
            f"{self.name} refuses {batch.id}{where}{quote}.",
            "the same command submits it again; less at a time with --max-calls",
        )

    def _look(self, path: str, read: Callable[[bytes], T], of: str, most: int = 0) -> T:
        """What `_ask` returns, tried again while its failure may pass."""
        return self._retries.persist(
            lambda attempt: self._ask("GET", path, read, of=of, most=most), self._waits
        )

    def _ask(
        self, method: str, path: str, read: Callable[[bytes], T], body: bytes | None = None, of: str = "",
        most: int = 0,
    ) -> T:  # fmt: skip
        reply = self._client.ask(method, self.backend.address(path), body, most=most)
        return self._read(reply, read, of, most)

    def _read(
        self, asking: Coroutine[Any, Any, Reply], read: Callable[[bytes], T], of: str = "", most: int = 0
    ) -> T:
        """What `read` makes of a reply about batch `of`. Raises Transient, RateLimited, BackendError."""
        try:
            reply = wait(asking)
        except ReplyTooLong:
            raise self.backend.too_long(most) from None
        if reply.status in (404, 405):
            if of:
                raise BackendError(
                    f"{self.name} no longer has {of} or its answers.",
                    "remove it from batches.json, and the same command submits its questions again",
                )
            raise BackendError(
                f"{self.name} has no Batch API (it answers {reply.status}).",
                "leave --batch out, or check --base-url, which often ends in /v1",
            )
        if not 200 <= reply.status < 300:
            raise self.backend.failure(reply)
        try:
            return read(reply.body)
        except UNPARSEABLE:
            raise Transient(f"{self.name} answers with something else ({nature_of(reply.body)})") from None


# What a run has submitted: `batches.json`, and a file of lines for each batch that is not collected. A run in stages
# has a journal for each, and one list of batches.


@dataclass
class Sent:
    """A file of lines that was uploaded, and the batch made of it; `answers` is None until they are collected.

    `journal` is the name of the file that keeps these.
    """

    file: Annotated[str, Meta(pattern=r"^batch-[0-9]+\.jsonl\Z")]
    lines: int
    input_file_id: str
    batch_id: str | None = None
    status: str = "uploaded"
    answers: int | None = None
    journal: str = "journal.jsonl"


@dataclass
class _Sent:
    """batches.json."""

    batches: list[Sent]
    schema: int = SCHEMA


def read_sent(folder: Path) -> list[Sent]:
    """All batches of a run, from the first on. Raises RunConflict for a file that cannot be read."""
    path = folder / FILE
    if not path.exists():
        return []
    try:
        return list(read_document(path, _Sent).batches)
    except UsageError as damaged:
        raise RunConflict(damaged.message, AGAIN) from None


def open_of(sent: Iterable[Sent], journal: Path) -> list[Sent]:
    return [batch for batch in sent if batch.answers is None and batch.journal == journal.name]


def refuse_open(journal: Path) -> None:
    """Raises RunConflict where a journal has open batches: what they answer would be asked, and paid, twice."""
    if open_of(read_sent(journal.parent), journal):
        raise RunConflict(
            f"{journal.parent} has batches that are not collected.",
            f"add --batch to collect them, or remove {FILE} to ask their questions again",
        )


# Asking


def dispatch_batch(
    programs: Iterable[Program],
    server: Batches,
    journal: Journal,
    sampling: Sampling,
    limits: Limits,
    progress: Progress,
    cache: Cache | None = None,
) -> Generator[tuple[str, Any | Failure], None, None]:
    """Like `dispatch`, through the Batch API; `limits.max_calls` counts lines.

    Collects what an earlier invocation submitted, submits what has no answer, and waits. A question that no batch
    answers goes into the next, three at most. Raises BackendError when nothing was answered at all, Incomplete when
    something was, RunConflict for a list of batches that somebody damaged. A KeyboardInterrupt leaves batches running.
    """
    asking = _Asking(list(programs), server, journal, sampling, limits, progress, cache)
    cause = None
    try:
        asking.fill()
    except (UsageError, BackendError, Incomplete) as error:
        if not len(journal):
            raise
        cause = Incomplete(error.message, error.hint)
    ready, new = list[Program](), set[str]()
    for program in asking.programs:
        keys, missing = asking.questions(program)
        why = next((asking.failed[request.key] for request in missing if request.key in asking.failed), None)
        if why is not None:
            failure = Failure(program.probe_id, type(why).__name__, why.message, why.hint)
            journal.put_failure(failure)
            yield program.probe_id, failure
        elif not missing:
            ready.append(program)
            new |= keys & asking.collected
    yield from dispatch(ready, NoBackend(server.identity), journal, sampling, limits, progress)
    progress.replayed -= len(new)
    if cause is not None:
        raise cause


@dataclass(eq=False)
class _Asking:
    """One call of `dispatch_batch`, up to where the journal holds every answer there is."""

    programs: Sequence[Program]
    server: Batches
    journal: Journal
    sampling: Sampling
    limits: Limits
    progress: Progress
    cache: Cache | None

    def __post_init__(self) -> None:
        self.folder = self.journal.path.parent
        self.sent = read_sent(self.folder)
        self.keys = dict[str, set[str]]()  # of the lines of each open batch
        for batch in self.open:
            path, keys = self.folder / batch.file, set[str]()
            with suppress(OSError), path.open("rb") as file:
                keys = {key for line in file if (key := key_of(line))}
            if len(keys) != batch.lines:
                raise RunConflict(
                    f"{path} does not hold the {batch.lines:,} lines of {batch.batch_id or batch.input_file_id}.",
                    f"put it back, or remove {FILE} to ask the questions of open batches again",
                )
            self.keys[batch.file] = keys
        self.rounds = Counter(key for keys in self.keys.values() for key in keys)
        self.request = requests(NoBackend(self.server.identity), self.sampling)
        self.failed = dict[str, BackendError | UsageError]()
        self.collected = set[str]()
        self.budget = Budget(self.limits)

    @property
    def open(self) -> list[Sent]:
        return open_of(self.sent, self.journal.path)

    def _save(self) -> None:
        write_whole(self.folder / FILE, [json_text(_Sent(self.sent))])

    def fill(self) -> None:
        """Submits and collects until every question has an answer or a failure. Raises what ends the run."""
        try:
            for batch in self.open:
                if batch.batch_id is None:
                    self._create(batch, perhaps_made=True)
                else:
                    self.progress.tell(f"Collecting {batch.batch_id}, {counted(batch.lines, 'question')}.")
            while True:
                spent = self._submit()
                if not self.open:
                    break
                self._collect()
            if spent:
                raise Incomplete(f"the budget of {self.limits.max_calls} calls is spent.", GO_ON)
        except BaseException:
            running = [batch.batch_id for batch in self.open if batch.batch_id is not None]
            if running:
                self.progress.tell(
                    f"{', '.join(running)} run{'s' if len(running) == 1 else ''} on at {self.server.name}; "
                    "the same command collects the answers."
                )
            raise
        finally:
            self.server.close()

    def questions(self, program: Program) -> tuple[set[str], list[Request]]:
        """The keys of what a program is given, and what its first step that lacks an answer asks: [] at its end."""
        keys, missing = set[str](), list[Request]()

        def answer(chat: Chat) -> Completion:
            request = self.request(program.probe_id, chat)
            completion = self.journal.get(request.key)
            if completion is None and self.cache is not None:
                completion = self.cache.get(request.key)
                if completion is not None:  # what other runs were given is this run's own evidence, too
                    self.journal.put(request, completion, attempts=0, source=SHARED)
                    self.progress.cached += 1
                    self.collected.add(request.key)
            if completion is None:
                missing.append(request)
                raise Unanswered
            keys.add(request.key)
            return completion

        with suppress(Exception):  # besides, what dispatch tells when it runs the program again
            drive(program.start(), answer)
        return keys, missing

    def _pending(self) -> Iterator[Request]:
        """All questions without an answer, each once, in the order of the programs."""
        seen = set()
        for program in self.programs:
            _, missing = self.questions(program)
            for request in missing:
                if request.key not in seen:
                    seen.add(request.key)
                    yield request

    def _submit(self) -> bool:
        """Submits what has neither answer nor batch; returns whether the budget of lines kept some back."""
        not_asked = self.failed.keys() | set[str]().union(*self.keys.values())
        waiting = (request for request in self._pending() if request.key not in not_asked)
        most = self.limits.max_calls
        left = None if most is None else max(0, most - self.progress.calls)
        for lines in in_files((request.key, self.server.line(request)) for request in islice(waiting, left)):
            # under a name that no file has, whatever somebody took off the list
            paths = (self.folder / f"batch-{number}.jsonl" for number in count(len(self.sent) + 1))
            path = next(path for path in paths if not path.exists())
            with whole(path) as file:
                file.writelines(line for _, line in lines)
            try:
                input_file_id = self.server.upload(path)
            except BaseException:
                path.unlink()  # it is not noted, so no other run would use it
                raise
            batch = Sent(path.name, len(lines), input_file_id, journal=self.journal.path.name)
            self.sent.append(batch)
            self.keys[batch.file] = {key for key, _ in lines}
            self._save()
            self.rounds.update(self.keys[batch.file])
            self._create(batch)
        return left is not None and next(waiting, None) is not None

    def _create(self, batch: Sent, perhaps_made: bool = False) -> None:
        submitted = self.server.create(batch.input_file_id, perhaps_made)
        batch.batch_id, batch.status = submitted.id, submitted.status
        self._save()
        again = sum(self.rounds[key] > 1 for key in self.keys[batch.file])
        self.progress.calls += batch.lines
        self.progress.retries += again
        self.progress.tell(
            f"Submitted {counted(batch.lines, 'question')} as {batch.batch_id} to {self.server.name}"
            f"{f', {again:,} of them again' if again else ''}. Answers take up to 24 hours; Ctrl-C leaves it "
            "running, and the same command collects."
        )

    def _collect(self) -> None:
        """Waits until at least one batch has ended, and files its answers."""
        words = dict[str, str]()
        pause, heard, ended = FIRST_POLL, time.monotonic(), False
        while True:
            for batch in self.open:
                try:
                    now = self.server.state(str(batch.batch_id))
                except Unavailable:
                    if time.monotonic() > heard + self.limits.max_wait:
                        raise
                    continue
                heard = time.monotonic()
                if words.get(batch.file) != now.words:
                    words[batch.file] = now.words
                    self.progress.tell(f"{batch.batch_id}: {now.words}")
                if batch.status != now.status:
                    batch.status = now.status
                    self._save()
                if now.status in ENDED:
                    self._read(batch, now)
                    ended = True
            if ended:
                return
            time.sleep(pause)
            pause = min(pause * GROWTH, LONGEST_POLL)

    def _read(self, batch: Sent, ended: Batch) -> None:
        """Files the answers of a batch that ended. Raises what makes it useless to go on."""
        if ended.status == "failed":
            self._close(batch, answers=0)
            raise self.server.refusal(ended)
        lines, keys = self.server.answers(ended, batch.lines), self.keys[batch.file]
        answers, refused = 0, list[BackendError | UsageError]()
        for request in self._pending():
            key = request.key
            if key not in keys:
                continue
            try:
                if (line := lines.get(key)) is None:
                    raise Transient("it ended without this question")
                completion = self.server.read(line, request)
            except (Transient, RateLimited) as failure:
                if self.rounds[key] >= MOST_ROUNDS:  # else the next batch asks it again
                    what = f"no answer in {MOST_ROUNDS} batches, the last time: {failure.cause}."
                    self.failed[key] = Unavailable(what)
                continue
            except (BackendError, UsageError) as error:
                self.failed[key] = error
                refused.append(error)
                continue
            answers += 1
            self.journal.put(request, completion, self.rounds[key], "batch")
            self.collected.add(key)
            if self.cache is not None:
                self.cache.put(key, completion)
            self.budget.settle(0.0, request, completion)
        self.progress.cost = self.budget.spent if self.budget.priced else None
        self._close(batch, answers)
        self.progress.tell(f"{batch.batch_id}: {answers:,} of {batch.lines:,} answers collected.")
        for refusal in refused:
            if isinstance(refusal, UsageError) or refusal.stops_run:  # no other question can be asked either
                raise refusal
        if len(refused) == batch.lines and not len(self.journal):
            raise refused[0]  # no other will fare better

    def _close(self, batch: Sent, answers: int) -> None:
        batch.answers = answers
        self._save()
        del self.keys[batch.file]
        (self.folder / batch.file).unlink(missing_ok=True)
