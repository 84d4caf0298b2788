"""What a figure has to be for a run to pass: `--require ExpRatio:female=0.9..1.1`.

A gate is asked of every condition it speaks of. It does not hold where there is no figure, where the figure cannot be
assessed, and where no ranker could fail it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from msgspec.structs import replace

from llmfair.errors import LlmfairError, RequirementFailed, UsageError, did_you_mean
from llmfair.io.files import write_whole, writing
from llmfair.io.text import parts
from llmfair.metrics.base import CONTROLLED, Observation, plain_name
from llmfair.metrics.names import in_words, parse_figure, parse_measure
from llmfair.nouns import Conclusion, Key, is_of
from llmfair.results import Finding, Reach, Requirement, Results, Row, RunVerdict, absent_row

if TYPE_CHECKING:
    from llmfair.audits.scoring import Measuring, ScoreResults

GRAMMAR = (
    "MEASURE[:CONDITION] then =LOW..HIGH, >=X or <=X, for example ExpRatio:female=0.9..1.1 or, of relevant items "
    "alone, PreferenceOdds(stratum=relevant):neutral>=0.8"
)
# A measure's own parameters hold = and, quoted, anything: only what follows the last bracket is the bound.
_SPELLING = re.compile(
    r"(?P<measure>.+?)(?::(?P<condition>[^:=<>(){}'\"]*))?(?P<operator>>=|<=|=)(?P<bound>[^=<>(){}'\"]*)"
)


@dataclass(frozen=True, slots=True)
class Gate:
    """A measure by its canonical name, the condition or the stratum of pairs (None: every one), and the bounds, both
    inclusive; `columns` of the rows that it speaks of."""

    measure: str
    condition: str | None
    low: float | None
    high: float | None
    text: str
    columns: Mapping[str, str] = field(default_factory=dict)

    def contains(self, low: float, high: float) -> bool:
        """Whether all from `low` to `high` is within the bounds."""
        return (self.low is None or self.low <= low) and (self.high is None or high <= self.high)

    def meets(self, low: float, high: float) -> bool:
        """Whether any of `low` to `high` is within the bounds."""
        return (self.low is None or self.low <= high) and (self.high is None or low <= self.high)

    @property
    def beyond(self) -> str:
        """Where a figure is that does not hold: `outside 0.9..1.1`, `below 0.9`."""
        if self.low is None:
            return f"above {self.high:g}"
        return f"below {self.low:g}" if self.high is None else f"outside {self.low:g}..{self.high:g}"


def parse_gate(text: str, reads: type[Observation] | None = None) -> Gate:
    """Reads `MEASURE[:CONDITION]` and its bound. Raises UsageError, and for a measure that reads something else."""
    text = text.strip()
    parts = match.groups() if (match := _SPELLING.fullmatch(text)) else (text, None, "=", "")
    name, condition, operator, bound = parts
    numbers = list[float]()
    with suppress(ValueError):
        numbers = [float(part) for part in bound.split("..")]
    wanted = 2 if operator == "=" else 1
    if len(numbers) != wanted or not all(map(math.isfinite, numbers)) or sorted(numbers) != numbers:
        raise UsageError(f"--require '{text}' has no such bound.", GRAMMAR)
    low = None if operator == "<=" else numbers[0]
    high = None if operator == ">=" else numbers[-1]
    measure, columns = parse_figure(name, reads)
    return Gate(str(measure), None if condition is None else condition.strip(), low, high, text, columns)


def read_gates(
    texts: Iterable[str],
    conditions: Collection[str],
    reads: type[Observation],
    contrasts: Collection[str] | None = None,
) -> tuple[Gate, ...]:
    """The gates of a design that has these conditions, and these contrasts if they are known. Raises UsageError for any
    other."""
    gates = tuple(parse_gate(text, reads) for text in texts)
    for gate in gates:
        if gate.condition is not None and gate.condition not in conditions:
            raise UsageError(
                f"--require '{gate.text}': no condition '{gate.condition}'.{did_you_mean(gate.condition, conditions)}",
                f"this audit has: {', '.join(conditions)}",
            )
        contrast = gate.columns.get("contrast", "")
        if contrast and contrasts is not None and contrast not in contrasts:
            raise UsageError(
                f"--require '{gate.text}': no contrast '{contrast}'.{did_you_mean(contrast, contrasts)}",
                f"contrasts of this audit: {', '.join([*contrasts][:6]) or 'none, as it compares two groups'}",
            )
    return gates


@dataclass(frozen=True)
class GatedFigures:
    """What gates are asked of. `asked` is what a condition is called in words (" prompt", " pairs"), unless `titles`
    has it; `where` of which setting figures are; of conditions `aside`, which only repeat another, or which others are
    held against, gates speak by name alone."""

    keys: Sequence[Key]
    shown: Sequence[str]
    rows: Sequence[Row]
    findings: Mapping[str, Finding]
    reach: Mapping[str, Reach] = field(default_factory=dict)
    asked: str = ""
    where: str = "on these lists"
    aside: Collection[str] = ()
    titles: Mapping[str, str] = field(default_factory=dict)


def aside_of(measuring: Measuring, conditions: Iterable[str]) -> set[str]:
    """Those of the conditions of an audit that gates speak of by name alone."""
    ungated = {name for name in conditions if measuring.gated and name not in measuring.gated}
    return {*measuring.aside, *ungated}


def check_gates(gates: Iterable[Gate], results: GatedFigures, interval: bool) -> list[Requirement]:
    """Which gates hold: an entry for every gate, condition and, of measures that have them, group. A gate without a
    condition speaks of all that have the measure, but those aside; `interval`: all of it has to hold."""
    entries = []
    contrasts = {key.contrast for key in results.keys}
    plain = [*dict.fromkeys(key.of_all_contrasts for key in results.keys)]
    for gate in gates:
        idle = always_held(gate, results.reach, results.where)
        if gate.condition is None:
            keys = [key for key in results.keys if not is_of(key, results.aside)]
        else:
            keys = [key for key in results.keys if gate.condition in (key, key.of_all_contrasts)]
            keys = keys or [Key(gate.condition)]
        measure = as_shown(gate.measure, results.shown)
        rows = [
            row
            for row in results.rows
            if (row.query_id, row.measure) == ("all", measure)
            and row.key(contrasts) in (*keys, *(key.of_all_contrasts for key in keys))
            and all(getattr(row, name) == value for name, value in gate.columns.items())
        ]
        absent = dict.fromkeys(replace(absent_row(measure, key), **gate.columns) for key in keys)
        order = [*plain, *results.keys, *keys]
        for row in sorted(rows, key=lambda row: order.index(row.key(contrasts))) or absent:
            reason = idle or _broken(gate, row, row.key(contrasts), results, interval)
            columns = row.measure, row.condition, row.stratum, row.group
            entries.append(
                Requirement(gate.text, *columns, row.value, not reason, reason, contrast=row.contrast)
            )
    return entries


def statuses_of(text: str | None, statuses: Collection[str]) -> tuple[str, ...]:
    """The statuses of `--fail-on`, each once. Raises UsageError for one that is not among these."""
    wanted = [word.strip("'\"") for word in parts(text or "")]
    for word in wanted:
        if word not in statuses:
            raise UsageError(
                f"--fail-on: there is no verdict '{word}' that fails a run.{did_you_mean(word, statuses)}",
                f"those that do: {', '.join(statuses)}",
            )
    return tuple(wanted)


def refused(verdict: RunVerdict | None, fail_on: Collection[str]) -> str | None:
    """Why `--fail-on` fails a run, in a sentence; None where it does not."""
    if verdict is None or verdict.status not in fail_on:
        return None
    return f"--fail-on: the verdict is {verdict.status}: {verdict.sentence}"


WRITTEN = "everything is written; results.json has verdict and requirements"


def require_met(requirements: Iterable[Requirement], *refusals: str | None, hint: str = WRITTEN) -> None:
    """Raises RequirementFailed, with what is wrong, unless every entry of `check_gates` holds and nothing refuses."""
    reasons = [str(entry.reason) for entry in requirements if not entry.holds]
    if failed := dict.fromkeys([*filter(None, refusals), *reasons]):
        raise RequirementFailed("; ".join(failed), hint)


def as_shown(measure: str, shown: Sequence[str]) -> str:
    """The measure that a table with these shows under a name."""
    if measure in shown:
        return measure
    return next((name for name in shown if plain_name(name, CONTROLLED) == measure), measure)


def always_held(gate: Gate, reaches: Mapping[str, Reach], where: str) -> str | None:
    """Why a figure says nothing here: its gate contains all from `low` to `high` that rankers can reach, where that is
    known."""
    reach = reaches.get(parse_measure(gate.measure).reach, Reach())
    if reach.low is None or reach.high is None or not gate.contains(reach.low, reach.high):
        return None
    return f"no ranker could fail {gate.text} {where}"


def _broken(gate: Gate, row: Row, key: Key, results: GatedFigures, interval: bool) -> str | None:
    """What is wrong with a figure, in a sentence; None when it holds."""
    condition = results.titles.get(key, f"{key}{results.asked}")
    what = " ".join(filter(None, (row.measure, row.group, f"({condition})")))
    because = f": {in_words(row.reason, row.measure)}" if row.reason else ""
    value = row.value
    if value is None:
        return f"{what} is undefined{because}"
    finding = results.findings.get(key)
    headline = finding is not None and finding.measure == row.measure
    assessed = headline or parse_measure(gate.measure).definition.assessed_by
    if assessed and finding is not None and finding.conclusion == Conclusion.NOT_ASSESSABLE:
        return f"{what} cannot be assessed: {in_words(finding.reason, finding.measure)}"
    if not interval:
        rounded = round(value, 3)  # which must not seem to hold
        text = f"{value:.6g}" if gate.contains(rounded, rounded) else f"{value:.3f}"
        return None if gate.contains(value, value) else f"{what} {text} is {gate.beyond}"
    low, high = row.low, row.high
    if headline and finding is not None and finding.lower is not None:
        low = finding.lower
    if low is None or high is None:
        return f"{what} has no interval{because}"
    if gate.contains(low, high):
        return None
    how = "reaches" if gate.meets(low, high) else "lies"
    return f"{what} [{low:.3f}, {high:.3f}] {how} {gate.beyond}"


def require_readable(results: Results) -> None:
    """Raises RequirementFailed where more answers of a condition cannot be read than the run allows."""
    for condition, counts in results.answers.items():
        if results.unparseable(condition):
            share = counts.unparseable / counts.asked
            raise RequirementFailed(
                f"{share:.1%} of the answers of '{condition}' are unparseable, more than {results.max_invalid:.1%} "
                "(--max-invalid).",
                "everything is written; what was answered: llmfair runs show RUN --invalid",
            )


# Verdict and gates as JUnit XML, which systems of continuous integration show.

UNSPEAKABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML may hold."""


@dataclass(frozen=True)
class Suite:
    """One run: its verdict and requirements, none where there are no results, and what broke it off or failed it."""

    name: str
    task: str
    verdict: RunVerdict | None
    requirements: Sequence[Requirement]
    error: LlmfairError | None = None


def suite_of(name: str, task: str, results: Results | None, error: LlmfairError | None = None) -> Suite:
    """An audit, or what there is of one that failed."""
    verdict, requirements = (results.verdict, results.requirements) if results else (None, ())
    return Suite(name, task, verdict, requirements, error)


def suites_of_score(results: ScoreResults) -> list[Suite]:
    """Every RUN of measured runs."""
    gates = {run.run: [gate for gate in results.requirements if gate.run == run.run] for run in results.runs}
    return [Suite(run.run, results.task, run.verdict, gates[run.run]) for run in results.runs]


def write_junit(path: Path, suites: Iterable[Suite], fail_on: Sequence[str]) -> None:
    """One test suite a run, one test case for its verdict and one for each gate. Raises UsageError."""
    root = ET.Element("testsuites", name="llmfair")

    def say(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
        element = ET.SubElement(parent, tag, attributes)
        element.text = text
        return element

    for suite in suites:
        element = say(root, "testsuite", "", name=suite.name)
        case, failed = partial(say, element, "testcase", "", classname=f"llmfair.{suite.task}"), False
        if verdict := suite.verdict:
            test, failed = case(name="verdict"), refused(verdict, fail_on) is not None
            if failed:
                say(test, "failure", verdict.sentence, type=verdict.status, message=verdict.sentence)
            say(test, "system-out", f"{verdict.status}: {verdict.sentence}\n{verdict.next}")
        for gate in suite.requirements:
            test = case(
                name=f"{gate.require} ({gate.key({gate.contrast})}{f', {gate.group}' if gate.group else ''})"
            )
            if not gate.holds:
                failed, reason = True, str(gate.reason)
                say(test, "failure", reason, type="require", message=reason)
        if (error := suite.error) and not (failed and isinstance(error, RequirementFailed)):
            # too many unparseable answers are told by no test case above
            tag = "failure" if isinstance(error, RequirementFailed) else "error"
            say(case(name="run"), tag, error.message, type=type(error).__name__, message=error.message)
        element.set("tests", str(len(element)))
        for tag in ("failure", "error"):
            element.set(f"{tag}s", str(len(element.findall(f".//{tag}"))))
    ET.indent(root)
    # a model's or a file's name may hold what no XML may
    document = UNSPEAKABLE.sub(
        "\N{REPLACEMENT CHARACTER}", ET.tostring(root, "unicode", xml_declaration=True)
    )
    with writing(path.parent, "choose another --junit"):
        write_whole(path, [document, "\n"])
