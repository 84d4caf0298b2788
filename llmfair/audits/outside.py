"""Whether what another package offers as a kind of audit can be used: one that cannot is left out, and only it.

What it would take from others counts, too: names that are others' in commands, documents and studies.
"""

from __future__ import annotations

from collections.abc import Iterable

from llmfair.audits.kind import Kind
from llmfair.audits.studies.study import Study

COMMANDS = {
    "cache", "calibrate", "compare", "datasets", "doctor", "measures", "mitigate", "plan", "prompts", "report",
    "rerank", "runs", "score", "strategies", "study",
}  # fmt: skip
"""Commands that are no audits."""
DOCUMENTS = {
    "comparison", "failure", "finetune_lora", "finetune_plan", "look", "merge", "mitigation", "mitigation_plan",
    "several", "study_plan",
}  # fmt: skip
"""What `--json` prints besides, as the schema names it: there a kind has its own name, and these with it behind."""
PREFIXES = ("plan_", "calibrate_", "study_")


def check_kind(name: str, offered: object, beside: Iterable[Kind] = ()) -> None:
    """Raises ValueError for what could not be used as a kind of this name beside the kinds there are."""
    if not isinstance(offered, Kind):
        made = f"a class; a kind is a value, {offered.__name__}()" if isinstance(offered, type) else "no Kind"
        raise ValueError(f"it is {made}")
    if offered.name != name:
        raise ValueError(f"the kind calls itself '{offered.name}'")
    if not _is_word(name):
        raise ValueError("its name has to be a word of small letters, digits and _")
    if name in COMMANDS:
        raise ValueError(f"llmfair {name} is another command")
    if name in DOCUMENTS or name.startswith(PREFIXES):
        raise ValueError(f"--json prints something else that is called {name}")
    if "" not in offered.helps:
        raise ValueError('its helps say nothing of its command (by "")')
    if not all(isinstance(one, Study) and _is_word(one.name) for one in offered.studies):
        raise ValueError("its studies have to be values, too, each with a name of one word in small letters")
    others = [kind for kind in beside if kind is not offered]
    taken = {"plan", *(study.name for kind in others for study in kind.studies)}  # study_plan is of them all
    for study in offered.studies:
        if study.name in taken:
            raise ValueError(f"another study is called {study.name}")
        taken.add(study.name)
    reader = next((kind.name for kind in others if kind.reads_runs), None)
    if offered.reads_runs and reader is not None:
        raise ValueError(f"TREC run files are measured by {reader} already")


def _is_word(name: str) -> bool:
    """In the schema what begins with a capital is a class."""
    return name.isidentifier() and name.islower()
