"""The names of measures, read: `nDCG@20`, `ExpRatio(agg=geometric)@20`, the grammar of ir_measures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from llmfair import registry
from llmfair.errors import UsageError, did_you_mean
from llmfair.metrics.base import (
    BARE,
    WHOLE_NUMBER,
    Argument,
    Definition,
    Free,
    Judged,
    Measure,
    Observation,
    unknown_param,
)
from llmfair.metrics.utility import trec_eval_measure, trec_eval_names

_SPELLING = re.compile(
    r"\s*(?P<name>[^\s()@=,]+)\s*(?:@\s*(?P<before>[^\s()@]+)\s*)?"
    r"(?:\((?P<params>.*)\)\s*)?(?:@\s*(?P<after>[^\s()@]+)\s*)?"
)
_PARAM = re.compile(rf"\s*(\w+)\s*=\s*(\{{[^{{}}]*\}}|'[^']*'|\"[^\"]*\"|{BARE})\s*(?:,|$)")


def parse_measure(text: str, reads: type[Observation] | None = None) -> Measure:
    """Reads `Name(param=value,…)@k`, the grammar of ir_measures, in any case of the name.

    A name that is not defined here is looked up in ir_measures; one that both know is ours when a parameter
    of ours is written. Raises UsageError with the nearest name for an unknown name, parameter or value, and for
    a measure that reads something else than the observations of an audit, where their type is given.
    """
    name, written, cutoff = _spelled(text)
    defined: list[Definition] = [registry.lookup("measure", known) for known in registry.names("measure")]
    if reads is Judged or (reads is None and cutoff is not None):
        defined = [one.for_lists() for one in defined]
    ours = {one.name.casefold(): one for one in defined}
    theirs, definition = trec_eval_names(), ours.get(name.casefold())
    read = dict.fromkeys(theirs.values(), Judged) | {one.name: one.reads for one in ours.values()}
    known = {one for one, of_it in read.items() if reads in (None, of_it)}
    hint = f"known: {', '.join(sorted(known))}"
    if definition is None and name.casefold() not in theirs:
        raise UsageError(f"no measure '{name}'.{did_you_mean(name, known)}", hint)
    spoken = definition.name if definition else theirs[name.casefold()]
    if reads is not None and spoken not in known:
        raise UsageError(
            f"{spoken} is a measure of {read[spoken].about}, but this audit asks about {reads.about}.", hint
        )
    if definition is None or (name.casefold() in theirs and not written.keys() & definition.params.keys()):
        return trec_eval_measure(
            theirs[name.casefold()], written, cutoff, also=definition.params if definition else ()
        )
    return Measure(
        definition.name, _checked_params(definition, written), _checked_cutoff(definition, cutoff), definition
    )


def parse_measures(text: str, reads: type[Observation] | None = None) -> tuple[Measure, ...]:
    """A comma-separated list of measures, each once. Raises UsageError for none."""
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    measures = dict.fromkeys(parse_measure(part, reads) for part in parts if part.strip())
    if not measures:
        raise UsageError("--measures names none.", "for example P@20,nDCG@20,ExpRatio")
    return tuple(measures)


def _spelled(text: str) -> tuple[str, dict[str, str], str | None]:
    """Name, parameters and cutoff as written."""
    grammar = UsageError(
        f"'{text.strip()}' is not a measure.", "write Name, Name@k or Name(param=value,…)@k, as in nDCG@20"
    )
    match = _SPELLING.fullmatch(text)
    if match is None or (match["before"] and match["after"]):
        raise grammar
    written: dict[str, str] = {}
    rest = match["params"] or ""
    while rest.strip():
        param = _PARAM.match(rest)
        if param is None or param[1] in written:
            raise grammar
        written[param[1]] = param[2].strip("'\"")
        rest = rest[param.end() :]
    return match["name"], written, match["before"] or match["after"]


def _checked_params(definition: Definition, written: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The parameters of the canonical spelling. Raises UsageError."""
    name, checked = definition.name, []
    for param, value in sorted(written.items()):
        if param not in definition.params:
            raise unknown_param(name, param, definition.params)
        allowed = definition.params[param]
        if not isinstance(allowed, tuple):
            free = allowed or WHOLE_NUMBER
            read = _read(free, f"{name}: {param}", value)
            if read != free.default:
                checked.append((param, str(read)))
        elif value not in allowed:
            raise UsageError(
                f"{name}: {param} cannot be '{value}'.{did_you_mean(value, allowed)}",
                f"{param} is one of: {', '.join(allowed)}",
            )
        elif len(allowed) == 1 or value != allowed[0]:
            checked.append((param, value))
    for (param, value), (other, implied) in definition.implies.items():
        if written.get(param) == value and other in written:
            if written[other] != implied:
                raise UsageError(
                    f"{name}: {param}={value} contradicts {other}={written[other]}.",
                    f"{param}={value} implies {other}={implied}",
                )
            checked = [(stated, text) for stated, text in checked if stated != other]
    for param, allowed in definition.params.items():
        if isinstance(allowed, tuple) and len(allowed) == 1 and param not in written:
            raise UsageError(
                f"{name}({','.join(sorted(written))}=…) needs {param}={allowed[0]}.",
                f"write {name}({param}={allowed[0]},…)",
            )
    return tuple(checked)


def _checked_cutoff(definition: Definition, cutoff: str | None) -> int | None:
    """The number of first ranks that count. Raises UsageError."""
    if cutoff is None and definition.cutoff == "required":
        raise UsageError(f"{definition.name} needs a cutoff.", f"write {definition.name}@20")
    if cutoff is not None and definition.cutoff == "none":
        raise UsageError(f"{definition.name} takes no cutoff.", f"write it without @{cutoff}")
    if cutoff is None:
        return None
    return cast(int, _read(WHOLE_NUMBER, f"{definition.name}: the cutoff", cutoff))


def _read(free: Free, what: str, text: str) -> Argument:
    """The value of a text. Raises UsageError."""
    try:
        return free.read(text)
    except ValueError:
        nearest = did_you_mean(text, free.words)
        raise UsageError(f"{what} cannot be '{text}'.{nearest}", f"it is {free.says}") from None
