"""The command `llmfair`, and `python -m llmfair`: it can be stopped before anything is imported that takes a while."""

import sys

from llmfair.beginning import open_streams, stop_code, stoppable


def main() -> None:
    open_streams()
    try:
        with stoppable():
            from llmfair.cli.app import main as command

            command()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(stop_code())


if __name__ == "__main__":
    main()
