"""llmfair.toml: settings from a file, each known and of its type.

Names are those of flags with underscores: shared ones on top, `[listwise]` and the like for one command. Paths are
relative to the file, which may stand above the folder one works in. What looks like a secret is refused, since secrets
come from the environment only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from llmfair import registry
from llmfair.errors import UsageError, did_you_mean, warn
from llmfair.io import files, secrets

CONFIG_NAME = "llmfair.toml"
NAME_OR_PATH: Mapping[str, Callable[[Path], bool]] = {
    "base_model": Path.is_dir,
    "dataset": Path.is_dir,
    "prompt": Path.is_file,
}
"""Settings that take a name or a path: a path, where there is one."""


def find_config(start: Path) -> tuple[Path, bytes] | None:
    """The nearest llmfair.toml from `start` upwards that may be obeyed, with what it holds; others are told of.

    Nobody named it, so it has to belong to the user, to root or to the owner of `start`, and not everybody may write
    it. Asked is the file that is read, and a link to it, too.
    """
    trusted = {os.geteuid(), 0, start.stat().st_uid}
    for path in (folder / CONFIG_NAME for folder in (start, *start.parents)):
        if not os.path.isfile(path):  # noqa: PTH113 - which says no where a folder may not be looked into
            continue
        try:
            with files.opened(path) as file:
                read = os.fstat(file.fileno())
                if strangers := {read.st_uid, os.lstat(path).st_uid} - trusted:
                    why = f"belongs to somebody else (uid {min(strangers)})"
                elif read.st_mode & stat.S_IWOTH:
                    why = "may be written by everybody"
                else:
                    return path, files.content_of(file, path, files.MOST_BY_HAND)
        except OSError as error:
            why = f"cannot be read ({error.strerror})"
        warn(f"{path} {why}, so it is passed over; --config {path} obeys it.")
    return None


def read_config(
    path: Path, commands: Mapping[str, Mapping[str, Any]], content: bytes | None = None
) -> dict[str, dict[str, Any]]:
    """A configuration file as `{command: {setting: value}}`; shared keys stand on top, `[command]` tables below.

    `commands` gives the settings each command knows, with their types; `content`: what the file holds, where it was
    read. Raises UsageError naming file, key and the nearest name, or the type expected; keys that look like secrets are
    refused, since those come from the environment only.
    """
    try:
        if content is None:
            content = files.content(path, files.MOST_BY_HAND)
        table = files.toml_of(files.decoded(content))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}.", "name a file with --config") from None
    except ValueError as error:
        raise UsageError(
            f"{path}: not valid TOML: {error}", "mend it, or name another with --config"
        ) from None
    for key in table:
        if isinstance(table[key], dict) and key not in commands:
            raise UsageError(
                f"{path}: [{key}] is not a command.{did_you_mean(key, commands)}",
                f"commands with settings: {', '.join(commands)}",
            )
    everywhere = {name: hint for names in commands.values() for name, hint in names.items()}
    shared = _checked(
        path, "", {key: value for key, value in table.items() if not isinstance(value, dict)}, everywhere
    )
    return {
        command: {key: value for key, value in shared.items() if key in known}
        | _checked(path, f"{command}.", table.get(command, {}), known)
        for command, known in commands.items()
    }


def _checked(path: Path, prefix: str, table: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """A table's settings, each known and of its type."""
    found = {}
    for key, value in table.items():
        if key in known:
            value = typed(f"{path}: {prefix}{key}", value, known[key])
            found[key] = _from(path.parent, key, value, known[key])
        elif secrets.is_secret(key):
            raise UsageError(
                f"{path}: {prefix}{key} looks like a secret.", "set it in the environment: OPENAI_API_KEY"
            )
        else:
            raise UsageError(
                f"{path}: {prefix}{key} is not a setting.{did_you_mean(key, known)}",
                "settings are flags with underscores; llmfair COMMAND --help-all lists them",
            )
    return found


def _from(folder: Path, key: str, value: Any, hint: Any) -> Any:
    """A value as seen from the working folder, if it is a path, which is written as seen from the file's `folder`."""
    if not isinstance(value, str):
        return value
    if key == "queries" and value.startswith("@"):
        return "@" + _from(folder, key, value[1:], Path)
    there, is_there = folder / Path(value).expanduser(), NAME_OR_PATH.get(key)
    named = is_there is not None and is_there(there) and not registry.has("dataset", value)
    if hint is Path or Path in get_args(hint) or named:
        return value if Path(value).is_absolute() else os.path.relpath(there)
    return value


def typed(
    where: str, value: Any, hint: Any, way_out: str = "mend the file, or name another with --config"
) -> Any:
    """A value as its setting takes it: a list for a comma-separated text, one text for a list. Raises UsageError."""
    choices = [
        part for part in (get_args(hint) if isinstance(hint, UnionType) else (hint,)) if part is not NoneType
    ]
    wanted = choices[0]
    texts = isinstance(value, list) and all(isinstance(part, str) for part in value)
    if get_origin(wanted) is Literal:
        if value in get_args(wanted):
            return value
        raise UsageError(f"{where} is {value!r}.", f"one of: {', '.join(get_args(wanted))}")
    if get_origin(wanted) is tuple:
        if isinstance(value, str) or texts:
            return [value] if isinstance(value, str) else value
        raise UsageError(f"{where} is {value!r}, but takes a list of texts.", 'for example ["fake:oracle"]')
    if wanted in (str, Path) and (isinstance(value, str) or (wanted is str and texts)):
        return ",".join(value) if isinstance(value, list) else value
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is wanted:
        return value
    names = {str: "a text", Path: "a path", int: "a whole number", float: "a number", bool: "true or false"}
    raise UsageError(f"{where} is {value!r}, but takes {names[wanted]}.", way_out)
