"""The verdict over remedies: whether one brings the rankings nearer to parity, and at what loss of relevance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote

from llmfair.audits.comparing.changes import ChangeRow
from llmfair.audits.comparing.compare_verdict import CLOSER, way_of
from llmfair.audits.verdict import listed
from llmfair.mitigation.results import ODDS, UTILITY, MitigationResults, RemedyRow
from llmfair.nouns import Conclusion
from llmfair.report.reasons import in_words
from llmfair.report.tables import FEW_QUERIES, count, p_text
from llmfair.results import RunVerdict
from llmfair.stats.tradeoff import keeping

NO_LOSS, LOSS, PARTLY = "mitigated at no loss", "mitigated at a loss", "partly mitigated"
NOT_MITIGATED, INCONCLUSIVE, NOT_ASSESSABLE, PARITY = (
    "not mitigated",
    "inconclusive",
    "not assessable",
    "parity",
)
STATUSES = (NOT_MITIGATED, NOT_ASSESSABLE, INCONCLUSIVE, PARTLY, LOSS, NO_LOSS, PARITY)
"""The gravest first."""
LOSSES = {
    NO_LOSS: "at no loss of relevance",
    LOSS: "at a loss of relevance",
    PARTLY: "and not into the parity band",
    INCONCLUSIVE: "and whether relevance is lost is open",
}


def closer(one: RemedyRow, found: MitigationResults) -> bool:
    """Whether a remedy's rankings are nearer to parity beyond chance, as adjusted over the remedies."""
    change = one.changes.get(ODDS)
    if change is None or change.change is None or change.p_adjusted is None:
        return False
    beyond_chance = change.p_adjusted < 1 - found.level
    return beyond_chance and way_of(asdict(change), found.band) == CLOSER


def kept(one: RemedyRow, found: MitigationResults) -> str | None:
    """Whether its nDCG is kept, lost, or neither is shown."""
    change = one.changes[UTILITY]
    return keeping(change.low, change.high, found.margin)


def verdict_of(found: MitigationResults, folder: Path) -> RunVerdict:
    """What the best remedy buys and costs; where there is none, what stands in the way."""
    report = f"all side by side: llmfair report {quote(str(folder))}"
    base = found.base.figures[ODDS]
    if base.value is None:
        why = in_words(base.reason, ODDS)
        return RunVerdict(
            status=NOT_ASSESSABLE, sentence=f"nothing can be said of the run's rankings: {why}", next=report
        )
    low, high = found.band
    if base.low is not None and base.high is not None and low <= base.low and base.high <= high:
        return _within(found, report)
    better = [one for one in found.tried if closer(one, found)]
    inside = [one for one in better if low <= (one.figures[ODDS].value or 0) <= high]
    useful = [one for one in inside if kept(one, found) == "kept"]
    if useful:
        return _told(NO_LOSS, useful, better, found, folder)
    if inside:
        lost = all(kept(one, found) == "lost" for one in inside)
        return _told(LOSS if lost else INCONCLUSIVE, inside, better, found, folder)
    if better:
        return _told(PARTLY, better, better, found, folder)
    tested = [one for one in found.tried if one.changes[ODDS].p is not None]
    if not tested:
        return _verdict(
            NOT_ASSESSABLE, found.base, found, "no remedy has preference odds that could be paired with the "
            f"unmitigated {_odds(found.base)} ({count(found.queries, 'query', 'queries')})", report,
        )  # fmt: skip
    nearest = min(tested, key=lambda one: one.distance if one.distance is not None else 1e9)
    least = len(tested) * 2.0 ** (1 - found.queries)
    if least >= 1 - found.level:
        return _verdict(
            INCONCLUSIVE, nearest, found,
            f"{count(found.queries, 'query', 'queries')} are too few to tell {len(tested)} remedies from chance; "
            f"nearest to parity is {nearest.title}, {_change(nearest)}",
            f"more queries, or fewer remedies at once: --remedy {nearest.remedy}; {report}",
        )  # fmt: skip
    if base.low is not None and base.high is not None and base.low <= 1 <= base.high:
        return _verdict(
            INCONCLUSIVE, found.base, found,
            f"the unmitigated rankings have preference odds of {_odds(found.base)}, which include 1: no preference is "
            f"shown that a remedy could lessen; nearest to parity is {nearest.title}, {_change(nearest)}",
            f"more queries; {report}",
        )  # fmt: skip
    return _verdict(
        NOT_MITIGATED, nearest, found,
        f"no remedy is shown to bring the rankings nearer to parity; nearest is {nearest.title}, {_change(nearest)}",
        f"{'more queries' if any(map(_moves, tested)) else 'another remedy: none of these moves any odds'}; {report}",
    )  # fmt: skip


def _within(found: MitigationResults, report: str) -> RunVerdict:
    """Rankings within the band: parity, where the audit found as much; else too little of its answers is in them."""
    low, high = found.band
    odds = _odds(found.base)
    said = f"the unmitigated rankings have preference odds of {odds}, within the parity band {low:g}–{high:g}"
    if found.conclusion == Conclusion.WITHIN:
        return _verdict(
            PARITY, found.base, found, f"{said}, as have the answers: nothing is to be mitigated", report
        )
    return _verdict(
        INCONCLUSIVE, found.base, found,
        f"{said}, though the audit finds no parity in the answers: too little of them is in the rankings for a remedy "
        "to show what it does",
        f"rankings that follow the answers: {'more --passes, or a larger --window; ' * found.prompted}{report}",
    )  # fmt: skip


def _told(
    status: str,
    best: Sequence[RemedyRow],
    better: Sequence[RemedyRow],
    found: MitigationResults,
    folder: Path,
) -> RunVerdict:
    """The nearest of the best, what it buys and costs, and the others that bring rankings nearer, too."""
    one = min(best, key=lambda row: row.distance if row.distance is not None else 1e9)
    words = found.words
    less = words.protected if (found.base.figures[ODDS].value or 1) < 1 else words.unprotected
    more = words.unprotected if less == words.protected else words.protected
    others = [row.title for row in better if row is not one]
    also = f"; nearer to parity, too: {listed(others)}" if others else ""
    caution = "; few queries, so read the intervals with care" if found.queries < FEW_QUERIES else ""
    calls = "no further call" if not one.calls else count(one.calls, "further call")
    sentence = (
        f"the rankings put {less} items behind {more} ones of the same relevance; {one.title} brings them nearer to "
        f"parity {LOSSES[status]}: {_change(one)}, nDCG@20 {_utility(one)}, {calls}{also}{caution}"
    )
    first = f"its rankings: {folder / one.rankings[0]}" if one.rankings else "its rankings are in its run"
    return _verdict(status, one, found, sentence, f"{first} · llmfair report {quote(str(folder))}")


def _verdict(
    status: str, one: RemedyRow, found: MitigationResults, sentence: str, following: str
) -> RunVerdict:
    figure = one.figures.get(ODDS)
    below = (found.base.figures[ODDS].value or 1) < 1
    return RunVerdict(
        status=status,
        sentence=sentence,
        next=following,
        condition=one.remedy,
        measure=ODDS,
        group=found.words.protected if below else found.words.unprotected,
        estimate=None if figure is None else figure.value,
        low=None if figure is None else figure.low,
        high=None if figure is None else figure.high,
        n=None if figure is None else figure.n,
    )


def _moves(one: RemedyRow) -> bool:
    """Whether it changes the odds of any query: where it does not, no more queries would show that it does."""
    change = one.changes[ODDS]
    return not change.change == change.low == change.high == 1


def _odds(one: RemedyRow) -> str:
    figure = one.figures[ODDS]
    interval = "" if figure.low is None or figure.high is None else f" [{figure.low:.2f}, {figure.high:.2f}]"
    return f"{figure.value:.2f}{interval}"


def _change(one: RemedyRow) -> str:
    change = one.changes[ODDS]
    return f"preference odds {change.base:.2f} → {change.other:.2f} ({change_text(change)})"


def _utility(one: RemedyRow) -> str:
    change = one.changes[UTILITY]
    if change.base is None or change.other is None:
        return "undefined"
    return f"{change.base:.3f} → {change.other:.3f} ({change_text(change)})"


def change_text(change: ChangeRow) -> str:
    """A paired change with its interval and p; why there is none."""
    if change.change is None:
        return in_words(change.reason, change.measure)
    sign = "× {:.2f}" if change.scale == "log" else "{:+.3f}"
    text = sign.format(change.change)
    if change.low is not None and change.high is not None:
        low, high = (sign.removeprefix("× ").format(end) for end in (change.low, change.high))
        text += f" [{low}, {high}]"
    return text if change.p_adjusted is None else f"{text}, p {p_text(change.p_adjusted)}"
