"""A report's content before it is a page: what one run found, what stands behind it, how it was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmfair.audits.listwise.furthest import Furthest, furthest_from_parity
from llmfair.audits.listwise.lists import read_lists
from llmfair.audits.listwise.table import listwise_table
from llmfair.audits.pairwise.table import pairwise_table
from llmfair.report.figures import (
    cells_of,
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
    folder: Path, manifest: Mapping[str, Any], results: Mapping[str, Any], exhibits: Mapping[str, Any]
) -> Page:
    """The page of a listwise or pairwise run folder; `exhibits` is what the command found beside the folder."""
    listwise = results["task"] == "listwise"
    table = listwise_table(results) if listwise else pairwise_table(results)
    declared, arms = exhibits["measures"], results["design"]["arms"]
    lists = read_lists(folder, arms) if listwise else None
    plots = listwise_plots(results, lists, declared) if listwise else pairwise_plots(results, declared)
    by = ratio_of(results["measures"], declared, of_queries=True)
    return Page(
        kind=KINDS[results["task"]],
        title=f"{results['model']} on {results['dataset']}, {results['attribute']}",
        subtitle=table.title,
        words=results["words"],
        missing=missing_of(manifest, results),
        warnings=_warnings(results),
        verdicts=_verdicts(results, table, declared, bool(exhibits["evidence"])),
        tables=[with_reach(table, results)],
        plots=list(plots),
        furthest=furthest_from_parity(folder, results, exhibits, lists, by) if by else None,
        evidence=exhibits["evidence"],
        method=method_of(results, manifest, exhibits),
        rows=results["rows"],
    )


def score_page(results: Mapping[str, Any], exhibits: Mapping[str, Any]) -> Page:
    """The page of measured runs."""
    table = score_table(results)
    datasets, attributes = (
        " and ".join(dict.fromkeys(run[name] for run in results["runs"])) for name in ("dataset", "attribute")
    )
    exhibits = {**exhibits, "command": results.get("command")}
    return _plain_page(
        results, table, score_plots(results, exhibits["measures"]), exhibits,
        f"{count(len(table.rows), 'ranking')} of {datasets}, {attributes}", results["runs"][0]["words"],
        lacking(results),
    )  # fmt: skip


def study_page(study: Mapping[str, Any], exhibits: Mapping[str, Any]) -> Page:
    """The page of a windows study."""
    missing = missing_settings(study)
    if not study["rows"]:
        nothing = Table("Windows", ("setting",), (), ("no setting has results yet",))
        return _plain_page({**study, "rows": []}, nothing, (), exhibits, "no results yet", {}, missing)
    return _plain_page(
        study, study_table(study), study_plots(study, exhibits["measures"]), exhibits,
        f"{study['model']} on {study['dataset']}, {study['attribute']}", study["words"], missing,
    )  # fmt: skip


def missing_settings(study: Mapping[str, Any]) -> list[str]:
    """Settings without results, and why."""
    return [f"{one['setting']}: {one['message']}" for one in study["failed"]]


def _plain_page(
    results: Mapping[str, Any],
    table: Table,
    plots: Any,
    exhibits: Mapping[str, Any],
    title: str,
    words: Mapping[str, str],
    missing: Sequence[str] = (),
) -> Page:
    """A page of figures alone: no one run folder stands behind it."""
    return Page(
        kind=KINDS[results["task"]], title=title, subtitle=table.title, words=words, missing=missing,
        warnings=_warnings(results), verdicts=(), tables=[table], plots=list(plots), furthest=None,
        evidence=(), method=method_of(results, {}, exhibits), rows=results["rows"],
    )  # fmt: skip


def _warnings(results: Mapping[str, Any]) -> list[str]:
    """What has to be known before any figure is read: simulated models, doubts, gates that do not hold."""
    models = {str(row["model"]) for row in results["rows"] if "model" in row} | {
        str(results.get("model", ""))
    }
    said = []
    if any(model.startswith("fake:") for model in models):
        said.append(
            "A simulated model: it answers as planted. Its figures test the instrument, not the world."
        )
    unmet = dict.fromkeys(entry["reason"] for entry in results.get("requirements", ()) if not entry["holds"])
    doubts = (f"{capitalised(doubt)}." for doubt in results.get("doubts", ()))
    return [*said, *doubts, *(f"Requirement not met: {reason}" for reason in unmet)]


def _verdicts(
    results: Mapping[str, Any], table: Table, declared: Mapping[str, Any], evidence: bool
) -> list[Verdict]:
    """Three numbers, one sentence each: the ratio that conclusions go by of every prompt or kind, then utility.

    `evidence`: the page shows single answers.
    """
    concluded = table.header[-1].startswith("conclusion")
    cells, sentences = cells_of(results), {row[0]: row[-1] for row in table.rows if concluded}
    listwise = results["task"] == "listwise"
    measure = ratio_of(results["shown"], declared)
    found = []
    arms = [arm for arm in results["design"]["arms"] if arm != "control"]
    for arm in arms[:3]:
        if measure and (row := cells.get((measure, arm))):
            finding = results["findings"].get(arm) or {}
            of = f"{arm} prompt" if listwise else f"{arm} pairs"
            label = str(declared[measure]["label"])
            one = _verdict(of, label, row, sentences.get(arm, ""), str(finding.get("conclusion", "")))
            if finding.get("reason") == "position_driven":
                seen = "figures" if not listwise else "evidence" if evidence else ""
                one = replace(one, sentence=f"{one.sentence}. {_by_places(results, arm)}", seen=seen)
            found.append(one)
    utility = utility_of(results["shown"], declared)
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
        if row is not None and row["value"] is not None:
            about = next(
                (note for note in table.notes if note.startswith(f"{arms[0]}: ") and "flip" in note), ""
            )
            sentence = about.removeprefix(f"{arms[0]}: ").split(";")[0]
            if sentence:  # else no answer could be read, and none flips
                found.append(
                    Verdict(f"{arms[0]} pairs", "flips", f"{100 * row['value']:.0f} %", _n(row), sentence)
                )
    return found


def _by_places(results: Mapping[str, Any], arm: str) -> str:
    """What it is that answers follow the position, counted."""
    if results["task"] == "pairwise":
        shares = results["shares"][arm]
        return (
            f"{100 * (shares['FF'] + shares['SS']):.0f} % of pairs have another winner when their items change places, "
            "so odds near 1 are no parity"
        )
    first = results["answers"][arm]["first_pass"]
    return (
        f"{first['same']:,} of {count(first['windows'], 'answer')} of the first pass put the places in the same order, "
        "whatever stood there, so a ratio near 1 is no parity"
    )


def _verdict(of: str, measure: str, row: Row, sentence: str, conclusion: str = "") -> Verdict:
    value = "–" if row["value"] is None else f"{row['value']:.2f}"
    between = "" if row["low"] is None or row["high"] is None else f"[{row['low']:.2f}, {row['high']:.2f}], "
    return Verdict(of, plain(measure), value, between + _n(row), sentence or cell(row), conclusion)


def _n(row: Row) -> str:
    return count(row["n"], "query", "queries") if row["n"] is not None else ""


def with_reach(table: Table, results: Mapping[str, Any]) -> Table:
    """The table with a last row: what each measure can be in this setting at all."""
    reach = results.get("reach", {})

    def attainable(heading: str) -> str:
        found = reach.get(heading.split(" [")[0], {})
        if "low" in found and "high" in found:
            return f"{found['low']:.3f} … {found['high']:.3f}"
        return f"up to {found['high']:.3f}" if "high" in found else ""

    row = tuple(attainable(heading) for heading in table.header[1:-1])
    if not any(row):
        return table
    last = ("attainable", *row, "by rankers that always put one side first, by a perfect one")
    return Table(table.title, table.header, (*table.rows, last), table.notes)
