"""Phrases that all kinds share: numbers, intervals, reasons, counts and sentences about queries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from llmfair.io.text import count
from llmfair.metrics.names import in_words
from llmfair.results import AnswerCounts, Figure, HowDrawn, Results

# Figures with as many decimals as the words beside them need.


MOST_DECIMALS = 6
"""What differs by less is told as the same."""


def interval_text(figure: Figure | None, edges: Collection[float] = ()) -> str:
    """A figure with its interval, as far as it has them, on the right side of the edges: `0.17 [0.10, 0.21]`."""
    if figure is None:
        return "undefined"
    if (bound := bound_text(figure.low, figure.high, edges)) is not None:
        return bound
    ends = [end for end in (figure.value, figure.low, figure.high) if end is not None]
    value, *interval = numbers(ends, edges) or ["undefined"]
    return f"{value} [{', '.join(interval)}]" if interval else value


def bound_text(low: float | None, high: float | None, edges: Collection[float] = ()) -> str | None:
    """What has one limit alone, as that: `at most 0.16`; None of what has both, or neither."""
    if low is None and high is not None:
        return f"at most {outward(high, True, edges)}"
    if high is None and low is not None:
        return f"at least {outward(low, False, edges)}"
    return None


def outward(value: float, up: bool, edges: Collection[float]) -> str:
    """A limit with two digits, or as many more as keep it on its side of the edges, rounded to where it still holds."""
    exact = Decimal(repr(value))
    rounded = exact
    for digits in range(2, MOST_DECIMALS + 1) if value else ():
        last = Decimal(1).scaleb(exact.adjusted() - digits + 1)
        rounded = exact.quantize(last, ROUND_CEILING if up else ROUND_FLOOR)
        if _on_their_side([value], [float(rounded)], edges):
            break
    return f"{rounded.normalize():f}"


def numbers(values: Sequence[float], edges: Collection[float] = (), decimals: int = 2) -> list[str]:
    """Numbers with so many decimals: one more where that tells them apart, as many as keep them on their side of edges.

    What would be nothing by them has two digits.
    """
    texts = list[str]()
    for places in range(decimals, MOST_DECIMALS + 1):
        small = 0.1 if places else 1.0
        texts = [
            f"{value:.{places}f}" if abs(value) >= small else f"{value:.{max(places, 2)}g}"
            for value in values
        ]
        rounded = [float(text) for text in texts]
        apart = len({*rounded}) == len({*values}) or places > decimals
        if apart and _on_their_side(values, rounded, edges):
            break
    return texts


def _on_their_side(values: Sequence[float], rounded: Sequence[float], edges: Collection[float]) -> bool:
    """Whether rounding moved no value to or over an edge."""
    pairs = [*zip(values, rounded, strict=True)]
    return all((value > edge) == (near > edge) and (value < edge) == (near < edge)
               for value, near in pairs for edge in edges)  # fmt: skip


def conclusion_text(finding: Any) -> str:
    """What is concluded, and the reason where there is one, in words; nothing of no finding."""
    if finding is None:
        return ""
    concluded = str(finding.conclusion).replace("_", " ")
    return f"{concluded}: {in_words(finding.reason, finding.measure)}" if finding.reason else concluded


FEW_QUERIES = 15
FEWEST_QUERIES = 5
POWER = 0.8
"""A design with this power to find the nearer edge of the band needs no advice."""


def unparseable_text(condition: str, results: Results) -> str:
    """That too many answers of a condition cannot be read for any conclusion; "" where they can."""
    if not results.unparseable(condition):
        return ""
    counted, limit = results.answers[condition], 100 * (results.max_invalid or 0)
    share = percent(counted.unparseable, counted.asked)
    return f"not assessable: {share} of the answers are unparseable, more than {limit:g} % (--max-invalid)"


def about(attribute: str, protected: str) -> str:
    """What an audit was about, with the protected side where there are sides."""
    return f"{attribute} (protected: {protected})" if protected else attribute


def audited_note(results: Results) -> list[str]:
    """On which data, about whom, and which model: what follows the name of an audit in its title."""
    simulated = ", a simulated model" * results.model.startswith("fake:")
    of_groups = [about(results.attribute, results.words.protected)] * results.compares_groups
    return [results.dataset, *of_groups, f"{results.named_model}{simulated}"]


SAID_BY_THE_CONCLUSION = ("order_not_random", "no_common_grade", "no_encounter", "tied", "no_baseline")


def cell(row: Figure | None, band: Collection[float] = ()) -> str:
    """A figure with its interval, or its bound, on its side of the band; or why it has neither."""
    if row is None:
        return ""
    if (bound := bound_text(row.low, row.high, band)) is not None:
        return bound
    if row.value is None:
        if row.reason in SAID_BY_THE_CONCLUSION:
            return ""
        return f"undefined ({in_words(row.reason, getattr(row, 'measure', ''))})"
    text = f"{row.value:.3f}"
    return text if row.low is None else f"{text} [{row.low:.3f}, {row.high:.3f}]"


def few_queries(queries: int) -> list[str]:
    """A warning where intervals are refused, or known to fail skewed effects."""
    if queries >= FEW_QUERIES:
        return []
    few = f"only {count(queries, 'query', 'queries')}"
    if queries < FEWEST_QUERIES:
        return [f"{few}: no intervals, which need {FEWEST_QUERIES}"]
    return [f"{few}: read the intervals with care"]


def calls_of(results: Results) -> str:
    """The calls behind a run's figures; of one that is not through, or stopped early, with those planned."""
    planned, made = results.design.calls, results.calls
    # answers of lists that are not through are on disk, too
    behind = "figures from " * (results.status == "incomplete")
    most = "at most " * bool(getattr(results.design, "at_most", None))
    return f"{planned:,}" if made == planned else f"{behind}{made:,} of {most}{planned:,}"


def passed_over(form: str, answers: Collection[AnswerCounts]) -> list[str]:
    """That a server passed over --constrain, which asks for answers of this form alone; nothing where it did not."""
    unformed, asked = (
        sum(counts) for counts in ((of.unformed or 0 for of in answers), (of.asked for of in answers))
    )
    told = f"the server passed over --constrain: {unformed:,} of {count(asked, 'answer')} are not {form}"
    return [told] * bool(unformed)


def drawn_note(drawn: HowDrawn | None) -> list[str]:
    """From what the lists were drawn, and how anybody draws the same ones."""
    if drawn is None:
        return []
    rules = {"equal": "as many of either group", "natural": "whatever their group"}
    rule = rules.get(drawn.buckets, f"--buckets {drawn.buckets}")
    return [
        f"lists drawn with seed {drawn.seed} from documents relevant to the query and, beside them, documents "
        f"relevant to other queries only, {rule}"
    ]


def on_disk(planned: Mapping[str, Any]) -> str:
    """How much of a run that goes on is answered already."""
    answers = planned["on_disk"]
    return f"; {count(answers, 'answer is', 'answers are')} on disk already" if answers else ""


def reasons(reasons: Mapping[str, int], measure: str) -> str:
    """Why so many queries have no value of a measure, in its words."""
    return "; ".join(
        f"{in_words(reason, measure)} ({count(n, 'query', 'queries')})" for reason, n in reasons.items()
    )


def percent(part: float, whole: float = 1) -> str:
    return f"{100 * part / whole:.1f} %"


def span(low: int, high: int) -> str:
    """From the least to the most, or the one number that both are."""
    return f"{low}" if low == high else f"{low}–{high}"


def capitalised(text: str) -> str:
    """A sentence's beginning, of words that stand elsewhere in the middle of one."""
    return text[:1].upper() + text[1:]


def found_with(findings: Iterable[Any], queries: str, kind: str) -> list[str]:
    """The power of an inconclusive design, and the queries that it takes."""
    inconclusive = [finding.power for finding in findings if finding.conclusion == "inconclusive"]
    weak = [power for power in inconclusive if power and power.power < POWER]
    if not weak:
        return []
    worst = min(weak, key=lambda power: power.power)
    needed = worst.queries_needed
    more = f"80 % takes about {needed:,} {queries}" if needed else "no number of queries gives 80 %"
    power = f"power to detect odds of {worst.odds:g} as other than 1: {worst.power * 100:.0f} %"
    return [f"{power}; {more} (llmfair plan {kind})"]
