"""Where a step is interrupted: drawn from a seed and from what the step did undisturbed. Pure.

A *point* is one rehearsal of the step with one or more *blows*: the first blow ends the first attempt, the second the second,
and what follows the last is left alone. A blow comes at a share of the work, or at one operation on the step's files, counted
from the attempt's beginning. So the same seed gives the same points, and the same code meets them at the same place.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from spotwright.local.syscalls import Call
from spotwright.rehearsal.tracer import Op

__all__ = ["OUTPUTS", "SAVES", "At", "Blow", "Kind", "Learnt", "Point", "Save", "Share", "draw", "learn"]

SAVES, OUTPUTS = "saves", "outputs"
"""Names of watched places: where the step keeps what must survive, and where its results go."""

_LONGEST_PAUSE = 0.02  # seconds between two operations of one save
_MOST_IN_A_SAVE = 5  # points inside a save


class Kind(StrEnum):
    """The part of the step's life in which a blow comes."""

    START = "start"
    MIDDLE = "middle"
    SAVE = "save"
    OUTPUTS = "outputs"
    END = "end"
    SEVERAL = "several"  # more than one blow


@dataclass(frozen=True, slots=True)
class Share:
    """At this share of the work: of what the attempt still had to do where it reports progress, else of the usual time."""

    share: float
    by_time: bool = False  # whatever it reports


@dataclass(frozen=True, slots=True)
class At:
    """Right after operation ``number`` (from 0) on a place; ``place`` empty: just before the process ends."""

    place: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Blow:
    """One interruption. ``in_save``: the node goes inside the first save after its notice, if there is one."""

    kind: Kind
    when: Share | At
    notice: bool = False
    in_save: bool = False
    where: str = ""  # for people


@dataclass(frozen=True, slots=True)
class Point:
    """One rehearsal with its blows, by a name that says which."""

    name: str
    kind: Kind
    blows: tuple[Blow, ...]


@dataclass(frozen=True, slots=True)
class Save:
    """Operations that belong together: ``first`` is the number of the first one among all on the place."""

    first: int
    ops: tuple[Op, ...]

    @property
    def seconds(self) -> float:
        """From its first operation to its last."""
        return self.ops[-1].at - self.ops[0].at


@dataclass(frozen=True, slots=True)
class Learnt:
    """What the step did to its files while nobody disturbed it; outputs with their numbers on the place."""

    saves: tuple[Save, ...] = ()
    outputs: tuple[tuple[int, Op], ...] = ()
    looked: bool = True  # False: nobody could look at all
    traced: bool = True  # False: from outside only, and a small save may be over before anybody hears of it

    @property
    def longest_save(self) -> float | None:
        """Seconds; ``None`` where it saved nothing."""
        return max((save.seconds for save in self.saves), default=None)


def learn(ops: Sequence[Op], *, traced: bool = True) -> Learnt:
    """Sort what was seen into saves and outputs.

    A save ends where a file of the same name (numbers apart) is opened again, or where nothing happens for a while, unless what
    comes then can only belong to it: a busy machine may pause anywhere.
    """
    saves: list[Save] = []
    current: list[Op] = []
    opened: set[str] = set()
    on_saves = [op for op in ops if op.place == SAVES]
    for number, op in enumerate(on_saves):
        name = re.sub(r"\d+", "#", op.path)
        again = op.call is Call.OPEN and name in opened
        if current and (again or (op.at - current[-1].at > _LONGEST_PAUSE and not _goes_on(current[-1], op))):
            saves.append(Save(number - len(current), tuple(current)))
            current, opened = [], set()
        current.append(op)
        if op.call is Call.OPEN:
            opened.add(name)
    if current:
        saves.append(Save(len(on_saves) - len(current), tuple(current)))
    outputs = enumerate(op for op in ops if op.place == OUTPUTS)
    return Learnt(
        tuple(saves), tuple((number, op) for number, op in outputs if op.call is not Call.MAKE), traced=traced
    )


def _goes_on(last: Op, op: Op) -> bool:
    """Whether an operation belongs to the save that ``last`` is of, however long it took to come."""
    is_first_write = last.call is Call.OPEN and op.call is Call.WRITE and op.path == last.path
    return op.call is Call.RENAME or is_first_write


def draw(seed: int, task: str, learnt: Learnt, interruptions: int) -> list[Point]:
    """The points of a task: every part of its life with and without notice, and one point with several interruptions."""
    chance = random.Random(f"{seed}/{task}")  # noqa: S311 (nothing secret hangs on it)
    points = []
    for kind in (Kind.START, Kind.MIDDLE, Kind.SAVE, Kind.OUTPUTS, Kind.END):
        blows = list(_BLOWS[kind](chance, learnt))
        points += [Point(_name(blow, number, blows), kind, (blow,)) for number, blow in enumerate(blows)]
    if interruptions > 1:
        points.append(Point(f"{interruptions} in a row", Kind.SEVERAL, tuple(_several(chance, learnt, interruptions))))
    return points


def _name(blow: Blow, number: int, blows: Sequence[Blow]) -> str:
    alike = [index for index, other in enumerate(blows) if other.notice == blow.notice]
    which = f" {alike.index(number) + 1}" if len(alike) > 1 else ""
    return f"{blow.kind}{which}, {'with notice' if blow.notice else 'no notice'}"


def _start(chance: random.Random, _learnt: Learnt) -> Iterator[Blow]:
    for notice in (False, True):
        yield Blow(Kind.START, Share(chance.uniform(0.0, 0.08), by_time=True), notice)


def _middle(chance: random.Random, _learnt: Learnt) -> Iterator[Blow]:
    for notice in (False, True):
        yield Blow(Kind.MIDDLE, Share(chance.uniform(0.35, 0.75)), notice)


def _save(chance: random.Random, learnt: Learnt) -> Iterator[Blow]:
    """A kill after each step of a save, each in another save, and inside the save that a notice causes."""
    most = max((len(save.ops) for save in learnt.saves), default=0)
    steps = list(range(most))
    if most > _MOST_IN_A_SAVE:
        steps = sorted({0, 1, most - 1, *chance.sample(range(2, most - 1), _MOST_IN_A_SAVE - 3)})
    for step in steps:
        save = chance.choice([save for save in learnt.saves if len(save.ops) > step])
        yield Blow(Kind.SAVE, At(SAVES, save.first + step), where=_after(save.ops[step]))
    if learnt.looked:
        share = Share(chance.uniform(0.2, 0.7))
        yield Blow(Kind.SAVE, share, notice=True, in_save=True, where="in the save after the notice")


def _outputs(chance: random.Random, learnt: Learnt) -> Iterator[Blow]:
    """Some outputs are there, not all; where there is one only, half of it."""
    ops = learnt.outputs
    between = [this for this, following in pairwise(ops) if this[1].path != following[1].path]
    for notice in (False, True) if len(ops) > 1 else ():
        number, op = chance.choice(between or ops[:-1])
        yield Blow(Kind.OUTPUTS, At(OUTPUTS, number), notice, where=_after(op))


def _end(chance: random.Random, learnt: Learnt) -> Iterator[Blow]:
    """All outputs are there, and the process has not ended."""
    for notice in (False, True):
        if not learnt.looked:
            yield Blow(Kind.END, Share(chance.uniform(0.9, 0.97), by_time=True), notice)
        elif learnt.outputs and (chance.random() < 0.5 or not learnt.traced):
            yield Blow(Kind.END, At(OUTPUTS, learnt.outputs[-1][0]), notice, where="after its last output")
        elif learnt.traced:
            yield Blow(Kind.END, At("", 0), notice, where="just before it ends")


def _several(chance: random.Random, learnt: Learnt, count: int) -> Iterator[Blow]:
    """One after the other, so early in each attempt that a step that goes on still has work for the next one."""
    count_of_saves = len(learnt.saves)
    for _ in range(count):
        notice = chance.random() < 0.5
        if learnt.saves and chance.random() < 0.5:
            save = learnt.saves[chance.randrange(max(1, count_of_saves // 3))]
            number = chance.randrange(len(save.ops))
            yield Blow(Kind.SAVE, At(SAVES, save.first + number), notice, where=_after(save.ops[number]))
        else:
            yield Blow(Kind.MIDDLE, Share(chance.uniform(0.15, 0.35)), notice)


_BLOWS = {Kind.START: _start, Kind.MIDDLE: _middle, Kind.SAVE: _save, Kind.OUTPUTS: _outputs, Kind.END: _end}


def _after(op: Op) -> str:
    done = {
        Call.OPEN: "opened", Call.WRITE: "written to", Call.RENAME: "put in place", Call.REMOVE: "removed", Call.MAKE: "made",
    }  # fmt: skip
    return f"after {op.path} was {done.get(op.call, op.call.value)}"
