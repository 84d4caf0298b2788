"""The Python API: the commands as functions, the same folders, the same figures, nothing printed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import llmfair
from llmfair import registry
from llmfair.api import COMMAND_LINE
from llmfair.audits.listwise.settings import (
    CalibrateSettings,
    ListwiseSettings,
    PlanSettings,
    WindowsSettings,
)
from llmfair.audits.pairwise.settings import CalibratePairwiseSettings, PairwiseSettings, PlanPairwiseSettings
from llmfair.audits.refine.settings import RefineSettings
from llmfair.backends.base import Transient
from llmfair.io.files import json_text, plain
from llmfair.metrics.base import Judged, Value
from llmfair.settings.commands import FinetuneSettings, MitigateSettings, RerankSettings, ScoreSettings
from llmfair.settings.declaration import CommandSettings, default_of
from tests.cli.command import kept, only_run, table, well
from tests.cli.command import llmfair as command
from tests.fresh import loaded_by
from tests.pace import within
from tests.servers import Server, rank
from tests.test_layers import LAZY

PUBLIC = [
    "Attribute", "BackendError", "Candidates", "Cell", "Chat", "Completion", "ContextTooLong", "Document",
    "Failure", "Finish", "Incomplete", "Labels", "LlmfairError", "Measurement", "Message", "MissingExtra",
    "MissingKey", "PairOutcome", "PairAnswer", "Permutation", "Probe", "Qrels", "Query", "Ranking", "Rejected",
    "Request", "RequirementFailed", "Result", "Run", "RunConflict", "Sampling", "Side", "Steps", "Text",
    "Unavailable", "UsageError", "PairVerdict", "__version__", "audit_listwise", "audit_pairwise",
    "audit_refine", "plan_refine", "calibrate_listwise", "calibrate_pairwise", "compare", "finetune_lora", "load_dataset", "measure", "mitigate",
    "open_run", "parse_measure", "parse_model", "plan_listwise", "plan_pairwise", "register", "rerank", "schema",
    "score", "study_windows", "write_report",
]  # fmt: skip
FUNCTIONS: dict[str, type[CommandSettings]] = {
    "audit_listwise": ListwiseSettings, "audit_pairwise": PairwiseSettings, "audit_refine": RefineSettings,
    "calibrate_listwise": CalibrateSettings, "calibrate_pairwise": CalibratePairwiseSettings,
    "finetune_lora": FinetuneSettings, "plan_listwise": PlanSettings, "plan_pairwise": PlanPairwiseSettings,
    "mitigate": MitigateSettings, "rerank": RerankSettings,
    "score": ScoreSettings, "study_windows": WindowsSettings,
}  # fmt: skip
QUICK: dict[str, Any] = {"limit": 5, "orders": 1, "conditions": "neutral", "repeat": False, "report": False}
QUICK_FLAGS = ("--limit", "5", "--orders", "1", "--conditions", "neutral", "--no-repeat")
PAIRS: dict[str, Any] = {"pairs": 4, "noise_share": 0, "report": False}


class InOrder:
    """A model of the caller's own that changes nothing, and counts what it is asked."""

    name = "in order"

    def __init__(self) -> None:
        self.asked = 0

    async def complete(self, request: llmfair.Request) -> str:
        self.asked += 1
        expects = request.chat.expects
        n = expects.n if isinstance(expects, llmfair.Permutation) else 2
        return " > ".join(f"[{place}]" for place in range(1, n + 1))


def test_the_public_names_are_these_and_all_are_there() -> None:
    assert sorted(llmfair.__all__) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(llmfair, name) is not None
        assert name in dir(llmfair)
    with pytest.raises(AttributeError, match="no attribute 'audit_nothing'"):
        _ = llmfair.audit_nothing  # type: ignore[attr-defined]


def test_names_stand_once_where_type_checkers_and_the_package_read_them() -> None:
    stub = Path(llmfair.__file__).with_suffix(".pyi").read_text("utf-8")
    shown = {node.name for node in ast.parse(stub).body if isinstance(node, ast.FunctionDef)}
    imported = {
        alias.name
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("llmfair")
        for alias in node.names
    }
    assert {*shown, *imported} == {*llmfair.__all__} - {"__version__"}


def test_import_is_quick() -> None:
    within(0.2, lambda: subprocess.run([sys.executable, "-c", "import llmfair"], check=True))


def test_names_without_figures_load_no_library() -> None:
    assert not (LAZY | {"numpy", "typer", "rich"}) & loaded_by(
        "import llmfair; llmfair.UsageError, llmfair.Query, llmfair.register"
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_settings_are_documented_with_their_defaults(name: str) -> None:
    call = getattr(llmfair, name)
    shown = inspect.signature(call).parameters
    for item in fields(FUNCTIONS[name]):
        if item.name in COMMAND_LINE | FUNCTIONS[name].absent:
            assert item.name not in shown
        elif item.name not in ("model", "dataset"):
            assert shown[item.name].default == default_of(item), item.name
    assert "    attribute: Sensitive attribute" in call.__doc__


@pytest.mark.whole
def test_an_audit_in_a_running_loop_gives_the_rows_of_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    asked = well(command("listwise", *QUICK_FLAGS, "-o", "by-command", "-qv"))

    async def notebook() -> llmfair.Result:
        return llmfair.audit_listwise(
            "sample", model="fake:biased", attribute="gender", window=20, step=10, output="by-call", **QUICK
        )

    result = asyncio.run(notebook())
    theirs = kept("results", "by-command")["rows"]
    for ours, row in zip(result.rows, theirs, strict=True):
        assert plain(ours) == {**row, "run": "by-call"}
    assert Path("by-call/metrics.csv").read_text() == Path("by-command/metrics.csv").read_text().replace(
        "by-command", "by-call"
    )
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    shown = asked.out.strip().removesuffix("by-command").rstrip()
    assert str(result) == shown.replace(" by-command", " by-call")


def test_folder_and_resumption_are_those_of_the_command() -> None:
    assert command("listwise", *QUICK_FLAGS, "--max-calls", "5", "-q").code == 3
    result = llmfair.audit_listwise(**QUICK)
    assert result.folder.resolve() == only_run().resolve()
    manifest = json.loads((result.folder / "manifest.json").read_text())
    assert (manifest["replayed"], manifest["calls"]) == (5, 40)
    again = llmfair.audit_listwise(**QUICK, measures=["P@20", "AWRF"], progress=True)
    assert json.loads((again.folder / "manifest.json").read_text())["calls"] == 0
    assert again.folder == result.folder
    odds = {"PreferenceOdds", *(f"PreferenceOdds(stratum={name})" for name in ("relevant", "irrelevant"))}
    concluded = {*odds, "RelevanceOdds", "ExcessRatio(control=order)"}  # whatever else is measured
    assert {row.measure for row in again.rows} == {"P@20", "AWRF", *concluded}
    assert command("listwise", *QUICK_FLAGS, "--json").json["rows"] == result.results["rows"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[llmfair.Result, llmfair.Result]:
    """Two audits of pairs that share nothing with the tests' own folders."""
    folder = tmp_path_factory.mktemp("pairs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLMFAIR_CACHE_DIR", str(folder / "cache"))
        first, second = (
            llmfair.audit_pairwise(model=f"fake:biased,pairwise={n}", output=folder / f"{n}" / "run", **PAIRS)
            for n in (1, -1)
        )
    return first, second


@pytest.mark.whole
def test_other_functions_find_what_their_commands_print(pairs: tuple[llmfair.Result, llmfair.Result]) -> None:
    first, second = pairs
    swept: dict[str, Any] = {"limit": 5, "orders": 1, "report": False, "settings": "10/5,20/10"}
    same: list[tuple[llmfair.Result, tuple[str | Path, ...]]] = [
        (llmfair.compare(first, second.folder), ("compare", first.folder, second.folder)),
        (llmfair.score(first.folder), ("score", first.folder)),
        (llmfair.plan_pairwise(pairs=4), ("plan", "pairwise", "--pairs", "4")),
        (
            llmfair.calibrate_pairwise(runs=3, pairs=3),
            ("calibrate", "pairwise", "--runs", "3", "--pairs", "3"),
        ),
        (
            llmfair.study_windows(**swept, output="swept"),
            ("study", "windows", "--settings", "10/5,20/10", "--limit", "5", "--orders", "1"),
        ),
    ]
    for result, words in same:
        assert json.loads(json_text(result.results)) == well(command(*words, "--json")).json, words
        assert "<caption>" in result._repr_html_()
        if words[0] != "calibrate":  # below the table stands where everything is
            assert command(*words, "-v").out.startswith(str(result)), words
    studied = same[-1][0]
    assert {path.name for path in Path("swept").iterdir()} == {"study.json", "study.csv"}
    again = llmfair.open_run("swept")
    assert (again.kind, again.results, again.rows) == ("study windows", studied.results, [])
    assert len(studied.to_frame()) == len(Path("swept/study.csv").read_text().splitlines()) - 1


@pytest.mark.whole
def test_runs_are_named_one_by_one_or_in_a_list(pairs: tuple[llmfair.Result, llmfair.Result]) -> None:
    folders = [run.folder for run in pairs]
    assert len({row["run"] for row in llmfair.score(*folders).results["rows"]}) == 2  # folders of one name
    for call in (llmfair.score, llmfair.compare):
        one_by_one = json.dumps(call(*folders).results)
        for named in (pairs, iter(folders)):
            assert json.dumps(call(named).results) == one_by_one
    path = llmfair.write_report(pairs, file="out/both.html", figures="svg")
    assert path.read_text().count("<h1") == 1 and [*Path("out/plots").glob("*.svg")]
    with pytest.raises(llmfair.UsageError, match="'gif' is no format"):
        llmfair.write_report(folders[0], figures=["gif"])
    with pytest.raises(llmfair.UsageError, match="no run is named"):
        llmfair.write_report()


def test_a_report_that_cannot_be_written_loses_no_run(undrawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("llmfair.api.write_page", full)
        with pytest.warns(
            UserWarning, match="no report was written, everything else was: OSError: no space left"
        ) as warned:
            result = llmfair.audit_pairwise(**{**PAIRS, "report": True})
    assert warned[0].filename == __file__, "the caller's own line"
    assert result["FlipRate", "relevant"].value is not None
    assert llmfair.write_report(result) == result.folder / "report.html"


def test_a_figure_is_found_by_measure_variant_and_group(pairs: tuple[llmfair.Result, llmfair.Result]) -> None:
    result, _ = pairs
    row = result["AdjustedOdds", "relevant"]
    assert (row.query_id, row.condition, row.stratum, row.n) == ("all", "pairs", "relevant", 8)
    shares = [result["WinShare", "relevant", side].value or 0.0 for side in llmfair.Side]
    assert 0 < sum(shares) < 1
    wrong = {
        ("AdjustedOds", "relevant"): "Did you mean 'AdjustedOdds'?",
        ("AdjustedOdds", "relevent"): "conditions: .* Did you mean 'relevant'?",
        ("WinShare", "relevant"): "groups: .*'protected'",
    }
    for key, hint in wrong.items():
        with pytest.raises(llmfair.UsageError, match=key[0]) as error:
            result[key]
        assert re.search(hint, error.value.hint)
    with pytest.raises(llmfair.UsageError, match="names no figure"):
        result["AdjustedOdds"]  # type: ignore[index]


@pytest.mark.whole
def test_frames_hold_the_rows_of_the_csv_files() -> None:
    import pandas

    result = llmfair.audit_listwise(**QUICK)
    frames = {"metrics.csv": result.to_frame(), "per_query.csv": result.to_frame(per_query=True)}
    for name, frame in frames.items():
        rows = table(result.folder / name)
        assert [*frame.columns] == [*rows[0]] and len(frame) == len(rows)
        assert [repr(v) for v in frame["value"].dropna()] == [row["value"] for row in rows if row["value"]]
        assert frame["value"].dtype == float and str(frame["n"].dtype) == "Int64"
    assert [row.query_id for row in result.per_query] == list(frames["per_query.csv"]["query_id"])
    injected = llmfair.calibrate_pairwise(runs=3, pairs=3).to_frame()
    assert isinstance(injected, pandas.DataFrame) and "covered" in injected
    with pytest.raises(llmfair.UsageError, match="plan pairwise has no rows"):
        llmfair.plan_pairwise(pairs=4).to_frame()


def test_figures_of_scored_files_are_there_without_a_folder() -> None:
    run = llmfair.audit_listwise(**QUICK).folder
    ranked = run / "rankings/neutral.run"
    scored = llmfair.score(ranked, qrels=run / "qrels.txt", groups=run / "groups.tsv")
    assert scored["P@20", str(ranked)].n == 5 and len({row.query_id for row in scored.per_query}) == 5
    with pytest.raises(llmfair.UsageError, match="score wrote no folder"):
        _ = scored.folder


def test_a_notebook_is_shown_no_markup_of_a_model(tmp_path: Path) -> None:
    model = InOrder()
    model.name = "<img src=x onerror=alert(1)>\x1b[2J"
    result = llmfair.audit_pairwise(model=model, **PAIRS)
    assert "<img" not in result._repr_html_() and "&lt;img src=x" in result._repr_html_()
    assert "\x1b" not in str(result) and "\\x1b[2J" in str(result)


@pytest.mark.parametrize(
    ("call", "says", "hint"),
    [
        (lambda: llmfair.audit_listwise(windw=5), "no setting 'windw'. Did you mean 'window'?", "help()"),
        (lambda: llmfair.audit_listwise(dry_run=True), "no setting 'dry_run'.", "help()"),
        (lambda: llmfair.audit_listwise("smaple"), "no dataset 'smaple'. Did you mean 'sample'?", "folder"),
        (lambda: llmfair.audit_listwise(model=["fake:biased", "fake:oracle"]), "one call is one run", "compare"),
        (lambda: llmfair.audit_listwise(model=42), "an object of class int is no model", "an object with both"),
        (lambda: llmfair.finetune_lora(), "base_model names no model.", "--base-model"),
        (lambda: llmfair.score([]), "no run is named", "a list of them"),
        (lambda: llmfair.score(json.loads("[3]")), "no run is named: [3].", "a list of them"),
        (lambda: llmfair.open_run("nowhere"), "no run 'nowhere' in runs.", "runs list"),
        (lambda: llmfair.parse_model("opneai:x"), "Did you mean 'openai'?", "known"),
    ],
)  # fmt: skip
def test_wrong_input_is_a_usage_error(call: Callable[[], Any], says: str, hint: str) -> None:
    with pytest.raises(llmfair.UsageError) as error:
        call()
    assert says in error.value.message and hint in error.value.hint
    assert not Path("runs").exists()


def test_a_gate_that_is_not_met_raises_after_everything_is_written() -> None:
    with pytest.raises(llmfair.RequirementFailed, match=r"P@20 \(neutral prompt\) .* is below 2") as error:
        llmfair.audit_listwise(require="P@20>=2", **QUICK)
    (note,) = [note for note in error.value.__notes__ if "open_run" in note]
    result = llmfair.open_run(only_run())
    assert repr(str(only_run())) in note
    assert result.results["status"] == "complete"
    assert [entry["holds"] for entry in result.results["requirements"]] == [False]


def test_what_has_no_answer_raises_after_what_there_is_is_written() -> None:
    with pytest.raises(llmfair.Incomplete, match="the budget of 3 calls is spent"):
        llmfair.audit_listwise(max_calls=3, **QUICK)
    assert llmfair.open_run("listwise-sample").results["status"] == "incomplete"
    with pytest.raises(llmfair.Incomplete, match="20/10: the budget of 3 calls is spent"):
        llmfair.study_windows(settings="20/10", limit=5, orders=1, report=False, max_calls=3, output="swept")
    assert llmfair.open_run("swept").results["status"] == "incomplete"


@pytest.mark.whole
def test_an_object_is_a_model_named_in_folder_and_journal(undrawn: None) -> None:
    model = InOrder()
    result = llmfair.audit_listwise(model=model, **{**QUICK, "report": True})
    assert model.asked == 15 and result.folder.name.startswith("listwise-sample-gender-object-in-order-")
    manifest = json.loads((result.folder / "manifest.json").read_text())
    assert re.fullmatch("object in order [0-9a-f]{12}", manifest["settings"]["identity"])
    assert {row["model"] for row in result.results["rows"]} == {"object:in order"}
    assert result["P@20", "neutral"].value == result["P@20", "initial"].value  # it changes nothing
    assert command("runs", "check", result.folder).code == 0
    page = (result.folder / "report.html").read_text()
    assert "object:in order" in page and "llmfair listwise -m" not in page  # no command names an object
    again = InOrder()
    assert llmfair.audit_listwise(model=again, **QUICK).rows == result.rows and again.asked == 0
    assert llmfair.audit_listwise(model=again, fresh=True, **QUICK).rows == result.rows
    assert again.asked == 15  # a name alone shares no answers between runs


def test_a_name_means_what_the_table_shows_under_it() -> None:
    result = llmfair.audit_listwise(
        model="fake:biased", limit=5, conditions="neutral", repeat=False, report=False
    )
    assert result["ExpRatio", "neutral"] == result["ExpRatio(control=order)", "neutral"]
    (plain,) = [row for row in result.rows if (row.measure, row.condition) == ("ExpRatio", "neutral")]
    assert plain.value != result["ExpRatio", "neutral"].value
    assert result["PreferenceOdds", "neutral"].conclusion is not None


@pytest.mark.whole
def test_an_object_may_say_more_of_itself() -> None:
    class Spoken(InOrder):
        identity = "in order, version 2"
        capabilities = ("margins", "forced_margins")
        max_workers = 3
        events: list[str] = []
        flying = most = 0

        async def open(self) -> None:
            self.events.append("open")

        async def close(self) -> None:
            self.events.append("close")

        async def complete(self, request: llmfair.Request) -> Any:
            if self.asked == 0:
                self.asked += 1
                raise Transient("not yet")
            self.flying += 1
            self.most = max(self.most, self.flying)
            await asyncio.sleep(0.01)
            self.flying -= 1
            expects = request.chat.expects
            labels = expects.labels if isinstance(expects, llmfair.Labels) else ("A", "B")
            odds = dict.fromkeys(labels, -0.7)
            return llmfair.Completion("A", llmfair.Finish.STOP, logprobs=odds)

    model = Spoken()
    result = llmfair.audit_pairwise(model=model, answers="margin", **PAIRS)
    assert model.events == ["open", "close"] and model.most == 3
    manifest = json.loads((result.folder / "manifest.json").read_text())
    assert manifest["settings"]["identity"] == "in order, version 2" and manifest["retries"] == 1
    with pytest.raises(llmfair.UsageError, match="object:in order cannot do --constrain"):
        llmfair.audit_pairwise(model=model, constrain=True, **PAIRS)


async def mapped(self: object, request: llmfair.Request) -> Any:
    return {"text": "[1] > [2]"}


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"complete": mapped}, "of class Model is no model"),
        ({"name": "plain", "complete": lambda self, request: "[1] > [2]"}, "complete of object:plain is no async function"),
        ({"name": "in order", "complete": mapped}, "complete of object:in order is no async function"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_said_at_once(attributes: dict[str, Any], says: str) -> None:
    with pytest.raises(llmfair.UsageError, match=says):
        llmfair.audit_pairwise(model=type("Model", (), attributes)(), **PAIRS)


def test_an_object_that_breaks_leaves_an_incomplete_run() -> None:
    class Breaks(InOrder):
        async def complete(self, request: llmfair.Request) -> str:
            if self.asked >= 20:
                raise ValueError("out of memory")
            return await super().complete(request)

    with pytest.raises(llmfair.Incomplete, match="out of memory") as error:
        llmfair.audit_pairwise(model=Breaks(), **PAIRS)
    assert isinstance(error.value.__cause__, ValueError)  # the traceback of one's own code is not lost
    found = llmfair.open_run("pairwise-sample")
    assert found.results["status"] == "incomplete" and found.results["failures"] == {"ValueError": 54}


def test_a_measure_and_a_dataset_of_one_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_found", {kind: dict(found) for kind, found in registry._found.items()})

    @llmfair.measure("FirstIsProtected", cite="of the caller's own")
    def first(judged: Judged, cutoff: float | None) -> dict[str, Value]:
        """Whether the first document is of the protected side."""
        return {"": float(judged.sides[judged.doc_ids[judged.orders[0][0]]] is llmfair.Side.PROTECTED)}

    @llmfair.register("dataset", "my-sample")
    def mine() -> Any:
        return llmfair.load_dataset("sample")

    result = llmfair.audit_listwise("my-sample", measures="FirstIsProtected", **QUICK)
    assert 0 <= (result["FirstIsProtected", "neutral"].value or 0) <= 1
    assert "FirstIsProtected" in str(result)


def test_a_model_is_named_or_taken_apart() -> None:
    model = llmfair.parse_model("openai:any", base_url="http://127.0.0.1:9/v1")
    assert model.identity == "openai any 127.0.0.1:9" and callable(model.complete)


@pytest.mark.slow
def test_an_adapter_is_trained_measured_and_opened_again(capfd: pytest.CaptureFixture[str]) -> None:
    from tests import models
    from tests.tuning.biased import biased_model, marked_data

    models.needs_local()
    biased_model(Path("model"))
    marked_data(Path("data"), 12)
    small: dict[str, Any] = {
        "pairs": 6, "pairs_per_query": 40, "group_size": 32, "prompts_per_step": 64, "max_prompts": 2048,
        "eval_every": 512, "learning_rate": 1e-2, "train_share": 0.8, "output": "adapter",
    }  # fmt: skip
    capfd.readouterr()
    trained = llmfair.finetune_lora("data", base_model="model", **small)
    captured = capfd.readouterr()
    assert captured.out == "" and "Train" not in captured.err
    assert Path("adapter/adapter_model.safetensors").is_file() and trained.results["status"] == "complete"
    assert "logit offset" in str(trained) and len(trained.to_frame()) == len(trained.rows)
    assert llmfair.open_run("adapter").results == trained.results
    assert llmfair.finetune_lora("data", base_model="model", **small).results == trained.results
    asked = llmfair.audit_pairwise(
        "data", model="hf:model", adapter="adapter", adapter_only=True, answers="margin", **PAIRS
    )
    assert asked.results["model"] == "hf:model + adapter"
    with pytest.raises(llmfair.UsageError, match="one call is one run, but 2 are named"):
        llmfair.audit_pairwise("data", model="hf:model", adapter="adapter", answers="margin", **PAIRS)


def test_doubts_of_a_run_are_those_of_its_manifest() -> None:
    with Server(rank) as server:
        asked: dict[str, Any] = {"base_url": server.base_url, "server_name": "test", "max_invalid": 1}
        asked |= {**PAIRS, "model": "openai:any"}
        assert llmfair.audit_pairwise(output="one", **asked).warnings == ()
        result = llmfair.audit_pairwise(output="two", **asked)
    assert len(result.warnings) == 1 and "answers came from other runs of this model" in result.warnings[0]
    assert llmfair.open_run("two").warnings == result.warnings and result.warnings[0] in str(result)
    assert f"  {result.warnings[0]}" in command("runs", "show", "two").out
    assert command("runs", "show", "two", "--json").json["warnings"] == [*result.warnings]
