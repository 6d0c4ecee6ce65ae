"""Record how a Python process ends: the states of its random generators, and which lines of its code wrote files.

A rehearsal adds this code to each Python process of a command, and to the process of a task.

It is executed by path before the user's program, in the user's interpreter, so it does not import Spotwright, and ignores its
own failures. It records only the shared generators of :mod:`random`, ``numpy.random`` and ``torch``, each as a digest, and only
if the program has imported the module.
"""

# Executed in every interpreter of the user: os.path, because pathlib is slow to import.
# ruff: noqa: PTH100, PTH118, PTH119, PTH120, PTH123

from __future__ import annotations

import atexit
import contextlib
import os
import random
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

__all__ = ["FOLDER_VARIABLE"]

FOLDER_VARIABLE = "_SPOTWRIGHT_GENERATORS"
"""The folder for the records: one file for each process, named by its pid."""

_STARTED_AS, _AS_IMPORTED = os.getpid(), random.getstate()
_UNTOUCHED = b"untouched"  # in place of an unused state, which differs in each process


_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_LIBRARIES = (f"{os.path.dirname(os.__file__)}{os.sep}", f"{sys.prefix}{os.sep}lib{os.sep}")
_MOST_LINES = 100
_lines: dict[str, str] = {}  # by file that this process writes: the line of the step's own code that opens it


def _note_line(event: str, arguments: tuple[Any, ...]) -> None:
    """Note which line opens a file to write to it. An audit hook, so that it sees each open of Python code."""
    if event != "open" or len(_lines) >= _MOST_LINES:
        return
    path, _, flags = arguments
    if not isinstance(path, str) or not isinstance(flags, int) or not flags & _WRITES:
        return
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (the only way to the caller)
    while frame is not None and frame.f_code.co_filename.startswith(("<", *_LIBRARIES)):
        frame = frame.f_back
    if frame is not None:
        _lines.setdefault(os.path.abspath(path), f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}")


def _states() -> Iterator[tuple[str, bytes]]:
    numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    yield "random", repr(random.getstate()).encode() if random.getstate() != _AS_IMPORTED else _UNTOUCHED
    if numpy is not None:
        kind, keys, *rest = numpy.get_state()
        yield "numpy.random", repr((kind, rest)).encode() + keys.tobytes()
    if torch is not None:
        yield "torch", bytes(torch.get_rng_state().tolist())


def _record() -> None:
    import hashlib
    import json

    if os.getpid() != _STARTED_AS:  # a forked child that ends like its parent
        return
    states: dict[str, str] = {}
    with contextlib.suppress(Exception):  # a half-imported module has no state yet
        states.update((name, hashlib.sha256(state).hexdigest()) for name, state in _states())
    who = [os.environ.get("RANK", ""), os.path.basename(sys.argv[0] if sys.argv else "")]
    with (
        contextlib.suppress(OSError),
        open(os.path.join(os.environ[FOLDER_VARIABLE], f"{os.getpid()}.json"), "w") as file,
    ):
        json.dump({"who": who, "states": states, "lines": _lines}, file)


if __name__ in ("sitecustomize", "task") and FOLDER_VARIABLE in os.environ:
    atexit.register(_record)
    if __name__ == "sitecustomize":  # the lines of a task are those of a file that KFP's compiler has written
        sys.addaudithook(_note_line)
