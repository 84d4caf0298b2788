"""A simulated ranker with an injected preference is measured as what it is: exact values, stated tolerance."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.listwise import LISTWISE
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.subject import Subject
from tests.finished import audit
from tests.folders import write_folder
from tests.shared import vectors

pytestmark = pytest.mark.whole

QUERIES = {20: 50, 50: 30, 200: 10}
"""Of a list's length. The tolerance is four standard errors of so many, whatever they are."""


def folder_of(row: dict[str, Any], queries: int) -> Path:
    """Lists of the row's shape: protected and unprotected items, relevant first within each side."""

    def side(
        query: int, letter: str, group: str, size: int, relevant: int
    ) -> list[tuple[str, str | None, int]]:
        return [(f"q{query}{letter}{i}", group, int(i < relevant)) for i in range(size)]

    n, protected = row["N"], row["n_protected"]
    lists = {
        f"q{q}": side(q, "f", "female", protected, row["experts_protected"])
        + side(q, "m", "male", n - protected, row["experts_unprotected"])
        for q in range(queries)
    }
    name = "-".join(str(row[key]) for key in ("N", "n_protected", "experts_protected", "experts_unprotected"))
    path = Path(f"{name}-{queries}")
    return path if path.is_dir() else write_folder(path, lists)


def measured(row: dict[str, Any], queries: int, **design: Any) -> dict[tuple[str, str], float]:
    settings = ListwiseSettings.make(
        dataset=str(folder_of(row, queries)), conditions="neutral", repeat=False, orders=1, repeats=1,
        measures="ExpRatio,P@20", seed=row.get("seed", 3), max_invalid=1.0, **design,
    )  # fmt: skip
    model = f"fake:biased,relevance={row['alpha']},listwise={row['beta']},noise=1,malformed=0"
    rows = audit(LISTWISE.design(settings, Subject(model))).results.rows
    return {(r.condition, r.measure): r.value for r in rows if r.query_id == "all" and r.value is not None}


def rows_of(kind: str, **wanted: Any) -> list[dict[str, Any]]:
    """The reference's rows with these values."""
    rows = vectors("injected_bias.json")[kind]
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    assert found
    return found


def is_plackett_luce(row: dict[str, Any], queries: int) -> None:
    n = row["N"]
    found = measured(row, queries, window=n, step=n, passes=1)["neutral", "ExpRatio"]
    tolerance = 4 * row["sd_influence_per_query"] / math.sqrt(queries)
    assert abs(math.log(found / row["exact_ratio"])) <= tolerance, row


def is_as_simulated(row: dict[str, Any], queries: int) -> None:
    plan = "rankgpt" if row["last_partial_window"] == "dropped" else "covering"
    found = measured(
        row, queries, window=row["window"], step=row["step"], passes=row["passes"], windows=plan
    )["neutral", "ExpRatio"]
    error = (row["sd_influence_per_query"] ** 2 / queries + (row["ratio_mc_se"] / row["ratio"]) ** 2) ** 0.5
    assert abs(math.log(found / row["ratio"])) <= 4 * error, row


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("n", [20, 50, 200])
def test_the_same_with_many_queries(n: int) -> None:
    """The tolerance narrows with the root of the number of queries: a quarter as wide as by default, or less."""
    for row in rows_of("listwise_full_pl", N=n):
        is_plackett_luce(row, 1600 if n < 200 else 640)


@pytest.mark.parametrize("n", [20, 50, 200])
def test_one_window_over_the_whole_list_is_plackett_luce(n: int) -> None:
    """Of every shape of list the first and the last row: the preferences farthest apart."""
    shapes: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for row in rows_of("listwise_full_pl", N=n):
        shape = (row["n_protected"], row["experts_protected"], row["experts_unprotected"])
        shapes.setdefault(shape, []).append(row)
    for rows in shapes.values():
        for row in (rows[0], rows[-1]):
            is_plackett_luce(row, QUERIES[n])


RANDOM_ORDERS = {"initial_order": "random", "malformed": 0}


@pytest.mark.parametrize("n", [50, 200])
def test_windows_from_random_orders(n: int) -> None:
    """The strongest preference of every plan of windows."""
    plans: dict[tuple[int, ...], dict[str, Any]] = {}
    for row in rows_of("listwise_sliding_window_mc", N=n, **RANDOM_ORDERS):
        plan = (row["window"], row["step"], row["passes"])
        plans[plan] = max(plans.get(plan, row), row, key=lambda one: abs(one["beta"]))
    for row in plans.values():
        is_as_simulated(row, 20 if n == 50 else 5)


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 200])
def test_every_row_of_windows_from_random_orders(n: int) -> None:
    for row in rows_of("listwise_sliding_window_mc", N=n, **RANDOM_ORDERS):
        is_as_simulated(row, 60 if n == 50 else 30)


def test_the_sensitive_prompt_s_injected_preference_has_its_sign() -> None:
    row = {"N": 20, "n_protected": 10, "experts_protected": 5, "experts_unprotected": 5}
    settings = ListwiseSettings.make(
        dataset=str(folder_of(row, 40)), repeat=False, orders=1, passes=1, measures="PreferenceOdds"
    )
    audit(LISTWISE.design(settings, Subject("fake:biased,listwise=0,prompt=1,malformed=0")))
    (folder,) = Path("runs").iterdir()
    rows = json.loads((folder / "results.json").read_text())["rows"]
    value = {
        r["condition"]: (r["low"], r["value"], r["high"]) for r in rows if r["measure"] == "PreferenceOdds"
    }
    assert value["neutral"][0] < 1 < value["neutral"][2]
    assert value["female"][0] > 1.1 and value["male"][2] < 0.9
    # Both prompts plant the same preference, for opposite sides.
    assert value["female"][0] < 1 / value["male"][1] < value["female"][2]
