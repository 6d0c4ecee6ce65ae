"""One attempt on this machine: where it finds things, and what its process is given. Its end: :mod:`.endings`.

Everything an attempt has lives below its own folder, so that attempts never see each other's half-written files. The place
for checkpoints is the one thing that is handed from attempt to attempt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spotwright.engine.choosing import effective
from spotwright.engine.state import RunState, TaskState
from spotwright.engine.values import context_of, inputs_of
from spotwright.errors import StateError
from spotwright.local.around import Volumes, around, make_folder
from spotwright.local.clients import Engine
from spotwright.local.contained import Ground, as_process
from spotwright.local.orders import OUT, PROGRESS, WORK, Environment, StartOrder
from spotwright.local.remote import remote_inputs
from spotwright.model.pools import Pool
from spotwright.pipelines.executor import executor_input
from spotwright.pipelines.expansion import expand_environment
from spotwright.pipelines.objects import Objects
from spotwright.pipelines.placeholders import Context
from spotwright.pipelines.secrets import Secrets
from spotwright.pipelines.spec import RUNS_NOWHERE, Container, Executor, TaskSpec

__all__ = ["NOTICE", "Places", "attempt_key", "start_order", "write_notice"]

WORKSPACE = "workspace"
"""The folder below a run's that all of its tasks share: ``dsl.WORKSPACE_PATH_PLACEHOLDER``."""

NOTICE = "notice.json"
"""The file of an attempt that appears when its node is about to go: ``SPOTWRIGHT_NOTICE_FILE``."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the attempts of a run find things. ``volume`` gives the folder that stands for a persistent volume claim."""

    run: str
    epoch: int
    root: str  # the folder of all runs: where artifacts may lie
    attempt: Callable[[str, int], Path]
    checkpoint: Callable[[str], Path]
    volume: Callable[[str], Path]
    secrets: Secrets
    containers: Engine | None = None  # None: a container component is a process of this machine
    objects: Objects = field(default_factory=Objects)

    @property
    def volumes(self) -> Volumes:
        """Where the folders of claims are."""
        return Volumes(Path(self.root, self.run, "volumes"), self.volume)


def attempt_key(task: str, number: int) -> str:
    """The name of an attempt towards the processes."""
    return f"{task}#{number}"


def start_order(
    state: RunState,
    task: TaskState,
    places: Places,
    pool: Pool,
    scale: float = 1.0,
    told: Mapping[str, str] | None = None,
) -> StartOrder:
    """What the process of a task's newest attempt is started with, on a node of ``pool``; makes its folders.

    ``scale`` is the run's time scale. ``told`` are variables that its node adds or replaces. Raises :class:`StateError` where
    the folders cannot be made.
    """
    planned, number = effective(state, task), task.last.number
    spec, policy = planned.spec, planned.policy
    if spec.executor is None or isinstance(spec.executor, RUNS_NOWHERE):
        raise StateError(f"task {task.path} has nothing to run")
    folder = places.attempt(task.path, number)
    checkpoint = _checkpoint(policy.checkpoint, task.path, places)
    for each in (folder, folder / OUT, folder / WORK, *([Path(checkpoint)] if checkpoint.startswith("/") else [])):
        make_folder(each)
    context = replace(context_of(state, task), workspace=f"{places.root}/{places.run}/{WORKSPACE}")
    given = _given(state, task, spec, places, folder, context)
    remote = remote_inputs(given, Path(places.root, places.run, "remote"))
    surrounded = around(state, task, spec, str(folder), places.volumes, places.objects)
    told = {
        **surrounded.env,
        **_environment(folder, checkpoint, places.run, task.path, number),
        **_expectations(pool, policy.grace_period, scale),
        **(told or {}),
    }
    order = StartOrder(
        key=attempt_key(task.path, number),
        directory=str(folder),
        run=places.run,
        task=task.path,
        attempt=number,
        epoch=places.epoch,
        executor_input=given,
        timeout=policy.timeout,
        grace=policy.grace_period,
        memory_limit=spec.limits.get("memory"),
        mask=tuple(places.secrets.patterns()),
        fetches=remote.fetches,
    )
    mounts = (*surrounded.mounts, *remote.mounts)
    if isinstance(spec.executor, Container):
        ground = Ground(places.containers, f"{places.root}/{places.run}", checkpoint, mounts, context.workspace)
        return as_process(order, spec, spec.executor, context, told, ground)
    return _as_function(replace(order, mounts=mounts), spec.executor, told)


def _given(
    state: RunState, task: TaskState, spec: TaskSpec, places: Places, folder: Path, context: Context
) -> dict[str, Any]:
    """The executor input, with secrets in the place of their references; makes the run's workspace where it is asked for."""
    inputs = inputs_of(state, task)
    revealed = places.secrets.reveal(inputs.parameters)
    given = executor_input(spec, revealed, inputs.artifacts, str(folder / OUT), context)
    if any(context.workspace in str(value) for value in given["inputs"]["parameterValues"].values()):
        make_folder(Path(context.workspace))
    return given


def _as_function(order: StartOrder, executor: Executor, told: Mapping[str, str]) -> StartOrder:
    """The order of a Python component: its source, and the environment that has its packages."""
    return replace(
        order,
        module=executor.module,
        function=executor.function,
        environment=Environment(executor.packages, executor.index_urls, executor.trusted_hosts),
        env={**expand_environment(executor.env), **told},
    )


def _environment(folder: Path, checkpoint: str, run: str, task: str, number: int) -> dict[str, str]:
    """The environment of the design, the same names in every body."""
    notice = folder / NOTICE
    return {
        "SPOTWRIGHT_RUN": run,
        "SPOTWRIGHT_TASK": task,
        "SPOTWRIGHT_ATTEMPT": str(number),
        "SPOTWRIGHT_CHECKPOINT": checkpoint,
        "SPOTWRIGHT_NOTICE_FILE": str(notice),
        "SPOTWRIGHT_NOTICE_URL": notice.as_uri(),
        "SPOTWRIGHT_PROGRESS_FILE": str(folder / PROGRESS),
    }


def _expectations(pool: Pool, grace: float, scale: float) -> dict[str, str]:
    """What the node's end will be like, in real seconds. How long a node lives under an attempt is not scaled."""
    found = {"SPOTWRIGHT_NOTICE": f"{pool.notice / scale:g}", "SPOTWRIGHT_GRACE": f"{grace / scale:g}"}
    simulate = pool.simulate
    if simulate.taken_every is not None:
        found["SPOTWRIGHT_TAKEN_EVERY"] = f"{simulate.taken_every:g}"
    elif simulate.trace is None and pool.lifetime is None:
        found["SPOTWRIGHT_TAKEN_EVERY"] = "inf"
    return found


def _checkpoint(place: str | None, task: str, places: Places) -> str:
    """The folder or URL of a task's checkpoints: kept apart by run and task below the place that the policy names."""
    if place is None:
        return str(places.checkpoint(task))
    if place.startswith("pvc://"):
        name, _, below = place.removeprefix("pvc://").partition("/")
        return str(places.volume(name) / below / places.run / places.checkpoint(task).name)
    if "://" in place:
        return f"{place.rstrip('/')}/{places.run}/{task}"
    return str(Path(place).absolute() / places.run / places.checkpoint(task).name)


def write_notice(folder: Path, noticed_at: float, goes_at: float, why: str) -> None:
    """Tell an attempt when its node goes. Moments are Unix seconds; the file is whole or absent."""
    content = {"noticed_at": noticed_at, "goes_at": goes_at, "seconds": goes_at - noticed_at, "why": why}
    beside = folder / f".{NOTICE}.tmp"
    beside.write_text(json.dumps(content))
    beside.replace(folder / NOTICE)
