"""User-visible text uses the field's terms: no word that was given up for one of them comes back.

Read are the package's literals, the page's template, the documentation, every help page, and the printed snapshots.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from inspect import isfunction
from pathlib import Path

import pytest

from llmfair import registry
from llmfair.metrics.base import Definition
from tests.cli.test_help import EVERYTHING, shown

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "llmfair"

GIVEN_UP: Mapping[str, str] = {
    r"\breads? (ExpRatio|P@|\d\.)|\b(further|beyond|out of) reach\b": "attainable range of ExpRatio",
    r"told from parity": "power to detect odds of …",
    r"implied (pair )?odds|position-adjusted": "odds of answers",
    r"\bdoubts?\b": "warnings",
    r"neutral again|(?<![/'])\bcontrol\b(?![=/]|-variate| variate| character)": "repeat",
    r"\b(input|free) order\b": "initial ranking",
    r"\bfree baseline\b": "logit offset",
    r"\bexperts?\b": "relevant documents",
    r"(?<!by )\bsides?\b(?! by)": "group",
    r"\barms?\b|(?<!\t)\bvariants?\b(?!\t)": "condition, or prompt",
    r"\bkinds? of pairs?\b|\ba kind of pair": "relevance stratum",
    r"\bplanted\b": "injected",
    r"\bblind\b|\buseful ranker": "relevance-agnostic, relevance-matched",
    r"other draws of": "Monte Carlo error from … random orders",
    r"left out of answers": "items missing from answers",
    r"\bunreadable\b|\breadable (answer|pair)": "unparseable",
    r"asked twice, [\d{]|when asked twice": "test–retest disagreement",
    r"\border kept\b": "Spearman's rho with the base model",
    r"\bcr(y|ies) wolf\b|\bfalse alarm": "false-positive rate",
    r"\binstrument\b|\bnot the world\b|\bworld at large\b": "audit procedure, reference population",
    r"p of no (mean )?preference": "sign-flip test, permutation test",
    r"\bin numbers\b|\basks the same again\b": "Results, Reproduce this run",
}
"""Regular expressions of what was given up, each with what stands in its place."""
ANY = re.compile("|".join(rf"(?i:(?<![-`])(?:{left}))" for left in GIVEN_UP))
OF_FILES = {("llmfair/prompts.py", "variant"), ("llmfair/prompts.py", "variants")}
"""Words that a user's own file has, and messages about it name."""


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of the string literals that can be read by a person: no docstring, no single name."""
    tree = ast.parse(path.read_text("utf-8"))
    unread = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            unread |= {id(part) for part in node.values}
            unread |= {id(part.format_spec) for part in node.values if isinstance(part, ast.FormattedValue)}
    for node in ast.walk(tree):
        if id(node) in unread:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from [(node.lineno, node.value)] * (" " in node.value.strip())


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Lines of a page without what is code: styles, tags, inline code, commands, and blocks that are no output."""
    markup = re.compile(r"<style>.*?</style>|\{[{%#].*?[}%#]\}|<[^<>]*>", re.DOTALL)
    text = markup.sub(lambda tag: "\n" * tag[0].count("\n"), text)
    block = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            block = line[3:].strip() or "text" if block is None else None
        elif block in (None, "console", "text") and not line.startswith("$ "):
            yield number, re.sub(r"`[^`]*`", "", line) if block is None else line


def given_up(where: str, lines: Iterator[tuple[int, str]]) -> list[str]:
    """What comes back, by file and line, with what is said instead."""
    return [
        f"{where}:{number}: '{match[0]}' ({instead}) in: {' '.join(text.split())[:100]}"
        for number, text in lines
        if ANY.search(text)
        for left, instead in GIVEN_UP.items()
        if (match := re.search(rf"(?i)(?<![-`])(?:{left})", text)) and (where, match[0]) not in OF_FILES
    ]


def test_the_package_says_it_in_the_fields_terms() -> None:
    modules = sorted(PACKAGE.rglob("*.py"))
    back = [line for path in modules for line in given_up(str(path.relative_to(ROOT)), literals(path))]
    assert not back, "\n".join(back)


def test_measures_say_what_they_are_in_the_fields_terms_and_once() -> None:
    """The line that a report has of each, which is its docstring's first and where it is from."""
    for name in registry.names("measure"):
        measure: Definition = registry.lookup("measure", name)
        said = (measure.values.__doc__ or "").partition("\n")[0] if isfunction(measure.values) else ""
        assert not given_up(name, iter([(1, said)]))
        assert not measure.cite or measure.cite not in said.replace('"', "")


PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(PACKAGE.rglob("*.j2")),
    *sorted((ROOT / "tests" / "snapshots").glob("*.txt")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_says_it_in_the_fields_terms(page: Path) -> None:
    back = given_up(str(page.relative_to(ROOT)), prose(page.read_text("utf-8")))
    assert not back, "\n".join(back)


@pytest.mark.parametrize("words", EVERYTHING, ids=" ".join)
def test_help_says_it_in_the_fields_terms(words: tuple[str, ...]) -> None:
    whole = shown(words, "--help-all")
    back = given_up(f"llmfair {' '.join(words)} --help-all", iter(enumerate(whole.splitlines(), 1)))
    assert not back, "\n".join(back)


def test_a_word_that_comes_back_is_named(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(
        '"""Planted docstrings are nobody\'s business."""\n\nTOLD = f"{1} unreadable\\n"\nKEY = "planted"\n',
        "utf-8",
    )
    assert given_up("new.py", literals(tmp_path / "new.py")) == [
        "new.py:3: 'unreadable' (unparseable) in: {} unreadable"
    ]


NOT_IDENTIFIERS = re.compile(
    r"(?<![A-Za-z0-9])(?:arms?|doubts?|unreadable|planted|experts?)(?![A-Za-z0-9])|\b(?:Arm|Planted|PairKind)"
)


def test_identifiers_follow() -> None:
    back = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if not NOT_IDENTIFIERS.search(text := path.read_text("utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            names = [getattr(node, key, None) for key in ("id", "attr", "arg", "name")]
            back += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in names
                if isinstance(name, str) and NOT_IDENTIFIERS.search(name)
            ]
    assert not back, "\n".join(sorted({*back}))
