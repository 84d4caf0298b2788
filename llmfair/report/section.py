"""What the page of a run has of its kind's own, and how any kind's verdicts are made."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from llmfair.io.text import count
from llmfair.metrics.base import plain_name
from llmfair.nouns import Conclusion
from llmfair.report.groups import Furthest
from llmfair.report.phrases import bound_text, cell
from llmfair.report.plots.base import Plot
from llmfair.report.table import Table
from llmfair.results import Declared, Figure, Results

SHOWN_VERDICTS = 3


@dataclass(frozen=True)
class VerdictCard:
    """One of the three numbers on top: of what, the figure with its name and interval, one sentence."""

    of: str
    measure: str
    value: str
    interval: str
    sentence: str
    conclusion: str = ""


@dataclass(frozen=True)
class Section:
    """What a kind tells of a run.

    `more`: tables below its own; `words` are paragraphs of the method, `facts` rows of its settings.
    """

    table: Table
    plots: Sequence[Plot] = ()
    verdicts: Sequence[VerdictCard] = ()
    furthest: Furthest | None = None
    words: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    more: Sequence[Table] = ()


def condition_verdicts(
    results: Results,
    table: Table,
    declared: Declared,
    measure: str | None,
    conditions: Sequence[str],
    of: str,
    by_places: Mapping[str, str] | None = None,
) -> Iterator[VerdictCard]:
    """What is concluded under each of the first conditions, beside the figure that it is concluded of.

    `measure` where nothing is concluded. `of` names a condition, as "{} prompt"; `by_places` says of those whose
    answers follow the position how they do.
    """
    cells = results.by_key()
    for condition in conditions[:SHOWN_VERDICTS]:
        finding = results.findings.get(condition)
        named, spoken_of = (measure, measure) if finding is None else (finding.measure, finding.spoken_of)
        if named is None or (row := cells.get((str(spoken_of), condition))) is None:
            continue
        sentence = table.said.get(condition) or cell(row, results.band)
        decided = finding is None or finding.conclusion in (Conclusion.WITHIN, Conclusion.OUTSIDE)
        if not decided and by_places and condition in by_places:
            sentence = f"{sentence}. {by_places[condition]}"
        label = declared[named].label if named in declared else named
        if finding is not None and finding.decisive != "all":
            label += f" of {finding.decisive} items"
        conclusion = "" if finding is None else str(finding.conclusion)
        yield verdict(of.format(condition), label, row, sentence, conclusion, results.band)


def verdict(
    of: str,
    measure: str,
    row: Figure,
    sentence: str,
    conclusion: str = "",
    band: Collection[float] = (),
) -> VerdictCard:
    """A figure as a verdict, a bound on its side of the band; without a sentence the figure speaks for itself."""
    value = bound_text(row.low, row.high, band) or ("–" if row.value is None else f"{row.value:.2f}")
    between = "" if row.low is None or row.high is None else f"[{row.low:.2f}, {row.high:.2f}], "
    return VerdictCard(
        of, plain_name(measure), value, between + queries_of(row), sentence or cell(row), conclusion
    )


def queries_of(row: Figure) -> str:
    """How many queries a figure speaks of."""
    return count(row.n, "query", "queries") if row.n is not None else ""
