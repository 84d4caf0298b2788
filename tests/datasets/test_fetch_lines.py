"""One wrong line in a file of a fetch that is given: which file, which line, which field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmfair.datasets import download
from tests.cli.command import llmfair, refusal
from tests.datasets.trec_sources import article_2022, lines, metadata_2022, topic_2022

TOPIC, PAGE = topic_2022(84, "T", [307, 339]), metadata_2022(307, ["male"], ["Europe"])
DEEP = b'{"x": ' + b"[" * 100_000
ONE_WRONG_LINE: list[tuple[str, bytes | dict[str, Any], str]] = [
    ("--topics", TOPIC | {"rel_docs": "123"}, "rel_docs: expected `array`, got `str`"),
    ("--topics", TOPIC | {"rel_docs": "\ud800"}, "holds '\\ud800', which is no text"),
    ("--topics", TOPIC | {"rel_docs": [2, True]}, "rel_docs[1]: expected `int | str`, got `bool`"),
    ("--topics", TOPIC | {"rel_docs": [2**63]}, "rel_docs[0]: expected `int` <= 9223372036854775807"),
    ("--topics", TOPIC | {"title": "\ud800"}, "title: expected `str` matching"),
    ("--topics", TOPIC | {"id": "8 4"}, "id: expected `str` matching"),
    ("--topics", {"id": 84, "title": "T"}, "rel_docs: is missing"),
    ("--topics", {"\ud800": 1} | TOPIC, "holds '\\ud800', which is no text"),
    ("--topics", TOPIC | {"id": 1}, "id: topic '1' is there already"),
    ("--topics", DEEP, "not JSON: "),
    ("--metadata", PAGE | {"gender": "female"}, "gender: expected `array | null`, got `str`"),
    ("--metadata", PAGE | {"pred_qual": "high"}, "pred_qual: expected `float | null`, got `str`"),
    ("--metadata", PAGE | {"gender": [{"a": 1}]}, "gender[0]: expected `str`, got `object`"),
    ("--metadata", PAGE | {"page_subcont_regions": ["\ud800"]}, "page_subcont_regions[0]: expected `str` matching"),
    ("--metadata", b'{"x": 0, "page_id": Infinity}', "page_id: is not a page id"),
    ("--metadata", DEEP, "not JSON: "),
    ("--metadata", b'{"page_id": 307, ' + DEEP[1:], "not JSON: "),
    ("--metadata", b" " * download.LONGEST, "longer than 32 MB"),
    ("--corpus", article_2022(307, "") | {"title": 5}, "title: expected `str | null`, got `int`"),
    ("--corpus", article_2022(2**64, "T"), "id: is not a page id"),
    ("--corpus", DEEP, "not JSON: "),
    ("--titles", b"9" * 5000 + b"\tTitle", "page_id: is not a page id"),
]  # fmt: skip


@pytest.mark.parametrize(("flag", "wrong", "text"), ONE_WRONG_LINE)
def test_one_wrong_line_of_a_file_is_named(
    tmp_path: Path, flag: str, wrong: bytes | dict[str, Any], text: str
) -> None:
    right: dict[str, Any] = {
        "--topics": topic_2022(1, "A", [307]),
        "--metadata": metadata_2022(1, None, []),
        "--corpus": article_2022(1, "Page"),
        "--titles": "1\tPage",
    }
    del right["--corpus" if flag == "--titles" else "--titles"]
    given: list[str | Path] = []
    for name, line in right.items():
        path = tmp_path / name.strip("-")
        first = line.encode() + b"\n" if isinstance(line, str) else lines([line], pack=False)
        second = wrong if isinstance(wrong, bytes) else lines([wrong], pack=False)
        path.write_bytes(first + (second if name == flag else b""))
        given += [name, path]
    words = ("--text-words", "1") if "--corpus" in right else ()
    refusal(
        llmfair("datasets", "fetch", "trec-fair/2022/eval", "--yes", *given, *words),
        f"{tmp_path / flag.strip('-')}:2: {text}",
    )


def test_a_file_that_links_to_itself_is_none(tmp_path: Path) -> None:
    (tmp_path / "topics").symlink_to("topics")
    refusal(
        llmfair("datasets", "fetch", "trec-fair/2022/eval", "--yes", "--topics", tmp_path / "topics"),
        f"{tmp_path / 'topics'}: there is no such file.",
    )
