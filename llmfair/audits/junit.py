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

    def problem(of: ET.Element, kind: str, name: str, text: str) -> None:
        ET.SubElement(of, kind, type=name, message=text).text = text

    if verdict := suite.verdict:
        test = case("verdict")
        if refused(verdict, fail_on) is not None:
            problem(test, "failure", verdict.status, verdict.sentence)
        ET.SubElement(test, "system-out").text = f"{verdict.status}: {verdict.sentence}\n{verdict.next}"
    for gate in suite.requirements:
        test = case(f"{gate.require} ({gate.key}{f', {gate.group}' if gate.group else ''})")
        if not gate.holds:
            problem(test, "failure", "require", str(gate.reason))
    if error := suite.error:
        failed = isinstance(error, RequirementFailed)
        # too many unparseable answers are told by no test case above
        if not failed or element.find(".//failure") is None:
            problem(case("run"), "failure" if failed else "error", type(error).__name__, error.message)
    element.set("tests", str(len(element)))
    for kind in ("failure", "error"):
        element.set(f"{kind}s", str(len(element.findall(f".//{kind}"))))


def _legal(text: str) -> str:
    """The text without characters that no XML may hold."""
    return UNSPEAKABLE.sub("\N{REPLACEMENT CHARACTER}", text)
