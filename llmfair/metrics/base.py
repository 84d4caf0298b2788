"""A measure is a value: `ExpRatio(agg=geometric)@20` is its name, its hash and its spelling everywhere.

Modules of this package define measures with `@measure`; `parse_measure` reads their names; `measure_all` gives one
column per measure, condition and group, which `audits.aggregates` makes figures of.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from math import exp
from typing import Any, ClassVar, Concatenate, Literal, ParamSpec, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from llmfair import registry
from llmfair.errors import LlmfairError, UsageError, did_you_mean
from llmfair.io.trec import UNKNOWN
from llmfair.nouns import Attribute, Candidates, Document, Encounter, PairVerdict, Ranking, Side, of_each_kind
from llmfair.stats.strata import Compared, Stratum

# What a measure says of one query: a number, a ratio or product with its parts, or why there is none. Parts travel
# with the value: a ratio of means is not a mean of ratios.

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
Sides = Mapping[str, Side | None]
"""The side of every document, by doc_id; None of one on neither."""
FEWEST_PAIRS = 10
"""From fewer readable pairs a query gets no ratio of its own."""


@dataclass(frozen=True, slots=True)
class Undefined:
    """No value for this query, and why; counted, and left out of every aggregate."""

    reason: str


@dataclass(frozen=True, slots=True)
class Convention:
    """A number that a query has by convention alone, and why; `counts`: it goes into figures of all queries, too."""

    value: float
    reason: str
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio with both its sides; one with a `reason` has no value, but its sides still count in a ratio of means.

    Over 0 the reason is `zero_denominator`. `controlled`: what a control variate on the initial order is made of.
    """

    numerator: float
    denominator: float
    reason: str | None = None
    controlled: tuple[ControlledExposures, ...] = ()

    def __post_init__(self) -> None:
        if self.reason is None and self.denominator == 0:
            object.__setattr__(self, "reason", "zero_denominator")

    @property
    def value(self) -> float | None:
        return None if self.reason else self.numerator / self.denominator


@dataclass(frozen=True, slots=True)
class ControlledExposures:
    """Both sides of a ratio from one initial order: in the ranking, in that order, and the order's mean.

    How far an order is above its mean for a side is how far it favoured that side: 0 on average over random orders.
    """

    final: tuple[float, float]
    initial: tuple[float, float]
    mean: float


@dataclass(frozen=True, slots=True)
class Quotient:
    """A ratio over another. `items`: how many are on the side that has fewer, which an interval takes two of."""

    ratio: Ratio
    by: Ratio
    items: int = 2

    @property
    def reason(self) -> str | None:
        return self.ratio.reason or self.by.reason

    @property
    def value(self) -> float | None:
        above, below = self.ratio.value, self.by.value
        return None if above is None or below is None else above / below


@dataclass(frozen=True, slots=True)
class Product:
    """A product with both its factors."""

    left: float
    right: float

    @property
    def value(self) -> float:
        return self.left * self.right


@dataclass(frozen=True, slots=True, eq=False)
class Formula:
    """What a measure of pairs makes of weighted counts of C things, such as the cells PP, UU, FF, SS.

    `things[a, b, c]`: how often thing c is counted in a pair with answers a and b (`JudgedPairs.answers`). `figure`
    takes cells of shape (C,), real or complex, in + − * / and log alone, so that it can be differentiated; it gives
    the value or, if `logarithmic`, its logarithm. `undefined` gives the reason why there is none. `halved` adds ½ to
    every cell where one is 0. `demanding` figures need `FEWEST_PAIRS`.
    """

    things: NDArray[np.int8]
    figure: Callable[[NDArray[Any]], Any]
    undefined: Callable[[Floats], str | None]
    logarithmic: bool = False
    halved: bool = False
    demanding: bool = False

    def __call__(self, cells: NDArray[Any]) -> Any:
        return self.figure(cells + 0.5 if self.adds_half(cells) else cells)

    def adds_half(self, cells: NDArray[Any]) -> bool:
        return self.halved and not cells.real.all()


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """A query's pairs as a measure counts them: one row of `counts`, shape (n, C), for each verdict.

    A row of zeros does not count. A pair asked `repeats` times has as many verdicts, each of weight 1/repeats.
    """

    formula: Formula
    verdicts: tuple[PairVerdict, ...]
    counts: NDArray[np.int8]
    readable: int
    consistent: int
    repeats: int = 1

    @property
    def cells(self) -> Floats:
        cells: Floats = self.counts.sum(axis=0) / self.repeats
        return cells

    @property
    def reason(self) -> str | None:
        """Why there is no value, or what was done to have one (`half_added`)."""
        return self._missing or ("half_added" if self.formula.adds_half(self.cells) else None)

    @property
    def value(self) -> float | None:
        if self._missing:
            return None
        figure = float(self.formula(self.cells))
        return exp(figure) if self.formula.logarithmic else figure

    @property
    def _missing(self) -> str | None:
        few = self.formula.demanding and self.readable < FEWEST_PAIRS * self.repeats
        return self.formula.undefined(self.cells) or ("too_few_pairs" if few else None)


@dataclass(frozen=True, slots=True, eq=False)
class QueryComparisons:
    """Who was ahead among a query's items of equal grade; items are places in `doc_ids`. A query has no odds alone.

    `stratum` and `contrast`, numbers of two groups of several: of which the odds are meant; twice the same, of that
    group against the mean of all. `tied`: the share of
    comparisons that neither was ahead in.
    """

    outcomes: Compared
    doc_ids: Sequence[str]
    stratum: Stratum | None = None
    tied: float = 0.0
    contrast: tuple[int, int] | None = None

    @property
    def ahead(self) -> float:
        """The share of the comparisons that the first was ahead in."""
        return float(np.concatenate([part.ahead for part in self.outcomes.parts()]).mean())


@dataclass(frozen=True, slots=True, eq=False)
class Got:
    """What a query's items got, such as a place among the first: arrays of shape (n,), in the order of `doc_ids`.

    `amount`: NaN of an item of which it is not known. `groups`: who is in which; `reference`: the group that others
    are held against, if one is fixed. `weights`: what each rank gives, falling, where an order decides all.
    """

    doc_ids: Sequence[str]
    groups: Mapping[str, Flags]
    amount: Floats
    grades: NDArray[np.int64]
    reference: str = ""
    weights: Floats | None = None


@dataclass(frozen=True, slots=True)
class OfGroup:
    """A group's part in what a query's items got: people are pooled over queries, and a ratio needs all groups, so a
    query has no figure alone. Of all groups together where `group` is empty."""

    got: Got
    group: str = ""


Value = float | Ratio | Quotient | Product | Tally | QueryComparisons | OfGroup | Convention | Undefined
ByGroup = Mapping[str, Value]
Values = Value | ByGroup
"""What a measure gives of one query: a value, or one by group, none of a group that it has nothing to say of."""


LONGEST_LIST = 1_000_000
"""The highest rank that a cutoff or a parameter speaks of."""
CONTROLLED = "(control=order)"
"""The parameter of a headline from random orders; tables leave it out of their headings."""
POOLED = "(agg=pooled)"
"""The parameter of runs whose pairs weigh alike; said once below the table."""


def plain_name(measure: str, *unsaid: str) -> str:
    """A measure's name without what tables say once below: `unsaid`, or else all that there is of it."""
    for params in unsaid or (CONTROLLED, POOLED):
        measure = measure.replace(params, "")
    return measure


def kept(ranking_ids: Sequence[str], candidate_ids: Collection[str]) -> tuple[str, ...]:
    """What a ranking says about the candidates: other ids dropped, of repeated ids the first stays."""
    candidates = set(candidate_ids)
    return tuple(doc_id for doc_id in dict.fromkeys(ranking_ids) if doc_id in candidates)


def complete(ranking_ids: Sequence[str], candidate_ids: Sequence[str]) -> tuple[str, ...]:
    """The list that is measured: what the ranking kept, then the absent candidates in order [RankGPT]."""
    return tuple(dict.fromkeys((*kept(ranking_ids, candidate_ids), *candidate_ids)))


@dataclass(frozen=True)
class Groups:
    """Who belongs to which groups: the audit's attribute, all attributes by name, every listed document by id.

    Nothing is known of a document absent from `documents`. Where the relevant ones are too many to hold, `relevant`
    has, by query_id, documents that stand for them (one per combination of groups) and how many each stands for.
    """

    attribute: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    documents: Mapping[str, Document] = field(default_factory=dict)
    relevant: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @cached_property
    def of_documents(self) -> Mapping[str, set[str]]:
        """The known groups that documents have, by attribute."""
        groups = defaultdict[str, set[str]](set)
        for document in of_each_kind(self.documents):
            for attribute, names in document.groups.items():
                groups[attribute] |= {*names} - {UNKNOWN}
        return groups


class Observation(Protocol):
    """What a measure reads of one query; any dataclass may be one. `about` says what of, in a word: lists, pairs."""

    about: ClassVar[str]

    @property
    def query_id(self) -> str: ...


@dataclass(frozen=True)
class Judged:
    """A query whose list was ranked: its candidates, the runs of it, and the side of every document that has one.

    Of an attribute with several contrasts the sides are those of one, `contrast`; `members` has the group of every
    document, and `names` all groups that are compared. Else the groups are the sides.

    `rankings`: the query's orders and repeats, none where it was not ranked. `beside`: for each of them the ranking it
    is held against, where there is one: its initial order, or what another prompt made of that order. `runs` numbers
    their initial orders and the repeats of these. `encounters`: what the answers say of items shown side by side; None
    where nothing was asked, or answers are not known. `missing`: items judged for the query that are no candidates,
    since a ranking whose list nobody knows was cut before them. `log_weights`: the rankings' scores are log-weights of
    a Plackett-Luce model. `candidates.relevance` is empty when the query has no judgement at all.
    """

    about: ClassVar[str] = "lists"

    candidates: Candidates
    rankings: tuple[Ranking, ...]
    sides: Sides
    log_weights: bool = False
    groups: Groups = field(default_factory=Groups)
    beside: tuple[Ranking, ...] = ()
    runs: tuple[tuple[int, int], ...] = ()
    encounters: tuple[Encounter, ...] | None = None
    missing: tuple[str, ...] = ()
    members: Mapping[str, str | None] | None = None
    names: tuple[str, ...] = tuple(Side)
    contrast: tuple[str, str] | None = None

    @property
    def query_id(self) -> str:
        return self.candidates.query.query_id

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """What measures share, and in one fit the same query in other contrasts: see `once`."""
        return {}

    def between(self, attribute: Attribute, contrast: str, sides_of: Mapping[str, Sides]) -> Judged:
        """The query with its items on the sides of a contrast of the attribute's groups; itself where there is none."""
        if not contrast:
            return self
        first, second = (attribute.contrasts[contrast].words[side] for side in Side)
        pair = (first, second) if attribute.one_fit else None  # their odds are read from a model of all
        view = replace(self, sides=sides_of[contrast], contrast=pair)
        if view.one_fit:
            vars(view).update((name, getattr(self, name)) for name in WHATEVER_CONTRAST)
        return view

    @property
    def one_fit(self) -> bool:
        """Whether the contrast is read from one fit of all groups."""
        return self.members is not None and self.contrast is not None and len(self.names) > 2

    @cached_property
    def groups_of(self) -> Mapping[str, Flags]:
        """Which candidates are in each group that is compared, shape (n,): every group of `names`, in their order."""
        member = self.sides if self.members is None else self.members
        groups = [member.get(doc_id) for doc_id in self.doc_ids]
        return {name: np.array([group == name for group in groups], dtype=bool) for name in self.names}

    @cached_property
    def doc_ids(self) -> tuple[str, ...]:
        return self.candidates.doc_ids

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where each candidate stands in `doc_ids`."""
        return {doc_id: place for place, doc_id in enumerate(self.doc_ids)}

    @cached_property
    def orders(self) -> tuple[Places, ...]:
        """The completed lists, one per run: places of the candidates in `doc_ids`, best first; shape (n,)."""
        return self.completed(self.rankings)

    def completed(self, rankings: Sequence[Ranking]) -> tuple[Places, ...]:
        """The same of other rankings of the candidates."""
        return tuple(
            np.array([self.places[doc_id] for doc_id in complete(ranking.doc_ids, self.doc_ids)], np.intp)
            for ranking in rankings
        )

    @cached_property
    def grades(self) -> NDArray[np.int64]:
        """Relevance of every candidate, absent = 0; shape (n,)."""
        return np.array(self.candidates.grades, dtype=np.int64)

    @cached_property
    def on_side(self) -> Mapping[Side | None, Flags]:
        """Which candidates are on each side (None: on neither); shape (n,)."""
        sides = [self.sides.get(doc_id) for doc_id in self.doc_ids]
        return {of: np.array([side == of for side in sides], dtype=bool) for of in (*Side, None)}


WHATEVER_CONTRAST = ("memo", "groups_of", "doc_ids", "places", "orders", "grades")
"""What one fit of all groups needs of a query once."""
Made = TypeVar("Made")
Also = ParamSpec("Also")


def once(make: Callable[Concatenate[Judged, Also], Made]) -> Callable[Concatenate[Judged, Also], Made]:
    """Makes what hangs on a query's rankings, and on arguments in their order, arrays among them, but once."""

    @wraps(make)
    def made(judged: Judged, /, *also: Also.args, **named: Also.kwargs) -> Made:
        key = make, *(each.tobytes() if isinstance(each, np.ndarray) else each for each in also)
        if key not in judged.memo:
            judged.memo[key] = make(judged, *also, **named)
        value: Made = judged.memo[key]
        return value

    return made


Argument = str | int | float | None


@dataclass(frozen=True, slots=True)
class Free:
    """A parameter that takes more than a list of words: a number, a name, a path.

    `read` gives the value of a text, whose `str` is the canonical spelling, or raises ValueError; `says` tells what it
    can be. An error suggests the nearest of `words`. `required`: its default has to be written.
    """

    default: Argument
    read: Callable[[str], Argument]
    says: str
    words: tuple[str, ...] = ()
    required: bool = False


def number(default: float, low: float, high: float, ends: bool = True) -> Free:
    """A number from `low` to `high`, or without its `ends` between them."""

    def read(text: str) -> float:
        value = float(text)
        inside = low <= value <= high if ends else low < value < high
        if not (inside and text.isascii() and "_" not in text):
            raise ValueError(text)
        return value

    between = f"from {low:g} to {high:g}" if ends else f"above {low:g} and below {high:g}"
    return Free(default, read, f"a number {between}")


def whole(default: int | None, high: int, least: int = 1) -> Free:
    """A whole number from `least` to `high`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= high):
            raise ValueError(text)
        return int(text)

    return Free(default, read, f"a whole number from {least} to {high:,}")


WHOLE_NUMBER = whole(None, LONGEST_LIST)
Allowed = tuple[str, ...] | Free | None
"""A parameter's words, the first the default (a lone one must be written); Free; or None: a whole number from 1."""
Declared = Mapping[str, Allowed]
BARE = r"[^\s,'\"{}()=]+"
_ASSIGNMENT = re.compile(rf"\s*(\w+)\s*=\s*(\{{[^{{}}]*\}}|'[^']*'|\"[^\"]*\"|{BARE})\s*(?:,|$)")


def reader_of(allowed: Allowed) -> Free:
    """How a parameter that takes these is read."""
    if not isinstance(allowed, tuple):
        return allowed or WHOLE_NUMBER
    says, alone = f"one of: {', '.join(allowed)}", len(allowed) == 1
    return Free(allowed[0], lambda text: allowed[allowed.index(text)], says, allowed, required=alone)


def read_argument(what: str, text: str, free: Free) -> Argument:
    """The value of a parameter's text. Raises UsageError that says what it can be."""
    try:
        return free.read(text)
    except ValueError:
        nearest = did_you_mean(text, free.words)
        raise UsageError(f"{what} cannot be '{text}'.{nearest}", f"it is {free.says}") from None


def assignments(text: str) -> dict[str, str] | None:
    """The texts of `key=value,…` by key, as measures have them; None of anything else.

    A value stands bare, in quotes, or in braces; each key once. This is the grammar of ir_measures.
    """
    written = dict[str, str]()
    while text.strip():
        match = _ASSIGNMENT.match(text)
        if match is None or match[1] in written:
            return None
        written[match[1]] = match[2].strip("'\"")
        text = text[match.end() :]
    return written


def between_commas(text: str) -> list[str]:
    """The parts of a text between its commas, but for those in brackets."""
    parts, depth = [""], 0
    for character in text:
        depth = max(0, depth + {"(": 1, ")": -1}.get(character, 0))
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def read_arguments(name: str, written: Mapping[str, str], readers: Mapping[str, Free]) -> dict[str, Any]:
    """The value of every parameter of what is called so, those written over the defaults. Raises UsageError."""
    values = {param: free.default for param, free in readers.items()}
    for param, text in sorted(written.items()):
        if param not in readers:
            raise unknown_param(name, param, readers)
        values[param] = read_argument(f"{name}: {param}", text, readers[param])
    return values


def read_parameters(name: str, text: str, declared: Declared) -> dict[str, Any]:
    """The same of what stands behind a name, as in `fair-star:p=0.3,alpha=0.15`; a value may be any text, a path say.

    Raises UsageError.
    """
    readers = {param: reader_of(allowed) for param, allowed in declared.items()}
    written = dict[str, str]()
    for part in between_commas(text) if text else ():
        param, _, value = map(str.strip, part.partition("="))
        if not value or param in written:
            example = spelled({param: free.default for param, free in readers.items()}, ",")
            raise UsageError(f"{name}: '{text}' is not key=value.", f"for example {name}:{example}")
        written[param] = value
    return read_arguments(name, written, readers)


def unknown_param(name: str, param: str, names: Collection[str]) -> UsageError:
    """The error for a parameter that nothing of this name has."""
    return UsageError(
        f"{name} has no parameter '{param}'.{did_you_mean(param, names)}",
        f"its parameters: {', '.join(sorted(names)) or 'none'}",
    )


def spelled(parameters: Mapping[str, Any], between: str = " ") -> str:
    """Every parameter with its value."""
    return between.join(f"{name}={value}" for name, value in parameters.items())


@dataclass(frozen=True)
class Definition:
    """What a measure declares of itself; reports, tables and plots ask this and never the measure's name.

    `values(observation, cutoff, **params)` gives one Value per group, the group being "" when there is none, of an
    observation of the type that it `reads`. `aggregate`: what makes a figure of all queries' values, unless a parameter
    `agg` names another. `label` is its name in words, which tables call it by where it is `worded`; `labels` are those
    of parameters' values. `implies` maps a parameter's value to another parameter's. `note` is what every table must
    say of the figure, its parameters in braces. `of_all`: only the figure of all queries together means something,
    always or with this value of a parameter. `agreement`: a ranking is compared with the one beside it. `bounds`: no
    value and no interval lies beyond them; the upper one holds unless the parameter `lifted_by` is given. `headline`:
    conclusions and comparisons speak of this one before others of its direction. `assessed_by`: the measure whose
    conclusion says whether this one can be assessed. `reach`: the measure whose attainable range bounds this one,
    without a cutoff and with no parameters but those named after it. `shows`: what a report makes of this figure alone.
    `of_lists(judged, cutoff)` makes what it reads of a list that was ranked several times. `undefined` has words for
    its reasons of having no value. `says` is what it is in a sentence, where no docstring of `values` tells.
    """

    name: str
    values: Callable[..., ByGroup]
    reads: type[Observation] = Judged
    params: Mapping[str, Allowed] = field(default_factory=dict)
    implies: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    cutoff: Literal["none", "optional", "required"] = "optional"
    parity: float | None = None
    scale: Literal["log", "linear"] = "linear"
    bounds: tuple[float, float] = (-math.inf, math.inf)
    lifted_by: str = ""
    better: Literal["higher", "lower", "parity"] | None = None
    aggregate: str = "mean"
    label: str = ""
    labels: Mapping[Argument, str] = field(default_factory=dict)
    note: str = ""
    of_all: bool | tuple[str, Argument] = False
    agreement: bool = False
    headline: bool = False
    assessed_by: str = ""
    reach: tuple[str, ...] = ()
    worded: bool = False
    shows: str = ""
    undefined: Mapping[str, str] = field(default_factory=dict)
    cite: str = ""
    says: str = ""
    of_lists: Callable[[Judged, int], Observation] | None = None

    @cached_property
    def parameters(self) -> Mapping[str, Free]:
        """How each parameter is read."""
        return {name: reader_of(allowed) for name, allowed in self.params.items()}

    def measure(self, written: Mapping[str, str], cutoff: str | None) -> Measure:
        """The measure with these parameters and this cutoff, as they are written. Raises UsageError."""
        values, readers = read_arguments(self.name, written, self.parameters), self.parameters
        checked = {
            param: str(values[param])
            for param in sorted(written)
            if readers[param].required or values[param] != readers[param].default
        }
        for (param, text), (other, implied) in self.implies.items():
            if written.get(param) == text:
                checked.pop(other, None)
                if written.get(other, implied) != implied:
                    raise UsageError(
                        f"{self.name}: {param}={text} contradicts {other}={written[other]}.",
                        f"{param}={text} implies {other}={implied}",
                    )
        for param, free in readers.items():
            if free.required and param not in written:
                needed = f"{param}={free.default}"
                raise UsageError(
                    f"{self.name}({','.join(sorted(written))}=…) needs {needed}.",
                    f"write {self.name}({needed},…)",
                )
        if cutoff is None and self.cutoff == "required":
            raise UsageError(f"{self.name} needs a cutoff.", f"write {self.name}@20")
        if cutoff is not None and self.cutoff == "none":
            raise UsageError(f"{self.name} takes no cutoff.", f"write it without @{cutoff}")
        at = None if cutoff is None else read_argument(f"{self.name}: the cutoff", cutoff, WHOLE_NUMBER)
        return Measure(self.name, tuple(checked.items()), cast("int | None", at), self)

    def for_lists(self) -> Definition:
        """The same measure of ranked lists, whose few orders may tell less than nothing; itself where it is none."""
        if (make := self.of_lists) is None:
            return self

        def of_judged(judged: Judged, cutoff: int, **params: Any) -> ByGroup:
            return self.values(make(judged, cutoff), None, **params)

        bounds = (-math.inf, math.inf)
        return replace(self, reads=Judged, cutoff="required", values=of_judged, bounds=bounds, of_lists=None)


def measure(name: str, **declared: Any) -> Callable[[Callable[..., Values]], Definition]:
    """Defines a measure by the function of its values, or of its value; `declared` are fields of its Definition."""

    def define(values: Callable[..., Values]) -> Definition:
        @wraps(values)
        def by_group(*args: Any, **params: Any) -> ByGroup:
            value = values(*args, **params)
            return value if isinstance(value, Mapping) else {"": value}

        return registry.register("measure", name)(Definition(name, by_group, **{"label": name, **declared}))

    return define


@dataclass(frozen=True)
class Measure:
    """A measure with its parameters (those not at their default, sorted) and cutoff: see `parse_measure`."""

    name: str
    params: tuple[tuple[str, str], ...]
    cutoff: float | None
    definition: Definition = field(compare=False, repr=False)

    def __str__(self) -> str:
        params = spelled({name: _quoted(value) for name, value in self.params}, ",")
        cutoff = "" if self.cutoff is None else f"@{self.cutoff}"
        return f"{self.name}({params}){cutoff}" if params else f"{self.name}{cutoff}"

    @cached_property
    def arguments(self) -> dict[str, Argument]:
        """Every declared parameter with its value, defaults and what others imply filled in."""
        written = dict(self.params)
        filled = {
            name: free.read(written[name]) if name in written else free.default
            for name, free in self.definition.parameters.items()
        }
        for (name, value), (other, implied) in self.definition.implies.items():
            if filled[name] == value:
                filled[other] = implied
        return filled

    @property
    def bounds(self) -> tuple[float, float]:
        """What no value lies beyond."""
        least, most = self.definition.bounds
        return least, most if self.arguments.get(self.definition.lifted_by) is None else math.inf

    @property
    def aggregate(self) -> str:
        """How the queries' values become one: the parameter `agg` where there is one."""
        return str(self.arguments.get("agg", self.definition.aggregate))

    @property
    def label(self) -> str:
        """What it is called in words, with how pairs weigh where that is not alike by query, and of which items."""
        named = (self.definition.labels.get(value) for value in self.arguments.values())
        label = next(filter(None, named), self.definition.label)
        items = "" if self.of_all_items else f" ({self.arguments['stratum']} items)"
        return "pooled " * str(self).endswith(POOLED) + label + items

    @property
    def of_all_items(self) -> bool:
        """Whether it is of no stratum of relevance alone."""
        return self.arguments.get("stratum", "none") == "none"

    @property
    def note(self) -> str:
        """What a table must say of the figure, or nothing."""
        return self.definition.note.format_map(self.arguments)

    @property
    def of_all(self) -> bool:
        """Whether the values of single queries are but parts of the figure of all."""
        declared = self.definition.of_all
        return declared if isinstance(declared, bool) else self.arguments[declared[0]] == declared[1]

    @property
    def reach(self) -> str:
        """The measure whose attainable range bounds this one, or nothing."""
        bounding, *free = self.definition.reach or ("",)
        return bounding if self.cutoff is None and dict(self.params).keys() <= {*free} else ""

    def values(self, observation: Observation) -> ByGroup:
        """The measure of one query, by group; no group where the query lacks what it needs."""
        return self.definition.values(observation, self.cutoff, **self.arguments)


def _quoted(value: str) -> str:
    if re.fullmatch(rf"{BARE}|\{{[^{{}}]*\}}", value):
        return value
    return f'"{value}"' if "'" in value else f"'{value}'"


@dataclass(frozen=True, slots=True)
class Column:
    """A measure's values under one condition, of one group ("" for none), by query_id (sorted); `contrast`: of the two
    groups that are compared, of several that are."""

    measure: Measure
    condition: str
    group: str
    values: ByGroup
    contrast: str = ""


def measure_all(measures: Sequence[Measure], observed: Mapping[str, Sequence[Observation]]) -> list[Column]:
    """Every measure of every query, in the order given, groups as measures name them. Raises as `measure_each` does."""
    return measure_each(measures, ((name, query) for name, queries in observed.items() for query in queries))


def measure_each(measures: Sequence[Measure], observed: Iterable[tuple[str, Observation]]) -> list[Column]:
    """The same of queries that come one by one, each with its condition; none is held longer than it is measured.

    Raises LlmfairError naming measure and query where a measure breaks off or its value is not finite.
    """
    columns: dict[Measure, dict[str, dict[str, dict[str, Value]]]] = {measure: {} for measure in measures}
    for condition, query in observed:
        for measure, by_condition in columns.items():
            groups = by_condition.setdefault(condition, {})
            for group, value in _values(measure, query).items():
                groups.setdefault(group, {})[query.query_id] = value
    return [
        Column(measure, condition, group, dict(sorted(values.items())))
        for measure, by_condition in columns.items()
        for condition, groups in by_condition.items()
        for group, values in groups.items()
    ]


def _values(measure: Measure, query: Observation) -> ByGroup:
    try:
        values = measure.values(query)
        for value in values.values():
            number = value if isinstance(value, float) else getattr(value, "value", None)
            if number is not None and not math.isfinite(number):
                raise ValueError(f"{number} is not finite")
        return values
    except LlmfairError:
        raise
    except Exception as error:  # of somebody's own measure; what was asked is kept
        raise LlmfairError(
            f"{measure} of query {query.query_id} breaks off: {type(error).__name__}: {error}.",
            "-v shows where; once it is mended the same command measures the answers that are there",
        ) from error
