"""The command `llmfair`, and `python -m llmfair`: ready for signals before anything is imported that takes a while."""

from llmfair.beginning import catch, open_streams


def main() -> None:
    catch()
    open_streams()
    from llmfair.cli.app import main as command

    command()


if __name__ == "__main__":
    main()
