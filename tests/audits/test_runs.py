"""What stands behind a number, and what a run says of its own making: counts, replays, costs, what names it."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from llmfair.asking.limits import Progress
from llmfair.audits.listwise.measure import answer_counts
from llmfair.audits.listwise.results import OmittedItems
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.runs.run import Spending, session
from llmfair.audits.subject import Subject
from llmfair.cli.audits import cost_text
from llmfair.errors import LlmfairError
from llmfair.nouns import Completion, Finish, Ranking, Side
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.strategies import Ranked, WindowAnswer
from llmfair.rundir import RunDir
from tests.asking.test_journal import request
from tests.cli.command import Outcome, copied, kept, llmfair, only_run, process, ran, refuses
from tests.datasets.trec_sources import NAME, made
from tests.folders import balanced, write, write_folder
from tests.manifests import invocation, manifest
from tests.servers import Reply, Server, faulty, rank

SMALL = ("listwise", "-n", "3", "--orders", "1", "--passes", "1")


def window(shown: tuple[str, ...], omitted: tuple[str, ...], **changed: Any) -> WindowAnswer:
    known: dict[str, Any] = {
        "pass_number": 1, "start": 0, "end": len(shown), "answer_class": AnswerClass.MISSING,
        "repaired": True, "unparseable": False, "permutation": None, "shown": shown,
        "omitted": omitted, "draw": 0,
    }  # fmt: skip
    return WindowAnswer(**(known | changed))


@pytest.mark.whole
def test_omissions_are_compared_with_the_share_shown() -> None:
    sides = {**{f"f{i}": Side.PROTECTED for i in range(2)}, **{f"m{i}": Side.UNPROTECTED for i in range(6)}}
    shown = tuple(sides)
    ranked = Ranked(Ranking("q", shown), (window(shown, ("f0", "f1", "m0", "m1")), window(shown, ("m0",))))
    counts = answer_counts([("neutral", ranked)], sides)["neutral"]
    assert counts.omitted == OmittedItems(items=5, protected=2, protected_expected=5 * 2 / 8)
    of_groups = answer_counts([("neutral", ranked)], None)["neutral"].omitted
    assert of_groups == OmittedItems(items=5, of=counts.omitted.of)  # of no sides
    assert (counts.windows, counts.repaired, counts.unparseable) == (2, 2, 0)


@pytest.mark.whole
def test_answers_that_were_replaced_are_counted_and_said() -> None:
    with Server(faulty(rank, rate_malformed=0.3)) as server:
        found = llmfair(*SMALL, *server.flags, "--on-bad-answer", "retry:2", "--json")
        conditions = found.json["answers"].values()
        again = sum(sum(condition["asked_again"].values()) for condition in conditions)
        assert again == len(server.requests) - sum(condition["windows"] for condition in conditions) > 10


@pytest.mark.whole
def test_repaired_answers_are_no_reason_for_the_gate_and_unreadable_ones_are() -> None:
    with Server(lambda body, attempt: Reply(str(rank(body, attempt).text)[:90])) as server:
        assert "repaired: 100.0 %" in ran(*SMALL, *server.flags).out
    with Server(lambda body, attempt: Reply(None)) as server:
        found = llmfair(*SMALL, *server.flags)
    assert found.code == 4
    assert "100.0 % of the answers are unparseable" in found.out and "% less exposure" not in found.out


@pytest.mark.whole
@pytest.mark.parametrize("name", ["results.json", "rankings/female.run"])
def test_check_notices_a_changed_or_missing_file(name: str) -> None:
    path = copied("listwise", "run") / name
    path.write_text(path.read_text().replace("1", "2", 1))
    changed = llmfair("runs", "check", "run")
    assert changed.code == 1 and f"{name} does not follow from the journal's answers" in changed.out
    path.unlink()
    assert f"{name} is missing" in llmfair("runs", "check", "run").out


@pytest.mark.whole
def test_failures_of_one_query_and_a_damaged_run() -> None:
    path = copied("listwise", "runs/run") / "journal.jsonl"
    with path.open("a") as journal:
        for probe in ("physics/neutral/o0/r0", "judged/physics/d1", "metaphysics/neutral/o0/r0"):
            row = {"failure": "Rejected", "message": "no", "probe": probe, "at": "now"}
            print(json.dumps(row), file=journal)
    for asked, found in (((), 3), (("--query", "physics"), 2), (("--query", "neutral/o1"), 0)):
        shown = ran("runs", "show", "run", "--failures", *asked, "--json").json["rows"]
        assert len(shown) == found, shown
    Path("runs/run/manifest.json").write_text("")
    assert [row["status"] for row in llmfair("runs", "list", "--json").json["runs"]] == ["damaged"]


@pytest.mark.whole
def test_the_same_lists_however_named_are_the_same_run_and_other_sides_another(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mine", balanced(3, 6, 6))
    few = ("--orders", "1", "--passes", "1", "--no-report", "-q")
    for name in ("./mine", folder):
        ran("listwise", "-d", name, *few)
    ran("listwise", "-d", "mine", *few, *"-n 99 --queries q2,q1,q0 --conditions neutral,male,female".split())
    assert kept("manifest")["calls"] == 0
    words = 'words = { protected = "male", unprotected = "female" }'
    (folder / "attributes.toml").write_text(
        f'[gender]\nprotected = ["male"]\nunprotected = ["female"]\n{words}\n'
    )
    ran("listwise", "-d", "mine", *few)
    assert len(list(Path("runs").iterdir())) == 2


@pytest.mark.whole
def test_the_reach_of_precision_speaks_of_judged_queries_only() -> None:
    rows = [(f"d{i}", ("male", "female")[i % 2], int(i < 4)) for i in range(8)]
    folder = write_folder(Path("mine"), {"a": rows})
    write(folder / "queries.tsv", ["a\tA", "b\tB"])
    write(folder / "candidates.run", [f"{q} Q0 d{i} {i + 1} {8 - i} x" for q in "ab" for i in range(8)])
    found = llmfair("listwise", "-d", folder, "--orders", "1", "-m", "fake:oracle,malformed=0", "--json").json
    value = next(r["value"] for r in found["rows"] if (r["measure"], r["condition"]) == ("P@20", "neutral"))
    assert found["reach"]["P@20"]["high"] == pytest.approx(value) == pytest.approx(4 / 20)


@pytest.mark.whole
def test_a_title_that_no_encoding_can_write() -> None:
    folder = write_folder(Path("mine"), balanced(1, 3, 3))
    text = (folder / "docs.jsonl").read_text().replace("Title q0f0", "lone \\ud800 surrogate")
    (folder / "docs.jsonl").write_text(text)
    with Server(lambda body, attempt: Reply(f"\x1b[31m {rank(body, attempt).text} \ud800")) as server:
        ran(*SMALL, "-d", folder, *server.flags, "--no-report")
    ran("runs", "check", only_run())
    out, _ = process("runs", "show", only_run(), "--answers").communicate()
    assert "\\x1b[31m" in out and "\x1b" not in out


@pytest.mark.whole
def test_a_long_answer_is_cut_where_it_is_shown_and_whole_in_the_journal() -> None:
    run = copied("listwise", "run")
    first, *rows = (run / "journal.jsonl").read_text().splitlines()
    rows = [json.dumps(r | {"text": "no " * 32_768} if "text" in r else r) for r in map(json.loads, rows)]
    write(run / "journal.jsonl", [first, *rows])
    shown = ran("runs", "show", run, "--answers").out
    ran("report", run)
    for text in (shown, (run / "report.html").read_text()):
        assert "n… 98,304 characters" in text and "no " * 2_000 not in text


@pytest.mark.whole
def test_results_that_cannot_be_read_are_not_called_missing() -> None:
    path = copied("listwise", "run") / "results.json"
    path.write_text(path.read_text()[:100])
    assert "writes it again" in refuses(f"{path}: not JSON: ", "runs", "show", "run").err
    path.unlink()
    refuses("has no results yet", "runs", "show", "run")


@pytest.mark.whole
def test_a_run_that_is_not_complete_shows_the_command_that_completes_it() -> None:
    model = ("-m", "fake:biased,malformed=0")
    broken = llmfair("pairwise", "--sequential", *model, "-n", "6", "--max-calls", "30", "-o", "my run/one")
    assert broken.code == 3
    lead = ran("runs", "show", "my run/one").out.partition("\n\n")[0]
    command = " ".join(lead.partition("NEXT ")[2].split())
    words = shlex.split(command)
    assert words[:2] == ["llmfair", "pairwise"] and "--sequential" in words
    (Path("my run/one") / "results.json").unlink()
    untold = llmfair("runs", "show", "my run/one")
    assert untold.code == 2 and f"{command}    completes it" in untold.err
    ran(*words[1:])
    assert kept("manifest", "my run/one")["status"] == "complete"
    assert command not in " ".join(ran("runs", "show", "my run/one").out.split())


@pytest.mark.whole
def test_a_run_of_another_machine_is_compared_to_twelve_digits() -> None:
    copied("listwise", "run")
    assert ran("runs", "check", "run", "--json").json["notes"] == []
    results = Path("run", "results.json")
    told = results.read_text()
    number = next(one for one in re.findall(r"\d\.\d{15,}\b", told))
    results.write_text(told.replace(number, repr(float(number) * (1 + 1e-14))))
    assert "compared to 12 digits: results.json" in ran("runs", "check", "run").out
    results.write_text(told.replace(number, repr(float(number) * (1 + 1e-9))))
    refused = llmfair("runs", "check", "run")
    assert refused.code == 1 and "results.json does not follow" in refused.out


LISTWISE = tuple("listwise -q -d mine --no-report --max-invalid 1 --conditions neutral --orders 1".split())


def group(attribute: str, name: str = "Asia") -> None:
    """A group of one more attribute for some items."""
    path = Path("mine/groups.tsv")
    write(path, [*path.read_text().splitlines(), *(f"q{q}f0\t{attribute}\t{name}" for q in range(5))])


@pytest.mark.whole
def test_the_run_goes_on_with_groups_of_another_attribute() -> None:
    write_folder(Path("mine"), balanced(5, 4, 4))
    ran(*LISTWISE)
    run = only_run()
    group("location")
    ran(*LISTWISE)
    assert only_run() == run and kept("manifest")["calls"] == 0
    ran("runs", "check", run)
    group("gender", "male")  # an item of both sides is audited
    refuses("belongs to other settings (lists_sha256", *LISTWISE, "-o", run, code=1)


def test_what_is_not_in_a_run_s_cost_is_said() -> None:
    told, free, killed = invocation(5, 0.5), invocation(3), invocation()
    assert cost_text(manifest(told, cost=0.5)) == "the run in all: 5 calls, cost 0.5000"
    text = cost_text(manifest(told, free, killed, told, cost=1.0), Progress(calls=1, cost=0.25))
    assert text.startswith(
        "this command: 1 call, cost 0.2500; the run in all: 10 calls, cost 1.0000, and 3 calls "
    )
    assert text.endswith("made without prices")
    assert cost_text(manifest(free, killed)) == ""


# What runs are called: by a label, and by the server that answered


LISTS = (
    "listwise", "-q", "-n", "5", "--conditions", "neutral", "--no-repeat", "--orders", "1", "--passes", "1",
    "--max-invalid", "1", "--on-bad-answer", "repair", "--no-cache",
)  # fmt: skip


@pytest.mark.whole
def test_two_servers_are_told_apart() -> None:
    with Server(rank) as server:
        for name in ("gpu-3", "gpu-4"):
            ran(*LISTS, *server.flags, "--server-name", name)
    one, two = sorted(Path("runs").iterdir())
    assert ("any-gpu-3-" in one.name) and ("any-gpu-4-" in two.name)
    listed = llmfair("runs", "list").out
    assert "openai:any at gpu-3" in listed and "openai:any at gpu-4" in listed
    assert "openai:any at gpu-3" in llmfair("runs", "show", one).out
    compared = llmfair("compare", one, two, "--json").json
    assert [run["name"] for run in compared["runs"]] == ["openai:any at gpu-3", "openai:any at gpu-4"]
    results = kept("results", one)
    assert results["model"] == "openai:any" and "server" not in results  # no other answers, no other results


@pytest.mark.whole
def test_a_label_is_what_the_run_is_called() -> None:
    ran(*LISTS, "--label", "nightly")
    run = only_run()
    manifest = kept("manifest")
    assert "nightly: fake:biased, a simulated model" in llmfair("runs", "show", run).out
    ran(*LISTS, "--label", "weekly")  # the same run, called otherwise
    assert only_run() == run and kept("manifest")["settings"] == manifest["settings"]
    listed = llmfair("runs", "list").out
    assert "weekly: fake:biased" in listed and "nightly" not in listed
    for label in ("chance", "weekly"):
        ran(*LISTS, "-m", "fake:random", "--label", label, "-o", label)
    ran(*LISTS, "--temperature", "0.5", "--label", "weekly", "-o", "again")
    for other, names in (
        ("chance", ["weekly", "chance"]),
        ("weekly", ["weekly: fake:biased", "weekly: fake:random"]),
        ("again", [run.name, "again"]),
    ):
        compared = llmfair("compare", run, other, "--json").json
        assert [each["name"] for each in compared["runs"]] == names
    shown = ran("report", run, "weekly", "--format", "md").out
    assert "weekly: fake:biased" in shown and "weekly: fake:random" in shown


# A finished command repeated says the same and writes nothing; whatever ends the work, the manifest says what there is.


REPEATED = tuple(
    "listwise -d data -m fake:biased,malformed=0 --window 5 --step 5 --orders 1 --permutations 99 --no-report".split()
)
PAIRS = ("pairwise", "-d", "data", "-m", "fake:biased,malformed=0", "--pairs", "8")


@pytest.fixture
def data() -> Path:
    return write_folder(Path("data"), balanced(6, 4, 4))


def written() -> dict[str, tuple[bytes, int]]:
    """What is in the folder, and when it was written; the lock says who looked last."""
    found = (path for path in Path("run").rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def repeated(*words: str, measured: bool) -> Outcome:
    """A command that finds the folder of an earlier one, and whether it measures anew."""
    before = kept("manifest", "run")["invocations"]
    found = llmfair(*words, "-o", "run")
    assert (len(kept("manifest", "run")["invocations"]) > len(before)) == measured, found.err
    return found


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("words", "report"),
    [
        pytest.param(REPEATED, "--report", marks=pytest.mark.whole),
        (REPEATED, "--no-report"),
        (PAIRS, "--no-report"),
    ],
)
def test_repeated_it_says_the_same_and_writes_nothing(words: tuple[str, ...], report: str) -> None:
    words = (*words, report)
    ran(*words, "-o", "run")
    before = written()
    kept = repeated(*words, measured=False)
    assert written() == before and ("run/report.html" in before) == (report == "--report")
    Path("run/results.json").touch()
    assert repeated(*words, measured=True) == kept
    assert [path for path in before if path not in written()] == []


@pytest.mark.whole
@pytest.mark.usefixtures("data")
def test_a_gate_that_is_not_met_is_told_again() -> None:
    words = (*REPEATED, "--require", "P@20>=2", "--fail-on", "disparity", "--junit", "first.xml")
    first = llmfair(*words, "-o", "run")
    again = repeated(*words[:-1], "again.xml", measured=False)
    assert (first.code, again.code) == (4, 4) and again.out == first.out
    assert Path("again.xml").read_bytes() == Path("first.xml").read_bytes()


def edit(name: str, old: str, new: str) -> None:
    text = Path(name).read_text()
    assert old in text
    Path(name).write_text(text.replace(old, new, 1))


CHANGES: list[tuple[Callable[[pytest.MonkeyPatch], object], tuple[str, ...]]] = [
    (lambda patch: edit("data/groups.tsv", "q0f0\t", "q0f0\tlocation\tCaribbean\nq0f0\t"), ()),
    (lambda patch: edit("run/results.json", '"value"', '"valve"'), ()),
    (lambda patch: Path("run/rankings/neutral.run").unlink(), ()),
    (lambda patch: patch.setattr("llmfair.audits.runs.run.newest", lambda package: 0), ()),
    (lambda patch: None, ("--measures", "P@5")),
    (lambda patch: None, ("--fresh",)),
]


@pytest.mark.whole
@pytest.mark.usefixtures("data")
def test_after_a_change_all_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    ran(*REPEATED, "-o", "run")
    for change, words in CHANGES:
        change(monkeypatch)
        found = repeated(*REPEATED, *words, measured=True)
        assert found.code == 0, found.err
        again = repeated(*REPEATED, *(word for word in words if word != "--fresh"), measured=False)
        assert again.out == found.out


@pytest.mark.whole
@pytest.mark.usefixtures("data")
def test_a_page_is_drawn_again_where_it_is_wanted_and_not_there() -> None:
    ran(*REPEATED, "--report", "-o", "run")
    page = Path("run/report.html").read_bytes()
    Path("run/report.html").unlink()
    repeated(*REPEATED, "--report", measured=False)
    assert Path("run/report.html").read_bytes() == page
    repeated(*REPEATED, "--no-report", measured=True)
    assert not Path("run/report.html").exists()
    Path("run/report.html").write_text("as `llmfair report run` draws it")
    repeated(*REPEATED, "--no-report", measured=False)
    assert Path("run/report.html").exists()


@pytest.mark.whole
@pytest.mark.usefixtures("data")
def test_another_process_keeps_what_was_found_in_a_fetched_collection(tmp_path: Path) -> None:
    ran("datasets", "fetch", NAME, "--yes", *made(60).copies(tmp_path), "--index", "pool")
    words = ("refine", "-d", f"{NAME}/gender", "--max-iterations", "1", "--no-report", "-o", "run")
    first, _ = process(*words).communicate(timeout=60)
    before = written()
    again, _ = process(*words).communicate(timeout=60)
    assert again == first and written() == before


@pytest.mark.whole
@pytest.mark.usefixtures("data")
def test_an_incomplete_run_is_never_taken_as_it_stands() -> None:
    assert llmfair(*REPEATED, "--max-calls", "3", "-o", "run").code == 3
    assert "made" not in json.loads(Path("run/manifest.json").read_text())
    assert repeated(*REPEATED, measured=True).code == 0
    repeated(*REPEATED, measured=False)


# A run folder while it is worked on


@pytest.mark.parametrize("fails", ["on the way", "at the end"])
def test_a_disk_that_fails_leaves_an_honest_manifest(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync
    failed: list[int] = []

    def failing_once(file: int) -> None:
        if not failed:
            failed.append(file)
            raise OSError(5, "Input/output error")
        real(file)

    monkeypatch.setattr("llmfair.asking.journal.FSYNC_SECONDS", 0.0 if fails == "on the way" else 60.0)
    folder = RunDir(tmp_path / "run")
    with (
        pytest.raises(LlmfairError, match="Input/output error"),
        session(folder, {"task": "listwise", "identity": "fake"}, False, {}) as (journal, manifest),
    ):
        monkeypatch.setattr("llmfair.asking.journal.os.fsync", failing_once)
        journal.put(request("a"), Completion("answer to a", Finish.STOP), attempts=1)
        while fails == "on the way":
            journal.put(request("b"), Completion("answer to b", Finish.STOP), attempts=1)
        manifest["status"] = "complete"
    written = json.loads((tmp_path / "run" / "manifest.json").read_text())
    lines = (tmp_path / "run" / "journal.jsonl").read_text().splitlines()[1:]
    answers = {json.loads(line)["key"] for line in lines}
    assert written["status"] == "incomplete" and written["invocations"][-1]["ended"]
    assert written["journal_answers"] == len(answers) >= 1


def test_a_journal_that_lost_one_answer_is_not_the_run_s() -> None:
    ran(*SMALL, "-o", "run", "-q", "--no-report")
    journal = Path("run/journal.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]))
    told = f"holds {len(lines) - 2} answers, 1 fewer than were given."
    refuses(told, *SMALL, "-o", "run", "-q", "--no-report", code=1)


def test_a_line_of_the_journal_that_cannot_be_read_is_named() -> None:
    ran(*SMALL, "-o", "run", "-q", "--no-report")
    journal = Path("run/journal.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join([*lines[:2], "torn\n", *lines[3:]]))
    again = ran(*SMALL, "-o", "run", "-q", "--no-report")
    assert "journal.jsonl:3: not readable, skipped; its answer was asked again if needed" in again.err


def test_what_one_run_of_a_command_spent_the_next_one_lacks() -> None:
    spending, subject = Spending(), Subject("fake:biased")
    settings = ListwiseSettings.make(max_calls=10, max_cost=1.0, price_in=1.0, price_out=1.0)
    progress = Progress(calls=4, cost=0.25)
    with (
        spending.run(settings, subject, lambda *_: nullcontext()) as (_, noting),
        noting(Path("run"), {}, progress, 0),
    ):
        pass
    with spending.run(settings, subject, lambda *_: nullcontext()) as (left, _):
        assert (left.max_calls, left.max_cost) == (6, 0.75)
