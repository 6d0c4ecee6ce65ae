"""Copy artifacts from their ``custom_path`` to the attempt's outputs, as KFP's launcher does.

The launcher uploads such an artifact from its own path instead of the usual one, a file or a whole folder, and accepts a missing
one with a warning. Sources, in kubeflow/pipelines: ``uploadOutputArtifacts`` and ``retrieveArtifactPath`` in
``backend/src/v2/component/launcher_v2.go``; ``UploadBlob`` in ``backend/src/v2/objectstore/object_store.go``.

``executor_output.json`` comes from the user's code and may name any path, also one below an attempt's private ``/tmp``. So not
the engine but a process of the attempt copies, with the attempt's user and view of the file system, and can take only what the
code could read. For a container, its client copies out of the container's file system.

Runs in the fork server's interpreter, so it uses only the standard library.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["custom_paths", "take_from_container", "take_here"]

# ruff: noqa: PTH103, PTH104, PTH108, PTH112, PTH114, PTH116, PTH118, PTH120 (as in process_identity.py)


def custom_paths(directory: str) -> dict[str, str]:
    """The custom paths of an attempt's artifacts, by name; empty without any."""
    try:
        with open(f"{directory}/out/executor_output.json", "rb", opener=_without_waiting) as file:
            text = file.read()
        output = json.loads(text) if b'"custom_path"' in text else {}
    except (OSError, ValueError, RecursionError):
        return {}  # the reader of the outputs reports it
    return dict(_custom_paths(output))


def _without_waiting(path: str, flags: int) -> int:
    """Open a file, but not a pipe, which would never end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is not a file")
    return descriptor


def _custom_paths(output: Any) -> Iterator[tuple[str, str]]:
    artifacts = output.get("artifacts") if isinstance(output, dict) else None
    for name, entry in artifacts.items() if isinstance(artifacts, dict) else ():
        entries = entry.get("artifacts") if isinstance(entry, dict) else None
        first = entries[0] if isinstance(entries, list) and entries else None
        custom = first.get("custom_path") if isinstance(first, dict) else None
        if (
            isinstance(custom, str)
            and custom
            and "\0" not in custom
            and name not in ("", ".", "..")
            and "/" not in name
        ):
            yield name, custom


def take_here(directory: str) -> int:
    """Copy from the custom paths in this process's view; relative ones start at the attempt's working directory.

    Returns the exit code: 0 even for an empty path, which is logged; 1 if a copy failed.
    """
    return _take(directory, lambda custom, target: _copy(os.path.join(directory, "work", custom), target))


def take_from_container(directory: str, container: Mapping[str, Any]) -> int:
    """The same from the file system of a container that has ended, by its client; see :func:`take_here`."""
    import subprocess  # few attempts need this module; imported at the top it would slow every fork

    def copy(custom: str, target: str) -> None:
        if not custom.startswith("/"):
            raise OSError("it is relative; write an absolute path")
        command = [container["program"], "cp", f"{container['name']}:{custom}", target]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        words = done.stderr.decode(errors="replace").strip()
        if done.returncode and any(each in words.lower() for each in _MISSING):
            raise FileNotFoundError(words)
        if done.returncode:
            raise OSError(words.splitlines()[-1] if words else "its client failed")

    return _take(directory, copy)


_MISSING = ("could not find the file", "could not be found", "no such file")  # docker's and podman's messages


def _take(directory: str, copy: Callable[[str, str], None]) -> int:
    for name, custom in custom_paths(directory).items():
        target = f"{directory}/out/artifacts/{name}"
        own = f"{target}.custom"
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            copy(custom, own)
            if os.path.lexists(own):
                _remove(target)
                os.rename(own, target)
        except FileNotFoundError:
            _say(f"{name}: no file at its custom path {custom}; no artifact to pass on")
        except (OSError, shutil.Error, RecursionError) as error:
            _remove(own)
            _say(f"{name}: its custom path {custom} cannot be copied: {_reason(error)}")
            return 1
    return 0


def _copy(source: str, target: str) -> None:
    """Copy a file or a folder; links to files are followed. Raises ``OSError``, for a missing source ``FileNotFoundError``."""
    mode = os.stat(source).st_mode
    inside, around = os.path.realpath(source), os.path.realpath(os.path.dirname(target))
    if inside == target.removesuffix(".custom"):
        return
    if f"{around}/".startswith(f"{inside.rstrip('/')}/"):
        raise OSError("it holds the outputs themselves; write the artifact into a separate folder")
    if stat.S_ISDIR(mode):
        shutil.copytree(source, target, ignore=_refuse_linked_folders, copy_function=_copy_file)
    else:
        _copy_file(source, target)


def _copy_file(source: str, target: str) -> None:
    if not stat.S_ISREG(os.stat(source).st_mode):
        raise OSError(f"{source} is neither a file nor a folder")
    shutil.copy2(source, target)


def _refuse_linked_folders(folder: str, names: list[str]) -> tuple[str, ...]:
    """Refuse links to folders, which may lead in a circle; the launcher cannot upload them either."""
    for name in names:
        path = f"{folder}/{name}"
        if os.path.islink(path) and os.path.isdir(path):
            raise OSError(f"{path} is a link to a folder")
    return ()


def _reason(error: Exception) -> str:
    if isinstance(error, shutil.Error) and isinstance(
        error.args[0], list
    ):  # of each file: its path, the copy's, and why
        return str(error.args[0][0][2])
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)


def _say(text: str) -> None:
    """Write a line into the attempt's log; its code may have closed it."""
    try:
        os.write(2, f"spotwright: {text}\n".encode(errors="replace"))
    except OSError:
        return
