"""A kind of audit from outside goes everywhere ours do, without a line changed in the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from llmfair import registry
from llmfair.audits.kind import Kind, check_kind
from llmfair.documents import schema
from llmfair.results import PlainResults
from tests.batch_server import BatchServer
from tests.outside.command import llmfair
from tests.outside.numbers import NumbersKind, NumbersSettings
from tests.servers import Reply


def by_length(body: dict[str, Any], attempt: int) -> Reply:
    """A number from 1 to 9, by how long the question is."""
    return Reply(f"{1 + len(body['messages'][-1]['content']) % 9}")


ROOT = Path(__file__).resolve().parents[2]
POINTS = """\
[llmfair.audits]
numbers = tests.outside.tops:NUMBERS
[llmfair.measures]
MeanRatio = tests.outside.numbers:mean_ratio
[llmfair.backends]
counter = tests.outside.counter:Counter
"""
CALLS = 8 * 40 * 2


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package on the path of new processes, as pip leaves it."""
    info = tmp_path / "site" / "numbers-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: numbers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(info.parent), str(ROOT), *sys.path]))
    with llmfair.running():
        yield


def numbers(*arguments: str, code: int = 0) -> Any:
    return json.loads(llmfair("numbers", "-m", "counter:x", *arguments, "--json", code=code))


@cache
def _schema() -> Any:
    command = [sys.executable, "-c", "import json, llmfair; print(json.dumps(llmfair.schema()))"]
    return json.loads(subprocess.check_output(command))


def valid(*documents: Any) -> set[str]:
    """Every document is one that the generated schema describes, with this kind's own definitions; which they are."""
    schema = _schema()
    assert {"numbers", "plan_numbers", "study_tops"} <= schema["$defs"].keys()
    found = set()
    for document in documents:
        Draft202012Validator(schema).validate(document)
        for one in schema["anyOf"]:
            if Draft202012Validator({**schema, "anyOf": [one]}).is_valid(document):
                found.add(one["$ref"].removeprefix("#/$defs/"))
    return found


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("numbers", "tests.outside.numbers:NumbersKind", "it is no value of a class of Kind"),
        ("figures", "tests.outside.numbers:NUMBERS", "the kind calls itself 'numbers'"),
    ],
)
def test_a_kind_that_could_not_be_used_is_left_out(name: str, value: str, said: str, tmp_path: Path) -> None:
    points = tmp_path / "site" / "numbers-1.0.dist-info" / "entry_points.txt"
    points.write_text(f"[llmfair.audits]\n{name} = {value}\n")
    command = [sys.executable, "-m", "llmfair", "--help"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said in found.stderr and name not in found.stdout and "pairwise" in found.stdout


def test_a_kind_says_all_of_its_parts() -> None:
    class Half(Kind):
        name, helps, settings = "half", {}, NumbersSettings

    with pytest.raises(ValueError, match="it has no design and no measure and no words"):
        check_kind("half", Half())


class PairwiseResults(PlainResults, frozen=True, kw_only=True):
    """Results of a class that is called like another kind's."""


def test_classes_of_one_name_are_told_apart_in_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(NumbersKind):
        results = PairwiseResults

    before = schema()["$defs"]
    monkeypatch.setitem(registry._found["audit"], "numbers", Named())
    found = schema()["$defs"]
    theirs, ours = (found[found[name]["$ref"].removeprefix("#/$defs/")] for name in ("numbers", "pairwise"))
    assert theirs["description"] == PairwiseResults.__doc__
    assert ours == before[before["pairwise"]["$ref"].removeprefix("#/$defs/")]


@pytest.mark.whole
def test_help_plan_dry_run_and_the_prompt() -> None:
    assert "numbers" in llmfair("--help") and "The mean number that a model gives" in llmfair("--help")
    shown = llmfair("numbers", "--help")
    assert "--top N" in shown and "LLMFAIR_TOP" in shown
    assert f"{CALLS} calls" in llmfair("numbers", "-m", "counter:x", "--dry-run")
    planned = json.loads(llmfair("plan", "numbers", "-m", "counter:x", "--json"))
    assert (planned["calls"], planned["queries"], planned["answered"]) == (CALLS, 8, 0)
    valid(planned)
    assert "Rate from 1 to 7" in llmfair("prompts", "render", "numbers", "--top", "7", "--queries", "physics")
    assert not Path("runs").exists()


@pytest.mark.whole
def test_run_again_look_score_compare_and_report() -> None:
    first = numbers("-o", "one")
    assert first["status"] == "complete" and first["task"] == "numbers"
    rows = {row["condition"]: row for row in first["rows"]}
    assert set(rows) == {"plain", "warned"}
    assert all(row["low"] < row["value"] < 1 and row["n"] == 8 for row in rows.values())
    header, line = (Path("one") / "metrics.csv").read_text().splitlines()[:2]
    assert header.split(",")[4:6] == ["condition", "warning"] and line.split(",")[4:6] == ["plain", "False"]
    valid(first)
    assert numbers("-o", "one") == first
    manifest = json.loads(Path("one/manifest.json").read_text())
    assert [one["calls"] for one in manifest["invocations"]] == [CALLS], "nothing is left to be done"
    other = json.loads(llmfair("numbers", "-m", "counter:y", "-o", "two", "--json"))

    assert "one" in llmfair("runs", "list", "--runs-dir", ".")
    table = llmfair("numbers", "-m", "counter:x", "-o", "one")
    assert "Audit of numbers" in table and "MeanRatio [95 %]" in table and f"{CALLS} calls" in table
    assert llmfair("runs", "show", "one").startswith(table.splitlines()[0])
    assert "I say" in llmfair("runs", "show", "one", "--query", "physics", "--answers")
    assert "every file can be recomputed" in llmfair("runs", "check", "one")

    scored = json.loads(llmfair("score", "one", "--json"))
    values = {(row["condition"], row["measure"]): row["value"] for row in scored["rows"]}
    assert values == {(name, "MeanRatio"): row["value"] for name, row in rows.items()}
    compared = json.loads(llmfair("compare", "one", "two", "--json"))
    changes = {row["condition"]: row for row in compared["rows"]}
    assert changes["plain"]["base"] == rows["plain"]["value"] and changes["plain"]["n"] == 8
    assert changes["plain"]["other"] == next(r for r in other["rows"] if r["condition"] == "plain")["value"]
    valid(scored, compared)
    path = Path("one/numbers.csv")
    text = path.read_text()
    lines = text.splitlines()
    for damaged, says in (
        ([lines[0], "physics,plain"], "has 2 cells where the first line names 5"),
        ([lines[0].replace("number", "n"), *lines[1:]], "is not a row of numbers: 'number'."),
    ):
        path.write_text("\n".join(damaged))
        failed = json.loads(llmfair("score", "one", "--json", code=2))
        assert f"numbers.csv:2: {says}" in failed["error"]["message"]
    path.unlink()
    assert "cannot be read" in json.loads(llmfair("score", "one", "--json", code=2))["error"]["message"]
    path.write_text(text)

    llmfair("report", "one", "-o", "one.html")
    llmfair("report", "one", "two", "-o", "both.html")
    page, both = Path("one.html").read_text(), Path("both.html").read_text()
    assert "Audit of numbers" in page and "MeanRatio" in page and "<svg" in page and "I say" in page
    assert "counter:x" in both and "counter:y" in both
    assert "MeanRatio" in llmfair("report", "one", "--format", "md")


@pytest.mark.whole
def test_simulated_models_answer_with_the_effects_that_are_injected(tmp_path: Path) -> None:
    with llmfair.running():
        refused = json.loads(llmfair("numbers", "-m", "fake:biased", "--json", code=2))
    assert refused["error"]["message"] == "fake:biased does not answer such questions."
    points = tmp_path / "site" / "numbers-1.0.dist-info" / "entry_points.txt"
    points.write_text(f"{POINTS}[llmfair.simulated]\nnumbers = tests.outside.rated:Rated\n")
    ratios, identities = [], []
    for place, model in enumerate(
        ("fake:biased", "fake:biased,points=-2", "fake:random", "fake:random,malformed=0")
    ):
        found = json.loads(llmfair("numbers", "-m", model, "-o", f"{place}", "--json"))
        ratios.append(found["rows"][0]["value"])
        identities.append(json.loads(Path(f"{place}/manifest.json").read_text())["settings"]["identity"])
    assert 0.55 < ratios[1] < 0.7 < 0.75 < ratios[0] < 0.88 < 0.95 < ratios[2] < 1.05
    assert ["points" in identity for identity in identities] == [False, True, False, False]
    assert json.loads(Path("2/results.json").read_text())["answers"]["plain"]["unparseable"] > 0
    assert json.loads(Path("3/results.json").read_text())["answers"]["plain"]["unparseable"] == 0
    unknown = json.loads(llmfair("numbers", "-m", "fake:biased,point=1", "--json", code=2))["error"]
    assert "no parameter 'point'. Did you mean 'points'?" in unknown["message"]
    assert unknown["hint"].endswith(
        "rate_429, alike, points, pairwise, position, query_sd, pair_sd, lapse, behind"
    )


def test_gates() -> None:
    failed = numbers("-o", "one", "--require", "MeanRatio:plain>=1", "--require", "MeanRatio<=1", code=4)
    assert [entry["holds"] for entry in failed["requirements"]] == [False, True, True]
    assert "MeanRatio (plain condition)" in failed["error"]["message"]
    valid(failed)
    refused = json.loads(llmfair("numbers", "--require", "P@20>=0.5", "--json", code=2))
    assert "P is a measure of lists, but this audit asks about numbers." in refused["error"]["message"]
    assert "no condition 'plane'" in numbers("--require", "MeanRatio:plane>=1", code=2)["error"]["message"]


@pytest.mark.whole
def test_a_budget_is_kept_and_half_a_run_is_told() -> None:
    half = numbers("-o", "half", "--max-calls", "100", code=3)
    chain = half["chains"]["plain"]
    assert half["status"] == "incomplete" and chain["ranked"] < chain["asked"]
    valid(half)
    assert numbers("-o", "half")["status"] == "complete"
    calls = [one["calls"] for one in json.loads(Path("half/manifest.json").read_text())["invocations"]]
    assert calls == [100, CALLS - 100]


@pytest.mark.whole
def test_over_http_answers_are_shared_and_batches_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    code = (
        "import llmfair.asking.batch as b; b.FIRST_POLL = b.LONGEST_POLL = 0.02; "
        "b.SETTLE_SECONDS = 0.02; from llmfair.cli.app import main; main()"
    )

    def asked(output: str, *more: str) -> dict[str, Any]:
        flags = ["--base-url", server.base_url, *"-m openai:any --server-name s -n 2 -o".split(), output]
        command = [sys.executable, "-c", code, "numbers", *flags, *more, "-q"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
        manifest: dict[str, Any] = json.loads(Path(output, "manifest.json").read_text())
        return manifest

    with BatchServer(by_length) as server:
        assert asked("a/run")["calls"] == 160 and len(server.requests) == 160
        shared = asked("b/run")
        assert (shared["calls"], shared["cached"]) == (0, 160) and len(server.requests) == 160
        batched = asked("c/run", "--batch", "--no-cache")
        assert batched["calls"] == 160 and len(server.requests) == 160, "none through chat completions"
    for name in ("metrics.csv", "numbers.csv", "results.json"):
        assert Path("a/run", name).read_bytes() == Path("c/run", name).read_bytes()


@pytest.mark.whole
def test_the_python_api() -> None:
    code = (
        "import llmfair\n"
        "result = llmfair.audit_numbers('sample', model='counter:x', top=9, output='api', report=False)\n"
        "print(result['MeanRatio', 'plain'].n, llmfair.plan_numbers(model='counter:x').results['calls'])\n"
        "print(str(result).partition('\\n\\n')[2].splitlines()[0])\n"
        "assert str(result).startswith('VERDICT  ' + result.verdict.status)\n"
        "assert set(result.to_frame(per_query=True).warning) == {True, False}\n"
        "assert 'warning' in result.to_frame().columns\n"
        "assert llmfair.open_run('api').rows == result.rows and 'top: The highest' in llmfair.audit_numbers.__doc__\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"8 {CALLS}\nAudit of numbers · sample")
    shutil.rmtree("api")
