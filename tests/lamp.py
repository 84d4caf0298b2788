"""Small made-up files in the layouts of LaMP: 3 users with 12 items each, for any of its seven tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

TAGS = ("comedy", "classic", "true story")
WORDS = tuple("harbour lantern orchard granite whistle meadow copper ribbon thunder ginger".split())
Item = dict[str, str]
Make = tuple[Callable[[str, str], str], Callable[[str], Item], Callable[[str], str]]
"""An input of a text and a title, an item's fields of a text, and the right answer of a text."""


def sentence(user: int, item: int, length: int = 9) -> str:
    """Words that differ from item to item and from user to user."""
    return " ".join(WORDS[(user * 3 + item + place * (1 + item % 3)) % len(WORDS)] for place in range(length))


def _citation(text: str, title: str) -> str:
    return (
        f'For an author who has written the paper with the title "{title}", which reference is related? Just answer '
        f'with [1] or [2] without explanation. [1]: "{_headline(text)}" [2]: "Of "quoted" things"'
    )


def _tag(text: str) -> str:
    return TAGS[len(text) % len(TAGS)]


def _stars(text: str) -> str:
    return str(1 + len(text) % 5)


def _headline(text: str) -> str:
    return " ".join(text.split()[:4])


MAKE: Mapping[int, Make] = {
    1: (_citation, lambda text: {"title": _headline(text), "abstract": text}, lambda text: "[1]"),
    2: (
        lambda text, _: f"Which tag does this movie relate to? tags: [{', '.join(TAGS)}] description: {text}",
        lambda text: {"description": text, "tag": _tag(text)},
        _tag,
    ),
    3: (
        lambda text, _: f"What is the score of the following review on a scale of 1 to 5? review: {text}",
        lambda text: {"text": text, "score": _stars(text)},
        _stars,
    ),
    4: (
        lambda text, _: f"Generate a headline for the following article: {text}",
        lambda text: {"text": text, "title": _headline(text)},
        _headline,
    ),
    5: (
        lambda text, _: f"Generate a title for the following abstract of a paper: {text}",
        lambda text: {"abstract": text, "title": _headline(text)},
        _headline,
    ),
    6: (
        lambda text, _: f"Generate a subject for the following email: {text}",
        lambda text: {"text": text, "title": _headline(text)},
        _headline,
    ),
    7: (
        lambda text, _: f"Paraphrase the following tweet without any explanation before or after it: {text}",
        lambda text: {"text": text},
        lambda text: text[::-1],
    ),
}


def inputs(number: int, users: int = 3, items: int = 12) -> list[dict[str, Any]]:
    """The entries of a task's inputs; ids begin with zeros and are query id and running number, as LaMP's are."""
    ask, item, _ = MAKE[number]
    return [
        {
            "id": f"0{user}1",
            "input": ask(sentence(user, 0), sentence(user, 5, 3)),
            "profile": [{"id": f"0{user}1{i}", **item(sentence(user, i))} for i in range(items)],
        }
        for user in range(users)
    ]


def outputs(number: int, users: int = 3) -> dict[str, Any]:
    """The right answers of a task."""
    answer = MAKE[number][2]
    golds = [{"id": f"0{user}1", "output": answer(sentence(user, 0))} for user in range(users)]
    return {"task": f"LaMP_{number}", "golds": golds}


def write_lamp(folder: Path, number: int, layout: tuple[str, str] | None = None) -> Path:
    """Inputs and outputs of a task, named as Fair-RAG released them unless said otherwise."""
    names = layout or (f"{number}_user_dev_inputs.json", f"{number}_user_dev_outputs.json")
    for name, content in zip(names, (inputs(number), outputs(number)), strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder
