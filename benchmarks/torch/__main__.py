"""``make torch-bench``: training with PyTorch in figures, ours beside the framework alone; exit code 1 if a target is missed.

Each line is measured on the code that users run, with real processes on gloo. Ours and theirs take turns where they are compared,
so that a machine whose speed wanders is fair to both. The limits are for a quiet machine; the first line says how busy it was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping

from benchmarks.results import Judged, Row, as_text

_LIMITS: Mapping[str, float] = {
    "step without a notice, median": 50,  # µs
    "notice to the decision of all ranks, 99th percentile": 50,  # ms
    "notices that did not save one step of all": 0,
}
"""Limits for the agreement, by the names in :mod:`benchmarks.torch.agreement`; its other figures have none."""

_RATIOS: Mapping[str, float] = {
    "sharded save": 1.0,
    "sharded load": 1.0,
    "stall of an asynchronous save, beside their synchronous save": 0.5,
    "stall of dcp.async_save, beside their dcp.save": 0.5,
}
"""Of saves, by the names in :mod:`benchmarks.torch.sharded` and :mod:`benchmarks.torch.gpu`."""


def main() -> int:
    """Measure the selected lines. Exit code 1 when a target is missed."""
    options = _options()
    out = sys.stderr if options.json else sys.stdout
    rows: list[Row] = []
    print(f"Python {platform.python_version()}, PyTorch {_version('torch')}, {_device()}", file=out)
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}", file=out, flush=True)
    for name in options.only or _LINES:
        for row in _LINES[name](options.quick):
            rows.append(row)
            print(as_text(row), file=out, flush=True)
    if options.json:
        print(json.dumps([row.as_json() for row in rows]))
    missed = sum(not row.passed for row in rows)
    print(f"{missed} of {len(rows)} lines missed their target" if missed else "every target was reached", file=out)
    return 1 if missed else 0


def _agreement(is_quick: bool) -> Iterator[Row]:
    from benchmarks.torch import agreement

    for name, figure, unit in agreement.measure(40 if is_quick else 200):
        judged = Judged.VALUE if name in _LIMITS else Judged.NOTHING
        yield Row("agreement", f"4 ranks: {name}", [figure], unit, judged, _LIMITS.get(name, 0.0))


def _sharded(is_quick: bool) -> Iterator[Row]:
    from benchmarks.torch import sharded

    for name, ours, theirs in sharded.measure(128 if is_quick else 1024):
        judged = Judged.RATIO if name in _RATIOS else Judged.NOTHING
        what = f"2 ranks, {'128 MB' if is_quick else '1 GB'}: {name}"
        yield Row("sharded", what, [ours], "s", judged, _RATIOS.get(name, 0.0), "DCP", [theirs])


def _kills(is_quick: bool) -> Iterator[Row]:
    from benchmarks.torch import kills

    count, harm, new = kills.measure(20 if is_quick else 100)
    yield Row("kills", f"{count} kills inside a sharded save: not whole, or too old", [harm], "", Judged.VALUE, 0)
    yield Row("kills", f"{count} kills inside a sharded save: the save under way counts", [new], "")


def _frameworks(is_quick: bool) -> Iterator[Row]:
    from benchmarks.torch import frameworks

    for name, ours, theirs in frameworks.measure(1 if is_quick else 3):
        judged = Judged.VALUE if "notice" in name else Judged.NOTHING
        yield Row("frameworks", f"{name}: steps lost", ours, "", judged, 0, "alone", theirs)


def _gpu(is_quick: bool) -> Iterator[Row]:
    from benchmarks.torch import gpu

    for name, ours, theirs, unit in gpu.measure(256 if is_quick else 2048):
        judged = Judged.RATIO if name in _RATIOS else Judged.NOTHING
        yield Row("gpu", f"{gpu.name()}: {name}", [ours], unit, judged, _RATIOS.get(name, 0.0), "PyTorch", [theirs])


_LINES: Mapping[str, Callable[[bool], Iterator[Row]]] = {
    "agreement": _agreement,
    "sharded": _sharded,
    "kills": _kills,
    "frameworks": _frameworks,
    "gpu": _gpu,  # the last: nothing forks after it
}


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def _device() -> str:
    import torch

    # The name of a GPU would initialize CUDA, which does not work in forked ranks then.
    return {0: "no GPU", 1: "1 GPU"}.get(count := torch.cuda.device_count(), f"{count} GPUs")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make torch-bench", description=__doc__)
    parser.add_argument("--only", choices=list(_LINES), action="append", help="measure this line (may be given again)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and smaller states")
    parser.add_argument("--json", action="store_true", help="every sample as JSON on standard output")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
