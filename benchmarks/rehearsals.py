"""``make bench-rehearsals``: the verdicts of ``spotwright rehearse`` beside the true ones; exit code 1 if one is wrong.

::

    python -m benchmarks.rehearsals [NAME ...] [--verdict "goes back"] [--seed 3] [--times 8] [--load 40] [--budget 5m]
        [--program FILE] [--json]

The scripts and what is true of them are in ``tests/rehearsal/truth``, where a test proves it without ``rehearse``. ``--load``
keeps so many processes busy beside each rehearsal. A verdict that differs between repeats is counted apart from a wrong one.
``--program`` takes the ``spotwright`` of another checkout, whose verdicts may have older words.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.rehearsal.truth.table import Truth, Verdict, can_import, path_with_this_python, read

_OLDER = {
    "safe and resumes": Verdict.RESUMES,
    "safe and resumes only with a notice": Verdict.WITH_NOTICE,
    "safe but goes back to an older save": Verdict.GOES_BACK,
    "safe but starts over": Verdict.STARTS_OVER,
    "safe": Verdict.UNDECIDED,  # whether it resumes was not known
    "fails without any interruption": Verdict.UNDECIDED,
}
_BURN = "while True: pass"


@dataclass(frozen=True)
class Result:
    """One rehearsal of one script. ``verdict`` is empty where there was none; ``said`` has the verdict's own words.

    ``named`` is whether ``report``, without its points, has a word of what is to be mended; None where the table names none.
    """

    name: str
    wanted: str
    verdict: str
    right: bool
    said: str
    named: bool | None
    seconds: float
    load: float
    cause: str
    report: str

    def __str__(self) -> str:
        mark = "right" if self.right else "WRONG"
        named = {True: "names it", False: "names nothing of it", None: ""}[self.named]
        beside = "" if self.right else f" (wanted: {self.wanted})"
        return f"{mark}  {self.name:24} {self.said}{beside}  {self.seconds:.0f}s  load {self.load:.0f}  {named}  {self.cause}"


def main() -> int:
    """Rehearse what was asked for. Exit code 1 when a verdict is wrong or differs between repeats."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    out = sys.stderr if options.json else sys.stdout
    results = []
    with _burners(options.load):
        for truth in _chosen(options.names, options.verdict, out):
            for _ in range(options.times):
                results.append(_rehearse(truth, options))
                print(results[-1], file=out, flush=True)
    for line in _summary(results):
        print(line, file=out)
    if options.json:
        print(json.dumps([asdict(result) for result in results]))
    return 0 if all(result.right for result in results) and not _unsteady(results) else 1


def _chosen(names: Sequence[str], verdict: str | None, out: Any) -> Iterator[Truth]:
    table = read()
    if unknown := sorted(set(names) - set(table)):
        sys.exit(f"not in the table: {', '.join(unknown)}")
    for truth in (table[name] for name in names or table):
        missing = [name for name in truth.modules if not can_import(name)]
        if missing:
            print(f"left out {truth.name}: {', '.join(missing)} cannot be imported", file=out, flush=True)
        elif verdict in (None, truth.verdict.value):
            yield truth


def _rehearse(truth: Truth, options: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory(prefix="spotwright-rehearsals-") as name:
        folder = Path(name)
        truth.put_into(folder)
        (folder / "kept").mkdir()
        command = [options.program, "rehearse", "--json", "--seed", str(options.seed), *truth.options]
        if options.budget:
            command += ["--budget", options.budget]
        load, began = os.getloadavg()[0], time.monotonic()
        code, text, errors = _run([*command, "--", *truth.command], folder, options.patience)
        seconds = time.monotonic() - began
        said, cause, report = _answer(code, text, errors)
    with contextlib.suppress(ValueError):
        said = Verdict(_OLDER.get(said, said))
    verdict = said if isinstance(said, Verdict) else ""
    is_right = verdict in (truth.verdict, *truth.also)
    lines = [line for line in report.splitlines() if not line.startswith("  . ")]
    named = any(word in line for word in truth.names for line in lines) if truth.names else None
    return Result(truth.name, truth.verdict, verdict, is_right, said, named, seconds, load, cause, report)


def _answer(code: int | None, text: str, errors: str) -> tuple[str, str, str]:
    """The verdict in its own words, the cause, and the report."""
    if code is None:
        return "no verdict in time", "", ""
    try:
        result = json.loads(text)
    except ValueError:
        last = (errors.strip().splitlines() or ["no output"])[-1]
        return (Verdict.UNDECIDED if code == 2 else f"exit code {code}"), last, errors
    (step,) = result["steps"]
    report = json.loads((Path(result["state"]) / "report.json").read_text(encoding="utf-8"))["text"]
    keys = ("probable_cause", "undecided", "fails_undisturbed")
    cause = "; ".join(str(step[key]) for key in keys if step.get(key)) or report.splitlines()[-1].strip()
    return step["verdict"], cause, report


def _run(command: Sequence[str], folder: Path, patience: float) -> tuple[int | None, str, str]:
    """The exit code, output and errors of a command; no exit code where it was interrupted because it took too long."""
    environment = {**os.environ, "PATH": path_with_this_python(), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        text, errors = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        return None, "", ""
    finally:
        _end(process)
    return process.returncode, text, errors


def _end(process: subprocess.Popen[str]) -> None:
    """SIGTERM ends a rehearsal and all that it started; SIGKILL if it has not ended after a minute."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=60)
        process.kill()
        process.communicate()


@contextlib.contextmanager
def _burners(count: int) -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-S", "-c", _BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def _unsteady(results: Sequence[Result]) -> list[str]:
    """The scripts whose verdict was not the same each time."""
    said = {(result.name, result.said) for result in results}
    return sorted(name for name, count in Counter(name for name, _ in said).items() if count > 1)


def _summary(results: Sequence[Result]) -> Iterator[str]:
    wrong = [result for result in results if not result.right]
    yield f"{len(wrong)} of {len(results)} verdicts are wrong"
    pairs = Counter((result.wanted, result.said) for result in wrong)
    for (wanted, said), count in sorted(pairs.items()):
        yield f"  {count} times {said} in place of {wanted}"
    if unsteady := _unsteady(results):
        yield f"verdicts that differ between repeats: {', '.join(unsteady)}"
    asked = [result for result in results if result.named is not None]
    yield f"{sum(bool(result.named) for result in asked)} of {len(asked)} causes name what is to be mended"
    yield f"{sum(result.seconds for result in results):.0f}s in all"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="rehearse these scripts (default: all)")
    parser.add_argument(
        "--verdict", choices=[each.value for each in Verdict], help="only scripts of which this is true"
    )
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--times", type=int, default=1, help="rehearse each script so many times")
    parser.add_argument("--load", type=int, default=0, metavar="N", help="keep so many processes busy meanwhile")
    parser.add_argument("--budget", help="the option of rehearse")
    parser.add_argument("--patience", type=float, default=1800.0, help="seconds after which a rehearsal is interrupted")
    parser.add_argument(
        "--program", default=str(Path(sys.executable).with_name("spotwright")), help="the spotwright to try"
    )
    parser.add_argument("--json", action="store_true", help="all results as JSON on standard output")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
