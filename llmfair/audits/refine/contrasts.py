"""fair-qr less every method that it is held against, in words and as a table."""

from __future__ import annotations

from collections.abc import Iterator

from llmfair.audits.refine.concluding import compared, held_against
from llmfair.audits.refine.design import FAIR_QR
from llmfair.audits.refine.results import RefineResults
from llmfair.audits.refine.settings import BASELINE
from llmfair.report.tables import Table, cell, p_text


def changes_told(results: RefineResults) -> Iterator[str]:
    """A sentence a method, of the measures that the table shows and those that are concluded of."""
    methods, design = results.family.size, results.design
    told_of = {*results.shown, design.objective, design.aimed, design.utility}
    for method in held_against(design.conditions):
        told = [
            f"{row.measure} {row.value:+.3f}" + ("" if p is None else f" (p {p_text(p)})")
            for row in results.of_all()
            if row.condition == compared(method) and row.measure in told_of and row.value is not None
            for p in [row.p_adjusted if methods > 1 else row.p]
        ]
        if told:
            holm = f", p adjusted (Holm) over {methods} methods" * (methods > 1)
            how = f", paired by query, signs flipped{holm}" * (method == BASELINE)
            yield f"{FAIR_QR} less {method}{how}: {', '.join(told)}"


def contrasts_table(results: RefineResults, about: str = "") -> Table | None:
    """Every method in every measure, with p before and after Holm, and the paper's; None where bm25 is the only one."""
    methods = held_against(results.design.conditions)
    if len(methods) < 2:
        return None
    changes = {(row.condition, row.measure): row for row in results.of_all()}
    paired_t = {(one.against, one.measure): one.p for one in results.paper if one.method == FAIR_QR}
    rows = tuple(
        (
            measure if method == methods[0] else "",
            method,
            cell(row),
            *map(_p, (row.p, row.p_adjusted, paired_t.get((method, measure)))),
        )
        for measure in results.measures
        for method in methods
        if (row := changes.get((compared(method), measure))) is not None
    )
    title = f"{FAIR_QR} less each method, paired by query{about}"
    header = ("measure", "method", f"change [{results.level * 100:g} %]", "p", "p (Holm)", "p (paired t)")
    said = (
        f"p by signs flipped; adjusted (Holm) over {results.family.size} methods, each measure for itself; paired t as "
        "in the paper, not adjusted"
    )
    return Table(title, header, rows, (said,))


def _p(p: float | None) -> str:
    return "–" if p is None else p_text(p)
