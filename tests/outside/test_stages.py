"""A run in two stages: who answers first and who is asked about the answers have a model and a journal each."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llmfair import registry
from llmfair.asking.batch import read_sent
from llmfair.asking.dispatch import Program
from llmfair.audits.comparing import compare
from llmfair.audits.design import Stage
from llmfair.audits.plan import plan
from llmfair.audits.runs.exhibits import answers_of, check_run, drawn_answers
from llmfair.audits.runs.run import perform
from llmfair.audits.subject import Subject
from llmfair.backends.base import Backend, BackendOptions
from llmfair.backends.openai import OpenAI
from llmfair.errors import Incomplete, RunConflict, UsageError
from llmfair.nouns import Chat, Completion, Finish, Message, Request, Steps, Text
from llmfair.results import ProbeCounts
from llmfair.rundir import RunDir
from tests.batch_server import BatchServer
from tests.batch_server import unwaiting as unwaiting
from tests.finished import audit
from tests.outside.counter import Counter
from tests.outside.numbers import Number, NumbersDesign, NumbersKind, NumbersSettings
from tests.servers import Reply


class Judge(Counter):
    """Doubts every number: says one less. Fails while `down`."""

    down = False
    asked = 0

    async def complete(self, request: Request) -> Completion:
        if Judge.down:
            raise UsageError("the judge is down.", "wait")
        Judge.asked += 1
        return Completion(str(int(request.chat.messages[0].content) - 1), Finish.STOP)


@dataclass(frozen=True, kw_only=True)
class DoubtedDesign(NumbersDesign):
    """Numbers, each put to a judge whose number counts."""

    task = "doubted"
    judge: Backend = field(default_factory=lambda: Judge("judge", BackendOptions()))

    @property
    def calls(self) -> int:
        return 2 * super().calls

    def stages(self) -> Sequence[Stage]:
        return [Stage("judged", self.judging, lambda: self.judge)]

    def judging(self, results: Mapping[str, Number | None]) -> Iterator[Program]:
        for probe_id, row in results.items():
            assert row is not None
            yield Program(f"judged/{probe_id}", partial(self.doubt, row), condition=row.condition)

    def doubt(self, row: Number) -> Steps[Number | None]:
        (answer,) = yield [Chat((Message("user", f"{row.number:.0f}"),), Text(), about={"side": "protected"})]
        return replace(row, number=float(answer.text))

    def rows(self, results: Mapping[str, Number | None]) -> Iterator[Number]:
        return (row for key, row in results.items() if row is not None and key.startswith("judged/"))


class DoubtedKind(NumbersKind):
    name = "doubted"

    design = DoubtedDesign.make


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.names("audit"), registry.names("backend")
    for what, name, thing in (("audit", "doubted", DoubtedKind()), ("backend", "counter", Counter)):
        monkeypatch.setitem(registry._found[what], name, thing)  # type: ignore[index]
    Judge.down, Judge.asked = False, 0


def settings_of(output: str, limit: int = 3, **given: Any) -> NumbersSettings:
    return NumbersSettings.make(limit=limit, output=Path(output), no_cache=True, **given)


def doubted(output: str, **given: Any) -> Any:
    return audit(DoubtedKind().design(settings_of(output, **given), Subject("counter:x")))


def journal(path: str) -> list[Any]:
    return [row for line in Path(path).read_text().splitlines() if "key" in (row := json.loads(line))]


def test_each_stage_has_its_model_and_its_journal() -> None:
    found = doubted("run")
    first, second = journal("run/journal.jsonl"), journal("run/judged.jsonl")
    assert len(first) == 3 * 40 * 2 and 1 < len(second) == Judge.asked <= 8  # equal questions are asked once
    assert {row["text"][0] for row in second} <= set("0123456789")
    assert found.results.status == "complete"
    manifest = RunDir(Path("run")).read_manifest()
    assert manifest.settings["stages"] == {"judged": "counter judge"}
    answers = len(first) + len(second)
    assert check_run(RunDir(Path("run"))) == {"answers": answers, "problems": [], "notes": []}
    assert len(answers_of(RunDir(Path("run")))) == len(first) + len(second)
    assert check_run(RunDir(Path(shutil.copytree("run", "copy"))))["problems"] == []

    asked = Judge.asked
    assert doubted("run").results == found.results and Judge.asked == asked


@pytest.mark.whole
def test_every_stage_is_counted_and_shown() -> None:
    settings = replace(settings_of("run"), model=("counter:x",))
    planned = plan(DoubtedKind(), settings)
    assert (planned["calls"], planned["answered"]) == (480, 0)
    found = doubted("run")
    run = RunDir(Path("run"))
    answers = len(journal("run/journal.jsonl")) + len(journal("run/judged.jsonl"))
    planned = plan(DoubtedKind(), settings)
    assert planned["answered"] == answers
    assert run.summary()["answers"] == answers
    shown = drawn_answers(run, run.read_manifest(), 1000)
    assert len(shown) == answers and any(one.probe.startswith("judged/") for one in shown)
    assert all(ended == ProbeCounts(240, 240) for ended in found.results.chains.values())


@pytest.mark.whole
def test_a_judge_that_fails_leaves_an_incomplete_run_that_goes_on() -> None:
    Judge.down = True
    with pytest.raises(Incomplete):
        doubted("run")
    assert RunDir(Path("run")).read_manifest().status == "incomplete"
    assert len(journal("run/journal.jsonl")) == 240
    assert RunDir(Path("run")).read_results()["status"] == "incomplete"
    with pytest.raises(Incomplete):
        check_run(RunDir(Path("run")))
    with pytest.raises(UsageError, match="run is incomplete"):
        compare([RunDir(Path("run")), RunDir(Path(shutil.copytree("run", "copy")))])
    Judge.down = False
    assert doubted("run").results.status == "complete"
    doubted("whole")
    for name in ("metrics.csv", "per_query.csv", "doubted.csv"):
        run, whole = (Path(folder, name).read_text() for folder in ("run", "whole"))
        assert run.replace("\nrun,", "\nwhole,") == whole


@pytest.mark.whole
def test_a_judge_s_answers_that_are_gone_are_missed_not_asked_again() -> None:
    doubted("run")
    asked = Judge.asked
    Path("run/judged.jsonl").rename("elsewhere")
    assert check_run(RunDir(Path("run")))["problems"] == ["judged.jsonl is missing"]
    with pytest.raises(RunConflict, match=r"judged.jsonl holds 0 answers"):
        doubted("run")
    assert Judge.asked == asked
    Path("elsewhere").rename("run/judged.jsonl")
    assert doubted("run").results.status == "complete" and Judge.asked == asked


@pytest.mark.whole
def test_a_judge_s_answers_that_were_changed_are_found() -> None:
    doubted("run")
    path = Path("run/judged.jsonl")
    path.write_text(path.read_text().replace('"text":"4"', '"text":"9"'))
    said = "doubted.csv does not follow from the journal's answers"
    assert said in check_run(RunDir(Path("run")))["problems"]


@pytest.mark.whole
def test_a_fresh_run_that_was_cut_off_asks_the_judge_again() -> None:
    doubted("run")
    asked = Judge.asked
    with pytest.raises(Incomplete):
        doubted("run", fresh=True, max_calls=10)
    assert not Path("run/judged.jsonl").exists() and Path("run/judged.1.jsonl").exists()
    assert doubted("run").results.status == "complete" and Judge.asked == 2 * asked


def test_a_judge_s_torn_line_is_told_and_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    doubted("run")
    path = Path("run/judged.jsonl")
    header, first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, first[: len(first) // 2] + "\n", *rest]))
    written = perform(DoubtedKind().design(settings_of("run"), Subject("counter:x")))
    assert f"{path}:2: not readable, skipped; its answer was asked again" in capsys.readouterr().err
    assert written.results.status == "complete"


class Listed(DoubtedDesign):
    """Writes its results down as they are handed to it."""

    def files(self, results: Mapping[str, Number | None]) -> Mapping[str, str]:
        return {"doubted.csv": "\n".join(results)}


class ListedKind(DoubtedKind):
    design = Listed.make


def test_results_come_as_they_were_asked_whoever_was_answered_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._found["audit"], "doubted", ListedKind())

    async def late(self: Counter, request: Request) -> Completion:
        await asyncio.sleep(int(request.key[0], 16) / 500)
        return Completion("4", Finish.STOP)

    monkeypatch.setattr(Counter, "complete", late)
    audit(ListedKind().design(settings_of("run", 1), Subject("counter:x")))
    assert check_run(RunDir(Path("run")))["problems"] == []


@pytest.mark.whole
def test_an_interrupt_in_the_second_stage_leaves_its_batch_to_be_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def respond(body: dict[str, Any], attempt: int) -> Reply:
        words = body["messages"][0]["content"]
        return Reply(f"{int(words) - 1 if words.isdecimal() else 1 + len(words) % 9}")

    def on(event: str) -> None:
        if event == "created" and len(server.batches) == 2:
            server.looks = 10**9

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    def by_batch(output: str, batch: bool = True) -> Any:
        options = BackendOptions(base_url=server.base_url, server_name="test")
        settings = settings_of(output, batch=batch, base_url=(server.base_url,), server_name="test")
        design = DoubtedKind().design(settings, Subject("openai:any"))
        return audit(replace(design, judge=OpenAI("judge", options)))

    with BatchServer(respond, on=on, looks=1) as server:
        with monkeypatch.context() as stopped, pytest.raises(KeyboardInterrupt):
            stopped.setattr("llmfair.asking.batch.time.sleep", interrupt)
            by_batch("run")
        lines = len(server.batches[1].lines)
        assert [(one.journal, one.answers) for one in read_sent(Path("run"))] == [
            ("journal.jsonl", 240), ("judged.jsonl", None),
        ]  # fmt: skip
        with pytest.raises(RunConflict, match="batches that are not collected"):
            by_batch("run", batch=False)
        server.looks = 1
        assert by_batch("run").results.status == "complete"
        assert len(server.batches) == 2 and not server.requests and set(server.submitted.values()) == {1}
        assert [one.answers for one in read_sent(Path("run"))] == [240, lines]
        by_batch("calm")
    for name in ("metrics.csv", "per_query.csv"):
        assert Path("run", name).read_text() == Path("calm", name).read_text().replace("calm,", "run,")


def test_a_judge_without_batches_is_asked_question_by_question() -> None:
    with BatchServer(lambda body, attempt: Reply("7"), looks=1) as server:
        settings = settings_of("run", 1, batch=True, base_url=(server.base_url,), server_name="test")
        audit(DoubtedKind().design(settings, Subject("openai:any")))
        assert len(server.batches) == 1 and Judge.asked == 1


def test_batches_noted_before_there_were_stages_are_of_the_first() -> None:
    Path("batches.json").write_text(
        '{"batches": [{"file": "batch-1.jsonl", "lines": 1, "input_file_id": "b"}]}'
    )
    assert [one.journal for one in read_sent(Path())] == ["journal.jsonl"]


def test_a_kind_that_has_another_stage_now_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    doubted("run")
    monkeypatch.setattr(DoubtedDesign, "stages", lambda self: [])
    said = "what is asked, stage by stage, is not what it was at the time of the run"
    assert check_run(RunDir(Path("run")))["problems"] == [said]
