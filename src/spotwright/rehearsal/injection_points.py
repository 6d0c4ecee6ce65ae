"""Choose where a step is interrupted, from a seed and from the file operations of the undisturbed step. Pure.

An *injection point* is one rehearsal of the step with one or more *injections*: the first injection ends the first attempt, the
second one the second attempt; the attempt after the last injection is left alone. An injection is triggered by a share of the
work, or by one operation on the step's files, counted from the attempt's beginning. So the same seed gives the same points, and
the same code meets them at the same place.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal.attempt_trace import FileOperation

__all__ = [
    "OUTPUTS",
    "SAVES",
    "SCRATCH",
    "UNREAD",
    "AtOperation",
    "AtTime",
    "AtWork",
    "FileActivity",
    "Injection",
    "InjectionKind",
    "InjectionPoint",
    "Save",
    "draw_points",
    "happened",
    "is_save",
    "lives_point",
    "longer_lives",
    "rewritten_areas",
    "summarize_activity",
]


SAVES, OUTPUTS, SCRATCH = "saves", "outputs", "scratch"
"""Names of watched areas: the step's checkpoints and other persistent data, its results, and a task's current folder, which is
lost with its attempt."""

UNREAD = "unread"
"""The area of files beside the saves that are written once or only grow, and are never read. Known only after the trials."""

_LONGEST_PAUSE = 0.02  # seconds between two operations of one save
_MAX_POINTS_IN_SAVE = 5
_MAX_COMPLETING = 4
_MAX_TAKING = 2
_COMPLETING = (FileCall.SYNC, FileCall.RENAME, FileCall.REMOVE)  # after these a part of a save is complete
_POINTS_IN_HIDDEN_SAVES = 4


class InjectionKind(StrEnum):
    """The phase of the step at which an injection happens."""

    START = "start"
    MIDDLE = "middle"
    SAVE = "save"
    OUTPUTS = "outputs"
    END = "end"
    RANK = "rank"  # the nodes of some ranks, or their launcher alone
    LIVES = "lives"  # every attempt, each after a share of the work: does the step ever end?
    SEVERAL = "several"  # more than one injection


@dataclass(frozen=True, slots=True)
class AtWork:
    """Trigger once an attempt has done this share of the undisturbed work, counted from where the attempt's own work began.

    ``of_notice``: as late as this share of the notice suffices for the rest of the work.
    """

    share: float
    of_notice: bool = False


@dataclass(frozen=True, slots=True)
class AtTime:
    """Trigger after this share of the undisturbed step's time, even if it is not at work."""

    share: float


@dataclass(frozen=True, slots=True)
class AtOperation:
    """Trigger right after operation ``number`` (from 0) in an area; an empty ``area`` is the moment before the process ends.

    With a ``call``, only its operations are counted.
    """

    area: str
    number: int = 0
    call: FileCall | None = None


@dataclass(frozen=True, slots=True)
class Injection:
    """One interruption. ``in_save``: the node is reclaimed inside the first save after its notice, if there is one.

    ``ranks`` are the ranks whose nodes are reclaimed; empty: the whole step. ``of_launcher``: only the launcher of the ranks is
    killed.
    """

    kind: InjectionKind
    trigger: AtWork | AtTime | AtOperation
    notice: bool = False
    in_save: bool = False
    description: str = ""
    ranks: tuple[int, ...] = ()
    of_launcher: bool = False


@dataclass(frozen=True, slots=True)
class InjectionPoint:
    """One rehearsal of the step with its injections; the name is unique among the points of a step."""

    name: str
    kind: InjectionKind
    injections: tuple[Injection, ...]

    def earlier(self) -> InjectionPoint | None:
        """The same point at half its share of the work; ``None`` for points that are not in the middle of the work."""
        trigger = self.injections[0].trigger
        kinds = (InjectionKind.MIDDLE, InjectionKind.RANK, InjectionKind.LIVES)
        if self.kind not in kinds or isinstance(trigger, AtOperation):
            return None
        sooner = replace(trigger, share=trigger.share / 2)
        return replace(self, injections=tuple(replace(each, trigger=sooner) for each in self.injections))


@dataclass(frozen=True, slots=True)
class Save:
    """Operations that form one save; ``first`` is the number of the first one among all operations on saves."""

    first: int
    operations: tuple[FileOperation, ...]

    @property
    def seconds(self) -> float:
        """From the first operation to the last."""
        return self.operations[-1].at - self.operations[0].at


@dataclass(frozen=True, slots=True)
class FileActivity:
    """The file operations of the undisturbed step: its saves, and operations on outputs with their numbers in that area."""

    saves: tuple[Save, ...] = ()
    outputs: tuple[tuple[int, FileOperation], ...] = ()
    mapped: tuple[str, ...] = ()  # saves that are changed through memory maps, without system calls
    tracing_failure: str = ""  # why the step could not be traced; then its files are unknown
    unread: tuple[str, ...] = ()  # files beside the saves that are written once or only grow, and are never read

    @property
    def count(self) -> int:
        """The number of saves; making a folder alone does not count."""
        return sum(any(map(is_save, save.operations)) for save in self.saves)

    @property
    def longest_save(self) -> float | None:
        """Seconds; ``None`` if the step did not save."""
        return max((save.seconds for save in self.saves), default=None)

    @property
    def is_timed(self) -> bool:
        """Whether the longest save was seen from its first operation to its last; a single operation has no duration."""
        return any(len(save.operations) > 1 for save in self.saves)


def summarize_activity(operations: Sequence[FileOperation]) -> FileActivity:
    """Group the operations of an undisturbed attempt into saves and outputs.

    A save ends when a file of the same name is opened again, or after a pause. Digits in names are ignored, except in names
    that occur in several folders: the shards in the folder of one save are files of that save. An operation that can only
    belong to the save counts even after a pause, because a busy machine may pause anywhere.
    """
    saves: list[Save] = []
    current: list[FileOperation] = []
    opened: set[str] = set()
    on_saves = [operation for operation in operations if operation.area == SAVES]
    in_each_folder = _names_in_several_folders(on_saves)
    for number, operation in enumerate(on_saves):
        folder, _, last = operation.path.rpartition("/")
        name = re.sub(r"\d+", "#", folder if last in in_each_folder else operation.path)
        name = f"{name}/{last}" if last in in_each_folder else name
        reopened = operation.call is FileCall.OPEN and name in opened
        if current and (reopened or _pauses_between(current[-1], operation)):
            saves.append(Save(number - len(current), tuple(current)))
            current, opened = [], set()
        current.append(operation)
        if operation.call is FileCall.OPEN:
            opened.add(name)
    if current:
        saves.append(Save(len(on_saves) - len(current), tuple(current)))
    on_outputs = enumerate(operation for operation in operations if operation.area == OUTPUTS)
    outputs = tuple((number, each) for number, each in on_outputs if each.call is not FileCall.MAKE_FOLDER)
    return FileActivity(tuple(saves), outputs)


def _names_in_several_folders(operations: Sequence[FileOperation]) -> frozenset[str]:
    folders: dict[str, set[str]] = {}
    for operation in operations:
        folder, _, name = operation.path.rpartition("/")
        if operation.call is FileCall.OPEN and folder:
            folders.setdefault(name, set()).add(folder)
    return frozenset(name for name, several in folders.items() if len(several) > 1)


def is_save(operation: FileOperation) -> bool:
    """Whether an operation saves something; a new folder is still empty."""
    return operation.area == SAVES and operation.call is not FileCall.MAKE_FOLDER


def rewritten_areas(operations: Sequence[FileOperation]) -> tuple[str, ...]:
    """The areas lost with an attempt in which a file is opened again or replaced, as a save is and a result is not."""
    areas = []
    for area in (SCRATCH, OUTPUTS):
        names = [
            each.path for each in operations if each.area == area and each.call in (FileCall.OPEN, FileCall.RENAME)
        ]
        if len(set(names)) < len(names):
            areas.append(area)
    return tuple(areas)


def _pauses_between(last: FileOperation, operation: FileOperation) -> bool:
    """Whether a pause separates an operation from the save of ``last``; a rename, a sync or a first write belongs to it."""
    is_first_write = last.call is FileCall.OPEN and operation.call is FileCall.WRITE and operation.path == last.path
    continues_save = operation.call in (FileCall.RENAME, FileCall.SYNC) or is_first_write
    return operation.at - last.at > _LONGEST_PAUSE and not continues_save


def draw_points(
    seed: int, task: str, activity: FileActivity, interruptions: int, ranks: int = 0
) -> list[InjectionPoint]:
    """The injection points of a task: every phase with and without notice, then one point with several interruptions.

    With two or more ``ranks``, points follow for the nodes of single ranks, then of all ranks, and for their launcher.
    """
    rng = random.Random(f"{seed}/{task}")  # noqa: S311 (not for cryptography)
    points = []
    for kind, injections_of in _INJECTIONS.items():
        injections = list(injections_of(rng, activity))
        points += [
            InjectionPoint(_point_name(number, injections), kind, (injection,))
            for number, injection in enumerate(injections)
        ]
    points += [lives_point(_SHORT_LIFE, notice=notice) for notice in (False, True)]
    if interruptions > 1:
        series = tuple(_series(rng, activity, interruptions))
        points.append(InjectionPoint(f"{interruptions} in a row", InjectionKind.SEVERAL, series))
    return [*points, *_of_ranks(random.Random(f"{seed}/{task}/ranks"), activity, ranks)]  # noqa: S311 (not for cryptography)


_SHORT_LIFE, _HALF, _LONG_LIFE = 1 / 3, 1 / 2, 3 / 5
_LIVES = {
    _SHORT_LIFE: ("a third", 5),
    _HALF: ("half", 4),
    _LONG_LIFE: ("three fifths", 4),  # with a notice after it, still not the whole
}
"""The length of each life as a share of the work: its words, and the number of interrupted attempts.

A step that keeps everything in its saves ends within the lives that the share needs, plus one, plus one for repeated work. The
longest lives are for a step that saves only in the middle of its work, so that shorter ones contain no save. A step that keeps
no work even then starts over on nodes with such lives, whatever it saves later.
"""


def lives_point(share: float, *, notice: bool) -> InjectionPoint:
    """Interrupt every attempt but the last one after this share of the work."""
    words, count = _LIVES[share]
    injection = Injection(InjectionKind.LIVES, AtWork(share), notice)
    name = f"lives of {words}, {'with notice' if notice else 'no notice'}"
    return InjectionPoint(name, InjectionKind.LIVES, (injection,) * count)


def longer_lives(point: InjectionPoint, *, kept: bool) -> InjectionPoint | None:
    """Longer lives that show more of a step that did not end within the lives of a point; ``None`` if there are none.

    ``kept``: it kept advancing, but redid much. If it resumes, it ends within lives of a half. A step that kept no work may
    save too rarely for a third; with a notice, it may check the notice too late to save.
    """
    injection = point.injections[0]
    if injection.trigger != AtWork(_SHORT_LIFE):
        return None
    if injection.notice:
        return lives_point(_LONG_LIFE, notice=True)
    return lives_point(_HALF if kept else _LONG_LIFE, notice=False)


def _of_ranks(rng: random.Random, activity: FileActivity, ranks: int) -> Iterator[InjectionPoint]:
    """One rank's node with and without notice and inside a save, then another's, then all; and the launcher alone."""
    if ranks < 2:
        return
    one, another = rng.sample(range(ranks), 2)
    every = tuple(range(ranks))
    for chosen in ((one,), (another,), every):
        who = f"rank {chosen[0]}" if len(chosen) == 1 else f"all {ranks} ranks"
        for notice in (False, True):
            trigger = AtWork(rng.uniform(0.35, 0.75))
            yield _of_some(f"{who}, {'with notice' if notice else 'no notice'}", trigger, chosen, notice=notice)
        if activity.saves and len(chosen) == 1:
            save = rng.choice(_later(activity.saves))
            index = rng.randrange(len(save.operations))
            inside = AtOperation(SAVES, save.first + index)
            yield _of_some(f"{who} in a save", inside, chosen, description=_after(save.operations[index]))
    yield _of_some("the launcher alone", AtWork(rng.uniform(0.35, 0.6)), (), of_launcher=True)


def _of_some(
    name: str, trigger: AtWork | AtOperation, ranks: tuple[int, ...], *, notice: bool = False, description: str = "",
    of_launcher: bool = False,
) -> InjectionPoint:  # fmt: skip
    injection = Injection(
        InjectionKind.RANK, trigger, notice, description=description, ranks=ranks, of_launcher=of_launcher
    )
    return InjectionPoint(name, InjectionKind.RANK, (injection,))


def _point_name(number: int, injections: Sequence[Injection]) -> str:
    """The kind, a number where several of the kind have or lack a notice, and whether there is a notice."""
    injection = injections[number]
    alike = [index for index, other in enumerate(injections) if other.notice == injection.notice]
    suffix = f" {alike.index(number) + 1}" if len(alike) > 1 else ""
    return f"{injection.kind}{suffix}, {'with notice' if injection.notice else 'no notice'}"


def _at_start(rng: random.Random, _activity: FileActivity) -> Iterator[Injection]:
    for notice in (False, True):
        yield Injection(InjectionKind.START, AtTime(rng.uniform(0.0, 0.08)), notice)


def _in_middle(rng: random.Random, activity: FileActivity) -> Iterator[Injection]:
    """Once with and without a notice; more often if the times of the step's saves are unknown."""
    for notice in (False, True):
        yield Injection(InjectionKind.MIDDLE, AtWork(rng.uniform(0.35, 0.75)), notice)
    for _ in range(_POINTS_IN_HIDDEN_SAVES if activity.mapped or activity.tracing_failure else 0):
        yield Injection(InjectionKind.MIDDLE, AtWork(rng.uniform(0.1, 0.9)))


def _in_saves(rng: random.Random, activity: FileActivity) -> Iterator[Injection]:
    """A kill after each operation of a save, each in a newly drawn save; and one inside the save that follows a notice.

    Later saves are preferred, because only they can lose an earlier one.
    """
    most = max((len(save.operations) for save in activity.saves), default=0)
    if most <= _MAX_POINTS_IN_SAVE:
        drawn = [
            (index, rng.choice(_later([each for each in activity.saves if len(each.operations) > index])))
            for index in range(most)
        ]
    else:
        drawn = _in_long_saves(rng, activity.saves, most)
    for index, save in drawn:
        trigger = AtOperation(SAVES, save.first + index)
        yield Injection(InjectionKind.SAVE, trigger, description=_after(save.operations[index]))
    if not activity.tracing_failure:
        share = AtWork(rng.uniform(0.2, 0.7))
        yield Injection(
            InjectionKind.SAVE, share, notice=True, in_save=True, description="in the save after the notice"
        )


def _in_long_saves(rng: random.Random, saves: Sequence[Save], most: int) -> list[tuple[int, Save]]:
    """Moments in saves of many operations: the first two, the last, some that complete a part, and some others.

    The operations that complete a part are consecutive, because a kill between them may split what belongs together: a kill
    after every second rename or database transaction would always find everything whole.
    """
    longest = [save for save in saves if len(save.operations) == most]
    drawn = [(index, rng.choice(_later([each for each in saves if len(each.operations) > index]))) for index in (0, 1)]
    drawn.append((most - 1, rng.choice(_later(longest))))
    save = rng.choice(_later([each for each in saves if len(each.operations) > _MAX_POINTS_IN_SAVE]))
    complete = [index for index, each in enumerate(save.operations) if each.call in _COMPLETING]
    first = rng.randrange(max(1, len(complete) - _MAX_COMPLETING + 1))
    window = complete[first : first + _MAX_COMPLETING]
    earlier = {each.path for other in saves if other.first < save.first for each in other.operations}
    window += [index for index, each in enumerate(save.operations) if each.takes_away and each.path in earlier][
        :_MAX_TAKING
    ]
    others = [index for index in range(2, len(save.operations)) if index not in window]
    chosen = sorted({*window, *rng.sample(others, min(2, len(others)))})
    return [*drawn, *((index, save) for index in chosen if (index, save) not in drawn)]


def _later(saves: Sequence[Save]) -> Sequence[Save]:
    """All saves but the first third."""
    return saves[(len(saves) + 1) // 3 :]


def _between_outputs(rng: random.Random, activity: FileActivity) -> Iterator[Injection]:
    """After one output and before the next; with a single output, after a part of its operations."""
    outputs = activity.outputs
    between = [this for this, following in pairwise(outputs) if this[1].path != following[1].path]
    for notice in (False, True) if len(outputs) > 1 else ():
        number, operation = rng.choice(between or outputs[:-1])
        yield Injection(InjectionKind.OUTPUTS, AtOperation(OUTPUTS, number), notice, description=_after(operation))


def _at_end(rng: random.Random, activity: FileActivity) -> Iterator[Injection]:
    """After the last output and before the process has ended; and with a notice in which the step can finish its work."""
    yield Injection(InjectionKind.END, AtWork(rng.uniform(0.5, 0.7), of_notice=True), notice=True)
    for notice in (False, True):
        if activity.tracing_failure:
            yield Injection(InjectionKind.END, AtTime(rng.uniform(0.9, 0.97)), notice)
        elif activity.outputs and rng.random() < 0.5:
            trigger = AtOperation(OUTPUTS, activity.outputs[-1][0])
            yield Injection(InjectionKind.END, trigger, notice, description="after its last output")
        else:
            yield Injection(InjectionKind.END, AtOperation("", 0), notice, description="just before it ends")


def _series(rng: random.Random, activity: FileActivity, count: int) -> Iterator[Injection]:
    """Consecutive interruptions, early enough in each attempt that a resumed one still has work for the next.

    In total they take no longer than the undisturbed step, even if it starts over each time.
    """
    saves = activity.saves
    for _ in range(count):
        notice = rng.random() < 0.5
        if saves and rng.random() < 0.5:
            save = saves[rng.randrange(max(1, len(saves) // max(3, count)))]
            index = rng.randrange(len(save.operations))
            trigger = AtOperation(SAVES, save.first + index)
            yield Injection(InjectionKind.SAVE, trigger, notice, description=_after(save.operations[index]))
        else:
            yield Injection(InjectionKind.MIDDLE, AtWork(rng.uniform(0.5, 1.0) / count), notice)


_INJECTIONS = {
    InjectionKind.START: _at_start,
    InjectionKind.MIDDLE: _in_middle,
    InjectionKind.SAVE: _in_saves,
    InjectionKind.OUTPUTS: _between_outputs,
    InjectionKind.END: _at_end,
}

_PARTICIPLES = {
    FileCall.OPEN: "opened",
    FileCall.WRITE: "written to",
    FileCall.SYNC: "synced",
    FileCall.RENAME: "put in place",
    FileCall.REMOVE: "removed",
    FileCall.MAKE_FOLDER: "made",
}


def _after(operation: FileOperation) -> str:
    return f"after {happened(operation)}"


def happened(operation: FileOperation) -> str:
    """Describe an operation for messages: ``state.json was opened``."""
    return f"{operation.path} was {_PARTICIPLES.get(operation.call, operation.call.value)}"
