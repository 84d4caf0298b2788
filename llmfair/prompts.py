"""Prompts: every word ever sent to a model stands in a TOML file, and this module finds, checks and fills it.

A file declares its placeholders, so a slip of the pen is an error before anything is asked. Filling is one
pass: what a title or a query holds is never read as a placeholder. prompts/listwise.toml shows the format.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from string import Formatter
from typing import Annotated, Literal

from msgspec import Meta, Struct

from llmfair.errors import UsageError, did_you_mean
from llmfair.io import files
from llmfair.nouns import Message, Role

Template = str
"""A text as `str.format_map` fills it: `{name}` for a placeholder, literal braces doubled."""

WORDINGS: Mapping[str, str] = {"general": "{task}-general", "wikiproject": "{task}"}
"""What the wordings of a task are called, and which prompts they are: items of any sort, or the paper's articles."""
FORMAT_HINT = "llmfair prompts show listwise-general    prints one to start from"
PATTERNS = ("passage", "answer")
ALL_PASSAGES = "passages"
RESERVED = {"variant", ALL_PASSAGES, *PATTERNS}
BARE = re.compile(r"[^.\[\]]+")


Conversation = Sequence[tuple[bool, Role, Template]]
"""Messages that follow each other, and whether they stand there for every passage."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt file, checked: its conversation per variant ("" in a file without variants).

    `join` stands between passages that are one text. `budget`: passages are cut to what is left of the model's
    context beside the whole `prompt`, or beside the `question` alone. `hypothesis`: what an `{output}` claims.
    """

    id: str
    source: str
    file: str
    sha256: str
    text: str
    variants: Mapping[str, Conversation]
    passage: Template
    join: str = "\n"
    budget: str = "prompt"
    hypothesis: Template = "{output}"

    def render(
        self, values: Mapping[str, object], variant: str = "", passages: Sequence[Mapping[str, object]] = ()
    ) -> tuple[Message, ...]:
        """The conversation with every placeholder filled; a passage's own values come before `values`.

        Turns with `each` that follow each other are repeated together for every passage. Raises UsageError for an
        unknown variant or a placeholder without a value.
        """
        messages: list[Message] = []
        try:
            lines = [self.passage.format_map({**values, **passage}) for passage in passages]
            shared = {ALL_PASSAGES: self.join.join(lines), **values}
            for each, group in groupby(self._conversation(variant), itemgetter(0)):
                turns = [*group]
                for filled in [{**shared, **passage} for passage in passages] if each else [shared]:
                    messages += [Message(role, text.format_map(filled)) for _, role, text in turns]
        except KeyError as missing:
            raise UsageError(
                f"prompt {self.file}: placeholder '{missing.args[0]}' has no value.",
                f"values given: {', '.join(values) or 'none'}",
            ) from None
        return tuple(messages)

    def expect(self, offered: Collection[str], needed: Collection[str] = (), variant: str = "") -> None:
        """Raises UsageError unless the variant exists, uses only offered placeholders and all needed ones."""
        used = _names_in(self._conversation(variant))
        used = used - {ALL_PASSAGES} | self.of_passage if ALL_PASSAGES in used else used
        where = f"prompt {self.file}, variant '{variant}'" if variant else f"prompt {self.file}"
        for name in sorted(used - {*offered}) or sorted({*needed} - used):
            problem = f"unknown.{did_you_mean(name, offered)}" if name in used else "missing."
            raise UsageError(
                f"{where}: placeholder '{name}' is {problem}", f"known here: {', '.join(sorted(offered))}"
            )

    @property
    def of_passage(self) -> frozenset[str]:
        """The placeholders of a passage; `k` among them where passages are numbered."""
        return _names(self.passage)

    def _conversation(self, variant: str) -> Conversation:
        if variant not in self.variants:
            raise UsageError(
                f"prompt {self.file}: no variant '{variant}'.{did_you_mean(variant, self.variants)}",
                f"it has: {', '.join(name or 'no variants' for name in self.variants)}",
            )
        return self.variants[variant]


def prompt_names() -> list[str]:
    """The names of the prompts that come with llmfair, sorted; a prompt in a subfolder is `rag/lamp-1`."""
    folder = _folder()
    return sorted(file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.toml"))


def wordings(task: str) -> dict[str, str]:
    """The wordings of a task, each with its prompt: `{"general": "listwise-general", …}`; none of one without."""
    prompts = {wording: form.format(task=task) for wording, form in WORDINGS.items()}
    return prompts if set(prompts.values()) <= set(prompt_names()) else {}


def wording_of(name: str, task: str) -> str:
    """What a prompt is called among those of a task: a wording's name where it is one, else its own."""
    return next((wording for wording, of_task in wordings(task).items() if of_task == name), name)


def load_prompt(name_or_file: str | Path, task: str = "") -> Prompt:
    """The prompt of that name, of a task also that wording, or in a `.toml` file of one's own. Raises UsageError."""
    if str(name_or_file).endswith(".toml"):
        return _read(Path(name_or_file), str(name_or_file))
    all_names, of_task = prompt_names(), wordings(task)
    name = of_task.get(str(name_or_file), str(name_or_file))
    if name in WORDINGS:
        prompts = [of_it[name] for task in all_names if (of_it := wordings(task))]
        raise UsageError(f"'{name}' is a prompt of several tasks.", f"choose {' or '.join(prompts)}")
    if name not in all_names:
        raise UsageError(
            f"no prompt '{name}'.{did_you_mean(name, [*of_task, *all_names])}",
            f"known: {', '.join([*of_task, *all_names])}; a file of your own ends in .toml",
        )
    return _read(_folder() / f"{name}.toml", f"prompts/{name}.toml")


def _folder() -> Path:
    """Beside this module in a wheel, at the repository's root in an editable install and a bare checkout."""
    folder = Path(__file__).parent / "prompts"
    return folder if folder.is_dir() else Path(__file__).parent.parent / "prompts"


class Turn(Struct, forbid_unknown_fields=True):
    """A `[[turns]]` of a file; `each`: it is repeated for every passage."""

    role: Role
    text: Template
    each: Literal["passage"] | None = None


class PromptFile(Struct, forbid_unknown_fields=True):
    """A file as it is written; `passage`, `answer` and each variant stand for their names in the turns."""

    id: str
    source: str
    turns: Annotated[Sequence[Turn], Meta(min_length=1)]
    placeholders: Mapping[str, str] = {}
    variants: Mapping[str, Template] = {}
    passage: Template | None = None
    answer: Template | None = None
    join: str = "\n"
    budget: Literal["prompt", "question"] = "prompt"
    hypothesis: Template = "{output}"


def _read(path: Path, label: str) -> Prompt:
    """Reads and checks one file."""
    try:
        content = files.content(path, files.MOST_BY_HAND)
        text = content.decode("utf-8")
        table = files.toml_of(text)
    except OSError as error:
        raise UsageError(f"prompt {label} cannot be read: {error.strerror}.", "check the path") from None
    except ValueError as error:
        raise UsageError(f"prompt {label} is not TOML: {error}.", "see https://toml.io") from None
    file = files.typed(table, PromptFile, f"prompt {label}", FORMAT_HINT)
    texts = {name: of for name in PATTERNS if (of := getattr(file, name)) is not None}
    turns = [turn.text for turn in file.turns]
    try:
        for template in (*file.variants.values(), *turns, file.hypothesis, *texts.values()):
            for _, name, spec, conversion in Formatter().parse(template):
                if name is not None and (not BARE.fullmatch(name) or spec or conversion):
                    raise ValueError(f"placeholder '{name}' must be a bare name in braces")
    except ValueError as error:
        raise UsageError(f"prompt {label}: {error}.", "double a literal brace: {{ }}") from None
    variants = {
        name: tuple(
            (turn.each is not None, turn.role, _put_in(turn.text, {**texts, "variant": wording}))
            for turn in file.turns
        )
        for name, wording in (file.variants or {"": "{variant}"}).items()
    }
    of_items = texts.get("passage", ""), file.join, file.budget, file.hypothesis
    digest = hashlib.sha256(content).hexdigest()
    prompt = Prompt(file.id, file.source.strip(), label, digest, text, variants, *of_items)
    used = _names(prompt.passage).union(*map(_names_in, variants.values()))
    listing = [turn for turn in file.turns if turn.each and ALL_PASSAGES in _names(turn.text)]
    if listing or (ALL_PASSAGES in used and file.passage is None):
        raise UsageError(
            f"prompt {label}: {{{ALL_PASSAGES}}} cannot be filled.",
            "it needs the file's `passage` pattern and a turn without `each`",
        )
    if _names(file.hypothesis) != {"output"}:
        raise UsageError(f"prompt {label}: 'hypothesis' has one placeholder, {{output}}.", FORMAT_HINT)
    names = file.placeholders.keys()
    for name in sorted((used - {ALL_PASSAGES}) ^ names | RESERVED & names):
        near = did_you_mean(name, names) if name in used else ""
        raise UsageError(
            f"prompt {label}: '{name}' has to be both in the text and under [placeholders].{near}",
            f"double the braces of a literal {{{{ }}}}; no placeholder is called {', '.join(sorted(RESERVED))}",
        )
    return prompt


def _put_in(template: Template, texts: Mapping[str, Template]) -> Template:
    """The template with the file's own texts in the place of their names."""
    return "".join(
        literal.replace("{", "{{").replace("}", "}}")
        + ("" if name is None else texts.get(name, f"{{{name}}}"))
        for literal, name, _, _ in Formatter().parse(template)
    )


@lru_cache
def _names(template: Template) -> frozenset[str]:
    """The placeholders of a template."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name is not None)


def _names_in(conversation: Conversation) -> frozenset[str]:
    """The placeholders of a conversation."""
    return frozenset().union(*(_names(text) for _, _, text in conversation))
