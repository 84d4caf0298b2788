"""What an audit found, typed: `results.json` and its JSON Schema are both generated from these classes.

What every kind of audit has stands here; a kind declares what it has besides in a class of its own, and the report's
general parts rely on the shared part alone. What a file has besides is ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, Self, TypedDict, TypeVar

from msgspec import Meta

from llmfair.io.files import json_text
from llmfair.manifest import named_model
from llmfair.nouns import Conclusion
from llmfair.rundir import COLUMNS

T = TypeVar("T")
Version = Annotated[
    Literal[1], Meta(description="The version of these documents; another number is another format.")
]
Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Level = Annotated[float, Meta(gt=0, lt=1)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Counts = Mapping[str, Count]
Undefined = Mapping[str, Mapping[str, Counts]]
"""Queries without a value, by measure, condition and reason."""
Band = Annotated[tuple[float, float], Meta(description="The band of conclusions, on preference odds.")]
ExitCode = Annotated[
    Literal[1, 2, 3, 4, 129, 130, 143],
    Meta(
        description="1 failed, 2 wrong usage, 3 incomplete, 4 a gate is not met, 129 a closed terminal, 130 Ctrl-C, "
        "143 SIGTERM."
    ),
]


def left_out_without(name: str) -> Any:
    """A field that JSON lacks where the field `name`, often itself, is None or empty; absent reads as None."""
    return field(default=None, metadata={"needs": name})


def after(name: str, **default: Any) -> Any:
    """A field that JSON has behind the field `name`, wherever its class comes among others."""
    return field(metadata={"after": name}, **default)


@dataclass(frozen=True)
class Figure:
    """A number with its interval; `value` None is undefined, and `reason` says why."""

    value: float | None
    low: float | None
    high: float | None
    n: Annotated[int, Meta(ge=0, description="Queries that the figure speaks of.")] | None
    p: Share | None
    p_adjusted: Share | None
    conclusion: Conclusion | None
    reason: Annotated[str, Meta(description="Why there is no value, or flags of it.")] | None


@dataclass(frozen=True)
class _Named:
    """Whose figure: of which run, condition, query ("all": of all queries together), measure and group."""

    run: str
    dataset: str
    attribute: str
    model: str
    condition: Annotated[
        str, Meta(description="The condition: a prompt, a relevance stratum of pairs, or a file.")
    ]
    query_id: str
    measure: str
    group: Annotated[str, Meta(description='"" where the measure has no groups.')]


@dataclass(frozen=True)
class Row(Figure, _Named):
    """A line of metrics.csv."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is concluded of a condition's headline figure; each kind adds what stands behind it."""

    measure: str
    conclusion: Conclusion
    reason: str | None

    @property
    def useless(self) -> str | None:
        """Why nothing says that the ranker does its job, so that parity would mean nothing."""
        return None

    def barred(self, reason: str) -> Self:
        """With nothing concluded, for this reason."""
        return replace(self, conclusion=Conclusion.NOT_ASSESSABLE, reason=reason)


@dataclass(frozen=True, kw_only=True)
class RunVerdict:
    """What an audit comes to: one status in its kind's words, one sentence, one next step.

    The figure is that of the condition that the sentence speaks of; `group` is the one at a disadvantage.
    """

    status: str
    sentence: str
    next: str
    condition: str | None = None
    measure: str | None = None
    group: str | None = None
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    n: Count | None = None


@dataclass(frozen=True)
class Requirement:
    """One --require of one condition; `reason`: why it does not hold."""

    require: str
    measure: str
    condition: str
    group: str
    value: float | None
    holds: bool
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What a measure can read on these lists; `indifferent`: read by a ranker without any preference."""

    low: float | None = left_out_without("low")
    high: float | None = left_out_without("high")
    indifferent: float | None = left_out_without("indifferent")


@dataclass(frozen=True)
class ProbeCounts:
    """Probes, and those that came to an end."""

    asked: Count
    ranked: Count


@dataclass(frozen=True)
class Family:
    """How many p-values were adjusted together, and the measure that conditions were contrasted in."""

    size: Count
    contrasted: str | None


@dataclass(frozen=True)
class Words:
    """The word of each side in prompts."""

    protected: str
    unprotected: str


@dataclass(frozen=True)
class HowDrawn:
    """By which rule and seed lists were drawn."""

    buckets: str
    seed: int


ErrorSaid = TypedDict("ErrorSaid", {"class": str, "message": str, "hint": str})
"""One sentence and the way out. `class` is a name of the error tree: UsageError, Incomplete, …"""


@dataclass(frozen=True, kw_only=True)
class AnswerCounts:
    """Answers of one condition, counted.

    `unformed`: of a model that was to be held to the form of its answers those of another form.
    """

    unparseable: Count
    unformed: Count | None = left_out_without("unformed")

    @property
    def asked(self) -> int:
        """How many questions were answered."""
        raise NotImplementedError

    @property
    def problem(self) -> str | None:
        """What is wrong with most of those that cannot be read; None where none is wrong, or nobody knows."""
        return None

    def too_many_unparseable(self, limit: float | None) -> bool:
        """Whether a larger share than the limit, which None is not, cannot be read."""
        return limit is not None and self.unparseable > limit * self.asked


@dataclass(frozen=True, kw_only=True)
class ProbeAnswers(AnswerCounts):
    """Probes of a kind that does not count single answers; `unparseable` ones have no result that could be read."""

    probes: Count

    @property
    def asked(self) -> int:
        return self.probes


@dataclass(frozen=True, kw_only=True)
class DesignFacts:
    """What was asked; `conditions` are prompts, relevance strata of pairs, or what else is compared."""

    preset: str | None
    queries: Count
    drawn: HowDrawn | None = left_out_without("drawn")
    conditions: Annotated[Sequence[str], Meta(min_length=1)]
    factors: Annotated[
        Mapping[str, Mapping[str, Any]] | None,
        Meta(description="What varies between conditions, by condition."),
    ] = left_out_without("factors")
    calls: Count
    seed: Count

    @property
    def prompted(self) -> bool:
        """Whether who was asked read a prompt."""
        return True


def joined(notes: Mapping[str, str], limits: Mapping[str, str]) -> dict[str, str]:
    """What is said of measures in both."""
    return {of: "; ".join(says[of] for says in (notes, limits) if of in says) for of in {**notes, **limits}}


@dataclass(frozen=True, kw_only=True)
class Results:
    """What every audit found, as its results.json has it; `status` failed: all is here, but a gate is not met.

    Raises ValueError where a field lacks a condition that it has to have.
    """

    schema: Version = 1
    status: Literal["complete", "incomplete", "failed"]
    verdict: RunVerdict | None = field(default=None, metadata={"needs": "verdict", "after": "status"})
    task: str
    run: str
    dataset: str
    attribute: str
    model: str
    words: Words
    level: Level
    band: Band
    max_invalid: Share | None = field(default=None, metadata={"needs": "max_invalid", "after": "band"})
    measures: Annotated[Sequence[str], Meta(min_length=1)]
    shown: Annotated[Sequence[str], Meta(description="The measures of the table.")]
    labels: Mapping[str, str]
    measure_notes: Mapping[str, str]
    design: DesignFacts
    reach: Mapping[str, Reach]
    chains: Mapping[str, ProbeCounts]
    failures: Annotated[Counts, Meta(description="Probes without an answer, by class of error.")]
    answers: Mapping[str, AnswerCounts]
    undefined: Undefined
    findings: Mapping[str, Finding]
    family: Family
    rows: Sequence[Row]
    requirements: Annotated[Sequence[Requirement], Meta(description="One for each --require and condition.")]
    warnings: Sequence[str] = field(default=(), metadata={"needs": "warnings"})
    server: Annotated[str, Meta(description="Which server answered, of several that may have the model.")] = (
        field(default="", metadata={"needs": "server"})
    )
    label: Annotated[str, Meta(description="What the user calls the run.")] = field(
        default="", metadata={"needs": "label"}
    )
    sees: Annotated[str, Meta(description="The prompt, and what the model was shown of an item.")] = field(
        default="", metadata={"needs": "sees"}
    )
    limits: Annotated[
        Mapping[str, str], Meta(description="What no order of the lists passes, by measure, and why.")
    ] = field(default_factory=dict, metadata={"needs": "limits"})

    def __post_init__(self) -> None:
        conditions = self.design.conditions
        lacking = [
            (condition, name)
            for name, known in self.of_conditions().items()
            for condition in conditions
            if condition not in known
        ]
        lacking += [
            (condition, "design.conditions") for condition in self.findings if condition not in conditions
        ]
        if lacking:
            raise ValueError("Condition '{}' is missing in `{}`".format(*lacking[0]))
        known = set[tuple[str, ...]]()
        for row in self.rows:
            if (named := (row.run, row.query_id, row.measure, row.condition, row.group)) in known:
                raise ValueError(f"{row.measure} of '{row.condition}' is there twice in `rows`")
            known.add(named)

    def of_conditions(self) -> Mapping[str, Collection[str]]:
        """The conditions of each field that has to have all of them."""
        return {"chains": self.chains}

    @property
    def named_model(self) -> str:
        """The label if there is one, the model, and the server."""
        return named_model(self.model, self.server, self.label)

    @property
    def short_name(self) -> str:
        """The label, or else the model with its server."""
        return self.label or self.named_model

    @property
    def calls(self) -> int:
        """The calls behind the figures."""
        return sum(condition.asked for condition in self.answers.values())

    @property
    def of_measures(self) -> dict[str, str]:
        """What has to be known to read figures, by measure."""
        return joined(self.measure_notes, self.limits)

    def unparseable(self, condition: str) -> bool:
        """Whether more answers of a condition cannot be read than the run allows, so that nothing is concluded."""
        counted = self.answers.get(condition)
        return counted is not None and counted.too_many_unparseable(self.max_invalid)

    def of_all(self) -> Iterable[Row]:
        """The rows of all queries together."""
        return (row for row in self.rows if row.query_id == "all")

    def by_condition(self) -> dict[tuple[str, str], Row]:
        """Rows of all queries by measure and condition, without those of single groups."""
        return {(row.measure, row.condition): row for row in self.of_all() if not row.group}


@dataclass(frozen=True, kw_only=True)
class PlainResults(Results):
    """What an audit found whose kind tells no more."""

    answers: Mapping[str, ProbeAnswers]

    @property
    def calls(self) -> int:
        """Those planned: how many a probe takes is its kind's own."""
        return self.design.calls


def absent_row(measure: str, condition: str) -> Row:
    """The row of what was not measured."""
    figure = dict.fromkeys(("value", "low", "high", "n", "p", "p_adjusted", "conclusion"))
    named = dict.fromkeys(("run", "dataset", "attribute", "model", "query_id", "group"), "")
    return Row(**named, **figure, measure=measure, condition=condition, reason="not_measured")  # type: ignore[arg-type]


def rows_of(tidy: Iterable[Sequence[Any]]) -> tuple[Row, ...]:
    """Tidy lines, in the order of COLUMNS, as rows."""
    return tuple(Row(**dict(zip(COLUMNS, line, strict=True))) for line in tidy)


# To JSON and back


def plain(value: Any) -> Any:
    """A value of these classes as JSON has it: objects, lists, texts and numbers."""
    if is_dataclass(value):
        return {
            name: plain(getattr(value, name))
            for name, needs in in_order(value.__class__)
            if not needs or not _lacking(getattr(value, needs))
        }
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, str) else value


def _lacking(value: Any) -> bool:
    return value is None or (isinstance(value, Sequence | Mapping) and not value)


@cache
def in_order(of: type) -> tuple[tuple[str, str | None], ...]:
    """A class's fields in the order that JSON has them, each with the field that it needs, if any."""
    found = {one.name: one for one in fields(of)}
    names = list(found)
    for one in found.values():
        if "after" in one.metadata:
            names.remove(one.name)
            names.insert(names.index(one.metadata["after"]) + 1, one.name)
    return tuple((name, found[name].metadata.get("needs")) for name in names)


def write(results: Results) -> str:
    """The text of results.json."""
    return json_text(plain(results))
