"""llmfair.toml: settings from a file, each with the place that gives it.

Names are those of flags with underscores: shared ones on top, `[listwise]` and the like for one command. Paths are
relative to the file, which may stand above the folder one works in. What looks like a secret is refused, since secrets
come from the environment only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from llmfair import registry
from llmfair.errors import UsageError, did_you_mean, warn
from llmfair.io import files, secrets

CONFIG_NAME = "llmfair.toml"


@dataclass(frozen=True)
class Written:
    """A value that a file gives, and where."""

    value: Any
    where: str

    def __str__(self) -> str:
        return str(self.value)


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
) -> dict[str, dict[str, Written]]:
    """A configuration file as `{command: {setting: value}}`; shared keys stand on top, `[command]` tables below.

    `commands` gives the settings of each command, with their types; `content`: what the file holds, where it was read.
    Raises UsageError naming file, key and the nearest name; keys that look like secrets are refused, since those come
    from the environment only.
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
    shared = _settings(
        path, "", {key: value for key, value in table.items() if not isinstance(value, dict)}, everywhere
    )
    return {
        command: {key: value for key, value in shared.items() if key in hints}
        | _settings(path, f"{command}.", table.get(command, {}), hints)
        for command, hints in commands.items()
    }


def _settings(
    path: Path, prefix: str, table: Mapping[str, Any], hints: Mapping[str, Any]
) -> dict[str, Written]:
    """A table's settings, each one that there is."""
    settings = {}
    for key, value in table.items():
        where = f"{path}: {prefix}{key}"
        if key in hints:
            settings[key] = Written(_from(path.parent, key, value, hints[key]), where)
        elif secrets.is_secret(key):
            raise UsageError(f"{where} looks like a secret.", "set it in the environment: OPENAI_API_KEY")
        else:
            raise UsageError(
                f"{where} is not a setting.{did_you_mean(key, hints)}",
                "settings are flags with underscores; llmfair COMMAND --help-all lists them",
            )
    return settings


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
