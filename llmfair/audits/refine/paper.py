"""The layout of the paper's Table 1: relevance, then fairness and its products with relevance, attribute by attribute.

Chen & Fang, "FAIR-QR", arXiv 2503.21092, Table 1: best of a column in bold, and behind refinement's figures a sign for
each method that they are better than, by a t test paired by query, p < 0.05.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from llmfair.audits.refine.concluding import SYMBOLS
from llmfair.audits.refine.contrasts import contrasts_table
from llmfair.audits.refine.results import RefineResults
from llmfair.metrics.names import parse_measure
from llmfair.report.groups import Group
from llmfair.report.tables import Table

PRESET = "paper"
UTILITY, FAIRNESS, PRODUCT, MEAN_PRODUCT = "utility", "fairness", "product", "mean_product"
HEADINGS = {
    UTILITY: "nDCG@{k}",
    FAIRNESS: "AWRF@{k}",
    PRODUCT: "product of means",
    MEAN_PRODUCT: "mean of products",
}


@dataclass(frozen=True)
class Mean:
    """A method's mean in a column, with the signs of the methods that it is better than."""

    value: float
    signs: str = ""


Method = Mapping[str, Mean]
"""A method's means by column, of those of HEADINGS that it has."""
Block = Mapping[str, Method]
"""The methods of one attribute's run, by name."""


def of_means(utility: float, fairness: float) -> Method:
    """A method of which only the means are known."""
    return {UTILITY: Mean(utility), FAIRNESS: Mean(fairness), PRODUCT: Mean(utility * fairness)}


def paper_table(blocks: Mapping[str, Block], title: str, k: int = 20) -> Table:
    """Methods down; across nDCG once, of every attribute where that differs, and what each attribute has."""
    methods = dict.fromkeys(name for block in blocks.values() for name in block)
    columns = [*_columns(blocks, k)]
    cells = {
        (row, column): means
        for row, name in enumerate(methods)
        for column, (_, attributes, kind) in enumerate(columns, start=1)
        if (means := _means([blocks[attribute].get(name, {}).get(kind) for attribute in attributes]))
    }
    values = {place: fsum(mean.value for mean in means) / len(means) for place, means in cells.items()}
    best = {column: max(value for (_, at), value in values.items() if at == column) for _, column in values}
    rows = tuple(
        (
            name,
            *(" / ".join(map(_cell, cells.get((row, column), ()))) for column in range(1, len(columns) + 1)),
        )
        for row, name in enumerate(methods)
    )
    signs = "".join(mean.signs for means in cells.values() for mean in means)
    notes = (
        "bold: the best of a column",
        f"{HEADINGS[UTILITY].format(k=k)} of two figures: of {' / '.join(blocks)}; the best by their mean"
        if any(len(means) > 1 for means in cells.values())
        else "",
        signs_text(signs),
    )
    return Table(
        title,
        ("method", *(heading for heading, _, _ in columns)),
        rows,
        tuple(filter(None, notes)),
        strong=frozenset(place for place, value in values.items() if value == best[place[1]]),
    )


def _columns(blocks: Mapping[str, Block], k: int) -> Iterator[tuple[str, Sequence[str], str]]:
    """Heading, attributes and kind of every column: relevance is of all, whatever else of one."""
    several = len(blocks) > 1
    yield HEADINGS[UTILITY].format(k=k), [*blocks], UTILITY
    for attribute, block in blocks.items():
        for kind, heading in HEADINGS.items():
            if kind != UTILITY and any(kind in means for means in block.values()):
                yield f"{attribute}: " * several + heading.format(k=k), [attribute], kind


def _means(means: Sequence[Mean | None]) -> Sequence[Mean]:
    """One where all are equal, else each; those that there are."""
    some = [mean for mean in means if mean is not None]
    return some[:1] if len({*map(_cell, some)}) == 1 else some


def _cell(mean: Mean) -> str:
    return f"{mean.value:.4f}{mean.signs}"


def signs_text(signs: str) -> str:
    """What the signs say that stand in a table; nothing without any."""
    told = ", ".join(f"{sign} {method}" for method, sign in SYMBOLS.items() if sign in signs)
    return (
        f"better than {told} by a paired t test, p < 0.05, not adjusted, as in the paper's Table 1"
        if told
        else ""
    )


def block_of(results: RefineResults) -> Block:
    """The methods of a run."""
    design, signs, found = results.design, signs_of(results), dict[str, dict[str, Mean]]()
    kinds = {design.utility: UTILITY, design.aimed: FAIRNESS}
    for measure in results.measures:
        parsed = parse_measure(measure)
        if parsed.name == "nDCGxAWRF" and parsed.cutoff == design.k:
            kinds[measure] = PRODUCT if parsed.arguments["agg"] == "product-of-means" else MEAN_PRODUCT
    for row in results.of_all():
        if row.measure in kinds and row.condition in design.conditions and row.value is not None:
            mean = Mean(row.value, signs.get((row.condition, row.measure), ""))
            found.setdefault(row.condition, {})[kinds[row.measure]] = mean
    return {name: found[name] for name in design.conditions if name in found}


def signs_of(results: RefineResults) -> dict[tuple[str, str], str]:
    """By method and measure, the signs of the paper's test; of runs under its preset alone."""
    signs: dict[tuple[str, str], str] = {}
    for test in results.paper if results.design.preset == PRESET else ():
        signs[test.method, test.measure] = signs.get((test.method, test.measure), "") + test.symbol
    order = "".join(SYMBOLS.values())
    return {place: "".join(sorted(of, key=order.index)) for place, of in signs.items()}


def group_tables(group: Group) -> Iterator[Table]:
    """Of runs under the paper's preset its Table 1, attributes side by side, and the tests of this house beside it."""
    for name, runs in group.rows.items():
        results = {
            attribute: audited.results
            for attribute, audited in runs.items()
            if isinstance(audited.results, RefineResults) and audited.results.design.preset == PRESET
        }
        if not results:
            continue
        about, k = f"{group.dataset} · {name}", next(iter(results.values())).design.k
        blocks = {attribute: block_of(of) for attribute, of in results.items()}
        yield paper_table(blocks, f"Table 1 of the paper · {about}", k)
        for attribute, of in results.items():
            yield from filter(None, [contrasts_table(of, f" · {about}, {attribute}")])
