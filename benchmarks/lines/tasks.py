"""What running tasks costs beside their work, ours and ``kfp.local`` in turn on the same pipelines.

``kfp.local`` runs with ``use_venv=False``, its fastest way, on default components: their command installs the SDK, which is
there already, so that no network is needed. Our nodes boot in no time and hold 20 tasks, because waiting for simulated nodes
is what a user asked for, not overhead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench import HERE, Bench
from results import Judged, Row

__all__ = ["chain", "fork", "independent", "loop", "packages", "sleep"]

_A_TENTH = 0.1


def chain(bench: Bench) -> Iterator[Row]:
    """Five no-op tasks, each on the output of the one before."""
    return _overhead(bench, "chain", "chain", "chain of 5", 5, bench.times(5, 2))


def independent(bench: Bench) -> Iterator[Row]:
    """Twenty no-op tasks at once."""
    return _overhead(bench, "independent", "independent", "20 independent", 20, bench.times(3))


def _overhead(bench: Bench, line: str, name: str, what: str, tasks: int, times: int) -> Iterator[Row]:
    inside, whole, their_inside, their_whole = [], [], [], []
    file = bench.compiled / f"{name}.yaml"
    bench.ours(file)  # warm-up
    for _ in range(times):
        theirs = bench.theirs(name)
        their_inside.append(theirs.result["run"] * 1000 / tasks)
        their_whole.append(theirs.seconds * 1000 / tasks)
        for _ in range(2):  # ours is short: two samples against one
            inside.append(bench.ours(file).result["run"] * 1000 / tasks)
            whole.append(bench.command(file).seconds * 1000 / tasks)
    yield Row(
        line, f"{what} no-op tasks: a task, from start to end of the run", inside, "ms", Judged.RATIO, _A_TENTH,
        "kfp.local", their_inside,
    )  # fmt: skip
    yield Row(
        line, f"{what} no-op tasks: a task, the whole command", whole, "ms", Judged.RATIO, _A_TENTH,
        "kfp.local", their_whole,
    )  # fmt: skip


def sleep(bench: Bench) -> Iterator[Row]:
    """Twenty independent tasks that sleep one second."""
    file = bench.compiled / "sleeping.yaml"
    bench.command(file)  # warm-up
    ours, theirs = [], []
    for _ in range(bench.times(2)):
        theirs.append(bench.theirs("sleeping").seconds)
        ours += [bench.command(file).seconds for _ in range(3)]
    yield Row(
        "sleep", "20 x sleep(1), room for 20: the whole command", ours, "s", Judged.VALUE, 2.5, "kfp.local", theirs
    )


def packages(bench: Bench) -> Iterator[Row]:
    """Five tasks in a chain with a package to install, beside the same without."""
    plain, packaged = bench.compiled / "chain.yaml", bench.compiled / "packaged_chain.yaml"
    first = bench.ours(packaged).result["run"]
    yield Row("packages", "chain of 5 with a package: the first run, which builds", [first], "s")
    with_package, without = [], []
    for _ in range(bench.times(7, 3)):
        with_package.append(bench.ours(packaged).result["run"] * 1000 / 5)
        without.append(bench.ours(plain).result["run"] * 1000 / 5)
    yield Row(
        "packages", "chain of 5 with a package, later runs: a task", with_package, "ms", Judged.DIFFERENCE, 50,
        "without", without,
    )  # fmt: skip
    if bench.full:
        theirs = bench.theirs("packaged_chain", "venv").result["run"] * 1000 / 5
        yield Row("packages", "the same", with_package, "ms", Judged.RATIO, _A_TENTH, "kfp.local, use_venv", [theirs])


def fork(bench: Bench) -> Iterator[Row]:
    """A no-op task beside a bare fork of the same server, one after the other; and how many a second, four at a time."""
    chained, wide = bench.grown(bench.times(200, 50), chain=True), bench.grown(bench.times(2000, 300))
    one, bare, rate, spent, bare_rate = [], [], [], [], []
    for _ in range(bench.times(5, 2)):
        forks = bench.run([sys.executable, HERE / "forks.py", "500", "RESULT"], env={"_KFP_RUNTIME": "true"})
        bare.append(forks.result["step"] * 1000)
        bare_rate.append(forks.result["rate"])
        one.append(bench.ours(chained, in_memory=True).result["step"] * 1000)
        done = bench.ours(wide, in_memory=True).result
        rate.append((done["tasks"] - 1) / done["steady"])
        spent.append(done["spent"] * 1000 / done["tasks"])
    yield Row(
        "fork",
        "no-op tasks one after the other: a task",
        one,
        "ms",
        Judged.DIFFERENCE,
        12,
        "bare fork",
        bare,
        best=True,
    )
    yield Row("fork", "no-op tasks, room for 20: sustained rate", rate, "/s", beside="bare fork", theirs=bare_rate)
    yield Row("fork", "no-op tasks, room for 20: the engine's processor time a task", spent, "ms")


def loop(bench: Bench) -> Iterator[Row]:
    """A loop of 1,000 no-op iterations, room for 20, beside bare forks of the same server in the same run."""
    file, ours, bare, peaks = bench.loop(1000), [], [], []
    for _ in range(bench.times(3)):
        forks = bench.run([sys.executable, HERE / "forks.py", "500", "RESULT"], env={"_KFP_RUNTIME": "true"})
        bare.append(forks.result["rate"])
        done = bench.ours(file, in_memory=True).result
        ours.append(done["tasks"] / done["run"])
        peaks.append(done["peak"])
    what = "a loop of 1,000 no-op iterations, room for 20"
    yield Row("loop", f"{what}: rate", ours, "/s", Judged.RATIO, 0.35, "bare fork", bare, at_least=True)
    yield Row("loop", f"{what}: the engine's peak", peaks, "MB", Judged.VALUE, 120)
