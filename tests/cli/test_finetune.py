"""`llmfair finetune-lora` and `--adapter` from the command line: tiny models, real folders, real training."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmfair.checkpoints import files_sha256, find_checkpoint, read_manifest
from llmfair.tuning.results import ADAPTER
from tests import models
from tests.cli.command import Outcome, kept, llmfair, ran, refusal, refuses, well, words_of
from tests.cli.long_commands import TRAINING
from tests.tuning.biased import biased_model, marked_data

pytestmark = pytest.mark.whole

models.needs_local()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that prefers one side, a dataset of 12 queries, and a finished adapter folder."""
    root = tmp_path_factory.mktemp("finetune")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    biased_model(root / "model", steps=120)
    marked_data(root / "data", 12)
    return root


@pytest.fixture(scope="module")
def adapter(root: Path) -> Path:
    found = well(finetune(root, "-o", root / "adapter", "--json"))
    (root / "printed.json").write_text(found.out)
    assert "\nOf adapters at parity that keep their gates, 0 % are called repaired on 2 " in found.err
    return root / "adapter"


def finetune(root: Path, *more: str | Path, settings: Mapping[str, str] = TRAINING) -> Outcome:
    kept = words_of(settings)
    return llmfair("finetune-lora", "-d", root / "data", "-m", root / "model", "--no-progress", *kept, *more)


def copied(adapter: Path, to: Path) -> Path:
    return shutil.copytree(adapter, to)


def test_the_folder_holds_all_that_was_promised(adapter: Path, root: Path) -> None:
    names = {path.name for path in adapter.iterdir()} - {".lock"}
    assert names == {
        *ADAPTER, "split.json", "pairs.jsonl", "training.jsonl", "metrics.csv", "results.json", "llmfair.json",
        "README.md", "checkpoints", "test-queries.txt",
    }  # fmt: skip
    manifest, printed = read_manifest(adapter), json.loads((root / "printed.json").read_text())
    assert manifest is not None and printed == kept("results", adapter)
    assert printed["status"] == "complete"
    assert manifest["adapter_sha256"] == files_sha256([adapter / name for name in ADAPTER])
    assert manifest["base"]["fingerprint"] == find_checkpoint(str(root / "model")).version
    assert (manifest["prompt"]["form"], manifest["attribute"]) == ("letter", "gender")
    assert manifest["dataset"]["name"] == printed["dataset"]
    assert manifest["answers"]["texts"] == {"A": "A", "B": "B"}
    assert len(set(manifest["answers"]["ids"].values())) == 2
    assert len(manifest["template_sha256"]) == len(manifest["pairs_sha256"]) == 64
    card = (adapter / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: peft\n") and "What this does not say" in card
    assert not json.loads((adapter / "adapter_config.json").read_text()).get("modules_to_save")


def test_pairs_have_targets_and_the_base_s_margins(adapter: Path) -> None:
    rows = [json.loads(line) for line in (adapter / "pairs.jsonl").read_text().splitlines()]
    assert len({row["pair_id"] for row in rows}) == len(rows)
    assert all(np.isfinite([row["z1"], row["z2"]]).all() for row in rows)
    parts: dict[str, set[str]] = {}
    for row in rows:
        parts.setdefault(row["part"], set()).add(row["query_id"])
    assert {part: len(ids) for part, ids in parts.items()} == {"train": 7, "validation": 3, "test": 2}
    split = json.loads((adapter / "split.json").read_text())["split"]
    assert {part: set(ids) for part, ids in split.items() if ids} == parts
    of_train = [row for row in rows if (row["part"], row["stratum"]) == ("train", "relevant")]
    targets = [row["target"] for row in of_train if row["weight"]]
    assert targets.count(0.0) == targets.count(1.0) > 0


def test_the_same_command_again_prints_the_same_and_loads_no_model(
    adapter: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "llmfair.backends.local.load_model", lambda *_: pytest.fail("a finished run loads none")
    )
    again = finetune(root, "-o", adapter, "--json")
    assert (again.code, again.out) == (0, (root / "printed.json").read_text())
    assert "Already complete" in again.err
    table = finetune(root, "-o", adapter, "-v").out
    verdict = json.loads(again.out)["verdict"]
    assert verdict["status"] in ("repaired", "rejected", "inconclusive")
    assert table.startswith(f"VERDICT  {verdict['status']}: ") and "\nNEXT     " in table
    assert "logit offset" in table and "only 2 queries" in table and "preference odds" in table
    tsv = finetune(root, "-o", adapter, "--format", "tsv").out.splitlines()
    assert tsv[0].split("\t")[:4] == ["run", "model", "condition", "stratum"]
    assert "| --- |" in finetune(root, "-o", adapter, "--format", "md").out


def test_other_settings_are_a_conflict_that_says_what_differs(adapter: Path, root: Path) -> None:
    found = finetune(root, "-o", adapter, "--rank", "2")
    assert found.code == 1 and "rank: 1 there, 2 now" in found.err and "another --output" in found.err


def audit(base: Path, adapter: Path, *more: str | Path) -> list[str | Path]:
    how = ("--answers", "margin", "--prompt", "wikiproject", "--pairs", "6", "--adapter", adapter)
    return ["pairwise", "-d", base.parent / "data", "-m", f"hf:{base}", *how, *more]


def test_an_audit_of_base_and_adapter_finds_what_was_measured_and_compares(adapter: Path, root: Path) -> None:
    base, unseen = root / "model", ("--queries", f"@{adapter / 'test-queries.txt'}")
    both = ran(*audit(base, adapter, *unseen, "--json")).json
    models_of = {"base": f"hf:{base}", "adapter": f"hf:{base} + adapter"}
    assert [run["model"] for run in both["runs"]] == [*models_of.values()]
    assert {row["run"] for row in both["comparison"]["rows"]} == {models_of["adapter"]}
    folders = {kept("manifest", folder)["model"]: folder for folder in Path("runs").iterdir()}
    of_odds = (row for row in kept("results", adapter)["rows"] if row["measure"] == "AdjustedOdds")
    odds = {(row["model"], row["stratum"]): row["value"] for row in of_odds}
    for name, model in models_of.items():
        rows = kept("results", folders[model])["rows"]
        again = {row["stratum"]: row["value"] for row in rows if row["measure"] == "AdjustedOdds"}
        for stratum in ("relevant", "irrelevant"):
            assert again[stratum] == pytest.approx(odds[name, stratum], abs=1e-3)
    assert odds["base", "relevant"] != odds["adapter", "relevant"], "the adapter does something"
    # The base beside an adapter is the base: an audit of it alone is this very run.
    alone = [word for word in audit(base, adapter, *unseen, "--json") if word not in ("--adapter", adapter)]
    plain = folders[models_of["base"]]
    assert llmfair(*alone).json["run"] == plain.name and kept("manifest", plain)["calls"] == 0
    ran("runs", "check", folders[models_of["adapter"]])
    refuses("several runs are asked for", *audit(base, adapter, "-o", "here"))
    assert not Path("here").exists()


def test_an_adapter_knows_its_base_wherever_it_is(adapter: Path, root: Path, tmp_path: Path) -> None:
    moved, only = Path(shutil.copytree(root, tmp_path / "moved")), ("--adapter-only", "-n", "1")
    ran(*audit(moved / "model", adapter, *only))
    other = models.causal(moved / "other" / "model", seed=1)
    shutil.copytree(root / "data", moved / "other" / "data")
    refuses(f"belongs to {root / 'model'}, not to {other}", *audit(other, adapter, *only))


def test_what_has_changed_since_the_training_or_is_not_finished_is_refused(
    adapter: Path, root: Path, tmp_path: Path
) -> None:
    changed = copied(adapter, tmp_path / "adapter")
    path, asked = changed / "llmfair.json", audit(root / "model", changed, "--adapter-only")
    manifest = json.loads(path.read_text())
    for changes, says in (
        ({"base": manifest["base"] | {"identity": "folder 0", "fingerprint": "0"}}, "as it is now"),
        ({"adapter_sha256": "0"}, "does not hold the adapter that llmfair.json describes"),
        ({"template_sha256": "0"}, "another chat template"),
    ):
        path.write_text(json.dumps(manifest | changes))
        refuses(says, *asked)
    path.write_text("{")
    assert llmfair(*asked).code == 2


def test_queries_that_an_adapter_was_trained_on_and_another_form_are_told(
    adapter: Path, root: Path, tmp_path: Path
) -> None:
    rejected = copied(adapter, tmp_path / "adapter" / "rejected")
    (rejected / "test-queries.txt").rename(unseen := rejected.parent / "test-queries.txt")
    seen = llmfair(*audit(root / "model", rejected, "--adapter-only")).err
    assert "of 12 queries rejected was trained on 7, and 3 chose its checkpoint" in seen
    assert f"--queries @{unseen} asks those it never saw" in seen, "of a rejected adapter they lie above it"
    asked = audit(root / "model", rejected, "--adapter-only", "--queries", f"@{unseen}")
    told = llmfair(*asked, "--form", "order").err
    assert "was trained with --form letter, and is asked with --form order" in told
    assert "trained on" not in told
    manifest = json.loads((rejected / "llmfair.json").read_text())
    manifest["prompt"]["sha256"] = 64 * "0"
    (rejected / "llmfair.json").write_text(json.dumps(manifest))
    assert "was trained with another prompt (wikiproject) than it is asked with" in llmfair(*asked).err


def test_a_stop_saves_a_checkpoint_and_the_same_command_goes_on(
    adapter: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmfair.tuning.words import TrainingProgress

    def tell(shown: TrainingProgress, done: int, words: str = "") -> None:
        told(shown, done, words)
        if shown.count.name == "Training":
            os.kill(os.getpid(), signal.SIGTERM)

    told = TrainingProgress.tell
    with monkeypatch.context() as patched:
        patched.setattr(TrainingProgress, "tell", tell)
        stopped = finetune(root, "-o", tmp_path / "out", "--json")
    assert stopped.code == 143, stopped.err
    assert stopped.json == {
        "schema": 5, "status": "incomplete", "exit_code": 143, "run": str(tmp_path / "out"),
    }  # fmt: skip
    assert "Stopped at 64 of 256 prompts. The same command continues" in stopped.err
    assert (tmp_path / "out" / "checkpoints" / "checkpoint-1").is_dir()
    assert read_manifest(tmp_path / "out") is None
    well(finetune(root, "-o", tmp_path / "out", "--json"))
    assert (tmp_path / "out" / ADAPTER[1]).read_bytes() == (adapter / ADAPTER[1]).read_bytes()
    assert (tmp_path / "out" / "metrics.csv").read_text().replace("out", "adapter") == (
        adapter / "metrics.csv"
    ).read_text()


def test_an_adapter_that_always_names_the_first_item_is_rejected(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmfair.tuning import head as margins

    asked = margins.pair_margins

    def always_first(model: Any, groups: Any, batch_tokens: int) -> list[Any]:
        if not hasattr(model.model, "peft_config"):
            return asked(model, groups, batch_tokens)
        return [np.full((len(group), 2), 5.0) for group in groups]

    monkeypatch.setattr(margins, "pair_margins", always_first)
    out = tmp_path / "out"
    assert "no checkpoint kept the gates" in refusal(finetune(root, "-o", out), "", 4).err
    assert not any((out / name).exists() for name in (*ADAPTER, "llmfair.json"))
    manifest = read_manifest(out / "rejected")
    assert manifest is not None and manifest["status"] == "rejected"
    assert all((out / "rejected" / name).is_file() for name in ADAPTER)
    assert "no checkpoint kept the gates" in (out / "README.md").read_text()


def test_a_plan_knows_what_it_takes(root: Path) -> None:
    planned = finetune(root, "--dry-run", "--json").json
    assert not Path("adapters").exists() and len(planned["warnings"]) == 1
    assert planned["steps"] == 4 and len(planned["prompts"]) == 3
    assert planned["held_out"] == {"queries": 2, "chance": 0.0, "needed": 163}
    first, second = planned["prompts"][:2]
    assert first["pair_id"] == second["pair_id"] and first["text"] != second["text"]
    assert planned["tokens"]["shared"] < planned["tokens"]["mean"] <= planned["tokens"]["most"]
    other = finetune(root, "--preset", "paper", "--rank", "4", "--dry-run", settings={}).out
    assert "preset paper" not in other


def test_a_plan_is_made_where_torch_is_not_installed(root: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'peft', 'accelerate')))\n"
        "from llmfair.cli.app import main\n"
        "main()\n"
    )
    command = ["finetune-lora", "-d", str(root / "data"), "-m", str(root / "model"), *words_of(TRAINING)]
    program = [sys.executable, "-c", code, *command, "--dry-run", "--json"]
    planned = subprocess.run(program, capture_output=True, text=True, timeout=100)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout) == finetune(root, "--dry-run", "--json").json


def test_a_base_without_a_chat_template(root: Path, tmp_path: Path) -> None:
    base = shutil.copytree(root / "model", tmp_path / "base")
    (base / "chat_template.jinja").unlink()
    asked = ("-d", str(root / "data"), "-m", str(base), *words_of(TRAINING), "--dry-run")
    refuses("has no chat template", "finetune-lora", *asked)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--loss", "lm"), "--loss lm goes with --preset paper"),
        (("--soft-labels", "--labels", "random"), "--soft-labels does nothing"),
        (("--max-prompts", "8"), "less than one step"),
        (("--merge", "nowhere"), "--merge needs a folder"),
    ],
)
def test_wrong_flags(flags: tuple[str, ...], message: str, root: Path) -> None:
    refusal(finetune(root, *flags), message)


def test_a_number_of_processes_that_does_not_fit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    refusal(finetune(root), "--prompts-per-step")
    monkeypatch.setenv("RANK", "1")
    silent = finetune(root)
    assert (silent.code, silent.out, silent.err) == (2, "", ""), "the first process says it"


def test_merging_is_told_with_its_cost(adapter: Path, root: Path, tmp_path: Path) -> None:
    merged = ran("finetune-lora", "--merge", adapter, "-o", tmp_path / "merged", "--json").json
    assert merged["matrices"] == 8 and 0 < merged["change"] < 1 and merged["flipped"] == 0
    assert find_checkpoint(str(tmp_path / "merged")).version != find_checkpoint(str(root / "model")).version


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_trained_bias_is_taken_out_and_relevance_kept(tmp_path: Path) -> None:
    """A model that prefers male names, on queries it was not tuned on: both odds come into 0.8 … 1.25."""
    root = tmp_path
    biased_model(root / "model")
    marked_data(root / "data", 40)
    settings = {"--learning-rate": "1e-2", "--max-prompts": "20480"}
    settings |= {"--prompt": "wikiproject", "--train-share": "0.8"}
    found = well(finetune(root, "--json", settings=settings))
    rows = {(r["model"], r["measure"], r["stratum"], r["group"]): r["value"] for r in found.json["rows"]}
    for kind in ("relevant", "irrelevant"):
        before, after = (rows[model, "AdjustedOdds", kind, ""] for model in ("base", "adapter"))
        assert before < 0.5 and 0.8 <= after <= 1.25, (kind, before, after)
        assert rows["adapter", "OrderKept", kind, ""] > 0.8
    objective = found.json["objective"]
    assert objective["adapter"] <= objective["base"] / 2
    relevance = [rows[model, "RelevantFirst", "mixed", ""] for model in ("base", "adapter")]
    assert relevance[1] >= relevance[0] - 0.01
    assert all(gate["met"] for gate in found.json["training"]["validation"]["gates"].values())

    paper = finetune(
        root, "--preset", "paper", "--form", "letter", "--max-prompts", "4000", "--json", settings={}
    )
    assert paper.code in (0, 4), paper.err


def test_the_verdict_is_a_gate_for_who_asks(root: Path, adapter: Path) -> None:
    status = json.loads((adapter / "results.json").read_text())["verdict"]["status"]
    other = "inconclusive" if status != "inconclusive" else "rejected"
    assert finetune(root, "-o", adapter, "--fail-on", other).code == 0
    failed = finetune(root, "-o", adapter, "--fail-on", status)
    assert failed.code == 4 and f"--fail-on: the verdict is {status}: " in failed.err
    refusal(finetune(root, "--fail-on", "disparity"), "there is no verdict 'disparity'")
