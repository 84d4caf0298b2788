"""What a call of the Python API gives back: results as `--json` prints them, their rows, and the command's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair import registry
from llmfair.audits.gates import as_shown
from llmfair.audits.kind import kind_of, study_of
from llmfair.errors import MissingExtra, UsageError, did_you_mean
from llmfair.io.files import number, read_figures
from llmfair.metrics.names import parse_measure
from llmfair.nouns import Measurement
from llmfair.rundir import COLUMNS, with_factors

if TYPE_CHECKING:
    import pandas

    from llmfair.report.tables import Table
    from llmfair.results import RunVerdict

TABLES = {
    "score": "report.compare:score_table",
    "finetune-lora": "tuning.words:table_of",
    "compare": "report.compare:compare_table",
    "mitigate": "mitigation.words:table_of",
}
"""The table of each general command; kinds of audits and studies have those of their own."""
GENERAL = ("score", "finetune-lora", "mitigate")
"""What is no audit, and has rows of measurements."""
FLOATS = ("value", "low", "high", "p", "p_adjusted")
Record = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Result:
    """What was found; `print` shows the command's table, and a notebook the same.

    `kind` is the command's name, `results` what its `--json` prints. `result[measure, condition]`, or with a third
    text `result[measure, condition, group]`, is one Measurement of all queries, by the name that the table gives it.
    """

    kind: str
    results: Mapping[str, Any]
    path: Path | None = None
    of_queries: Sequence[Record] | None = None

    @property
    def folder(self) -> Path:
        """Where everything was written. Raises UsageError where nothing was."""
        if self.path is None:
            raise UsageError(f"{self.kind} wrote no folder.", "give it one: output='FOLDER'")
        return self.path

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes an audit's figures doubtful as a whole: answers of other runs, queries a model was trained on."""
        return tuple(self.results.get("warnings", ()))

    @cached_property
    def verdict(self) -> RunVerdict:
        """What the run comes to: `status`, `sentence`, `next`, and the figure that it speaks of.

        Raises UsageError of what has none: plans, calibrations, studies, comparisons.
        """
        from llmfair.audits.kind import found_of
        from llmfair.io.files import typed
        from llmfair.results import RunVerdict

        if written := self.results.get("verdict"):
            read: RunVerdict = typed(written, RunVerdict)
            return read
        found = found_of(self.results) if self.kind == "score" or registry.has("audit", self.kind) else None
        if found is None or found.verdict is None:
            raise UsageError(f"{self.kind} has no verdict.", "audits and score have one")
        verdict: RunVerdict = found.verdict
        return verdict

    @cached_property
    def rows(self) -> list[Measurement]:
        """The figures of all queries together, as metrics.csv has them; none of a plan, calibration or comparison."""
        return [_measurement(row) for row in self.results["rows"]] if self._measured else []

    @cached_property
    def per_query(self) -> list[Measurement]:
        """The figures of each query, as per_query.csv has them. Raises UsageError where none are kept."""
        return [_measurement(row) for row in self._records_of_queries()]

    def __getitem__(self, key: tuple[str, ...]) -> Measurement:
        measure, condition, group = (*key, "", "", "")[:3] if isinstance(key, tuple) else (key, "", "")
        if not condition or len(key) > 3:
            raise UsageError(
                f"{key!r} names no figure.", 'a measure and a condition: result["ExpRatio", "female"]'
            )
        measure = as_shown(measure, self.results.get("shown", ()))
        found = [
            row for row in self.rows if (row.measure, row.condition, row.group) == (measure, condition, group)
        ]
        if len(found) == 1:
            return self._concluded(found[0])
        if found:
            raise UsageError(
                f"{len(found)} runs have {measure} of {condition}.", "result.to_frame() tells them apart"
            )
        raise UsageError(f"no {measure} of {condition}{f' ({group})' if group else ''}.", self._nearest(*key))

    def _concluded(self, row: Measurement) -> Measurement:
        """The figure with what is concluded of its condition, where that is what says whether it can be assessed."""
        known = self.results.get("findings", {}).get(row.condition)
        if known is None or row.conclusion is not None:
            return row
        names = (parse_measure(name) for name in (row.measure, known["measure"]))
        assessed, headline = (measure.definition for measure in names)
        return replace(row, conclusion=known["conclusion"]) if assessed.assessed_by == headline.name else row

    def _nearest(self, measure: str, condition: str, group: str = "") -> str:
        """What there is instead of a figure that is not there."""
        of_measure = [row for row in self.rows if row.measure == measure]
        if not of_measure:
            known = dict.fromkeys(row.measure for row in self.rows)
            return f"measures: {', '.join(known)}.{did_you_mean(measure, known)}"
        of_condition = [row for row in of_measure if row.condition == condition]
        if not of_condition:
            known = dict.fromkeys(row.condition for row in of_measure)
            return f"conditions: {', '.join(known)}.{did_you_mean(condition, known)}"
        known = dict.fromkeys(row.group for row in of_condition)
        return f"groups: {', '.join(map(repr, known))}.{did_you_mean(group, known)}"

    def to_frame(self, per_query: bool = False) -> pandas.DataFrame:
        """The rows as a pandas DataFrame, undefined figures as NaN. Raises MissingExtra without pandas.

        Those of metrics.csv, or of per_query.csv; of a comparison, study or calibration those of its table.
        """
        try:
            import pandas
        except ImportError:
            raise MissingExtra("pandas is not installed.", "pip install 'llmfair[pandas]'") from None
        if self._measured:
            records = self._records_of_queries() if per_query else self.results["rows"]
            header, tidied = with_factors(
                ([row.get(column) for column in COLUMNS] for row in records),
                self.results.get("design", {}).get("factors", {}),
            )
            frame = pandas.DataFrame(tidied, columns=list(header))
            return frame.astype({**dict.fromkeys(FLOATS, float), "n": "Int64"})
        if study := study_of(self.kind):
            columns, lines = study.lines(self.results)
            return pandas.DataFrame(lines, columns=list(columns))
        records = self.results.get("rows", self.results.get("injected"))
        if records is None:
            raise UsageError(f"{self.kind} has no rows.", "result.results has its figures")
        return pandas.DataFrame(list(records))

    def _records_of_queries(self) -> Sequence[Record]:
        if self.of_queries is not None:
            return self.of_queries
        path = None if self.path is None else self.path / "per_query.csv"
        if path is None or not path.is_file():
            raise UsageError(
                f"{self.kind} keeps no figures of single queries.", "result.rows has those of all"
            )
        return read_figures(path, _typed)

    @property
    def _measured(self) -> bool:
        """Whether the rows are measurements."""
        return self.kind in GENERAL or registry.has("audit", self.kind)

    def _table(self) -> Table:
        from llmfair.audits.kind import found_of
        from llmfair.report.tables import Table, headed

        if study := study_of(self.kind):
            table = study.headed_table(found_of(self.results))
            return table if table.rows else Table(f"{table.title}: {', '.join(table.notes)}", (), (), ())
        command, _, name = self.kind.partition(" ")
        if command == "plan":
            kind = kind_of(name)
            plain = Table(kind.plan_text(self.results).strip(), (), (), ())
            return kind.plan_table(self.results) or plain
        if command == "calibrate":
            return kind_of(name).calibration_table(self.results)
        if self.kind not in TABLES:
            found = found_of(self.results)
            return headed(kind_of(self.kind).table(found), found.verdict)
        module, _, function = TABLES[self.kind].partition(":")
        table_of: Callable[[Any], Table] = getattr(import_module(f"llmfair.{module}"), function)
        return table_of(found_of(self.results) if self.kind == "score" else self.results)

    def __str__(self) -> str:
        from llmfair.report.tables import text_of

        return text_of(self._table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from llmfair.report.tables import html_of

        return html_of(self._table())


def _measurement(row: Record) -> Measurement:
    return Measurement(**{item.name: row[item.name] for item in fields(Measurement)})


def _typed(row: dict[str, str]) -> dict[str, Any]:
    """A line of a CSV file with its numbers; empty is None where a text may not be. Raises KeyError, ValueError."""
    typed: dict[str, Any] = row | {name: row[name] for name in COLUMNS}
    for name in (*FLOATS, "n"):
        typed[name] = None if row[name] == "" else int(row[name]) if name == "n" else number(row[name])
    for name in ("conclusion", "reason"):
        typed[name] = row[name] or None
    return typed
