"""Fuzzes one target for so many seconds, guided by coverage: ``python -m tests.fuzz TARGET SECONDS``.

It needs atheris (``pip install atheris``), which is in no list of requirements: nothing but this uses it. Inputs that reach new
code are kept in ``.fuzz/TARGET``. The first input of each kind of fault is written to ``.fuzz/TARGET.found``, and the fuzzer
goes on; made small, it goes into ``corpus/TARGET`` when the fault is mended. Most inputs are JSON, so most changes are made to
values. The exit code is 1 if anything was found.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

atheris: Any = importlib.import_module("atheris")
LONGEST = 40_000  # bytes of an input
SLOWER = 8  # times that observed code takes longer


def main() -> int:
    """Fuzz in a separate process until the time is over, because libFuzzer ends the process that it runs in."""
    target, seconds, *options = sys.argv[1:]
    found = Path(".fuzz") / f"{target}.found"
    shutil.rmtree(found, ignore_errors=True)
    found.mkdir(parents=True)
    here = [sys.executable, "-c", "from tests.fuzz.__main__ import fuzz; fuzz()", target, seconds, *options]
    ended = subprocess.run(here, check=False)
    kinds = sorted(path.name for path in found.iterdir())
    print(f"{len(kinds)} kinds of faults in {found}: {' '.join(kinds)}" if kinds else "nothing was found")  # noqa: T201
    return 1 if kinds or ended.returncode else 0


def fuzz() -> None:
    """Fuzz a target; this does not return."""
    target, seconds, *more = sys.argv[1:]
    os.environ.setdefault("SPOTWRIGHT_FUZZ_SECONDS", str(0.05 * SLOWER))
    with atheris.instrument_imports(include=["spotwright"]):
        from tests.fuzz.targets import TARGETS
    logging.getLogger("spotwright").propagate = False  # thousands of warnings would fill the terminal
    logging.getLogger("spotwright").addHandler(logging.NullHandler())
    seeds = Path(__file__).parent / "corpus" / target
    kept = Path(".fuzz") / target
    kept.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST}",
        "-timeout=900",  # by the clock, also of a process that waits for the CPU; what an input costs of it, the targets measure
        "-report_slow_units=900",
        "-rss_limit_mb=3000",
        "-print_final_stats=1",
    ]
    options += [f"-artifact_prefix={kept}.found/", *more, str(kept), str(seeds)]
    watched = Watched(TARGETS[target], Path(f"{kept}.found"))
    atheris.Setup(["fuzz", *options], watched.run, custom_mutator=changed)
    atheris.Fuzz()


class Watched:
    """A target whose faults are written down, each kind once."""

    def __init__(self, target: Callable[[bytes], None], folder: Path) -> None:
        self._target, self._folder = target, folder
        self._known: set[str] = set()

    def run(self, data: bytes) -> None:
        """Try one input."""
        try:
            self._target(data)
        except Exception as error:  # noqa: BLE001  # whatever is raised is a finding
            places = traceback.extract_tb(error.__traceback__)
            inner = next((each for each in reversed(places) if "spotwright" in each.filename), places[-1])
            kind = f"{type(error).__name__} {Path(inner.filename).name} {inner.lineno}"
            if kind not in self._known:
                self._known.add(kind)
                name = hashlib.sha256(kind.encode()).hexdigest()[:12]
                (self._folder / name).write_bytes(data)
                print(f"FOUND {name}: {kind}: {str(error)[:200]}", flush=True)  # noqa: T201


def changed(data: bytes, most: int, seed: int) -> bytes:
    """The input after a small change: of a value of its JSON, or of its bytes."""
    chance = random.Random(seed)  # noqa: S311  # the fuzzer's own seed
    if chance.random() < 0.3:
        return bytes(atheris.Mutate(data, most))
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return bytes(atheris.Mutate(data, most))
    for _ in range(chance.randint(1, 3)):
        value = _altered(value, chance)
    try:
        made = json.dumps(value).encode()
    except (ValueError, RecursionError):
        return data
    return made if len(made) <= most else data


def _altered(value: Any, chance: random.Random) -> Any:
    """The value with one place of it changed, left out, doubled, or taken from another place."""
    places = list(_places(value))
    if not places or chance.random() < 0.02:
        return _new(value, chance)
    holder, key = chance.choice(places)
    what = chance.random()
    if what < 0.55:
        holder[key] = _new(holder[key], chance)
    elif what < 0.7:
        del holder[key]
    elif what < 0.85:
        other, place = chance.choice(places)
        holder[key] = json.loads(json.dumps(other[place]))
    elif isinstance(holder, list):
        holder.insert(chance.randint(0, len(holder)), json.loads(json.dumps(holder[key])))
    else:
        name = bytes(atheris.Mutate(str(key).encode(), 64)).decode(errors="replace")
        holder[name] = json.loads(json.dumps(holder[key]))
    return value


def _places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    if depth < 60 and isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key], depth + 1)


ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**12,
    1e300,
    "",
    "..",
    "../../quiet/jobs/x",
    "\0",
    "²",
    "a/b",
    [],
    {},
    [[]],
    {"": None},
    "(1:",
    "((((",
    "a.",
)


def _new(old: Any, chance: random.Random) -> Any:
    what = chance.random()
    if isinstance(old, str) and what < 0.6:
        if what < 0.15:
            times = chance.choice((2, 10, 100, 1000))
            return old[: LONGEST // times] * times  # it may be made longer again
        return bytes(atheris.Mutate(old.encode(errors="replace"), len(old) + 20)).decode(errors="replace")
    if isinstance(old, int | float) and what < 0.5:
        return chance.choice((old + 1, -old, old * 1000, str(old)))
    if what < 0.9:
        return json.loads(json.dumps(chance.choice(ODD)))
    made: Any = chance.choice(ODD[:12])
    for _ in range(chance.choice((2, 20, 200))):
        made = [made] if chance.random() < 0.5 else {"x": made}
    return made


if __name__ == "__main__":
    raise SystemExit(main())
