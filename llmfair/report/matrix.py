"""Many runs on one page: models down, attributes and prompts (or kinds of pairs) across, as in the papers' tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmfair.report.figures import (
    NAMES,
    cells_of,
    on_log,
    plain,
    ratio_of,
    utility_of,
    value_of,
)
from llmfair.report.finetune import finetune_table
from llmfair.report.lists import read_lists
from llmfair.report.listwise import listwise_table
from llmfair.report.method import LIMITS, SIMULATED, WORDS, Method, formulas_of
from llmfair.report.page import Page, missing_of
from llmfair.report.pairwise import pairwise_table
from llmfair.report.plots.base import MARKS, Plot
from llmfair.report.plots.looks import Look, palette
from llmfair.report.plots.pairs import stacked_answers
from llmfair.report.plots.ranks import rank_boxes
from llmfair.report.plots.ratios import Point, ratios, utility_and_ratio
from llmfair.report.score import score_table
from llmfair.report.source import Source, unfinished
from llmfair.report.study import study_table
from llmfair.report.tables import Table, cell, count, headings

Row = Mapping[str, Any]
DRAWN = 8
"""Models that a figure shows; a ninth could not be told apart."""
OF_THE_LISTS = {
    "task", "identity", "attribute", "lists_sha256", "queries", "arms", "kinds", "prompt_sha256", "mixed",
    "control",
}  # fmt: skip
"""Settings that do not make a model another row: they belong to the columns, or are the model's own name."""


@dataclass(frozen=True)
class Group:
    """Audits of one task on one data set: `rows` names each model or setting, with its runs by attribute."""

    task: str
    dataset: str
    rows: Mapping[str, Mapping[str, Source]]

    def sources(self) -> list[Source]:
        return [source for runs in self.rows.values() for source in runs.values()]

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Attributes and what was asked under them: each attribute's together, in the order in which they come."""
        found: dict[str, dict[str, None]] = {}
        for runs in self.rows.values():
            for attribute, source in runs.items():
                arms = _results(source)["design"]["arms"]
                found.setdefault(attribute, {}).update(dict.fromkeys(arm for arm in arms if arm != "control"))
        return [(attribute, arm) for attribute, arms in found.items() for arm in arms]


def _results(source: Source) -> Mapping[str, Any]:
    assert source.results is not None
    return source.results


def many_page(sources: Sequence[Source], measures: Mapping[str, Mapping[str, Any]]) -> Page:
    """The page of several runs; those without results are named, and left out."""
    groups = groups_of(sources)
    others = [source for source in sources if source.results is not None and not source.is_audit]
    tasks = list(
        dict.fromkeys([*(group.task for group in groups), *(_results(one)["task"] for one in others)])
    )
    simulated = any(str(_results(one).get("model", "")).startswith("fake:") for one in sources if one.results)
    return Page(
        kind="Report",
        title=count(len(sources), "run"),
        subtitle=" · ".join(
            [*(f"{group.task} on {group.dataset}" for group in groups), *(o.name for o in others)]
        ),
        words={},
        missing=missing_runs(sources),
        warnings=[
            *["Simulated models answer as planted: they test the instrument, not the world."] * simulated,
            *[f"Figures show the first {DRAWN} models, tables all of them."]
            * any(len(g.rows) > DRAWN for g in groups),
        ],
        verdicts=(),
        tables=many_tables(sources),
        plots=[plot for number, group in enumerate(groups) for plot in _plots(group, measures, number)],
        furthest=(),
        furthest_by="",
        evidence=(),
        method=Method(
            words=[paragraph for task in tasks for paragraph in WORDS[task]],
            formulas=formulas_of(measures),
            facts=[(source.name, _about(source)) for source in sources],
            prompt="",
            command="llmfair report " + " ".join(source.name for source in sources),
            limits=[*LIMITS, *[SIMULATED] * simulated],
        ),
        rows=[row for group in groups for source in group.sources() for row in _shown_rows(source)],
    )


def many_tables(sources: Sequence[Source]) -> list[Table]:
    """A matrix for every measure shown, and one of the conclusions; studies and measured runs as they are."""
    tables = [table for group in groups_of(sources) for table in _tables(group)]
    of = {"score": score_table, "study windows": study_table, "finetune-lora": finetune_table}
    return tables + [
        of[one.results["task"]](one.results)
        for one in sources
        if one.results is not None and not one.is_audit and one.results["rows"]
    ]


def missing_runs(sources: Sequence[Source]) -> list[str]:
    """What half-finished runs lack, run by run."""
    said = []
    for source in sources:
        if source.results is None:
            said.append(unfinished(source))
        elif source.is_audit:
            said += [f"{source.name}: {line}" for line in missing_of(source.manifest, source.results)[:-1]]
    return said


def groups_of(sources: Sequence[Source]) -> list[Group]:
    """Audits by task and data set."""
    found: dict[tuple[str, str], list[Source]] = {}
    for source in sources:
        if source.is_audit:
            results = _results(source)
            found.setdefault((results["task"], results["dataset"]), []).append(source)
    return [Group(task, dataset, _rows_of(of_it)) for (task, dataset), of_it in found.items()]


def _rows_of(sources: Sequence[Source]) -> dict[str, dict[str, Source]]:
    """Runs by what they are of; a model with several settings is told apart by what differs, or by the run's name."""
    settings = {
        source.run.path: {
            key: value for key, value in source.manifest["settings"].items() if key not in OF_THE_LISTS
        }
        for source in sources
    }
    rows: dict[str, dict[str, Source]] = {}
    for source in sources:
        results = _results(source)
        alike = [settings[one.run.path] for one in sources if _results(one)["model"] == results["model"]]
        own = settings[source.run.path]
        differ = [key for key in own if any(other.get(key) != own[key] for other in alike)]
        name = " ".join([results["model"], *_told(own, differ)])
        if results["attribute"] in rows.get(name, {}):
            name = f"{results['model']} ({source.name})"
        rows.setdefault(name, {})[results["attribute"]] = source
    return rows


def _told(settings: Mapping[str, Any], differ: Sequence[str]) -> list[str]:
    """Settings that tell runs of one model apart, short: windows as `20/10x3`, the first others by name."""
    windows = ("window", "step", "passes")
    told = ["{window}/{step}x{passes}".format_map(settings)] if {*windows} & {*differ} else []
    return told + [f"{key} {settings[key]}" for key in differ if key not in windows][:2]


def _tables(group: Group) -> Iterator[Table]:
    columns = group.columns
    several = len({attribute for attribute, _ in columns}) > 1
    header = tuple(f"{attribute}: {arm}" if several else arm for attribute, arm in columns)
    named = "prompt" if group.task == "listwise" else "pairs"
    cells = {source.run.path: _own_cells(source) for source in group.sources()}
    for measure, side in dict.fromkeys((key[0], key[2]) for of_it in cells.values() for key in of_it):
        rows = []
        for name, runs in group.rows.items():
            found = [
                cells[runs[attribute].run.path].get((measure, arm, side)) if attribute in runs else None
                for attribute, arm in columns
            ]
            if any(found):
                rows.append((name, *map(cell, found), _queries(found)))
        title = " · ".join(
            [_heading(measure, group), *([side] if side else []), group.dataset, f"by model and {named}"]
        )
        yield Table(title, ("model", *header, "queries"), tuple(rows), ())
    concluded = {name: {a: _conclusions(s) for a, s in runs.items()} for name, runs in group.rows.items()}
    if any(text for by in concluded.values() for said in by.values() for text in said.values()):
        told = tuple(
            (name, *(by.get(attribute, {}).get(arm, "") for attribute, arm in columns))
            for name, by in concluded.items()
        )
        yield Table(f"Conclusions · {group.dataset} · {group.task}", ("model", *header), told, ())


def _own_cells(source: Source) -> dict[tuple[str, str, str], Row]:
    """Rows of the measures shown, by their plain name, variant and side: runs differ in how they control for order."""
    results = _results(source)
    return {
        (plain(measure), row["variant"], row["group"]): row
        for measure in results["shown"]
        for row in results["rows"]
        if row["measure"] == measure and row["query_id"] == "all" and row["variant"] in results["design"]["arms"]
        and row["variant"] != "control"
    }  # fmt: skip


def _heading(measure: str, group: Group) -> str:
    """The measure as the runs' own tables name it, with the level of its intervals."""
    for source in group.sources():
        results = _results(source)
        for own in results["shown"]:
            if plain(own) == measure:
                return headings([own], results)[0]
    return measure


def _queries(found: Sequence[Row | None]) -> str:
    numbers = sorted({row["n"] for row in found if row and row["n"] is not None})
    return "" if not numbers else f"{numbers[0]}" + (f"–{numbers[-1]}" if len(numbers) > 1 else "")


def _conclusions(source: Source) -> dict[str, str]:
    """What the run's own table says at the end of each row."""
    results = _results(source)
    table = listwise_table(results) if results["task"] == "listwise" else pairwise_table(results)
    return {row[0]: row[-1] for row in table.rows} if results["findings"] else {}


def _shown_rows(source: Source) -> list[Row]:
    results = _results(source)
    return [row for row in results["rows"] if row["measure"] in results["shown"]]


def _about(source: Source) -> str:
    if source.results is None:
        return "no results yet"
    results = source.results
    if source.is_audit:
        table = listwise_table(results) if results["task"] == "listwise" else pairwise_table(results)
        return f"{table.title} · seed {results['design']['seed']} · {results['status']}"
    return str(results["task"])


def _plots(group: Group, declared: Mapping[str, Mapping[str, Any]], number: int) -> Iterator[Plot]:
    """Figures of a group; `number` keeps their names apart."""
    rows = dict(list(group.rows.items())[:DRAWN])
    looks = palette(list(rows))
    if group.task == "listwise":
        yield from _utilities(group, rows, looks, declared, f"utility-{number}")
        yield from _boxes(rows, f"ranks-{number}")
    else:
        answered = [
            (f"{name}\n{_kind(source, kind)}", shares)
            for name, runs in rows.items()
            for source in runs.values()
            for kind, shares in _results(source)["shares"].items()
            if shares
        ]
        if answered:
            words = _results(group.sources()[0])["words"] if len({a for a, _ in group.columns}) == 1 else {}
            yield stacked_answers(answered, words, f"answers-{number}")
    headlines, labels = [], {}
    for name, runs in rows.items():
        for source in runs.values():
            cells = cells_of(_results(source))
            for arm, finding in _results(source)["findings"].items():
                if arm != "control":
                    value = on_log(value_of(cells.get((finding["measure"], arm))))
                    headlines.append(
                        (f"{name}\n{_kind(source, arm)}", None, value, plain(finding["measure"]))
                    )
                    labels[plain(finding["measure"])] = declared.get(finding["measure"], {}).get("label")
    for place, measure in enumerate(dict.fromkeys(measure for *_, measure in headlines)):
        of_it = [(name, before, value) for name, before, value, own in headlines if own == measure]
        if any(value for _, _, value in of_it):
            label = labels[measure] or measure
            band = _results(group.sources()[0])["band"]
            title = f"{label[:1].upper()}{label[1:]} against the band"
            yield ratios(of_it, label, (band[0], band[1]), title, f"odds-{number}-{place}")


def _kind(source: Source, arm: str) -> str:
    return f"{_results(source)['attribute']}: {NAMES.get(arm, arm)}"


def _utilities(
    group: Group,
    rows: Mapping[str, Mapping[str, Source]],
    looks: Mapping[str, Look],
    declared: Mapping[str, Mapping[str, Any]],
    name: str,
) -> Iterator[Plot]:
    """Utility and exposure of every model and prompt: colours are models, marks are prompts."""
    shown = list(
        dict.fromkeys(measure for source in group.sources() for measure in _results(source)["shown"])
    )
    across, up = utility_of(shown, declared), ratio_of(shown, declared)
    if not across or not up:
        return
    marks = {column: MARKS[place % len(MARKS)] for place, column in enumerate(group.columns)}
    points: list[Point] = []
    joined = []
    for model, runs in rows.items():
        places = []
        for attribute, source in runs.items():
            cells = cells_of(_results(source))
            for arm in _results(source)["design"]["arms"]:
                utility, ratio = value_of(cells.get((across, arm))), on_log(value_of(cells.get((up, arm))))
                if (attribute, arm) in marks and utility and ratio:
                    look = Look(looks[model].color, marks[attribute, arm], "-")
                    places.append(len(points))
                    points.append(
                        (f"{model} {arm}", utility, ratio, look, None if len(places) > 1 else model)
                    )
        joined.append(places)
    if points:
        signs = {"o": "●", "s": "■", "D": "◆", "^": "▲", "v": "▼", "P": "✚", "X": "✖", "*": "★"}
        told = ", ".join(f"{signs[mark]} {attribute} {arm}" for (attribute, arm), mark in marks.items())
        yield utility_and_ratio(points, plain(across), plain(up), None, joined, name, f" {told}.")


def _boxes(rows: Mapping[str, Mapping[str, Source]], name: str) -> Iterator[Plot]:
    """Ranks under each run's first prompt, by model."""
    boxes: dict[str, Any] = {}
    for model, runs in rows.items():
        for attribute, source in runs.items():
            arm = _results(source)["design"]["arms"][0]
            lists = read_lists(source.run.path, [arm])
            if lists is not None and lists.ranked[arm]:
                both = (lists.ranks(arm, "protected"), lists.ranks(arm, "unprotected"))
                boxes[f"{model} {attribute}" if len(runs) > 1 else model] = both
    if any(len(ranks) for both in boxes.values() for ranks in both):
        boxes = dict(list(boxes.items())[:DRAWN])
        yield rank_boxes(boxes, {}, name)
