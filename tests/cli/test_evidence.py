"""What stands behind a number, and what a run says of its own making: counts, replays, costs, what names it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmfair.asking.limits import Progress
from llmfair.audits.listwise.measure import answer_counts
from llmfair.audits.listwise.results import OmittedItems
from llmfair.audits.runs.replay import agree
from llmfair.cli.audits import cost_text
from llmfair.nouns import Ranking, Side
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.strategies import Ranked, WindowAnswer
from tests.cli.command import kept, llmfair, only_run, process, ran, refuses
from tests.folders import balanced, write, write_folder
from tests.manifests import invocation, manifest
from tests.servers import Reply, Server, faulty, rank

pytestmark = pytest.mark.whole

SMALL = ("listwise", "-n", "3", "--orders", "1", "--passes", "1")


def window(shown: tuple[str, ...], omitted: tuple[str, ...], **changed: Any) -> WindowAnswer:
    known: dict[str, Any] = {
        "pass_number": 1, "start": 0, "end": len(shown), "place": "head", "answer_class": AnswerClass.MISSING,
        "repaired": True, "unparseable": False, "permutation": None, "readers_differ": False, "shown": shown,
        "omitted": omitted, "draw": 0,
    }  # fmt: skip
    return WindowAnswer(**(known | changed))


def test_omissions_are_compared_with_the_share_shown() -> None:
    sides = {**{f"f{i}": Side.PROTECTED for i in range(2)}, **{f"m{i}": Side.UNPROTECTED for i in range(6)}}
    shown = tuple(sides)
    ranked = Ranked(Ranking("q", shown), (window(shown, ("f0", "f1", "m0", "m1")), window(shown, ("m0",))))
    counts = answer_counts([("neutral", ranked)], sides)["neutral"]
    assert counts.omitted == OmittedItems(items=5, protected=2, protected_expected=5 * 2 / 8)
    assert (counts.windows, counts.repaired, counts.unparseable) == (2, 2, 0)


def test_answers_that_were_replaced_are_counted_and_said() -> None:
    with Server(faulty(rank, rate_malformed=0.3)) as server:
        found = llmfair(*SMALL, *server.flags, "--on-bad-answer", "retry:2", "--json")
        conditions = found.json["answers"].values()
        again = sum(sum(condition["asked_again"].values()) for condition in conditions)
        assert again == len(server.requests) - sum(condition["windows"] for condition in conditions) > 10


def test_repaired_answers_are_no_reason_for_the_gate() -> None:
    half = Server(lambda body, attempt: Reply(str(rank(body, attempt).text)[:90]))
    with half as server:
        found = llmfair(*SMALL, *server.flags)
    assert found.code == 0, found.err
    assert "repaired: 100.0 %" in found.out


def test_a_model_that_says_nothing_is_not_given_the_input_s_number_in_words() -> None:
    with Server(lambda body, attempt: Reply(None)) as server:
        found = llmfair(*SMALL, *server.flags)
    assert found.code == 4
    assert "no parseable answer: the initial ranking" in found.out and "% less exposure" not in found.out


@pytest.mark.parametrize(
    "name", ["metrics.csv", "results.json", "per_query.csv", "rankings/female.run", "qrels.txt"]
)
def test_check_notices_a_changed_or_missing_file(name: str) -> None:
    ran(*SMALL)
    path = only_run() / name
    content = path.read_text()
    path.write_text(content.replace("1", "2", 1))
    changed = llmfair("runs", "check", only_run())
    assert changed.code == 1 and f"{name} does not follow from the journal's answers" in changed.out
    path.unlink()
    assert f"{name} is missing" in llmfair("runs", "check", only_run()).out


def test_failures_of_one_query() -> None:
    ran(*SMALL)
    with (only_run() / "journal.jsonl").open("a") as journal:
        for probe in ("physics/neutral/o0/r0", "judged/physics/d1", "metaphysics/neutral/o0/r0"):
            row = {"failure": "Rejected", "message": "no", "probe": probe, "at": "now"}
            print(json.dumps(row), file=journal)
    for asked, found in (((), 3), (("--query", "physics"), 2), (("--query", "neutral/o1"), 0)):
        shown = ran("runs", "show", only_run(), "--failures", *asked, "--json").json["rows"]
        assert len(shown) == found, shown


def test_a_lost_journal_is_not_paid_for_again_in_silence() -> None:
    ran(*SMALL)
    (only_run() / "journal.jsonl").unlink()
    refuses("fewer than were given", *SMALL, code=1)
    ran(*SMALL, "--fresh")


def test_damaged_and_interrupted_runs_are_listed() -> None:
    ran(*SMALL)
    (only_run() / "manifest.json").write_text("")
    assert [row["status"] for row in llmfair("runs", "list", "--json").json["runs"]] == ["damaged"]


def test_the_same_lists_however_named_are_the_same_run(tmp_path: Path) -> None:
    write_folder(tmp_path / "mine", balanced(3, 6, 6))
    for name in ("mine", "mine/", "./mine", tmp_path / "mine"):
        ran("listwise", "-d", name, "--orders", "1", "--passes", "1")
    for more in ("-n 3", "-n 99", "--queries q2,q1,q0", "--conditions neutral,male,female"):
        ran("listwise", "-d", "mine", "--orders", "1", "--passes", "1", *more.split())
    assert kept("manifest")["calls"] == 0


def test_other_sides_are_another_run() -> None:
    folder = write_folder(Path("mine"), balanced(3, 6, 6))
    ran("listwise", "-d", folder, "--orders", "1")
    (folder / "attributes.toml").write_text(
        '[gender]\nprotected = ["male"]\nunprotected = ["female"]\nwords = { protected = "male", unprotected = "female" }\n'
    )
    ran("listwise", "-d", folder, "--orders", "1")
    assert len(list(Path("runs").iterdir())) == 2


@pytest.mark.parametrize("word", ["repeat", "initial", "neutral", "female", "a/b", "", "w" * 300])
def test_words_that_would_name_another_arm_are_refused(word: str) -> None:
    folder = write_folder(Path("mine"), balanced(1, 2, 2))
    (folder / "attributes.toml").write_text(
        f'[gender]\nprotected = ["female"]\nunprotected = ["male"]\nwords = {{ protected = "female", unprotected = "{word}" }}\n'
    )
    refuses("gender.words: need two different words of up to 40 letters", "listwise", "-d", folder)


@pytest.mark.parametrize(("order", "expected"), [("5", "identity"), ("-5", "reverse")])
def test_a_simulated_position_preference_has_its_sign(order: str, expected: str) -> None:
    model = f"fake:random,noise=0,malformed=0,order={order}"
    ran(*SMALL, "--window", "40", "--step", "40", "-m", model, "--conditions", "neutral", "-q")
    ranked = [
        line.split()[2] for line in (only_run() / "rankings" / "neutral.run").read_text().splitlines()[:40]
    ]
    first = next(
        json.loads(line)
        for line in (only_run() / "journal.jsonl").read_text().splitlines()[1:]
        if json.loads(line)["about"]["doc_ids"][0] in (ranked[0], ranked[-1])
    )["about"]["doc_ids"]
    assert ranked == (first if expected == "identity" else first[::-1])


def test_the_reach_of_precision_speaks_of_judged_queries_only() -> None:
    folder = write_folder(
        Path("mine"), {"a": [(f"d{i}", "female" if i % 2 else "male", int(i < 4)) for i in range(8)]}
    )
    write(folder / "queries.tsv", ["a\tA", "b\tB"])
    write(folder / "candidates.run", [f"{q} Q0 d{i} {i + 1} {8 - i} x" for q in "ab" for i in range(8)])
    found = llmfair("listwise", "-d", folder, "--orders", "1", "-m", "fake:oracle,malformed=0", "--json").json
    value = next(r["value"] for r in found["rows"] if (r["measure"], r["condition"]) == ("P@20", "neutral"))
    assert found["reach"]["P@20"]["high"] == pytest.approx(value) == pytest.approx(4 / 20)


def test_a_title_that_no_encoding_can_write() -> None:
    folder = write_folder(Path("mine"), balanced(1, 3, 3))
    text = (folder / "docs.jsonl").read_text().replace("Title q0f0", "lone \\ud800 surrogate")
    (folder / "docs.jsonl").write_text(text)
    with Server(lambda body, attempt: Reply(f"\x1b[31m {rank(body, attempt).text} \ud800")) as server:
        for _ in range(2):
            ran(*SMALL, "-d", folder, *server.flags)
    ran("runs", "check", only_run())
    shown = process("runs", "show", only_run(), "--answers")
    out, err = shown.communicate()
    assert shown.returncode == 0, err
    assert "\\x1b[31m" in out and "\x1b" not in out


def test_a_long_answer_is_cut_where_it_is_shown_and_whole_in_the_journal() -> None:
    ran(*SMALL, "-q")
    run = Path(only_run())
    first, *rows = (run / "journal.jsonl").read_text().splitlines()
    rows = [
        json.dumps(row | {"text": "no " * 32_768} if "text" in row else row) for row in map(json.loads, rows)
    ]
    write(run / "journal.jsonl", [first, *rows])
    shown = ran("runs", "show", run, "--answers").out
    ran("report", run)
    for text in (shown, (run / "report.html").read_text()):
        assert "n… 98,304 characters" in text and "no " * 2_000 not in text


def test_the_dry_run_knows_what_is_answered_and_shows_the_first_prompt() -> None:
    arguments = ("-n", "2", "--preset", "paper", "--seed", "3")
    assert llmfair("listwise", *arguments, "--max-calls", "20").code == 3
    planned = llmfair("listwise", *arguments, "--dry-run")
    assert "20 answers of them in runs/listwise-sample" in planned.out
    line = next(line for line in planned.out.splitlines() if "first prompt" in line)
    rendered = llmfair(*line.split("llmfair ")[1].split(), "--json").json["messages"]
    journal = (only_run() / "journal.jsonl").read_text().splitlines()[1:]
    assert [[m["role"], m["content"]] for m in rendered] in [json.loads(row)["chat"] for row in journal] or (
        len(rendered) == 2 * 5 + 4
    )


def test_results_that_cannot_be_read_are_not_called_missing() -> None:
    ran(*SMALL)
    path = only_run() / "results.json"
    path.write_text(path.read_text()[:100])
    found = llmfair("runs", "show", only_run())
    assert found.code == 2 and f"{path}: cannot be read: " in found.err and "writes it again" in found.err
    path.unlink()
    assert "has no results yet" in llmfair("runs", "show", only_run()).err


def test_a_run_of_just_this_name_is_meant_even_where_another_begins_so() -> None:
    for name in ("one", "one-more"):
        assert llmfair("pairwise", "-n", "5", "--pairs", "2", "-q", "-o", f"runs/{name}").code == 0
    assert llmfair("runs", "check", "one").code == 0


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


def test_a_run_of_another_machine_is_compared_to_twelve_digits() -> None:
    ran(*SMALL, "-o", "run")
    assert ran("runs", "check", "run", "--json").json["notes"] == []
    results = Path("run", "results.json")
    told = results.read_text()
    number = next(one for one in re.findall(r"\d\.\d{15,}\b", told))
    results.write_text(told.replace(number, repr(float(number) * (1 + 1e-14))))
    assert "compared to 12 digits: results.json" in ran("runs", "check", "run").out
    results.write_text(told.replace(number, repr(float(number) * (1 + 1e-9))))
    refused = llmfair("runs", "check", "run")
    assert refused.code == 1 and "results.json does not follow" in refused.out


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ("a 0.1 b", "a 0.10000000000000002 b", True),
        ('{"x": 1.0, "y": 0.0}', '{"x": 0.9999999999999999, "y": 1e-17}', True),
        ("0.1", "0.1000000001", False),
        ("x 0.1", "y 0.1", False),
        ("1000000000000001", "1000000000000002", False),
        ("0.1, 0.2", "0.1", False),
        ("1e999", "1e999", True),
    ],
)
def test_what_agrees_to_twelve_digits(first: str, second: str, alike: bool) -> None:
    assert agree(first, second) == alike


LISTWISE = tuple("listwise -q -d mine --no-report --max-invalid 1 --conditions neutral --orders 1".split())
PAIRWISE = ("pairwise", "-q", "-d", "mine", "--no-report", "--max-invalid", "1", "--pairs", "2")


def group(attribute: str, name: str = "Asia") -> None:
    """A group of one more attribute for some items."""
    path = Path("mine/groups.tsv")
    write(path, [*path.read_text().splitlines(), *(f"q{q}f0\t{attribute}\t{name}" for q in range(5))])


@pytest.mark.parametrize("command", [LISTWISE, PAIRWISE])
def test_the_run_goes_on_and_is_compared(command: tuple[str, ...]) -> None:
    write_folder(Path("mine"), balanced(5, 4, 4))
    ran(*command)
    run = only_run()
    group("location")
    ran(*command)
    assert only_run() == run and kept("manifest")["calls"] == 0
    ran("runs", "check", run)
    ran(*command, "-m", "fake:oracle", "-o", "other")
    ran("compare", run, "other")
    group("gender", "male")  # an item of both sides is audited
    refuses("belongs to other settings (lists_sha256", *command, "-o", run, code=1)


def test_calls_that_were_not_made_are_not_said_to_have_been() -> None:
    """Of a run that stopped when it knew; tables of those that broke off are in tests/snapshots."""
    ran("pairwise", "--sequential", "--max-pairs", "400", "-m", "fake:biased,pairwise=3", "-o", "early")
    ran("report", "early")
    (row,) = re.findall(r"<dt>calls</dt>\s*<dd>(.*?)</dd>", Path("early/report.html").read_text())
    assert re.fullmatch(r"[0-9,]+ of [0-9,]+", row)


@pytest.mark.parametrize("task", ["listwise", "pairwise"])
def test_lists_that_were_drawn_are_said_to_be_with_the_seed(task: str) -> None:
    lists = write_folder(Path("lists"), balanced(6, 6, 6))
    few = ("--passes", "1", "--orders", "1") if task == "listwise" else ("--pairs", "2")
    small = (task, "-d", lists, *few)
    drawn = (*small, "--candidates", "8", "--seed", "7")
    commands = [(*drawn, "-v"), (*drawn, "--dry-run"), ("plan", *drawn)]
    if task == "listwise":
        commands.append(("study", "windows", *drawn[1:], "--settings", "10/5", "-v"))
    told = "lists drawn with seed 7 from documents relevant to the query and, beside them, documents relevant to other"
    for command in commands:
        assert f"  {told} queries only, as many of either group\n" in ran(*command).out
    counts = llmfair(*small, "--buckets", "2,2,1,2", "--dry-run").out
    assert "seed 0" in counts and "queries only, --buckets 2,2,1,2\n" in counts
    assert "drawn" not in llmfair(task, "--dry-run").out


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


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(rank) as running:
        yield running


def test_two_servers_are_told_apart(server: Server) -> None:
    for name in ("gpu-3", "gpu-4"):
        ran(*LISTS, *server.flags, "--server-name", name)
    one, two = sorted(Path("runs").iterdir())
    assert ("any-gpu-3-" in one.name) and ("any-gpu-4-" in two.name)
    listed = llmfair("runs", "list").out
    assert "openai:any at gpu-3" in listed and "openai:any at gpu-4" in listed
    assert "openai:any at gpu-3" in llmfair("runs", "show", one).out
    compared = llmfair("compare", one, two, "--json").json
    assert [run["name"] for run in compared["runs"]] == ["openai:any at gpu-3", "openai:any at gpu-4"]
    shown = ran("report", one, two, "--format", "md").out
    assert "openai:any at gpu-3" in shown and "openai:any at gpu-4" in shown
    results = kept("results", one)
    assert results["model"] == "openai:any" and "server" not in results  # no other answers, no other results


def test_a_server_without_a_name_is_called_by_its_address(server: Server) -> None:
    found = llmfair(*LISTS, *server.flags, "--json")
    assert found.json["server"] == server.host == kept("manifest")["server"]
    assert server.host.replace(":", "-") in only_run().name


def test_a_label_is_what_the_run_is_called() -> None:
    ran(*LISTS, "--label", "nightly")
    run = only_run()
    manifest = kept("manifest")
    assert "nightly: fake:biased, a simulated model" in llmfair("runs", "show", run).out
    assert "nightly: fake:biased" in llmfair("runs", "list").out
    ran(*LISTS, "--label", "weekly")  # the same run, called otherwise
    assert only_run() == run and kept("manifest")["settings"] == manifest["settings"]
    assert "weekly" in llmfair("runs", "list").out and "nightly" not in llmfair("runs", "list").out
    ran(*LISTS, "-m", "fake:random", "--label", "chance", "-o", "chance")
    compared = llmfair("compare", run, "chance", "--json").json
    assert [one["name"] for one in compared["runs"]] == ["weekly", "chance"]
    shown = ran("report", run, "chance", "--format", "md").out
    assert "| weekly |" in shown and "| chance |" in shown


@pytest.mark.parametrize("command", ["compare", "report"])
def test_two_runs_of_one_label_are_told_apart(command: str) -> None:
    ran(*LISTS, "--label", "nightly")
    ran(*LISTS, "-m", "fake:random", "--label", "nightly")
    one, two = sorted(Path("runs").iterdir())
    shown = ran(command, one, two, "--format", "md").out
    assert "nightly: fake:biased" in shown and "nightly: fake:random" in shown
    ran(*LISTS, "--temperature", "0.5", "--label", "nightly", "-o", "again")
    shown = ran(command, one, "again", "--format", "md").out
    assert ("temperature 0.5" if command == "report" else "again") in shown
