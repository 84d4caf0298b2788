"""`llmfair rerank`: run files in another order, and one sentence for every file that is broken."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import llmfair as package
from llmfair.io.trec import read_run
from tests.cli.command import kept, llmfair, only_run, ran, refuses

pytestmark = pytest.mark.whole

# men first, by falling score; q2 has one document, q3 one that is in no file
RUN = "".join(
    f"q1 Q0 {doc_id} {rank} {9 - rank} mine\n"
    for rank, doc_id in enumerate(("m1", "m2", "m3", "f1", "f2"), 1)
)
RUN += "q2 Q0 f1 1 0.5 mine\nq3 Q0 zz 1 7 mine\nq3 Q0 m1 2 6 mine\nq3 Q0 f1 3 6 mine\n"
GROUPS = "".join(f"{doc_id}\tgender\t{'female' if doc_id[0] == 'f' else 'male'}\n" for doc_id in ("m1", "m2", "m3", "f1", "f2"))  # fmt: skip
QRELS = "q1 0 m1 1\nq1 0 f2 1\nq2 0 f1 1\nq3 0 m1 0\n"
WITH = ("--with", "fair-star:k=5,p=0.5,alpha=0.5,adjust=none", "--groups", "groups.tsv")


@pytest.fixture(autouse=True)
def files() -> None:
    Path("my.run").write_text(RUN)
    Path("groups.tsv").write_text(GROUPS)
    Path("qrels.txt").write_text(QRELS)


def orders(path: str = "new.run") -> dict[str, str]:
    """The documents of each query in their order."""
    found = read_run(Path(path)).rankings
    return {query_id: " ".join(ranking.doc_ids) for query_id, ranking in found.items()}


def test_fair_star_on_a_run_of_any_system() -> None:
    found = ran("rerank", "my.run", *WITH, "-o", "new.run")
    # the table asks for one of two, one of three, two of four; of equal scores the protected document is first
    assert orders() == {"q1": "m1 f1 m2 f2 m3", "q2": "f1", "q3": "zz f1 m1"}
    assert Path("new.run").read_text().splitlines()[0] == f"q1 Q0 m1 1 5 mine+{WITH[1]}"
    assert found.out.splitlines() == [
        "new.run: 3 queries, 2 of them in another order",
        "NEXT     llmfair score my.run new.run --qrels FILE --groups groups.tsv",
    ]
    assert "1 of 6 documents have no group of gender" in found.err


def test_scores_beyond_all_bounds_do_no_harm() -> None:
    Path("my.run").write_text("q1 Q0 m1 1 1e300 x\nq1 Q0 m2 2 -1e300 x\nq1 Q0 f2 3 1e-300 x\n")
    for ranker in ("greedy", "fair-star"):
        ran(
            *"rerank my.run --with".split(),
            ranker,
            *"--qrels qrels.txt --groups groups.tsv -o".split(),
            ranker,
        )
        assert sorted(orders(ranker)["q1"].split()) == ["f2", "m1", "m2"]


def test_greedy_says_of_which_queries_nothing_is_relevant() -> None:
    found = ran(*"rerank my.run --with greedy --qrels qrels.txt --groups groups.tsv -o new.run".split())
    assert orders()["q1"].startswith("m1 f1") and orders()["q3"] == "zz m1 f1"
    assert "so the order is the first stage's (1 of 3 queries)" in found.err
    ran("rerank", "my.run", "--with", "greedy:target=uniform", "--groups", "groups.tsv", "-o", "even.run")
    assert orders("even.run")["q1"].startswith("m1 f1")


def test_packed_runs_are_read_and_written_and_several_go_to_a_folder() -> None:
    Path("b.run.gz").write_bytes(gzip.compress(RUN.encode()))
    ran("rerank", "my.run", "b.run.gz", *WITH, "-o", "new")
    assert orders("new/my.run") == orders("new/b.run.gz")
    assert Path("new/b.run.gz").read_bytes()[:2] == b"\x1f\x8b"
    first = Path("new/b.run.gz").read_bytes()
    ran("rerank", "my.run", "--with", "fair-star:k=5, p=0.5", *WITH[2:], "-o", "spaced.run")
    assert orders("spaced.run").keys() == {"q1", "q2", "q3"}
    ran("rerank", "b.run.gz", *WITH, "-o", "new")
    assert Path("new/b.run.gz").read_bytes() == first


@pytest.mark.parametrize("ranker", ["mmr", "greedy", "fair-star:p=0.5"])
def test_the_run_of_bm25_becomes_that_of_an_audit_with_the_ranker(ranker: str) -> None:
    """The scores are BM25's own, ties and all, which the run file has as ranks only."""
    ran("listwise", "-m", "bm25", "--no-report", "-o", "first")
    ran("listwise", "-m", ranker, "--no-report", "-o", "audited")
    ran("rerank", "first/rankings/neutral.run", "--with", ranker, "-d", "sample", "-o", "new.run")
    columns = [
        [line.split()[:5] for line in Path(path).read_text().splitlines()]
        for path in ("new.run", "audited/rankings/neutral.run")
    ]
    assert columns[0] == columns[1]
    assert " over bm25 k1=1.2 " in kept("manifest", "audited")["settings"]["identity"]
    ran("runs", "check", "audited")
    scored = ran("score", "new.run", "first/rankings/neutral.run", "-d", "sample", "--json").json
    assert len(scored["runs"]) == 2


def test_any_ranker_may_order_a_run_of_a_dataset() -> None:
    ran("listwise", "-m", "fake:oracle", "--orders", "1", "--conditions", "neutral", "--no-report")
    run = only_run() / "rankings" / "neutral.run"
    for ranker in ("bm25", "bm25-okapi", "deltr"):
        found = ran("rerank", run, "--with", ranker, "-d", "sample", "-o", "new.run", "--json").json
        assert found["runs"][0]["changed"] > 0 and found["runs"][0]["queries"] == 8
        assert found["runs"][0]["tag"] == f"llmfair+{ranker}"


def test_from_python() -> None:
    ran("rerank", "my.run", *WITH, "-o", "new.run")
    with pytest.warns(UserWarning, match="1 of 6 documents have no group of gender"):
        (path,) = package.rerank("my.run", ranker=WITH[1], groups="groups.tsv", output="called.run")
    assert path == Path("called.run") and path.read_bytes() == Path("new.run").read_bytes()
    with pytest.raises(package.UsageError, match="no run is named"):
        package.rerank(ranker="mmr", groups="groups.tsv", output="called.run")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("q1 Q0 m9 9 0x1F x", "'0x1F' is not a finite number"),
        ("q1 Q0 m9 9 1,5 x", "'1,5' is not a finite number"),
        ("all Q0 m9 9 1 x", "stands for all queries"),
        ("", "holds no ranked document"),
        ("q1 Q0 x9 1 1 x", "no ranked document is one of"),
    ],
)
def test_a_broken_run(line: str, says: str) -> None:
    Path("my.run").write_text(f"{line}\n")
    refuses(says, "rerank", "my.run", *WITH, "-o", "new.run")
    assert not Path("new.run").exists()


def test_a_broken_run_among_others_leaves_nothing_half_done() -> None:
    Path("b.run").write_text("oops\n")
    refuses("b.run:1: expected 6 columns", "rerank", "my.run", "b.run", *WITH, "-o", "new")
    assert not Path("new").exists()
    found = llmfair("rerank", "b.run", *WITH, "-o", "new", "--json")
    assert found.code == 2 and found.json["error"]["message"].startswith("b.run:1: ")


def test_what_does_not_go_together_is_said() -> None:
    Path("none.tsv").write_text("m1\tgender\tmale\nf9\tgender\tfemale\nzz\tgender\t@UNKNOWN\n")
    Path("unknown.run").write_text("q3 Q0 zz 1 7 mine\n")
    Path("circle.run").symlink_to("circle.run")
    folder = Path("folder")
    folder.mkdir()
    (folder / "my.run").write_text(RUN)
    for says, arguments in (
        ("--with is missing.", ("my.run", "--groups", "groups.tsv", "-o", "new.run")),
        ("--output is missing", ("my.run", *WITH)),
        ("either --dataset or --groups says who", ("my.run", *WITH[:2], "-o", "new.run")),
        ("either --dataset or --groups says who", ("my.run", *WITH, "-d", "sample", "-o", "new.run")),
        (
            "no ranker 'fair'. Did you mean 'fair-star'?",
            ("my.run", "--with", "fair", *WITH[2:], "-o", "new.run"),
        ),
        ("no ranker 'fake'", ("my.run", "--with", "fake:oracle", *WITH[2:], "-o", "new.run")),
        ("fair-star: p cannot be '7'", ("my.run", "--with", "fair-star:p=7", *WITH[2:], "-o", "new.run")),
        ("mmr reads what queries and documents say", ("my.run", "--with", "mmr", *WITH[2:], "-o", "new.run")),
        ("ranks none of the queries of sample", ("my.run", "--with", "mmr", "-d", "sample", "-o", "new.run")),
        ("missing.run: cannot be read", ("missing.run", *WITH, "-o", "new.run")),
        ("circle.run: cannot be read", ("circle.run", *WITH, "-o", "new.run")),
        ("folder is a folder", ("folder", *WITH, "-o", "new.run")),
        ("my.run is read, so it cannot be written", ("my.run", *WITH, "-o", "./my.run")),
        ("several runs would be written to new/my.run", ("my.run", "folder/my.run", *WITH, "-o", "new")),
        ("cannot write groups.tsv/new.run", ("my.run", *WITH, "-o", "groups.tsv/new.run")),
        ("no ranked document has a group of gender", ("unknown.run", *WITH[:3], "none.tsv", "-o", "new.run")),
        ("no attribute 'colour'", ("my.run", *WITH, "-a", "colour", "-o", "new.run")),
    ):
        refuses(says, "rerank", *arguments)
    assert not Path("new.run").exists()
