"""Prompts: every word ever sent to a model stands in a TOML file, and this module finds, checks and fills it.

A file declares its placeholders, so a slip of the pen is an error before anything is asked. Filling is one
pass: what a title or a query holds is never read as a placeholder. prompts/listwise.toml shows the format.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from string import Formatter
from typing import Any, cast, get_args

from llmfair.errors import UsageError, did_you_mean
from llmfair.io import files
from llmfair.nouns import Message, Role

Template = str
"""A text as `str.format_map` fills it: `{name}` for a placeholder, literal braces doubled."""

WORDINGS: Mapping[str, str] = {"general": "{task}-general", "wikiproject": "{task}"}
"""What the wordings of a task are called, and which prompts they are: items of any sort, or the paper's articles."""
FORMAT_HINT = "llmfair prompts show listwise-general    prints one to start from"
_PATTERNS = {"passage", "answer"}
_KEYS = {"id", "source", "placeholders", "variants", "turns", "join", "budget", "hypothesis"} | _PATTERNS
_BUDGETS = ("prompt", "question")
_TURN_KEYS = {"role", "text", "each"}
_WANTED: Mapping[type, str] = {str: "a text", list: "an array of tables", dict: "a table"}
_ALL_PASSAGES = "passages"
_BARE = re.compile(r"[^.\[\]]+")
_RESERVED = {"variant", _ALL_PASSAGES} | _PATTERNS


@dataclass(frozen=True, slots=True)
class Block:
    """Messages that follow each other; with `each`, all of them for every passage."""

    each: bool
    turns: tuple[tuple[Role, Template], ...]


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
    variants: Mapping[str, tuple[Block, ...]]
    passage: Template
    join: str = "\n"
    budget: str = "prompt"
    hypothesis: Template = "{output}"

    def render(
        self,
        values: Mapping[str, object],
        variant: str = "",
        passages: Sequence[Mapping[str, object]] = (),
    ) -> tuple[Message, ...]:
        """The conversation with every placeholder filled; a passage's own values come before `values`.

        Turns with `each` that follow each other are repeated together for every passage. Raises UsageError for an
        unknown variant or a placeholder without a value.
        """
        messages: list[Message] = []
        shared = _Values(values, self, passages)
        try:
            for block in self._conversation(variant):
                for filled in [{**shared, **passage} for passage in passages] if block.each else [shared]:
                    messages += [Message(role, text.format_map(filled)) for role, text in block.turns]
        except KeyError as missing:
            raise UsageError(
                f"prompt {self.file}: placeholder '{missing.args[0]}' has no value.",
                f"values given: {', '.join(values) or 'none'}",
            ) from None
        return tuple(messages)

    def expect(self, offered: Collection[str], needed: Collection[str] = (), variant: str = "") -> None:
        """Raises UsageError unless the variant exists, uses only offered placeholders and all needed ones."""
        used = _names_in(self._conversation(variant))
        if _ALL_PASSAGES in used:
            used = used - {_ALL_PASSAGES} | self.of_passage
        where = f"prompt {self.file}, variant '{variant}'" if variant else f"prompt {self.file}"
        for name in sorted(used - set(offered)):
            raise UsageError(
                f"{where}: unknown placeholder '{name}'.{did_you_mean(name, offered)}",
                f"known here: {', '.join(sorted(offered))}",
            )
        for name in sorted(set(needed) - used):
            raise UsageError(
                f"{where}: placeholder '{name}' is missing.", f"write {{{name}}} where it belongs"
            )

    @property
    def of_passage(self) -> frozenset[str]:
        """The placeholders of a passage; `k` among them where passages are numbered."""
        return _names(self.passage)

    def _conversation(self, variant: str) -> tuple[Block, ...]:
        if variant not in self.variants:
            raise UsageError(
                f"prompt {self.file}: no variant '{variant}'.{did_you_mean(variant, self.variants)}",
                f"it has: {', '.join(name or 'no variants' for name in self.variants)}",
            )
        return self.variants[variant]


class _Values(dict[str, object]):
    """The values of a conversation; all passages as one text are made when a turn asks for them."""

    def __init__(
        self, values: Mapping[str, object], prompt: Prompt, passages: Sequence[Mapping[str, object]]
    ) -> None:
        super().__init__(values)
        self.prompt, self.passages = prompt, passages

    def __missing__(self, name: str) -> str:
        if name != _ALL_PASSAGES:
            raise KeyError(name)
        lines = (self.prompt.passage.format_map({**self, **passage}) for passage in self.passages)
        return self.prompt.join.join(lines)


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
    """The prompt of that name, of a task also that wording, or the prompt in a `.toml` file of one's own.

    Raises UsageError naming the file and what is wrong in it, or the nearest name.
    """
    if str(name_or_file).endswith(".toml"):
        return _read(Path(name_or_file), str(name_or_file))
    known, of_task = prompt_names(), wordings(task)
    name = of_task.get(str(name_or_file), str(name_or_file))
    if name in WORDINGS:
        prompts = [found[name] for task in known if (found := wordings(task))]
        raise UsageError(f"'{name}' is a prompt of several tasks.", f"choose {' or '.join(prompts)}")
    if name not in known:
        raise UsageError(
            f"no prompt '{name}'.{did_you_mean(name, [*of_task, *known])}",
            f"known: {', '.join([*of_task, *known])}; a file of your own ends in .toml",
        )
    return _read(_folder() / f"{name}.toml", f"prompts/{name}.toml")


def _folder() -> Path:
    """Beside this module in a wheel, at the repository's root in an editable install and a bare checkout."""
    beside = Path(__file__).parent / "prompts"
    return beside if beside.is_dir() else Path(__file__).parent.parent / "prompts"


def _read(path: Path, shown: str) -> Prompt:
    """Reads and checks one file."""
    try:
        content = files.content(path, files.MOST_BY_HAND)
        text = content.decode("utf-8")
        table = files.toml_of(text)
    except OSError as error:
        raise UsageError(f"prompt {shown} cannot be read: {error.strerror}.", "check the path") from None
    except ValueError as error:
        raise UsageError(f"prompt {shown} is not TOML: {error}.", "see https://toml.io") from None
    _only_known(table, _KEYS, shown, "key")
    placeholders = _texts(table, "placeholders", shown)
    wordings = _texts(table, "variants", shown)
    for name in sorted(_RESERVED & placeholders.keys()):
        raise UsageError(f"prompt {shown}: '{name}' cannot be a placeholder.", "it names a text of the file")
    texts = {key: _parse(table, key, shown) for key in sorted(_PATTERNS & table.keys())}
    variants = {
        name: _blocks(table, {**texts, "variant": _parse(wordings, name, shown)}, shown) for name in wordings
    } or {"": _blocks(table, texts, shown)}
    prompt = Prompt(
        id=_take(table, "id", str, shown),
        source=_take(table, "source", str, shown).strip(),
        file=shown,
        sha256=hashlib.sha256(content).hexdigest(),
        text=text,
        variants=variants,
        passage=texts.get("passage", ""),
        **_items(table, shown),
    )
    used = _names(prompt.passage).union(*map(_names_in, variants.values())) - {_ALL_PASSAGES}
    for name in sorted(used - placeholders.keys()):
        raise UsageError(
            f"prompt {shown}: placeholder '{name}' is not declared.{did_you_mean(name, placeholders)}",
            "declare it under [placeholders], or double the braces of a literal {{ }}",
        )
    for name in sorted(placeholders.keys() - used):
        raise UsageError(
            f"prompt {shown}: placeholder '{name}' is declared but missing from the text.",
            f"write {{{name}}} where it belongs",
        )
    return prompt


def _items(table: Mapping[str, Any], shown: str) -> dict[str, str]:
    """The keys on items, those that the file has."""
    found: dict[str, str] = {key: _take(table, key, str, shown) for key in ("join", "budget") if key in table}
    if found.get("budget", "prompt") not in _BUDGETS:
        raise UsageError(
            f"prompt {shown}: 'budget' must be {' or '.join(_BUDGETS)}.", "leave it out otherwise"
        )
    if "hypothesis" in table:
        found["hypothesis"] = _parse(table, "hypothesis", shown)
        if _names(found["hypothesis"]) != {"output"}:
            raise UsageError(
                f"prompt {shown}: 'hypothesis' has one placeholder, {{output}}.", "leave it out otherwise"
            )
    return found


def _blocks(table: Mapping[str, Any], texts: Mapping[str, Template], shown: str) -> tuple[Block, ...]:
    """The turns with the file's own texts put in, by whether they are repeated for every passage."""
    grouped = groupby(_turns(table, texts, shown), key=itemgetter(0))
    return tuple(Block(each, tuple((role, text) for _, role, text in turns)) for each, turns in grouped)


def _turns(
    table: Mapping[str, Any], texts: Mapping[str, Template], shown: str
) -> Iterator[tuple[bool, Role, Template]]:
    """Each turn of the file: whether it is one for every passage, its role and its text."""
    entries = _take(table, "turns", list, shown)
    if not entries:
        raise UsageError(f"prompt {shown}: 'turns' is empty.", "write one [[turns]] for each message")
    for number, entry in enumerate(entries, start=1):
        where = f"{shown}, turn {number}"
        if not isinstance(entry, dict):
            raise UsageError(f"prompt {where}: not a table.", "write [[turns]]")
        _only_known(entry, _TURN_KEYS, where, "key")
        role = _take(entry, "role", str, where)
        if role not in get_args(Role):
            raise UsageError(
                f"prompt {where}: no role '{role}'.{did_you_mean(role, get_args(Role))}",
                f"roles: {', '.join(get_args(Role))}",
            )
        each = "each" in entry
        if each and _take(entry, "each", str, where) != "passage":
            raise UsageError(f"prompt {where}: 'each' must be \"passage\".", "leave it out otherwise")
        text = _put_in(_parse(entry, "text", where), texts)
        names = _names(text)
        if (each and _ALL_PASSAGES in names) or (_ALL_PASSAGES in names and "passage" not in texts):
            raise UsageError(
                f"prompt {where}: {{{_ALL_PASSAGES}}} cannot be filled here.",
                "it needs the file's `passage` pattern and a turn without `each`",
            )
        yield each, cast(Role, role), text


def _parse(table: Mapping[str, Any], key: str, shown: str) -> Template:
    """A text of the file, checked: placeholders are bare names, literal braces are doubled."""
    text: str = _take(table, key, str, shown)
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise UsageError(f"prompt {shown}: '{key}': {error}.", "double a literal brace: {{ }}") from None
    for _, name, spec, how in parts:
        if name is not None and (not _BARE.fullmatch(name) or spec or how):
            raise UsageError(
                f"prompt {shown}: '{key}': placeholder '{name}' must be a bare name in braces.",
                "double a literal brace: {{ }}",
            )
    return text


def _put_in(template: Template, texts: Mapping[str, Template]) -> Template:
    """The template with the file's own texts in the place of their names."""
    return "".join(
        _escaped(literal) + ("" if name is None else texts.get(name, f"{{{name}}}"))
        for literal, name, _, _ in Formatter().parse(template)
    )


def _escaped(literal: str) -> Template:
    return literal.replace("{", "{{").replace("}", "}}")


@lru_cache
def _names(template: Template) -> frozenset[str]:
    """The placeholders of a template."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name is not None)


def _names_in(conversation: Sequence[Block]) -> frozenset[str]:
    """The placeholders of a conversation."""
    return frozenset().union(*(_names(text) for block in conversation for _, text in block.turns))


def _texts(table: Mapping[str, Any], key: str, shown: str) -> dict[str, str]:
    """A table of texts; an absent one is empty."""
    texts = _take(table, key, dict, shown) if key in table else {}
    return {name: _take(texts, name, str, f"{shown}, {key}") for name in texts}


def _take(table: Mapping[str, Any], key: str, kind: type, shown: str) -> Any:
    if key not in table:
        raise UsageError(f"prompt {shown}: key '{key}' is missing.", FORMAT_HINT)
    if not isinstance(table[key], kind):
        raise UsageError(f"prompt {shown}: '{key}' must be {_WANTED[kind]}.", FORMAT_HINT)
    return table[key]


def _only_known(table: Mapping[str, Any], known: set[str], shown: str, what: str) -> None:
    for key in sorted(table.keys() - known):
        raise UsageError(
            f"prompt {shown}: unknown {what} '{key}'.{did_you_mean(key, known)}",
            f"known: {', '.join(sorted(known))}",
        )
