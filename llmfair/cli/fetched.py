"""What `llmfair datasets fetch` says: what is about to be downloaded and kept, and what was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmfair import terminal

if TYPE_CHECKING:
    from llmfair.datasets.fetch import FetchOptions, FetchPlan


def tell_plan(plan: FetchPlan, options: FetchOptions) -> None:
    """What is about to be downloaded and read, the room that takes and there is, and what is kept of it."""
    import shutil

    from llmfair.datasets.base import cache_folder

    parts = [
        f"{origin.name} {'of unknown size' if missing is None else _size(missing)}"
        for origin, missing in plan.to_download
    ]
    here = [f"{origin.name} {_size(origin.bytes or 0)}" for origin in plan.files if origin.here]
    total = _size(sum(missing or 0 for _, missing in plan.to_download))
    told = [f"downloads {total} ({', '.join(parts)})"] * bool(parts)
    told += [f"reads {', '.join(here)} from this disk"] * bool(here)
    terminal.say(f"{plan.collection.name}: {', '.join(told)}")
    place = next(path for path in (cache_folder(), *cache_folder().parents) if path.exists())
    downloaded = (
        "kept"
        if options.keep_downloads
        else "read without a copy"
        if options.stream
        else "removed afterwards"
    )
    fates = [f"downloads are {downloaded}"] * any(origin.temporary for origin in plan.files)
    fates += ["files of this disk stay as they are"] * bool(here)
    terminal.say(
        f"  needs {_size(plan.disk_bytes)} of disk, {_size(shutil.disk_usage(place).free)} are free in {place}"
        + "".join(f"; {fate}" for fate in fates)
    )
    terminal.say(f"  keeps {_kept(plan.options)}; all else that the files hold is dropped")


def _kept(options: FetchOptions) -> str:
    """What stays of the source files, in words."""
    pages = "titles, groups, quality, sitelinks and page views"
    text = f", and the first {options.text_words:,} words" * bool(options.text_words)
    index = {
        None: "",
        "pool": "; an index of these pages",
        "full": "; an index of all pages, with their titles",
    }
    return f"topics, relevance, and of relevant pages {pages}{text}{index[options.index]}"


def _size(count: int) -> str:
    for least, unit, name in ((1e8, 1e9, "GB"), (1e5, 1e6, "MB")):
        if count >= least:
            return f"{count / unit:,.1f} {name}"
    return f"{count / 1e3:,.1f} kB"


def print_record(name: str, folder: str, record: dict[str, Any], already: bool) -> None:
    from llmfair.report.tables import Table

    topics, groups, pages = record["topics"], record["metadata"], record["pages"]
    numbers = groups.get("pages_with_numbers", {})
    rows: tuple[tuple[str, str], ...] = (
        ("topics", f"{topics['queries']:,}"),
        ("relevant pages", f"{topics['relevance_rows']:,} in all, {topics['pages']:,} different"),
        ("without metadata", f"{groups['pages_without_metadata']:,} (their groups are unknown)"),
        ("with numbers", ", ".join(f"{name} {count:,}" for name, count in numbers.items()) or "none"),
        ("without title", f"{pages['pages_without_title']:,} (never drawn)"),
        (
            "repeats dropped",
            f"{topics['duplicate_rows']:,} judgements, {groups['duplicate_lines']:,} metadata lines, "
            f"{pages['duplicate_lines']:,} articles",
        ),
    )
    if indexed := pages.get("index"):
        told = f"{indexed['documents']:,} pages ({indexed['scope']}), {indexed['analyzer']} terms, {indexed['engine']}"
        rows = (*rows, ("index", told))
    unknown = groups["unrecognised_labels"]
    notes = [
        *([f"labels of no known place, read as unknown: {', '.join(unknown)}"] if unknown else []),
        folder,
        *(["fetched before; remove the folder to start over"] if already else []),
    ]
    terminal.print_table(Table(f"{name} is fetched", ("", ""), rows, tuple(notes)))
