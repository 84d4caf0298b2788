"""`llmfair pairwise` end to end: evidence on disk, injected bias told apart from position, early stopping."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Outcome, kept, llmfair, only_run, ran, table
from tests.folders import balanced, write_folder
from tests.servers import Reply, Server

pytestmark = pytest.mark.whole

QUERIES = 10
BIASED = "fake:biased"


def lists(queries: int = QUERIES) -> Path:
    return write_folder(Path(f"lists{queries}"), balanced(queries, 20, 20))


def asked(model: str, *more: str, queries: int = QUERIES) -> Outcome:
    return ran("pairwise", "-d", lists(queries), "-m", model, *more)


def row(document: Any, measure: str, stratum: str = "relevant", group: str = "") -> Any:
    keys = (measure, stratum, group)
    (found,) = [r for r in document["rows"] if (r["measure"], r["stratum"], r["group"]) == keys]
    return found


def test_a_sequential_audit_stops_at_the_same_pair_whatever_happens(tmp_path: Path) -> None:
    model = "fake:biased,pairwise=-0.7,position=0.5,query_sd=0,malformed=0"
    calm = asked(model, "--sequential", "--json", "--runs-dir", str(tmp_path / "calm"), "-j", "7").json
    broken = llmfair("pairwise", "-d", lists(), "-m", model, "--sequential", "--max-calls", "40", "-j", "64")
    assert broken.code == 3
    assert kept("results")["status"] == "incomplete"
    found = asked(model, "--sequential", "--json", "-j", "64").json
    assert found["stopping"] == calm["stopping"] and found["rows"] == calm["rows"]
    folder = only_run(tmp_path / "calm")
    assert (only_run() / "verdicts.csv").read_bytes() == (folder / "verdicts.csv").read_bytes()
    for stratum in ("relevant", "irrelevant"):
        stopped = found["stopping"][stratum]
        assert stopped["decision"] == "below" and 20 <= stopped["pairs"] < 600 and stopped["saved"] > 0.4
        assert sum(found["cells"][stratum].values()) == stopped["pairs"]
        assert found["findings"][stratum]["conclusion"] == "outside", "as it was settled, and no p is claimed"
        assert row(found, "AdjustedOdds", stratum)["p"] is None
    ran("runs", "check", only_run())


def uneven() -> Path:
    """One query with many pairs that the protected side loses, nine with few."""
    lists = {
        f"q{number}": [
            (f"d{number}x{side}{grade}x{item}", side, grade)
            for grade in (0, 1)
            for side in ("female", "male")
            for item in range(8 if number == 0 else 2)
        ]
        for number in range(10)
    }
    return write_folder(Path("uneven"), lists)


def test_a_gate_on_pooled_pairs_changes_no_headline_and_shares_weigh_like_the_odds() -> None:
    flags = ("-d", uneven(), "-m", f"{BIASED},malformed=0", "--conditions", "relevant")
    plain = llmfair("pairwise", *flags, "-o", "plain", "--json").json
    gate = ("--require", "AdjustedOdds(agg=pooled)=0.1..9")
    gated = llmfair("pairwise", *flags, "-o", "gated", *gate, "--json").json
    assert plain["findings"] == gated["findings"]
    assert gated["headline"] == "AdjustedOdds"
    assert row(gated, "AdjustedOdds(agg=pooled)")["conclusion"] is None
    assert {**row(gated, "AdjustedOdds"), "run": "plain"} == row(plain, "AdjustedOdds")
    assert row(gated, "AdjustedOdds(agg=pooled)")["value"] != row(gated, "AdjustedOdds")["value"]
    shares = plain["shares"]["relevant"]
    assert sum(shares.values()) == pytest.approx(1)
    for side, cell in (("protected", "PP"), ("unprotected", "UU")):
        assert shares[cell] == pytest.approx(row(plain, "WinShare", group=side)["value"])
    assert shares["FF"] + shares["SS"] == pytest.approx(row(plain, "FlipRate")["value"])
    pooled = llmfair("pairwise", *flags, "-o", "pooled", "--weights", "pooled", "--json").json
    cells = pooled["cells"]["relevant"]
    assert pooled["shares"]["relevant"]["PP"] == pytest.approx(cells["PP"] / sum(cells.values()))


def test_ties_are_shown() -> None:
    with Server(lambda body, attempt: Reply("[1] = [2]")) as server:
        found = llmfair("pairwise", "-d", lists(6), *server.flags, "--pairs", "5")
    header, relevant = (line for line in found.out.splitlines() if line.startswith((" pairs ", " relevant ")))
    assert "tied" in header and "100.0 %" in relevant
    assert "unparseable answers 0.0 %, tied ones 100.0 %" in found.out


def test_a_sequential_audit_asks_nothing_past_a_pair_without_an_answer() -> None:
    seen = []

    def answer(body: dict[str, Any], attempt: int) -> Reply:
        seen.append(body)
        return Reply("[1] > [2]") if len(seen) != 9 else Reply(status=400, body={"error": {"message": "no"}})

    with Server(answer) as server:
        flags = ("pairwise", "-d", str(lists(6)), *server.flags, "--sequential", "-j", "2")
        broken = llmfair(*flags, "--conditions", "relevant")
        assert broken.code == 3 and len(seen) < 20
        assert "after 4 pairs nothing is settled" in broken.out and "it broke off there" in broken.out
        ran(*flags, "--conditions", "relevant", "--max-pairs", "30")


def test_score_gives_the_figures_of_the_audit_from_its_verdicts() -> None:
    asked(BIASED, "-o", "audit", "--weights", "pooled", "--pairs", "20", queries=20)
    (Path("audit") / "journal.jsonl").unlink()
    found = ran("score", "audit", "-o", "scored")
    for name in ("metrics.csv", "per_query.csv"):
        assert (Path("audit") / name).read_bytes() == (Path("scored") / name).read_bytes()
    header = next(line for line in found.out.splitlines() if line.startswith(" run "))
    assert header.split()[:4] == ["run", "pooled", "preference", "odds"] and "AdjustedOdds" not in header
    assert "pooled preference odds" in found.out and "pooled flips" in found.out
    assert "AdjustedOdds" not in ran("runs", "show", "audit", "--furthest").out
    assert "AdjustedOdds" not in ran("report", "audit", "--format", "md").out
    other = llmfair("score", "audit", "--measures", "Kappa", "--json").json
    assert {r["measure"] for r in other["rows"]} == {"Kappa", "AdjustedOdds(agg=pooled)"}
    assert other["runs"][0]["measures"] == ["Kappa"]
    whole = kept("results", "scored")["runs"][0]
    assert all(other["runs"][0][key] == whole[key] for key in ("findings", "verdict"))
    assert llmfair("score", "audit", "-a", "location").code == 2


def test_whatever_is_measured_it_is_concluded_from_the_odds() -> None:
    flags = ("pairwise", "-d", lists(), "-m", f"{BIASED},pairwise=-3", "--measures", "FlipRate")
    found = llmfair(*flags, "--fail-on", "disparity", "-o", "run")
    assert found.code == 4 and found.out.startswith("VERDICT  disparity: ")
    results = kept("results", "run")
    assert results["headline"] == "AdjustedOdds" and results["shown"] == ["FlipRate"]
    assert {one["conclusion"] for one in results["findings"].values()} == {"outside"}


def test_where_too_much_is_unparseable_nothing_says_otherwise() -> None:
    model = f"{BIASED},malformed=0.3,pairwise=-2"
    flags = ("pairwise", "-d", lists(), "-m", model, "--conditions", "relevant", "-o", "run")
    found = llmfair(*flags)
    assert found.code == 4 and found.out.startswith("VERDICT  not assessable: ")
    of_folder = kept("results", "run")
    of_score = ran("score", "run", "-o", "scored", "--json").json["runs"][0]
    for finding in (of_folder["findings"]["relevant"], of_score["findings"]["relevant"]):
        assert (finding["conclusion"], finding["reason"]) == ("not_assessable", "too_many_unparseable")
        assert finding["worst_case"]
    for folder in ("run", "scored"):
        (row,) = (row for row in table(Path(folder, "metrics.csv")) if row["measure"] == "AdjustedOdds")
        assert (row["conclusion"], row["reason"]) == ("not_assessable", "too_many_unparseable")


def test_a_server_without_log_probabilities_is_told_from_a_model_without_an_answer() -> None:
    with Server(lambda body, attempt: Reply("A")) as server:
        found = llmfair("pairwise", *server.flags, "--answers", "margin")
    assert found.code == 2 and "sends no log-probabilities" in found.err


def test_forced_answers_are_reported_as_forced() -> None:
    seen = []

    def answer(body: dict[str, Any], attempt: int) -> Reply:
        seen.append(body["structured_outputs"])
        return Reply("B")

    with Server(answer) as server:
        flags = ("--base-url", server.base_url, "--constrain", "--form", "letter", "--pairs", "5")
        found = asked("openai:any", *flags, "--json", queries=6)
        told = asked("openai:any", *flags, queries=6).out
    assert seen[0] == {"choice": ["A", "B"]}
    rate = row(found.json, "InvalidRate")
    assert rate["value"] is None and rate["reason"] == "forced"
    assert "forced" in told


@pytest.mark.parametrize(
    ("said", "reason"), [("The better one is B.", "stop"), ("I cannot choose between people", "length")]
)
def test_an_answer_of_another_form_shows_that_nothing_was_held(said: str, reason: str) -> None:
    with Server(lambda body, attempt: Reply(said, reason)) as server:
        flags = ("--base-url", server.base_url, "--constrain", "--form", "letter", "--pairs", "5")
        told = " ".join(llmfair("pairwise", "-d", lists(6), "-m", "openai:any", *flags).out.split())
    assert "the server passed over --constrain" in told and "forced" not in told
    assert "--constrain" not in told.partition("NEXT")[2].partition(" · ")[0]


def logprobs(*tokens: tuple[str, float]) -> dict[str, Any]:
    top = [{"token": token, "logprob": math.log(share)} for token, share in tokens]
    return {"logprobs": {"content": [{**top[0], "top_logprobs": top}]}}


def test_a_server_s_first_token_is_matched_to_the_labels() -> None:
    """A with and without a space is one label; one that is not among the alternatives leaves no margin."""
    shares = {1: (("A", 0.3), (" A", 0.2), ("B", 0.1), ("The", 0.1)), 2: ((" B", 0.4), ("So", 0.3))}
    seen: list[bool] = []

    def answer(body: dict[str, Any], attempt: int) -> Reply:
        seen.append(body["logprobs"] is True and body["top_logprobs"] == 20)
        return Reply("A", choice=logprobs(*shares[1 + (len(seen) > 120)]))

    with Server(answer) as server:
        found = asked(
            "openai:any", "--base-url", server.base_url, *"--answers margin --noise-share 0 --pairs 10 -j 1 --json".split(), queries=6,
        ).json  # fmt: skip
    assert len(seen) == 240 and all(seen)
    lines = table(only_run() / "verdicts.csv")
    margins = {line["first_margin"] for line in lines if line["stratum"] == "relevant"}
    assert [float(margin) for margin in margins] == pytest.approx([math.log(0.5 / 0.1)])
    assert {line["first_margin"] for line in lines if line["stratum"] == "irrelevant"} == {""}
    assert found["answers"]["relevant"]["mass"] == pytest.approx(0.6)
    assert found["answers"]["irrelevant"]["mass"] == pytest.approx(0.4)
    again = llmfair(
        "pairwise", "-d", lists(6), *server.flags, *"--answers margin --noise-share 0 --pairs 10".split()
    )  # fmt: skip
    assert "40 % of the first token's probability: this model does not answer in this form" in again.out
