"""What the end of an attempt tells: every signal, its times, its progress, its outputs, and the line that says why.

The journal has what was collected here before secrets are hidden in the files of the attempt.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotwright.engine.signals import write_signals
from spotwright.errors import StateError
from spotwright.local.attempts import Places
from spotwright.local.orders import LOG, OUT, PROGRESS, ExitRecord
from spotwright.local.watch import read_progress
from spotwright.model.attempts import Signals
from spotwright.pipelines.outputs import EXECUTOR_OUTPUT, PARAMETERS, read_outputs
from spotwright.pipelines.secrets import Secrets
from spotwright.pipelines.spec import TaskSpec

__all__ = ["Seen", "end_data", "hide_secrets", "keep_reason", "last_line"]

_TAIL = 4096  # bytes of a log that are looked at for its last line
_LONGEST_LINE = 300


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


def keep_reason(folder: Path, reason: str) -> str:
    """Put the whole reason why an attempt could not start into its log, and give the line that says most: the last one."""
    lines = [line for line in reason.splitlines() if line.strip()] or ["no reason was given"]
    if len(lines) > 1:
        _log(folder, lines=reason.rstrip("\n"))
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
            if outputs.missing and outputs.notes:
                data["last_line"] = _keep_notes(folder, [places.secrets.redact(note) for note in outputs.notes])
        elif record.exit_code is not None:
            data["last_line"] = places.secrets.redact(last_line(folder / LOG))
    progress = read_progress(folder / PROGRESS)
    if progress is not None:
        data["progress"] = progress
    data["signals"] = write_signals(Signals(**signals))
    return data


def _keep_notes(folder: Path, notes: list[str]) -> str:
    """Put into an attempt's log why outputs do not count, and give the last line."""
    lines = [f"spotwright: {note}" for note in notes]
    _log(folder, lines="\n".join(lines))
    return lines[-1][:_LONGEST_LINE]


def _log(folder: Path, *, lines: str) -> None:
    """Add lines to an attempt's log where that can be: its code may have taken the folder away, and the disk may be full."""
    with contextlib.suppress(OSError), (folder / LOG).open("a", encoding="utf-8") as log:
        log.write(lines + "\n")


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
