"""Why a figure is missing or says nothing, in words: those of the measure that says so, else these of statistics."""

from __future__ import annotations

import re
from collections.abc import Mapping

from llmfair import registry
from llmfair.metrics.base import Definition
from llmfair.stats.conclusions import OTHER_DESIGN, OTHER_REACH, SAME_ANSWERS

REASONS: Mapping[str, str] = {
    "too_few_queries": "too few queries",
    "undefined": "undefined",
    "degenerate": "the answers do not vary",
    "too_many_unparseable": "too many answers are unparseable (--max-invalid)",
    "interval_too_wide": "the interval has no bounds at this level",
    SAME_ANSWERS: "both runs hold the same answers",
    OTHER_REACH: "the attainable ranges differ",
    OTHER_DESIGN: "exposure ratios of different designs do not compare",
}


def in_words(reason: str | None, measure: str = "") -> str:
    """A reason of `results.json` in the words of this measure; one that nobody has words for stands as it is called."""
    spoken = re.match(r"[^(@]*", measure)[0]  # type: ignore[index]
    known: list[Definition] = [registry.lookup("measure", name) for name in registry.names("measure")]
    own = [definition.undefined for definition in known if definition.name == spoken]
    # a conclusion bars other figures, too, which have no words for its reasons
    others = [definition.undefined for definition in known if definition.name != spoken]
    said = (words.get(str(reason)) for words in (*own, REASONS, *others))
    return next(filter(None, said), str(reason).replace("_", " "))
