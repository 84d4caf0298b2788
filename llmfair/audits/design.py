"""Everything an audit asks of one subject, known before anything is asked, whatever its kind."""

from __future__ import annotations

import json
import platform
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, get_type_hints

from msgspec import structs

import llmfair
from llmfair import registry
from llmfair import results as typed
from llmfair.asking.dispatch import Program
from llmfair.asking.limits import Progress
from llmfair.audits import lists
from llmfair.audits.aggregates import ALL, Inference, summarise, undefined_counts
from llmfair.audits.commands import plan_of, training_of, ways_of
from llmfair.audits.gates import Gate, GatedFigures, always_held, aside_of, check_gates, read_gates
from llmfair.audits.subject import Subject
from llmfair.backends.base import Backend
from llmfair.datasets.base import Dataset, cells
from llmfair.errors import LlmfairError, UsageError
from llmfair.io.files import SCHEMA, json_text, plain, read_lines
from llmfair.metrics.base import Column, Groups, Measure, Observation, Sides, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.nouns import Attribute, Document, Failure, Measurement, Query, Side, is_of, picked
from llmfair.prompts import Prompt
from llmfair.results import PlainResults, Results
from llmfair.rundir import Contents, csv_lines, csv_text, with_factors
from llmfair.settings.commands import AuditSettings
from llmfair.settings.declaration import band_of
from llmfair.stats.intervals import FEWEST_QUERIES


@dataclass(frozen=True)
class Condition:
    """What is compared within an audit: a prompt, a stratum of pairs, a retriever and its temperature; each of
    `factors` has a column of its own in the CSV files."""

    name: str
    factors: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """A further part of an audit: programs made from the results before them, with a model and a journal (`NAME.jsonl`)
    of their own. `said`: what a run says of it, by all results.

    The model is made when it is wanted: a run is replayed without it.
    """

    name: str
    programs: Callable[[Mapping[str, Any]], Iterator[Program]]
    make: Callable[[], Backend]
    said: Callable[[Mapping[str, Any]], str] = lambda results: ""

    @cached_property
    def backend(self) -> Backend:
        """What answers. Raises UsageError."""
        return self.make()


T = TypeVar("T")
R = TypeVar("R", bound=Results)
CHARACTERS_PER_TOKEN = 4
TEXTS, RESULTS = "texts.jsonl", "results.json"
NOBODY = Subject("")


@dataclass(frozen=True)
class Outcome:
    """What a run found: results, and every file by name."""

    results: Results
    files: Mapping[str, Contents]

    def broken_off(self) -> Outcome:
        """The same of a run that lacks answers, whichever stage they are of."""
        results = judged(structs.replace(self.results, status="incomplete"))
        return replace(self, results=results, files={**self.files, RESULTS: json_text(results)})


@dataclass(frozen=True, kw_only=True)
class Design(ABC, Generic[T]):
    """An audit made but not begun: what it asks, and what the answers come to; T is what one program returns. `shown`
    are the measures of the table, `measures` all that are computed."""

    task: ClassVar[str]
    settings: AuditSettings
    subject: Subject = NOBODY
    dataset: Dataset
    attribute: Attribute
    queries: tuple[Query, ...]
    measures: tuple[Measure, ...]
    shown: tuple[Measure, ...]
    gates: tuple[Gate, ...] = ()
    prompt: Prompt | None = None
    warnings: tuple[str, ...] = field(default=())

    usual: ClassVar[str]
    """The measures of its table where none are asked for, of a kind that is made by `make`."""
    held_against: ClassVar[Sequence[str]] = ()
    """Conditions that nobody is asked under, but figures and gates speak of."""

    @classmethod
    def make(cls, settings: Any, subject: Subject = NOBODY) -> Self:
        """The design of the lists and the queries that the settings name. Raises UsageError."""
        dataset, attribute = lists.load_lists(settings)
        return cls.measuring(
            cls.usual, settings=settings, subject=subject, dataset=dataset, attribute=attribute,
            queries=tuple(lists.selected_queries(dataset, settings)),
        )  # fmt: skip

    @classmethod
    def measuring(cls, shown: str, measured: str = "", concluded: str = "", **asked: Any) -> Self:
        """The design of these fields, with the gates and the measures of its settings. Raises UsageError.

        Where these name none, those `shown` are in the table; `measured` and always `concluded` are computed, too.
        """
        if not cls.several_groups:
            lists.check_two_groups(asked["attribute"], cls.task)
        settings, reads = asked["settings"], registry.lookup("audit", cls.task).measure.reads
        if settings.measures is not None:
            shown = measured = settings.measures
        design = cls(**asked, shown=parse_measures(shown, reads), measures=())
        names = [*design.condition_names, *cls.held_against]
        gates = read_gates(settings.require, names, reads, [*filter(None, design.attribute.contrasts)])
        every = ",".join((measured or shown, *(gate.measure for gate in gates), concluded))
        return replace(design, measures=parse_measures(every, reads), gates=gates)

    # What is asked

    @property
    @abstractmethod
    def conditions(self) -> Sequence[Condition]:
        """What is compared, in the order of tables."""

    @property
    def condition_names(self) -> list[str]:
        """The same by name."""
        return [condition.name for condition in self.conditions]

    @property
    def calls(self) -> int:
        """Requests planned in all stages, or the most there can be: one a program, unless a kind knows more."""
        return sum(1 for _ in self.programs())

    @property
    def longest(self) -> int:
        """Requests of the longest chain, one after the other: the critical path."""
        return min(1, self.calls)

    @property
    def assessable(self) -> int:
        """How many queries the headline can be read from."""
        return len(self.queries)

    @property
    def stops(self) -> bool:
        """Whether it ends early, as it was asked to: before any further stage, or before that."""
        return False

    several_groups: ClassVar[bool] = False
    """Whether it compares any number of groups, not protected with unprotected ones alone."""
    two_groups: ClassVar[bool] = True
    """Whether the protected group is compared with the reference, so that items of neither are not."""
    why_not_assessable: ClassVar[str] = ""
    """Why some cannot."""

    @abstractmethod
    def programs(self) -> Iterator[Program]:
        """What is dispatched, in this order; the same programs every time it is asked."""

    def watched_by(self, progress: Progress) -> None:
        """Told before its programs are asked: who hears of pauses that they make themselves."""

    def once_each(self, programs: Iterable[Program], taken: dict[str, None]) -> Iterator[Program]:
        """Programs as they come, their names in `taken`. Raises LlmfairError for a name twice, or no such condition."""
        conditions = {"", *self.condition_names}
        for program in programs:
            name, condition = program.probe_id, program.condition
            if name in taken:
                raise LlmfairError(f"two programs of {self.task} are called {name}.")
            if condition not in conditions:
                raise LlmfairError(f"{name} is of '{condition}', no condition of {self.task}.")
            taken[program.probe_id] = None
            yield program

    def backend(self) -> Backend:
        """What answers the chats. Raises UsageError."""
        return self.subject.backend(self.settings)

    def stages(self) -> Sequence[Stage]:
        """What is asked once `programs` have their results, stage after stage; probe ids are those of one run."""
        return ()

    def tokens(self) -> tuple[int, int] | None:
        """About how many tokens all prompts and all answers have; None where nobody counts them."""
        return None

    # What names it

    def identity(self) -> dict[str, Any]:
        """All settings that can change a result, for the folder's name and against mixing runs."""
        return {
            **self.settings.of_result(),
            **lists.lists_identity(self.dataset, self.attribute, self.queries),
            **({"prompt_sha256": self.prompt.sha256} if self.prompt else {}),
        }

    def name_parts(self) -> tuple[str, ...]:
        """Words of the folder's name."""
        return lists.name_parts(self.dataset, self.attribute)

    def describe(self) -> dict[str, Any]:
        """What the manifest says of the design, beside the settings."""
        settings, prompt = self.settings, self.prompt
        asked = {} if prompt is None else {"sha256": prompt.sha256, "text": prompt.text}
        return {
            "task": self.task,
            "flags": {key: value for key, value in settings.written().items() if not isinstance(value, Path)},
            "dataset": self.dataset.name,
            "lists": {**self.dataset.describe(), "cells": self.cells()},
            **({"prompt": {"file": getattr(settings, "prompt", prompt.id), **asked}} if prompt else {}),
            "warnings": list(self.warnings),
        }

    def cells(self) -> dict[str, dict[str, int]]:
        """How many documents of each query are relevant or not, by group."""
        every = map(self.dataset.candidates, self.queries)
        return {listed.query.query_id: cells(listed, self.attribute) for listed in every}

    def facts(self) -> typed.DesignFacts:
        """What results say of the design; of several groups with their contrasts, and how many items each has."""
        of_groups = dict[str, Any]()
        if self.attribute.groups:
            counts = lists.group_counts(self.attribute, self.candidates())
            of_groups = {"contrasts": [*self.attribute.contrasts], **counts._asdict()}
        return typed.DesignFacts(
            **of_groups,
            preset=self.settings.preset_name(),
            queries=len(self.queries),
            drawn=lists.drawn_of(self.dataset, self.settings),
            conditions=self.condition_names,
            factors={each.name: each.factors for each in self.conditions if each.factors},
            calls=self.calls,
            seed=self.settings.seed,
        )

    @property
    def reach(self) -> Mapping[str, typed.Reach]:
        """What rankers could make of figures at most, by measure, whatever the model; nothing where nobody knows."""
        return {}

    def planned(self) -> dict[str, Any]:
        """What is told before the first question."""
        return {"calls": self.calls, "design": self.facts(), "reach": self.reach}

    def plan(self, models: int) -> dict[str, Any]:
        """What a plan for so many models tells of this kind alone; calls, tokens and time are told of every kind."""
        return {"queries": len(self.queries), "design": plain(self.facts())}

    @property
    def remarks(self) -> Sequence[str]:
        """What else a plan says: what makes the audit doubtful, unless a kind knows more."""
        return self.warnings

    def findable(self, settings: Any) -> Any:
        """What the audit can find, by the settings of a plan; None where nobody knows."""
        return None

    # What comes back

    def unparseable(self, result: T) -> int:
        """How many answers behind a program's result cannot be read."""
        return int(result is None)

    def outcome(self, run: str, results: Mapping[str, T], failures: Sequence[Failure]) -> Outcome:
        """What the programs' results, by probe_id, come to; the same for the same results, whoever ran it when."""
        columns, settings = measure_all(self.measures, self.observe(results)), self.settings
        chains, answers = self.counts(results)
        shared = self.told(run, chains, failures, columns)
        document = self.resulting(PlainResults, shared, answers, self.findings(columns))
        rows = summarise(columns, Inference(settings.level, settings.ci, settings.seed))
        return self.laid_out(document, rows, self.files(results), failures)

    def resulting(
        self, of: type[R], told: Mapping[str, Any], answers: Mapping[str, typed.AnswerCounts],
        findings: Mapping[str, typed.Finding], **further: Any,
    ) -> R:  # fmt: skip
        """Results of this class; calls planned are those made where it is complete, since a plan counts the most."""
        readable = typed.as_readable(findings, answers, self.settings.max_invalid)
        further = {"reach": {}, "family": typed.Family(0, None), **further}
        results = of(**told, answers=answers, findings=readable, **further)
        if results.status == "incomplete":
            return results
        return structs.replace(results, design=structs.replace(results.design, calls=results.calls))

    def counts(
        self, results: Mapping[str, T]
    ) -> tuple[dict[str, typed.ProbeCounts], dict[str, typed.ProbeAnswers]]:
        """By condition, how many programs there are and came to an end; and how many of these could not be read."""
        planned, ended, unparseable = Counter[str](), Counter[str](), Counter[str]()
        before = dict[str, Any]()
        for programs in (lambda results: self.programs(), *(stage.programs for stage in self.stages())):
            for program in programs({**before}):
                planned[program.condition] += 1
                if program.probe_id in results:
                    before[program.probe_id] = result = results[program.probe_id]
                    ended[program.condition] += 1
                    unparseable[program.condition] += self.unparseable(result) > 0
        names = self.condition_names
        chains = {name: typed.ProbeCounts(planned[name], ended[name]) for name in names}
        read = {name: typed.ProbeAnswers(probes=ended[name], unparseable=unparseable[name]) for name in names}
        return chains, read

    def rows(self, results: Mapping[str, T]) -> Iterable[Any]:
        """The rows of a kind whose `Measuring` has a class of them: the programs' results that could be read."""
        ended = (results.get(program.probe_id) for program in self.programs())
        return (row for row in ended if row is not None)

    def observe(self, results: Mapping[str, T]) -> Mapping[str, Sequence[Observation]]:
        """What measures read, by condition, one for each query that has results."""
        reads = registry.lookup("audit", self.task).measure.reads
        return observed(self.rows(results), self.condition_names, reads)

    def findings(self, columns: Sequence[Column]) -> Mapping[str, typed.Finding]:
        """What is concluded of each condition's headline; {} where nothing is."""
        return {}

    def files(self, results: Mapping[str, T]) -> Mapping[str, str]:
        """The files of this kind alone: what its figures can be measured from again."""
        if (row := registry.lookup("audit", self.task).measure.row) is None:
            return {}
        columns = tuple(get_type_hints(row))
        return {f"{self.task}.csv": csv_text(columns, typed.lines_of(self.rows(results), columns))}

    def told(
        self,
        run: str,
        chains: Mapping[str, typed.ProbeCounts],
        failures: Sequence[Failure],
        columns: Sequence[Column],
    ) -> dict[str, Any]:
        """The part of results that is told alike of every kind."""
        settings = self.settings
        return {
            "status": "complete" if all(e.ranked == e.asked for e in chains.values()) and not failures
            else "incomplete",
            "schema": SCHEMA,
            "task": self.task,
            "run": run,
            "dataset": self.dataset.name,
            "attribute": self.attribute.name,
            "model": self.subject.label,
            "words": typed.Words(
                *("" if self.attribute.groups else self.attribute.words.get(side, "") for side in Side)
            ),
            "level": settings.level,
            "band": band_of(settings.band),
            "max_invalid": settings.max_invalid,
            "shown": [str(measure) for measure in self.shown],
            **of_measures(self.measures),
            "design": self.facts(),
            "chains": chains,
            "failures": dict(sorted(Counter(failure.failure for failure in failures).items())),
            "undefined": undefined_counts(columns),
            "rows": (),
            "requirements": (),
        }  # fmt: skip

    def laid_out(
        self, results: Results, rows: Sequence[Measurement], files: Mapping[str, Contents],
        failures: Sequence[Failure], *, queries: Iterable[Query] | None = None,
        documents: Iterable[Document] | None = None, where: str = "on these lists",
    ) -> Outcome:  # fmt: skip
        """Results with their rows and gates, and every file of the run folder but the manifest and the journal.

        `queries` and `documents` are those that were asked about (all, unless said), whose texts a report shows;
        `where` says of which setting a gate speaks that no ranker could fail.
        """
        named = picked(results, ("run", "dataset", "attribute", "model"))
        tidy = typed.rows_of(rows, named, results.words if self.two_groups else None)
        of_all = [row for row in tidy if row.query_id == ALL]
        kind, keys = registry.lookup("audit", self.task), results.design.keys
        gated = GatedFigures(
            keys, results.shown, of_all, results.findings, results.reach, f" {kind.words.condition}", where,
            aside_of(kind.measure, keys), kind.words.titles,
        )  # fmt: skip
        met = check_gates(self.gates, gated, self.settings.require_interval)
        texts = any(item.text for item in self.dataset.candidates(self.queries[0]).documents)
        asked = self.task, self.settings, results.model
        results = judged(
            structs.replace(results, rows=of_all, requirements=met),
            training=training_of(*asked),
            planned=plan_of(*asked),
            ways=ways_of(*asked, texts),
        )
        factors = results.design.factors or {}
        of_queries = typed.lines_of(row for row in tidy if row.query_id != ALL)
        failed = sorted((each.probe_id, each.failure, each.message, each.hint) for each in failures)
        by_id = {of.query_id: of.text for of in (self.queries if queries is None else queries)}
        titles = {of.doc_id: of.title for of in (self.candidates() if documents is None else documents)}
        shown = [{"query_id": query_id, "text": text} for query_id, text in sorted(by_id.items())]
        shown += [{"doc_id": doc_id, "title": title} for doc_id, title in sorted(titles.items())]
        shared = {
            TEXTS: (json.dumps(row, ensure_ascii=False) + "\n" for row in shown),
            "metrics.csv": csv_lines(*with_factors(typed.lines_of(of_all), factors)),
            "per_query.csv": csv_lines(*with_factors(of_queries, factors)),
            "failures.csv": csv_lines(("probe", "class", "message", "hint"), failed),
            RESULTS: json_text(results),
        }
        return Outcome(results, {**files, **shared})

    # What measures look things up in

    def candidates(self) -> Iterable[Document]:
        """The items of all lists."""
        return lists.listed_items(self.dataset, self.queries)

    @cached_property
    def groups(self) -> Groups:
        return lists.groups_of(self.dataset, self.attribute)

    @cached_property
    def sides(self) -> Sides:
        """The side of every candidate."""
        return {document.doc_id: self.attribute.side(document) for document in self.candidates()}


def of_measures(measures: Sequence[Measure]) -> dict[str, Any]:
    """What results say of measures: their names, what they are called in words, and what tables have to say of them."""
    return {
        "measures": [str(measure) for measure in measures],
        "labels": {str(measure): measure.label for measure in measures if measure.definition.worded},
        "measure_notes": {str(measure): measure.note for measure in measures if measure.note},
    }


def remarks_of(design: Design[Any], refuses: bool = True) -> list[str]:
    """In words, that not all queries of a design can be assessed, or that nothing can be concluded from it. Raises
    UsageError, where it `refuses`, for gates on a design from which nothing can be concluded."""
    queries, assessable, settings = len(design.queries), design.assessable, design.settings
    few, some = assessable < FEWEST_QUERIES, assessable < queries
    sentence = (
        f"{assessable:,} of {queries:,} queries can be assessed"
        + f" ({design.why_not_assessable})" * some
        + f", where a conclusion takes at least {FEWEST_QUERIES}" * few
    )
    idle = [*filter(None, (always_held(gate, design.reach, "in this design") for gate in design.gates))]
    remarks = [sentence] * (few or some) + idle
    gated = [flag for flag, of in (("--require", settings.require), ("--fail-on", settings.fail_on)) if of]
    if refuses and gated and (few or idle):
        other = "give it more queries that can" if few else "choose another design"
        raise UsageError(f"{'; '.join(remarks)}.", f"{other}, or leave {' and '.join(gated)} out")
    return remarks


def judged(results: R, **commands: Any) -> R:
    """An audit's results with their verdict, in the words of its kind; the commands are those of `Conclusions`."""
    kind = registry.lookup("audit", results.task)
    same = ("task", "run", "dataset", "attribute", "model", "words", "level", "band", "measures", "findings")
    conclusions = typed.Conclusions(
        **picked(results, same),
        keys=[key for key in results.design.keys if not is_of(key, kind.measure.aside)],
        figures=results.by_key(),
        by_group=[row for row in results.of_all() if row.group],
        complete=results.status != "incomplete",
        prompted=results.design.prompted,
        preset=results.design.preset or "",
        problems={name: answers.problem for name, answers in results.answers.items()},
        **commands,
    )
    return structs.replace(results, verdict=kind.words.verdict(conclusions))


def versions() -> dict[str, str]:
    """Names and versions of llmfair, of Python with its platform, and of the packages that take part."""
    packages = ("numpy", "scipy", "ir-measures", "aiohttp", "tantivy")
    return {
        "llmfair": llmfair.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{package: version(package) for package in packages},
    }


def observed(
    rows: Iterable[Any], conditions: Iterable[str], reads: Callable[..., Observation]
) -> dict[str, list[Observation]]:
    """What measures read of rows that have a `condition` and a `query_id`: by condition, one for each query."""
    by_query: dict[str, dict[str, list[Any]]] = {name: {} for name in conditions}
    for row in rows:
        by_query[row.condition].setdefault(row.query_id, []).append(row)
    return {name: [reads(query_id, of) for query_id, of in each.items()] for name, each in by_query.items()}


# Files of a run folder that other parts read again.


def read_texts(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """What was asked about in words, so that a report needs no dataset: the queries' texts by query_id and the titles
    by doc_id. Raises UsageError naming the field."""
    lines = [*read_lines(folder / TEXTS, dict[str, str])]
    queries = {line["query_id"]: line.get("text", "") for line in lines if "query_id" in line}
    return queries, {line["doc_id"]: line.get("title", "") for line in lines if "doc_id" in line}


# Who is relevant to a query, where the documents are too many to be named: the combinations of groups among its
# relevant documents, and how many have each. Targets are made of them (`Groups.relevant`).

RELEVANT = "relevant.jsonl"


@dataclass(frozen=True)
class AlikeRelevant:
    """Relevant documents of the same groups, and how many they are."""

    groups: Mapping[str, Sequence[str]]
    count: typed.Count


@dataclass(frozen=True)
class RelevantLine:
    """A line of relevant.jsonl: all relevant documents of a query."""

    query_id: str
    relevant: Sequence[AlikeRelevant]


def relevant_lines(groups: Groups) -> Iterator[str]:
    """The lines of the file."""
    for query_id, counts in sorted(groups.relevant.items()):
        rows = [{"groups": groups.documents[name].groups, "count": count} for name, count in counts.items()]
        yield json.dumps({"query_id": query_id, "relevant": rows}, ensure_ascii=False) + "\n"


def read_relevant(path: Path) -> tuple[dict[str, Document], dict[str, dict[str, int]]]:
    """A document for each combination, and how many it stands for by query; nothing where there is no such file."""
    documents: dict[str, Document] = {}
    counts: dict[str, dict[str, int]] = {}
    for row in read_lines(path, RelevantLine) if path.is_file() else ():
        for number, alike in enumerate(row.relevant):
            name = f"@ {row.query_id} {number}"
            groups = {attribute: tuple(values) for attribute, values in alike.groups.items()}
            documents[name] = Document(name, "", groups=groups)
            counts.setdefault(row.query_id, {})[name] = alike.count
    return documents, counts
