"""What a call of the Python API gives back: results as `--json` prints them, their rows, and the command's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from llmfair import registry
from llmfair.audits.gates import as_shown
from llmfair.audits.kind import GENERAL, kind_of, study_of
from llmfair.errors import MissingExtra, UsageError, did_you_mean
from llmfair.io.files import number, plain, read_figures
from llmfair.metrics.names import parse_measure
from llmfair.nouns import Conclusion
from llmfair.results import Row, lines_of
from llmfair.rundir import COLUMNS, with_factors

if TYPE_CHECKING:
    import pandas

    from llmfair.report.tables import Table
    from llmfair.results import RunVerdict

TABLES = {
    "score": "report.compare:score_table",
    "finetune-lora": "tuning.words:headed_table",
    "compare": "report.compare:compare_table",
    "mitigate": "mitigation.words:headed_table",
}
"""The table of each general command; kinds of audits and studies have those of their own."""
FLOATS = ("value", "low", "high", "p", "p_adjusted")


@dataclass(frozen=True, repr=False)
class Result:
    """What was found; `print` shows the command's table, and a notebook the same.

    `kind` is the command's name, `found` its results, typed, and `results` the same as `--json` prints them.
    `result[measure, condition]`, or with a third text `result[measure, condition, group]`, is one row of all queries,
    by the name that the table gives it.
    """

    kind: str
    found: Any
    path: Path | None = None
    of_queries: Sequence[Row] | None = None

    @cached_property
    def results(self) -> Mapping[str, Any]:
        """The results as `--json` prints them."""
        document: Mapping[str, Any] = plain(self.found)
        return document

    @property
    def folder(self) -> Path:
        """Where everything was written. Raises UsageError where nothing was."""
        if self.path is None:
            raise UsageError(f"{self.kind} wrote no folder.", "give it one: output='FOLDER'")
        return self.path

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes an audit's figures doubtful as a whole: answers of other runs, queries a model was trained on."""
        return tuple(getattr(self.found, "warnings", ()))

    @property
    def verdict(self) -> RunVerdict:
        """What the run comes to: `status`, `sentence`, `next`, and the figure that it speaks of.

        Raises UsageError of what has none: plans, calibrations, studies.
        """
        verdict: RunVerdict | None = getattr(self.found, "verdict", None)
        if verdict is None:
            raise UsageError(f"{self.kind} has no verdict.", "audits, comparisons and score have one")
        return verdict

    @property
    def rows(self) -> list[Row]:
        """The figures of all queries together, as metrics.csv has them; none of a plan, calibration or comparison."""
        return list(self.found.rows) if self._measured else []

    @property
    def per_query(self) -> list[Row]:
        """The figures of each query, as per_query.csv has them. Raises UsageError where none are kept."""
        if self.of_queries is not None:
            return list(self.of_queries)
        path = None if self.path is None else self.path / "per_query.csv"
        if path is None or not path.is_file():
            raise UsageError(
                f"{self.kind} keeps no figures of single queries.", "result.rows has those of all"
            )
        return read_figures(path, _row)

    def __getitem__(self, key: tuple[str, ...]) -> Row:
        measure, condition, group = (*key, "", "", "")[:3] if isinstance(key, tuple) else (key, "", "")
        if not condition or len(key) > 3:
            raise UsageError(
                f"{key!r} names no figure.", 'a measure and a condition: result["ExpRatio", "female"]'
            )
        measure = as_shown(measure, getattr(self.found, "shown", ()))
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

    def _concluded(self, row: Row) -> Row:
        """The figure with what is concluded of its condition, where that is what says whether it can be assessed."""
        finding = getattr(self.found, "findings", {}).get(row.condition)
        if finding is None or row.conclusion is not None:
            return row
        assessed, headline = (parse_measure(name).definition for name in (row.measure, finding.measure))
        return replace(row, conclusion=finding.conclusion) if assessed.assessed_by == headline.name else row

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
            rows, design = self.per_query if per_query else self.rows, getattr(self.found, "design", None)
            factors = getattr(design, "factors", None) or {}
            header, lines = with_factors(lines_of(rows), factors)
            frame = pandas.DataFrame(lines, columns=list(header))
            return frame.astype({**dict.fromkeys(FLOATS, float), "n": "Int64"})
        if study := study_of(self.kind):
            columns, records = study.lines(self.found)
            return pandas.DataFrame(records, columns=list(columns))
        rows = self.results.get("rows", self.results.get("injected"))
        if rows is None:
            raise UsageError(f"{self.kind} has no rows.", "result.results has its figures")
        return pandas.DataFrame(list(rows))

    @property
    def _measured(self) -> bool:
        """Whether the rows are measurements."""
        return self.kind in GENERAL or registry.has("audit", self.kind)

    def _table(self) -> Table:
        from llmfair.report.tables import Table, headed

        if study := study_of(self.kind):
            table = study.headed_table(self.found)
            return table if table.rows else Table(f"{table.title}: {', '.join(table.notes)}", (), (), ())
        command, _, name = self.kind.partition(" ")
        if command == "plan":
            kind = kind_of(name)
            return kind.plan_table(self.found) or Table(kind.plan_text(self.found).strip(), (), (), ())
        if command == "calibrate":
            return kind_of(name).calibration_table(self.found)
        if self.kind not in TABLES:
            return headed(kind_of(self.kind).table(self.found), self.found.verdict)
        module, _, function = TABLES[self.kind].partition(":")
        table_of: Callable[[Any], Table] = getattr(import_module(f"llmfair.{module}"), function)
        return table_of(self.found)

    def __str__(self) -> str:
        from llmfair.report.tables import text_of

        return text_of(self._table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from llmfair.report.tables import html_of

        return html_of(self._table())


def _row(line: dict[str, str]) -> Row:
    """A line of a CSV file; empty is None where a text may not be. Raises KeyError, ValueError."""
    numbers = {name: number(line[name]) if line[name] else None for name in FLOATS}
    of: dict[str, Any] = {name: line[name] for name in COLUMNS if name not in numbers}
    conclusion = Conclusion(line["conclusion"]) if line["conclusion"] else None
    n = int(line["n"]) if line["n"] else None
    return Row(**(of | numbers | {"n": n, "conclusion": conclusion, "reason": line["reason"] or None}))
