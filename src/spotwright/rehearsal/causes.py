"""The probable cause of a step's problems, if the trials show it.

Each trial reports what an interruption changed. A cause is named only with evidence: the answer to the signal, duplicated rows,
the operations between which the node was reclaimed, the save that was loaded whole.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from spotwright.kfp.commands import COMMAND_TASK
from spotwright.local.protocol import LOG
from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal.attempt_trace import FileOperation, OnSigterm, Untold
from spotwright.rehearsal.injection_points import OUTPUTS, SAVES, SCRATCH, FileActivity, InjectionKind, Save
from spotwright.rehearsal.loaded_saves import Origin, kind_of
from spotwright.rehearsal.output_comparison import repeated_row
from spotwright.rehearsal.trials import TrialRun
from spotwright.rehearsal.verdict import PointOutcome, StepReport, Verdict

__all__ = ["folders_of_saves", "probable_cause", "step_cause", "untold_sigterm"]


_MAX_READ = 10_000_000  # bytes of an output or a log
_TEMPORARY = (".new", ".tmp", ".part", ".partial", ".temp", "~")
_LOCK = re.compile(r"(?<![a-z])(?:lock(?:ed|file)?|running|in.?progress)(?![a-z])|\.pid$", re.IGNORECASE)
_SQLITE = re.compile(r"-(?:journal|wal|shm)$")
_WHOLE = "the newest save was whole and was loaded, and still the outputs differ"
_MISSING_STATE = (
    f"{_WHOLE}: they depend on something that is not in the save, such as a counter or a schedule; compare what the step changes "
    "as it goes with what it saves"
)
_GENERATORS = {
    "random": "random.getstate and setstate",
    "numpy.random": "numpy.random.get_state and set_state",
    "torch": "torch.get_rng_state and set_rng_state",
}
_ORDER = "save the position in the data too: the seed of the order, the epoch and how many samples are done"
_ENDS_AS_SUCCESS = "SIGTERM ends the step with exit code 0: exit with another code, such as 143"
_ENDS_EARLY = "after SIGTERM the step ends with exit code 0 and other outputs: exit with another code, such as 143"
_ENDS_WITH_WORK_LEFT = (
    "the step ends with exit code 0 before its work is done: save, and exit with another code, such as 143"
)
_IGNORES_SIGTERM = (
    "SIGTERM is ignored: the step cannot save at a notice, and runs until it is killed; handle it: save and exit"
)
_BLOCKS_SIGTERM = (
    "SIGTERM is blocked by the signal mask of the step (sigprocmask, pthread_sigmask), so it never arrives: the step cannot save "
    "at a notice, and runs until it is killed; unblock the signal and handle it: save and exit"
)
_OUTLIVES_NOTICE = (
    "the step still runs when its notice ends and is killed: its handler of SIGTERM does not end it, or not in time"
)
_NO_HANDLER = "SIGTERM has no handler, and process 1 of a container ignores such a signal: handle it, or save regularly"
_SAVES_AT_END = "it saves only at its end: save regularly, and at SIGTERM"
_NOT_LOADED = "it saves, and still starts from the beginning: check how it loads a save when it starts"


def step_cause(step: StepReport) -> str:
    """The probable cause of a step's verdict, as a sentence without a full stop; empty if no trace shows one."""
    by_outcome = [(outcome, probable_cause(outcome, step)) for outcome in step.outcomes]
    causes = [cause for outcome, cause in by_outcome if cause and len(outcome.point.injections) == 1]
    of_state = [cause for cause in causes if cause.startswith(_WHOLE)]
    if of_state and not any(cause.startswith(_CERTAIN) for cause in causes):
        return max(of_state, key=len)  # even if every save was whole, so an incomplete file is not the cause
    causes += [cause for _, cause in by_outcome if cause]
    if causes:
        return next((cause for cause in causes if cause.startswith(_CERTAIN)), causes[0])
    if step.verdict in (Verdict.UNSAFE, Verdict.NEVER_FINISHES):
        return _answer_to_sigterm(step)
    return _why_it_starts_over(step) if step.verdict is Verdict.STARTS_OVER else ""


def probable_cause(outcome: PointOutcome, step: StepReport) -> str:
    """The probable cause of an outcome's problem, as a sentence without a full stop; empty if no trace shows one."""
    trial, activity = outcome.trial, step.activity
    if trial is None or not outcome.problem:
        return ""
    ending = _shown_by_ends(outcome, trial)
    if ending:
        return ending
    removed = outcome.lost_by
    if removed is not None and removed.call is FileCall.REMOVE:
        return f"{removed.path} is removed before the next save is whole: remove it afterwards"
    gone = _gone(outcome, trial)
    if gone:
        return gone
    repeated = _repeated(outcome)
    if repeated:
        return f"{_APPENDED}; {repeated[:60]!r} is there twice"
    loaded = _loaded(trial)
    mapped = next((path for path in activity.mapped if path in loaded or _is_mapped_as_it_lay(path, trial)), "")
    if mapped and outcome.differences:
        return (
            f"{mapped} is changed in place through a memory map: write a new file beside it, and rename it when it "
            "is complete"
        )
    if trial.tracing_failure:
        return ""
    interrupted = [_on_saves(operations) for operations in trial.operations[:-1] or trial.operations]
    placed = {PurePath(each.path).name for before in interrupted for each in before if each.call is FileCall.RENAME}
    found = (_lock_left(outcome, before, activity) or _torn(before, loaded, placed, step) for before in interrupted)
    return next(filter(None, found), _missing_state(outcome) if _loads_all(outcome) else "")


def _shown_by_ends(outcome: PointOutcome, trial: TrialRun) -> str:
    """The cause that the attempts' endings and logs show; empty if they show none."""
    if any(attempt.accepted_by_kfp for attempt in trial.attempts):
        return _ENDS_AS_SUCCESS
    if outcome.ended_early:
        return _ENDS_WITH_WORK_LEFT
    if any(_meets_former_ranks(attempt.folder / LOG) for attempt in trial.attempts):
        return _FORMER_ADDRESSES
    return _ENDS_EARLY if _ends_early(outcome, trial) else ""


_FORMER_ADDRESSES = (
    "restarted ranks connect to the addresses of those before, as gloo does where ranks share torchrun's store (PyTorch 2.15): "
    "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 where torchrun starts, and leave out --master-port, --master-addr and --node-rank, "
    "with which torchrun does not read it"
)


def _meets_former_ranks(log: Path) -> bool:
    """Whether the ranks of an attempt failed to meet, and their launcher restarted them."""
    try:
        content = log.read_bytes()[-_MAX_READ:]
    except OSError:
        return False
    return b"Gloo connectFullMesh failed" in content and b"torch/distributed/elastic" in content


def _missing_state(outcome: PointOutcome) -> str:
    """The state missing from the save of a step that loads its newest whole one, if its generators and outputs show it."""
    if outcome.generators:
        names = " and ".join(outcome.generators)
        how = "; ".join(_GENERATORS[name] for name in outcome.generators if name in _GENERATORS)
        return f"{_WHOLE}: the random numbers of {names} are not in the save, whose state ended otherwise; save it with {how}"
    reordered = _reordered(outcome)
    if reordered:
        return f"{_WHOLE}: the order of the data is not in the save, {reordered}; {_ORDER}"
    return _MISSING_STATE


def _loaded(trial: TrialRun) -> frozenset[str]:
    """The persistent files that attempts after an interruption read."""
    return frozenset(path for trace in trial.traces.get(trial.task or "", ())[1:] for path in trace.loads or ())


def _is_mapped_as_it_lay(path: str, trial: TrialRun) -> bool:
    """Whether the attempt after an interruption mapped an existing file into memory; reads through a map are not seen."""
    later = trial.traces.get(trial.task or "", ())[1:]
    return any(
        (SAVES, path) in trace.mapped
        and not any(each.path == path and (each.truncates or each.call is FileCall.RENAME) for each in trace.operations)
        for trace in later
    )


_SHARE_OF_SAVES, _FEWEST_OPERATIONS = 0.1, 3


def _survives_elsewhere(step: StepReport) -> bool:
    """Whether the step resumed after a kill at another moment: only then does the problem depend on the moment.

    That kill came after some saves and before others, so that there was a save to resume from, and work left.
    """
    whole = sum(len(save.operations) for save in step.activity.saves)
    least = max(_FEWEST_OPERATIONS, _SHARE_OF_SAVES * whole)
    for outcome in step.outcomes:
        operations = outcome.trial.operations if outcome.trial is not None else ()
        if outcome.is_interrupted and not outcome.problem and len(operations) > 1:
            before = sum(len(_on_saves(each)) for each in operations[:-1])
            if min(before, len(_on_saves(operations[-1]))) >= least:
                return True
    return False


def _loads_all(outcome: PointOutcome) -> bool:
    """Whether outputs differ although every attempt loaded the newest whole save."""
    origins = {resume.origin for resume in outcome.resumes}
    return bool(outcome.differences) and origins == {Origin.NEWEST}


_APPENDED = "rows are appended again after an interruption: truncate the file to the saved position before continuing"
_GOES = "what an attempt wrote is lost with its node"
_KEEP = "write it below SPOTWRIGHT_CHECKPOINT, or name the outputs that count with --output"
_CERTAIN = (_ENDS_AS_SUCCESS, _ENDS_EARLY, _ENDS_WITH_WORK_LEFT, _APPENDED)
"""Causes that an attempt's ending or the outputs show; they end the search."""


def _on_saves(operations: Sequence[FileOperation]) -> list[FileOperation]:
    return [operation for operation in operations if operation.area == SAVES]


def _ends_early(outcome: PointOutcome, trial: TrialRun) -> bool:
    """Whether the only attempt got SIGTERM and succeeded with different outputs: it treated the signal as its regular end."""
    traces = trial.traces.get(trial.task or "", ())
    return bool(outcome.differences) and len(trial.attempts) == 1 and any(trace.on_sigterm for trace in traces)


def _repeated(outcome: PointOutcome) -> str:
    return repeated_row(*outcome.output_paths) if len(outcome.output_paths) == 2 else ""


def _gone(outcome: PointOutcome, trial: TrialRun) -> str:
    """Name the output that lacks what only an interrupted attempt wrote: a file, or the first rows of a log.

    Empty for other differences. The first row of a log may be a table's header.
    """
    if not outcome.differences:
        return ""
    name = outcome.differences[0].output
    written = {each.path for operations in trial.operations[:-1] for each in operations if each.area != SAVES}
    if outcome.differences[0].text == "is missing" and name in written:
        return f"{_GOES}, as {name}; {_KEEP}"
    if len(outcome.output_paths) != 2 or not all(map(_is_short, outcome.output_paths)):
        return ""
    try:
        old, new = (path.read_text("utf-8").splitlines() for path in outcome.output_paths)
    except (OSError, UnicodeDecodeError):
        return ""
    if old[:1] == new[:1]:
        old, new = old[1:], new[1:]
    is_end = 0 < len(new) < len(old) and old[-len(new) :] == new
    return f"{_GOES}: {name} begins where an attempt went on; {_KEEP}" if is_end else ""


def _is_short(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= _MAX_READ


def _reordered(outcome: PointOutcome) -> str:
    """Describe a text output or JSON whose rows or items differ from the undisturbed ones only in their order; else empty."""
    if len(outcome.output_paths) != 2:
        return ""
    try:
        old, new = (_items(path) for path in outcome.output_paths)
    except (OSError, UnicodeDecodeError, RecursionError):
        return ""
    if old == new:
        return "because the same rows are there in another order" if old else ""
    if old.total() != new.total() or not new.keys() <= old.keys():
        return ""
    again = next(iter(new - old))
    return f"because rows such as {again[:60]!r} are there more often, and others never or less often"


def _items(path: Path) -> Counter[str]:
    """The rows of a text file; of a JSON file the items of its lists."""
    if path.stat().st_size > _MAX_READ:
        return Counter()
    text = path.read_text("utf-8")
    try:
        return Counter(_leaves(json.loads(text)))
    except ValueError:
        return Counter(text.splitlines())


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from (f"{name}: {leaf}" for leaf in _leaves(item))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield json.dumps(value)


# -- operations on saves before an interruption


def _lock_left(outcome: PointOutcome, before: Sequence[FileOperation], activity: FileActivity) -> str:
    """A file that the undisturbed step removes but an interruption left: the next attempt mistakes it for a running attempt."""
    removed = {each.path for save in activity.saves for each in save.operations if each.call is FileCall.REMOVE}
    left = {each.path for each in before if each.call is FileCall.OPEN}
    left -= {each.path for each in before if each.call is FileCall.REMOVE}
    if outcome.never_finishes and not before:  # killed inside the call that made it, before the call was recorded
        left = removed
    for path in sorted(removed & left):
        if _LOCK.search(PurePath(path).name) and (outcome.never_finishes or not outcome.differences):
            return f"{path} of the interrupted attempt is still there: remove a lock whose owner has ended"
    return ""


def _torn(before: Sequence[FileOperation], loaded: Collection[str], placed: set[str], step: StepReport) -> str:
    """Describe what the last operations left incomplete and a later attempt read: a file, a folder or several files.

    ``placed`` are the names of the files that the interrupted attempts put in place.
    """
    if not before:
        return ""
    last, activity = before[-1], step.activity
    databases = sorted({_SQLITE.sub("", each.path) for each in before if _SQLITE.search(each.path)})
    if databases:
        one = f"{databases[0]} is changed in several transactions that belong together: commit them as one"
        return one if _survives_elsewhere(step) else ""
    if _is_written_after_rename(activity) and last.path in loaded:
        return f"{last.path} is renamed before it is closed: write and close the new file first, then rename it"
    folder = _unfinished_folder(before, activity)
    if folder and any(path.startswith(f"{folder}/") for path in loaded):
        return f"{folder} is filled in place: fill a folder beside it, and rename that when it is complete"
    if last.call in (FileCall.OPEN, FileCall.WRITE) and last.path in loaded and _is_final_name(last.path, activity):
        return f"{last.path} is written in place: write a new file beside it, and rename it when it is complete"
    together = _together(last, activity)
    there = placed & set(together)  # all but those of a first save that was cut
    if there and {PurePath(path).name for path in loaded} >= there:
        return f"{' and '.join(together)} belong together, and are replaced one after the other: save both in one file"
    return ""


def _is_final_name(path: str, activity: FileActivity) -> bool:
    """Whether a file keeps this name: it is neither renamed later nor named as a temporary file."""
    renamed = _renamed_sources(activity)
    return not path.endswith(_TEMPORARY) and not any(_is_at_or_below(kind_of(path), source) for source in renamed)


def _is_at_or_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


def _renamed_sources(activity: FileActivity) -> set[str]:
    """The kinds of files that the undisturbed step writes and then renames."""
    return {kind_of(each.source) for save in activity.saves for each in save.operations if each.source}


def _unfinished_folder(before: Sequence[FileOperation], activity: FileActivity) -> str:
    """The folder that the last operation was filling, if each save makes a new folder and does not rename it.

    The undisturbed step shows whether each save does so, because an attempt may have been interrupted in its first save.
    """
    undisturbed = [each for save in activity.saves for each in save.operations]
    made = next((each.path for each in reversed(before) if each.call is FileCall.MAKE_FOLDER), "")
    if (
        not made
        or not _is_at_or_below(before[-1].path, made)
        or any(each.call is FileCall.RENAME for each in undisturbed)
    ):
        return ""
    beside = [
        each.path
        for each in undisturbed
        if each.call is FileCall.MAKE_FOLDER and PurePath(each.path).parent == PurePath(made).parent
    ]
    return made if len(beside) > 1 or before[-1].call is FileCall.MAKE_FOLDER else ""


def _is_written_after_rename(activity: FileActivity) -> bool:
    for save in activity.saves:
        put_in_place: set[str] = set()
        for operation in save.operations:
            if operation.call is FileCall.OPEN:
                put_in_place.discard(operation.path)
            elif operation.call is FileCall.RENAME:
                put_in_place.add(operation.path)
            elif operation.call is FileCall.WRITE and operation.path in put_in_place:
                return True
    return False


def _together(last: FileOperation, activity: FileActivity) -> list[str]:
    """The files that one save replaces, if the last operation is on one of several and is not the last of the save.

    Files in a folder that the save made do not count: they replace no other file.
    """
    for save in activity.saves:
        made = {each.path for each in save.operations if each.call is FileCall.MAKE_FOLDER}
        placed = [path for path in _placed(save) if str(PurePath(path).parent) not in made]
        names = sorted({PurePath(path).name for path in placed})
        is_last = last.call is FileCall.RENAME and last.path == placed[-1] if placed else False
        if len(names) > 1 and not is_last and last.path in {each.path for each in save.operations}:
            return names
    return []


def _placed(save: Save) -> list[str]:
    return [each.path for each in save.operations if each.call is FileCall.RENAME]


# -- the step as a whole


def _why_it_starts_over(step: StepReport) -> str:
    saves_below = next(iter(folders_of_saves(step)), "")
    if saves_below and not step.activity.count:
        return (
            f"{saves_below} goes with the attempt: save below SPOTWRIGHT_CHECKPOINT, "
            "or name the mount path of a volume with --keep"
        )
    if any(_has_saved_before(outcome) for outcome in step.outcomes):
        return _NOT_LOADED if step.activity.count > 1 else ""
    has_none = step.task == COMMAND_TASK and OnSigterm.ENDS in step.answers_to_sigterm
    return _answer_to_sigterm(step) or (_SAVES_AT_END if step.activity.count else _NO_HANDLER if has_none else "")


def _has_saved_before(outcome: PointOutcome) -> bool:
    """Whether an attempt that was interrupted in the middle had saved, or could not be traced."""
    trial = outcome.trial
    if trial is None or outcome.point.kind not in (InjectionKind.MIDDLE, InjectionKind.LIVES):
        return False
    return bool(trial.tracing_failure) or any(trial.save_counts[:1])


def folders_of_saves(step: StepReport) -> Iterator[str]:
    """The folders of files that look like saves and are lost with an attempt."""
    yield from (f"what it wrote to {path}" for path in step.stray_files)
    outputs = "its current folder" if step.task == COMMAND_TASK else "the folder of its outputs"
    names = {SCRATCH: "its current folder", OUTPUTS: outputs}
    for area, name in names.items():
        if area in step.rewritten:
            yield f"what it saves in {name}"


def untold_sigterm(step: StepReport) -> str:
    """Name the command that does not pass SIGTERM on, and the program that needs it; empty if all commands pass it on."""
    if not step.untold:
        return ""
    launchers, programs = (" and ".join(dict.fromkeys(names)) for names in zip(*map(_names, step.untold), strict=True))
    return (
        f"SIGTERM reaches the first process of a container alone; {launchers} does not pass it on, and {programs}, which would "
        "handle it, never gets it: start it with exec, or let its launcher pass the signal on"
    )


def _names(untold: Untold) -> tuple[str, str]:
    return untold.launcher, untold.program


def _answer_to_sigterm(step: StepReport) -> str:
    """What is wrong with the step's answer to SIGTERM, if a program never received it or outlived its notice."""
    if step.untold:
        return untold_sigterm(step)
    answers = set(step.answers_to_sigterm)
    if OnSigterm.IGNORES in answers:
        return _IGNORES_SIGTERM
    if OnSigterm.BLOCKS in answers:
        return _BLOCKS_SIGTERM
    return _OUTLIVES_NOTICE if OnSigterm.HANDLES in answers else ""
