"""Whether what another package offers as a kind of audit can be used."""

from __future__ import annotations

from llmfair.audits.kind import Kind
from llmfair.audits.study import Study

COMMANDS = {
    "cache", "calibrate", "compare", "datasets", "doctor", "plan", "prompts", "report", "runs", "score", "study",
}  # fmt: skip
"""Commands that are no audits: no kind can have their names."""


def check_kind(name: str, offered: object) -> None:
    """Raises ValueError for what another package offers as a kind of this name and could not be used."""
    if not isinstance(offered, Kind):
        made = f"a class; a kind is a value, {offered.__name__}()" if isinstance(offered, type) else "no Kind"
        raise ValueError(f"it is {made}")
    if offered.name != name:
        raise ValueError(f"the kind calls itself '{offered.name}'")
    if not name.isidentifier():
        raise ValueError("its name has to be a word of letters, digits and _")
    if name in COMMANDS:
        raise ValueError(f"llmfair {name} is another command")
    if "" not in offered.helps:
        raise ValueError('its helps say nothing of its command (by "")')
    if not all(isinstance(one, Study) and one.name.isidentifier() for one in offered.studies):
        raise ValueError("its studies have to be values, too, each with a name of one word")
