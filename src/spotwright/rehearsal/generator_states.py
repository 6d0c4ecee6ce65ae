"""Whether the random generators of a step end in the same state after an interruption as undisturbed.

A generator that was seeded ends in the same state in each undisturbed execution. After an interruption it does so only if its
state was in the save, or if nothing was drawn from it. So a generator that ends in another state shows why outputs differ
although the newest save was whole. The processes of a command record the states themselves (:mod:`.generator_hook`), where they
are Python.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from spotwright.rehearsal import generator_hook
from spotwright.rehearsal.generator_hook import FOLDER_VARIABLE

__all__ = ["changed_generators", "recording_environment", "writing_lines"]


_FOLDER, _MAX_SIZE = "generators", 100_000  # in an attempt's folder; bytes of a record

_States = Mapping[tuple[str, ...], str]  # a digest by rank, script and generator


def recording_environment(attempt: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The variables with which the Python processes of an attempt record their generators; makes the folder.

    The hook takes the place of a ``sitecustomize`` of the user's, and executes that one afterwards.
    """
    hook, records = attempt / _FOLDER / "hook", attempt / _FOLDER / "states"
    for each in (hook, records):
        each.mkdir(parents=True, exist_ok=True)
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
    """The generators that ended in another state in this attempt than in all undisturbed ones, which agree; ``None``: not known.

    The paths are those of attempts. A generator that ends differently without any interruption is not named: it has no seed.
    """
    before, after = [_read(each) for each in undisturbed], _read(interrupted)
    seeded = (
        {key for key, state in before[0].items() if all(each.get(key) == state for each in before)} if before else set()
    )
    if len(before) < 2 or not seeded & after.keys():
        return None
    return tuple(sorted({key[-1] for key in seeded & after.keys() if after[key] != before[0][key]}))


def writing_lines(attempt: Path) -> dict[str, str]:
    """The files that the Python processes of an attempt opened to write, each with the line of their code that did so."""
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
            continue  # written by the user's processes: what is no record tells nothing
        yield states, lines
