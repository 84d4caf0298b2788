"""`llmfair mitigate`: remedies beside a run, what is asked for them, what cannot be had, and the order that is known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import llmfair as package
from benchmarks.mitigation import KNOWN, REMEDIES, StandIn, folder, simulated, summary
from llmfair.audits.runs.exhibits import check_run
from llmfair.errors import LlmfairError
from llmfair.io.trec import read_run
from llmfair.registry import _found, register
from llmfair.rundir import RunDir
from tests import models
from tests.cli.command import kept, llmfair, ran, refuses
from tests.folders import balanced, write_folder
from tests.servers import Server, rank

ODDS, UTILITY, ANSWERS = "PreferenceOdds(of=ranking)", "nDCG@20", "PreferenceOdds"
LISTS = ("listwise", "--no-report", "-q")
NEARER = "nearer to parity, whether into the band is open"
FREE = ("named-prompt", "consensus", "offset", "fair-star", "greedy")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the bundled sample, made once."""
    folder = tmp_path_factory.mktemp("made") / "run"
    assert llmfair(*LISTS, "-o", folder).code == 0
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of the run, in a folder of runs of its own."""
    return Path(shutil.copytree(made, tmp_path / "runs" / "base"))


def remedies(folder: Path) -> dict[str, Any]:
    return {one["remedy"]: one for one in json.loads((folder / "results.json").read_text())["remedies"]}


def test_what_needs_no_model_is_measured_on_the_same_queries(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    found = ran("mitigate", run, "--free", "--no-report")
    assert found.out.startswith(f"VERDICT  {NEARER}: the rankings put female items behind male ones")
    by_name = remedies(run / "mitigation")
    assert [*by_name] == ["none", *FREE]
    base = by_name["none"]["figures"]
    for name in FREE:
        one = by_name[name]
        assert one["available"] and "error" not in one
        for measure in (ODDS, UTILITY):
            change, figure = one["changes"][measure], one["figures"][measure]
            assert change["n"] == figure["n"] == base[measure]["n"] == 8
            assert (change["base"], change["other"]) == (base[measure]["value"], figure["value"])
    assert {by_name[name]["figures"][ANSWERS]["reason"] for name in FREE[1:]} == {"answers_untouched"}
    assert by_name["named-prompt"]["calls"] == 216 and by_name["offset"]["calls"] == 0
    assert {name for name, one in by_name.items() if one.get("front")} == {"offset"}
    assert 0.9 < by_name["offset"]["figures"][ODDS]["value"] < 1.1
    # eight lists do not show that, and the page says how many do
    assert 0.025 < by_name["offset"]["p_inside"] < by_name["greedy"]["p_inside"] == 1
    needed = by_name["offset"]["lists_needed"]
    assert f"NEXT     about {needed} lists would settle it" in found.out
    # the run is as it was, and is still what its journal gives
    assert all(path.read_bytes() == text for path, text in before.items())
    assert check_run(RunDir(run))["problems"] == []
    listed = ran("runs", "list", "--runs-dir", run.parent, "--json").json["runs"]
    assert [row["run"] for row in listed] == ["base"]


@pytest.mark.whole
def test_rankings_are_trec_runs_that_score_reads(run: Path) -> None:
    specs = ("offset", "fair-star:p=0.6,k=40", "fair-star:p=0.3")
    told = ran("mitigate", run, "--free", "--no-report", *(word for s in specs for word in ("--remedy", s)))
    assert "FA*IR (p=0.3)" in told.out and "FA*IR (p=0.6,k=40)" in told.out, "two parameters are two"
    folder = run / "mitigation"
    assert [*remedies(folder)] == ["none", *specs]
    files = sorted(path.name for path in (folder / "rankings").iterdir())
    orders = (".o1.r0", ".o2.r0", "")
    of_star = [f"fair-star_{of}{order}.run" for of in ("p=0.3", "p=0.6,k=40") for order in orders]
    assert files == [*of_star, "offset.run"]
    judged = ("--qrels", run / "qrels.txt", "--groups", run / "groups.tsv")
    measures = ("--measures", f"{UTILITY},{ODDS}")
    found = ran("score", folder / "rankings" / "offset.run", *judged, *measures, "--json")
    of_it = {row["measure"]: row["value"] for row in found.json["rows"] if row["query_id"] == "all"}
    figures = remedies(folder)["offset"]["figures"]
    assert of_it[UTILITY] == pytest.approx(figures[UTILITY]["value"])
    assert of_it[ODDS] == pytest.approx(figures[ODDS]["value"])
    # what another command left there goes
    ran("mitigate", run, "--free", "--no-report", "--remedy", "consensus")
    assert [path.name for path in (folder / "rankings").iterdir()] == ["consensus.run"]


@pytest.mark.whole
def test_files_that_it_did_not_write_stay(run: Path) -> None:
    theirs = Path("out") / "rankings" / "mine.run"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("q Q0 d 1 1 t\n")
    Path("out/results.json").write_text('{"task": "mitigate", "remedies": ["mine"]}')
    for remedy in ("offset", "consensus"):
        ran("mitigate", run, "--remedy", remedy, "--no-report", "-o", "out")
    assert sorted(path.name for path in theirs.parent.iterdir()) == ["consensus.run", "mine.run"]


@pytest.mark.whole
def test_what_asks_is_an_audit_like_any_other(run: Path) -> None:
    dry = ran("mitigate", run, "--dry-run", "--json").json
    assert not (run / "mitigation").exists()
    asked = {one["remedy"]: one for one in dry["remedies"]}
    assert asked["fair-prompt"]["calls"] == 216 and asked["lora"]["error"]["class"] == "UsageError"
    # a budget that is too small breaks off, and the same command goes on
    stopped = llmfair("mitigate", run, "--no-report", "--max-calls", "100")
    assert stopped.code == 3 and "fair-prompt" in stopped.err
    assert kept("results", run / "mitigation")["status"] == "incomplete"
    prices = ("--price-in", "1000", "--price-out", "1000")
    whole = ran("mitigate", run, "--no-report", "--json", *prices).json
    assert whole["status"] == "complete"
    by_name = {one["remedy"]: one for one in whole["remedies"]}
    assert by_name["fair-prompt"]["calls"] == 216 and by_name["fair-prompt"]["cost"] > 0
    assert by_name["fair-prompt"]["figures"][ANSWERS]["n"] == 8
    assert by_name["fair-prompt"]["changes"][ANSWERS]["n"] == 8
    # it is the very run of its own command, which asks nothing more
    made = Path(by_name["fair-prompt"]["run"])
    flags = ("--prompt", "listwise-fair", "--conditions", "neutral", "--no-repeat")
    again = ran("listwise", *flags, "--runs-dir", run.parent, "--json", "--no-report")
    assert Path(again.json["run"]).name == made.name
    assert sum(one.calls or 0 for one in RunDir(made).read_manifest().invocations) == 216
    # and a second time nothing is asked, and all is as it was
    first = (run / "mitigation" / "results.json").read_bytes()
    assert "cost" in ran("mitigate", run, "--no-report").out
    assert (run / "mitigation" / "results.json").read_bytes() == first


@pytest.mark.whole
def test_a_run_of_one_order_and_prompt(tmp_path: Path) -> None:
    ran(*LISTS, "-n", "6", "--orders", "1", "--conditions", "neutral", "--no-repeat", "-o", "one")
    found = ran("mitigate", "one", "--free", "--no-report")
    by_name = remedies(Path("one") / "mitigation")
    assert "consensus takes several orders" in by_name["consensus"]["error"]["message"]
    assert "did not ask under the female prompt" in by_name["named-prompt"]["error"]["message"]
    asked = "llmfair listwise -m fake:biased --limit 6"
    hints = [by_name[remedy]["error"]["hint"] for remedy in ("consensus", "named-prompt")]
    assert all(hint.startswith(asked) for hint in hints) and "--orders 1" not in hints[0]
    assert "--orders 1 " in hints[1] and "--conditions neutral,female" in hints[1]
    assert by_name["offset"]["figures"]["Consistency"]["reason"] == "single_order"
    assert "consensus is not here" in found.out


@pytest.mark.whole
def test_the_prompt_that_is_mitigated_is_no_remedy_of_its_own() -> None:
    ran(*LISTS, "-n", "6", "--orders", "1", "--conditions", "neutral,female", "--no-repeat", "-o", "both")
    ran("mitigate", "both", "--condition", "female", "--free", "--no-report")
    error = remedies(Path("both") / "mitigation")["named-prompt"]["error"]
    assert error["message"] == "it is the prompt that is mitigated."


@pytest.mark.whole
def test_a_ranker_that_reads_no_prompt(tmp_path: Path) -> None:
    ran(*LISTS, "-m", "bm25", "-o", "bm25")
    ran("mitigate", "bm25", "--no-report")
    by_name = remedies(Path("bm25") / "mitigation")
    assert all(by_name[name]["available"] for name in ("none", "offset", "fair-star", "greedy"))
    assert by_name["fair-prompt"]["error"]["message"] == "bm25 reads no prompt."
    assert by_name["none"]["figures"][ANSWERS]["value"] is None


def test_from_python(run: Path) -> None:
    result = package.mitigate(run, remedy=["offset", "consensus"], report=False)
    assert result.verdict.status == NEARER and result.verdict.condition == "offset"
    figures = remedies(run / "mitigation")["offset"]["figures"]
    assert result[UTILITY, "offset"].value == pytest.approx(figures[UTILITY]["value"])
    assert package.open_run(run / "mitigation").verdict == result.verdict
    assert "logit offset" in str(result)


@pytest.mark.parametrize(
    ("says", "flags"),
    [
        ("--remedy offse: no remedy 'offse'.", ("--remedy", "offse")),
        ("--remedy fair-star:p=7: fair-star: p cannot be '7'.", ("--remedy", "fair-star:p=7")),
        ("--remedy offset:x=1: this remedy takes no parameters", ("--remedy", "offset:x=1")),
        ("--free leaves no remedy", ("--remedy", "lora", "--free")),
        ("--condition femal: the run has no such prompt.", ("--condition", "femal")),
        ("--margin is 2.0, but takes a number from 0 and below 1.", ("--margin", "2")),
    ],
)
def test_wrong_words(run: Path, says: str, flags: tuple[str, ...]) -> None:
    refuses(says, "mitigate", run, *flags)
    assert not (run / "mitigation").exists()


@pytest.mark.whole
def test_runs_that_cannot_be_mitigated(run: Path, tmp_path: Path) -> None:
    ran("pairwise", "--no-report", "-q", "--pairs", "3", "-o", "pairs")
    refuses("pairs is no complete run of rankings.", "mitigate", "pairs")
    ran(*LISTS, "--design", "partition", "-m", "fake:biased,malformed=0", "-o", "windows")
    refuses("has no rankings", "mitigate", "windows")
    llmfair(*LISTS, "--max-calls", "50", "-o", "half")
    refuses("half is no complete run of rankings.", "mitigate", "half")
    refuses("is the folder of another run.", "mitigate", run, "-o", "pairs", code=1)
    refuses("no run 'nothing'", "mitigate", "nothing")


@pytest.mark.parametrize(
    ("command", "file", "lines", "there"),
    [("mitigate", "neutral.run", 200, 21), ("score", "neutral.o1.r0.run", 0, 16)],
)
def test_lost_rankings_are_no_smaller_run(run: Path, command: str, file: str, lines: int, there: int) -> None:
    path = run / "rankings" / file
    kept_lines = path.read_text().splitlines(keepends=True)[:lines]
    path.write_text("".join(kept_lines)) if lines else path.unlink()
    refuses(f"rankings has {there} of the run's 24 rankings under the neutral prompt.", command, run)


@pytest.mark.whole
def test_a_key_that_is_not_set_is_named_before_and_after(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest |= {"model": "openai:gpt-4o-mini", "simulated": False}
    manifest["flags"]["model"] = ["openai:gpt-4o-mini"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    dry = ran("mitigate", run, "--dry-run")
    assert dry.out.count("OPENAI_API_KEY") + dry.out.count("needs a key") >= 2
    found = ran("mitigate", run, "--no-report")
    assert "fair instruction is not here: api.openai.com needs a key: set OPENAI_API_KEY" in found.out
    by_name = remedies(run / "mitigation")
    missing = {name for name, one in by_name.items() if not one["available"]}
    assert missing == {"fair-prompt", "lora"}


@pytest.mark.whole
def test_a_secret_that_no_run_folder_keeps_is_given_again() -> None:
    key = "sk-of-mine-1"
    secret, asks = ("--extra", f'api_key="{key}"'), ("--remedy", "fair-prompt")
    with Server(rank) as server:
        at = ("-m", "openai:any", "--base-url", server.base_url, "--server-name", "test", "--no-cache")
        few = ("-n", "2", "--orders", "1", "--conditions", "neutral", "--no-repeat")
        ran(*LISTS, *few, *at, *secret, "--extra", "top_k=5", "-o", "runs/base")
        asked, mitigate = len(server.requests), ("mitigate", "runs/base", "--no-report", *asks)
        found = ran(*mitigate)
        assert 'the run was asked with --extra api_key="***"' in found.out
        assert "llmfair mitigate runs/base --extra …" in found.out and len(server.requests) == asked
        ran(*mitigate, *secret, "--extra", "top_p=1")
        assert len(server.requests) > asked
        assert {(seen.body["api_key"], seen.body["top_k"]) for seen in server.requests} == {(key, 5)}
        assert not any("top_p" in seen.body for seen in server.requests), "a setting that was not the run's"
    assert not [path for path in Path().rglob("*") if path.is_file() and key.encode() in path.read_bytes()]


@pytest.fixture
def stand_in() -> Iterator[None]:
    """Registers what the benchmark has in the place of an adapter."""
    register("remedy", "stand-in")(StandIn)
    yield
    del _found["remedy"]["stand-in"]


def orders(path: Path) -> Mapping[str, tuple[str, ...]]:
    return {query_id: one.doc_ids for query_id, one in read_run(path).rankings.items()}


@pytest.mark.whole
def test_the_order_of_remedies_is_the_known_one(tmp_path: Path, stand_in: None) -> None:
    data = folder(tmp_path / "data")
    found = summary(simulated(seed, data, tmp_path / "runs") for seed in range(2))
    assert [*found] == ["none", *REMEDIES]
    assert [said for said, holds in KNOWN.items() if not holds(found)] == []


def test_no_query_is_ordered_by_an_offset_that_saw_it(tmp_path: Path) -> None:
    data = folder(tmp_path / "data", queries=10, each=6)
    once: dict[str, Any] = {"conditions": "neutral", "repeat": False, "passes": 1, "report": False}
    package.audit_listwise(data, model="fake:biased,malformed=0", output=tmp_path / "run", **once)
    before = package.mitigate(tmp_path / "run", remedy=["offset"], report=False)
    kept = orders(tmp_path / "run" / "mitigation" / "rankings" / "offset.run")
    # judgements of one query that turn its preference around move other queries' offsets, never its own
    told = (tmp_path / "run" / "qrels.txt").read_text().splitlines()
    women = [line for line in told if line.split()[0] == "q3" and "f" in line.split()[2]]
    placed = kept["q3"]
    last = {*placed[len(placed) // 2 :]}
    ids = {line: line.split()[2] for line in women}
    turned = [f"q3 0 {ids[line]} {int(ids[line] in last)}" if line in ids else line for line in told]
    assert turned != told
    (tmp_path / "run" / "qrels.txt").write_text("".join(f"{line}\n" for line in turned))
    after = package.mitigate(tmp_path / "run", remedy=["offset"], report=False)
    now = orders(tmp_path / "run" / "mitigation" / "rankings" / "offset.run")
    assert now["q3"] == kept["q3"]
    said = [result.results["remedies"][1]["remarks"] for result in (before, after)]
    assert said[0] != said[1], "others have other offsets"


@pytest.mark.whole
def test_an_adapter_is_asked_the_same_lists(tmp_path: Path) -> None:
    models.needs_local()
    base = models.causal(tmp_path / "models" / "base")
    fair = models.adapter(base, base.parent / "fair")
    lists = write_folder(tmp_path / "lists", balanced(3, 4, 4))
    windows = ("--window", "4", "--step", "4", "--passes", "1", "--orders", "1", "--conditions", "neutral")
    flags = (*windows, "--no-repeat", "--max-invalid", "1", "--constrain", "-q", "--no-report")
    ran("listwise", "-d", lists, "-m", f"hf:{base}", *flags, "-o", "runs/base")
    lacking = ran("mitigate", "runs/base", "--remedy", "lora", "--no-report")
    assert "llmfair finetune-lora" in lacking.out and "then --adapter FOLDER" in lacking.out
    found = ran("mitigate", "runs/base", "--remedy", "lora", "--adapter", fair, "--no-report", "--json").json
    (one,) = found["remedies"][1:]
    assert one["available"], one["error"]
    assert one["figures"]["nDCG@20"]["n"] == 3 and one["calls"] > 0
    ran("runs", "check", one["run"])


def test_lists_that_changed_since_the_run_are_no_remedy_of_it(tmp_path: Path) -> None:
    lists, one = tmp_path / "lists", ("--orders", "1", "--conditions", "neutral", "--no-repeat")
    write_folder(lists, balanced(6, 4, 4))
    ran(*LISTS, "-m", "fake:biased,malformed=0", "-d", lists, *one, "-o", "runs/base")
    shutil.rmtree(lists)
    write_folder(lists, balanced(6, 4, 5))
    ran("mitigate", "runs/base", "--remedy", "fair-prompt", "--no-report")
    error = remedies(Path("runs/base/mitigation"))["fair-prompt"]["error"]
    assert error["message"] == "the lists are not what they were at the time of the run."


def test_the_gravest_error_of_several_remedies_ends_the_command(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(remedy: Any, base: Any) -> Any:
        raise LlmfairError("nothing comes of it.")

    monkeypatch.setattr("llmfair.mitigation.remedies.Consensus.apply", broken)
    asks = ("--remedy", "consensus", "--remedy", "fair-prompt", "--max-calls", "10")
    stopped = llmfair("mitigate", run, *asks, "--no-report")
    assert stopped.code == 3 and "fair-prompt: " in stopped.err
