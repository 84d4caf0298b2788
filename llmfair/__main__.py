"""`python -m llmfair`: the same as `llmfair`."""

from llmfair.cli.app import main

main()
