"""An interrupted attempt at a point of a rehearsal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spotwright.engine.events import RunStatus
from spotwright.local.supervisor.kernel import FileCall
from spotwright.records.state_folder import RunFolder
from spotwright.rehearsal.attempt_trace import AttemptTrace, FileOperation
from spotwright.rehearsal.fault_injector import InjectionResult
from spotwright.rehearsal.injection_points import SAVES, AtWork, Injection, InjectionKind, InjectionPoint
from spotwright.rehearsal.trials import TrialAttempt, TrialRun

POINT = InjectionPoint("middle, no notice", InjectionKind.MIDDLE, ())


def attempt(
    number: int, seconds: float, cause: str, first: float | None = None, last: float | None = None
) -> TrialAttempt:
    return TrialAttempt(number, seconds, cause, "", first, last, "", Path())


def trial(*attempts: TrialAttempt, saves: tuple[int, ...] = ()) -> TrialRun:
    """A trial that succeeded; ``saves`` counts the operations on saves of each traced attempt."""
    write = FileOperation(FileCall.WRITE, SAVES, "s", 0.0)
    traces = {"t": tuple(AttemptTrace((write,) * count) for count in saves)}
    return TrialRun(RunFolder(Path("run")), RunStatus.SUCCEEDED, "", {"t": attempts}, "t", {}, {}, traces=traces)


def succeeded(seconds: float, first: float | None = None) -> TrialAttempt:
    return attempt(2, seconds, "succeeded", first, 1.0)


NOT_INTERRUPTED = trial(succeeded(1.0))


INTERRUPTED = replace(
    NOT_INTERRUPTED, injected=(InjectionResult(1, Injection(InjectionKind.MIDDLE, AtWork(0.5)), 0.5),)
)
