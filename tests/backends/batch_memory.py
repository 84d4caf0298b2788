"""A file of so many long answers, read through the Batch API; prints by how many megabytes the process has grown."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from llmfair.backends.base import BackendOptions
from llmfair.backends.batch import Batch, Batches
from llmfair.backends.openai import OpenAI


def peak() -> float:
    """Of this program, which `getrusage` would add its parent's to."""
    said = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert said is not None
    return int(said[1]) / 1024


def main(url: str, lines: int) -> None:
    batches = Batches(OpenAI("m", BackendOptions(base_url=url, max_reply=2_000_000)), 0, 1.0)
    batches.state("batch_1")  # what the package itself takes
    before = peak()
    found = batches.answers(Batch("batch_1", "completed", ("file_1",), {}, []), lines)
    for number in range(lines):
        assert len(json.loads(found[f"k{number}"])["response"]) > 250_000
    print(peak() - before)
    batches.close()


main(sys.argv[1], int(sys.argv[2]))
