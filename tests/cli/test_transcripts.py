"""What commands print, whole: one snapshot for each table and text, in `tests/snapshots`.

That a sentence stands only under some condition is for the tests of that condition.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llmfair.audits.listwise import plan
from tests import models
from tests.cli.command import MADE, Snapshot, transcript
from tests.conftest import SNAPSHOTS
from tests.folders import balanced, write_folder
from tests.hiring import write_applications

SMALL = "-n 6 --orders 1 --passes 1"
BAD = "-m fake:biased,malformed=0.15 --on-bad-answer fail --max-invalid 1"
WHOLE = {
    "listwise": (
        "listwise -o run",
        "listwise -o run",
        "runs show run --runs-dir .",
        "runs show run --runs-dir . --invalid",
        "runs check run --runs-dir .",
        "listwise -o run --format md --measures P@20,Exposure,Share,AWRF,KL",
        "listwise -n 3 --orders 1 --conditions female -o few",
        f"listwise {SMALL} --initial given -o given",
        f"listwise {SMALL} -m fake:biased,malformed=0.3 --on-bad-answer retry:3 --max-invalid 1 -o again",
    ),
    "groups": (
        "listwise -d apps.csv -a ethnicity -m fake:biased,behind=Black,listwise=-4 --orders 1 -o run",
        "listwise -d apps.csv -a ethnicity --conditions neutral --orders 1 --contrast rest -m fake:biased -o rest",
        "listwise -d apps.csv -a 'gender*ethnicity' --conditions neutral --orders 1 -m fake:biased -o crossed",
    ),
    "listwise-no-model": ("listwise -m bm25 -o run", "listwise -m bm25 -o run"),
    "listwise-incomplete": (
        f"listwise {SMALL} {BAD} -o half",
        "score half",
        f"listwise {SMALL} --permutations 0 -m fake:biased,malformed=0.05 --on-bad-answer fail -o unshuffled",
        f"listwise {SMALL} --max-calls 10 -o stopped",
        "runs check stopped --runs-dir .",
        f"listwise {SMALL} --max-calls 1 -o begun",
    ),
    "listwise-gates": (
        f"listwise {SMALL} --require ExpRatio:male=0.9..1.1 --require P@20>=0.99 -o run",
        f"listwise {SMALL} --preset paper --conditions neutral --require ExpRatio=0.1..9 -o wide",
        "listwise --max-invalid 0.001 -o invalid",
    ),
    "pairwise": (
        "pairwise -o run",
        "pairwise -o run",
        "runs show run --runs-dir .",
        "runs check run --runs-dir .",
        "pairwise --pairs 10 --form letter --format md -o letters",
        "pairwise --pairs 10 --weights pooled -m fake:biased,position=50,malformed=0 -o driven",
        "pairwise --pairs 20 -m fake:biased,pairwise=50,position=0,malformed=0 -o one-side",
        "pairwise --pairs 10 --require FlipRate<=0.001 -o gate",
        "pairwise -n 2 -m fake:biased,malformed=0.5 --on-bad-answer fail -o failed",
        "pairwise --pairs 10 --max-calls 30 -o stopped",
        "pairwise --pairs 10 --max-calls 1 -o begun",
        "pairwise --conditions relevant --pairs 2 --max-calls 20 -o half",
        "score half",
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
    "mitigate": (
        f"listwise {MADE} -o run",
        "mitigate run --dry-run --runs-dir .",
        "mitigate run --free -v",
        "mitigate run --remedy offset --remedy lora --format md",
    ),
    "study-windows": (
        f"study windows {SMALL} --settings 10/5,20/10 --conditions neutral,male --repeat -o table",
        "study windows -n 2 --settings 20/10 --measures Share,P@20 --format md",
    ),
    "compare-lists": (
        f"listwise {MADE} --conditions neutral --no-repeat --orders 1 --passes 1 -m fake:biased,listwise=-4 -o base",
        f"listwise {MADE} --conditions neutral --no-repeat --orders 1 --passes 1 -m fake:oracle --step 20 -o other",
        "compare base other",
        "compare base other --format md --measures P@20",
        *(f"listwise {MADE} {SMALL} -m fake:biased,malformed=0,listwise={p} -o strength{p}" for p in (-1, 0)),
        "compare strength-1 strength0",
    ),
    "compare-pairs": (
        f"pairwise {MADE} --pairs 6 --noise-share 0 -m fake:biased,pairwise=-2,position=0 -o base",
        f"pairwise {MADE} --pairs 6 --noise-share 0 -m fake:biased,pairwise=-0.2,position=3 -o other",
        "compare base other",
        "compare other base",
    ),
    "report": (
        f"listwise {MADE} -o lists",
        f"pairwise {MADE} --pairs 20 -o pairs",
        "report lists --format md --evidence 2",
        "report pairs --format md --evidence 2",
        "report lists --format card",
        "report pairs --format card",
        f"listwise {MADE} -n 6 --conditions neutral --passes 1 -m fake:random,order=50,noise=0.01,malformed=0 -o places",
        "report places --format card",
        f"pairwise {MADE} --pairs 4 -m fake:biased,position=50,malformed=0 -o driven",
        "report driven --format card",
    ),
    "report-formats": (
        f"listwise {MADE} -n 6 --conditions neutral --no-repeat --orders 1 --measures P@20,ExpRatio -o lists",
        f"pairwise {MADE} -n 6 --pairs 2 --noise-share 0 -o pairs",
        "report lists --format csv",
        "report lists pairs --format latex",
    ),
    "report-matrix": (
        f"listwise {MADE} {SMALL} -o biased",
        f"listwise {MADE} {SMALL} -m fake:oracle -o oracle",
        f"listwise {MADE} {SMALL} -m bm25 -o bm25",
        f"listwise {MADE} -n 3 --orders 1 --passes 1 -a location -o location",
        f"pairwise {MADE} --pairs 10 -o pairs",
        "report biased oracle bm25 location pairs --format md",
    ),
    "report-matrix-of-few": (
        *(
            f"listwise {MADE} -n 3 --orders 1 --passes 1 -a {a} --window {w} -o {a}-{w}"
            for a in ("gender", "location")
            for w in (10, 20)
        ),
        f"listwise {MADE} -n 5 --orders 1 --passes 1 -o five",
        "report gender-10 --format md",
        "report gender-10 gender-20 --format md",
        "report gender-10 five location-10 --format md",
    ),
    "refine": (
        "refine -o run",
        "refine -o run",
        "runs show run --runs-dir . --trail --query comets",
        "runs check run --runs-dir .",
        "score run",
        "refine -m fake:refiner,malformed=0.5 --max-invalid 1 -a location --format md -o damaged",
        "refine -d sample -o balanced",
        "refine --require AWRF@20>=0.99 --fail-on inconclusive -o gate",
        "refine --max-calls 4 -j 1 -o stopped",
        "refine --baseline greedy --baseline relevant=mmr:lambda=0.9 -o remedies",
        f"refine {MADE} -m fake:name -o name",
        "compare run name",
        f"refine {MADE} -a location -o location",
        "report run location --format md",
        "refine --dry-run",
        "plan refine",
    ),
    "calibrate-listwise": (
        "calibrate listwise --runs 10 --injected -0.5",
        "calibrate listwise --runs 4 --injected -0.5 --format md",
        "calibrate listwise --runs 2 --preset paper --alike 1 --slots 2",
    ),
    "calibrate-pairwise": (
        "calibrate pairwise --runs 10 --injected -0.3 --conditions relevant",
        "calibrate pairwise --runs 10 --injected -1 --conditions relevant --weights pooled",
        "calibrate pairwise --runs 4 --injected -1 --conditions relevant --weights pooled --position 6 -n 4 --format md",
    ),
}
PLANS = {
    "plan-listwise": (
        "plan listwise",
        "plan listwise --preset paper --odds 0.5 --expected-ratio -m openai:gpt-4 --price-in 100 --price-out 1000",
        "plan listwise -n 5",
        "plan listwise -n 5 --odds 0.95",
        "plan listwise --odds 0.9 --alike 0 --latency 20 --format md",
        "plan listwise --odds 0.99999",
        "plan listwise --odds 0.7 --format tsv",
    ),
    "plan-listwise-designs": (
        "plan listwise --tau 2",
        "plan listwise --initial deltr --orders 1",
        "plan listwise --windows rankgpt --window 6 --step 4",
        "plan listwise --step 20",
        "plan listwise --design partition",
        "plan listwise -d one-side",
        "plan listwise -m bm25",
    ),
    "plan-pairwise": (
        "plan pairwise",
        "plan pairwise -d paper -m openai:gpt-4 --ratio 0.9",
        "plan pairwise --ratio 0.5 --price-in 1 --price-out 2",
        "plan pairwise -n 5",
        "plan pairwise --first-slot 0.6 --consistent 0.5 --ratio 0.5",
        "plan pairwise --consistent 0.5",
        "plan pairwise --pairs 5 --format md",
        "plan pairwise --pairs 20",
        "plan pairwise --pairs 200 --format tsv",
        "plan pairwise --level 0.999",
        "plan pairwise --repeats 2 --conditions relevant",
        "plan pairwise -m fake:biased -m fake:oracle --preset paper",
        "plan pairwise --sequential",
        "plan pairwise --sequential --format tsv",
        "plan pairwise -d apart",
        "plan pairwise -d few --conditions relevant",
    ),
    "dry-runs": (
        "listwise --dry-run",
        "listwise --preset paper -m openai:gpt-4o-mini --price-in 1 --price-out 2 --dry-run",
        "listwise -m bm25 --dry-run",
        "pairwise --dry-run",
        "pairwise --sequential --dry-run",
        "pairwise -m openai:any --base-url http://127.0.0.1:1/v1 --price-in 1000 --price-out 1000 --dry-run",
        "study windows -n 2 --orders 1 --settings 10/5,20/10 --dry-run",
    ),
}
NO_VERDICT = re.compile("(?<!llm)fair(?!-qr|-star|-prompt| instruction)")
"""What no text may say of a model; methods are called by their names."""


@pytest.mark.parametrize("name", PLANS)
def test_plans_and_dry_runs(name: str, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a tenth of the audits that a plan simulates: words and columns are the same."""
    monkeypatch.setattr(plan, "MOST_AUDITS", 8)
    monkeypatch.setattr(plan, "FEWEST_AUDITS", 8)
    write_folder(Path("paper"), balanced(44, 20, 20))
    write_folder(Path("few"), balanced(9, 2, 4) | {f"small{q}": r for q, r in balanced(1, 2, 2).items()})
    write_folder(Path("one-side"), balanced(3, 4, 0) | {"m": [("m", "male", 1), ("n", "male", 0)]})
    write_folder(Path("apart"), {f"q{q}": [(f"f{q}", "female", 1), (f"m{q}", "male", 0)] for q in range(8)})
    printed = transcript(*PLANS[name])
    snapshot(name, printed)
    assert not Path("runs").exists() and NO_VERDICT.search(printed) is None


@pytest.mark.whole
@pytest.mark.parametrize("name", WHOLE)
def test_results(name: str, snapshot: Snapshot) -> None:
    write_applications(Path("apps.csv"))
    printed = transcript(*WHOLE[name])
    snapshot(name, printed)
    assert NO_VERDICT.search(printed) is None and not list(Path().glob("*.html"))


@pytest.mark.whole
def test_the_plan_of_a_training(snapshot: Snapshot) -> None:
    models.needs_local()
    models.causal(Path("model"))
    write_folder(Path("data"), balanced(12, 6, 6))
    asked = "finetune-lora -d data -m model --dry-run"
    snapshot("finetune-plan", transcript(f"{asked} --pairs 6", f"{asked} --preset paper"))


def test_no_snapshot_is_left_behind() -> None:
    kept = {path.stem for path in SNAPSHOTS.glob("*.txt")}
    others = "finetune-plan help score-groups score-files score-cutoffs screen-80 screen-120"
    assert kept == {*PLANS, *WHOLE, *others.split()}
