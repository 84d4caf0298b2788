"""The command `llmfair`, and `python -m llmfair`: it can be stopped before anything is imported that takes a while."""

import os
import sys
from contextlib import suppress

from llmfair.beginning import open_streams, stop_code, stoppable, was_stopped


def main() -> None:
    open_streams()
    code: int | str | None = None
    try:
        with stoppable():
            from llmfair.cli.app import main as command

            command()
    except KeyboardInterrupt:
        code = stop_code()
        with suppress(OSError):  # a terminal that is closed
            print("Stopped.", file=sys.stderr, flush=True)
    except SystemExit as leaving:
        code = leaving.code
    if was_stopped():  # Python would end by SIGINT, whatever stopped it, where that came during an import
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(stop_code())
    sys.exit(code)


if __name__ == "__main__":
    main()
