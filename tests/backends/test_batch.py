"""Programs whose questions go through files and batches, and servers that lose, refuse and misread them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from llmfair import errors
from llmfair.asking.batch import FILE, Batch, Batches, batch_of, dispatch_batch, in_files, read_sent
from llmfair.asking.dispatch import Program
from llmfair.asking.journal import Journal
from llmfair.asking.limits import Limits, Progress
from llmfair.backends.base import BackendOptions
from llmfair.backends.openai import OpenAI
from llmfair.nouns import Chat, Completion, Failure, Labels, Message, Permutation, Sampling, Steps
from tests.batch_server import BatchServer, Made, as_json
from tests.batch_server import unwaiting as unwaiting
from tests.fuzz.server.damages import status, thing
from tests.fuzz.server.front import Damage, Front, Mode
from tests.servers import Reply, rank


def chat(words: str, draw: int = 0) -> Chat:
    return Chat((Message("user", f"[1] {words}\n[2] other"),), Permutation(2), draw)


def asking(*steps: Sequence[Chat]) -> Steps[list[str]]:
    """A program that asks these chats, step by step, and returns the texts of all answers."""

    def program() -> Steps[list[str]]:
        texts: list[str] = []
        for chats in steps:
            answers: Sequence[Completion] = yield chats
            texts += [answer.text for answer in answers]
        return texts

    return program()


def program(name: str, *steps: Sequence[Chat]) -> Program:
    return Program(name, lambda: asking(*steps))


def each(names: Iterable[str]) -> list[Program]:
    """Programs that ask one chat each."""
    return [program(name, [chat(name)]) for name in names]


class Run:
    """One run folder, asked once or again; `told` is what a person saw."""

    def __init__(self, url: str, folder: str = "run", **limits: Any) -> None:
        self.url, self.folder, self.limits = url, Path(folder), Limits(**limits)
        self.told: list[str] = []
        self.progress = Progress()

    def all(self, *programs: Program) -> dict[str, Any]:
        """Results or Failures by probe of a run that comes to its end."""
        results, ended = self.ask(*programs)
        assert ended is None
        return results

    def ask(self, *programs: Program) -> tuple[dict[str, Any], errors.LlmfairError | None]:
        """Results or Failures by probe, and what ended the run."""
        self.folder.mkdir(exist_ok=True)
        backend = OpenAI("m", BackendOptions(base_url=self.url))
        journal = Journal(self.folder / "journal.jsonl", "run", backend.identity)
        self.progress = Progress(tell=self.told.append)
        results: dict[str, Any] = {}
        ended: errors.LlmfairError | None = None
        try:
            server = Batches(backend, self.limits.retries, self.limits.max_wait, self.progress.waits)
            asked = dispatch_batch(programs, server, journal, Sampling(), self.limits, self.progress)
            results.update(asked)
        except errors.LlmfairError as error:
            ended = error
        finally:
            journal.close()
        return results, ended


def test_a_file_holds_at_most_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfair.asking.batch.MOST_BYTES", 10)
    assert [len(file) for file in in_files((str(n), b"xxxx\n") for n in range(5))] == [2, 2, 1]
    assert [len(f) for f in in_files([("a", b"x" * 20), ("b", b"x")])] == [1, 1], "too long, but not lost"
    assert list(in_files([])) == []


def test_a_question_of_two_programs_is_one_line_and_a_second_step_the_next_batch() -> None:
    shared, second = chat("shared"), chat("second")
    with BatchServer() as server:
        run = Run(server.base_url)
        results, ended = run.ask(
            program("a", [shared, chat("x")]), program("b", [shared], [second]), program("c")
        )
        assert ended is None
        assert {name: len(texts) for name, texts in results.items()} == {"a": 2, "b": 2, "c": 0}
        assert results["a"][0] == results["b"][0]
        assert [len(made.lines) for made in server.batches] == [2, 1]
        assert (run.progress.calls, run.progress.answered, run.progress.replayed) == (3, 4, 1)
        assert run.ask(program("a", [shared, chat("x")]))[0]["a"] == results["a"]
        assert len(server.batches) == 2


def test_the_lines_are_the_bodies_of_single_requests() -> None:
    with BatchServer() as server:
        Run(server.base_url).ask(program("a", [chat("Ω \u2028 \\ \ud800", draw=2)]))
        (line,) = server.batches[0].lines
        assert line["body"] == {
            "model": "m", "temperature": 0.0, "max_tokens": 32, "seed": 2,
            "messages": [{"role": "user", "content": "[1] Ω \u2028 \\ \ud800\n[2] other"}],
        }  # fmt: skip
        assert server.files[server.batches[0].input_file_id].count(b"\n") == 1


def test_a_lost_reply_to_the_creation_makes_no_second_batch() -> None:
    """The connection is cut after the batch is made: it is found by its file, behind a page of strangers'."""
    events: list[str] = []

    def on(event: str) -> bool:
        events.append(event)
        return events.count("created") != 4 or event != "created"

    with BatchServer(on=on) as server:
        strangers = Run(server.base_url, "strangers", max_calls=1)
        for name in "xyz":
            strangers.ask(program(name, [chat(name)]))
        assert len(Run(server.base_url).all(*each("a"))["a"]) == 1
        assert len(server.batches) == 4 and events.count("create") == 4


@pytest.mark.parametrize("event", ["upload", "create", "look", "content"])
def test_a_connection_that_is_cut_twice_costs_nothing(event: str) -> None:
    cut = iter([False, False])

    with BatchServer(on=lambda what: next(cut, None) if what == event else None) as server:
        assert len(Run(server.base_url).all(*each("a"))["a"]) == 1
        assert set(server.submitted.values()) == {1} and next(cut, "used up") == "used up"


@pytest.mark.parametrize("event", ["upload", "create", "look", "content"])
@pytest.mark.parametrize("body", [b"<html>", b"null"])
def test_a_reply_that_is_something_else_is_asked_for_again(event: str, body: bytes) -> None:
    """The openai package raises a bare JSONDecodeError for a page; nor is a page a file without answers."""
    with BatchServer(spoil={event: [body, body]}) as server:
        assert len(Run(server.base_url).all(*each("a"))["a"]) == 1
        assert set(server.submitted.values()) == {1}
        assert len(server.spoil[event]) == (event == "create"), "what was made all the same is found"


def test_a_refusal_ends_its_program_and_a_passing_error_is_asked_again() -> None:
    def respond(body: dict[str, Any], attempt: int) -> Reply:
        text = body["messages"][0]["content"]
        if "long" in text:
            return Reply(status=400, body={"error": {"message": "no", "code": "context_length_exceeded"}})
        if "busy" in text and attempt == 1:
            return Reply(status=500, body={"error": {"message": "try again in 3s"}})
        if "filtered" in text:
            return Reply(status=400, body={"error": {"message": "no", "code": "content_filter"}})
        return rank(body, attempt)

    with BatchServer(respond) as server:
        programs = each(("long", "busy", "filtered", "fine"))
        results, ended = Run(server.base_url).ask(*programs)
        assert ended is None
        assert isinstance(results["long"], Failure) and results["long"].failure == "ContextTooLong"
        assert results["filtered"] == [""] and len(results["busy"][0]) == len(results["fine"][0])
        assert [len(made.lines) for made in server.batches] == [4, 1]


def test_what_no_question_can_survive_ends_the_run() -> None:
    refused = Reply(status=404, body={"error": {"message": "no such model", "code": "model_not_found"}})
    with BatchServer(lambda body, attempt: refused) as server:
        run = Run(server.base_url)
        _, ended = run.ask(program("a", [chat("a")]), program("b", [chat("b")]))
        assert type(ended) is errors.BackendError and "no such model" in ended.message
        assert len(server.batches) == 1
    answers_some = iter([rank({"messages": [{"role": "user", "content": "a"}]}, 1), refused])
    with BatchServer(lambda body, attempt: next(answers_some)) as server:
        results, ended = Run(server.base_url, "other").ask(
            program("a", [chat("a")]), program("b", [chat("b")])
        )
        assert isinstance(ended, errors.Incomplete) and "no such model" in ended.message
        assert results["a"] == ["OK"], "what was answered is kept, and told"


def test_the_other_name_of_the_limit_is_learnt_from_a_batch() -> None:
    def respond(body: dict[str, Any], attempt: int) -> Reply:
        if "max_completion_tokens" in body:
            return rank(body, attempt)
        error = {"message": "use the other", "code": "unsupported_parameter", "param": "max_tokens"}
        return Reply(status=400, body={"error": error})

    with BatchServer(respond) as server:
        results, ended = Run(server.base_url).ask(*each("abc"))
        assert ended is None and len(results) == 3 and len(server.batches) == 2


def test_one_of_two_batches_fails_and_the_other_is_collected_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfair.asking.batch.MOST_LINES", 2)
    error = {"code": "x", "line": 1, "message": "not now"}
    refusals = iter([error, None, None])
    programs = each("abcd")
    with BatchServer(refuse=lambda lines: next(refusals)) as server:
        run = Run(server.base_url)
        results, ended = run.ask(*programs)
        assert isinstance(ended, errors.Rejected) and not results and "at line 1: not now" in ended.message
        assert not Path("run/batch-1.jsonl").exists()
        assert "batch_2 runs on at" in run.told[-1]
        results, ended = run.ask(*programs)
        assert ended is None and len(results) == 4
        assert [len(made.lines) for made in server.batches] == [2, 2, 2]
        assert set(server.submitted.values()) == {1}


def test_prices_count_what_was_collected() -> None:
    with BatchServer() as server:
        run = Run(server.base_url, price_in=1e6, price_out=2e6)
        run.ask(*each("abc"))
        assert run.progress.cost == 3 * (10 + 2 * 5)


def test_a_batch_that_is_gone_and_files_that_are_damaged(tmp_path: Path) -> None:
    one = program("a", [chat("a")])
    with BatchServer(looks=10**9) as server:
        run = Run(server.base_url, max_wait=0.0, retries=0)
        server.on = lambda event: False if event == "look" else None
        _, ended = run.ask(one)
        assert isinstance(ended, errors.Unavailable) and "batch_1 runs on" in run.told[-1]
        server.on = lambda event: None
        made, server.batches = server.batches, []
        _, ended = run.ask(one)
        assert ended is not None and "no longer has batch_1" in ended.message
        server.batches, server.looks = made, 1
        lines = Path("run/batch-1.jsonl").read_bytes()
        Path("run/batch-1.jsonl").unlink()
        _, ended = run.ask(one)
        assert isinstance(ended, errors.RunConflict)
        assert "batch-1.jsonl does not hold the 1 lines of batch_1" in ended.message
        Path("run/batch-1.jsonl").write_bytes(lines)
        books = Path("run", FILE).read_text()
        for damaged in ("", "[]", '{"batches": [{"file": 1}]}'):
            Path("run", FILE).write_text(damaged)
            _, ended = run.ask(one)
            assert isinstance(ended, errors.RunConflict) and "run/batches.json: " in ended.message
        Path("run", FILE).write_text(books)
        assert len(run.all(one)["a"]) == 1 and len(server.batches) == 1


@pytest.mark.parametrize("gone", [1, 2])
def test_a_removed_entry_leaves_the_other_batch_its_file(gone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a lost batch's hint says; neither a batch that is open nor a file that is there lends its name."""
    monkeypatch.setattr("llmfair.asking.batch.MOST_LINES", 3)
    programs = each("abcdef")
    with BatchServer(looks=1, on=lambda event: event != "look") as server:
        run = Run(server.base_url, max_wait=0.0, retries=0)
        run.ask(*programs)
        assert len(server.batches) == 2
        books = json.loads(Path("run", FILE).read_text())
        books["batches"] = [one for one in books["batches"] if one["batch_id"] != f"batch_{gone}"]
        Path("run", FILE).write_text(json.dumps(books))
        server.on = lambda event: None
        assert len(run.all(*programs)) == 6
        assert sorted(server.submitted.values()) == [1, 1, 1, 2, 2, 2], "the other batch is not paid again"
        assert [one.file for one in read_sent(Path("run"))] == [f"batch-{3 - gone}.jsonl", "batch-3.jsonl"]
        assert [path.name for path in Path("run").glob("batch-*")] == [f"batch-{gone}.jsonl"]


def status_as_text(row: dict[str, Any]) -> bytes:
    return as_json(row | {"response": row["response"] | {"status_code": "200"}})


def torn(row: dict[str, Any]) -> bytes:
    return as_json(row)[:-1]


@pytest.mark.parametrize("spoil", [status_as_text, torn])
def test_an_odd_line_costs_its_question_only(spoil: Callable[[dict[str, Any]], bytes]) -> None:
    left = [1]
    odd = Chat((Message("user", "[1] odd\n[2] other"),), Labels(("A", "B")))

    def respond(body: dict[str, Any], attempt: int) -> Reply:
        return Reply("A") if "odd" in body["messages"][0]["content"] else rank(body, attempt)

    def write(row: dict[str, Any]) -> bytes:
        is_odd = row["response"]["body"]["choices"][0]["message"]["content"] == "A"
        if is_odd and left[0]:
            left[0] -= 1
            return spoil(row)
        return as_json(row)

    with BatchServer(respond, write=write) as server:
        results = Run(server.base_url, retries=0).all(program("odd", [odd]), *each("abc"))
        assert results["odd"] == ["A"] and len(results) == 4
        assert [len(made.lines) for made in server.batches] == [4, 1]


def test_a_question_whose_line_is_always_odd_fails_alone() -> None:
    odd = set[str]()

    def write(row: dict[str, Any]) -> bytes:
        odd.update([] if odd else [row["custom_id"]])
        return status_as_text(row) if row["custom_id"] in odd else as_json(row)

    with BatchServer(write=write) as server:
        results = Run(server.base_url).all(*each("abc"))
        assert len(results) == 3
        (failure,) = [result for result in results.values() if isinstance(result, Failure)]
        assert failure.message.startswith("no answer in 3 batches")
        assert "answers it with something else" in failure.message
        assert [len(made.lines) for made in server.batches] == [3, 1, 1]


def test_the_key_is_wanted_where_something_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert Run("https://api.openai.com/v1").all(program("none")) == {"none": []}
    _, ended = Run("https://api.openai.com/v1").ask(*each("a"))
    assert isinstance(ended, errors.MissingKey)
    assert [path.name for path in Path("run").iterdir()] == ["journal.jsonl"]


def ignore(cause: str, seconds: float) -> None:
    """Of a pause that nobody watches."""


LINE = b'{"custom_id": "a", "response": null}\n'


def looked(damage: Damage, call: Callable[[Batches], object], **options: Any) -> object:
    """What `call` gives, of a server that has one batch and a file, and answers with the damage."""
    with BatchServer() as server, Front(server) as front:
        server.batches.append(Made("batch_1", "file_0", []))
        server.files["file_1"] = LINE
        front.turn(Mode("", damage))
        given = BackendOptions(base_url=front.base_url, **{"timeout": 0.4, "max_reply": 100_000, **options})
        batches = Batches(OpenAI("m", given), retries=1, max_wait=0.1, waits=ignore)
        try:
            return call(batches)
        finally:
            batches.close()


def state(batches: Batches) -> object:
    return batches.state("batch_1").status


def test_a_wait_that_a_server_asks_for_is_kept_and_told() -> None:
    waits: list[tuple[str, float]] = []
    with BatchServer() as server, Front(server) as front:
        server.batches.append(Made("batch_1", "file_0", []))
        front.turn(Mode("", status(503, {}, Retry_After="0.3"), when=lambda number: number == 1))
        backend = OpenAI("m", BackendOptions(base_url=front.base_url, server_name="test"))
        batches = Batches(backend, 1, 1.0, lambda *wait: waits.append(wait))
        began = time.monotonic()
        assert batches.state("batch_1").status == "in_progress"
        assert time.monotonic() - began >= 0.3
        batches.close()
    ((cause, seconds),) = waits
    assert "answers 503" in cause and seconds == 0.3


@pytest.mark.parametrize(
    "told", [{"status": "quantum"}, {"status": None}, {"id": "../files"}, {"output_file_id": "\x1b[2J"}]
)
def test_what_is_no_batch_is_not_believed(told: dict[str, Any]) -> None:
    with pytest.raises(errors.BackendError, match=r"something else \(JSON of another form\)"):
        looked(thing(**told), state)


def test_a_line_that_is_too_long_costs_its_question_only() -> None:
    long = b'{"custom_id": "long", "response": "%b"}\n' % (b"x" * 250_000)
    with BatchServer() as server:
        server.files["file_1"] = LINE.replace(b'"a"', b'"b"') + long + LINE.rstrip()
        batches = Batches(
            OpenAI("m", BackendOptions(base_url=server.base_url, max_reply=100_000)), 0, 1.0, ignore
        )
        answers = batches.answers(Batch("batch_1", "completed", "file_1"), 3)
        assert [*answers] == ["b", "long", "a"] and answers["a"] == LINE.rstrip()
        batches.close()


def test_what_a_server_leaves_empty_it_does_not_have() -> None:
    empty = b'{"id": "b1", "status": "completed", "output_file_id": "f1", "error_file_id": "", "errors": []'
    batch = batch_of(empty + b', "request_counts": {"total": null}}')
    assert (batch.error_file_id, batch.errors, batch.words) == (None, None, "completed")
