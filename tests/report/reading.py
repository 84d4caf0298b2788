"""A page as a parser sees it, which is what a browser makes of its bytes; a table of Markdown."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "path", "use", "br", "link", "img", "input"}


@dataclass
class Read(HTMLParser):
    """Tags with their attributes in order, text outside scripts and styles, what scripts hold."""

    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    within: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.within.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        while self.within and self.within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        where = self.within[-1] if self.within else ""
        {"script": self.scripts, "style": self.styles}.get(where, self.text).append(data)

    def named(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every such tag."""
        return [attributes for name, attributes in self.tags if name == tag]


def read(page: Path) -> Read:
    found = Read()
    found.feed(page.read_text("utf-8"))
    found.close()
    return found


def grid(markdown: str) -> list[list[str]]:
    """The lines of a Markdown table without its rule."""
    lines = [line[2:-2].split(" | ") for line in markdown.splitlines() if line.startswith("| ")]
    return [line for line in lines if set(line[0]) != {"-"}]
