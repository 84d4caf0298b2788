"""What an audit of a generator found as a table: a line a setting, from one list by score to lists by usefulness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from llmfair.audits.rag.results import RagResults
from llmfair.nouns import Conclusion
from llmfair.report.reasons import in_words
from llmfair.report.tables import Table, conditions_table, count, percent

SAID = {
    Conclusion.WITHIN: "utility kept",
    Conclusion.OUTSIDE: "utility lost",
    Conclusion.INCONCLUSIVE: "inconclusive",
}


def rag_table(results: RagResults, title: str, called: str) -> Table:
    """One row a setting, one column a measure."""
    table = conditions_table(title, results, called, {}, "queries")
    said = {
        condition: SAID.get(results.findings[condition].conclusion, text)
        if condition in results.findings
        else text
        for condition, text in table.said.items()
    }
    concludes = table.header[-1] == "conclusion"  # a column without a word is not there
    rows = tuple((*row[:-1], said[row[0]]) for row in table.rows) if concludes else table.rows
    return replace(table, rows=rows, said=said, notes=(*notes(results), *table.notes))


def notes(results: RagResults) -> Iterator[str]:
    """How many queries the figures speak of, and what their items are like."""
    of, design = results.collection, results.design
    dropped = sum(of.dropped.values())
    if of.kept and of.items is not None and of.useful is not None and of.useful_share is not None:
        yield (
            f"{count(of.kept, 'query', 'queries')} of {of.items:.0f} items, {of.useful:.1f} of them useful "
            f"({100 * of.useful_share:.0f} %)"
            + f"; {dropped} more dropped with fewer than 2 useful items"
            * bool(dropped)
        )
    elif dropped:
        yield f"no query has 2 useful items: all {dropped} are dropped"
    yield (
        f"the generator reads {count(design.k, 'item')} of {count(design.samples, 'list')} drawn a query; EE-D is 1 "
        "where a query always shows the same items, and 0 where it shows all alike"
    )
    yield (
        f"utility: {design.utility}; kept where the whole interval of its change is at least {-design.margin:g}, and "
        "enough queries change to tell"
    )
    if (judged := results.judged) is not None and judged.asked:
        yield (
            f"by={judged.by}: {judged.model} was asked of {count(judged.asked, 'pair')} of item and output whether the "
            f"item supports it, and says so of {percent(judged.supported, judged.asked)}"
            + f"; {count(judged.unparseable, 'answer is', 'answers are')} neither yes nor no, and the lists they are "
            "of have no EAR and no EAE-D" * bool(judged.unparseable)
        )
    if design.uncredited:
        yield (
            f"EAR and EAE-D are not assessable: {in_words(design.uncredited, 'EAR')}; --hypothesis prompt has it claim "
            "what the prompt makes of it"
        )
    for condition, counted in results.answers.items():
        if counted.unparseable:
            yield (
                f"{condition}: {percent(counted.unparseable, counted.outputs)} of {counted.outputs:,} outputs are no "
                "answer ("
                + ", ".join(f"{name} {n}" for name, n in counted.classes.items())
                + "); they are measured as they are"
            )
