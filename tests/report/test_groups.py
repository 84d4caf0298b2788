"""Which runs share a table: those of one collection that were asked about the same lists."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llmfair.audits.kind import kinds
from llmfair.report.groups import AuditedRun, groups_of
from tests.cli.command import ran

SAMPLE, EVAL = "sample", "trec-fair/2022/eval"


def audited(model: str, attribute: str, lists: str, dataset: str = SAMPLE, **flags: Any) -> AuditedRun:
    results: Any = SimpleNamespace(
        task="listwise", dataset=dataset, attribute=attribute, named_model=model, short_name=model
    )
    return AuditedRun(Path(model), {"lists_sha256": lists, "queries": ["q"]}, flags, results)


A, B = audited("a", "gender", "1" * 64), audited("b", "gender", "2" * 64, relevant=24)
IN_EVAL, IN_PLACES = (audited("a", name, name, f"{EVAL}/{name}") for name in ("gender", "location"))


@pytest.mark.parametrize(
    ("runs", "tables"),
    [
        ([A, audited("b", "gender", "1" * 64)], [("sample", "", "a b")]),
        ([A, B], [("sample", "lists 111111, by default", "a"), ("sample", "lists 222222, relevant 24", "b")]),
        ([A, audited("b", "gender", "2" * 64)], [("sample", "lists 111111", "a"), ("sample", "lists 222222", "b")]),
        # lists of another attribute are others, and stand beside those that the same settings drew
        ([A, B, audited("b", "location", "3" * 64, relevant=24)],
         [("sample", "lists 111111, by default", "a"), ("sample", "lists 222222 and 333333, relevant 24", "b")]),
        ([IN_EVAL, IN_PLACES], [(EVAL, "", "a")]),
        ([audited("a", name, name, f"hf:org/{name}") for name in ("gender", "location")],
         [("hf:org/gender", "", "a"), ("hf:org/location", "", "a")]),
    ],
)  # fmt: skip
def test_a_table_is_of_one_collection_and_of_the_same_lists(
    runs: list[AuditedRun], tables: list[tuple[str, str, str]]
) -> None:
    groups = groups_of(runs, {kind.name: cast(Any, kind) for kind in kinds()})
    assert [(group.dataset, group.lists, " ".join(group.rows)) for group in groups] == tables


@pytest.mark.whole
def test_figures_of_different_lists_stand_in_tables_of_their_own() -> None:
    quick = (*"listwise -q --no-report --orders 1 --passes 1 -n 5 --max-invalid 1".split(),)
    ran(*quick, "-m", "fake:oracle", "-o", "whole")
    ran(*quick, "-m", "fake:random", "--candidates", "20", "-o", "drawn")
    page = ran("report", "whole", "drawn", "--format", "md").out
    assert "Runs of listwise on sample were asked about different lists" in page
    of_p20 = [part.partition("\n\n\n")[0] for part in page.split("\nP@20 ")[1:]]
    assert [("fake:oracle" in part, "fake:random" in part) for part in of_p20] == [
        (True, False),
        (False, True),
    ]
    assert ["by default" in part for part in of_p20] == [True, False] and "candidates 20" in of_p20[1]
