"""One attempt on this machine: what its process is given, and what its end tells.

Everything an attempt has lives below its own folder, so that attempts never see each other's half-written files. The place
for checkpoints is the one thing that is handed from attempt to attempt.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spotwright.engine.decide import effective
from spotwright.engine.signals import write_signals
from spotwright.engine.state import RunState, TaskState
from spotwright.engine.values import context_of, inputs_of
from spotwright.errors import StateError
from spotwright.local.around import Volumes, around
from spotwright.local.clients import Engine
from spotwright.local.contained import Ground, as_process
from spotwright.local.orders import LOG, OUT, PROGRESS, WORK, Environment, ExitRecord, StartOrder
from spotwright.local.remote import remote_inputs
from spotwright.local.watch import read_progress
from spotwright.model.attempts import Signals
from spotwright.model.pools import Pool
from spotwright.pipelines.executor import executor_input
from spotwright.pipelines.expansion import expand_environment
from spotwright.pipelines.objects import Objects
from spotwright.pipelines.outputs import EXECUTOR_OUTPUT, PARAMETERS, read_outputs
from spotwright.pipelines.secrets import Secrets
from spotwright.pipelines.spec import RUNS_NOWHERE, Container, TaskSpec

__all__ = [
    "NOTICE",
    "Places",
    "Seen",
    "attempt_key",
    "end_data",
    "hide_secrets",
    "keep_reason",
    "last_line",
    "start_order",
    "steady_clock",
    "write_notice",
]

WORKSPACE = "workspace"
"""The folder below a run's that all of its tasks share: ``dsl.WORKSPACE_PATH_PLACEHOLDER``."""

NOTICE = "notice.json"
"""The file of an attempt that appears when its node is about to go: ``SPOTWRIGHT_NOTICE_FILE``."""


_TAIL = 4096  # bytes of a log that are looked at for its last line
_LONGEST_LINE = 300


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


@dataclass(slots=True)
class Seen:
    """What the world saw of an attempt while it lived, beside its exit record."""

    noticed: bool = False
    node_gone: bool = False
    cancelled: bool = False
    only_stopped: bool = False  # cancelled because the engine was told to stop: the run is to go on later
    spot: bool | None = None
    killed: bool = False
    engine_gone: bool = False  # the engine that watched it had gone when it was settled


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
    _make_folders(folder, folder / OUT, folder / WORK, *([Path(checkpoint)] if checkpoint.startswith("/") else []))
    inputs = inputs_of(state, task)
    revealed = places.secrets.reveal(inputs.parameters)
    context = replace(context_of(state, task), workspace=f"{places.root}/{places.run}/{WORKSPACE}")
    given = executor_input(spec, revealed, inputs.artifacts, str(folder / OUT), context)
    if any(context.workspace in str(value) for value in given["inputs"]["parameterValues"].values()):
        _make_folders(Path(context.workspace))
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
    executor = spec.executor
    if isinstance(executor, Container):
        ground = Ground(places.containers, f"{places.root}/{places.run}", checkpoint, mounts, context.workspace)
        return as_process(order, spec, executor, context, told, ground)
    return replace(
        order,
        module=executor.module,
        function=executor.function,
        environment=Environment(executor.packages, executor.index_urls, executor.trusted_hosts),
        env={**expand_environment(executor.env), **told},
        mounts=mounts,
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


def _make_folders(*folders: Path) -> None:
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"{folder}: cannot be made ({error.strerror}); free some space, then resume the run"
            ) from error


def write_notice(folder: Path, noticed_at: float, goes_at: float, why: str) -> None:
    """Tell an attempt when its node goes. Moments are Unix seconds; the file is whole or absent."""
    content = {"noticed_at": noticed_at, "goes_at": goes_at, "seconds": goes_at - noticed_at, "why": why}
    beside = folder / f".{NOTICE}.tmp"
    beside.write_text(json.dumps(content))
    beside.replace(folder / NOTICE)


def keep_reason(folder: Path, reason: str) -> str:
    """Put the whole reason why an attempt could not start into its log, and give the line that says most: the last one."""
    lines = [line for line in reason.splitlines() if line.strip()] or ["no reason was given"]
    if len(lines) > 1:
        with (folder / LOG).open("a", encoding="utf-8") as log:
            log.write(reason.rstrip("\n") + "\n")
    return lines[-1].strip()


def end_data(
    spec: TaskSpec, folder: Path, record: ExitRecord | None, seen: Seen, places: Places, *, start_error: str = ""
) -> dict[str, Any]:
    """The data of an attempt's ``ended`` event: every signal, its times, its progress, and its outputs if it has them."""
    data: dict[str, Any] = {}
    signals: dict[str, Any] = {
        "noticed": seen.noticed, "node_gone": seen.node_gone, "cancelled": seen.cancelled, "spot": seen.spot,
        "start_error": start_error, "heard": bool(start_error) or _is_heard(record, seen),
    }  # fmt: skip
    if record is not None:
        if record.exit_code is not None and not any(order.what == "kill" for order in record.ordered):
            signals["node_gone"] = False  # it had ended by itself before its node went
        signals |= _record_signals(record, seen)
        data |= {
            "started_at": record.started_at, "ended_at": record.ended_at, "seconds": record.seconds,
            "cpu_seconds": record.cpu_seconds, "max_rss": record.max_rss,
        }  # fmt: skip
        if record.exit_code == 0:
            outputs = read_outputs(spec, str(folder / OUT), (places.root,))
            signals["outputs_complete"], signals["missing_outputs"] = not outputs.missing, tuple(outputs.missing)
            if seen.only_stopped and not outputs.missing:
                signals["cancelled"] = False  # it came to its end all the same: a task that finished is never run again
            data["parameters"] = places.secrets.redact(dict(outputs.parameters))
            data["artifacts"] = places.secrets.redact(dict(outputs.artifacts))
        elif record.exit_code is not None:
            data["last_line"] = places.secrets.redact(last_line(folder / LOG))
    progress = read_progress(folder / PROGRESS)
    if progress is not None:
        data["progress"] = progress
    data["signals"] = write_signals(Signals(**signals))
    return data


def _is_heard(record: ExitRecord | None, seen: Seen) -> bool:
    """Whether its record says how it ended by itself; not where it was ended because its engine had gone."""
    return record is not None and not (seen.engine_gone and any(order.what == "kill" for order in record.ordered))


def hide_secrets(folder: Path, secrets: Secrets) -> None:
    """Put references in the place of secrets in what the SDK wrote of an attempt's outputs, once the journal has them.

    Artifacts are the user's own files and stay as they are. Raises :class:`StateError` where a file cannot be written.
    """
    if not secrets:
        return
    out = folder / OUT
    for path in (out / EXECUTOR_OUTPUT, *sorted((out / PARAMETERS).glob("*"))):
        if not path.is_file():  # it wrote none, or made a pipe of that name
            continue
        try:
            text = path.read_bytes().decode("utf-8", "surrogateescape")
            new = _without(secrets, text)
            if new != text:
                path.write_bytes(new.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise StateError(
                f"{path}: a secret in it cannot be hidden ({error.strerror}); free some space, then resume the run"
            ) from error


def _without(secrets: Secrets, text: str) -> str:
    try:
        written = json.loads(text)
    except (ValueError, RecursionError):
        return str(secrets.redact(text))
    hidden = secrets.redact(written)
    return text if hidden == written else json.dumps(hidden)


def last_line(log: Path) -> str:
    """The last line that an attempt wrote: of a Python program that failed, the exception."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return ""  # it wrote none, or took its own folder away
    return lines[-1].strip()[:_LONGEST_LINE] if lines else ""


def _record_signals(record: ExitRecord, seen: Seen) -> Mapping[str, Any]:
    """The signals in an exit record. Without a cgroup of its own the machine's count speaks, for a kill that nobody ordered."""
    unordered = record.signal == 9 and not seen.killed and not any(order.what == "kill" for order in record.ordered)
    hint = record.machine_oom_kills if unordered else 0
    return {
        "exit_code": record.exit_code,
        "signal": record.signal,
        "timed_out": record.timed_out,
        "oom_kills": record.oom_kills if record.oom_kills is not None else hint,
        "start_error": record.start_error,
    }


def steady_clock() -> Callable[[], float]:
    """Unix time that never goes back: the wall clock at this moment, carried on by the monotonic clock."""
    wall, start = time.time(), time.monotonic()
    return lambda: wall + time.monotonic() - start
