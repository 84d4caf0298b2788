"""What `llmfair datasets fetch` says: what is about to be downloaded and kept, and what was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmfair import terminal

if TYPE_CHECKING:
    from llmfair.datasets.fetch import FetchOptions, FetchPlan


def tell_plan(plan: FetchPlan, options: FetchOptions) -> None:
    """What is about to be downloaded and kept, and the room there is."""
    import shutil

    from llmfair.datasets.base import cache_folder

    parts = [
        f"{origin.name} {'of unknown size' if missing is None else _size(missing)}"
        for origin, missing in plan.to_download
    ]
    total = _size(sum(missing or 0 for _, missing in plan.to_download))
    terminal.say(f"{plan.collection.name}: downloads {total} ({', '.join(parts) or 'nothing: all is here'})")
    place = next(path for path in (cache_folder(), *cache_folder().parents) if path.exists())
    kept = (
        "kept"
        if options.keep_downloads
        else "read without a copy"
        if options.stream
        else "removed afterwards"
    )
    terminal.say(
        f"  needs {_size(plan.disk_bytes)} of disk, {_size(shutil.disk_usage(place).free)} are free in {place}; "
        f"the source files are {kept}"
    )


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count / 1e6:,.1f} MB"


def print_record(name: str, folder: str, record: dict[str, Any], already: bool) -> None:
    from llmfair.report.tables import Table

    topics, groups, pages = record["topics"], record["metadata"], record["pages"]
    rows: tuple[tuple[str, str], ...] = (
        ("topics", f"{topics['queries']:,}"),
        ("relevant pages", f"{topics['relevance_rows']:,} in all, {topics['pages']:,} different"),
        ("without metadata", f"{groups['pages_without_metadata']:,} (their groups are unknown)"),
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
