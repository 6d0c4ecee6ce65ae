"""Whether the random generators of a step end in the same state after an interruption as undisturbed.

A seeded generator ends every undisturbed execution in the same state. After an interruption it does so only if it was saved or
unused. So a generator that ends in another state explains why outputs differ although the newest save was whole. Python
processes of a command and of a task record the states themselves (:mod:`.generator_hook`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from spotwright.local.supervisor.executor_main import HOOK_VARIABLE
from spotwright.rehearsal import generator_hook
from spotwright.rehearsal.generator_hook import FOLDER_VARIABLE

__all__ = ["changed_generators", "recording_environment", "writing_lines"]


_FOLDER, _MAX_SIZE = "generators", 100_000  # in an attempt's folder; bytes of a record

_States = Mapping[tuple[str, ...], str]  # a digest by rank, script and generator


def recording_environment(attempt: Path, env: Mapping[str, str], *, is_command: bool) -> dict[str, str]:
    """Return the variables that make an attempt's Python processes record their generators; make the folder.

    A command's hook replaces the user's ``sitecustomize`` and then executes it. A task's process is forked from a running
    interpreter, so it executes the hook itself.
    """
    hook, records = attempt / _FOLDER / "hook", attempt / _FOLDER / "states"
    for each in (hook, records):
        each.mkdir(parents=True, exist_ok=True)
    if not is_command:
        return {FOLDER_VARIABLE: str(records), HOOK_VARIABLE: str(Path(generator_hook.__file__))}
    (hook / "sitecustomize.py").write_text(
        _SITE.format(hook=str(hook), code=str(Path(generator_hook.__file__))), "utf-8"
    )
    before = env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    return {
        "PYTHONPATH": f"{hook}{os.pathsep}{before}" if before else str(hook),
        FOLDER_VARIABLE: str(records),
    }


_SITE = """import runpy, sys
sys.path[:] = [each for each in sys.path if each != {hook!r}]
runpy.run_path({code!r}, run_name="sitecustomize")
ours = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = ours
"""


def changed_generators(undisturbed: Sequence[Path], interrupted: Path) -> tuple[str, ...] | None:
    """The generators whose final state differs from all undisturbed attempts, which agree; ``None``: unknown.

    The paths are attempt folders. A generator that ends differently without an interruption is unseeded, and is left out.
    """
    before, after = [_read(each) for each in undisturbed], _read(interrupted)
    seeded = (
        {key for key, state in before[0].items() if all(each.get(key) == state for each in before)} if before else set()
    )
    if len(before) < 2 or not seeded & after.keys():
        return None
    return tuple(sorted({key[-1] for key in seeded & after.keys() if after[key] != before[0][key]}))


def writing_lines(attempt: Path) -> dict[str, str]:
    """The files that an attempt's Python processes opened for writing, each with the line of code that opened it."""
    return dict(pair for _, lines in _records(attempt) for pair in lines.items())


def _read(attempt: Path) -> _States:
    return dict(pair for states, _ in _records(attempt) for pair in states.items())


def _records(attempt: Path) -> Iterator[tuple[dict[tuple[str, ...], str], dict[str, str]]]:
    """The states and the lines that each process of an attempt recorded."""
    for file in sorted((attempt / _FOLDER / "states").glob("*.json")):
        try:
            record = json.loads(file.read_bytes()[:_MAX_SIZE])
            states = {(*map(str, record["who"]), str(name)): str(state) for name, state in record["states"].items()}
            lines = {str(path): str(line) for path, line in record.get("lines", {}).items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # written by the user's processes: skip what is not a record
        yield states, lines
