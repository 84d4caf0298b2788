"""Several servers of one model, asked as one.

Which of them a question goes to, and what is done when one goes down, is dispatch's (`asking/lanes.py`). Answers are
filed under the identity of the first, whichever gave them: it names the run, as it does where it is alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from llmfair.backends.server import Server
from llmfair.errors import UsageError
from llmfair.nouns import Completion, Request


class Fleet:
    """`members`: the servers by host and port, and by path where several have these in common.

    Raises UsageError for a server named twice.
    """

    reads_about = False

    def __init__(self, members: Sequence[Server]) -> None:
        first = members[0]
        self.identity, self.server, self.server_name = first.identity, first.server, first.server_name
        self.max_workers = first.max_workers
        # A batch goes to one server, which alone can tell of it.
        self.capabilities = frozenset.intersection(*(one.capabilities for one in members)) - {"batch"}
        shared = Counter(one.server for one in members)
        self.members = {
            one.server if shared[one.server] == 1 else "/".join((one.server, *_path(one.base_url))): one
            for one in members
        }
        if len(self.members) < len(members):
            raise UsageError("--base-url names a server twice.", "each once, however much it can take")

    def ready(self) -> None:
        """Whether all could be asked now. Raises MissingKey and UsageError."""
        for one in self.members.values():
            one.ready()

    async def open(self) -> None:
        for one in self.members.values():
            await one.open()

    async def close(self) -> None:
        for one in self.members.values():
            await one.close()

    async def complete(self, request: Request) -> Completion:
        """One attempt, by the first server: whoever has no lanes has no use for the others."""
        return await next(iter(self.members.values())).complete(request)


def _path(base_url: str) -> Iterable[str]:
    """The steps of an address's path, however it is written."""
    from yarl import URL

    return filter(None, URL(base_url).parts[1:])
