"""Stages: the bodies of the engine behind one interface, so that one suite of tests runs on all of them.

A stage opens the worlds of successive engines on one lasting place (a run's folder, a simulated cluster), takes and drains nodes,
and lets time pass while no engine listens. A new body gets a stage here and passes ``test_contract.py``.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tests.engine.builders import START, a_config, a_plan, a_pool, a_task
from tests.simulation.simulated_attempts import AttemptStart, Behavior, Outputs, SimulatedAttempts
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.world import SimulatedWorld

from spotwright.engine.events import Event
from spotwright.engine.io_resolution import Inputs
from spotwright.engine.plan import Plan
from spotwright.engine.ports import Backend, Clock
from spotwright.engine.state import RunState, TaskState
from spotwright.kfp.executors import PythonComponent
from spotwright.kfp.secrets import Secrets
from spotwright.local.attempt_orders import AttemptPaths
from spotwright.local.backend import EngineSide, LocalHooks, NodeRemoval, open_backend
from spotwright.local.host import steady_clock
from spotwright.local.protocol import LOG, StartOrder, read_exit
from spotwright.model.attempts import Signals
from spotwright.records.state_folder import RunFolder
from spotwright.supply.node_fit import AttemptKey

RUN = "contract"
POLICY = {
    "spot": "prefer",
    "errors": {"retries": 1, "backoff": "1ms"},
    "interruptions": {"max": 3, "backoff": "1ms"},
    "grace_period": "500ms",
}
POOLS = (
    a_pool(simulate={"boot": 0.0}, notice=1.0),
    a_pool("on-demand", spot=False, simulate={"boot": 0.0}),
)
SOURCES = {
    "succeeds": "def f():\n    print('done')\n",
    "fails": "def f():\n    import sys\n    sys.exit(3)\n",
    "runs": "def f():\n    import time\n    print('started', flush=True)\n    time.sleep(600)\n",
    "ignores SIGTERM": (
        "def f():\n    import signal, time\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    print('started', flush=True)\n    time.sleep(600)\n"
    ),
    "waits for leave to finish": (
        "def f():\n    import os, time\n    print('started', flush=True)\n"
        "    while not os.path.exists(os.environ['SPOTWRIGHT_CHECKPOINT'] + '/leave'):\n        time.sleep(0.02)\n"
    ),
}
"""The behaviors of tasks, by name, as Python components for the local body."""
BEHAVIORS = {
    "succeeds": Behavior(0.1, Signals(exit_code=0)),
    "fails": Behavior(0.1, Signals(exit_code=3)),
    "runs": Behavior(600.0, Signals(exit_code=0), stops_in=0.1),
    "ignores SIGTERM": Behavior(600.0, Signals(exit_code=0)),
    "waits for leave to finish": Behavior(1.5, Signals(exit_code=0)),
}
"""The same names as simulated attempts."""


def plan_of(tasks: Mapping[str, str], packages: Sequence[str] = (), **policy: str) -> Plan:
    """A plan of independent tasks. ``tasks`` gives the behavior of each, by a name of :data:`SOURCES`."""
    executors = {name: PythonComponent(SOURCES[does], "f", tuple(packages)) for name, does in tasks.items()}
    specs = [replace(a_task(name), executor=executor) for name, executor in executors.items()]
    return a_plan(specs, a_config(*POOLS, policy={**POLICY, **policy}))


class Stage(Protocol):
    """One body, and the place in which its worlds follow each other."""

    clock: Clock

    def open(self, plan: Plan, state: RunState, tasks: Mapping[str, str]) -> Backend:
        """The world for the next engine of the run."""

    def take(self, task: str, notice: float) -> None:
        """Let the provider take the node of a task's first attempt after this many seconds of notice; zero: without one."""

    def drain(self, task: str) -> None:
        """Let Kubernetes drain the node of a task's first attempt."""

    def pass_time(self, until: Callable[[], bool]) -> None:
        """Let time pass while no engine listens."""

    def let_finish(self, task: str) -> None:
        """Let an attempt finish that "waits for leave to finish"; simulated, it takes 1.5 seconds."""

    def has_started(self, task: str) -> bool:
        """Whether a task's first attempt executes its code, observed outside of the engine."""

    def has_ended(self, task: str) -> bool:
        """Whether no process of a task's first attempt is alive, observed outside of the engine."""

    def close(self) -> None:
        """End everything that still runs."""


@dataclass
class SimulatedStage:
    """The simulation."""

    tasks: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster = SimulatedCluster({pool.name: pool for pool in POOLS}, seed=1, scale=1.0, start=START)
        self.attempts = SimulatedAttempts(RUN, self.cluster, self._behavior, seed=1, make_outputs=_no_outputs)
        self.clock: Clock = self.cluster.clock

    def _behavior(self, start: AttemptStart) -> Behavior:
        return BEHAVIORS[self.tasks[start.task] if start.number == 1 else "succeeds"]

    def open(self, plan: Plan, state: RunState, tasks: Mapping[str, str]) -> Backend:
        self.tasks.update(tasks)
        return SimulatedWorld(self.attempts)

    def take(self, task: str, notice: float) -> None:
        self.cluster.supply.take(AttemptKey(RUN, task, 1), notice, "taken by the test", self.clock())

    def drain(self, task: str) -> None:
        node = self.cluster.supply.placements(RUN)[AttemptKey(RUN, task, 1)]
        assert self.cluster.supply.drain(node.name, "drained", self.clock())

    def pass_time(self, until: Callable[[], bool]) -> None:
        while not until():
            moment = self.cluster.next_moment()
            assert moment is not None, "nothing happens any more"
            self.cluster.clock.move_to(moment)
            self.cluster.advance()

    def let_finish(self, task: str) -> None:
        """Do nothing: its time passes."""

    def has_started(self, task: str) -> bool:
        return not self.has_ended(task)

    def has_ended(self, task: str) -> bool:
        return AttemptKey(RUN, task, 1) not in self.attempts.live

    def close(self) -> None:
        """Do nothing: there are no processes outside of the test."""


def _no_outputs(_task: TaskState, _inputs: Inputs) -> Outputs:
    return Outputs({}, {})


class _Interruptions:
    """Removes the nodes that the test names, through the port of rehearsals."""

    def __init__(self) -> None:
        self.removals: list[NodeRemoval] = []

    def starting(self, _key: AttemptKey, order: StartOrder) -> StartOrder:
        return order

    def started(self, key: AttemptKey, shim: int) -> None:
        """Only the test removes nodes."""

    def reported(self, key: AttemptKey, progress: float) -> None:
        """Only the test removes nodes."""

    def ended(self, key: AttemptKey) -> None:
        """Only the test removes nodes."""

    def next_moment(self) -> float | None:
        return None

    def requests(self, _now: float) -> list[Event]:
        return []

    def due(self, _now: float) -> list[NodeRemoval]:
        removals, self.removals = self.removals, []
        return removals

    def performed(self) -> None:
        """Do nothing: there are no resources to hold."""


class LocalStage:
    """Real processes on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = RunFolder(folder / "runs" / RUN)
        self.folder.path.mkdir(parents=True)
        self.clock: Clock = steady_clock()
        self._stack, self._epoch = ExitStack(), 0
        self._interruptions = _Interruptions()

    def open(self, plan: Plan, state: RunState, tasks: Mapping[str, str]) -> Backend:
        self._stack.close()
        self._epoch += 1
        root, volumes = self.folder.path.parent, self.folder.path / "volumes"
        paths = AttemptPaths(
            RUN, self._epoch, str(root), self.folder.attempt, self.folder.checkpoint, volumes.joinpath, Secrets()
        )
        selector = self._stack.enter_context(selectors.DefaultSelector())
        hooks = LocalHooks(None, lambda _selector, _clock: self._interruptions)
        engine = EngineSide(selector, self.clock, list)
        pools = {pool.name: pool for pool in POOLS}
        return self._stack.enter_context(open_backend(engine, paths, state, pools, {}, None, hooks))

    def take(self, task: str, notice: float) -> None:
        self._interruptions.removals.append(NodeRemoval(AttemptKey(RUN, task, 1), notice, "taken by the test"))

    def drain(self, task: str) -> None:
        self._interruptions.removals.append(NodeRemoval(AttemptKey(RUN, task, 1), 0.0, "drained", drain=True))

    def pass_time(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not until():
            assert time.monotonic() < deadline, "it does not happen"
            time.sleep(0.02)

    def let_finish(self, task: str) -> None:
        (self.folder.checkpoint(task) / "leave").touch()

    def has_started(self, task: str) -> bool:
        log = self.folder.attempt(task, 1) / LOG
        return log.exists() and "started" in log.read_text(encoding="utf-8")

    def has_ended(self, task: str) -> bool:
        return read_exit(self.folder.attempt(task, 1)) is not None

    def close(self) -> None:
        self._stack.close()
