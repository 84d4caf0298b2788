"""The names of measures, read: `nDCG@20`, `ExpRatio(agg=geometric)@20`, the grammar of ir_measures."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Mapping

from llmfair import registry
from llmfair.errors import UsageError, did_you_mean
from llmfair.metrics.base import Definition, Judged, Measure, Observation, assignments, between_commas
from llmfair.metrics.utility import trec_eval_measure, trec_eval_names
from llmfair.stats.intervals import OTHER_DESIGN, OTHER_REACH, SAME_ANSWERS
from llmfair.stats.sequential import FEW_INSIDE, FEWEST_INSIDE

_SPELLING = re.compile(
    r"\s*(?P<name>[^\s()@=,]+(?:\([A-Za-z]+\))?)\s*(?:@\s*(?P<before>[^\s()@]+)\s*)?"
    r"(?:\((?P<params>.*)\)\s*)?(?:@\s*(?P<after>[^\s()@]+)\s*)?"
)
KEYS = {"stratum": ("relevant", "irrelevant", "unjudged"), "contrast": ()}
"""Keys of a figure's row that are written among its measure's parameters, and what they can be, if not anything."""


def definitions() -> list[Definition]:
    return [registry.lookup("measure", name) for name in registry.names("measure")]


def parse_measure(text: str, reads: type[Observation] | None = None) -> Measure:
    """Reads `Name(param=value,…)@k`, the grammar of ir_measures, in any case of the name.

    A name that is not defined here is looked up in ir_measures; one that both know is ours when a parameter
    of ours is written. Raises UsageError with the nearest name for an unknown name, parameter or value, and for
    a measure that reads something else than the observations of an audit, where their type is given.
    """
    return _measure(*_spelled(text), reads)


def parse_figure(text: str, reads: type[Observation] | None) -> tuple[Measure, dict[str, str]]:
    """A measure, and the keys of the rows that are meant, as `Name(stratum=relevant)` has them. Raises UsageError."""
    name, written, cutoff = _spelled(text)
    ours = {each.name.casefold(): each.params for each in definitions()}
    names = [key for key in KEYS if key in written and key not in ours.get(name.casefold(), ())]
    keys = {key: written.pop(key) for key in names}
    for key, value in keys.items():
        if KEYS[key] and value not in KEYS[key]:
            raise UsageError(
                f"{text.strip()}: no {key} '{value}'.{did_you_mean(value, KEYS[key])}",
                f"{key} is one of {', '.join(KEYS[key])}",
            )
    return _measure(name, written, cutoff, reads), keys


def _measure(
    written_name: str, written: Mapping[str, str], cutoff: str | None, reads: type[Observation] | None
) -> Measure:
    name = written_name.casefold()
    defined = definitions()
    if reads is Judged or (reads is None and cutoff is not None):
        defined = [definition.for_lists() for definition in defined]
    ours, theirs = {definition.name.casefold(): definition for definition in defined}, trec_eval_names()
    observations = dict.fromkeys(theirs.values(), Judged) | {each.name: each.reads for each in defined}
    offered = sorted(each for each, observation in observations.items() if reads in (None, observation))
    hint, definition = f"known: {', '.join(offered)}", ours.get(name)
    canonical = definition.name if definition else theirs.get(name)
    if canonical is None:
        raise UsageError(f"no measure '{written_name}'.{did_you_mean(written_name, offered)}", hint)
    if reads is not None and canonical not in offered:
        about = observations[canonical].about
        raise UsageError(
            f"{canonical} is a measure of {about}, but this audit asks about {reads.about}.", hint
        )
    params = definition.params if definition else {}
    if definition is None or (name in theirs and not written.keys() & params.keys()):
        return trec_eval_measure(theirs[name], written, cutoff, also=params)
    return definition.measure(written, cutoff)


def parse_measures(text: str, reads: type[Observation] | None = None) -> tuple[Measure, ...]:
    """A comma-separated list of measures, each once. Raises UsageError for none."""
    measures = dict.fromkeys(parse_measure(part, reads) for part in between_commas(text) if part.strip())
    if not measures:
        raise UsageError("--measures names none.", "for example P@20,nDCG@20,ExpRatio")
    return tuple(measures)


def _spelled(text: str) -> tuple[str, dict[str, str], str | None]:
    """Name, parameters and cutoff as written."""
    match = _SPELLING.fullmatch(text)
    written = None if match is None else assignments(match["params"] or "")
    if match is None or written is None or (match["before"] and match["after"]):
        raise UsageError(
            f"'{text.strip()}' is not a measure.",
            "write Name, Name@k or Name(param=value,…)@k, as in nDCG@20",
        )
    return match["name"], written, match["before"] or match["after"]


# Why a figure is missing or says nothing, in words: those of the measure that says so, else these of statistics.


REASONS = {
    "too_few_queries": "too few queries",
    "undefined": "undefined",
    "degenerate": "the answers do not vary",
    FEW_INSIDE: f"of fewer than {FEWEST_INSIDE} queries --sequential never says that odds are within the band",
    "all_same": "all queries have the same value",
    "too_many_unparseable": "too many answers are unparseable (--max-invalid)",
    "interval_too_wide": "the interval has no bounds at this level",
    SAME_ANSWERS: "both runs hold the same answers",
    OTHER_REACH: "the attainable ranges differ",
    OTHER_DESIGN: "exposure ratios of different designs do not compare",
}


def in_words(reason: str | None, measure: str = "") -> str:
    """A reason of `results.json` in the words of this measure; one that nobody has words for stands as it is called."""
    name = re.split(r"[(@]", measure)[0]
    defined = definitions()
    first = [definition.undefined for definition in defined if definition.name == name]
    # a conclusion bars other figures, too, which have no words for its reasons
    words = ChainMap(*map(dict, (*first, REASONS, *(definition.undefined for definition in defined))))
    return words.get(str(reason), str(reason).replace("_", " "))
