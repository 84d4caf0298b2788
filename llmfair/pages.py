"""Which page a report is: of one run, of several, of a study, of measured runs, of an adapter; and its files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmfair.errors import UsageError

if TYPE_CHECKING:
    from llmfair.report.page import General, Page, Source


def page_of(sources: Sequence[Source], evidence: int) -> Page:
    """One run's page, or one of several. Raises UsageError for a single run without results."""
    from llmfair.audits.runs.exhibits import declared, exhibits_of
    from llmfair.report.matrix import many_page
    from llmfair.report.page import unfinished
    from llmfair.results import Exhibits

    names: dict[str, None] = {}
    for source in sources:
        if (results := source.results) is None:
            continue
        if results.task in ("finetune-lora", "mitigate"):
            names |= dict.fromkeys(row.measure for row in results.rows)
        else:
            names |= dict.fromkeys(results.shown if source.study else results.measures)
    measures = declared(list(names))
    if len(sources) > 1:
        return many_page(sources, measures, _general)
    (source,) = sources
    if source.results is None:
        raise UsageError(f"{unfinished(source)}.", "the command that began the run completes it")
    exhibits = exhibits_of(source.run, evidence) if source.manifest else Exhibits(measures=measures)
    return _general(source).page(source, exhibits)


def _general(source: Source) -> General:
    """What is told of results: of an audit, a study or another command."""
    from llmfair.mitigation.words import MITIGATION_PAGE
    from llmfair.report.compare import SCORE
    from llmfair.report.page import audit_general, study_general
    from llmfair.report.words import wording
    from llmfair.tuning.words import ADAPTER_PAGE

    if source.study is not None:
        return study_general(source.study)
    if source.is_audit:
        return audit_general(wording(source.results.task))
    return {"score": SCORE, "finetune-lora": ADAPTER_PAGE, "mitigate": MITIGATION_PAGE}[source.results.task]


def formats_of(figures: str | Iterable[str], flag: str = "") -> list[str]:
    """The formats in which figures are wanted as files, too. Raises UsageError."""
    from llmfair.report.plots.base import FORMATS

    parts = figures.split(",") if isinstance(figures, str) else figures
    formats = [name for part in parts if (name := part.strip())]
    if unknown := next((name for name in formats if name not in FORMATS), None):
        named = f"{flag}{unknown} is no format." if flag else f"'{unknown}' is no format of figures."
        raise UsageError(named, f"known: {', '.join(FORMATS)}")
    return formats


def write_page(path: Path, page: Page, formats: Sequence[str] = ()) -> None:
    """The page, and its figures as files in plots/ beside it. Raises OSError."""
    from llmfair.io.files import write_whole
    from llmfair.report.html import page_html
    from llmfair.report.plots.base import write_plots

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [page_html(page)])
    if formats:
        write_plots(page.plots, path.parent / "plots", formats)
