"""Commands where the package from outside is installed: all of one test are run by one new process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cli import command


class Installation:
    """A process that is started when the first command is given, with the environment of that time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """The standard output of a command that ends with this code."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._process.stdin and self._process.stdout
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        ended, out, err = json.loads(self._process.stdout.readline())
        assert ended == code, err
        return str(out)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Ends the process afterwards."""
        try:
            yield
        finally:
            if self._process is not None:
                self._process.communicate(timeout=30)
                self._process = None


llmfair = Installation()


if __name__ == "__main__":
    for line in sys.stdin:
        found = command.llmfair(*json.loads(line))
        print(json.dumps([found.code, found.out, found.err]), flush=True)
