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
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic

from llmfair.asking.budgets import Budget
from llmfair.asking.dispatch import Program, dispatch
from llmfair.asking.journal import SHARED, Journal
from llmfair.asking.ledger import Ledger, Sent
from llmfair.asking.limits import Limits, Progress
from llmfair.asking.requests import Requests
from llmfair.backends.base import B, BatchServer, NoBackend, RateLimited, Transient
from llmfair.errors import BackendError, Incomplete, LlmfairError, Unavailable, UsageError
from llmfair.nouns import Chat, Completion, Failure, Request, Sampling, Unanswered, drive

if TYPE_CHECKING:
    from llmfair.asking.cache import Cache

MOST_ROUNDS = 3
LONGEST_BATCH = 26 * 3600.0
"""Seconds without a batch that ends: they have 24 hours."""
FIRST_POLL, LONGEST_POLL, GROWTH = 30.0, 300.0, 1.5
"""Seconds between looks at a batch, at first and at most, and by how much they grow."""


def dispatch_batch(
    programs: Iterable[Program],
    server: BatchServer[Any],
    journal: Journal,
    sampling: Sampling,
    limits: Limits,
    progress: Progress,
    cache: Cache | None = None,
) -> Generator[tuple[str, Any | Failure], None, None]:
    """Like `dispatch`, through the Batch API; `limits.max_calls` counts lines.

    Collects what an earlier invocation submitted, submits what has no answer, and waits. A question that no batch
    answers goes into the next, three at most. Raises BackendError when nothing was answered at all, Incomplete when
    something was. A KeyboardInterrupt leaves batches running.
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
        known, missing = asking.questions(program)
        why = next((asking.failed[one.key] for one in missing if one.key in asking.failed), None)
        if why is not None:
            failure = Failure(program.probe_id, type(why).__name__, why.message, why.hint)
            journal.put_failure(failure)
            yield program.probe_id, failure
        elif not missing:
            ready.append(program)
            new |= known & asking.collected
    yield from dispatch(ready, NoBackend(server.identity), journal, sampling, limits, progress)
    progress.replayed -= len(new)
    if cause is not None:
        raise cause


@dataclass(eq=False)
class _Asking(Generic[B]):
    """One call of `dispatch_batch`, up to where the journal holds every answer there is."""

    programs: Sequence[Program]
    server: BatchServer[B]
    journal: Journal
    sampling: Sampling
    limits: Limits
    progress: Progress
    cache: Cache | None

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.journal.path, self.server.key_of)
        self.rounds = Counter(key for keys in self.ledger.keys.values() for key in keys)
        self.request = Requests(NoBackend(self.server.identity), self.sampling)
        self.failed: dict[str, LlmfairError] = {}
        self.collected: set[str] = set()
        self.budget = Budget(price_in=self.limits.price_in, price_out=self.limits.price_out)

    def fill(self) -> None:
        """Submits and collects until every question has an answer or a failure.

        Raises Incomplete when the budget of lines is spent, and what makes it useless to go on.
        """
        try:
            for one in self.ledger.open:
                if one.batch_id is None:
                    self._create(one, perhaps_made=True)
                else:
                    self.progress.tell(f"Collecting {one.batch_id}, {_questions(one.lines)}.")
            while True:
                spent = self._submit()
                if not self.ledger.open:
                    break
                self._collect()
            if spent:
                raise Incomplete(
                    f"the budget of {self.limits.max_calls} calls is spent.", "the same command continues"
                )
        except BaseException:
            self._tell_open()
            raise
        finally:
            self.server.close()

    # Questions

    def questions(self, program: Program) -> tuple[set[str], list[Request]]:
        """The keys of what a program is given, and what its first step that lacks an answer asks: [] at its end."""
        given, missing = dict[str, tuple[Request, Completion]](), list[Request]()

        def answer(chat: Chat) -> Completion:
            request = self.request(program.probe_id, chat)
            known = self.journal.get(request.key)
            if known is None and self.cache is not None:
                known = self.cache.get(request.key)
            if known is None:
                missing.append(request)
                raise Unanswered
            given[request.key] = request, known
            return known

        with suppress(Exception):  # besides, what dispatch tells when it runs the program again
            drive(program.start(), answer)
        for request, known in given.values():
            self._file(request, known)
        return set(given), missing

    def _file(self, request: Request, known: Completion) -> None:
        """Files an answer that other runs were given as this run's own evidence."""
        if self.journal.get(request.key) is None:
            self.journal.put(request, known, attempts=0, source=SHARED)
            self.progress.cached += 1
            self.collected.add(request.key)

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
        waiting = (
            request
            for request in self._pending()
            if request.key not in self.failed and request.key not in self.ledger
        )
        most = self.limits.max_calls
        left = None if most is None else max(0, most - self.progress.calls)
        chosen = islice(waiting, left)
        for lines in self.server.files((request.key, self.server.line(request)) for request in chosen):
            self._send(lines)
        return left is not None and next(waiting, None) is not None

    def _send(self, lines: list[tuple[str, bytes]]) -> None:
        path = self.ledger.write(lines)
        try:
            input_file_id = self.server.upload(path)
        except BaseException:
            path.unlink()  # it is not noted, so no other run would use it
            raise
        one = self.ledger.add(path, lines, input_file_id)
        self.rounds.update(key for key, _ in lines)
        self._create(one)

    def _create(self, one: Sent, perhaps_made: bool = False) -> None:
        batch = self.server.create(one.input_file_id, perhaps_made)
        one.batch_id, one.status = batch.id, batch.status
        self.ledger.save()
        self.progress.calls += one.lines
        again = sum(self.rounds[key] > 1 for key in self.ledger.keys[one.file])
        self.progress.retries += again
        self.progress.tell(
            f"Submitted {_questions(one.lines)} as {one.batch_id} to {self.server.name}"
            f"{f', {again:,} of them again' if again else ''}. Answers take up to 24 hours; Ctrl-C leaves it "
            "running, and the same command collects."
        )

    # Collecting

    def _collect(self) -> None:
        """Waits until at least one batch has ended, and files its answers."""
        told: dict[str, str] = {}
        wait, began = FIRST_POLL, time.monotonic()
        heard = began
        while True:
            ended, left = False, LONGEST_BATCH - (time.monotonic() - began)
            if left < 0:
                raise Unavailable(
                    f"no batch has ended within {LONGEST_BATCH / 3600:.0f} hours.",
                    "the same command collects",
                )
            for one in self.ledger.open:
                try:
                    batch = self.server.state(str(one.batch_id))
                except Unavailable:
                    left = min(left, heard + self.limits.max_wait - time.monotonic())
                    if left < 0:
                        raise
                    continue
                heard = time.monotonic()
                state = self.server.words(batch)
                if told.get(one.file) != state:
                    told[one.file] = state
                    self.progress.tell(f"{one.batch_id}: {state}")
                if one.status != batch.status:
                    one.status = batch.status
                    self.ledger.save()
                if self.server.ended(batch):
                    self._read(one, batch)
                    ended = True
            if ended:
                return
            time.sleep(min(wait, max(0.0, left)))
            wait = min(wait * GROWTH, LONGEST_POLL)

    def _read(self, one: Sent, batch: B) -> None:
        """Files the answers of a batch that ended. Raises what makes it useless to go on."""
        if batch.status == "failed":
            self.ledger.close(one, answers=0)
            raise self.server.refusal(batch)
        lines, keys = self.server.answers(batch, one.lines), self.ledger.keys[one.file]
        found, errors = 0, list[BackendError | UsageError]()
        for request in self._pending():
            if request.key not in keys:
                continue
            try:
                completion = self._answer(request, lines.get(request.key))
            except (BackendError, UsageError) as error:
                self.failed[request.key] = error
                errors.append(error)
            else:
                found += completion is not None
        self.progress.cost = self.budget.spent if self.budget.priced else None
        self.ledger.close(one, found)
        self.progress.tell(f"{one.batch_id}: {found:,} of {one.lines:,} answers collected.")
        if stop := next((error for error in errors if _stops(error)), None):
            raise stop
        refused = [error for error in errors if not isinstance(error, Unavailable)]
        if len(refused) == one.lines and not len(self.journal):
            raise refused[0]  # no other will fare better

    def _answer(self, request: Request, line: bytes | None) -> Completion | None:
        """Files the answer in a line; None for a question that the next batch asks again."""
        try:
            if line is None:
                raise Transient("it ended without this question")
            completion = self.server.read(line, request)
        except (Transient, RateLimited) as failure:
            if self.rounds[request.key] < MOST_ROUNDS:
                return None
            raise Unavailable(
                f"no answer in {MOST_ROUNDS} batches, the last time: {failure.cause}."
            ) from None
        self.journal.put(request, completion, self.rounds[request.key], "batch")
        self.collected.add(request.key)
        if self.cache is not None:
            self.cache.put(request.key, completion)
        self.budget.settle(0.0, request, completion)
        return completion

    def _tell_open(self) -> None:
        running = [one.batch_id for one in self.ledger.open if one.batch_id is not None]
        if running:
            self.progress.tell(
                f"{', '.join(running)} run{'s' if len(running) == 1 else ''} on at {self.server.name}; "
                "the same command collects the answers."
            )


def _stops(error: BackendError | UsageError) -> bool:
    """Whether an error of one question means that no other can be asked either."""
    return isinstance(error, UsageError) or error.stops_run


def _questions(count: int) -> str:
    return f"{count:,} question{'' if count == 1 else 's'}"
