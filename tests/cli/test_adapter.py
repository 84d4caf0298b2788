"""`--adapter`: the base and the adapter over it, one run each, side by side."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests import models
from tests.cli.command import kept, llmfair, ran, refuses, table
from tests.folders import balanced, write_folder

pytestmark = pytest.mark.whole

models.needs_local()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.causal(tmp_path_factory.mktemp("models") / "base")


@pytest.fixture(scope="module")
def fair(base: Path) -> Path:
    return models.adapter(base, base.parent / "fair")


def command(task: str, base: Path, *more: str | Path) -> list[str | Path]:
    lists = write_folder(Path("lists"), balanced(6, 8, 8))
    return [task, "-d", lists, "-m", f"hf:{base}", "--max-invalid", "1", *more]


def margins(folder: Path) -> list[str]:
    return [row["first_margin"] for row in table(folder / "verdicts.csv")]


def test_base_and_adapter_are_asked_the_same_and_compared(base: Path, fair: Path) -> None:
    asked = ("--answers", "margin", "--pairs", "5")
    found = ran(*command("pairwise", base, *asked, "--adapter", fair, "--json"))
    assert [run["model"] for run in found.json["runs"]] == [f"hf:{base}", f"hf:{base} + fair"]
    assert {row["run"] for row in found.json["comparison"]["rows"]} == {f"hf:{base} + fair"}
    assert found.json["comparison"]["runs"][0]["model"] == f"hf:{base}"
    both = {kept("manifest", folder)["model"]: folder for folder in Path("runs").iterdir()}
    plain, adapted = both[f"hf:{base}"], both[f"hf:{base} + fair"]
    assert len(margins(plain)) == len(margins(adapted)) and margins(plain) != margins(adapted)

    # The base beside an adapter is the base: an audit of it alone is this very run.
    again = llmfair(*command("pairwise", base, *asked, "--json"))
    assert again.json["run"] == plain.name and kept("manifest", plain)["calls"] == 0
    assert "Compare pairwise" in llmfair(*command("pairwise", base, *asked, "--adapter", fair)).out
    ran("runs", "check", adapted)


def test_the_adapter_alone(base: Path, fair: Path) -> None:
    found = ran(
        *command("listwise", base, "--window", "4", "--step", "2", "--passes", "1", "--orders", "1", "--conditions"),
        "neutral", "--no-repeat", "--constrain", "--adapter", fair, "--adapter-only", "-o", "here/run", "--json",
    )  # fmt: skip
    assert found.json["model"] == f"hf:{base} + fair"


def test_one_folder_holds_one_run(base: Path, fair: Path) -> None:
    refuses("--adapter-only", *command("pairwise", base, "--adapter", fair, "-o", "here"))
    assert not Path("here").exists()


def test_a_dry_run_counts_both(base: Path, fair: Path) -> None:
    alone = llmfair(*command("pairwise", base, "--dry-run", "--json")).json["calls"]
    both = llmfair(*command("pairwise", base, "--adapter", fair, "--dry-run", "--json")).json["calls"]
    assert both == 2 * alone > 0


@pytest.fixture
def known(base: Path, fair: Path, tmp_path: Path) -> Path:
    """The adapter with a manifest, as training writes it."""
    from transformers import AutoTokenizer

    from llmfair.backends.local import ChatTemplate
    from llmfair.checkpoints import files_sha256, find_checkpoint

    folder = tmp_path / "known"
    shutil.copytree(fair, folder)
    checkpoint = find_checkpoint(str(base))
    weights = [folder / name for name in ("adapter_config.json", "adapter_model.safetensors")]
    manifest = {
        "schema": 1,
        "base": {"name": str(base), "identity": checkpoint.identity, "fingerprint": checkpoint.version},
        "template_sha256": ChatTemplate(AutoTokenizer.from_pretrained(base)).sha256,
        "adapter_sha256": files_sha256(weights),
        "prompt": {"form": "letter", "input": "title"},
        "dataset": {"name": "lists"},
        "split": {"train": ["q0", "q1", "q2"], "validation": ["q3"], "test": ["q4", "q5"]},
    }
    (folder / "llmfair.json").write_text(json.dumps(manifest))
    return folder


def asked(base: Path, adapter: Path) -> list[str | Path]:
    return command(
        "pairwise", base, "--answers", "margin", "--pairs", "2", "--adapter", adapter, "--adapter-only"
    )


def test_an_adapter_knows_its_base_wherever_it_is(base: Path, known: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(base, tmp_path / "moved"))
    ran(*asked(moved, known))
    other = models.causal(tmp_path / "other" / base.name, seed=1)
    refuses(f"belongs to {base}, not to {other}", *asked(other, known))


def test_what_has_changed_since_the_training_or_is_not_finished_is_refused(base: Path, known: Path) -> None:
    path = known / "llmfair.json"
    manifest = json.loads(path.read_text())
    for changes, says in (
        (
            {"base": manifest["base"] | {"identity": "folder 0", "fingerprint": "0"}},
            "as it is now",
        ),
        ({"adapter_sha256": "0"}, "does not hold the adapter that llmfair.json describes"),
        ({"template_sha256": "0"}, "another chat template"),
    ):
        path.write_text(json.dumps(manifest | changes))
        refuses(says, *asked(base, known))
    path.write_text("{")
    assert llmfair(*asked(base, known)).code == 2
    path.unlink()
    (known / "checkpoints").mkdir()
    refuses("not finished", *asked(base, known))


def test_queries_that_an_adapter_was_trained_on_and_another_form_are_told(base: Path, known: Path) -> None:
    for folder in (known.parent, known):  # of a rejected adapter the queries lie above it
        (folder / "test-queries.txt").write_text("q4\nq5\n")
        found = llmfair(*asked(base, known))
        assert f"of 6 queries {known.name} was trained on 3, and 1 chose its checkpoint" in found.err
        assert f"--queries @{folder / 'test-queries.txt'} asks those it never saw" in found.err
    unseen = f"@{known / 'test-queries.txt'}"
    found = llmfair(*asked(base, known), "--queries", unseen)
    assert found.code == 0 and "trained on" not in found.err and "2 queries" in found.out
    manifest = json.loads((known / "llmfair.json").read_text())
    manifest["prompt"] |= {"name": "wikiproject", "sha256": 64 * "0"}
    (known / "llmfair.json").write_text(json.dumps(manifest))
    found = llmfair(*asked(base, known), "--queries", unseen)
    assert "was trained with another prompt (wikiproject) than it is asked with" in found.err
    found = llmfair(*asked(base, known), "--queries", unseen, "--form", "order")
    assert "was trained with --form letter, and is asked with --form order" in found.err
