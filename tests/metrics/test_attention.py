"""AWRF, shares and divergence over any number of groups: worked cases, properties, mistakes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.audits.aggregates import summarise
from llmfair.audits.listwise import LISTWISE
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.runs.run import audit
from llmfair.audits.subject import Subject
from llmfair.errors import UsageError
from llmfair.metrics.attention import attention_weights, jensen_shannon, kullback_leibler
from llmfair.metrics.base import Judged, Product, measure_all
from llmfair.metrics.names import parse_measure
from llmfair.metrics.targets import UNKNOWN, cells
from llmfair.nouns import Attribute, Ranking, Side
from tests.cli.command import table
from tests.joined import write_joined
from tests.metrics import attribute_with, grouped, raw, rows, value

LN2 = math.log(2)
GENDER = attribute_with("gender", "f", "m", "nonbinary")
BACKGROUND = {"f": 0.495, "m": 0.495, "nonbinary": 0.01}


def listed(
    groups: Sequence[Sequence[str]],
    relevant: Sequence[int] = (),
    attribute: Attribute = GENDER,
    unlisted: Sequence[int] = (),
) -> Judged:
    """Documents d0, d1, … ranked so, each with its groups; `relevant` and `unlisted` are places."""
    memberships = {
        f"d{place}": {attribute.name: tuple(names)}
        for place, names in enumerate(groups)
        if place not in unlisted
    }
    ranking = [f"d{place}" for place in range(len(groups))]
    return grouped(ranking, memberships, attribute, relevant=[f"d{place}" for place in relevant])


def stated(folder: Path, **shares: float) -> str:
    path = folder / "target.json"
    path.write_text(json.dumps({name.replace("unknown", UNKNOWN): share for name, share in shares.items()}))
    return str(path)


# Worked cases


def test_four_documents_with_one_unknown(tmp_path: Path) -> None:
    path = stated(tmp_path, f=0.25, m=0.5, nonbinary=0, unknown=0.25)
    query = listed([["m"], ["f"], ["m"], []])
    assert value(f"AWRF(target={path})@20", query) == pytest.approx(0.9927562, abs=1e-7)


def test_divergences_of_two_groups() -> None:
    p, even = np.array([0.7, 0.3]), np.array([0.5, 0.5])
    assert jensen_shannon(p, even) == pytest.approx(0.0210059, abs=1e-7)
    assert jensen_shannon(p, even) / LN2 == pytest.approx(0.0303051, abs=1e-7)
    assert kullback_leibler(p, even, 1e-6) == pytest.approx(0.0822825396, abs=1e-7)
    assert kullback_leibler(even, p, 1e-6) == pytest.approx(0.0871762713, abs=1e-7)


@pytest.mark.parametrize(
    ("params", "expected"), [("", 0.9285616), (",log=2", 0.8969362), (",log=2,discount=log2", 0.8453957)]
)
def test_three_documents_against_a_quarter(tmp_path: Path, params: str, expected: float) -> None:
    path = stated(tmp_path, f=2, m=6)  # normalised
    query = listed([["f"], ["m"], ["f"]])
    assert value(f"AWRF(target={path}{params})", query) == pytest.approx(expected, abs=1e-7)


def test_disjoint_and_equal_distributions(tmp_path: Path) -> None:
    query = listed([["f"], ["f"]], relevant=[0])
    assert value("AWRF", query) == 1
    assert value("KL", query) == pytest.approx(0, abs=1e-15)
    path = stated(tmp_path, m=1)
    assert value(f"AWRF(target={path})", query) == pytest.approx(1 - LN2, abs=1e-15)
    assert value(f"AWRF(target={path},log=2)", query) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(("eps", "expected"), [("1e-6", 2.26376), ("1e-10", 4.10582)])
def test_eps_decides_the_divergence_from_target_to_current(tmp_path: Path, eps: str, expected: float) -> None:
    path = stated(tmp_path, f=0.5, m=0.3, nonbinary=0.2)
    query = listed([["f"]] * 6 + [["m"]] * 4)
    params = f"target={path},direction=target-current,eps={eps},unknown=drop"
    assert value(f"KL({params})@10", query) == pytest.approx(expected, abs=5e-6)


def test_kl_of_the_shares_of_ten_documents(tmp_path: Path) -> None:
    query = listed([["f"]] * 7 + [["m"]] * 3 + [["m"]] * 9)
    path = stated(tmp_path, f=0.5, m=0.5)
    assert value(f"KL(target={path})@10", query) == pytest.approx(0.0822825396, abs=2e-6)
    reverse = value(f"KL(target={path},direction=target-current)@10", query)
    assert reverse == pytest.approx(0.0871762713, abs=2e-6)


def test_shares_are_unweighted_and_split() -> None:
    query = listed([["f", "m"], ["m"], [], ["nonbinary"]])
    assert {group: row.value for (query_id, group), row in rows("Share@3", query).items() if query_id == "q"} == {
        "f": pytest.approx(1 / 6), "m": pytest.approx(1 / 2), "nonbinary": 0, UNKNOWN: pytest.approx(1 / 3),
    }  # fmt: skip
    counted = rows("Share(membership=count,unknown=drop)@3", query)
    assert [counted["q", group].value for group in ("f", "m")] == [0.5, 1.0]
    assert ("q", UNKNOWN) not in counted


def test_targets_of_the_track_mix_the_background_in() -> None:
    gender = replace(GENDER, backgrounds=(BACKGROUND,))
    # relevant: f, f, m, unknown; known mass ¾
    query = listed([["f"], ["f"], ["m"], []], relevant=range(4), attribute=gender)
    attention = np.array([1, 1, 1 / math.log2(3), 1 / 2])
    p = np.array([2, attention[2], 0, attention[3]]) / attention.sum()
    known = np.array([0.495, 0.495, 0.01])
    t2022 = np.array([*(0.5 * np.array([0.5, 0.25, 0]) + 0.5 * 0.75 * known), 0.25])
    assert value("AWRF(target=trec2022)", query) == pytest.approx(1 - jensen_shannon(p, t2022), abs=1e-12)
    t2021 = 0.5 * np.array([2 / 3, 1 / 3, 0]) + 0.5 * known
    seen = p[:3] / p[:3].sum()
    assert value("AWRF(target=trec2021)", query) == pytest.approx(1 - jensen_shannon(seen, t2021), abs=1e-12)
    even = 1 - jensen_shannon(seen, np.full(3, 1 / 3))
    assert value("AWRF(target=uniform)", query) == pytest.approx(even, abs=1e-12)


def test_relevant_documents_outside_the_list_are_in_the_target() -> None:
    query = listed([["f"], ["m"]], relevant=[0])
    candidates = replace(query.candidates, documents=query.candidates.documents[:1])
    inside = replace(query, candidates=candidates, rankings=(Ranking("q", ("d0",)),))
    assert value("AWRF", inside) == 1
    both = replace(inside, candidates=replace(candidates, relevance={"d0": 1, "d1": 2, "d9": 1, "d0x": 0}))
    even = 1 - jensen_shannon(np.array([1.0, 0]), np.array([0.5, 0.5]))
    assert value("AWRF", both) == pytest.approx(even)  # d9 is not listed


def test_unlisted_documents_keep_their_rank_and_lose_their_weight() -> None:
    groups = [["f"], ["m"], ["m"]]
    query = listed(groups, relevant=[0, 2], unlisted=[1])
    weights = attention_weights(3)
    p = np.array([weights[0], weights[2]]) / (weights[0] + weights[2])
    assert value("AWRF", query) == pytest.approx(1 - jensen_shannon(p, np.array([0.5, 0.5])))
    p = np.array([weights[0], weights[2], weights[1]]) / weights.sum()
    expected = 1 - jensen_shannon(p, np.array([0.5, 0.5, 0]))
    assert value("AWRF(unlisted=unknown)", query) == pytest.approx(expected)
    assert value("Share(unlisted=unknown)", query, UNKNOWN) == pytest.approx(1 / 3)
    assert value("Share", query, UNKNOWN) == 0


def test_runs_of_one_query_are_averaged() -> None:
    query = listed([["f"], ["m"], ["m"]], relevant=[0, 1])
    turned = replace(query, rankings=(Ranking("q", ("d2", "d1", "d0")),))
    both = replace(query, rankings=(*query.rankings, *turned.rankings))
    for name in ("AWRF@1", "KL@1", "AWRF@2"):
        single = [value(name, one) for one in (query, turned)]
        assert value(name, both) == pytest.approx(
            np.mean([number for number in single if number is not None])
        )
    assert value("Share@2", both, "f") == pytest.approx(0.25)


def test_pairs_of_attributes_are_outer_products() -> None:
    place = attribute_with("place", "east", "west")
    pages: dict[str, dict[str, tuple[str, ...]]] = {
        "d0": {"gender": ("f",), "place": ("east", "west")},
        "d1": {"gender": ("m",)},
        "d2": {},
    }
    query = grouped(["d0", "d1", "d2"], pages, GENDER, place, relevant=pages)
    shares = {
        group: row.value for (q, group), row in rows("Share(over=place*gender)", query).items() if q == "q"
    }
    assert len(shares) == 3 * 4
    assert {name: share for name, share in shares.items() if share} == {
        "east*f": pytest.approx(1 / 6), "west*f": pytest.approx(1 / 6),
        f"{UNKNOWN}*m": pytest.approx(1 / 3), f"{UNKNOWN}*{UNKNOWN}": pytest.approx(1 / 3),
    }  # fmt: skip
    assert f"{UNKNOWN}*{UNKNOWN}" not in cells(query.groups, "place*gender", "drop").names


def test_groups_of_an_open_attribute() -> None:
    words = {Side.PROTECTED: "a", Side.UNPROTECTED: "b"}
    region = Attribute(
        "region", ("*",), ("east",), words, backgrounds=({"up": 0.5, "down": 0.5}, {"east": 1.0})
    )

    def names(*groups: str) -> list[str]:
        return cells(listed([groups], attribute=region).groups).names

    assert names("down") == ["up", "down", UNKNOWN]
    assert names("east") == ["east", UNKNOWN]
    assert names("west", "east") == ["east", "west", UNKNOWN]
    assert names() == ["up", "down", UNKNOWN]
    assert names(UNKNOWN, "down") == ["up", "down", UNKNOWN]
    assert value("Share", listed([[UNKNOWN, "down"], [UNKNOWN]], attribute=region), "down") == 0.5


# Undefined


def test_what_is_undefined_says_why() -> None:
    unknown = listed([[], []], relevant=[0])
    gender = replace(GENDER, backgrounds=(BACKGROUND,))
    known_late = listed([[], ["f"]], relevant=[1], attribute=gender)
    for query, name, reason in [
        (listed([["f"]]), "AWRF", "no_target"),
        (listed([["f"]], relevant=[0], unlisted=[0]), "AWRF", "no_target"),
        (unknown, "AWRF(unknown=drop)", "no_target"),
        (listed([[]], relevant=[0], attribute=gender), "AWRF(target=trec2021)", "no_target"),
        (known_late, "AWRF(target=trec2021)@1", "no_known_group"),
        (known_late, "KL(target=uniform)@1", "no_known_group"),
        (known_late, "nDCGxAWRF(unknown=drop)@1", "no_known_group"),
        (listed([["f"], ["m"]], relevant=[1], unlisted=[0]), "AWRF@1", "no_known_group"),
        (replace(listed([["f"]], relevant=[0]), rankings=()), "AWRF", "not_ranked"),
        (replace(listed([["f"]], relevant=[0]), rankings=()), "KL", "not_ranked"),
    ]:
        row = rows(name, query)["q", ""]
        assert (row.value, row.reason) == (None, reason), name
    assert value("AWRF", unknown) == 1
    assert value("AWRF(target=trec2022)", listed([[]], relevant=[0], attribute=gender)) == 1
    assert rows("Share(unknown=drop)", unknown)["q", "f"].reason == "no_known_group"
    assert rows("Share", replace(unknown, rankings=()))["q", UNKNOWN].reason == "not_ranked"


# The product with nDCG


def test_a_product_of_means_is_the_product_of_the_columns() -> None:
    first = listed([["f"], ["m"], ["m"]], relevant=[0, 1])
    second = replace(
        first, candidates=replace(first.candidates, query=replace(first.candidates.query, query_id="r")),
        rankings=(Ranking("r", ("d2", "d1", "d0")),),
    )  # fmt: skip
    neither = replace(
        first, candidates=replace(first.candidates, query=replace(first.candidates.query, query_id="s"), relevance={})
    )  # fmt: skip
    names = ["nDCG@2", "AWRF@2", "nDCGxAWRF@2", "nDCGxAWRF(agg=mean-of-products)@2"]
    columns = measure_all([parse_measure(name) for name in names], {"neutral": [first, second, neither]})
    found = {(row.measure, row.query_id): row for row in summarise(columns)}
    mean = {name: found[name, "all"].value for name in names}
    products = [found["nDCGxAWRF@2", q].value for q in "qr"]
    for q, product in zip("qr", products, strict=True):
        factors = found["nDCG@2", q].value, found["AWRF@2", q].value
        assert None not in factors
        assert product == pytest.approx(math.prod(factor for factor in factors if factor is not None))
    assert mean["nDCG@2"] is not None and mean["AWRF@2"] is not None
    assert mean["nDCGxAWRF@2"] == pytest.approx(mean["nDCG@2"] * mean["AWRF@2"])
    assert mean["nDCGxAWRF(agg=mean-of-products)@2"] == pytest.approx(
        np.mean([p for p in products if p is not None])
    )
    together = found["nDCGxAWRF@2", "all"]
    assert (together.n, together.low, together.reason) == (2, None, "no_interval")
    assert found["nDCGxAWRF@2", "s"].reason == "no_relevant"


def test_parameters_go_to_both_factors() -> None:
    query = listed([["m"], ["f"], ["m"], ["f"]], relevant=[1, 2, 3])
    for product, utility, fairness in [
        ("nDCGxAWRF@3", "nDCG@3", "AWRF@3"),
        ("nDCGxAWRF(discount=log2)@3", "nDCG@3", "AWRF(discount=log2)@3"),
        ("nDCGxAWRF(discount=trec)@3", "nDCG(discount=trec)@3", "AWRF@3"),
        ("nDCGxAWRF(discount=trec,ideal=2)", "nDCG(discount=trec,ideal=2)", "AWRF"),
        ("nDCGxAWRF(log=2,target=uniform)@3", "nDCG@3", "AWRF(log=2,target=uniform)@3"),
    ]:
        assert raw(product, query) == Product(
            float(value(utility, query) or 0), float(value(fairness, query) or 0)
        )


# Properties

TABLES = st.lists(
    st.lists(st.sampled_from(["f", "m", "nonbinary"]), max_size=2, unique=True), min_size=1, max_size=12
)
PARAMS = st.sampled_from(
    [
        "", "membership=count", "unknown=drop", "discount=log2", "target=uniform", "target=trec2021",
        "target=trec2022",
    ]
)  # fmt: skip


def with_params(name: str, *params: str, cutoff: int | None = None) -> str:
    written = ",".join(param for param in params if param)
    return f"{name}({written})" + ("" if cutoff is None else f"@{cutoff}")


@given(
    TABLES, st.sets(st.integers(0, 11)), PARAMS, st.none() | st.integers(1, 12), st.permutations(list(BACKGROUND)),
)  # fmt: skip
def test_properties(
    groups: list[list[str]], relevant: set[int], params: str, cutoff: int | None, permuted: list[str]
) -> None:
    gender = replace(GENDER, backgrounds=(BACKGROUND,))
    places = sorted(place for place in relevant if place < len(groups))
    query = listed(groups, relevant=places, attribute=gender)
    natural, binary = (
        value(with_params("AWRF", params, log, cutoff=cutoff), query) for log in ("log=e", "log=2")
    )
    assert (natural is None) == (binary is None)
    if natural is None or binary is None:
        return
    assert 0 <= binary <= 1
    assert natural == pytest.approx(1 - LN2 * (1 - binary), abs=1e-12)

    # other ids of the documents
    names = {f"d{place}": f"x{len(groups) - place}" for place in range(len(groups))}
    renamed = grouped(
        [names[d] for d in query.doc_ids],
        {names[d]: dict(document.groups) for d, document in query.groups.documents.items()},
        gender,
        relevant=[names[f"d{place}"] for place in places],
    )
    assert value(with_params("AWRF", params, cutoff=cutoff), renamed) == natural

    # an unlisted document after the last
    longer = replace(
        query,
        candidates=replace(
            query.candidates, documents=(*query.candidates.documents, *renamed.candidates.documents[:1])
        ),
    )
    if cutoff is None:
        assert value(with_params("AWRF", params), longer) == pytest.approx(natural, abs=1e-12)

    # other names of the groups
    name = dict(zip(BACKGROUND, permuted, strict=True))
    swapped = listed(
        [[name[group] for group in document] for document in groups],
        relevant=places,
        attribute=replace(gender, backgrounds=({name[group]: share for group, share in BACKGROUND.items()},)),
    )
    assert value(with_params("AWRF", params, cutoff=cutoff), swapped) == pytest.approx(natural, abs=1e-12)
    shares, renamed_shares = (
        rows(with_params("Share", cutoff=cutoff), judged) for judged in (query, swapped)
    )
    for group in BACKGROUND:
        assert shares["q", group].value == renamed_shares["q", name[group]].value
    total = sum(row.value or 0 for (query_id, _), row in shares.items() if query_id == "q")
    assert total == pytest.approx(1)
    divergence = value(with_params("KL", params.replace("discount=log2", ""), cutoff=cutoff), query)
    assert divergence is not None and divergence >= -1e-12


# Shares come from counts, so none is smaller than the smallest that a float can halve.
SHARE = st.floats(0, 1).map(lambda share: round(share, 12))


@given(st.lists(st.tuples(SHARE, SHARE), min_size=2, max_size=21))
def test_the_divergence_is_scipys(pairs: list[tuple[float, float]]) -> None:
    from scipy.spatial.distance import jensenshannon

    p, q = np.array(pairs).T
    if p.sum() < 1e-6 or q.sum() < 1e-6:
        return
    p, q = p / p.sum(), q / q.sum()
    with np.errstate(invalid="ignore"):  # of two equal distributions it may take the root of −1e-17
        distance = np.nan_to_num(jensenshannon(p, q))
    assert jensen_shannon(p, q) == pytest.approx(float(distance) ** 2, abs=1e-12)


# Names


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("awrf(target=trec2021, unknown=drop)@20", "AWRF(target=trec2021)@20"),
        ("AWRF(target=trec2022,unknown=keep)", "AWRF(target=trec2022)"),
        ("AWRF(unknown=keep,log=e,target=empirical)@20", "AWRF@20"),
        ("AWRF(over=location*gender)@20", "AWRF(over=location*gender)@20"),
        ("AWRF(target=./a.json,unknown=drop)", "AWRF(target=./a.json,unknown=drop)"),
        ("AWRF(target='my shares, (1).json')@5", "AWRF(target='my shares, (1).json')@5"),
        ('AWRF(target="it\'s.json")', 'AWRF(target="it\'s.json")'),
        ("KL(eps=1e-6)@20", "KL@20"),
        ("KL(eps=0.000001)", "KL"),
        ("KL(eps=.001, direction=target-current)", "KL(direction=target-current,eps=0.001)"),
        ("ndcgxawrf(agg=product-of-means)@20", "nDCGxAWRF@20"),
        ("nDCGxAWRF(ideal=500,discount=trec)", "nDCGxAWRF(discount=trec,ideal=500)"),
    ],
)
def test_canonical_names(written: str, canonical: str) -> None:
    measure = parse_measure(written)
    assert str(measure) == canonical
    assert parse_measure(canonical) == measure
    assert parse_measure(canonical).arguments == measure.arguments


def test_targets_imply_what_becomes_of_the_unknown() -> None:
    implied = {
        "empirical": "keep", "trec2021": "drop", "trec2022": "keep", "uniform": "drop", "./a.json": "keep",
    }  # fmt: skip
    for target, unknown in implied.items():
        assert parse_measure(f"AWRF(target={target})").arguments["unknown"] == unknown
    assert parse_measure("KL(eps=1e-3)").arguments["eps"] == 1e-3
    assert parse_measure("nDCGxAWRF").aggregate == "product-of-means"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("AWRF(target=trec2021,unknown=keep)", "target=trec2021 contradicts unknown=keep"),
        ("KL(unknown=drop,target=trec2022)@20", "target=trec2022 contradicts unknown=drop"),
        ("nDCGxAWRF(target=uniform,unknown=keep)", "target=uniform contradicts unknown=keep"),
        ("AWRF(target=unifrom)", "Did you mean 'uniform'?"),
        ("AWRF(taget=uniform)", "Did you mean 'target'?"),
        ("AWRF(unknown=dropp)", "Did you mean 'drop'?"),
        ("AWRF(over=a*b*c)", "over cannot be 'a*b*c'"),
        ("AWRF(over=a*a)", "over cannot be 'a*a'"),
        ("AWRF(over=*a)", "over cannot be '*a'"),
        ("KL(eps=0)", "eps cannot be '0'"),
        ("KL(eps=nan)", "eps cannot be 'nan'"),
        ("KL(eps=small)", "eps cannot be 'small'"),
        ("KL(direction=target-curent)", "Did you mean 'target-current'?"),
        ("Share(target=uniform)", "no parameter 'target'"),
        ("AWFR@20", "Did you mean 'AWRF'?"),
    ],
)
def test_mistakes_in_a_name(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_measure(text)
    assert says in caught.value.message and caught.value.hint


def test_mistakes_that_only_the_data_show(tmp_path: Path) -> None:
    query = listed([["f"], ["m"]], relevant=[0])
    broken = {
        "none.json": (None, "cannot be read"),
        "list.json": ("[1]", "no group has a share"),
        "text.json": ("{", "cannot be read"),
        "sign.json": ('{"f": -1}', "not a number from 0"),
        "word.json": ('{"f": "half"}', "not a number from 0"),
        "zero.json": ('{"f": 0}', "no group has a share"),
        "typo.json": ('{"nonbinry": 1}', "Did you mean 'nonbinary'?"),
    }
    for name, (text, says) in broken.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(UsageError, match=says.replace("?", r"\?")):
            value(f"AWRF(target={tmp_path / name})", query)
    for written, says in [
        ("AWRF(over=gendr)", "Did you mean 'gender'"),
        ("Share(over=gender*place)", "no attribute 'place'"),
        ("AWRF(target=trec2022)", "no background of gender has all groups of the data"),
        ("nDCGxAWRF(ideal=5)", "needs discount=trec"),
    ]:
        with pytest.raises(UsageError, match=says):
            value(written, query)


# In an audit


def measured(dataset: str, attribute: str, measures: str) -> dict[tuple[str, str, str], float | None]:
    settings = ListwiseSettings.make(dataset=dataset, attribute=attribute, measures=measures, orders=1)
    result = audit(LISTWISE.design(settings, Subject("fake:random")))
    rows = table(result.folder.path / "metrics.csv")
    read = {(row["measure"], row["condition"], row["group"]): row["value"] for row in rows}
    assert all(text == "" or math.isfinite(float(text)) for text in read.values())
    return {key: float(text) if text else None for key, text in read.items()}


MEASURES = "AWRF@20,Share@20,KL@20,nDCGxAWRF@20,AWRF(over=location*gender)@20"


@pytest.mark.parametrize(("attribute", "groups"), [("gender", 4), ("location", 8)])
def test_an_audit_of_the_sample(attribute: str, groups: int) -> None:
    found = measured("sample", attribute, MEASURES + ",AWRF(target=trec2021)@20")
    shares = [
        value for (name, condition, _), value in found.items() if (name, condition) == ("Share@20", "neutral")
    ]
    assert len(shares) == groups
    assert sum(share or 0 for share in shares) == pytest.approx(1)
    for condition in ("neutral", "initial"):
        assert 1 - LN2 <= (found["AWRF@20", condition, ""] or 0) <= 1
        assert 0 < (found["nDCGxAWRF@20", condition, ""] or 0) < 1
        assert found["KL@20", condition, ""] is not None


@pytest.mark.whole
@pytest.mark.parametrize(("attribute", "groups"), [("gender", 4), ("location", 7)])
def test_an_audit_of_real_topics(attribute: str, groups: int) -> None:
    write_joined(Path("joined"))
    found = measured("joined", attribute, MEASURES)
    assert sum(key[:2] == ("Share@20", "neutral") for key in found) == groups
    assert all(found[name, "neutral", ""] is not None for name in ("AWRF@20", "KL@20", "nDCGxAWRF@20"))


def test_what_the_data_cannot_give_is_said_before_anything_is_asked() -> None:
    for measure, says in [
        ("AWRF(over=gendre)", "Did you mean 'gender'"),
        ("AWRF(target=./none.json)", "cannot be read"),
    ]:
        with pytest.raises(UsageError, match=says):
            measured("sample", "gender", measure)
    assert not list(Path().glob("**/journal*"))
