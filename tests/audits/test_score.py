"""Measures of runs that exist: by hand, against ir_measures, against the audits that wrote the runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llmfair.audits.listwise import LISTWISE
from llmfair.audits.listwise.results import ListwiseFinding
from llmfair.audits.listwise.score import in_reach
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.scoring import DocumentCounts, ScoreOutcome, score
from llmfair.audits.subject import Subject
from llmfair.errors import RunConflict, UsageError
from llmfair.io.files import plain
from llmfair.nouns import Conclusion
from llmfair.results import Reach
from llmfair.settings import ScoreSettings
from tests.cli.command import table
from tests.finished import audit
from tests.folders import balanced, write, write_folder

pytestmark = pytest.mark.whole

# Query 1: f m f m, d1 and d3 relevant. Query 2: m f, then u that nobody knows; tied scores. Query 3 is not judged,
# query 4 not ranked, and x is named by the qrels alone.
RUN = """\
1 Q0 d4 9 0.1 mine
1 Q0 d1 1 0.9 mine
1 Q0 d2 2 0.8 mine
1 Q0 d3 3 0.7 mine
2 Q0 d1 1 3 mine
2 Q0 d2 1 3 mine
2 Q0 u 2 1 mine
3 Q0 d1 1 2 mine
3 Q0 d2 2 1 mine
3 Q0 x 3 0 mine
"""
QRELS = "1 0 d1 1\n1 0 d3 2\n1 0 d2 0\n2 0 d1 1\n2 0 x 1\n4 0 d1 1\n"
GROUPS = "d1\tgender\tfemale\nd2\tgender\tmale\nd3\tgender\tfemale\nd4\tgender\tmale\nx\tgender\t@UNKNOWN\n"


@pytest.fixture
def files() -> None:
    Path("my.run").write_text(RUN)
    Path("qrels.txt").write_text(QRELS)
    Path("groups.tsv").write_text(GROUPS)


def scored(*runs: str, **given: Any) -> ScoreOutcome:
    chosen = {} if "dataset" in given else {"qrels": Path("qrels.txt"), "groups": Path("groups.tsv")}
    return score([Path(run) for run in runs or ("my.run",)], ScoreSettings.make(**{**chosen, **given}))


def values(found: ScoreOutcome, run: int = 0) -> dict[tuple[str, str], float | None]:
    """Aggregates and values of queries of one run, by (query_id, measure)."""
    name = found.results.runs[run].run
    rows = [*found.results.rows, *found.per_query]
    return {(row.query_id, row.measure + row.group): row.value for row in rows if row.run == name}


def v(rank: int) -> float:
    return 1 / math.log(1 + rank)


@pytest.mark.usefixtures("files")
def test_a_run_by_hand() -> None:
    found = scored(measures="P@2,nDCG@20,ExpRatio,Exposure")
    by = values(found)
    assert by["1", "P@2"] == 1 / 2
    assert by["2", "P@2"] == 1 / 2  # the tie is broken in favour of d2
    assert by["3", "P@2"] is None and by["4", "P@2"] == 0
    assert by["all", "P@2"] == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)
    assert by["1", "nDCG@20"] == pytest.approx((1 + 2 / 2) / (2 + 1 / math.log2(3)))
    assert by["2", "nDCG@20"] == pytest.approx((1 / math.log2(3)) / (1 + 1 / math.log2(3)))
    protected = [(v(1) + v(3)) / 2, v(2), v(1)]
    unprotected = [(v(2) + v(4)) / 2, v(1), v(2)]
    assert by["1", "ExpRatio"] == pytest.approx(protected[0] / unprotected[0])
    assert by["2", "Exposureprotected"] == pytest.approx(v(2))
    assert by["4", "ExpRatio"] is None
    assert by["all", "ExpRatio"] == pytest.approx(sum(protected) / sum(unprotected))
    (run,) = found.results.runs
    assert plain(run.conditions) == {
        "my.run": {
            "queries": 3, "documents": 10, "tied": {"documents": 2, "queries": 1}, "unlisted": {"documents": 1, "queries": 1},
            "unjudged": {"queries": 1, "first": ["3"]}, "not_ranked": {"queries": 1, "first": ["4"]},
            "missing": {"documents": 1, "queries": 1}, "longest": 4,
        }
    }  # fmt: skip
    assert run.undefined["ExpRatio"] == {"my.run": {"not_ranked": 1}}
    assert run.undefined["nDCG@20"] == {"my.run": {"no_relevant": 1}}
    assert (run.run, run.model, run.attribute) == ("my.run", "mine", "gender")
    ratio = next(row for row in found.results.rows if row.measure == "ExpRatio")
    assert (ratio.n, ratio.low, ratio.reason) == (3, None, "too_few_queries")


@pytest.mark.usefixtures("files")
def test_documents_listed_by_the_qrels_or_as_unknown_are_not_unlisted() -> None:
    Path("my.run").write_text("1 Q0 x 1 3 t\n1 Q0 q 2 2 t\n1 Q0 d1 3 1 t\n1 Q0 d2 4 0 t\n")
    Path("qrels.txt").write_text("1 0 q 1\n")
    found = scored()
    assert found.results.runs[0].conditions["my.run"].unlisted == DocumentCounts()
    assert values(found)["1", "ExpRatio"] == pytest.approx(v(3) / v(4))


@pytest.mark.usefixtures("files")
def test_attributes_of_ones_own_and_mixed_documents() -> None:
    Path("own.toml").write_text(
        '[era]\nprotected = ["old"]\nunprotected = ["*"]\nwords = { protected = "old", unprotected = "new" }\n'
    )
    Path("groups.tsv").write_text(
        "d1\tera\told\nd1\tera\tnew\nd2\tera\tnew\nd3\tera\told\nd4\tera\t@UNKNOWN\n"
    )
    with pytest.raises(UsageError, match=r"groups.tsv:1: attribute: 'era' is not declared"):
        scored()
    own = {"attributes": Path("own.toml")}
    assert values(scored(**own))["1", "ExpRatio"] == pytest.approx(v(3) / v(2))
    assert values(scored(**own, mixed="protected"))["1", "ExpRatio"] == pytest.approx(
        (v(1) + v(3)) / 2 / v(2)
    )


def test_a_folder_of_files_and_its_dataset_give_the_same() -> None:
    folder = write_folder(Path("mine"), balanced(6, 3, 5))
    rows = [f"q{q} Q0 q{q}{side}{i} 0 {(7 * i + q * ord(side)) % 11} t" for q in range(6) for side, n in (("f", 3), ("m", 5)) for i in range(n)]  # fmt: skip
    write(Path("my.run"), rows)
    measures = "P@3,nDCG@3,ExpRatio,overlap@3"
    one = scored(dataset=str(folder), measures=measures)
    other = scored(qrels=folder / "qrels.txt", groups=folder / "groups.tsv", measures=measures)
    assert values(one) == values(other)
    assert one.results.rows[0].dataset == "mine" and other.results.rows[0].dataset == "mine/qrels.txt"
    of_all = [row for row in one.results.rows if "stratum" not in row.measure]
    assert all(row.low is not None for row in of_all), "six queries have intervals"


def metrics(path: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    return {(row["condition"], row["measure"], row["group"]): row for row in table(path)}


@pytest.mark.parametrize(("orders", "mixed"), [(1, "drop"), (2, "protected")])
def test_the_rankings_of_an_audit_score_as_the_audit_did(orders: int, mixed: str) -> None:
    asked = [
        "P@20",
        "overlap@20",
        "nDCG@20",
        "ExpRatio",
        "Exposure",
        "ExpRatio(stratum=relevant)@10",
        "AWRF@20",
    ]
    measures = ",".join(asked)
    chosen = ListwiseSettings.make(
        limit=6, orders=orders, passes=1, measures=measures, mixed=mixed, attribute="location", max_invalid=1.0,
    )  # fmt: skip
    folder = audit(LISTWISE.design(chosen, Subject("fake:biased"))).folder.path
    scored(str(folder), measures=measures, output=Path("out"), qrels=None, groups=None)
    theirs, ours = metrics(folder / "metrics.csv"), metrics(Path("out/metrics.csv"))
    plain = {key for key in theirs if key[0] != "initial" and " vs " not in key[0] and key[1] in asked}
    assert {condition for condition, _, _ in plain} >= {"neutral", "repeat", "non-european"}
    for key in plain:
        for column in ("run", "dataset", "attribute", "model", "value", "low", "high", "n"):
            assert ours[key][column] == theirs[key][column], (key, column)
    assert {key[0] for key in ours} == {key[0] for key in plain}
    for file in ("per_query.csv", "results.json"):
        assert (Path("out") / file).is_file()
    with pytest.raises(UsageError, match="brings its own judgements"):
        scored(str(folder), dataset="sample")
    with pytest.raises(RunConflict, match="is the folder of another run"):
        scored(str(folder), qrels=None, groups=None, output=folder)


def test_a_run_folder_brings_the_attribute_its_dataset_declared() -> None:
    folder = write_folder(Path("mine"), balanced(5, 3, 3))
    (folder / "attributes.toml").write_text(
        '[era]\nprotected = ["old"]\nunprotected = ["*"]\nwords = { protected = "old", unprotected = "new" }\n'
        '[gender]\nprotected = ["female"]\nunprotected = ["male"]\nwords = { protected = "f", unprotected = "m" }\n'
    )
    lines = (folder / "groups.tsv").read_text().splitlines()
    eras = [line.replace("gender", "era").replace("female", "old").replace("male", "new") for line in lines]
    write(folder / "groups.tsv", [*lines, *eras])
    run = audit(
        LISTWISE.design(
            ListwiseSettings.make(dataset=str(folder), orders=1, max_invalid=1.0), Subject("fake:biased")
        )
    ).folder.path
    none = {"qrels": None, "groups": None}
    found = scored(str(run), **none, measures="ExpRatio").results
    assert (found.runs[0].attribute, found.runs[0].words.protected) == ("era", "old")
    theirs = metrics(run / "metrics.csv")
    ratios = {row.condition: repr(row.value) for row in found.rows if row.measure == "ExpRatio"}
    assert ratios == {
        condition: row["value"] for (condition, measure, _), row in theirs.items() if measure == "ExpRatio" and condition != "initial" and " vs " not in condition
    }  # fmt: skip
    other = scored(str(run), **none, measures="ExpRatio", attribute="gender").results
    assert {row.condition: repr(row.value) for row in other.rows if row.measure == "ExpRatio"} == ratios


LISTS = st.dictionaries(
    st.sampled_from(["1", "2", "3"]),
    st.dictionaries(st.sampled_from([f"d{n}" for n in range(8)]), st.integers(0, 5), min_size=2),
    min_size=1,
)


@given(LISTS, st.data(), st.sampled_from([0.5, 2.0, 1024.0]))
@settings(deadline=None, max_examples=25)
def test_names_line_order_and_scale_mean_nothing(
    lists: Mapping[str, Mapping[str, int]], data: st.DataObject, scale: float
) -> None:
    """Ties are broken by name, so names change consistently: in an order that stays."""
    assume({"1", "2"} & lists.keys())  # a run of none of the queries is refused
    lines = [(query_id, doc_id, score) for query_id, rows in lists.items() for doc_id, score in rows.items()]
    groups = {f"d{n}": ("female", "male")[n % 2] for n in range(7)}
    qrels = [("1", "d0", 1), ("1", "d3", 2), ("2", "d1", 1), ("2", "d7", 0)]

    def found(rows: list[tuple[str, str, int]], factor: float, prefix: str) -> Any:
        write(Path("my.run"), (f"{q} Q0 {prefix}{d} 0 {score * factor} t" for q, d, score in rows))
        write(Path("qrels.txt"), (f"{q} 0 {prefix}{d} {relevance}" for q, d, relevance in qrels))
        write(Path("groups.tsv"), (f"{prefix}{d}\tgender\t{group}" for d, group in groups.items()))
        return scored(measures="P@2,nDCG@3,overlap@2,ExpRatio,Exposure@2")

    base = found(lines, 1.0, "")
    other = found(data.draw(st.permutations(lines)), scale, "page")
    assert base.results == other.results and base.per_query == other.per_query


@pytest.mark.parametrize(
    ("low", "high", "conclusion"),
    [
        (0.7, 1.4, "within"),
        (0.85, 1.4, "not_assessable"),
        (0.7, 1.2, "not_assessable"),
        (None, None, "within"),
    ],
)
def test_parity_of_rankings_takes_windows_that_could_bring_them_out_of_the_band(
    low: float | None, high: float | None, conclusion: str
) -> None:
    measure = "PreferenceOdds(of=ranking)"
    for reached in (Conclusion.WITHIN, Conclusion.OUTSIDE):
        finding = ListwiseFinding(measure=measure, conclusion=reached, reason=None)
        expected = conclusion if reached is Conclusion.WITHIN else reached
        assert in_reach(finding, Reach(low=low, high=high), (0.8, 1.25)).conclusion == expected
