"""What `--json` prints is what the shipped schema says, for every command and every exit code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import llmfair
from llmfair.cli import app
from llmfair.rundir import COLUMNS
from llmfair.stats.intervals import Conclusion
from tests.cli.command import kept, only_run, well, words_of
from tests.cli.command import llmfair as command
from tests.cli.long_commands import TRAINING

pytestmark = pytest.mark.whole

SCHEMA = llmfair.schema()
LISTS = ("listwise", "-q", "-n", "5", "--orders", "1", "--conditions", "neutral", "--no-repeat")
PAIRS = ("pairwise", "-q", "--pairs", "3", "--noise-share", "0")


def of_kind(kind: str) -> Draft202012Validator:
    """What holds documents against the definition of this kind, which is one of those of the whole schema."""
    ref = {"$ref": f"#/$defs/{kind}"}
    assert ref in SCHEMA["anyOf"]
    return Draft202012Validator({**SCHEMA, "anyOf": [ref]})


def check(document: Any, kind: str) -> None:
    """Fails unless the document is one of this kind."""
    problems = [part for error in of_kind(kind).iter_errors(document) for part in error.context or [error]]
    assert not problems, [(list(error.path), error.message) for error in problems]


def leaves(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of the app with its words."""
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from leaves(one, (*words, name))
        else:
            yield (*words, name), one


COMMANDS = dict(leaves(app.command()))


def test_the_schema_is_one_and_knows_what_the_code_knows() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    names = SCHEMA["$defs"]
    named = {part["$ref"].removeprefix("#/$defs/") for part in SCHEMA["anyOf"]}
    assert named <= names.keys() and "failure" in named
    assert {*names["Row"]["required"]} == {*COLUMNS}
    assert {*names["Conclusion"]["enum"]} == {*map(str, Conclusion)}
    errors = {value.exit_code for value in vars(llmfair.errors).values() if hasattr(value, "exit_code")}
    assert {*names["FailureDocument"]["properties"]["exit_code"]["enum"]} == {*errors, 129, 130, 143}


SAYS: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {
    ("listwise",): ("listwise", LISTS[1:]),
    ("pairwise",): ("pairwise", PAIRS[1:]),
    ("rag",): ("rag", ("--no-report", "--alpha", "1")),
    ("plan", "rag"): ("plan_rag", ("--price-in", "1", "--price-out", "2")),
    ("prompts", "render", "rag"): ("look", ()),
    ("refine",): ("refine", ("--no-report", "-n", "5")),
    ("plan", "refine"): ("plan_refine", ("--price-in", "1", "--price-out", "2")),
    ("prompts", "render", "refine"): ("look", ()),
    ("plan", "listwise"): (
        "plan_listwise",
        ("-n", "5", "--alike", "1", "--price-in", "1", "--price-out", "2"),
    ),
    ("plan", "pairwise"): ("plan_pairwise", ()),
    ("calibrate", "listwise"): ("calibrate_listwise", ("--runs", "3", "--orders", "1", "-n", "6")),
    ("calibrate", "pairwise"): ("calibrate_pairwise", ("--runs", "3", "--pairs", "3")),
    ("study", "windows"): ("study_windows", ("--settings", "20/10", "-n", "5", "--orders", "1")),
    ("datasets", "list"): ("look", ()),
    ("datasets", "show"): ("look", ("sample",)),
    ("datasets", "attributes"): ("look", ()),
    ("prompts", "list"): ("look", ()),
    ("strategies", "list"): ("look", ()),
    ("measures", "list"): ("look", ()),
    ("prompts", "show"): ("look", ("listwise",)),
    ("prompts", "render", "listwise"): ("look", ()),
    ("prompts", "render", "pairwise"): ("look", ()),
    ("runs", "list"): ("look", ()),
    ("cache", "path"): ("look", ()),
    ("cache", "info"): ("look", ()),
    ("cache", "clear"): ("look", ("--yes",)),
    ("doctor",): ("look", ("-m", "fake:biased", "--ask")),
}
OF_RUNS: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {
    ("score",): ("score", ("one", "pairs")),
    ("rerank",): ("rerank", ("one/rankings/neutral.run", "--with", "mmr", "-d", "sample", "-o", "new.run")),
    ("mitigate",): ("mitigation", ("one", "--free", "--no-report")),
    ("compare",): ("comparison", ("one", "other")),
    ("report",): ("report", ("one",)),
    ("runs", "show"): ("look", ("one", "--answers")),
    ("runs", "check"): ("look", ("one",)),
}
ELSEWHERE = {("finetune-lora",), ("datasets", "fetch")}
"""Below, since they take a model or a server."""


@pytest.mark.parametrize("words", SAYS, ids=" ".join)
def test_what_a_command_prints(words: tuple[str, ...]) -> None:
    kind, flags = SAYS[words]
    found = well(command(*words, *flags, "--json"))
    check(found.json, kind)


def test_what_commands_print_about_runs() -> None:
    for output, asked in (("one", LISTS), ("other", (*LISTS, "-m", "fake:oracle")), ("pairs", PAIRS)):
        assert command(*asked, "-o", output).code == 0
    for words, (kind, arguments) in OF_RUNS.items():
        found = well(command(*words, *arguments, "--json"))
        check(found.json, kind)
    check(command("score", "one", "pairs", "--per-query", "--json").json, "score")
    check(command("compare", "one", "other", "--format", "json").json, "comparison")
    assert command("score", "one", "-o", "scored").code == 0
    for path, kind in (("one", "listwise"), ("pairs", "pairwise"), ("scored", "score")):
        check(kept("results", path), kind)


def test_every_command_with_json_is_checked_here() -> None:
    told = {words for words, one in COMMANDS.items() if any("--json" in item.opts for item in one.params)}
    assert told == COMMANDS.keys() == {*SAYS, *OF_RUNS, *ELSEWHERE}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("plan_listwise", ("listwise", "--dry-run")),
        ("plan_pairwise", ("pairwise", "--dry-run")),
        ("study_plan", ("study", "windows", "--dry-run")),
        ("listwise", ("listwise", "-m", "bm25", "--format", "json")),
        ("pairwise", ("pairwise", "--sequential", "--max-pairs", "30")),
        ("pairwise", ("pairwise", "--answers", "margin", "--pairs", "3")),
        ("several", (*PAIRS, "-m", "fake:biased,malformed=0", "-m", "fake:oracle,malformed=0")),
        ("plan_listwise", ("plan", "listwise", "--initial", "given", "--orders", "1")),
        ("plan_listwise", ("plan", "listwise", "-m", "bm25")),
        ("plan_pairwise", ("plan", "pairwise", "--sequential")),
    ],
)
def test_other_forms_of_documents(kind: str, words: tuple[str, ...]) -> None:
    found = well(command(*words, "--json"))
    check(found.json, kind)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (1, "failure", (*LISTS, "-o", "taken")),
        (1, "failure", (*LISTS, "-m", "openai:gpt-4o-mini")),
        (2, "failure", (*LISTS, "-d", "smaple")),
        (2, "failure", ("runs", "show", "--no-such-flag")),
        (2, "failure", ("study", "windows", "--settings", "5/9")),
        (2, "failure", ("score", "nothing.run", "-d", "sample")),
        (3, "listwise", (*LISTS, "--max-calls", "3")),
        (3, "pairwise", (*PAIRS, "--max-calls", "3")),
        (3, "study_windows", ("study", "windows", "--settings", "20/10,20/5", "-n", "5", "--orders", "1", "--max-calls", "3")),
        (4, "listwise", (*LISTS, "--require", "P@20>=2")),
        (4, "pairwise", (*PAIRS, "-m", "fake:biased,malformed=0.5", "--max-invalid", "0")),
        (4, "study_windows", ("study", "windows", "--settings", "20/10", "-n", "5", "--orders", "1", "--require", "P@20>=2")),
        (4, "several", (*PAIRS, "-m", "fake:biased", "-m", "openai:x", "--require", "FlipRate<=0")),
    ],
)  # fmt: skip
def test_every_other_end(code: int, kind: str, words: tuple[str, ...]) -> None:
    Path("taken").mkdir()
    Path("taken/theirs").touch()
    found = command(*words, "--json")
    assert found.code == code, found.err
    check(found.json, kind)
    if kind == "several":
        codes = [run["exit_code"] for run in found.json["runs"]]
        assert codes == [4, 1] and found.json["runs"][1]["error"]["class"] == "MissingKey"
    else:
        assert found.json["exit_code"] == code


def test_an_incomplete_run_that_is_checked_and_one_that_was_tampered_with() -> None:
    assert command(*LISTS, "--max-calls", "3").code == 3
    found = command("runs", "check", only_run(), "--json")
    assert found.code == 3
    check(found.json, "failure")
    assert command(*LISTS, "-o", "whole").code == 0
    Path("whole/qrels.txt").write_text("")
    found = command("runs", "check", "whole", "--json")
    assert found.code == 1 and found.json["problems"]
    check(found.json, "look")


def test_a_stop_before_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("llmfair.audits.runs.run.carry_out", stop)
    found = command(*LISTS, "--json")
    assert found.code == 130
    check(found.json, "failure")


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One document of each of the larger kinds, with its first two rows: each is held against all kinds many times."""
    two = ("-m", "fake:biased,malformed=0", "-m", "fake:oracle,malformed=0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLMFAIR_REPORT", "0")
        patch.chdir(tmp_path_factory.mktemp("documents"))
        found = {
            "listwise": command(*LISTS, "-o", "one", "--require", "P@20>=0.1", "--json").json,
            "pairwise": command(*PAIRS, "-m", "fake:oracle,malformed=0", "--json").json,
            "several": command(*PAIRS, *two, "--json").json,
            "score": command("score", "one", "--json").json,
            "failure": command("listwise", "-d", "smaple", "--json").json,
            "plan_listwise": command("plan", "listwise", "--json").json,
        }
    found["comparison"] = found["several"]["comparison"]
    for document in (*found.values(), *found["several"]["runs"]):
        if "rows" in document:
            document["rows"] = document["rows"][:2]
    return found


RELIED_ON = {
    "listwise": "schema status task run dataset attribute model words level band measures shown design reach chains "
    "failures answers undefined findings family rows requirements",
    "pairwise": "schema status task run dataset attribute model words level band measures headline design cells shares "
    "chains failures answers undefined findings family rows requirements",
    "score": "schema status task level band measures runs rows",
    "comparison": "schema status task dataset attribute words level band queries runs family rows",
    "several": "schema runs comparison",
    "failure": "schema status exit_code",
    "plan_listwise": "schema task queries calls prompt_tokens completion_tokens reach folder",
}


def test_no_key_that_users_rely_on_may_be_missing(documents: dict[str, Any]) -> None:
    for kind, names in RELIED_ON.items():
        check(documents[kind], kind)
        for name in names.split():
            less = {key: value for key, value in documents[kind].items() if key != name}
            assert len(less) < len(documents[kind]) and not of_kind(kind).is_valid(less), f"{kind}: {name}"


def test_documents_may_grow(documents: dict[str, Any]) -> None:
    for kind, document in documents.items():
        check({**document, "something_new": {"of": ["later"]}}, kind)


@pytest.mark.slow
def test_an_adapter_s_documents() -> None:
    from tests import models
    from tests.tuning.biased import biased_model, marked_data

    models.needs_local()
    biased_model(Path("model"))
    marked_data(Path("data"), 12)
    train = ("finetune-lora", "-d", "data", "-m", "model", *words_of(TRAINING))
    check(command(*train, "--dry-run", "--json").json, "finetune_plan")
    done = well(command(*train, "-o", "adapter", "--json"))
    check(done.json, "finetune_lora")
    merged = well(command("finetune-lora", "--merge", "adapter", "-m", "model", "-o", "merged", "--json"))
    check(merged.json, "merge")
