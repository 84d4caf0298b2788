"""The verdict of an audit of query refinement: is the page nearer its target, and what does that cost?"""

from __future__ import annotations

from llmfair.audits.readable import UNPARSEABLE
from llmfair.audits.refine.concluding import compared
from llmfair.audits.refine.design import FAIR_QR
from llmfair.audits.refine.results import RefineFinding
from llmfair.audits.refine.settings import BASELINE
from llmfair.audits.verdict import ADVICE, Conclusions
from llmfair.nouns import Conclusion
from llmfair.report.reasons import in_words
from llmfair.report.tables import FEW_QUERIES, count
from llmfair.results import Figure, RunVerdict

NO_NEARER, NOT_ASSESSABLE, INCONCLUSIVE = "no nearer", "not assessable", "inconclusive"
AT_A_LOSS, NEARER = "nearer at a loss", "nearer"
STATUSES = (NO_NEARER, NOT_ASSESSABLE, INCONCLUSIVE, AT_A_LOSS, NEARER)


def refine_verdict(found: Conclusions) -> RunVerdict:
    """What becomes of the objective, of AWRF and of nDCG, paired by topic."""
    finding = found.findings.get(FAIR_QR)
    if finding is None or finding.conclusion == Conclusion.NOT_ASSESSABLE:
        reason, measure = (None, "") if finding is None else (finding.reason, finding.measure)
        why = "nothing was measured" if reason is None else in_words(reason, measure)
        return RunVerdict(
            status=NOT_ASSESSABLE,
            sentence=f"nothing can be said of refinement: {why}",
            next=_advice(str(reason), found),
        )
    assert isinstance(finding, RefineFinding)
    nearer, loss = finding.nearer, finding.loss
    goals = (finding.measure, finding.aimed, finding.utility)
    status = {True: AT_A_LOSS if loss else NEARER, False: NO_NEARER, None: INCONCLUSIVE}[nearer]
    changes = {
        measure: figure
        for (measure, condition), figure in found.figures.items()
        if condition == compared(BASELINE) and figure.value is not None
    }
    figure = changes.get(finding.measure)
    told = [_change(measure, changes[measure]) for measure in dict.fromkeys(goals) if measure in changes]
    said = {
        NEARER: "refined queries bring the page nearer its target",
        AT_A_LOSS: "refined queries bring the page nearer its target, but lose relevance",
        NO_NEARER: "refined queries bring the page no nearer its target",
        INCONCLUSIVE: "it stays open whether refined queries bring the page nearer its target",
    }[status]
    n = None if figure is None else figure.n
    queries = f" ({found.level * 100:g} % CI, {count(n or 0, 'query', 'queries')})" if told else ""
    few = "; few queries, so read the intervals with care" if n is not None and n < FEW_QUERIES else ""
    unfinished = "" if found.complete else "; not all questions are answered yet"
    return RunVerdict(
        status=status,
        sentence=f"{said}: {', '.join(told)}{queries}{few}{unfinished}",
        next=_next(status, found),
        condition=FAIR_QR,
        measure=finding.measure,
        estimate=None if figure is None else figure.value,
        low=None if figure is None else figure.low,
        high=None if figure is None else figure.high,
        n=n,
    )


def _advice(reason: str, found: Conclusions) -> str:
    """What to change where nothing can be said."""
    if not found.complete:
        return _next(NOT_ASSESSABLE, found)
    if reason == UNPARSEABLE:
        return f"another model, or --form json; what was said: llmfair runs show {_run(found)} --invalid"
    if reason == "no_query_measured":
        return f"queries that share words with documents; which found none: llmfair runs show {_run(found)} --trail"
    return found.advice(ADVICE.get(reason, "ask about at least 5 topics with judgements"))


def _change(measure: str, figure: Figure) -> str:
    value = figure.value or 0.0
    between = "" if figure.low is None or figure.high is None else f" [{figure.low:+.3f}, {figure.high:+.3f}]"
    if value == figure.low == figure.high == 0:
        return f"{measure} stays"
    how = "stays" if value == 0 else f"{'rises' if value > 0 else 'falls'} by {abs(value):.3f}"
    return f"{measure} {how}{between}"


def _run(found: Conclusions) -> str:
    return "RUN" if found.run is None else found.run


def _next(status: str, found: Conclusions) -> str:
    if not found.complete:
        return "the command that began the run asks what is missing, and then says more"
    trail = f"the words of every round: llmfair runs show {_run(found)} --trail"
    if status in (NEARER, AT_A_LOSS) and not found.model.startswith("fake:name"):
        return f"{trail} · beside a model that knows nothing: llmfair refine -m fake:name"
    if status == INCONCLUSIVE:
        return f"more topics narrow the intervals · {trail}"
    return trail
