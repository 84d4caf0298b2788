"""What the report of an audit of a generator has of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llmfair.audits.rag.figures import rag_plots
from llmfair.audits.rag.results import Curve, Intervals, RagResults
from llmfair.audits.rag.table import rag_table
from llmfair.audits.rag.tables import Named, collection_table, tradeoff_tables
from llmfair.audits.rag.words import WORDS
from llmfair.report.section import Section


def rag_section(results: RagResults, folder: Path, title: str, called: str) -> Section:
    """Every setting, the queries, utility by interval of disparity, slope and area; and the figures."""
    design = results.design
    rows: dict[Named, tuple[Intervals, Sequence[Curve]]] = {
        (retriever,): (table, results.tradeoff[retriever]) for retriever, table in results.intervals.items()
    }
    return Section(
        table=rag_table(results, title, called),
        more=[collection_table(results), *tradeoff_tables(rows, ("retriever",))],
        plots=list(rag_plots(results, folder)),
        words=WORDS,
        facts=[
            ("shown", f"{design.k} items, {design.samples} lists a query and setting"),
            ("useful items", design.useful),
            ("utility", design.utility),
            ("attribution", design.attribution),
        ],
    )
