"""A whole rehearsal, from the prepared pipeline or command to a verdict on every step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spotwright.engine.events import RunStatus
from spotwright.errors import InputError
from spotwright.model.attempts import Cause
from spotwright.rehearsal.step_rehearsal import ProgressCallback, RehearsalSettings, StepRehearsal
from spotwright.rehearsal.trials.trial_runs import TrialRun, TrialRunner
from spotwright.rehearsal.trials.workspaces import Workspace
from spotwright.rehearsal.verdicts.verdict import StepReport
from spotwright.runs.runner import Prepared

__all__ = ["Rehearsal", "rehearse_steps"]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The report on every step. ``state`` is the state folder with the runs of all trials."""

    name: str
    settings: RehearsalSettings
    steps: tuple[StepReport, ...]
    state: Path

    @property
    def is_safe(self) -> bool:
        """Whether every step is safe."""
        return all(step.verdict.is_safe for step in self.steps)


def rehearse_steps(
    prepared: Prepared, workspace: Workspace, settings: RehearsalSettings, task: str | None, report: ProgressCallback
) -> Rehearsal:
    """Rehearse one task of a pipeline, or every one. Raises :class:`InputError` for a task that does not exist."""
    runner = TrialRunner(prepared, workspace.prepare, workspace.collect, workspace.readable)
    first = runner.run_undisturbed("undisturbed", task)
    tasks = _tasks(task, first)
    steps = tuple(StepRehearsal(runner, workspace, settings, path, first, report).perform() for path in tasks)
    return Rehearsal(prepared.stored.source.pipeline, settings, steps, runner.state)


def _tasks(task: str | None, first: TrialRun) -> list[str]:
    """The paths of the tasks to rehearse: the named one, which may be given by the unique end of its path, or all."""
    if first.status is not RunStatus.SUCCEEDED:
        failed = (path for path, attempts in first.executed.items() if attempts[-1].cause != Cause.SUCCEEDED)
        return [task or next(failed, "")]
    if task is None or task in first.executed:
        return list(first.executed) if task is None else [task]
    matches = [path for path in first.executed if path.endswith(f"/{task}")]
    if len(matches) == 1:
        return matches
    problem = "there is no such task" if not matches else f"{len(matches)} tasks have that name"
    raise InputError(f"--task {task}: {problem}; the executed tasks are {', '.join(first.executed)}")
