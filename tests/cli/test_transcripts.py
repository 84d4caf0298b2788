"""What commands print, whole: one snapshot for each table and text, in `tests/snapshots`.

A change of words or columns is one `pytest tests/cli/test_transcripts.py --rewrite-snapshots`, and its diff to read.
That a sentence stands only under some condition is for the tests of that condition.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import models
from tests.cli.command import llmfair
from tests.folders import balanced, write_folder

SMALL = "-n 6 --orders 1 --passes 1"
MADE = "-q --no-report"
"""Of runs that another command reads: what they print stands in another snapshot."""
BAD = "-m fake:biased,malformed=0.15 --on-bad-answer fail --max-invalid 1"
WHOLE = {
    "listwise": (
        "listwise -o run",
        "listwise -o run",
        "runs show run --runs-dir .",
        "runs show run --runs-dir . --invalid",
        "runs check run --runs-dir .",
        "listwise -o run --format md --measures P@20,Exposure,Share,AWRF,KL",
        "listwise -n 3 --orders 1 --variants female -o few",
    ),
    "listwise-no-model": ("listwise -m bm25 -o run", "listwise -m bm25 -o run"),
    "listwise-incomplete": (
        f"listwise {SMALL} {BAD} -o half",
        "score half",
        f"listwise {SMALL} --max-calls 10 -o stopped",
        "runs check stopped --runs-dir .",
        f"listwise {SMALL} --max-calls 1 -o begun",
    ),
    "listwise-gates": (
        f"listwise {SMALL} --require ExpRatio:male=0.9..1.1 --require P@20>=0.99 -o run",
        f"listwise {SMALL} --preset paper --variants neutral --require ExpRatio=0.1..9 -o wide",
        "listwise --max-invalid 0.001 -o invalid",
    ),
    "pairwise": (
        "pairwise -o run",
        "pairwise -o run",
        "runs show run --runs-dir .",
        "runs check run --runs-dir .",
        "pairwise --pairs 10 --form letter --format md -o letters",
        "pairwise --pairs 10 --weights pooled -m fake:biased,position=50,malformed=0 -o driven",
        "pairwise --pairs 10 --require FlipRate<=0.001 -o gate",
        "pairwise --pairs 10 --max-calls 30 -o stopped",
    ),
    "pairwise-sequential": (
        "pairwise --sequential --max-pairs 60 -o run",
        "pairwise --sequential --max-pairs 60 -o run",
        "pairwise --sequential -m fake:biased,pairwise=-2,position=0,malformed=0 -o settled",
    ),
    "score": (
        f"listwise {MADE} -o lists",
        f"pairwise {MADE} --pairs 10 -o pairs",
        "score lists/rankings/neutral.run lists/rankings/female.run --qrels lists/qrels.txt --groups lists/groups.tsv",
        "score lists",
        "score pairs",
        "score lists --format md --measures P@20,ExpRatio --require P@20>=0.99",
    ),
    "study-windows": (
        f"study windows {SMALL} --settings 10/5,20/10 --variants neutral,male --control -o table",
        "study windows -n 2 --settings 20/10 --measures Share,P@20 --format md",
    ),
    "compare-lists": (
        f"listwise {MADE} --variants neutral --no-control --orders 1 --passes 1 -m fake:biased,listwise=-4 -o base",
        f"listwise {MADE} --variants neutral --no-control --orders 1 --passes 1 -m fake:oracle --step 20 -o other",
        "compare base other",
        "compare base other --format md --measures P@20",
    ),
    "compare-pairs": (
        f"pairwise {MADE} --pairs 10 -m fake:biased,pairwise=-2,position=0 -o base",
        f"pairwise {MADE} --pairs 10 -m fake:biased,pairwise=-0.2,position=3 -o other",
        "compare base other",
    ),
    "report": (
        f"listwise {MADE} -o lists",
        f"pairwise {MADE} --pairs 20 -o pairs",
        "report lists --format md --evidence 2",
        "report pairs --format md --evidence 2",
        "report lists --format card",
        "report pairs --format card",
    ),
    "report-matrix": (
        f"listwise {MADE} {SMALL} -o biased",
        f"listwise {MADE} {SMALL} -m fake:oracle -o oracle",
        f"listwise {MADE} {SMALL} -m bm25 -o bm25",
        f"listwise {MADE} -n 3 --orders 1 --passes 1 -a location -o location",
        f"pairwise {MADE} --pairs 10 -o pairs",
        "report biased oracle bm25 location pairs --format md",
    ),
    "calibrate-listwise": ("calibrate listwise --runs 10 --planted -0.5",),
    "calibrate-pairwise": (
        "calibrate pairwise --runs 10 --planted -0.3 --kind relevant",
        "calibrate pairwise --runs 4 --planted -1 --kind relevant --weights pooled --position 6 -n 4 --format md",
    ),
}
PLANS = {
    "plan-listwise": (
        "plan listwise",
        "plan listwise --preset paper --ratio 0.5 -m openai:gpt-4 --price-in 100 --price-out 1000",
        "plan listwise -m bm25",
    ),
    "plan-pairwise": (
        "plan pairwise",
        "plan pairwise --ratio 0.9 --pairs 200 -m openai:gpt-4 --format md",
        "plan pairwise --sequential",
    ),
    "dry-runs": (
        "listwise --dry-run",
        "listwise --preset paper -m openai:gpt-4o-mini --price-in 1 --price-out 2 --dry-run",
        "listwise -m bm25 --dry-run",
        "pairwise --dry-run",
        "pairwise --sequential --dry-run",
        "study windows -n 2 --orders 1 --settings 10/5,20/10 --dry-run",
    ),
}
Snapshot = Callable[[str, str], None]


def transcript(commands: tuple[str, ...]) -> str:
    """Each command with what it printed, or that it printed the same again; lines of stderr begin with `! `."""
    said, tables = [], set[str]()
    for command in commands:
        found = llmfair(*shlex.split(command))
        errors = "".join(f"! {line}\n" for line in found.err.splitlines())
        code = f"exit code {found.code}\n" if found.code else ""
        shown = "the same again\n" if found.out in tables else found.out
        tables.add(found.out)
        said.append(f"$ llmfair {command}\n" + (f"{errors}{shown}{code}\n" if MADE not in command else code))
    return "".join(said)


@pytest.mark.parametrize("name", PLANS)
def test_plans_and_dry_runs(name: str, snapshot: Snapshot) -> None:
    snapshot(name, transcript(PLANS[name]))
    assert not Path("runs").exists()


@pytest.mark.whole
@pytest.mark.parametrize("name", WHOLE)
def test_results(name: str, snapshot: Snapshot) -> None:
    printed = transcript(WHOLE[name])
    snapshot(name, printed)
    assert "fair" not in printed.replace("llmfair", ""), "no verdict on fairness"


@pytest.mark.whole
def test_the_plan_of_a_training(snapshot: Snapshot) -> None:
    models.needs_local()
    models.causal(Path("model"))
    write_folder(Path("data"), balanced(12, 6, 6))
    snapshot("finetune-plan", transcript(("finetune-lora -d data -m model --pairs 6 --dry-run",)))
