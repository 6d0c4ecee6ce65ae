"""Collect the evidence of an attempt's end for the journal: signals, times, progress, outputs, and the last line of its log.

It has references in place of secrets, and is collected before secrets are hidden in the attempt's files.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from spotwright.engine.events import AttemptEnded
from spotwright.errors import StateError
from spotwright.graph import TaskSpec
from spotwright.kfp.launcher import EXECUTOR_OUTPUT, PARAMETERS, AttemptOutputs, read_outputs
from spotwright.kfp.secrets import Secrets
from spotwright.local.attempt_orders import AttemptPaths
from spotwright.local.progress_watch import read_progress
from spotwright.local.protocol import LOG, OUT, PROGRESS, ExitRecord
from spotwright.model.attempts import Signals, has_work_left
from spotwright.regular_files import open_regular

__all__ = ["ObservedEnd", "ended_event", "hide_secrets", "keep_reason", "last_line"]


_TAIL = 4096  # bytes at the end of a log that may have its last line
_LONGEST_LINE = 300


@dataclass(slots=True)
class ObservedEnd:
    """The backend's observations of an attempt beside its exit record."""

    noticed: bool = False
    node_gone: bool = False
    cancelled: bool = False
    only_stopped: bool = False  # cancelled because the engine stops; the run can be resumed
    spot: bool | None = None
    moved: str = ""  # why Spotwright or Kubernetes moved it: "drained", ...
    killed: bool = False
    reported: bool = True  # an earlier event may have had its first progress
    engine_gone: bool = False  # the engine that watched it had ended when it was settled


def keep_reason(folder: Path, reason: str) -> str:
    """Append the reason why an attempt could not start to its log. Returns its last, most telling line."""
    lines = [line for line in reason.splitlines() if line.strip()] or ["no reason was given"]
    if len(lines) > 1:
        _log(folder, lines=reason.rstrip("\n"))
    return lines[-1].strip()


def ended_event(
    at: float,
    key: tuple[str, int],
    spec: TaskSpec,
    folder: Path,
    record: ExitRecord | None,
    observed: ObservedEnd,
    paths: AttemptPaths,
    *,
    start_error: str = "",
) -> AttemptEnded:
    """The event of an attempt's end: every signal, its times, its progress, and its outputs if it succeeded."""
    progress = read_progress(f"{folder}/{PROGRESS}")
    first = None if observed.reported else progress
    if record is None:
        signals = _signals(observed, start_error)
        return AttemptEnded(
            at, *key, signals=signals, first_progress=first, progress=progress, settled=observed.engine_gone
        )
    outputs = read_outputs(spec, f"{folder}/{OUT}", (paths.root,)) if record.exit_code == 0 else None
    return AttemptEnded(
        at,
        *key,
        signals=_signals_of_record(record, observed, outputs, progress),
        started_at=record.started_at,
        ended_at=record.ended_at,
        seconds=record.seconds,
        cpu_seconds=record.cpu_seconds,
        max_rss=record.max_rss,
        parameters=paths.secrets.redact(dict(outputs.parameters)) if outputs is not None else {},
        artifacts=paths.secrets.redact(dict(outputs.artifacts)) if outputs is not None else {},
        first_progress=first,
        progress=progress,
        last_line=_last_words(record, outputs, folder, paths.secrets),
        settled=observed.engine_gone,
    )


def _last_words(record: ExitRecord, outputs: AttemptOutputs | None, folder: Path, secrets: Secrets) -> str:
    """Why an attempt that exited with 0 lacks outputs, or the last line of a failed one; else empty."""
    if outputs is not None:
        notes = outputs.notes if outputs.missing else ()
        return _keep_notes(folder, [secrets.redact(note) for note in notes]) if notes else ""
    return str(secrets.redact(last_line(folder / LOG))) if record.exit_code is not None else ""


def _keep_notes(folder: Path, notes: list[str]) -> str:
    """Log why an attempt's outputs do not count; returns the last line."""
    lines = [f"spotwright: {note}" for note in notes]
    _log(folder, lines="\n".join(lines))
    return lines[-1][:_LONGEST_LINE]


def _log(folder: Path, *, lines: str) -> None:
    """Append lines to an attempt's log if possible: its code may have deleted the folder, and the disk may be full."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW  # a pipe without a reader blocks
    with contextlib.suppress(OSError), os.fdopen(os.open(folder / LOG, flags, 0o666), "a", encoding="utf-8") as log:
        log.write(lines + "\n")


def hide_secrets(folder: Path, secrets: Secrets) -> None:
    """Replace secrets by references in the output files that the SDK wrote, once the journal has the outputs.

    Artifacts are the user's files and stay unchanged. Raises :class:`StateError` if a file cannot be written.
    """
    if not secrets:
        return
    out = folder / OUT
    for path in (out / EXECUTOR_OUTPUT, *sorted((out / PARAMETERS).glob("*"))):
        if not path.is_file():  # the attempt wrote none, or made a pipe of that name
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
    """The last line that an attempt wrote: the exception of a Python program that failed."""
    try:
        with open_regular(log, sys.maxsize) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return ""  # the attempt wrote none, or deleted its own folder
    return lines[-1].strip()[:_LONGEST_LINE] if lines else ""


def _signals(observed: ObservedEnd, start_error: str) -> Signals:
    """The signals of an attempt without an exit record."""
    return Signals(
        noticed=observed.noticed,
        node_gone=observed.node_gone,
        cancelled=observed.cancelled,
        moved=observed.moved,
        spot=observed.spot,
        start_error=start_error,
        heard=bool(start_error),
    )


def _signals_of_record(
    record: ExitRecord, observed: ObservedEnd, outputs: AttemptOutputs | None, progress: float | None
) -> Signals:
    """The signals of an attempt with an exit record, and with outputs if it exited with 0.

    An attempt without its own cgroup is charged with the machine's count of out-of-memory kills, unless its SIGKILL was
    ordered. An exit before the SIGKILL counts as before the node's end. The end of an attempt that was killed because its
    engine had ended is unknown. An attempt that was only stopped, has all its outputs and reported no work left has finished:
    its task is not run again.
    """
    was_killed = any(order.what == "kill" for order in record.ordered)
    machine_kills = record.machine_oom_kills if record.signal == 9 and not observed.killed and not was_killed else 0
    complete = not outputs.missing if outputs is not None else None
    return Signals(
        exit_code=record.exit_code,
        signal=record.signal,
        outputs_complete=complete,
        missing_outputs=tuple(outputs.missing) if outputs is not None else (),
        accepted_by_kfp=outputs is not None and outputs.accepted_by_kfp,
        noticed=observed.noticed,
        node_gone=observed.node_gone and (record.exit_code is None or was_killed),
        heard=not (observed.engine_gone and was_killed),
        timed_out=record.timed_out,
        oom_kills=record.oom_kills if record.oom_kills is not None else machine_kills,
        cancelled=observed.cancelled and not (observed.only_stopped and complete and not has_work_left(progress)),
        moved=observed.moved,
        start_error=record.start_error,
        spot=observed.spot,
    )
