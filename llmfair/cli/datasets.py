"""`llmfair datasets`: what can be audited, what a dataset holds, and fetching the large ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from llmfair import terminal
from llmfair.cli.options import View, argument, command, flag, group
from llmfair.errors import UsageError

if TYPE_CHECKING:
    from llmfair.datasets.fetch import FetchPlan


RELEVANCE = ("relevant", "irrelevant")
datasets = group("datasets", "List datasets, show what they hold, fetch them.")


@command(datasets, "llmfair datasets list", "llmfair datasets list --json", name="list")
def list_all() -> View:
    """The datasets that can be named with -d."""
    from llmfair import registry
    from llmfair.datasets.base import FOUR_FILES, compared

    rows: list[dict[str, Any]] = []
    for name in registry.names("dataset"):
        dataset = registry.lookup("dataset", name)()
        if hasattr(dataset, "listing"):
            facts = dataset.listing()
        else:
            names = [of.name for of in compared(dataset.attributes)]
            queries = len(dataset.queries)
            facts = {"attributes": names, "queries": queries, "size": "bundled", "fetched": None}
        rows.append({"dataset": name, **facts})
    states = {None: "", True: "fetched", False: "not fetched"}
    cells = [
        (
            of["dataset"],
            ", ".join(of["attributes"]),
            str(of["queries"] or ""),
            of["size"],
            states[of["fetched"]],
        )
        for of in rows
    ]
    notes = (
        FOUR_FILES,
        "llmfair datasets fetch trec-fair/2022    serves every dataset of its year and split",
    )
    header = ("dataset", "attributes", "queries", "size", "")
    return View({"datasets": rows}, ("", header, cells, notes))


COPY = "file or address of another copy, gzip or plain"
_fetching, _indexing, _source = (partial(flag, panel=panel) for panel in ("Fetching", "Index", "Sources"))


@command(
    datasets,
    "llmfair datasets fetch trec-fair/2022 --index pool --yes",
    "llmfair datasets fetch lamp/4",
    shared=("quiet", "no_progress", "shared"),
)
def fetch(
    name: str = argument(
        "ID", "Year and split, or any dataset of it: trec-fair/2022; or a task of LaMP: lamp/4."
    ),
    yes: bool = _fetching(False, "Do not ask before downloading."),
    stream: bool = _fetching(False, "Read from the connection; keep no copy."),
    keep_downloads: bool = _fetching(False, "Keep the source files afterwards."),
    text_words: int = _fetching(0, "Keep the first N words of each article too.", min=0, max=1_000_000),
    index: Literal["pool", "full"] | None = _indexing(
        None, "Index the relevant pages (pool) or all (full), for llmfair refine."
    ),
    analyzer: Literal["english", "standard"] = _indexing(
        "english", "How text becomes terms: english cuts endings, standard does not."
    ),
    engine: str = _indexing("tantivy", "Where: tantivy, elasticsearch:INDEX or opensearch:INDEX."),
    engine_url: str | None = _indexing(None, "Address of the server of an index."),
    topics: str | None = _source(None, f"Topics with rel_docs: {COPY}."),
    metadata: str | None = _source(None, f"Metadata: {COPY}."),
    corpus: str | None = _source(None, f"Corpus: {COPY}."),
    titles: str | None = _source(None, "Lines page_id, tab, title: replaces the corpus."),
) -> View:
    """Download a TREC Fair collection (topics, relevance, groups, numbers, titles are kept), or a task of LaMP.

    Stopped at any moment, the same command continues where it was.
    """
    from llmfair.audits.lists import filling
    from llmfair.datasets.fetch import FetchOptions, collection_of, plan_fetch
    from llmfair.datasets.fetch import fetch as fetch_collection
    from llmfair.datasets.lamp import LICENCE, PUBLISHED, fetch_lamp, lamp_number, lamp_origins

    options = FetchOptions(
        topics, metadata, corpus, titles, text_words, stream, keep_downloads, index, analyzer, engine
    )
    if (number := lamp_number(name)) is None:
        collection = collection_of(name)
        plan = plan_fetch(collection, options)
        indexes = plan.options.index is not None and "pages" in plan.origins
        fill = filling(plan.options.engine, plan.options.analyzer, engine_url) if indexes else None
        if plan.origins:
            tell_plan(plan)
            if plan.to_download and not yes:
                _ask("Download?", True, "download this", f"{name} --yes    downloads without asking")
        with transfers() as progress:
            record = fetch_collection(plan, progress, fill)
        title, folder, already = collection.name, collection.folder, not plan.origins
        rows = _record_rows(record)
    else:
        if options != FetchOptions():
            way_out = f"llmfair datasets fetch {name}"
            raise UsageError("the flags of copies and texts are for trec-fair collections.", way_out)
        origins, title = lamp_origins(number), f"lamp/{number}"
        folder, lacking = origins[0].path.parent, [origin.name for origin in origins if not origin.here]
        already = not lacking
        if lacking:
            files = f"{' and '.join(lacking)} from {PUBLISHED}"
            terminal.say(f"{title}: downloads {files}, of unknown size, to {folder}")
            terminal.say(f"  licence {LICENCE}: not for commercial use, passed on under the same terms alone")
            if not yes:
                hint = f"{title} --yes    agrees to the licence and downloads"
                _ask("Agree and download?", False, "agree to a licence", hint)
        with transfers() as progress:
            record = fetch_lamp(number, progress)
        rows = [(of, f"{record[of]:,}") for of in ("queries", "items")] + [("licence", LICENCE)]
    document = {"folder": str(folder), "already_fetched": already, **record}
    notes = (str(folder), *["fetched before; remove the folder to start over"] * already)
    return View(document, (f"{title} is fetched", ("", ""), rows, notes))


def _ask(question: str, default: bool, alone: str, hint: str) -> None:
    """Ends the command unless the user agrees."""
    if not terminal.agreed(question, default, alone, f"llmfair datasets fetch {hint}"):
        terminal.say("Nothing was downloaded.")
        raise typer.Exit(1)


@command(datasets, "llmfair datasets show sample", "llmfair datasets show my-folder --json")
def show(
    name: str = argument("ID", "Dataset id, folder, table or .jsonl file."),
    columns: str | None = flag(None, "Of a table, what its columns are called: doc_id=id,gender=sex."),
    attributes: str | None = flag(None, "Of a table or irds:NAME, a file that declares its attributes."),
    groups: str | None = flag(None, "Of irds:NAME, the groups of its documents."),
    run: str | None = flag(None, "Of irds:NAME, a run whose rankings are the lists."),
    attribute: str | None = flag(
        None, "Whose groups are counted, too: any column of a table.", "--attribute", "-a"
    ),
) -> View:
    """Queries, candidates per cell, and documents of neither group."""
    from llmfair.audits.lists import load_lists
    from llmfair.datasets.answers import has_answers, load_answers
    from llmfair.datasets.base import facts, load_dataset, named_attribute
    from llmfair.datasets.files import DataOptions
    from llmfair.settings.commands import ListSettings

    files = DataOptions(columns=columns, attributes=attributes, groups=groups, run=run, asked=attribute)
    source: Any = load_answers(name) if has_answers(Path(name)) and not columns else load_dataset(name, files)
    if attribute is not None:
        named_attribute(source, attribute)  # which says what there is, where it is not
    # of a source without lists of its own those of a default audit are shown
    settings = ListSettings.make(dataset=name, attribute=attribute)
    document = facts(source if source.has_lists else load_lists(settings)[0])
    names = [name for name, words in document["words"].items() if words]  # that have sides
    header = ("query", "text", "candidates", *(f"{of}: relevant P/U, other P/U" for of in names))
    rows = []
    for query in document["queries"]:
        cells = [
            ", ".join(f"{of[f'{what} protected']}/{of[f'{what} unprotected']}" for what in RELEVANCE)
            for of in (query["cells"][name] for name in names)
        ]
        rows.append((query["query_id"], query["text"], str(query["candidates"]), *cells))
    notes = []
    for name, sides in document["attributes"].items():
        words = document["words"][name]
        of_word = {what: f"{what} ({word})" for what, word in words.items() if word != what}
        counts = (f"{of_word.get(what, what)} {count:,}" for what, count in sides.items())
        notes.append(f"{name}: {', '.join(counts)}")
    if "pages" in document:
        notes += [document["licence"], f"kept {len(rows)} of {document['topics']} topics"]
    if "answered" in document:
        answered = f"{document['answered']} of {len(rows)} queries have an answer"
        notes.append(f"{answered} · utility {document['utility']} · prompt {document['prompt']}")
    notes += [f"left out: {why}" for why in document.get("left_out", {}).values()]
    notes.append(f"fingerprint {document['fingerprint'][:16]}")
    title = f"{document['dataset']} · {document['documents']} documents · {len(rows)} queries"
    return View(document, (title, header, rows, notes))


@command(datasets, "llmfair datasets attributes", "llmfair datasets attributes > my-folder/attributes.toml")
def attributes() -> View:
    """The built-in attributes, as the attributes.toml of a folder declares its own."""
    from llmfair.datasets.attributes import shipped_attributes

    text = shipped_attributes().read_text("utf-8")
    return View({"text": text}, text.removesuffix("\n"))


def tell_plan(plan: FetchPlan) -> None:
    """What is about to be downloaded and read, and the room that takes and there is."""
    from llmfair.datasets.base import cache_folder

    missing = plan.to_download
    parts = [
        f"{of.name} {'of unknown size' if size is None else terminal.size_text(size)}" for of, size in missing
    ]
    here = [f"{of.name} {terminal.size_text(of.bytes or 0)}" for of in plan.files if of.here]
    total = terminal.size_text(sum(size or 0 for _, size in missing))
    does = [f"downloads {total} ({', '.join(parts)})"] * bool(parts)
    does += [f"reads {', '.join(here)} from this disk"] * bool(here)
    terminal.say(f"{plan.collection.name}: {', '.join(does)}")
    place = next(path for path in (cache_folder(), *cache_folder().parents) if path.exists())
    free = terminal.size_text(shutil.disk_usage(place).free)
    terminal.say(f"  needs {terminal.size_text(plan.disk_bytes)} of disk, {free} are free in {place}")


def _record_rows(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a collection holds, as its record counts it."""
    topics, groups, pages = record["topics"], record["metadata"], record["pages"]
    rows = [
        ("topics", f"{topics['queries']:,}"),
        ("relevant pages", f"{topics['relevance_rows']:,} in all, {topics['pages']:,} different"),
        ("without metadata", f"{groups['pages_without_metadata']:,} (their groups are unknown)"),
        ("without title", f"{pages['pages_without_title']:,} (never drawn)"),
    ]
    if index := pages.get("index"):
        rows.append(("index", "{documents:,} pages ({scope}), {analyzer} terms, {engine}".format_map(index)))
    return rows


@contextmanager
def transfers() -> Iterator[Transfer]:
    """Shows the steps of a fetch on stderr: as a bar, else as a line now and then and one after each step."""
    transfer = Transfer()
    with terminal.drawn(transfer):
        yield transfer
    transfer.over()


class Transfer(terminal.Line):
    """The bytes of a fetch, one step after another."""

    def __init__(self) -> None:
        super().__init__("", 0)
        self.bytes = 0

    def step(self, name: str, total: int | None, done: int = 0) -> None:
        self.over()
        self.name, self.total, self.bytes = name, total or 0, done
        self.first = None
        self.rate(done)

    def advance(self, count: int) -> None:
        self.bytes += count

    def over(self) -> None:
        if self.name and terminal.output.progress and not terminal.console(stderr=True).is_terminal:
            terminal.say(f"{self.name}  {self.line()}")

    def done_now(self) -> int:
        return self.bytes

    def parts(self) -> list[str]:
        rate = self.rate(self.bytes)
        of_total = f"/{self.total / 1e6:,.1f}" if self.total else ""
        return [f"{self.bytes / 1e6:,.1f}{of_total} MB", f"{rate / 1e6:,.1f} MB/s", self.left(rate)]
