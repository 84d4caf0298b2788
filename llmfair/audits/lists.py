"""What an audit ranks: the dataset's own lists or drawn ones, and which of its queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from llmfair import nouns, registry
from llmfair.datasets import base
from llmfair.datasets.base import Collection, Dataset
from llmfair.datasets.buckets import RELEVANT_FOR_PRECISION, ListDraw, draw, draw_plan
from llmfair.datasets.files import DataOptions, OwnData, searched
from llmfair.datasets.trec_fair import unscored_topics
from llmfair.errors import RunConflict, UsageError, did_you_mean
from llmfair.io.files import text_lines, typed
from llmfair.io.text import count, parts
from llmfair.io.trec import DECLARATION
from llmfair.metrics.base import Groups, Sides
from llmfair.nouns import Attribute, Candidates, Document, Query, Side, picked
from llmfair.prompts import Prompt, load_prompt, wording_of, wordings
from llmfair.rankers.deltr import POOL
from llmfair.results import HowDrawn
from llmfair.retrieval.engine import ANALYZERS, ENGLISH, Analyzer, Engine, EngineKind, EngineOptions, Patience
from llmfair.rundir import RUNS_HINT, RunDir
from llmfair.settings.commands import ListSettings, ScoreSettings
from llmfair.settings.declaration import PromptSettings, contrast_of

TANTIVY = "tantivy"


def filling(spec: str, analyzer: str, url: str | None = None) -> nouns.Fill:
    """What fills the index of an engine's spec with a fetched collection. Raises UsageError where that cannot be."""
    name, _, index = spec.partition(":")
    kind: EngineKind = registry.lookup("engine", name)
    return kind.filler(index, url, ANALYZERS[analyzer])


def engine_of(
    collection: Collection, analyzer: Analyzer = ENGLISH, spec: str = TANTIVY, url: str | None = None,
    fields: Sequence[str] = (), patience: Patience | None = None,
) -> Engine:  # fmt: skip
    """The engine of this spec, `NAME` or `NAME:INDEX`, over a collection. Raises UsageError, and as engines do."""
    name, _, index = spec.partition(":")
    made = collection.index
    if made is not None and not fields and analyzer.name != made.analyzer:
        raise RunConflict(
            f"{collection.name} was indexed with --analyzer {made.analyzer}, not {analyzer.name}.",
            f"--analyzer {made.analyzer} searches it; fetched with --analyzer {analyzer.name} it is indexed anew",
        )
    options = EngineOptions(
        collection=collection.name, documents=collection.documents, analyzer=analyzer, cache=base.cache_folder(),
        made=made, index=index, url=url, fields=tuple(fields), patience=patience or Patience(),
    )  # fmt: skip
    engine: Engine = registry.lookup("engine", name).open(options)
    return engine


P = TypeVar("P", bound=PromptSettings)


def load_lists(settings: ListSettings) -> tuple[Dataset, Attribute]:
    """The dataset that the settings name, with lists of its own or drawn ones, and its attribute.

    Of an attribute that is not compared in binary `groups` are those that the queries asked for have items enough of.
    """
    source = base.load_dataset(settings.dataset, given_of(settings))
    attribute = base.named_attribute(source, attribute_asked(settings), settings.mixed)
    asked = (settings.candidates, settings.buckets, settings.relevant, settings.min_relevant)
    own = source.has_lists and asked == (None, None, None, None)
    if (settings.contrast or attribute.compared) != "binary":
        if own:
            return source, of_groups(
                attribute, listed_items(source, selected_queries(source, settings)), settings
            )
        raise UsageError(
            f"lists are drawn by a protected and an unprotected group, and {attribute.name} is compared otherwise.",
            "--contrast binary, or lists of your own: a folder with candidates.run, or a table",
        )
    if own or not attribute.protected:
        return source, base.attribute_of(source, attribute.name, settings.mixed)
    # Pools of a user's own are small; with fewer than ten relevant a side TREC's P@20 could not reach 1.
    plan = draw_plan(*asked, default_fewest=1 if isinstance(source, OwnData) else RELEVANT_FOR_PRECISION)
    return draw(source, attribute, plan, settings.seed), attribute


MOST_LISTED = 8
"""Groups that an error names."""


class GroupCounts(NamedTuple):
    """Items of each group that is compared, of each that is not, and of no
    known group or of several."""

    groups: dict[str, int]
    few: dict[str, int]
    unknown: int


def listed_items(dataset: Dataset, queries: Iterable[Query]) -> Iterable[Document]:
    """The items of the lists of these queries, an item as often as it is listed."""
    return (item for query in queries for item in dataset.candidates(query).documents)


def group_counts(attribute: Attribute, items: Iterable[Document]) -> GroupCounts:
    """How many of these items each group has; groups ascending by name."""
    counts = Counter(of[0] if len(of := attribute.groups_of(item)) == 1 else None for item in items)
    unknown = counts.pop(None, 0)
    groups = {group: counts.pop(group, 0) for group in attribute.groups}
    return GroupCounts(groups, {str(group): counts[group] for group in sorted(filter(None, counts))}, unknown)


def of_groups(
    attribute: Attribute, items: Iterable[Document], settings: ListSettings | ScoreSettings
) -> Attribute:
    """The attribute with the groups that are compared: those of enough items. Raises UsageError."""
    counts, least = group_counts(attribute, items).few, settings.min_group
    compared, reference = contrast_of(settings.contrast or attribute.compared)
    groups = tuple(group for group, items in counts.items() if items >= least)
    if reference and reference not in groups:
        few = f" only {counts[reference]} items of" if reference in counts else " no group"
        raise UsageError(
            f"--contrast reference:{reference}: {attribute.name} has{few} '{reference}'."
            f"{did_you_mean(reference, groups)}",
            f"groups of {least} items or more (--min-group): {', '.join(groups) or 'none'}",
        )
    if odd := next((group for group in groups if nouns.BETWEEN in group or group == nouns.OTHERS), ""):
        raise UsageError(
            f"a group of {attribute.name} is called '{odd}', which names of contrasts cannot hold.",
            f"call it otherwise: '{nouns.BETWEEN}' stands between two groups, '{nouns.OTHERS}' for all others",
        )
    written = dict[str, str]()
    if alike := next((group for group in groups if written.setdefault(group.casefold(), group) != group), ""):
        raise UsageError(
            f"groups of {attribute.name} are called '{written[alike.casefold()]}' and '{alike}'.",
            "write them alike if they are one group, else call one otherwise",
        )
    if len(groups) < 2:
        largest = sorted(counts, key=counts.__getitem__, reverse=True)
        listed = ", ".join(f"{group} {counts[group]}" for group in largest[:MOST_LISTED]) or "none"
        raise UsageError(
            f"{attribute.name} has {count(len(groups), 'group')} of {least} items or more; a comparison takes two.",
            f"its largest: {listed}; --min-group compares smaller ones",
        )
    sides = ((side, of) for side in Side if len(of := getattr(attribute, side)) == 1 and attribute.worded)
    words = {**{of[0]: attribute.words[side] for side, of in sides}, **attribute.group_words}
    words = {group: word for group, word in words.items() if group in groups}
    return replace(attribute, compared=compared, groups=groups, reference=reference, group_words=words)


def check_two_groups(attribute: Attribute, what: str) -> None:
    """Raises UsageError for an attribute whose groups are compared in another way than an audit of this kind can."""
    if attribute.compared != "binary":
        raise UsageError(
            f"{what} compares two groups, and those of {attribute.name} are compared by {attribute.compared}.",
            f"--contrast binary, with [{attribute.name}] in attributes.toml: {DECLARATION}",
        )


def attribute_asked(settings: ListSettings) -> str | None:
    """The attribute that is named; None: the first. Raises UsageError for several, where there is one run."""
    if len(settings.attribute) > 1:
        raise UsageError(
            f"one run is of one attribute, and {' and '.join(settings.attribute)} are named.",
            f"one after the other, or -a '{nouns.CROSSED.join(settings.attribute)}' for their combinations",
        )
    return next(iter(settings.attribute), None)


def given_of(settings: ListSettings) -> DataOptions:
    """What settings say of the data beside their name."""
    names = ("allow_missing", "columns", "attributes", "groups", "run")
    return DataOptions(asked=attribute_asked(settings), **picked(settings, names))


NOT_JUDGED = (
    "No relevance was given: items of a list count as equally relevant, so differences in merit look like "
    "preference"
)

UNJUDGED_TEXT = "; no relevance was given, so differences in merit look like preference"
"""The same, as a verdict ends."""


def is_judged(dataset: Dataset, queries: Iterable[Query]) -> bool:
    """Whether the relevance of any item of these queries was given."""
    return any(dataset.candidates(query).relevance for query in queries)


def with_prompt(settings: P, dataset: Dataset, task: str) -> tuple[P, Prompt]:
    """The settings with the prompt named in which a task is asked: theirs, or the dataset's. Raises UsageError."""
    name = wording_of(settings.prompt or (dataset.prompt if wordings(task) else task), task)
    return replace(settings, prompt=name), load_prompt(name, task)


def drawn_of(dataset: Dataset, settings: ListSettings) -> HowDrawn | None:
    """By which rule and seed the lists were drawn; None of lists that are the dataset's own."""
    return HowDrawn(settings.buckets or "equal", settings.seed) if isinstance(dataset, ListDraw) else None


def selected_queries(dataset: Dataset, settings: ListSettings) -> list[Query]:
    """The queries asked for, in the dataset's order. Raises UsageError for an unknown id."""
    queries, text = list(dataset.queries), settings.queries
    lists = f"llmfair datasets show {dataset.name}    lists them"
    if text == "official" and (unscored := unscored_topics(dataset.name)):
        queries = [query for query in queries if query.query_id not in unscored]
    elif text is not None:
        if text.startswith("@"):
            text = ",".join(line for _, line in text_lines(Path(text[1:]), "one id a line"))
        wanted, ids = {*parts(text)}, {query.query_id for query in queries}
        if unknown := min(wanted - ids, default=""):
            near = did_you_mean(unknown, ids)
            raise UsageError(f"no query '{unknown}' in dataset '{dataset.name}'.{near}", lists)
        queries = [query for query in queries if query.query_id in wanted]
    if not queries:
        raise UsageError("no query is selected.", lists)
    return queries[: settings.limit]


def training_lists(dataset: Any, query_text: str = "title", engine: Engine | None = None) -> list[Candidates]:
    """The lists with judgements that a ranker can learn from: all of the data's own, whatever queries are asked.

    Of data without lists, or with lists of some queries only, they are what `engine` finds first for each topic (BM25
    on this machine, unless said), unjudged documents too. `query_text`: whether topics ask their keywords, where they
    have any, or their title. Raises UsageError where nothing can be searched.
    """
    source: Any = dataset.source if isinstance(dataset, Collection) else dataset
    listed = False
    with suppress(UsageError):  # a mixture, which can be searched all the same
        listed = getattr(source, "has_lists", True)
    if listed:
        lists = map(source.candidates, source.queries)
        return [replace(of, query=searched(of.query, query_text)) for of in lists]
    collection, pools = dataset if isinstance(dataset, Collection) else Collection(source), list[Candidates]()
    index = engine or engine_of(collection)
    for query in (searched(query, query_text) for query in collection.queries):
        documents = tuple(collection.documents[hit.doc_id] for hit in index.search(query.text, POOL))
        pools.append(Candidates(query, documents, collection.qrels.get(query.query_id, {})))
    return pools


def groups_among(
    attributes: Iterable[Attribute],
    attribute: Attribute,
    documents: Mapping[str, Document],
    relevant: Mapping[str, Mapping[str, int]],
) -> Groups:
    """Who is in which group of these documents, by an attribute as it is compared and by all others."""
    by_name = {each.name: each for each in attributes}
    if attribute.compared != "binary":
        by_name[attribute.name] = attribute
    name = nouns.CROSSED.join(attribute.crossed) or attribute.name  # targets are spread over all parts
    return Groups(name, by_name, documents, relevant)


def groups_of(dataset: Dataset, attribute: Attribute) -> Groups:
    """Who is in which group, of the documents and of those that stand for relevant ones outside drawn lists."""
    documents = {**dataset.documents, **dataset.stand_ins} if dataset.stand_ins else dataset.documents
    return groups_among(dataset.attributes, attribute, documents, dataset.relevant_counts)


def name_parts(dataset: Dataset, attribute: Attribute) -> tuple[str, ...]:
    """The dataset, and the attribute unless the dataset's name says it: words of a run folder's name."""
    name = dataset.name.removeprefix("trec-fair/")
    return (name,) if name.endswith(attribute.name) else (name, attribute.name)


def lists_identity(dataset: Dataset, attribute: Attribute, queries: Sequence[Query]) -> dict[str, Any]:
    """What is ranked, for a folder's name and against mixing runs."""
    of, names = asdict(attribute), ["name", "protected", "unprotected", "other", "words"]
    if attribute.groups or attribute.crossed:
        names += ["compared", "groups", "reference", "group_words", "crossed"]
    digest = dataset.fingerprint if isinstance(dataset, Collection) else partial(base.fingerprint, dataset)
    return {
        "attribute": {name: of[name] for name in names},
        "queries": [query.query_id for query in queries],
        "lists_sha256": digest(queries, *(attribute.crossed or (attribute.name,))),
    }


@dataclass(frozen=True, kw_only=True)
class ListsAsked:
    """What a manifest's settings say of lists, as far as it is read again; ValueError for sides without words."""

    attribute: Attribute
    mixed: nouns.MixedPolicy = "drop"

    def __post_init__(self) -> None:
        if self.attribute.protected and self.attribute.words.keys() != {*Side}:
            raise ValueError("no word for a group of `attribute`")


def asked_of_lists(run: RunDir, settings: Mapping[str, Any]) -> ListsAsked:
    """The same, of the settings of a run. Raises UsageError naming the file and the field."""
    return typed(settings, ListsAsked, f"{run.manifest}: settings", RUNS_HINT)


def bucket(candidates: Candidates, sides: Sides, doc_id: str) -> int | None:
    """1 to 4 (unprotected, protected relevant; unprotected, protected others), None without a side."""
    side = sides[doc_id]
    if side is None:
        return None
    return 1 + (side is Side.PROTECTED) + 2 * (candidates.relevance.get(doc_id, 0) < 1)
