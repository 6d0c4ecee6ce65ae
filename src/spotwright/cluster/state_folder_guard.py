"""Sees to it that all replicas of a controller use one state folder, on one machine, and that one controller serves a namespace.

With a folder for each replica (an ``emptyDir`` in every pod) the journals of a workload would lie in several places. So each
folder has an identity, the Lease says which folder its holder uses, and every replica compares. One that has another folder than
a holder that lives ends, with one message that names both and the fix.

The machine is compared too. The journals are SQLite files with a write-ahead log, whose index lies in memory that only processes
of one machine share (https://sqlite.org/wal.html). So a volume that two machines mount will not do.

A holder that died says nothing: its Lease does not change any more, and another folder may take its place. Where two
controllers serve a namespace, its pods would be recorded twice and moved by both: that is said.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import re
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from spotwright.cluster.admit_objects import admitted_by
from spotwright.cluster.api_client import Api, ApiFailed, EventWriter
from spotwright.cluster.run_store import this_process
from spotwright.errors import InputError, StateError
from spotwright.records.state_folder import StateFolder, write_atomically

__all__ = ["FOLDER_ANNOTATION", "FolderIdentity", "OneFolder", "Rivals"]


FOLDER_ANNOTATION = "spotwright.dev/state-folder"
"""The annotation of the Lease with the state folder of its holder."""

_LOG = logging.getLogger(__name__)
_FILE = "controller/folder-id"  # in the state folder
_SHOWN = 8  # characters of an identity that tell two folders apart for people
_LOOK = 5.0  # seconds between two looks at the Lease
_SOON = 0.5  # seconds, while it is not known yet whether this folder is the one
_EXPIRES = 15.0  # seconds without a change after which nobody holds a Lease
_FIX = (
    "run one replica (replicas: 1, strategy Recreate), or give all of them one state folder on one machine, such as a volume and "
    "a node selector"
)


class FolderIdentity(NamedTuple):
    """A state folder: ``uid`` was written into it once, ``machine`` is the boot of the machine that uses it, ``path`` where."""

    uid: str
    machine: str
    path: str

    @classmethod
    def of(cls, state: StateFolder) -> FolderIdentity:
        """The identity of a state folder as this process uses it; a new folder gets one. Raises :class:`StateError`."""
        file = state.path / _FILE
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with file.with_suffix(".lock").open("w") as lock:  # replicas may begin at once
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not file.exists():
                    write_atomically(file, f"{uuid.uuid4().hex}\n")
                text = file.read_text(encoding="ascii", errors="replace").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StateError(f"{file}: cannot be written and read ({error})") from error
        return cls(text, str(this_process()["boot_id"]), str(state.path.absolute()))

    @classmethod
    def from_text(cls, text: str) -> FolderIdentity | None:
        """The identity in an annotation; None if it tells none."""
        try:
            told = json.loads(text)
            return cls(*(str(told[name]) for name in cls._fields))
        except (ValueError, KeyError, TypeError):
            return None

    @property
    def text(self) -> str:
        """The value of the annotation."""
        return json.dumps(self._asdict(), separators=(",", ":"))

    def is_shared_with(self, other: FolderIdentity) -> bool:
        """Whether two processes use the same files on the same machine."""
        return (self.uid, self.machine) == (other.uid, other.machine)

    def __str__(self) -> str:
        return f"{self.path} (folder {self.uid[:_SHOWN]}, machine {self.machine[:_SHOWN]})"


class OneFolder:
    """Compares the state folder of this replica with that of the Lease's holder; await :meth:`follow`.

    ``is_agreed``: nobody who lives uses another one, as far as is known, so reviews may be answered. ``watches``: this replica
    takes the Lease itself if nobody holds it. ``clock`` is monotonic.
    """

    def __init__(
        self,
        api: Api,
        events: EventWriter,
        lease: tuple[str, str],
        mine: FolderIdentity,
        *,
        watches: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._events, self._mine, self._watches, self._clock = api, events, mine, watches, clock
        self._home, self._name = lease
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{self._home}/leases/{self._name}"
        self._seen: object = None  # the Lease of another folder, or of nobody, as it was at the last look
        self._seen_at = clock()
        self._problem = ""
        self.is_agreed = False

    async def follow(self) -> None:
        """Look again and again, until cancelled. Raises :class:`InputError` where a holder that lives uses another folder."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK if self.is_agreed and self._seen is None else _SOON)

    async def look(self) -> None:
        """Look once. Raises like :meth:`follow`."""
        try:
            lease = await self._api.get_or_none(self._path) or {}
        except ApiFailed as error:
            if str(error) != self._problem:
                _LOG.warning("the state folders of replicas are not compared: %s", error)
            self._problem = str(error)
            self.is_agreed = self.is_agreed or not error.may_pass
            return
        self._problem = ""
        holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
        theirs = _folder_of(lease)
        is_shared = theirs is None or theirs.is_shared_with(self._mine)  # a holder of an earlier version tells none
        if (holder and is_shared) or not (holder or self._watches):
            self._seen, self.is_agreed = None, True
        elif self._is_alive(lease) and holder and theirs is not None:
            text = self._told(holder, theirs)
            about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._home, "namespace": self._home}}
            await self._events.write(about, "TwoStateFolders", text, is_warning=True)
            raise InputError(text)

    def _is_alive(self, lease: Mapping[str, Any]) -> bool:
        """Whether the Lease has changed since an earlier look. One that does not for long is nobody's, so the folder is ours."""
        seen = (lease.get("spec"), (lease.get("metadata") or {}).get("annotations"))
        if seen == self._seen:
            self.is_agreed = self.is_agreed or self._clock() >= self._seen_at + _EXPIRES
            return False
        is_first, self._seen, self._seen_at = self._seen is None, seen, self._clock()
        return not is_first

    def _told(self, holder: str, theirs: FolderIdentity) -> str:
        what = (
            "uses the same state folder on another machine"
            if theirs.uid == self._mine.uid
            else "has another state folder"
        )
        return (
            f"replica {socket.gethostname()} ends: replica {holder} holds lease {self._home}/{self._name} and {what}: {theirs}; "
            f"here it is {self._mine}. Each would record attempts in its own place: {_FIX}"
        )


def _folder_of(lease: Mapping[str, Any]) -> FolderIdentity | None:
    annotations = (lease.get("metadata") or {}).get("annotations") or {}
    return FolderIdentity.from_text(str(annotations.get(FOLDER_ANNOTATION, "")))


_NAME = re.compile(r"[-.a-z0-9]{1,63}/[-.a-z0-9]{1,253}")  # of a controller
_MOST_RIVALS = 3  # of one namespace: whoever may make objects there writes the names
_MOST_WAITING = 100
_MADE_AFTER = 2.0  # seconds after its review in which an object is there


class FindObject(Protocol):
    """Finds an object of the cluster, as :meth:`spotwright.cluster.attempt_lookup.Lookups.find_object` does."""

    async def __call__(self, api_version: str, kind: str, name: str, namespace: str, /) -> Mapping[str, Any] | None:
        """The object; None if there is none of this name, or it cannot be read."""


class Rivals:
    """What was found so far. ``name`` is that of this controller: NAMESPACE/NAME.

    Whoever reaches the webhook's port may send reviews of objects that do not exist, so nothing is told before the object was
    found in the cluster with its mark.
    """

    def __init__(self, events: EventWriter, name: str, find_object: FindObject) -> None:
        self._events, self.name, self._find = events, name, find_object
        self._known: dict[str, set[str]] = {}  # by namespace
        self._new: asyncio.Queue[tuple[tuple[str, ...], str]] = asyncio.Queue(_MOST_WAITING)

    def found(self, where: tuple[str, ...], rival: str) -> None:
        """Hear of an object that the controller ``rival`` has placed, by its API version, kind, name and namespace.

        Each pair of a namespace and a controller is told once; what is too much at once is not told.
        """
        known = self._known.get(where[-1], set())
        if rival not in known and len(known) < _MOST_RIVALS and _NAME.fullmatch(rival) and not self._new.full():
            self._new.put_nowait((where, rival))

    async def tell(self) -> None:
        """Write a line and an Event about each until cancelled."""
        while True:
            where, rival = await self._new.get()
            namespace = where[-1]
            if rival in self._known.get(namespace, ()):
                continue
            await asyncio.sleep(_MADE_AFTER)
            version, kind, name, _ = where
            found = await self._find(version, kind, name, namespace) if name else None
            if found is None or admitted_by(found) != rival:
                continue
            self._known.setdefault(namespace, set()).add(rival)
            text = (
                f"{rival} serves namespace {namespace} beside {self.name}: what is created there follows the one that is asked"
                " first, and both record and move its pods; end one of them with spotwright controller --unregister"
            )
            _LOG.warning("%s", text)
            about: dict[str, Any] = {"name": namespace, "namespace": namespace}
            event = {"apiVersion": "v1", "kind": "Namespace", "metadata": about}
            await self._events.write(event, "TwoControllers", text, is_warning=True)
