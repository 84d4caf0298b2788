"""A kind of another package has a verdict, a gate and JUnit; by its findings, or in its own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from llmfair import registry
from llmfair.audits.kind import results_of
from llmfair.audits.runs.run import perform
from llmfair.audits.subject import Subject
from llmfair.audits.verdict import Conclusions
from llmfair.errors import UsageError
from llmfair.metrics.base import Column
from llmfair.nouns import Conclusion
from llmfair.results import Finding, RunVerdict
from tests.cli.command import llmfair
from tests.outside.counter import Counter
from tests.outside.numbers import NUMBERS, NumbersDesign, NumbersKind, NumbersSettings


class ConcludingDesign(NumbersDesign):
    def findings(self, columns: Sequence[Column]) -> Mapping[str, Finding]:
        return {
            "plain": Finding(measure="MeanRatio", conclusion=Conclusion.OUTSIDE, reason=None),
            "warned": Finding(measure="MeanRatio", conclusion=Conclusion.WITHIN, reason=None),
        }


class ConcludingKind(NumbersKind):
    def design(self, settings: NumbersSettings, subject: Subject | None = None) -> NumbersDesign:
        plain = super().design(settings, subject)
        return ConcludingDesign(
            **{name: getattr(plain, name) for name in (one.name for one in fields(plain))}
        )


class OwnWords(ConcludingKind):
    statuses = ("uneven", "even")

    def verdict(self, found: Conclusions) -> RunVerdict:
        return RunVerdict(
            status="uneven", sentence=f"numbers of {found.words.protected} items are low", next="rest"
        )


@pytest.fixture(params=[NUMBERS, ConcludingKind(), OwnWords()], ids=["silent", "concluding", "own"])
def status(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The status that this kind's audits come to."""
    registry.names("audit"), registry.names("backend")
    for what, name, thing in (("audit", "numbers", request.param), ("backend", "counter", Counter)):
        monkeypatch.setitem(registry._found[what], name, thing)  # type: ignore[index]
    return {"OwnWords": "uneven", "ConcludingKind": "disparity"}.get(
        type(request.param).__name__, "not assessable"
    )


def asked(status: str, **settings: Any) -> Any:
    kind = registry.lookup("audit", "numbers")
    made = NumbersSettings.make(output=Path("run"), no_cache=True, model=("counter:x",), **settings)
    return perform(kind.design(made, Subject("counter:x")))


def test_it_has_a_verdict_and_a_gate(status: str) -> None:
    written = asked(status)
    assert written.error is None and written.results.verdict.status == status
    failed = asked(status, fail_on=status)
    assert failed.error is not None and f"the verdict is {status}: " in failed.error.message
    assert results_of(failed.folder).verdict.status == status
    with pytest.raises(UsageError, match="there is no verdict 'odd'"):
        asked(status, fail_on="odd")


def test_it_is_shown_measured_again_and_written_for_continuous_integration(status: str) -> None:
    asked(status)
    assert llmfair("runs", "show", "run").out.startswith(f"VERDICT  {status}: ")
    scored = llmfair("score", "run", "--fail-on", f"'{status}'", "--junit", "junit.xml")
    # nothing is concluded when its figures are measured again, unless the kind says so
    assert scored.code == (0 if status == "disparity" else 4)
    (suite,) = ElementTree.parse("junit.xml").getroot()
    assert suite.get("failures") == str(int(status != "disparity"))
    assert status in llmfair("runs", "list", "--runs-dir", ".").out
    if status == "disparity":
        sentence = results_of_run().verdict.sentence
        assert sentence.startswith(
            "under the plain condition female items are put behind male ones: MeanRatio 0."
        )


def results_of_run() -> Any:
    from llmfair.rundir import RunDir

    return results_of(RunDir(Path("run")))
