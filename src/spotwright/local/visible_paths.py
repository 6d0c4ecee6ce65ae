"""Decide which paths of this machine below private folders an attempt sees: the run's files, and paths that the user named.

``/tmp`` and the like are empty when an attempt starts, and writes to the home folder are its own (see
:mod:`spotwright.local.supervisor.private_folders`). A run must still work if the project is in one of them, and a file that the
user passes as an argument must be visible:

- the state folder and the checkpoints are shared, because they represent the cluster's storage;
- an existing path that a parameter, a variable of the task or a word of its command names is shared, like a mounted volume;
  if only its folder exists, the folder is shared, so that the task can make the file;
- artifacts, and paths that variables of this shell name, are readable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from spotwright.local.protocol import PrivateFolderSettings
from spotwright.local.supervisor.private_folders import is_below, private_folders

__all__ = ["named_paths", "private_folder_settings"]

_OF_THE_SHELL = frozenset({"PWD", "OLDPWD", "HOME", "TMPDIR", "TEMP", "TMP", "PATH", "PYTHONPATH", "LD_LIBRARY_PATH"})
_OUR_VARIABLES = ("SPOTWRIGHT_", "_SPOTWRIGHT_")


def private_folder_settings(
    runs: str,
    checkpoint: str,
    executor_input: Mapping[str, Any],
    env: Mapping[str, str],
    command: Sequence[str] = (),
) -> PrivateFolderSettings:
    """The paths that an attempt sees below its private folders.

    ``runs`` is the folder of all runs in the state folder, ``env`` the attempt's own variables.
    """
    roots = private_folders()
    own = _of_the_state_folder(runs, roots)
    # a folder for each task would need a namespace for each task
    if checkpoint.startswith("/") and not is_below(checkpoint, own):
        own = (*own, checkpoint)
    inputs = executor_input.get("inputs", {})
    values = [inputs.get("parameterValues", {}), list(command), _without_ours(env)]
    artifacts = [each.get("uri", "") for entry in inputs.get("artifacts", {}).values() for each in entry["artifacts"]]
    return PrivateFolderSettings(
        own=own,
        named=named_paths(values, roots),
        readable=(*named_paths(artifacts, roots), *_named_by_shell(roots)),
    )


@cache
def _of_the_state_folder(runs: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    """The state folder; its folders if it is itself a private folder, which cannot be shared."""
    state = Path(runs).parent
    return (
        (str(state),) if str(state) not in roots else tuple(str(state / name) for name in ("runs", "volumes", "cache"))
    )


@cache
def _named_by_shell(roots: tuple[str, ...]) -> tuple[str, ...]:
    """The paths that variables of this process name; once for all attempts."""
    return named_paths(
        _without_ours({name: value for name, value in os.environ.items() if name not in _OF_THE_SHELL}), roots
    )


def named_paths(values: Any, roots: Sequence[str] | None = None) -> tuple[str, ...]:
    """The existing paths below private folders that texts in ``values`` name, or the folders of those that do not exist yet."""
    folders = private_folders() if roots is None else roots
    found = (_existing(path, folders) for text in _texts(values) for path in _paths_in(text))
    return tuple(dict.fromkeys(path for path in found if path))


def _without_ours(env: Mapping[str, str]) -> list[str]:
    return [value for name, value in env.items() if not name.startswith(_OUR_VARIABLES)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _paths_in(text: str) -> Iterator[str]:
    """Absolute paths that a text consists of: alone, as a ``file:`` URL, separated by colons, or after ``=``."""
    if text.startswith("file:///"):
        yield unquote(text.removeprefix("file://"))
    elif "/" in text and "\n" not in text:
        yield from (part for part in text.rpartition("=")[2].split(":") if part.startswith("/"))


def _existing(path: str, roots: Sequence[str]) -> str:
    """The path, or else its folder, if it exists below a private folder; empty otherwise."""
    real = os.path.realpath(path)
    for each in (real, os.path.dirname(real)):  # noqa: PTH120 (for every value of every attempt)
        if is_below(each, roots) and os.path.exists(each):  # noqa: PTH110
            return each
    return ""
