"""What a checkpoint costs: its import, a save of 100 MB beside ``cp`` and ``fsync`` of the same bytes, and what kills leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import HERE, Bench
from results import Judged, Row

__all__ = ["checkpoint"]

_MEGABYTES = 100
_MODULES = (
    "import sys; before = set(sys.modules); import spotwright.checkpoint; import json; "
    "names = {name.partition('.')[0] for name in set(sys.modules) - before}; "
    "json.dump(sorted(names - set(sys.stdlib_module_names) - {'spotwright'}), open(sys.argv[1], 'w'))"
)
_KILLING = HERE.parent / "tests" / "checkpoint" / "killing.py"


def checkpoint(bench: Bench) -> Iterator[Row]:
    """The lines of the checkpoint library."""
    yield from _import(bench)
    yield _save(bench)
    yield from _kills(bench)


def _import(bench: Bench) -> Iterator[Row]:
    commands = {"bare": "pass", "import": "import spotwright.checkpoint"}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(12):
        for name, code in commands.items():
            seconds = bench.run([sys.executable, "-c", code]).seconds
            if number:  # the first is the warm-up
                taken[name].append(seconds * 1000)
    bare = ("bare interpreter", taken["bare"])
    yield Row("checkpoint", "import spotwright.checkpoint", taken["import"], "ms", Judged.VALUE, 30, *bare, best=True)
    found = bench.new_folder("modules") / "names.json"
    bench.run([sys.executable, "-c", _MODULES, found])
    strange = len(json.loads(found.read_text()))
    yield Row("checkpoint", "modules of third parties that it imports", [strange], "", Judged.VALUE, 0)


def _save(bench: Bench) -> Row:
    """Saves and copies take turns. The copy is that of coreutils, with the file synced and the earlier one out of the way."""
    sys.path.insert(0, str(HERE.parent / "src"))
    from spotwright.checkpoint import Checkpoint

    folder = bench.new_folder("save")
    part = os.urandom(_MEGABYTES * 10_000)
    state = {f"layer {number}": {"weights": bytearray(part), "bias": 0.5} for number in range(100)}
    source, copy = folder / "source", folder / "copy"
    source.write_bytes(part * 100)
    ours, theirs = [], []
    with Checkpoint(folder / "place", writer=True) as ckpt:
        ckpt.load()
        for number in range(bench.times(15, 5) + 1):
            begun = time.perf_counter()
            ckpt.save(state)
            saved = time.perf_counter() - begun
            copied = _copy(source, copy)
            if number:  # the first is the warm-up
                ours.append(saved * 1000)
                theirs.append(copied * 1000)
    return Row("checkpoint", f"save {_MEGABYTES} MB to a folder", ours, "ms", Judged.RATIO, 1.3, "cp and fsync", theirs)


def _copy(source: Path, target: Path) -> float:
    target.unlink(missing_ok=True)
    begun = time.perf_counter()
    subprocess.run(["cp", source, target], check=True)
    with target.open("rb") as file:
        os.fsync(file.fileno())
    return time.perf_counter() - begun


def _kills(bench: Bench) -> Iterator[Row]:
    """Saves that are killed at random moments; every load after it must be whole, and none older than what was told."""
    kills = 10_000 if bench.full else bench.times(1000, 200)
    found = bench.new_folder("kills")
    done = bench.run([sys.executable, _KILLING, found / "place", str(kills), "7", "RESULT"])
    wrong = done.result["wrong"] + done.result["older"]
    yield Row("checkpoint", f"loads that are wrong after {kills} kills", [wrong], "", Judged.VALUE, 0)
    yield Row("checkpoint", "kills that hit a save in the middle", [done.result["inside"]], "")
    yield Row("checkpoint", "a kill, a load and its check", [done.seconds / kills * 1000], "ms")
