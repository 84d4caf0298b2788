"""How many calls the cache that runs share would spare an audit, known before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext, suppress
from typing import Any

from llmfair.asking.cache import FILE
from llmfair.asking.journal import completion_of, read_rows, request_key
from llmfair.asking.one_chat import chat_sampling
from llmfair.audits.design import Design
from llmfair.audits.run import folder_of, shared_answers
from llmfair.audits.subject import sampling_of
from llmfair.datasets.base import cache_folder
from llmfair.records import Chat, Completion
from llmfair.steps import Unanswered, drive


def shared_calls(designs: Iterable[Design[Any]]) -> dict[str, int]:
    """`cached`: calls that the cache would answer, beside those of the runs' own journals; `left`: neither does.

    A chain is followed as far as its answers are known; what it would ask then is not, so the cache may spare more.
    Nothing is asked, and nothing written.
    """
    cached = left = 0
    for design in designs:
        kept, shared = _known(design)
        cached, left = cached + shared, left + design.calls - kept - shared
    return {"cached": cached, "left": left}


def _known(design: Design[Any]) -> tuple[int, int]:
    """The calls of one model's audit that its journal answers, and those that the cache alone does."""
    backend, sampling = design.backend(), sampling_of(design.settings)
    path = folder_of(design, backend)[1].journal
    journal: dict[str, Completion] = {}
    if path.is_file() and not design.settings.fresh:
        journal = {row["key"]: completion_of(row) for row in read_rows(path) if "key" in row}
    there = (cache_folder() / FILE).is_file()  # looking must not make one
    if not journal and not there:
        return 0, 0
    found = [0, 0]
    with shared_answers(design, backend) if there else nullcontext() as cache:

        def answer(chat: Chat) -> Completion:
            key = request_key(backend.identity, chat, chat_sampling(chat, sampling), backend.reads_about)
            known = journal.get(key)
            if known is None and cache is not None:
                known = cache.get(key)
            if known is None:
                raise Unanswered
            found[key not in journal] += 1
            return known

        for program in list(design.programs()) if journal or cache is not None else ():
            with suppress(Exception):  # what a program makes of damaged answers is told when it is asked
                drive(program.start(), answer)
    kept, shared = found
    return kept, shared
