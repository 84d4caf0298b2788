"""The verdict of an audit of a generator: the fairest setting whose utility is kept, and what fairness costs."""

from __future__ import annotations

from shlex import quote

from llmfair.audits.verdict import ADVICE, ANSWERED, LOOK, UNFINISHED, UNREADABLE, Case, Conclusions
from llmfair.nouns import Conclusion
from llmfair.report.reasons import in_words
from llmfair.report.tables import FEW_QUERIES, count
from llmfair.results import RunVerdict

LOST, NOT_ASSESSABLE, INCONCLUSIVE, KEPT = "lost", "not assessable", "inconclusive", "kept"
STATUSES = (LOST, NOT_ASSESSABLE, INCONCLUSIVE, KEPT)
ADDED = {
    "too_few_queries": "more queries: fewer than 5 with two useful items say nothing",
    "no_useful_items": "a generator that answers better with items than without, or --useful qrels and judgements",
}


def rag_verdict(found: Conclusions) -> RunVerdict:
    """Of the settings whose utility is kept the fairest; where there is none, what stands in the way."""
    cases = [Case(found, name, found.findings[name]) for name in found.conditions if name in found.findings]

    def those(conclusion: Conclusion) -> list[Case]:
        return [case for case in cases if case.finding.conclusion == conclusion]

    if kept := those(Conclusion.WITHIN):
        return _told(
            KEPT, min(kept, key=_disparity), "{} is the fairest setting whose utility is kept", cases
        )
    if open_ := those(Conclusion.INCONCLUSIVE):
        case = max(
            open_, key=lambda one: one.figure.low if one.figure and one.figure.low is not None else -1.0
        )
        return _told(INCONCLUSIVE, case, f"whether {{}} keeps its utility is open, as {_open(case)}", cases)
    if lost := those(Conclusion.OUTSIDE):
        case = max(lost, key=_disparity)
        return _told(
            LOST, case, "{} is the least fair of the settings drawn, and loses utility even so", cases
        )
    if not cases and found.run is None:
        return RunVerdict(
            status=NOT_ASSESSABLE,
            sentence="a log says how unequally items were shown, not what fairer lists would have cost",
            next="llmfair rag asks the generator about fairer lists of the same items",
        )
    if not cases and not found.complete:
        why, advice = "not all questions are answered yet", found.by_way(UNFINISHED, "unfinished")
    else:
        reason = str(cases[0].finding.reason if cases else "no_useful_items")
        why = in_words(reason, "EU-change")
        advice = found.advice(
            ANSWERED if reason in UNREADABLE else ADDED.get(reason, ADVICE.get(reason, LOOK))
        )
    return RunVerdict(
        status=NOT_ASSESSABLE,
        sentence=f"nothing can be said of what fairness costs: {why}",
        next=advice,
    )


def _open(case: Case) -> str:
    """Why it stays open whether utility is kept."""
    reason = case.finding.reason
    return in_words(reason, case.finding.measure) if reason else "the interval crosses the margin"


def _disparity(case: Case) -> float:
    return float(getattr(case.finding, "disparity", None) or 0.0)


def _told(status: str, case: Case, what: str, cases: list[Case]) -> RunVerdict:
    found, figure = case.found, case.figure
    value, low, high = (None, None, None) if figure is None else (figure.value, figure.low, figure.high)
    n = None if figure is None else figure.n
    change = "" if value is None else f"utility changes by {value:+.3f}"
    if low is not None and high is not None and low < high:
        change += (
            f" ({found.level * 100:g} % CI {low:+.3f} to {high:+.3f}, {count(n or 0, 'query', 'queries')})"
        )
    caution = "; few queries, so read the interval with care" if n is not None and n < FEW_QUERIES else ""
    unfinished = "" if found.complete else "; not all questions are answered yet"
    return RunVerdict(
        status=status,
        sentence=f"{what.format(case.condition)}: expected exposure disparity {_disparity(case):.3f}, where the one "
        f"list by score has 1; {change}{caution}{unfinished}",
        next=_next(status, case, cases),
        condition=case.condition,
        measure=case.finding.measure,
        estimate=value,
        low=low,
        high=high,
        n=n,
    )


def _next(status: str, case: Case, cases: list[Case]) -> str:
    found = case.found
    if not found.complete:
        return found.by_way(UNFINISHED, "unfinished")
    if status == KEPT:
        margin = getattr(case.finding, "margin", 0.0)
        gate = quote(f"{case.finding.measure}:{case.condition}>={-margin:g}")
        again = found.ways.get("again", "llmfair rag")
        return f"hold a build to it: {again} --require {gate} --require-interval"
    if status == INCONCLUSIVE:
        return found.by_way("more queries narrow the interval; larger --alpha costs less", "alpha")
    return found.by_way("larger --alpha, which follow the scores more closely, cost less utility", "alpha")
