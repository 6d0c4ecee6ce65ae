"""The content of a SpotCounter: the assigned attempt numbers, rungs of gangs, and the decision about each pod.

A workload has several of these objects, each below the size that etcd stores well. One of :data:`_SHARDS` has the counters of a
task, by a hash of the task's path: so the pods of a task are numbered in one place, including all slots of a parallel Job. It
also has the records of the first pods; later ones are on separate pages, which are reused when all are full. The rungs of gangs
are in another object. A pod that is its own run has no workload before its creation: such pods of a namespace share objects.

A token names the object with its record, so the decision about a pod can be read with one request.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.admit_pods import ADMISSION_ANNOTATION
from spotwright.errors import StateError
from spotwright.kube.object_fields import metadata

__all__ = [
    "API_VERSION",
    "KIND",
    "LONGEST_TOKEN",
    "MOST_BYTES",
    "WORKLOAD_LABEL",
    "Content",
    "Place",
    "Token",
    "admission_in",
    "agree_in",
    "agreed_in",
    "bind_in",
    "counters_of",
    "gangs_of",
    "keep_in",
    "key_of_path",
    "note_seen_in",
    "token_of",
]

API_VERSION, KIND = "spotwright.dev/v1alpha1", "SpotCounter"

WORKLOAD_LABEL = "spotwright.dev/workload"
"""The label with the UID of the workload; empty on the objects of pods that are their own runs."""

MOST_BYTES = 60 * 1024
"""The size limit of an object's content; with its metadata it stays below 64 KiB."""

LONGEST_TOKEN = 100
"""Characters of a token: the UID of a review, and the name of an object."""

_SHARDS = 16
_PAGE = 150  # records of an object, of about 120 bytes each
_PAGES = 128  # objects with records of one shard, so 19,200 pods; then the oldest records are replaced
_MOST_WAITING = 500  # admitted unseen pods of a shard: replicas see them within a second
_MOST_GANGS = 100  # agreements of a workload: old restarts do not recur
_LONGEST_KEY = 40  # characters of a task's path; a hash replaces the rest of a longer one
_LONGEST_REVIEW = 40  # characters of the UID of a review, which has 36
_ALONE = "pods"
_UID = re.compile("[a-z0-9](?:[-a-z0-9]{0,60}[a-z0-9])?")
_PART = re.compile("[0-9a-f](?:-[1-9][0-9]{0,2})?")


class Place(NamedTuple):
    """One object: its namespace, the UID of its workload (empty: pods that are their own runs), and its part."""

    namespace: str
    workload: str
    part: str

    @property
    def name(self) -> str:
        """The object's name. Raises :class:`StateError` for an invalid UID."""
        if self.workload and not _UID.fullmatch(self.workload):
            raise StateError(f"{self.workload[:80]!r}: not a workload's UID; its pods are not numbered")
        return f"{self.workload or _ALONE}.{self.part}"

    @property
    def counters(self) -> Place:
        """The object with the counters of the pods whose records are here."""
        return self._replace(part=self.part.partition("-")[0])


def counters_of(namespace: str, workload: str, path: str) -> Place:
    """The object with the counters of a task, by the path of the task."""
    if not workload:
        return Place(namespace, "", "0")
    shard = hashlib.blake2b(path.encode(), digest_size=2).digest()[0] % _SHARDS
    return Place(namespace, workload, f"{shard:x}")


def gangs_of(namespace: str, workload: str) -> Place:
    """The object with the rungs of a workload's gangs."""
    return Place(namespace, workload, "gangs")


class Token(NamedTuple):
    """The text on a pod: the UID of the review that pinned it to a rung, and the object with its record."""

    review: str
    place: Place

    def __str__(self) -> str:
        return f"{self.review}/{self.place.name}"

    @classmethod
    def parse(cls, text: str, namespace: str) -> Token | None:
        """The token in an untrusted text; None if it is not ours."""
        review, slash, name = text.rpartition("/")
        workload, _, part = name.partition(".")
        is_ours = slash and 0 < len(review) <= _LONGEST_REVIEW and _UID.fullmatch(workload) and _PART.fullmatch(part)
        if not is_ours or len(text) > LONGEST_TOKEN:
            return None
        return cls(review, Place(namespace, "" if workload == _ALONE else workload, part))


def token_of(pod: Mapping[str, Any]) -> Token | None:
    """The token of the review that pinned a pod to a rung, or None."""
    meta = metadata(pod)
    return Token.parse(
        str((meta.get("annotations") or {}).get(ADMISSION_ANNOTATION, "")), str(meta.get("namespace", ""))
    )


class Waiting(msgspec.Struct, array_like=True):
    """A number whose pod is not seen yet. ``at``: Unix seconds by the API server's clock; ``sheet`` counts pages."""

    slot: int
    number: int
    at: float
    sheet: int = 0


class Task(msgspec.Struct, omit_defaults=True):
    """The numbers of one task. ``seen``: for each slot the highest number with a pod now or earlier, as :func:`_packed`."""

    seen: str = ""
    waiting: dict[str, Waiting] = msgspec.field(default_factory=dict)  # by the UID of the review

    def highest(self) -> list[int]:
        """The highest assigned number by slot; slots without one may be missing at the end."""
        found = [*_unpacked(self.seen)]
        for one in self.waiting.values():
            _raise_to(found, one.slot, one.number)
        return found

    def seen_of(self, slot: int) -> int:
        """The highest number of a slot whose pod was seen; 0: none."""
        found = _unpacked(self.seen)
        return found[slot] if slot < len(found) else 0

    def note_seen(self, numbers: Iterable[tuple[int, int]]) -> None:
        """Note that the pods with these slots and numbers exist."""
        found = [*_unpacked(self.seen)]
        for slot, number in numbers:
            _raise_to(found, slot, number)
        self.seen = _packed(found)


class Decided(msgspec.Struct, omit_defaults=True, rename="camel", frozen=True):
    """The decisions about pods; ``pinned`` is JSON."""

    pools: tuple[str, ...] = ()
    is_open: bool = False
    is_refused: bool = False
    why: str = ""
    pinned: str = ""


class Record(msgspec.Struct, omit_defaults=True):
    """The decision about one pod: a key of :attr:`Content.decided`, and the pod's UID once it was seen.

    ``task`` is the key of its task's path (:func:`key_of_path`); empty for a pod that is its own run.
    """

    number: int
    decided: str
    pod: str = ""
    task: str = ""
    slot: int = 0


class Agreement(msgspec.Struct):
    """The pools agreed by the pods of a gang's restart with the same rungs."""

    gang: str
    rungs: str
    pools: tuple[str, ...]


class Content(msgspec.Struct, omit_defaults=True):
    """The ``spec`` of an object. ``given`` counts the numbers of its shard, ``sheet`` is its records' sheet."""

    given: int = 0
    tasks: dict[str, Task] = msgspec.field(default_factory=dict)
    sheet: int = 0
    records: dict[str, Record] = msgspec.field(default_factory=dict)  # by the UID of the review
    decided: dict[str, Decided] = msgspec.field(default_factory=dict)
    gangs: list[Agreement] = msgspec.field(default_factory=list)

    def task(self, path: str) -> Task:
        """The task with this path; a new one is added."""
        return self.tasks.setdefault(key_of_path(path), Task())

    def task_or_none(self, path: str) -> Task | None:
        """The task with this path, if it has numbers."""
        return self.tasks.get(key_of_path(path))

    def waiting(self, review: str) -> tuple[Task, Waiting] | None:
        """The number of a review whose pod is not seen yet."""
        for task in self.tasks.values():
            if (found := task.waiting.get(review)) is not None:
                return task, found
        return None

    def drop_unmade(self, before: float) -> None:
        """Drop the numbers of pods that should have come before this time."""
        for task in self.tasks.values():
            for review in [review for review, one in task.waiting.items() if one.at < before]:
                del task.waiting[review]

    @property
    def next_sheet(self) -> int:
        """The sheet for the record of the next number."""
        return self.given // _PAGE

    def give(self, place: Place, review: str, path: str, slot: int, number: int, now: float) -> tuple[Token, int]:
        """Assign a number to a review; returns its token, and the sheet for its record. Raises :class:`StateError`."""
        if len(review) > _LONGEST_REVIEW:
            raise StateError(f"{review[:80]!r}: not a review's UID")
        if sum(len(task.waiting) for task in self.tasks.values()) >= _MOST_WAITING:
            raise StateError(f"{place.namespace}/{place.name}: {_MOST_WAITING} admitted pods do not exist yet")
        sheet = self.next_sheet
        self.given += 1
        self.task(path).waiting[review] = Waiting(slot, number, round(now, 3), sheet)
        return _token(place, review, sheet), sheet

    def given_before(self, place: Place, review: str, path: str) -> tuple[Waiting, Token] | None:
        """The number already assigned to a review."""
        task = self.task_or_none(path)
        one = None if task is None else task.waiting.get(review)
        return None if one is None else (one, _token(place, review, one.sheet))


def _token(place: Place, review: str, sheet: int) -> Token:
    page = sheet % _PAGES
    return Token(review, place._replace(part=f"{place.part}-{page}") if page else place)


def note_seen_in(content: Content, reviews: Collection[str]) -> None:
    """Note that the pods of these reviews exist."""
    for task in content.tasks.values():
        if made := [task.waiting.pop(review) for review in task.waiting.keys() & reviews]:
            task.note_seen([(one.slot, one.number) for one in made])


def keep_in(
    content: Content, place: Place, review: str, sheet: int, admission: Admission, path: str = "", slot: int = 0
) -> None:
    """Store the decision about a pod that belongs to the task with this path.

    Records of an earlier sheet on its page are removed.
    """
    if sheet < content.sheet:
        raise StateError(f"{place.namespace}/{place.name}: already has later records")
    if sheet > content.sheet:
        content.sheet, content.records, content.decided = sheet, {}, {}
    pinned = json.dumps(admission.pinned) if any(admission.pinned) else ""
    decided = Decided(admission.pools, admission.is_open, admission.is_refused, admission.why, pinned)
    key = hashlib.blake2b(msgspec.json.encode(decided), digest_size=6).hexdigest()
    content.decided[key] = decided
    task = key_of_path(path) if path else ""
    content.records[review] = Record(admission.number, key, task=task, slot=slot)


def bind_in(content: Content, pods: Mapping[str, str]) -> None:
    """Record the UIDs of these reviews' pods: a token counts for the first pod seen with it."""
    for review, pod in pods.items():
        if (record := content.records.get(review)) is not None and not record.pod:
            record.pod = pod


def admission_in(content: Content, review: str, pod: str) -> Admission | None:
    """This review's decision about a pod; None: there is no record, or it is another pod's."""
    record = content.records.get(review)
    decided = None if record is None else content.decided.get(record.decided)
    if record is None or decided is None or record.pod not in ("", pod):
        return None
    pinned = tuple(map(tuple, json.loads(decided.pinned))) if decided.pinned else ()
    return Admission(decided.pools, decided.is_open, decided.is_refused, decided.why, record.number, pinned)


def agree_in(content: Content, gang: str, rungs: str, pools: tuple[str, ...]) -> tuple[str, ...]:
    """The pools agreed by the pods of a gang with these rungs; ``pools`` if this is the first to ask."""
    found = agreed_in(content, gang).get(rungs)
    if found is None:
        content.gangs = [*content.gangs, Agreement(gang, rungs, pools)][-_MOST_GANGS:]
    return pools if found is None else found


def agreed_in(content: Content, gang: str) -> Mapping[str, tuple[str, ...]]:
    """The pools agreed by the pods of a gang's restart, by their rungs; empty if none has asked."""
    return {one.rungs: one.pools for one in content.gangs if one.gang == gang}


def key_of_path(path: str) -> str:
    """The path of a task as a key: Argo joins the names of all steps above one."""
    if len(path) <= _LONGEST_KEY:
        return path
    return f"{path[: _LONGEST_KEY // 2]}~{hashlib.blake2b(path.encode(), digest_size=8).hexdigest()}"


def _raise_to(numbers: list[int], slot: int, number: int) -> None:
    numbers += [0] * (slot + 1 - len(numbers))
    numbers[slot] = max(numbers[slot], number)


def _packed(numbers: Sequence[int]) -> str:
    """Numbers as text, with runs of equal ones: ``1x3,2`` is 1, 1, 1, 2. Ten thousand slots differ little."""
    runs = ((number, len([*equal])) for number, equal in groupby(numbers))
    return ",".join(f"{number}x{times}" if times > 1 else str(number) for number, times in runs)


_RUN = re.compile("([0-9]{1,9})(?:x([0-9]{1,9}))?")
_MOST_SLOTS = 200_000  # of one task; a forged object must not fill the memory


@lru_cache(16)
def _unpacked(text: str) -> Sequence[int]:
    """The numbers in a text of :func:`_packed`. Raises :class:`StateError` for any other text."""
    found: list[int] = []
    for run in text.split(",") if text else ():
        match = _RUN.fullmatch(run)
        number, times = match.groups() if match else ("", "")
        if not match or len(found) + int(times or 1) > _MOST_SLOTS:
            raise StateError(f"{text[:80]!r}: not a list of attempt numbers; delete the SpotCounter that has it")
        found += [int(number)] * int(times or 1)
    return found
