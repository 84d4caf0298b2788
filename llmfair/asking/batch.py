"""Asks through a server's Batch API: many questions in one file, answered within a day, filed in the run's journal.

Every program runs to its first question without an answer. These questions are submitted together; when their
batch has ended, the answers go to the journal, and the programs run on to their next questions, if they have any.

Whatever ends the process, no question is submitted twice. A file of lines is on disk before it is uploaded, the
server's id of it is in `batches.json` before a batch is made of it, and a batch whose own id was never learned is
found by the file's.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from llmfair.asking.dispatch import Program, dispatch
from llmfair.asking.journal import SHARED, Journal, Requests
from llmfair.asking.limits import GO_ON, Budget, Limits, Progress
from llmfair.backends.base import NoBackend, RateLimited, Transient
from llmfair.backends.batch import Batch, Batches
from llmfair.errors import BackendError, Incomplete, LlmfairError, RunConflict, Unavailable, UsageError
from llmfair.io.files import json_text, read_document, whole, write_whole
from llmfair.io.text import count as counted
from llmfair.nouns import Chat, Completion, Failure, Request, Sampling, Unanswered, drive

if TYPE_CHECKING:
    from llmfair.asking.cache import Cache

MOST_ROUNDS = 3
FIRST_POLL, LONGEST_POLL, GROWTH = 30.0, 300.0, 1.5
"""Seconds between looks at a batch, at first and at most, and by how much they grow."""
FILE, SCHEMA = "batches.json", 1
AGAIN = "remove it to ask the questions of open batches again"


# What a run has submitted: `batches.json`, and a file of lines for each batch that is not collected. A run in stages
# has a journal for each, and one list of batches. It is written before what it tells of happens, so that a process that
# dies leaves nothing on a server that the next one would not find.


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
class _Batches:
    """batches.json."""

    batches: list[Sent]
    schema: int = SCHEMA


def read_sent(folder: Path) -> list[Sent]:
    """All batches of a run, from the first on. Raises RunConflict for a file that cannot be read."""
    path = folder / FILE
    if not path.exists():
        return []
    try:
        batches: list[Sent] = read_document(path, _Batches).batches
        return batches
    except UsageError as damaged:
        raise RunConflict(damaged.message, AGAIN) from None


def refuse_open(journal: Path) -> None:
    """Raises RunConflict where a journal has open batches: what they answer would be asked, and paid, twice."""
    if open_of(read_sent(journal.parent), journal.name):
        raise RunConflict(
            f"{journal.parent} has batches that are not collected.",
            f"add --batch to collect them, or remove {FILE} to ask their questions again",
        )


def open_of(sent: list[Sent], journal: str) -> list[Sent]:
    """What was uploaded for a journal and is not collected."""
    return [batch for batch in sent if batch.answers is None and batch.journal == journal]


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
    cause: LlmfairError | None = None
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
        self.keys = dict[str, set[str]]()
        for batch in self.open:
            path, keys = self.folder / batch.file, set[str]()
            with suppress(OSError), path.open("rb") as file:
                keys = {key for line in file if (key := self.server.key_of(line))}
            if len(keys) != batch.lines:
                raise RunConflict(
                    f"{path} does not hold the {batch.lines:,} lines of {batch.batch_id or batch.input_file_id}.",
                    f"put it back, or remove {FILE} to ask the questions of open batches again",
                )
            self.keys[batch.file] = keys
        self.rounds = Counter(key for keys in self.keys.values() for key in keys)
        self.request = Requests(NoBackend(self.server.identity), self.sampling)
        self.failed: dict[str, LlmfairError] = {}
        self.collected: set[str] = set()
        self.budget = Budget(self.limits)

    @property
    def open(self) -> list[Sent]:
        return open_of(self.sent, self.journal.path.name)

    def _save(self) -> None:
        write_whole(self.folder / FILE, [json_text(_Batches(self.sent))])

    def fill(self) -> None:
        """Submits and collects until every question has an answer or a failure.

        Raises Incomplete when the budget of lines is spent, and what makes it useless to go on.
        """
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

    # Questions

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

    # Submitting

    def _submit(self) -> bool:
        """Submits what has neither answer nor batch; returns whether the budget of lines kept some back."""
        open_keys = set[str]().union(*self.keys.values())
        waiting = (
            request
            for request in self._pending()
            if request.key not in self.failed and request.key not in open_keys
        )
        most = self.limits.max_calls
        left = None if most is None else max(0, most - self.progress.calls)
        chosen = islice(waiting, left)
        for lines in self.server.files((request.key, self.server.line(request)) for request in chosen):
            self._send(lines)
        return left is not None and next(waiting, None) is not None

    def _send(self, lines: list[tuple[str, bytes]]) -> None:
        """Submits a file of lines, under a name that no file has, whatever somebody took off the list."""
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

    # Collecting

    def _collect(self) -> None:
        """Waits until at least one batch has ended, and files its answers."""
        words: dict[str, str] = {}
        wait, heard, ended = FIRST_POLL, time.monotonic(), False
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
                if now.ended:
                    self._read(batch, now)
                    ended = True
            if ended:
                return
            time.sleep(wait)
            wait = min(wait * GROWTH, LONGEST_POLL)

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
        """Notes that a batch is done with."""
        batch.answers = answers
        self._save()
        del self.keys[batch.file]
        (self.folder / batch.file).unlink(missing_ok=True)
