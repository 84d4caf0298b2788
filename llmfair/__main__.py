"""The command `llmfair`, and `python -m llmfair`: it can be stopped before anything is imported that takes a while."""

from llmfair.beginning import carry_out, open_streams


def main() -> None:
    open_streams()
    carry_out(_command)


def _command() -> None:
    from llmfair.cli.app import main as command

    command()


if __name__ == "__main__":
    main()
