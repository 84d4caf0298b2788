"""What an audit of query refinement found as a table: the original query, the refined one, and its page in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from llmfair.audits.refine.concluding import held_against
from llmfair.audits.refine.contrasts import changes_told
from llmfair.audits.refine.design import FAIR_QR
from llmfair.audits.refine.paper import PRESET, signs_of, signs_text
from llmfair.audits.refine.results import RefineResults
from llmfair.audits.refine.settings import BASELINE
from llmfair.audits.refine.verdict import NOT_ASSESSABLE, refine_verdict
from llmfair.audits.verdict import conclusions_of
from llmfair.metrics.names import parse_measure
from llmfair.report.tables import Table, conditions_table, count, percent, plural

KNOWN, FACTOR = "target known", "target_known"
OF_JUDGEMENTS = (
    ": a target from elsewhere (--target trec2022, or a file), -m fake:name, a model that knows nothing, and "
    "--baseline greedy, no model at all, show what that is worth"
)
SHOWN_LEFT_OUT = 5
STOPS = {
    "attained": "no page could be nearer",
    "no_underrepresented_group": "no group was below its target",
    "unknown_underrepresented": "unknown is furthest below its target, and no query can ask for it",
    "unreadable": "two replies in a row named no keywords",
    "no_keywords": "all keywords stood in the query already",
    "no_result": "the query finds nothing",
    "no_decrease": "a round came no nearer, and was dropped",
    "max_iterations": "all rounds were used",
}
LEFT_OUT = {
    "no_target": "no relevant document whose groups could be aimed at",
    "no_result": "the query finds nothing",
}


def refine_table(results: RefineResults, title: str, called: str) -> Table:
    """One row a method, one column a measure, and whether the method is told the target."""
    table = conditions_table(title, results, called, {}, "topics", "replies")
    factors = results.design.factors or {}
    status = refine_verdict(conclusions_of(results, ())).status
    said = dict.fromkeys(results.design.conditions, "")
    said[FAIR_QR] = table.said[FAIR_QR] if status == NOT_ASSESSABLE else status
    signs = signs_of(results)
    rows = tuple(
        (
            *(
                cell + signs.get((row[0], name.partition(" [")[0]), "")
                for name, cell in zip(table.header[:-1], row[:-1], strict=True)
            ),
            str(factors.get(row[0], {}).get(FACTOR, "")),
            said[row[0]],
        )
        for row in table.rows
    )
    header = (*table.header[:-1], KNOWN, "conclusion")
    strong = frozenset(_best(results, table.header)) if results.design.preset == PRESET else frozenset()
    noted = (*notes(results), *table.notes)
    return replace(table, header=header, rows=rows, said=said, notes=noted, strong=strong)


def _best(results: RefineResults, header: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The cells of the best methods in every measure that has a better direction, as in the paper."""
    values = {(row.measure, row.condition): row.value for row in results.of_all() if not row.group}
    for column, name in enumerate(header):
        measure = name.partition(" [")[0]
        if measure not in results.measures:
            continue
        sign = {"higher": 1, "lower": -1}.get(str(parse_measure(measure).definition.better), 0)
        of = [values.get((measure, condition)) for condition in results.design.conditions]
        known = [value * sign for value in of if value is not None and sign]
        yield from ((row, column) for row, value in enumerate(of) if value is not None and known
                    and value * sign == max(known))  # fmt: skip


def notes(results: RefineResults) -> Iterator[str]:
    """How the loops went, what the page changed, and what has to be known to read that."""
    design, stops = results.design, results.stops
    refined = sum(n for rounds, n in results.iterations.items() if rounds != "0")
    ended = ", ".join(f"{name} {n} ({STOPS[name]})" for name, n in stops.items() if name in STOPS)
    if not refined and stops:
        yield f"nothing was refined: {_why_not(results)}"
    elif stops:
        yield (
            f"{refined} of {count(sum(stops.values()), 'query', 'queries')} {plural(refined, 'was', 'were')} refined, "
            f"in pages of {design.k} of {design.documents:,} documents; loops ended with {ended}"
        )
    if design.query_text:
        yield f"queries are the topics' {searched_text(design.query_text)}"
    yield _told(results) + OF_JUDGEMENTS * (design.target == "empirical")
    for reason, queries in results.left_out.items():
        first = ", ".join(queries[:SHOWN_LEFT_OUT]) + ", …" * (len(queries) > SHOWN_LEFT_OUT)
        yield f"{count(len(queries), 'query', 'queries')} left out, {LEFT_OUT.get(reason, reason)}: {first}"
    yield from filter(None, [signs_text("".join(signs_of(results).values()))])
    counted = results.answers[FAIR_QR]
    classes = ", ".join(f"{name} {n}" for name, n in counted.classes.items() if name != "ok")
    if classes:
        again = f"; {counted.asked_again} asked again" if counted.asked_again else ""
        yield (
            f"{percent(counted.replies - counted.classes.get('ok', 0), counted.replies)} of "
            f"{counted.replies:,} replies are not in the form asked for: {classes}{again}"
        )
    yield from changes_told(results)
    yield from results.remarks or ()
    for measure, reach in results.reach.items():
        if reach.low is not None:
            yield f"the least {measure} that pages of {design.k} whole documents can have is {reach.low:.3f} on average"
    if not design.query_text:
        yield "queries are the topics' titles: none has keywords"


def _told(results: RefineResults) -> str:
    """Which methods know what they are measured against."""
    others = held_against(results.design.conditions)
    known = {name: str((results.design.factors or {}).get(name, {}).get(FACTOR, "no")) for name in others}
    told = ["the loop", *(name for name in others if known[name] == "yes")]
    learnt = [f", {name} those of {known[name]}" for name in others if known[name] not in ("yes", "no")]
    are, their = ("is", "its") if len(told) == 1 else ("are", "their")
    return (
        f"{' and '.join(told)} {are} told the target that {their} figures are measured against{''.join(learnt)}, "
        "which other methods are not"
    )


def searched_text(query_text: Mapping[str, int]) -> str:
    """What is searched of topics, and of how many where it differs."""
    return " and ".join(
        f"{name} ({n})" if len(query_text) > 1 else name if name == "keywords" else f"{name}s"
        for name, n in query_text.items()
    )


def _why_not(results: RefineResults) -> str:
    """Why no query was refined, in one line."""
    stops, total = results.stops, sum(results.stops.values())
    if not results.design.max_iterations:
        return "no round was allowed (--max-iterations 0)"
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
