"""Audits run to their end."""

from __future__ import annotations

from typing import Any

from llmfair.audits.design import Design
from llmfair.audits.runs.run import RunOutcome, perform


def audit(design: Design[Any]) -> RunOutcome:
    """What an audit wrote. Raises what broke it off or failed it."""
    written = perform(design)
    if written.error is not None:
        raise written.error
    return written
