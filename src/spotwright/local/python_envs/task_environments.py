"""The Python environments that tasks wait for before an attempt of theirs is placed: a phase of its own, on no node.

The engine asks for the environment of a task. One that is there is ready at once. Any other is built once the question is
committed; tasks with the same packages share the build and hear of its end together.
"""

from __future__ import annotations

from functools import partial

from spotwright.engine.events import EnvironmentAsked, EnvironmentChanged, Event
from spotwright.engine.ports import Clock, Outcome, Refused
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError
from spotwright.graph import Executor
from spotwright.kfp.executors import PythonComponent
from spotwright.local.python_envs.environment_builds import BuildFailure, EnvironmentBuilds, shown_packages
from spotwright.local.python_envs.python_environment import PythonEnvironment
from spotwright.version import __version__

__all__ = ["TaskEnvironments", "environment_of"]

_PRESENT = frozenset({"spotwright", f"spotwright=={__version__}"})
"""Requirements of components that every Python environment of a run meets."""


def environment_of(executor: Executor | None) -> PythonEnvironment:
    """The environment of a task's attempts. This version of Spotwright is not installed by pip: every environment has it."""
    if not isinstance(executor, PythonComponent):
        return PythonEnvironment()
    packages = tuple(package for package in executor.packages if package.replace(" ", "") not in _PRESENT)
    return PythonEnvironment(packages, executor.index_urls, executor.trusted_hosts)


class TaskEnvironments:
    """The answers of the local body to the engine's questions for environments."""

    def __init__(self, builds: EnvironmentBuilds, clock: Clock) -> None:
        self._builds, self._clock = builds, clock
        self._facts: list[Event] = []

    def look_up(self, state: RunState, event: EnvironmentAsked) -> EnvironmentChanged:
        """Whether the environment of a task is ready or will be built. Nothing is started yet."""
        environment = environment_of(state.tasks[event.task].plan.spec.executor)
        if self._is_ready(environment):
            return EnvironmentChanged(event.at, event.task, state="ready")
        return EnvironmentChanged(
            event.at,
            event.task,
            state="building",
            packages=shown_packages(environment),
            log=self._builds.log_of(environment),
        )

    def build(self, state: RunState, event: EnvironmentAsked) -> Outcome:
        """Build the environment of a task that waits for it."""
        if event.task not in state.preparing:
            return None
        environment = environment_of(state.tasks[event.task].plan.spec.executor)
        try:
            self._builds.build(environment, partial(self._on_end, event.task))
        except (OSError, SpotwrightError) as error:
            return Refused(str(error))
        return None

    def take_facts(self) -> list[Event]:
        """The ends of builds since the last call."""
        facts, self._facts = self._facts, []
        return facts

    def _is_ready(self, environment: PythonEnvironment) -> bool:
        return not environment.packages or self._builds.find_python(environment) is not None

    def _on_end(self, task: str, failure: BuildFailure | None) -> None:
        if failure is None:
            changed = EnvironmentChanged(self._clock(), task, state="ready")
        else:
            changed = EnvironmentChanged(
                self._clock(), task, state="failed", why=failure.why, last_lines=failure.last_lines
            )
        self._facts.append(changed)
