"""Archives of ended runs in the log store: one object per run, written before its records leave the Kubernetes API.

An archive has the run's objects as in the API, as a ``List`` that ``zcat`` and ``kubectl`` can read, the SpotRun first. So any
reader of runs in the API can read archives.

Its name is ``+archive/NAMESPACE/UID/RUN/ENDED+UID+OWNER+...``. The first UID is the namespace's, because a recreated namespace
is a different one. Then follow the run's end in Unix seconds; the UID of the SpotRun, by which the successor of a killed
recorder finds the archive of a run that is not deleted yet; the release that keeps it; and digests of the run's other names.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import msgspec

from spotwright.cluster.api_client import Api, ApiFailed, namespace_uid
from spotwright.cluster.log_parts import Objects, segment
from spotwright.cluster.log_place import PlaceAway
from spotwright.cluster.record_shares import NAMESPACE_LIMIT
from spotwright.cluster.run_names import NamedRun, named_run
from spotwright.cluster.run_objects import ATTEMPT, RUN, TASK, WORKLOAD_LABEL, records_path
from spotwright.errors import StateError
from spotwright.kube.object_fields import metadata, seconds, uid_of
from spotwright.model.quantities import format_bytes

__all__ = ["Archive", "Archiver", "archive_of", "archives_in", "objects_in", "run_in"]


_FOLDER = "+archive"

_MOST = 2 * NAMESPACE_LIMIT  # bytes of a run's objects: a namespace with more is set aside
_BATCH = 50  # runs listed together: for a list with a selector the API server reads every object of the namespace
_PAGE = 100  # objects in a page of a list: at most 6 MB
_GZIP = 31  # zlib's code of the gzip format
_BEGIN = b'{"apiVersion":"v1","kind":"List","items":['
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Archive(NamedRun):
    """The archive of a run, by its name. ``uid`` is the SpotRun's, ``ended_at`` in Unix seconds."""

    uid: str = ""
    ended_at: int = 0
    owner: str = ""
    digests: frozenset[str] = field(default_factory=frozenset)
    size: int = 0

    @property
    def key(self) -> str:
        """The name of the object."""
        last = "+".join([f"{self.ended_at:010d}", segment(self.uid), segment(self.owner), *sorted(self.digests)])
        return "/".join([_FOLDER, *map(segment, (self.namespace, self.namespace_uid, self.run)), last])

    def is_called(self, text: str) -> bool:
        """See :meth:`NamedRun.is_called`."""
        return text == self.run or _digest(text) in self.digests


def _digest(text: str) -> str:
    """The hash of a run's name: ``kind/name``, or an id."""
    kind, slash, name = text.partition("/")
    plain = f"{kind.lower().removesuffix('s')}/{name}" if slash else text
    return hashlib.blake2b(plain.encode(errors="surrogatepass"), digest_size=6).hexdigest()


def archive_of(key: str, size: int = 0) -> Archive | None:
    """The archive with this name; None for an object of another kind."""
    folders = key.split("/")
    parts = folders[-1].split("+")
    if len(folders) != 5 or folders[0] != _FOLDER or len(parts) < 3 or not parts[0].isdecimal():
        return None
    namespace, namespace_uid_, run, uid, owner = map(unquote, (*folders[1:4], *parts[1:3]))
    digests = frozenset(parts[3:])
    found = Archive(run, namespace, namespace_uid_, "", "", "", "", uid, int(parts[0]), owner, digests, size)
    return found if found.key == key else None


async def archives_in(objects: Objects, *folders: str) -> AsyncIterator[Archive]:
    """The archives of a namespace (its name and UID), of a run (its name after these), or all. Raises :class:`PlaceAway`."""
    async for some in objects.list("/".join([_FOLDER, *map(segment, folders)])):
        for each in some:
            found = archive_of(each.key, each.size)
            if found is not None:
                yield found


def objects_in(data: bytes, run: str) -> list[dict[str, Any]]:
    """The objects of a run in its archive. Raises :class:`StateError`."""
    unpack = zlib.decompressobj(_GZIP)
    try:
        text = unpack.decompress(data, _MOST + len(_BEGIN))  # a longer one has incomplete JSON
        return msgspec.json.decode(text, type=_List).items
    except (zlib.error, msgspec.DecodeError, RecursionError) as error:
        raise StateError(f"the archive of run {run} cannot be read ({error})") from error


def run_in(data: bytes, run: str) -> dict[str, Any]:
    """The SpotRun in an archive, of which the beginning suffices. Raises :class:`StateError`."""
    try:
        text = zlib.decompressobj(_GZIP).decompress(data, _MOST).decode(errors="replace")
        found, _ = json.JSONDecoder().raw_decode(text, len(_BEGIN))
    except (zlib.error, ValueError, RecursionError) as error:
        raise StateError(f"the archive of run {run} cannot be read ({error})") from error
    return dict(found)


class _List(msgspec.Struct, frozen=True):
    items: list[dict[str, Any]]


class _Packed:
    """An archive under construction."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        self.run, self.name = run, str(metadata(run).get("name"))
        self._gzip = zlib.compressobj(wbits=_GZIP)
        self._parts = [self._gzip.compress(_BEGIN + msgspec.json.encode(run))]
        self.size = len(_BEGIN)

    def add(self, text: bytes) -> None:
        """Add an object; if it is too large, only count its size."""
        self.size += len(text) + 1
        if self.size <= _MOST:
            self._parts.append(self._gzip.compress(b"," + text))

    def sealed(self) -> bytes:
        """The archive."""
        return b"".join((*self._parts, self._gzip.compress(b"]}"), self._gzip.flush()))


class _Owner(msgspec.Struct, frozen=True):
    uid: str = ""


class _Meta(msgspec.Struct, rename="camel", frozen=True):
    owner_references: list[_Owner] = []


class _Owned(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class Archiver:
    """Writes archives. ``owner`` distinguishes this release's archives.

    ``away`` is why the store refuses archives; until it is emptied, archiving is not retried.
    """

    def __init__(self, api: Api, objects: Objects, owner: str) -> None:
        self._api, self._objects, self._owner, self.away = api, objects, owner, ""

    async def archive(self, namespace: str, runs: Sequence[str]) -> tuple[list[Archive], dict[str, str]]:
        """Archive ended runs of a namespace. Returns their archives, and by run the reason for a failure."""
        made: list[Archive] = []
        failed: dict[str, str] = {}
        for begin in range(0, len(runs), _BATCH):
            some = runs[begin : begin + _BATCH]
            try:
                for packed in () if self.away else await self._packed(namespace, some):
                    if packed.size > _MOST:
                        failed[packed.name] = f"its objects have {format_bytes(packed.size)}"
                    else:
                        made.append(await self._write(namespace, packed))
            except PlaceAway as error:
                self.away = str(error)
            except ApiFailed as error:
                failed |= dict.fromkeys(some, str(error))
            if self.away:
                failed |= dict.fromkeys(some, self.away)
        done = {each.run for each in made}
        return made, {run: why for run, why in failed.items() if run not in done}

    async def _packed(self, namespace: str, runs: Sequence[str]) -> Iterable[_Packed]:
        """The objects of runs, without deleted runs."""
        found = [await self._api.get_or_none(records_path(RUN, namespace, run)) for run in runs]
        packed = {uid_of(run): _Packed(run) for run in found if run is not None}
        workloads = {(metadata(each.run).get("labels") or {}).get(WORKLOAD_LABEL, "") for each in packed.values()}
        selector = f"{WORKLOAD_LABEL} in ({','.join(sorted(filter(None, workloads)))})"
        for kind in (TASK, ATTEMPT) if any(workloads) else ():
            following = ""
            while True:
                asked = {"limit": str(_PAGE), "labelSelector": selector}
                asked |= {"continue": following} if following else {}
                page = await self._api.get_page(records_path(kind, namespace), asked)
                await asyncio.to_thread(_sort, map(bytes, page.items or ()), packed)
                following = "" if page.metadata is None else page.metadata.continue_ or ""
                if not following:
                    break
        return packed.values()

    async def _write(self, namespace: str, packed: _Packed) -> Archive:
        """Write an archive, unless an earlier recorder has. Raises :class:`PlaceAway` and :class:`ApiFailed`."""
        known, data = named_run(packed.run), await asyncio.to_thread(packed.sealed)
        where = known.namespace_uid if known is not None else ""
        where = where or await namespace_uid(self._api, namespace)
        if not where:
            raise ApiFailed(f"namespace {namespace} no longer exists")
        names = () if known is None else (f"{known.kind}/{known.name}", known.kfp_run, known.kfp_name)
        digests = frozenset(_digest(name) for name in names if name)
        ended = int(seconds((packed.run.get("status") or {}).get("finishedAt")) or 0)
        uid = uid_of(packed.run)
        made = Archive(packed.name, namespace, where, "", "", "", "", uid, ended, self._owner, digests, len(data))
        if not await self._objects.put_new(made.key, data) and not await self._objects.get(made.key, 0, 1):
            raise PlaceAway(
                f"{made.key} was refused and does not exist"
            )  # S3 also refuses beside a write that finally fails
        return made


def _sort(texts: Iterable[bytes], packed: Mapping[str, _Packed]) -> None:
    """Add each object to the run that owns it."""
    for text in texts:
        try:
            owners = msgspec.json.decode(text, type=_Owned).metadata.owner_references
        except msgspec.DecodeError as error:
            _LOG.warning("not archiving an object of a run that Spotwright did not write (%s)", error)
            continue
        for owner in owners:
            if owner.uid in packed:
                packed[owner.uid].add(text)
