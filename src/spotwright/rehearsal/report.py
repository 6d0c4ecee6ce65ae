"""Reports of a rehearsal: text for people, JSON for programs, and JUnit XML for a build server.

A step's problems come with their probable cause, if the trials show one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import gmtime, localtime, strftime
from typing import Any
from xml.etree import ElementTree as ET

from spotwright.errors import StateError
from spotwright.kfp.commands import COMMAND_TASK
from spotwright.local.protocol import LOG
from spotwright.local.supervisor.kernel import FileCall
from spotwright.local.supervisor.private_folders import temporary_folder
from spotwright.model.attempts import Cause
from spotwright.records.state_folder import StateFolder, write_atomically
from spotwright.rehearsal.attempt_trace import NO_ANSWER, OnSigterm
from spotwright.rehearsal.causes import probable_cause, step_cause, untold_sigterm
from spotwright.rehearsal.fault_injector import InjectionResult
from spotwright.rehearsal.injection_points import AtOperation, FileActivity, InjectionKind, is_save
from spotwright.rehearsal.lives import Life, Lives
from spotwright.rehearsal.loaded_saves import Origin, Resume, ends_inside_save
from spotwright.rehearsal.session import Rehearsal
from spotwright.rehearsal.verdict import PointOutcome, StepReport, Verdict

__all__ = ["as_json", "as_junit", "as_text", "failures", "keep_report", "outcome_text", "passes"]


_MAX_NOISE_SHOWN = 5
_BY_TIME_ALONE = "without a trace it was interrupted by time alone"
_FINISHED_BEFORE = "the step finished before the interruption"


def as_text(rehearsal: Rehearsal, *, points: bool = True) -> str:
    """The verdict on every step with its evidence, and where to look if it is not safe. ``points``: list every outcome."""
    return "\n\n".join("\n".join(_step_lines(rehearsal, step, points=points)) for step in rehearsal.steps)


def outcome_text(outcome: PointOutcome) -> str:
    """The outcome of one injection point, as a line."""
    return f"  {_mark(outcome)} {outcome.point.name:<22} {_description(outcome)}"


def _step_lines(rehearsal: Rehearsal, step: StepReport, *, points: bool) -> Iterator[str]:
    failure = step.activity.tracing_failure
    yield f"{step.task}: {step.verdict}{', as far as it was tried' if failure and step.verdict.is_safe else ''}"
    if step.undisturbed_failure:
        yield f"  {step.undisturbed_failure}"
        yield from (f"  {line}" for line in _failed_logs(rehearsal, step))
        return
    if not step.undisturbed_seconds:
        yield f"  {step.undecided}"
        return
    yield f"  undisturbed: {' and '.join(map(_duration, step.undisturbed_seconds))}; {_saves(step)}"
    yield from (f"  {line}" for line in _noise(step))
    yield from (f"  {line}" for line in _without_variables(step))
    if points:
        yield from map(outcome_text, step.outcomes)
    if step.verdict is Verdict.UNDECIDED:
        yield f"  {step.undecided}"
    yield from (f"  {line}" for line in _lives(step))
    yield from (f"  {line}" for line in _cost(step))
    yield from (f"  {line}" for line in _loads(step))
    yield from (f"  {line}" for line in _no_further(step))
    yield from (f"  {line}" for line in _lost_files(step))
    yield from (f"  {line}" for line in _not_covered(step))
    yield from (f"  {line}" for line in _causes(step))
    left_out = _left_out(step)
    if left_out:
        why = "the step never finishes" if step.verdict is Verdict.NEVER_FINISHES else "the time budget was spent"
        yield f"  not tried, because {why}: {'; '.join(left_out)}"
    for outcome in step.outcomes:
        if outcome.problem:
            yield from (f"  {line}" for line in _where_to_look(rehearsal, step, outcome))
            break


def _causes(step: StepReport) -> Iterator[str]:
    """The probable cause, with the line that saves, and the launcher that does not pass SIGTERM on."""
    cause, untold = step_cause(step), untold_sigterm(step)
    if cause or (step.verdict in _WITH_CAUSE and not untold):
        yield f"probable cause: {cause or _NOT_KNOWN}"
    if step.saved_at and step.verdict is not Verdict.RESUMES:
        named = [each for each in step.saved_at if each[0] in cause] or step.saved_at
        yield f"it saves {named[0][0]} at {named[0][1]}"
    if untold and untold != cause:
        yield untold


_WITH_CAUSE = (Verdict.UNSAFE, Verdict.NEVER_FINISHES)
_NOT_KNOWN = "not known, as neither the traces nor the outputs show one"


def _left_out(step: StepReport) -> list[str]:
    return [outcome.point.name for outcome in step.outcomes if outcome.trial is None]


def _failed_logs(rehearsal: Rehearsal, step: StepReport) -> Iterator[str]:
    """The commands for the logs of tasks that failed without an interruption."""
    trial = step.failed_trial
    if trial is not None:
        for path, attempts in trial.executed.items():
            if attempts[-1].cause != Cause.SUCCEEDED:
                yield from _hidden(attempts[-1].folder / LOG, rehearsal.state)
                yield f"log: spotwright logs {trial.run.name} {path} --state {_short_path(rehearsal.state)}"


_PATH = re.compile(r"(?<![\w./])/[\w.+@%/-]+")
_END_OF_LOG = 10_000  # bytes


def _hidden(log: Path, state: Path) -> Iterator[str]:
    """A file in a temporary folder, named at the end of a log, that exists but was hidden from the attempt."""
    try:
        content = log.read_bytes()[-_END_OF_LOG:].decode("utf-8", "replace")
    except OSError:
        return
    for path in dict.fromkeys(_PATH.findall(content)):
        folder = temporary_folder(path)
        if folder and Path(path).exists() and not Path(path).is_relative_to(state):
            yield (
                f"{path} is in {folder}, which is empty in each attempt, as in a new container: keep it in another folder, or "
                "rehearse in its own"
            )
            return


def _saves(step: StepReport) -> str:
    activity, longest = step.activity, step.activity.longest_save
    if activity.tracing_failure:
        return f"not traced: {activity.tracing_failure}"
    if longest is None or not activity.count:
        if any(map(_has_saved, step.outcomes)):
            return "it saves only after a notice"
        return "no save" if activity.unread else "nothing that it wrote outlives an attempt"
    count = activity.count
    saves = f"{count} save{'s' * (count != 1)}"
    return f"{saves}, the longest {_duration(longest)}" if activity.is_timed else saves


def _has_saved(outcome: PointOutcome) -> bool:
    """Whether an attempt of the trial changed a file that outlives it."""
    operations = outcome.trial.operations if outcome.trial is not None else ()
    return any(is_save(each) for attempt in operations for each in attempt)


def _lost_files(step: StepReport) -> Iterator[str]:
    """State that is not kept, and files in folders that are lost with an attempt: they explain why a step starts over."""
    if step.verdict.is_safe and not step.activity.tracing_failure and not any(map(_has_saved, step.outcomes)):
        yield f"nothing is kept: {_writes_nothing(step)}"
    if step.stray_files and step.verdict is not Verdict.RESUMES:
        hidden = len(step.stray_files) - _MAX_NOISE_SHOWN
        more = f" and {hidden} more" if hidden > 0 else ""
        files = ", ".join(step.stray_files[:_MAX_NOISE_SHOWN])
        yield f"it wrote {files}{more}: a new pod does not have what its predecessor wrote there"


def _writes_nothing(step: StepReport) -> str:
    unread = step.activity.unread
    if unread:
        return f"it writes {', '.join(unread[:_MAX_NOISE_SHOWN])} once or only adds to it, and no attempt reads it"
    other = "a path that --keep names" if step.task == COMMAND_TASK else "a volume"
    return f"it writes no file to the folder in SPOTWRIGHT_CHECKPOINT or to {other}"


_DATES = ("%Y-%m-%d", "%Y%m%d", "%Y_%m_%d", "%Y.%m.%d", "%d-%m-%Y", "%d.%m.%Y", "%d_%m_%Y")


def _dated(step: StepReport) -> Iterator[str]:
    """A save whose path contains today's date: every attempt of a rehearsal runs on one day."""
    today = [strftime(form, at) for at in (localtime(), gmtime()) for form in _DATES]
    paths = (operation.path for save in step.activity.saves for operation in save.operations)
    path = next((path for path in paths if any(date in path for date in today)), "")
    if path and step.verdict.is_safe:
        yield f"{path} contains today's date: an attempt on another day must still find it"


def _not_covered(step: StepReport) -> Iterator[str]:
    """The parts of this step that a rehearsal does not see and its verdict does not cover."""
    if step.activity.tracing_failure:
        yield f"{_BY_TIME_ALONE}: unknown whether it survives an interruption inside a save or between outputs"
    if step.shares_processes:
        yield (
            f"it was not process 1, as it is in a container ({step.shares_processes}): a stale file with its process id, and a "
            "signal that process 1 ignores, were not tried"
        )
    yield from _dated(step)
    for path, row in [each.repeated for each in step.outcomes if each.repeated is not None][:1]:
        yield (
            f"rows of {path} are there twice after an interruption, such as {row[:60]!r}; it outlives an attempt and was not "
            "compared: cut it at the saved position, or name it with --output if it is a result"
        )
    if step.changed_results:
        yield (
            f"{_first_of(step.changed_results)} is different after an interruption, and no attempt reads it: name it with "
            "--output if it is a result"
        )
    for killed in step.orphans[:1]:
        ranks = ", ".join(f"{rank} ({command})" for rank, command in killed.orphans.items())
        saved = f", and wrote to saves {killed.orphans_saved} times" if killed.orphans_saved else ""
        yield (
            f"killed alone, its launcher left ranks running{saved}: {ranks}. Where they are not ended, the next "
            "attempt runs beside them: let it end them, or refuse their saves as spotwright.checkpoint does"
        )
    if step.connections:
        hidden = len(step.connections) - _MAX_NOISE_SHOWN
        more = f" and {hidden} more" if hidden > 0 else ""
        yield f"it connected to {', '.join(step.connections[:_MAX_NOISE_SHOWN])}{more}: what it changed there is not compared"
    for path in step.activity.mapped:
        yield f"{path} is changed through a memory map: such saves cannot be traced, so they were interrupted by time"


def _first_of(names: Sequence[str]) -> str:
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{names[0]}{more}"


def _without_variables(step: StepReport) -> Iterator[str]:
    """The result of an execution without our variables."""
    if step.changed_by_library:
        hidden = len(step.changed_by_library) - 1
        more = f", and {hidden} more" if hidden else ""
        yield (
            f"changed by the library itself: without Spotwright's variables, {step.changed_by_library[0]}{more}. Give each "
            "training its own place (name=), and let no result depend on the variables"
        )
    elif step.not_compared_without:
        yield f"not compared with a run without Spotwright's variables: {step.not_compared_without}"


def _noise(step: StepReport) -> Iterator[str]:
    if step.noise:
        locations = [each.location for each in step.noise]
        hidden = len(locations) - _MAX_NOISE_SHOWN
        more = f" and {hidden} more" if hidden > 0 else ""
        shown = ", ".join(locations[:_MAX_NOISE_SHOWN])
        yield f"not compared, because it differs without any interruption: {shown}{more}"


def _mark(outcome: PointOutcome) -> str:
    """``x`` for a problem, ``.`` for a survived interruption, ``-`` without one."""
    return "x" if outcome.problem else "." if outcome.is_interrupted else "-"


def _description(outcome: PointOutcome) -> str:
    """The injections of a point, and their result."""
    if outcome.trial is None:
        return f"undecided, {outcome.inconclusive}" if outcome.inconclusive else "not tried"
    if not outcome.is_interrupted and not outcome.problem:
        failure = outcome.trial.tracing_failure
        if outcome.trial.missing_ranks:
            return f"not interrupted, because {outcome.trial.missing_ranks}"
        if outcome.trial.timed_out:
            return "given up before the interruption: it took too long; the machine may be too busy"
        return f"not interrupted, because it was not traced: {failure}" if failure else _FINISHED_BEFORE
    injected = outcome.trial.injected
    injections = ", ".join(map(_injection, injected)) if len(injected) < 3 else f"{len(injected)} interruptions"
    if outcome.problem:
        return f"{injections}: {outcome.problem}" if injections else outcome.problem
    if outcome.cost is None:
        went_on = (
            "its launcher went on"
            if outcome.point.kind is InjectionKind.RANK
            else "the step finished during the notice"
        )
        return f"{injections}: the same outputs, {went_on}"
    return f"{injections}: the same outputs, {_duration(outcome.cost.extra_seconds)} lost"


def _injection(result: InjectionResult) -> str:
    action = "notice" if result.injection.notice else "killed"
    where = result.injection.description if isinstance(result.injection.trigger, AtOperation) else ""
    if result.in_save:
        where = "in the save after the notice"
    return f"{action} at {_duration(result.age)}{f', {where}' if where else ''}"


def _cost(step: StepReport) -> Iterator[str]:
    tried = [outcome for outcome in step.outcomes if outcome.trial is not None]
    if tried and not step.interruptions and not any(outcome.problem for outcome in tried):
        yield "the step finished before every interruption: give it more work"
    if step.cost_per_interruption is not None and step.redone_per_interruption is not None:
        yield (
            f"one interruption costs {_duration(step.cost_per_interruption)} on average, with the new start: "
            f"{step.redone_per_interruption:.0%} of the step's work is redone"
        )
    if step.redone_share is not None:
        yield f"{step.redone_share:.0%} of the interrupted work was redone, measured by {step.measured_by}"
    if step.verdict is Verdict.RESUMES and NO_ANSWER & step.answers_to_sigterm:
        verb = "ignores" if OnSigterm.IGNORES in step.answers_to_sigterm else "blocks"
        yield f"it {verb} SIGTERM: draining its node takes the whole grace period"
    longest = step.activity.longest_save
    cut = [outcome for outcome in step.outcomes if _was_cut_after_notice(outcome, step.activity)]
    if cut:
        yield f"a save was under way when the notice of {_duration(step.notice)} ended ({cut[0].point.name})"
    elif longest is not None and step.activity.is_timed and step.pool_notices:
        fits = "; ".join(_fits(longest, *pool) for pool in step.pool_notices)
        yield f"the longest save of {_duration(longest)}: {fits}"


def _was_cut_after_notice(outcome: PointOutcome, activity: FileActivity) -> bool:
    """Whether an attempt was killed at the end of its notice inside a save."""
    trial = outcome.trial
    if trial is None or trial.tracing_failure or any(each.in_save for each in trial.injected):
        return False
    pairs = zip(trial.attempts, trial.operations, strict=False)
    return any(attempt.outlived_notice and ends_inside_save(operations, activity) for attempt, operations in pairs)


_MAX_LOADS_SHOWN = 2


def _loads(step: StepReport) -> Iterator[str]:
    """Attempts that did not resume from the newest whole save, if others did or the reason is unknown."""
    if step.verdict is not Verdict.GOES_BACK:
        return
    wrong = [(each, resume) for each in step.outcomes for resume in each.resumes if resume.origin is not Origin.NEWEST]
    wrong = [(each, resume) for each, resume in wrong if resume.origin is not None]
    for outcome, resume in wrong[:_MAX_LOADS_SHOWN]:
        yield f"{outcome.point.name}: {_load(resume)}"
    if len(wrong) > _MAX_LOADS_SHOWN:
        yield f"so did {len(wrong) - _MAX_LOADS_SHOWN} more attempts"


def _load(resume: Resume) -> str:
    """The save that an attempt loaded instead of the newest whole one."""
    newest = ", ".join(resume.newest[:_MAX_LOADS_SHOWN])
    loaded = ", ".join(resume.loaded[:_MAX_LOADS_SHOWN]) or "nothing"
    return f"attempt {resume.attempt} loaded {loaded}, and not the newest whole save, {newest}"


def _no_further(step: StepReport) -> Iterator[str]:
    """The saves and loads in lives that kept only a part of the first life."""
    for outcome in step.outcomes:
        lives, trial = outcome.lives, outcome.trial
        if lives is None or trial is None or lives.gets_further or step.verdict is not Verdict.GOES_BACK:
            continue
        number = len(trial.operations)
        saves = [each for each in trial.operations[-2] if is_save(each)] if number > 2 else []
        if saves:
            placed = [each.path for each in saves if each.call is FileCall.RENAME] or [each.path for each in saves]
            loaded = trial.traces[step.task][-1].loads or ()
            yield (
                f"{outcome.point.name}: attempt {number} got no further than attempt {number - 1}: it loaded {_some(loaded)}, "
                f"and attempt {number - 1} had saved {_some(tuple(dict.fromkeys(placed)))}: load the newest save"
            )
            return


_WIDTH = 40


def _lives(step: StepReport) -> Iterator[str]:
    """The lives as bars: each attempt's begin and end within the work."""
    for outcome in step.outcomes:
        lives = outcome.lives
        if lives is not None:
            kept = f"the step ended in life {len(lives.attempts)}"
            if not lives.is_ended:
                kept = f"after {lives.count} lives {lives.kept:.0%} of the work was kept"
            yield f"{outcome.point.name}: {kept}"
            yield from (f"  {life.attempt} {_bar(life)}" for life in lives.attempts)


def _bar(life: Life) -> str:
    if life.began is None or life.ended is None:
        return f"did {life.work:.0%} of the work; where it began is not known"
    first = min(_WIDTH - 1, round(life.began * _WIDTH))
    last = max(first + 1, round(life.ended * _WIDTH))
    bar = "=" * (last - first - 1) + ("x" if life.is_interrupted else "=")
    return f"|{'.' * first}{bar}{'.' * (_WIDTH - last)}| {life.began:.0%} to {life.ended:.0%}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[-_MAX_LOADS_SHOWN:]) or "nothing"


def _fits(longest: float, pool: str, notice: float) -> str:
    if notice <= 0:
        return f"{pool} gives no notice, so only earlier saves count"
    return f"{'fits' if longest < notice else 'does not fit'} the {_duration(notice)} of notice of {pool}"


def _where_to_look(rehearsal: Rehearsal, step: StepReport, outcome: PointOutcome) -> Iterator[str]:
    if outcome.trial is None:
        return
    yield f"{outcome.point.name}: {outcome.problem}"
    yield f"log: spotwright logs {outcome.trial.run.name} {step.task} --state {_short_path(rehearsal.state)}"
    for name, path in zip(("undisturbed", "interrupted"), outcome.output_paths, strict=False):
        yield f"{name}: {_short_path(path)}"


def _short_path(path: Path) -> str:
    """A path relative to the current folder if it lies there."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _duration(seconds: float) -> str:
    if seconds >= 120:
        return f"{seconds / 60:.0f}min"
    if seconds >= 10:
        return f"{seconds:.0f}s"
    return f"{seconds:.2g}s" if seconds >= 0.1 else f"{seconds * 1000:.0f}ms"


# -- for programs


def as_json(rehearsal: Rehearsal) -> dict[str, Any]:
    """``name``, ``seed``, ``safe``, ``state`` (the state folder with the runs of all trials) and ``steps``. Times are seconds.

    A step: ``task``; ``verdict``; ``fails_undisturbed``, why it fails without any interruption; ``undecided``, why there is no
    decision; ``undisturbed_seconds`` of each undisturbed execution; ``not_traced``, why its files could not be observed (then
    null stands for what only a trace shows); ``saves``, their number; the ``longest_save``; the ``notice`` of points with
    notice; ``lost_files``, files that the step wrote to folders that are lost with an attempt; ``unread``, files beside its
    saves that it writes once or only appends to, and that no attempt reads; ``gets_further``, whether the step ends although no
    attempt lives long enough to do all of the work, or would if it saved more often (null: not known); ``saved_at``, the files
    of its saves, each with the ``line`` of its Python code that writes it; ``lives``, the trials that show it, each with its
    ``name``, the ``share`` of the work after which every attempt was interrupted, whether there was a ``notice``, whether the
    step ``ended``, which share of the work was ``kept`` and of each life ``lost_per_life``, and the ``attempts``, each with its
    ``number``, its ``work``, where it ``began`` and ``ended`` (null: not known) and whether it was ``interrupted``;
    ``not_passed_on``, the commands that got SIGTERM and did not pass it on, each ``launcher`` with its ``program``;
    ``connections``, the addresses to which it connected, whose data is not compared; ``mapped_saves``, saves that it changes
    through memory maps, which cannot be traced; ``ignores_sigterm``, whether it ignores or blocks SIGTERM, and ran until it was
    killed; ``changed_by_library``, the outputs that differ without Spotwright's variables, and
    ``not_compared_without_variables``, why that is not known; ``not_compared``, the differences between undisturbed executions;
    ``interruptions``, their number; ``cost_per_interruption``, the mean time beyond the undisturbed one; ``done_again``, the
    share of the interrupted work that was redone (0: none, 1: the step started over), ``measured_by`` its own progress,
    processor time, or its time without waits for a processor; the ``probable_cause`` of its problems, or why it starts over,
    where the traces show one; ``not_tried``, the points that the time budget left out or cut short, or that came after one that
    never finished; ``work_begins``, when the undisturbed step makes its first step of work, and ``work_seen_by`` what shows it
    (its progress, its saves, its outputs, the rate at which it reads files); ``orphans``, the commands of the ranks that
    outlived a launcher that was killed alone, by rank; and ``points``.

    A point: ``name``; ``kind`` (``start``, ``middle``, ``save``, ``outputs``, ``end``, ``rank``, ``lives``, ``several``);
    ``interrupted``, false if the step finished before; ``not_traced``, why an attempt of it was not observed; ``problem``, what
    the interruption broke, with its ``probable_cause`` and all ``differences``; ``run``, its run in the state folder;
    ``lost_seconds``; ``interruptions``, each with its ``attempt``, the ``age`` of the attempt when it came, whether it had a
    ``notice``, whether the node was reclaimed ``in_save`` after the notice, ``where``, whether it came ``at_work`` (after the
    first step of the work), and the ``ranks`` whose nodes were reclaimed (empty: the whole step); ``attempts``, each with
    ``number``, ``cause``, ``why`` and ``seconds``; ``resumes``, each with the ``attempt``, the files of the ``newest`` whole
    save before it, the files that it ``loaded``, and what it resumed ``from`` (null if no whole save was left).
    """
    return {
        "name": rehearsal.name,
        "seed": rehearsal.settings.seed,
        "safe": rehearsal.is_safe,
        "state": str(rehearsal.state),
        "steps": [_step_json(step) for step in rehearsal.steps],
    }


def keep_report(rehearsal: Rehearsal) -> None:
    """Write the report beside the runs of the rehearsal, where ``spotwright page`` finds it.

    Raises :class:`StateError` if it cannot be written.
    """
    path = StateFolder(rehearsal.state).rehearsal_report
    try:
        write_atomically(path, {**as_json(rehearsal), "text": as_text(rehearsal)})
    except OSError as error:
        raise StateError(f"{path}: cannot be written ({error.strerror})") from error


def _step_json(step: StepReport) -> dict[str, Any]:
    failure = step.activity.tracing_failure
    return {
        "task": step.task,
        "verdict": step.verdict.value,
        "fails_undisturbed": step.undisturbed_failure or None,
        "undecided": (step.undecided or None) if step.verdict is Verdict.UNDECIDED else None,
        "undisturbed_seconds": list(step.undisturbed_seconds),
        "not_traced": failure or None,
        "saves": step.activity.count if not failure else None,
        "longest_save": step.activity.longest_save,
        "notice": step.notice,
        "lost_files": list(step.stray_files) if not failure else None,
        "unread": list(step.activity.unread) if not failure else None,
        "gets_further": step.gets_further,
        "saved_at": [{"file": path, "line": line} for path, line in step.saved_at],
        "lives": [_lives_json(each.point.name, each.lives) for each in step.outcomes if each.lives is not None],
        "not_passed_on": [{"launcher": each.launcher, "program": each.program} for each in step.untold]
        if not failure
        else None,
        "connections": list(step.connections) if not failure else None,
        "mapped_saves": list(step.activity.mapped) if not failure else None,
        "ignores_sigterm": _ignores_sigterm(step),
        "not_compared": [str(each) for each in step.noise],
        "changed_by_library": [str(each) for each in step.changed_by_library],
        "not_compared_without_variables": step.not_compared_without or None,
        "interruptions": step.interruptions,
        "cost_per_interruption": step.cost_per_interruption,
        "done_again": step.redone_share,
        "measured_by": step.measured_by.value if step.measured_by is not None else None,
        "probable_cause": step_cause(step) or None,
        "not_tried": _left_out(step),
        "work_begins": step.phase.begin,
        "work_seen_by": step.phase.seen_by.value,
        "orphans": [dict(each.orphans) for each in step.orphans],
        "points": [_point_json(outcome, step) for outcome in step.outcomes],
    }


def _lives_json(name: str, lives: Lives) -> dict[str, Any]:
    return {
        "name": name,
        "share": lives.share,
        "notice": lives.notice,
        "ended": lives.is_ended,
        "kept": lives.kept,
        "lost_per_life": lives.lost_per_life,
        "attempts": [
            {"number": each.attempt, "work": each.work, "began": each.began, "ended": each.ended,
             "interrupted": each.is_interrupted}
            for each in lives.attempts
        ],
    }  # fmt: skip


def _ignores_sigterm(step: StepReport) -> bool | None:
    """Whether the step ignores or blocks SIGTERM; ``None`` if only a trace would show it."""
    if NO_ANSWER & step.answers_to_sigterm:
        return True
    return None if step.activity.tracing_failure else False


def _point_json(outcome: PointOutcome, step: StepReport) -> dict[str, Any]:
    trial = outcome.trial
    return {
        "name": outcome.point.name,
        "kind": outcome.point.kind.value,
        "interrupted": outcome.is_interrupted,
        "not_traced": (trial.tracing_failure or None) if trial is not None else None,
        "problem": outcome.problem or None,
        "probable_cause": probable_cause(outcome, step) or None,
        "differences": [str(each) for each in outcome.differences],
        "run": trial.run.name if trial is not None else None,
        "interruptions": [
            {"attempt": result.attempt, "age": result.age, "notice": result.injection.notice, "in_save": result.in_save,
             "where": result.injection.description, "at_work": result.at_work, "ranks": list(result.injection.ranks)}
            for result in (trial.injected if trial is not None else ())
        ],
        "attempts": [
            {"number": each.number, "cause": each.cause, "why": each.why, "seconds": each.seconds}
            for each in (trial.attempts if trial is not None else ())
        ],
        "resumes": [
            {"attempt": each.attempt, "newest": list(each.newest), "loaded": list(each.loaded), "from": each.origin}
            for each in outcome.resumes
        ],
        "lost_seconds": outcome.cost.extra_seconds if outcome.cost is not None else None,
    }  # fmt: skip


def as_junit(rehearsal: Rehearsal, *, must_resume: bool) -> str:
    """JUnit XML: a suite for every step, with a case for every point and one for the verdict."""
    root = ET.Element("testsuites", name=f"spotwright rehearse {rehearsal.name}")
    for step in rehearsal.steps:
        _suite(root, step, must_resume=must_resume)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ET.Element, step: StepReport, *, must_resume: bool) -> None:
    suite = ET.SubElement(root, "testsuite", name=step.task)
    for outcome in step.outcomes:
        time = outcome.trial.seconds if outcome.trial is not None else 0.0
        case = ET.SubElement(suite, "testcase", classname=step.task, name=outcome.point.name, time=f"{time:.3f}")
        if outcome.problem:
            ET.SubElement(case, "failure", message=outcome.problem).text = "\n".join(map(str, outcome.differences))
        elif not outcome.is_interrupted:
            ET.SubElement(case, "skipped", message=_description(outcome))
    case = ET.SubElement(suite, "testcase", classname=step.task, name="verdict", time="0.000")
    if not passes(step, must_resume=must_resume):
        cause = f": {step.undisturbed_failure}" if step.undisturbed_failure else ""
        cause = next((f": {line}" for line in _without_variables(step) if step.changed_by_library), cause)
        ET.SubElement(case, "failure", message=f"{step.verdict}{cause}")
    if step.activity.tracing_failure:
        ET.SubElement(case, "system-out").text = f"not traced: {step.activity.tracing_failure}"
    for attribute, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("errors", "0")


def passes(step: StepReport, *, must_resume: bool) -> bool:
    """Whether the verdict is safe, and with ``must_resume`` also that the step resumes."""
    return step.verdict is Verdict.RESUMES or (step.verdict.is_safe and not must_resume)


def failures(steps: Sequence[StepReport], *, must_resume: bool) -> list[StepReport]:
    """The steps that do not pass."""
    return [step for step in steps if not passes(step, must_resume=must_resume)]
