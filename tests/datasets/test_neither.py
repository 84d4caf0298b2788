"""Documents on neither side, as docs/own-data.md has it: where they are kept, where they count, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.pairwise.design import make_pair_design
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.metrics.base import Ratio, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.nouns import Ranking
from llmfair.stats.power import rank_exposures
from tests.cli.command import ran, refuses
from tests.folders import balanced, write_folder

OTHERS = {"q0f0": ("nonbinary",), "q0f1": (), "q0f2": ("female", "nonbinary"), "q0f3": ("female", "male")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two lists of eight women and eight men; of the first list, four women are on neither side, each in a way."""
    lists = balanced(2, 8, 8)
    path = write_folder(tmp_path / "mine", lists)
    groups = [line.split("\t") for line in (path / "groups.tsv").read_text().splitlines()]
    rows = [row for row in groups if row[0] not in OTHERS]
    rows += [[doc_id, "gender", group] for doc_id, found in OTHERS.items() for group in found]
    (path / "groups.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def test_they_keep_their_places_and_are_in_neither_mean(folder: Path) -> None:
    design = make_design(ListwiseSettings.make(dataset=str(folder), conditions="neutral", repeat=False))
    listed = design.dataset.candidates(design.queries[0])
    assert {*OTHERS} <= {*listed.doc_ids} and len(listed.doc_ids) == 16
    (column,) = measure_all(
        parse_measures("ExpRatio"),
        {
            "neutral": [
                design.judged(listed, [Ranking("q0", (*OTHERS, *sorted({*listed.doc_ids} - {*OTHERS})))])
            ]
        },
    )
    found = column.values["q0"]
    assert isinstance(found, Ratio)
    exposures = rank_exposures(16)  # the four at the top, then four women, then eight men
    assert found.numerator == pytest.approx(exposures[4:8].mean())
    assert found.denominator == pytest.approx(exposures[8:].mean())


def test_they_are_in_no_pair_unless_mixed_ones_are_taken(folder: Path) -> None:
    def paired(mixed: str) -> set[str]:
        design = make_pair_design(PairwiseSettings.make(dataset=str(folder), mixed=mixed, pairs=999))
        return {doc_id for probe in design.probes() for doc_id in probe.candidates.doc_ids}

    assert not paired("drop") & {*OTHERS}
    assert paired("protected") & {*OTHERS} == {"q0f3"}


@pytest.mark.parametrize("buckets", ["equal", "natural"])
def test_they_are_in_no_drawn_list(folder: Path, buckets: str) -> None:
    settings = ListwiseSettings.make(dataset=str(folder), buckets=buckets, candidates=16, relevant=8)
    design = make_design(settings)
    assert design.queries
    for query in design.queries:
        assert not {*design.dataset.candidates(query).doc_ids} & {*OTHERS}


def test_a_group_that_is_declared_nowhere_is_refused_with_the_way_to_declare_it(folder: Path) -> None:
    groups = folder / "groups.tsv"
    groups.write_text(groups.read_text().replace("q1m0\tgender\tmale", "q1m0\tgender\tagender"))
    said = (
        "'agender' is not a group of gender; it has female, male, nonbinary\n  declare it protected, unprotected "
        'or, of neither group, other = ["agender"] in '
    )
    refuses(said, "datasets", "show", folder)
    shipped = ran("datasets", "attributes").out
    declared = shipped.replace('other = ["nonbinary"]', 'other = ["nonbinary", "agender"]')
    (folder / "attributes.toml").write_text(declared[: declared.index("[location]")])
    assert (
        "gender: protected (female) 12, unprotected (male) 15, unknown 1, mixed 1, other 3"
        in ran("datasets", "show", folder).out
    )
