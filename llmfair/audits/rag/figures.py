"""The figures of audits of generators: disparity by alpha, what fairer lists cost, and where credit goes.

Kim & Diaz, "Towards Fair RAG", ICTIR 2025, Figures 3 to 5: one colour a retriever, or a generator where several are
side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from llmfair.audits.rag.policies import DETERMINISTIC, GOLD
from llmfair.audits.rag.results import Curve, RagResults
from llmfair.audits.rag.tradeoff import OF_SLOTS
from llmfair.io.files import query_figures
from llmfair.metrics.base import plain_name
from llmfair.report.figures import COST, value_of
from llmfair.report.plots.base import Plot
from llmfair.report.plots.curves import Line, curves, scattered
from llmfair.report.plots.looks import palette
from llmfair.report.plots.ratios import Value
from llmfair.stats.tradeoff import ANCHORS

Curves = Mapping[str, Sequence[Curve]]
"""By retriever, or by what else the lines of a figure are."""
TOLD: Mapping[tuple[str, str], tuple[str, str, str]] = {
    ("EE-D", "EU"): (COST, "What fairer lists cost", "Utility of the answers"),
    ("EE-D", "EE-R"): ("useful-shown", "Useful items shown", "Exposure of useful items"),
    ("EE-R", "EU"): ("useful-utility", "What useful items bring", "Utility of the answers"),
    ("EE-D", "EAR"): ("credited-share", "Items that answers rest on", "Share of slots that answers are credited to"),
    ("EE-R", "EAR"): ("useful-credited", "Useful items and credit", "Share of slots that answers are credited to"),
    ("EE-D/k'", "EAE-D"): ("credited-disparity", "Credit beside exposure", "How unequally credit is spread"),
}  # fmt: skip
"""The name, the title and the beginning of the sentence of a figure, by what it shows."""
AVERAGED = "of the observations (a query under an alpha) nearest to 0, 0.2 … 1"
WITH_INTERVALS = "with intervals over queries"


def rag_plots(results: RagResults, folder: Path) -> Iterator[Plot]:
    """Every figure of one run; the cost first."""
    yield from curve_plots(results.tradeoff, WITH_INTERVALS)
    yield from _disparities(results, folder)
    yield from _slots(results)


def curve_plots(found: Curves, says_of_means: str, by: str = "", ending: str = "") -> Iterator[Plot]:
    """A figure for each two measures, a line for each name; `ending` of the figures' names keeps groups apart.

    `by`: what the lines are, where titles have to say so.
    """
    pairs = dict.fromkeys((_name(one.across), _name(one.up)) for of in found.values() for one in of)
    looks = palette([*found])
    for pair in (pair for pair in TOLD if pair in pairs):
        of_pair = {
            name: next((one for one in of if (_name(one.across), _name(one.up)) == pair), None)
            for name, of in found.items()
        }
        lines = [
            Line(name, looks[name], [(p.at, value) for p in one.points if (value := value_of(p.mean))],
                 one.deterministic)
            for name, one in of_pair.items()
            if one is not None and one.points
        ]  # fmt: skip
        if not lines:
            continue
        across, up = next((one.across, one.up) for one in of_pair.values() if one is not None)
        name, title, told = TOLD[pair]
        diagonal = pair[0] == OF_SLOTS
        marks = " Dashed: credit as unequal as exposure." * diagonal + " Hollow: the one list by score."
        sentence = f"{told} ({up}) by {across}: means {AVERAGED}, {says_of_means}.{marks}"
        yield curves(lines, (across, up), title + by, sentence, name + ending, ANCHORS, diagonal)


def _name(measure: str) -> str:
    return measure.partition("(")[0]


def _disparities(results: RagResults, folder: Path) -> Iterator[Plot]:
    """A point a query, as in Figure 3 of the paper."""
    tables = list(results.intervals.values())
    if not tables:
        return
    measure, factors = tables[0].disparity, results.design.factors or {}
    values: dict[str, dict[str, list[float]]] = {}
    for row in query_figures(folder):
        of = factors.get(row.condition)
        if row.measure != measure or of is None or of["alpha"] == DETERMINISTIC or row.condition == GOLD:
            continue
        if row.value is not None and not row.reason:
            by = values.setdefault(of["retriever"], {})
            by.setdefault(f"{of['alpha']:g}", []).append(row.value)
    if values:
        retrievers = [one for one in results.tradeoff if one in values]
        alphas = sorted({alpha for by in values.values() for alpha in by}, key=float)
        ordered = {one: {alpha: values[one].get(alpha, []) for alpha in alphas} for one in retrievers}
        sentence = f"{measure} of every query by alpha: 0 where all its items are shown alike, 1 where always the same."
        names = ("alpha", measure)
        yield scattered(
            ordered, palette([*results.tradeoff]), names, "Disparity by alpha", sentence, "disparity"
        )


def _slots(results: RagResults) -> Iterator[Plot]:
    """Credit by slot under the smallest alpha, where all slots hold much the same items."""
    rows = {
        (row.condition, row.group): row for row in results.of_all() if _name(row.measure) == "AttributionAt"
    }
    looks, lines, alphas = palette([*results.tradeoff]), [], set()
    for retriever in results.tradeoff:
        drawn = {
            of["alpha"]: condition
            for condition, of in (results.design.factors or {}).items()
            if of["retriever"] == retriever and of["alpha"] != DETERMINISTIC
        }
        if not drawn:
            continue
        least = min(drawn)
        found = [(slot, value_of(rows.get((drawn[least], str(slot))))) for slot in _slots_of(results)]
        points: list[tuple[float, Value]] = [(slot, value) for slot, value in found if value is not None]
        if points:
            lines.append(Line(retriever, looks[retriever], points))
            alphas.add(f"{least:g}")
    if lines:
        measure = plain_name(next(row.measure for row in rows.values()))
        sentence = (
            f"Share of answers credited to the item shown in each slot ({measure}), alpha {', '.join(sorted(alphas))}, "
            "with intervals: where lists are nearly random, a line that falls or rises is the generator's attention."
        )
        ticks = _slots_of(results)
        yield curves(lines, ("slot", measure), "Credit by slot", sentence, "credit-by-slot", ticks)


def _slots_of(results: RagResults) -> list[int]:
    return list(range(1, results.design.k + 1))
