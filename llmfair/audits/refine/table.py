"""What an audit of query refinement found as a table: the original query, the refined one, and its page in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from llmfair.audits.refine.concluding import compared
from llmfair.audits.refine.design import FAIR_QR
from llmfair.audits.refine.results import RefineResults
from llmfair.audits.refine.settings import BASELINE
from llmfair.audits.refine.verdict import NOT_ASSESSABLE, refine_verdict
from llmfair.audits.verdict import conclusions_of
from llmfair.report.tables import Table, conditions_table, count, p_text, percent

KNOWN = "target known"
TOLD = "the loop is told the target that its figures are measured against, which other methods are not"
OF_JUDGEMENTS = (
    ": a target from elsewhere (--target trec2022, or a file) and -m fake:name, a model that knows nothing, show what "
    "that is worth"
)
SHOWN_LEFT_OUT = 5
STOPS = {
    "attained": "no page could be nearer",
    "no_underrepresented_group": "no group was below its target",
    "unreadable": "two replies in a row named no keywords",
    "no_keywords": "all keywords stood in the query already",
    "no_result": "the query finds nothing",
    "no_decrease": "a round came no nearer, and was dropped",
    "max_iterations": "all rounds were used",
}
LEFT_OUT = {"no_target": "no relevant document of a known group", "no_result": "the query finds nothing"}


def refine_table(results: RefineResults, title: str, called: str) -> Table:
    """One row a method, one column a measure, and whether the method is told the target."""
    table = conditions_table(title, results, called, {}, "topics", "replies")
    factors = results.design.factors or {}
    status = refine_verdict(conclusions_of(results, ())).status
    said = dict.fromkeys(results.design.conditions, "")
    said[FAIR_QR] = table.said[FAIR_QR] if status == NOT_ASSESSABLE else status
    signs = _signs(results)
    rows = tuple(
        (
            *(
                cell + signs.get((row[0], name.partition(" [")[0]), "")
                for name, cell in zip(table.header[:-1], row[:-1], strict=True)
            ),
            str(factors.get(row[0], {}).get("target_known", "")),
            said[row[0]],
        )
        for row in table.rows
    )
    header = (*table.header[:-1], KNOWN, "conclusion")
    return replace(table, header=header, rows=rows, said=said, notes=(*notes(results), *table.notes))


def _signs(results: RefineResults) -> dict[tuple[str, str], str]:
    """By method and measure, the signs of the paper's test; of runs under its preset alone."""
    signs: dict[tuple[str, str], str] = {}
    for test in results.paper if results.design.preset == "paper" else ():
        signs[test.method, test.measure] = signs.get((test.method, test.measure), "") + test.symbol
    return signs


def notes(results: RefineResults) -> Iterator[str]:
    """How the loops went, what the page changed, and what has to be known to read that."""
    design, stops = results.design, results.stops
    refined = sum(n for rounds, n in results.iterations.items() if rounds != "0")
    ended = ", ".join(f"{name} {n} ({STOPS[name]})" for name, n in stops.items() if name in STOPS)
    if not refined and stops:
        yield f"nothing was refined: {_why_not(results)}"
    elif stops:
        yield (
            f"{refined} of {count(sum(stops.values()), 'query', 'queries')} were refined, in pages of {design.k} of "
            f"{design.documents:,} documents; loops ended with {ended}"
        )
    if design.query_text:
        yield f"queries are the topics' {searched_text(design.query_text)}"
    yield TOLD + OF_JUDGEMENTS * (design.target == "empirical")
    for reason, queries in results.left_out.items():
        first = ", ".join(queries[:SHOWN_LEFT_OUT]) + ", …" * (len(queries) > SHOWN_LEFT_OUT)
        yield f"{count(len(queries), 'query', 'queries')} left out, {LEFT_OUT.get(reason, reason)}: {first}"
    if any(_signs(results).values()):
        yield f"* better than {BASELINE} by a paired t test, p < 0.05, not adjusted, as in the paper's Table 1"
    counted = results.answers[FAIR_QR]
    classes = ", ".join(f"{name} {n}" for name, n in counted.classes.items() if name != "ok")
    if classes:
        again = f"; {counted.asked_again} asked again" if counted.asked_again else ""
        yield (
            f"{percent(counted.replies - counted.classes.get('ok', 0), counted.replies)} of "
            f"{counted.replies:,} replies are not in the form asked for: {classes}{again}"
        )
    changes = {row.measure: row for row in results.of_all() if row.condition == compared(BASELINE)}
    told = [
        f"{measure} {row.value:+.3f}" + ("" if row.p is None else f" (p {p_text(row.p)})")
        for measure, row in changes.items()
        if row.value is not None
    ]
    if told:
        yield f"{FAIR_QR} less {BASELINE}, paired by query, signs flipped: {', '.join(told)}"
    for measure, reach in results.reach.items():
        if reach.low is not None:
            yield f"the least {measure} that pages of {design.k} whole documents can have is {reach.low:.3f} on average"


def searched_text(query_text: Mapping[str, int]) -> str:
    """What is searched of topics, and of how many where it differs."""
    return " and ".join(
        f"{name} ({n})" if len(query_text) > 1 else name if name == "keywords" else f"{name}s"
        for name, n in query_text.items()
    )


def _why_not(results: RefineResults) -> str:
    """Why no query was refined, in one line."""
    stops, total = results.stops, sum(results.stops.values())
    reason = max(stops, key=lambda name: stops[name])
    objective = next((row for row in results.of_all() if row.condition == BASELINE and row.measure ==
                      results.design.objective), None)  # fmt: skip
    at = (
        ""
        if objective is None or objective.value is None
        else f" ({objective.measure} {objective.value:.3f})"
    )
    whose = "all" if stops[reason] == total else f"{stops[reason]} of"
    return f"of {whose} {total} original queries{at} {STOPS[reason]}"
