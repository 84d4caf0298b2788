"""Verdict and gates as JUnit XML, which systems of continuous integration show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from llmfair.audits.gates import refused
from llmfair.audits.scoring import ScoreResults
from llmfair.errors import LlmfairError, RequirementFailed, UsageError
from llmfair.io.files import write_whole
from llmfair.results import Requirement, Results, RunVerdict

UNSPEAKABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
    if results is None:
        return Suite(name, task, None, (), error)
    return Suite(name, task, results.verdict, results.requirements, error)


def suites_of_score(results: ScoreResults) -> list[Suite]:
    """Every RUN of measured runs."""
    return [
        Suite(run.run, results.task, run.verdict, [one for one in results.requirements if one.run == run.run])
        for run in results.runs
    ]


def write_junit(path: Path, suites: Iterable[Suite], fail_on: Sequence[str]) -> None:
    """One test suite a run, one test case for its verdict and one for each gate. Raises UsageError."""
    root = ET.Element("testsuites", name="llmfair")
    for suite in suites:
        _add(root, suite, fail_on)
    for element in root.iter():  # a model's or a file's name may hold what no XML may
        element.text = None if element.text is None else _legal(element.text)
        element.attrib = {name: _legal(value) for name, value in element.attrib.items()}
    ET.indent(root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, [ET.tostring(root, "unicode", xml_declaration=True), "\n"])
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}.", "choose another --junit") from None


def _add(root: ET.Element, suite: Suite, fail_on: Sequence[str]) -> None:
    element = ET.SubElement(root, "testsuite", name=suite.name)

    def case(name: str) -> ET.Element:
        return ET.SubElement(element, "testcase", classname=f"llmfair.{suite.task}", name=name)

    failures = 0
    if suite.verdict is not None:
        verdict, found = suite.verdict, case("verdict")
        if refused(verdict, fail_on) is not None:
            failures += 1
            _problem(found, "failure", verdict.status, verdict.sentence)
        ET.SubElement(found, "system-out").text = f"{verdict.status}: {verdict.sentence}\n{verdict.next}"
    for gate in suite.requirements:
        found = case(f"{gate.require} ({gate.condition}{f', {gate.group}' if gate.group else ''})")
        if not gate.holds:
            failures += 1
            _problem(found, "failure", "require", str(gate.reason))
    errors, error = 0, suite.error
    if error is not None and not isinstance(error, RequirementFailed):
        errors = 1
        _problem(case("run"), "error", type(error).__name__, error.message)
    elif error is not None and not failures:  # too many unparseable answers, which no test case above tells
        failures = 1
        _problem(case("run"), "failure", type(error).__name__, error.message)
    element.set("tests", str(len(element)))
    element.set("failures", str(failures))
    element.set("errors", str(errors))


def _problem(found: ET.Element, kind: str, of: str, said: str) -> None:
    ET.SubElement(found, kind, type=of, message=said).text = said


def _legal(text: str) -> str:
    """The text without characters that no XML may hold."""
    return UNSPEAKABLE.sub("\N{REPLACEMENT CHARACTER}", text)
