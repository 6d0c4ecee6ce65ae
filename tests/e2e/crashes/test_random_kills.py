"""For any seed, interruption pattern and kill point, a run's outputs are those of the undisturbed run, each task has succeeded
exactly once, and budgets hold: real runs, with real kills.

``pytest tests/e2e/crashes/test_random_kills.py -m many`` tries ten times as many. Ten thousand cases on virtual time are in
tests/engine.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.e2e.building import Of, Step, step
from tests.e2e.crashes.soundness import assert_sound, attempts_of
from tests.e2e.inside import alone, attempt, progress
from tests.e2e.project import Project, RunningCommand
from tests.sampling import every

CASES = 40
MANY = 400
MAX_INTERRUPTIONS = 12
FALL_BACK_AFTER = 3
RETRIES = 1


def mix(name: str, left: str, right: str, fails_first: bool) -> str:
    """A value that depends on everything before it; some fail in their first attempt."""
    with alone():
        for number in range(10):
            progress(number / 10)
            time.sleep(0.003)
        if fails_first and attempt() == 1:
            raise ValueError("the first attempt always fails")
        progress(1.0)
        return hashlib.sha256(f"{name} {left} {right}".encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Graph:
    """A random pipeline: for each task the tasks it takes values from, and whether its first attempt fails."""

    inputs: tuple[tuple[int, ...], ...]
    failing: frozenset[int]

    @classmethod
    def drawn(cls, chance: random.Random) -> Graph:
        size = chance.randint(3, 6)
        inputs = tuple(tuple(chance.sample(range(n), min(n, chance.randint(0, 2)))) for n in range(size))
        return cls(inputs, frozenset(n for n in range(size) if chance.random() < 0.2))

    def steps(self) -> dict[str, Step]:
        return {
            f"t{number}": step(
                mix, {"name": f"t{number}", "fails_first": number in self.failing, **self._given(number)}
            )
            for number in range(len(self.inputs))
        }

    def _given(self, number: int) -> dict[str, object]:
        sources: list[object] = [Of(f"t{upstream}") for upstream in self.inputs[number]]
        return dict(zip(("left", "right"), [*sources, "", ""], strict=False))

    def outputs(self) -> dict[str, str]:
        """The outputs of each task in the undisturbed run."""
        values: list[str] = []
        for number, inputs in enumerate(self.inputs):
            left, right, *_ = [*(values[upstream] for upstream in inputs), "", ""]
            values.append(hashlib.sha256(f"t{number} {left} {right}".encode()).hexdigest()[:12])
        return {f"t{number}": value for number, value in enumerate(values)}


def config(chance: random.Random) -> str:
    every = chance.choice(["40ms", "150ms", "1s"])
    return f"""
pools:
  spot:
    capacity: spot
    node: {{cpu: {chance.choice([1, 2, 8])}}}
    max_nodes: {chance.choice([1, 2, 4])}
    notice: {chance.choice(["0s", "30ms"])}
    simulate: {{boot: {chance.choice(["0s", "20ms"])}, interrupt_every: {every}, expected_duration: 150ms}}
  od: {{capacity: on-demand, node: {{cpu: 8}}, simulate: {{boot: 0s}}}}
policy:
  default:
    spot: prefer
    fall_back_after: {FALL_BACK_AFTER}
    interruptions: {{max: {MAX_INTERRUPTIONS}, backoff: 1ms}}
    errors: {{retries: {RETRIES}, backoff: 1ms}}
    grace_period: 10ms
"""


def engine(started: RunningCommand, _project: Project) -> None:
    started.send(signal.SIGKILL)


def one_shim(_under: RunningCommand, project: Project) -> None:
    shims = [pid for pid, command in project.processes().items() if "bootstrap.py" in command and os.getsid(pid) == pid]
    kill(set(shims[:1]) - set(project.fork_servers()))


def fork_server(_under: RunningCommand, project: Project) -> None:
    kill(set(project.fork_servers()))


def everything(_under: RunningCommand, project: Project) -> None:
    processes = project.processes()
    above = {pid for pid in processes if is_leader(pid)}
    kill(above)  # what runs below them goes with them; were it first, a shim could still record that somebody killed it
    kill(set(processes) - above)


def is_leader(pid: int) -> bool:
    """Whether it is an engine, a fork server or a shim: they lead their sessions."""
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid) == pid
    return False


def stop(started: RunningCommand, _project: Project) -> None:
    started.send(signal.SIGINT)


def kill(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


BLOWS: tuple[Callable[[RunningCommand, Project], None], ...] = (engine, engine, one_shim, fork_server, everything, stop)


def drive(project: Project, chance: random.Random, *command: str) -> int:
    """Start the command, strike once at a moment that is drawn, and wait for its end. Returns the exit code."""
    if chance.random() < 0.5:
        return project.start(*command, crash=("any:any", chance.randint(1, 120))).wait().code
    started = project.start(*command)
    notes, deadline = chance.randint(0, 12), time.monotonic() + chance.uniform(0.1, 1.0)
    while len(project.ledger()) < notes and time.monotonic() < deadline and started.process.poll() is None:
        time.sleep(0.005)
    if started.process.poll() is None:
        with contextlib.suppress(OSError):  # what is struck ends at the same moment
            chance.choice(BLOWS)(started, project)
    return started.wait().code


def run_to_its_end(project: Project, chance: random.Random) -> str:
    """Run with up to three kills, each followed by a resume; the last engine is not killed. Returns the name of the run."""
    seed, names = str(chance.randint(0, 9999)), iter("rstuv")
    name = ""
    for strike in range(chance.randint(1, 3), -1, -1):
        if project.kinds(name):
            command = ["resume", name]
        else:  # it had not begun, but its folder has its name
            name = next(names)
            command = ["run", str(project.folder / "tested.yaml"), "--name", name, "--seed", seed]
        if strike == 0:
            done = project.spotwright(*command)
            assert done.code == 0, done
        elif drive(project, chance, *command) == 0:
            break
    return name


def assert_budgets_hold(project: Project, name: str) -> None:
    for path, attempts in attempts_of(project, name).items():
        causes = [each["cause"] for each in attempts]
        interruptions = sum(cause in {"interrupted", "lost"} for cause in causes)
        errors = sum(cause in {"failed", "start-up", "out of memory", "timed out"} for cause in causes)
        assert interruptions <= MAX_INTERRUPTIONS, (path, causes)
        assert errors <= RETRIES, (path, causes)
        counted = 0
        for each in attempts:
            assert counted < FALL_BACK_AFTER or each["pool"] in {"od", None}, (path, attempts)
            counted += each["cause"] in {"interrupted", "lost"}


def check(project: Project, case: int) -> None:
    chance = random.Random(case)  # noqa: S311 (it draws tests)
    graph = Graph.drawn(chance)
    project.config(config(chance))
    project.pipeline(graph.steps())
    run = run_to_its_end(project, chance)
    assert_sound(project, run)
    assert_budgets_hold(project, run)
    tasks = project.show(run)["tasks"]
    assert {path: task["outputs"]["parameters"]["Output"] for path, task in tasks.items()} == graph.outputs()
    assert [attempts[-1]["cause"] for attempts in attempts_of(project, run).values()] == ["succeeded"] * len(tasks)


@pytest.mark.parametrize("case", every(8, range(CASES)))
def test_a_run_with_random_kills_has_the_end_of_the_undisturbed_run(project: Project, case: int) -> None:
    check(project, case)


@pytest.mark.slow
@pytest.mark.many
@pytest.mark.parametrize("case", range(CASES, MANY))
def test_many_runs_with_random_kills_have_the_end_of_the_undisturbed_run(project: Project, case: int) -> None:
    check(project, case)
