"""The command `llmfair`, and `python -m llmfair`: it can be stopped before anything is imported that takes a while."""

from importlib import import_module

from llmfair.beginning import carry_out, open_streams


def main() -> None:
    open_streams()
    carry_out(lambda: import_module("llmfair.cli.app").main())


if __name__ == "__main__":
    main()
