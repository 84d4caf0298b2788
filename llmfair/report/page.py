"""A report's content before it is a page: what one run found, what stands behind it, how it was asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from llmfair.audits.listwise.furthest import Furthest, furthest_from_parity
from llmfair.audits.listwise.lists import read_lists
from llmfair.audits.listwise.results import ListwiseResults
from llmfair.audits.listwise.table import listwise_table
from llmfair.audits.pairwise.results import PairwiseResults
from llmfair.audits.pairwise.table import pairwise_table
from llmfair.audits.results import ScoreResults, StudyResults, found_of
from llmfair.report.figures import (
    listwise_plots,
    pairwise_plots,
    plain,
    ratio_of,
    score_plots,
    study_plots,
    utility_of,
)
from llmfair.report.method import Method, method_of
from llmfair.report.plots.base import Plot
from llmfair.report.score import lacking, score_table
from llmfair.report.source import missing_of
from llmfair.report.study import study_table
from llmfair.report.tables import Table, capitalised, cell, count
from llmfair.results import Figure, Finding, Reach, Requirement, Results

KINDS = {
    "listwise": "Listwise audit",
    "pairwise": "Pairwise audit",
    "score": "Measured runs",
    "study windows": "Windows study",
    "finetune-lora": "LoRA adapter",
}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """One of the three numbers on top: of what, the figure with its name and interval, one sentence.

    `seen`: the section of the page that shows what the sentence says.
    """

    of: str
    measure: str
    value: str
    interval: str
    sentence: str
    conclusion: str = ""
    seen: str = ""


@dataclass(frozen=True)
class Page:
    """All that a report shows, in its order."""

    kind: str
    title: str
    subtitle: str
    words: Mapping[str, str]
    missing: Sequence[str]
    warnings: Sequence[str]
    verdicts: Sequence[Verdict]
    tables: Sequence[Table]
    plots: Sequence[Plot]
    furthest: Furthest | None
    evidence: Sequence[Mapping[str, Any]]
    method: Method
    rows: Sequence[Row]


def run_page(
    folder: Path, manifest: Mapping[str, Any], document: Mapping[str, Any], exhibits: Mapping[str, Any]
) -> Page:
    """The page of a listwise or pairwise run folder; `exhibits` is what the command found beside the folder."""
    found = found_of(document, folder / "results.json")
    results: Results = found
    listwise = results.task == "listwise"
    table = listwise_table(found) if listwise else pairwise_table(found)
    declared, arms = exhibits["measures"], results.design.arms
    lists = read_lists(folder, arms) if listwise else None
    plots = listwise_plots(found, lists, declared) if listwise else pairwise_plots(found, declared)
    by = ratio_of(results.measures, declared, of_queries=True)
    return Page(
        kind=KINDS[results.task],
        title=f"{results.model} on {results.dataset}, {results.attribute}",
        subtitle=table.title,
        words=asdict(results.words),
        missing=missing_of(str(manifest.get("status")), results),
        warnings=_warnings([results.model], results.requirements, results.doubts),
        verdicts=_verdicts(found, table, declared, bool(exhibits["evidence"])),
        tables=[with_reach(table, results.reach)],
        plots=list(plots),
        furthest=furthest_from_parity(folder, results, exhibits, lists, by) if by else None,
        evidence=exhibits["evidence"],
        method=method_of(document, manifest, exhibits),
        rows=document["rows"],
    )


def score_page(document: Mapping[str, Any], exhibits: Mapping[str, Any]) -> Page:
    """The page of measured runs."""
    results: ScoreResults = found_of(document)
    table = score_table(results)
    datasets, attributes = (
        " and ".join(dict.fromkeys(getattr(run, name) for run in results.runs))
        for name in ("dataset", "attribute")
    )
    exhibits = {**exhibits, "command": results.command}
    return _plain_page(
        document, table, score_plots(results, exhibits["measures"]), exhibits,
        f"{count(len(table.rows), 'ranking')} of {datasets}, {attributes}", asdict(results.runs[0].words),
        lacking(results),
        _warnings([row.model for row in results.rows], results.requirements),
    )  # fmt: skip


def study_page(document: Mapping[str, Any], exhibits: Mapping[str, Any]) -> Page:
    """The page of a windows study."""
    study: StudyResults = found_of(document)
    missing = missing_settings(study)
    if not study.rows:
        nothing = Table("Windows", ("setting",), (), ("no setting has results yet",))
        return _plain_page(document, nothing, (), exhibits, "no results yet", {}, missing)
    return _plain_page(
        document, study_table(study), study_plots(study, exhibits["measures"]), exhibits,
        f"{study.model} on {study.dataset}, {study.attribute}", {} if study.words is None else asdict(study.words),
        missing, _warnings([study.model]),
    )  # fmt: skip


def missing_settings(study: StudyResults) -> list[str]:
    """Settings without results, and why."""
    return [f"{one.setting}: {one.message}" for one in study.failed]


def _plain_page(
    document: Mapping[str, Any],
    table: Table,
    plots: Any,
    exhibits: Mapping[str, Any],
    title: str,
    words: Mapping[str, str],
    missing: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Page:
    """A page of figures alone: no one run folder stands behind it."""
    return Page(
        kind=KINDS[document["task"]], title=title, subtitle=table.title, words=words, missing=missing,
        warnings=warnings, verdicts=(), tables=[table], plots=list(plots), furthest=None,
        evidence=(), method=method_of(document, {}, exhibits), rows=document["rows"],
    )  # fmt: skip


def _warnings(
    models: Iterable[str], requirements: Iterable[Requirement] = (), doubts: Iterable[str] = ()
) -> list[str]:
    """What has to be known before any figure is read: simulated models, doubts, gates that do not hold."""
    said = []
    if any(model.startswith("fake:") for model in models):
        said.append(
            "A simulated model: it answers as planted. Its figures test the instrument, not the world."
        )
    unmet = dict.fromkeys(entry.reason for entry in requirements if not entry.holds)
    told = (f"{capitalised(doubt)}." for doubt in doubts)
    return [*said, *told, *(f"Requirement not met: {reason}" for reason in unmet)]


def _verdicts(
    results: ListwiseResults | PairwiseResults, table: Table, declared: Mapping[str, Any], evidence: bool
) -> list[Verdict]:
    """Three numbers, one sentence each: the ratio that conclusions go by of every prompt or kind, then utility.

    `evidence`: the page shows single answers.
    """
    concluded = table.header[-1].startswith("conclusion")
    cells, sentences = results.by_variant(), {row[0]: row[-1] for row in table.rows if concluded}
    listwise = isinstance(results, ListwiseResults)
    measure = ratio_of(results.shown, declared)
    found = []
    arms = [arm for arm in results.design.arms if arm != "control"]
    for arm in arms[:3]:
        if measure and (row := cells.get((measure, arm))):
            finding: Finding | None = results.findings.get(arm)
            of = f"{arm} prompt" if listwise else f"{arm} pairs"
            label = str(declared[measure]["label"])
            one = _verdict(
                of, label, row, sentences.get(arm, ""), "" if finding is None else str(finding.conclusion)
            )
            if finding is not None and finding.reason == "position_driven":
                seen = "figures" if not listwise else "evidence" if evidence else ""
                one = replace(one, sentence=f"{one.sentence}. {_by_places(results, arm)}", seen=seen)
            found.append(one)
    utility = utility_of(results.shown, declared)
    if len(found) < 3 and utility and (row := cells.get((utility, arms[0]))):
        about = next((note for note in table.notes if note.startswith(f"{utility}: ")), "")
        found.append(_verdict(f"{arms[0]} prompt", utility, row, about.removeprefix(f"{utility}: ")))
    if len(found) < 3 and not listwise:
        row = next(
            (
                row
                for (name, arm), row in cells.items()
                if declared.get(name, {}).get("shows") == "order dependence" and arm == arms[0]
            ),
            None,
        )
        if row is not None and row.value is not None:
            about = next(
                (note for note in table.notes if note.startswith(f"{arms[0]}: ") and "flip" in note), ""
            )
            sentence = about.removeprefix(f"{arms[0]}: ").split(";")[0]
            if sentence:  # else no answer could be read, and none flips
                found.append(
                    Verdict(f"{arms[0]} pairs", "flips", f"{100 * row.value:.0f} %", _n(row), sentence)
                )
    return found


def _by_places(results: ListwiseResults | PairwiseResults, arm: str) -> str:
    """What it is that answers follow the position, counted."""
    if isinstance(results, PairwiseResults):
        shares = results.shares[arm]
        assert shares is not None  # or nothing would follow the position
        return (
            f"{100 * shares.of('FF', 'SS'):.0f} % of pairs have another winner when their items change places, "
            "so odds near 1 are no parity"
        )
    first = results.answers[arm].first_pass
    return (
        f"{first.same:,} of {count(first.windows, 'answer')} of the first pass put the places in the same order, "
        "whatever stood there, so a ratio near 1 is no parity"
    )


def _verdict(of: str, measure: str, row: Figure, sentence: str, conclusion: str = "") -> Verdict:
    value = "–" if row.value is None else f"{row.value:.2f}"
    between = "" if row.low is None or row.high is None else f"[{row.low:.2f}, {row.high:.2f}], "
    return Verdict(of, plain(measure), value, between + _n(row), sentence or cell(row), conclusion)


def _n(row: Figure) -> str:
    return count(row.n, "query", "queries") if row.n is not None else ""


def with_reach(table: Table, reach: Mapping[str, Reach]) -> Table:
    """The table with a last row: what each measure can be in this setting at all."""

    def attainable(heading: str) -> str:
        found = reach.get(heading.split(" [")[0], Reach())
        if found.low is not None and found.high is not None:
            return f"{found.low:.3f} … {found.high:.3f}"
        return "" if found.high is None else f"up to {found.high:.3f}"

    row = tuple(attainable(heading) for heading in table.header[1:-1])
    if not any(row):
        return table
    last = ("attainable", *row, "by rankers that always put one side first, by a perfect one")
    return Table(table.title, table.header, (*table.rows, last), table.notes)
