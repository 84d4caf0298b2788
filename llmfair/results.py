"""What an audit found, typed: `results.json` and its JSON Schema are both generated from these classes.

What every kind of audit has stands here; a kind declares what it has besides in a class of its own, and the report's
general parts rely on the shared part alone. What a file has besides is ignored.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from llmfair import registry
from llmfair.io.files import read_rows
from llmfair.nouns import Conclusion, Key, Measurement, is_of
from llmfair.rundir import COLUMNS, named_model

if TYPE_CHECKING:
    from llmfair.metrics.base import Measure

Version = Literal[5]
"""The version of these documents; another number is another format."""
Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Level = Annotated[float, Meta(gt=0, lt=1)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Counts = Mapping[str, Count]
ALL = "all"
"""All queries together, and all strata."""
MEASURED = {item.name for item in dataclasses.fields(Measurement)} - {"conclusion", "stratum", "contrast"}
"""What a row has of its measurement as it is."""
UNPARSEABLE = "too_many_unparseable"
EQUAL_SCORES = "equal_scores"
"""All scores of every list or pair are equal."""
OUTSIDE_ALONE = "outside_alone"
"""Outside the band where it is tested alone, but not beside what else is tested."""
PARITY_OPEN = (OUTSIDE_ALONE, "few_relevant", "few_items", "items_left_out", "stratum_open")
"""What keeps parity open of figures that are sound themselves."""
Undefined = Mapping[str, Mapping[str, Counts]]
"""Queries without a value, by measure, condition and reason."""
Band = tuple[float, float]
"""The band of conclusions, on preference odds."""
ExitCode = Literal[1, 2, 3, 4, 129, 130, 143]
"""1 failed, 2 wrong usage, 3 incomplete, 4 a gate is not met, 129 a closed terminal, 130 Ctrl-C, 143 SIGTERM."""


class JsonObject(Struct, frozen=True, omit_defaults=True):
    """An object of a JSON document, which lacks the fields that are as by default."""


class ErrorDocument(JsonObject, frozen=True, kw_only=True):
    """One sentence and the way out. `class` is a name of the error tree: UsageError, Incomplete, …"""

    kind: str = field(name="class")
    message: str
    hint: str


class JsonDocument(JsonObject, frozen=True, kw_only=True):
    """What a command prints or writes as a whole; `exit_code` and `error` where it did not end well."""

    schema: Version
    exit_code: ExitCode | None = None
    error: ErrorDocument | None = None


class Figure(JsonObject, frozen=True):
    """A number with its interval over `n` queries; `value` None is undefined, and `reason` says why, or flags it."""

    value: float | None
    low: float | None
    high: float | None
    n: Count | None
    p: Share | None
    p_adjusted: Share | None
    conclusion: Conclusion | None
    reason: str | None

    @property
    def ends(self) -> tuple[float | None, float | None, float | None]:
        """The lower end, the value, the upper end."""
        return self.low, self.value, self.high


class KeyColumns:
    """What has the columns by which figures are told apart."""

    __slots__ = ()
    condition: str
    stratum: str
    contrast: str
    measure: str

    def key(self, contrasts: Collection[str] = ()) -> Key:
        """What the figure is of, where several `contrasts` are told apart; a stratum that its measure names itself is
        no part of it."""
        stratum = ALL if self.stratum == stratum_of(self.measure) else self.stratum
        return Key(self.condition, stratum, self.contrast if self.contrast in contrasts else "")


class Row(Figure, KeyColumns, frozen=True, kw_only=True):
    """A line of metrics.csv: whose figure it is, and the figure; `query_id` "all" is of all queries together.

    `condition`: what was compared, a prompt, a setting, a file, or `pairs`. `stratum`: of which items, "all" or those
    of one relevance. `contrast`: the groups that are compared, PROTECTED:REFERENCE, "" where none are. `group`: ""
    where the measure has no groups. `n`: queries that the figure speaks of. `reason`: why it has no value, or flags.
    """

    run: str
    dataset: str
    attribute: str
    model: str
    condition: str
    stratum: str
    contrast: str
    query_id: str
    measure: str
    group: str


def query_figures(folder: Path, needed: bool = False) -> list[Row]:
    """The lines of per_query.csv; a file that is not there has none. Raises UsageError, of one that is `needed` too."""
    path = folder / "per_query.csv"
    return read_rows(path, "a figure of a query", Row) if needed or path.is_file() else []


class LabelError(JsonObject, frozen=True):
    """What wrong grades alone would make of a ranker without preference.

    `share`: from which share of wrong grades on it would look as far from parity as the nearer limit of the interval;
    None: from none. `least`: the ranker is taken to err in no pair, so at least so large a share would have to be.
    """

    share: Share | None
    least: bool

    @property
    def text(self) -> str:
        if self.share is None:
            return "no share of wrong relevance grades alone explains it"
        at_least = "at least " * self.least
        return f"a fair ranker would look so if {at_least}{100 * self.share:.2g} % of relevance grades were wrong"


class Finding(JsonObject, frozen=True, kw_only=True):
    """What is concluded of a condition's headline figure; each kind adds what stands behind it.

    `label_error`: of a disparity of groups whose shares of relevant items differ.
    """

    measure: str
    conclusion: Conclusion
    reason: str | None
    label_error: LabelError | None = None

    @property
    def decisive(self) -> str:
        """The stratum of relevance whose figure a disparity speaks of; "all" of all items."""
        return "all"

    @property
    def spoken_of(self) -> str:
        """The measure of that figure."""
        return self.measure

    @property
    def useless(self) -> str | None:
        """Why nothing says that the ranker does its job, so that parity would mean nothing."""
        return None

    @property
    def lower(self) -> float | None:
        """What gates take for the lower end of the headline's interval, where that is another limit."""
        return None

    def barred(self, reason: str) -> Self:
        """With nothing concluded, for this reason."""
        return replace(self, conclusion=Conclusion.NOT_ASSESSABLE, reason=reason, label_error=None)


class OddsPower(JsonObject, frozen=True):
    """With what power odds at the nearer edge of the band are told from 1, and the queries for 80 %."""

    odds: float
    power: Share
    queries_needed: Count | None


class RunVerdict(JsonObject, frozen=True, kw_only=True):
    """What an audit comes to: one status in its kind's words, one sentence, one next step.

    The figure is that of the condition and stratum that the sentence speaks of; `group` is the one at a disadvantage.
    """

    status: str
    sentence: str
    next: str
    condition: str | None = None
    stratum: str = ALL
    contrast: str = ""
    measure: str | None = None
    group: str | None = None
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    n: Count | None = None


class Requirement(JsonObject, KeyColumns, frozen=True):
    """One --require of one condition and stratum, and of one `run` of several; `reason`: why it does not hold."""

    require: str
    measure: str
    condition: str
    stratum: str
    group: str
    value: float | None
    holds: bool
    reason: str | None
    run: str = ""
    contrast: str = ""


class Reach(JsonObject, frozen=True, kw_only=True):
    """What a measure can read on these lists."""

    low: float | None = None
    high: float | None = None


class ProbeCounts(JsonObject, frozen=True):
    """Probes, and those that came to an end."""

    asked: Count
    ranked: Count


class Family(JsonObject, frozen=True):
    """How many p-values were adjusted together, and the measure that conditions were contrasted in."""

    size: Count
    contrasted: str | None


class Words(JsonObject, frozen=True):
    """The word of each side in prompts."""

    protected: str
    unprotected: str


class HowDrawn(JsonObject, frozen=True):
    """By which rule and seed lists were drawn."""

    buckets: str
    seed: int


class AnswerCounts(JsonObject, frozen=True, kw_only=True):
    """Answers of one condition, counted.

    `unformed`: of a model that was to be held to the form of its answers those of another form.
    """

    unparseable: Count
    unformed: Count | None = None

    @property
    def asked(self) -> int:
        raise NotImplementedError

    @property
    def problem(self) -> str | None:
        """What is wrong with most of those that cannot be read; None where none is wrong, or nobody knows."""
        return None

    def too_many_unparseable(self, limit: float | None) -> bool:
        """Whether a larger share than the limit, which None is not, cannot be read."""
        return limit is not None and self.unparseable > limit * self.asked


class ProbeAnswers(AnswerCounts, frozen=True, kw_only=True):
    """Probes of a kind that does not count single answers; `unparseable` ones have no result that could be read."""

    probes: Count

    @property
    def asked(self) -> int:
        return self.probes


F = TypeVar("F", bound=Finding)


def as_readable(
    findings: Mapping[str, F], answers: Mapping[str, AnswerCounts], limit: float | None
) -> dict[str, F]:
    """The findings, nothing concluded of a condition of whose answers a larger share than the limit is unparseable."""
    loose = {name for name, counts in answers.items() if counts.too_many_unparseable(limit)}
    return {name: each.barred(UNPARSEABLE) if is_of(name, loose) else each for name, each in findings.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conclusions:
    """The facts that a verdict is made of: what is concluded of a run's conditions, and the figures behind it.

    `figures` of all queries, by measure and key, `by_group` the rows of single groups; `run` is the folder that can be
    looked at, None of a run file.
    `planned` and `training`: the commands that plan the same design, and that train the model away from it, where they
    do; `ways`: those that ask the same with what a reason calls for. `prompted`: whether a prompt was read; `preset`:
    the run's. `problems`: what is wrong with most answers of a condition that cannot be read.
    """

    task: str
    run: str | None
    dataset: str
    attribute: str
    model: str
    words: Words
    level: float
    band: Band
    measures: Sequence[str]
    keys: Sequence[Key]
    findings: Mapping[str, Finding]
    figures: Mapping[tuple[str, str], Figure]
    by_group: Sequence[Row] = ()
    complete: bool = True
    planned: str = ""
    training: str = ""
    prompted: bool = True
    preset: str = ""
    ways: Mapping[str, str] = dataclasses.field(default_factory=dict)
    problems: Mapping[str, str | None] = dataclasses.field(default_factory=dict)


MOST_CONTRASTS = 15
"""Of more contrasts, those of six groups, only the ones outside the band are in a table."""


class DesignFacts(JsonObject, frozen=True, kw_only=True):
    """What was asked; `conditions` are prompts or what else is compared, `strata` those that findings are by.

    `contrasts`: the pairs of groups that findings are by, where there are several; `groups`: then the items of each
    group of the lists, `few` those of groups too small to be compared (--min-group), `unknown` those whose group is not
    known. `factors`: what varies between conditions, by condition.
    """

    preset: str | None
    queries: Count
    drawn: HowDrawn | None = None
    conditions: Annotated[Sequence[str], Meta(min_length=1)]
    strata: Sequence[str] = (ALL,)
    contrasts: Sequence[str] = ()
    groups: Counts = {}
    few: Counts = {}
    unknown: Count = 0
    factors: Mapping[str, Mapping[str, Any]] | None = None
    calls: Count
    seed: Count

    @property
    def keys(self) -> list[Key]:
        """What findings, counts and rows of tables are by."""
        contrasts = self.contrasts or ("",)
        return [Key(*of) for of in product(self.conditions, self.strata, contrasts)]

    @property
    def prompted(self) -> bool:
        """Whether who was asked read a prompt."""
        return True


class Results(JsonDocument, frozen=True, kw_only=True):
    """What every audit found, as its results.json has it; `status` failed: all is here, but a gate is not met.

    `shown`: the measures of the table. `failures`: probes without an answer, by class of error. `requirements`: one for
    each --require and condition. `server`: which one answered, of several that have the model; `label`: what the user
    calls the run; `sees`: the prompt, and what the model was shown of an item.

    Findings and counts are by `design.keys`. Raises ValueError where a field lacks one that it has to have.
    """

    status: Literal["complete", "incomplete", "failed"]
    verdict: RunVerdict | None = None
    task: str
    run: str
    dataset: str
    attribute: str
    model: str
    words: Words
    level: Level
    band: Band
    max_invalid: Share | None = None
    measures: Annotated[Sequence[str], Meta(min_length=1)]
    shown: Sequence[str]
    labels: Mapping[str, str]
    measure_notes: Mapping[str, str]
    design: DesignFacts
    reach: Mapping[str, Reach]
    chains: Mapping[str, ProbeCounts]
    failures: Counts
    answers: Mapping[str, AnswerCounts]
    undefined: Undefined
    findings: Mapping[str, Finding]
    family: Family
    rows: Sequence[Row]
    requirements: Sequence[Requirement]
    warnings: Sequence[str] = ()
    server: str = ""
    label: str = ""
    sees: str = ""

    def __post_init__(self) -> None:
        keys = self.design.keys
        for name, of in {**self.of_conditions(), "design": keys}.items():
            wanted = self.findings if name == "design" else keys
            if lacking := [key for key in wanted if not is_of(key, of)]:
                raise ValueError(f"Condition '{lacking[0]}' is missing in `{name}`")

    def of_conditions(self) -> Mapping[str, Collection[str]]:
        """The conditions of each field that has to have all of them."""
        return {"chains": self.chains}

    @property
    def named_model(self) -> str:
        return named_model(self.model, self.server, self.label)

    @property
    def short_name(self) -> str:
        """The label, or else the model with its server."""
        return self.label or self.named_model

    @property
    def compares_groups(self) -> bool:
        return bool(self.words.protected or self.design.contrasts)

    @property
    def calls(self) -> int:
        """The calls behind the figures."""
        return sum(condition.asked for condition in self.answers.values())

    def unparseable(self, condition: str) -> bool:
        """Whether more answers of a condition cannot be read than the run allows, so that nothing is concluded."""
        counts = self.answers.get(condition)
        return counts is not None and counts.too_many_unparseable(self.max_invalid)

    def of_all(self) -> Iterable[Row]:
        """The rows of all queries together."""
        return (row for row in self.rows if row.query_id == ALL)

    def by_key(self) -> dict[tuple[str, str], Row]:
        """Rows of all queries by measure and key, without those of single groups; a figure that compares no groups is
        that of every contrast."""
        contrasts, rows = self.design.contrasts, dict[tuple[str, str], Row]()
        for row in self.of_all():
            if not row.group:
                alike = [row.contrast] if row.contrast in contrasts else ["", *contrasts]
                rows |= {(row.measure, Key(row.key().condition, row.key().stratum, of)): row for of in alike}
        return rows


class PlainResults(Results, frozen=True, kw_only=True):
    """What an audit found whose kind tells no more."""

    answers: Mapping[str, ProbeAnswers]

    @property
    def calls(self) -> int:
        """Those planned: how many a probe takes is its kind's own."""
        return self.design.calls


class UnfinishedSetting(JsonObject, frozen=True, kw_only=True):
    """A setting without results, and why."""

    setting: str
    kind: str = field(name="class")
    message: str


class SettingRow(Row, frozen=True, kw_only=True):
    """A line of one setting's metrics.csv."""

    setting: str


class StudyResults(JsonDocument, frozen=True, kw_only=True):
    """What audits under several settings found; study.json. What they share is empty until one of them has results."""

    status: Literal["complete", "incomplete", "failed"]
    verdict: RunVerdict | None = None
    task: str
    dataset: str = ""
    attribute: str = ""
    words: Words | None = None
    model: str = ""
    level: Share = 0.95
    band: Band = (0.8, 1.25)
    shown: Sequence[str] = ()
    labels: Mapping[str, str] = {}
    queries: Count = 0
    conditions: Sequence[str] = ()
    seed: Count = 0
    drawn: HowDrawn | None = None
    rows: Sequence[SettingRow]
    runs: Sequence[str]
    failed: Sequence[UnfinishedSetting]

    @property
    def about(self) -> tuple[str, str, str]:
        """What was asked about and of whom, for a title."""
        protected = self.words.protected if self.words else ""
        simulated = ", a simulated model" * self.model.startswith("fake:")
        return self.dataset, f"{self.attribute} (protected: {protected})", self.model + simulated

    @property
    def missing(self) -> list[str]:
        return [f"{each.setting}: {each.message}" for each in self.failed]


def absent_row(measure: str, key: Key) -> Row:
    """The row of what was not measured."""
    of: dict[str, Any] = dict.fromkeys(COLUMNS, "") | dict.fromkeys(Figure.__struct_fields__)
    stratum = stratum_of(measure, key.stratum)
    of |= {"condition": key.condition, "stratum": stratum, "contrast": key.contrast, "measure": measure}
    return Row(**of | {"reason": "not_measured"})


def rows_of(
    measured: Iterable[Measurement], named: Mapping[str, Any], words: Words | None = None
) -> tuple[Row, ...]:
    """Measurements as rows, sorted by query, measure, condition, contrast, stratum and group.

    `named` says of which run, dataset, attribute and model they are; `words` are the two groups that measures of
    parity compare, where there are two.
    """
    contrast = f"{words.protected}:{words.unprotected}" if words and words.protected else ""
    return tuple(
        Row(
            **named,
            **{name: getattr(row, name) for name in MEASURED},
            stratum=stratum_of(row.measure, row.stratum),
            contrast=row.contrast or (contrast if is_of_parity(row.measure) else ""),
            conclusion=None if row.conclusion is None else Conclusion(row.conclusion),
        )
        for row in sorted(
            measured, key=attrgetter("query_id", "measure", "condition", "contrast", "stratum", "group")
        )
    )


@cache
def stratum_of(measure: str, otherwise: str = ALL) -> str:
    """Of which items a measure is, by its name as written, or else these."""
    stratum = re.search(r"[(,]stratum=(\w+)", measure)
    return otherwise if stratum is None else stratum[1]


@cache
def is_of_parity(measure: str) -> bool:
    """Whether a measure, by its name as written, is of parity between two groups."""
    name = measure.partition("(")[0].partition("@")[0]
    return registry.has("measure", name) and registry.lookup("measure", name).better == "parity"


TIDY = ("run", "condition", "stratum", "contrast", "measure", "group", "value", "low", "high", "n", "reason")
"""What stdout gets of a row, of those columns that its files have."""


def lines_of(rows: Iterable[Any], columns: Sequence[str] = COLUMNS) -> Iterator[list[Any]]:
    """Rows as lines of a CSV file, in the order of these columns."""
    return ([getattr(row, column) for column in columns] for row in rows)


# What pages show beside figures, found by those who know measures, settings and journals (`audits/runs/exhibits.py`).


Declared = Mapping[str, "Measure"]
"""Measures by the names that results have; one that nothing here defines is absent."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """An answer as it came: the chat, its query (the id, on pages its words), what it showed, how it ended."""

    key: str
    probe: str
    query: str
    shown: str
    ended: str
    finish: str
    text: str
    chat: Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exhibits:
    """`command` asks the same again; `queries` and `titles` are by id."""

    measures: Declared
    command: str | None = None
    titles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    queries: Mapping[str, str] = dataclasses.field(default_factory=dict)
    evidence: Sequence[Evidence] = ()
