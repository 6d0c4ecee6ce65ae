"""Reads the marks of a review on pods: its token, and the number of the attempt.

A tenant decides the number and size of its pods. So pods are read in pages, with only a part of their metadata, within a limit
in bytes.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from spotwright.cluster.admit_objects import ATTEMPT_ANNOTATION
from spotwright.cluster.admit_pods import ADMISSION_ANNOTATION
from spotwright.cluster.api_client import TOO_LARGE, Api, ApiFailed, object_path
from spotwright.cluster.bounded_json import decode, read_as
from spotwright.cluster.task_objects import LONGEST_TOKEN

__all__ = ["CarriedNumbers", "MarkedPod", "marked_pods", "pod_texts"]


_LOG = logging.getLogger(__name__)
_NUMBER = re.compile("[1-9][0-9]{0,5}")
_MOST_READ = 256 * 1024 * 1024  # bytes of all pods of a namespace, read once after the numbers were lost
_MOST_KEPT, _MARKED = 4_000_000, 500  # kept bytes, and bytes of each pod besides its metadata
_KEPT_READING = 60.0  # seconds
_PAGE = 100  # pods
_PAGE_BYTES = 1024 * 1024  # of a page of several pods
_LARGEST = 4096  # bytes of labels and annotations that name a task; Argo's contain the names of all steps above it


class MarkedPod(NamedTuple):
    """A pod pinned to a rung by a review. ``number`` is an untrusted annotation."""

    token: str
    number: str
    controller: str  # the UID of its controller; empty without one
    metadata: bytes  # JSON, with its labels and annotations; empty if they are too large

    @property
    def pod(self) -> Mapping[str, Any]:
        """The pod with the metadata that names its task."""
        return {"kind": "Pod", "metadata": decode(self.metadata or b"{}")}


async def marked_pods(
    api: Api, namespace: str, selector: str = "", *, most_bytes: int
) -> AsyncGenerator[MarkedPod, None]:
    """The current pods of a namespace with a token. Raises as :func:`pod_texts`."""
    async with aclosing(pod_texts(api, namespace, selector, most_bytes=most_bytes)) as texts:
        async for each in texts:
            if (marked := _marked(each)) is not None:
                yield marked


async def pod_texts(api: Api, namespace: str, selector: str = "", *, most_bytes: int) -> AsyncGenerator[bytes, None]:
    """The current pods of a namespace as text.

    Raises :class:`ApiFailed`, with the status :data:`TOO_LARGE` for more than ``most_bytes``.
    """
    path, limit, more, left = object_path("v1", "Pod", namespace=namespace), _PAGE, "", most_bytes
    while True:
        params = {"limit": str(limit), "labelSelector": selector, "continue": more}
        try:
            sent = {key: value for key, value in params.items() if value}
            page = await api.get_page(path, sent, at_most=min(left, _PAGE_BYTES) if limit > 1 else left)
        except ApiFailed as error:
            if error.status != TOO_LARGE or limit == 1:
                raise
            limit = max(1, limit // 8)
            continue
        for item in page.items or ():
            text = bytes(item)
            left -= len(text)
            yield text
        more = (page.metadata.continue_ if page.metadata else "") or ""
        if not more:
            return
        if left <= 0:
            raise ApiFailed(f"{path}: these pods are larger than {most_bytes >> 20} MiB together", TOO_LARGE)


class CarriedNumbers:
    """The numbers on pods, read once a minute for all callers: later pods have their numbers elsewhere."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._readings: dict[
            tuple[str, str], asyncio.Task[Sequence[MarkedPod] | None]
        ] = {}  # by namespace and selector

    async def of(self, namespace: str, selector: str, *, patience: float) -> Sequence[MarkedPod] | None:
        """The numbered pods of a namespace; None: they cannot be read, or not within ``patience`` seconds.

        The read continues after callers stop waiting.
        """
        key = namespace, selector
        reading = self._readings.get(key)
        if reading is None:
            reading = self._readings[key] = asyncio.create_task(self._read(*key), name="numbers of pods")
            reading.add_done_callback(partial(self._has_read, key))
        await asyncio.wait([reading], timeout=patience)
        return reading.result() if reading.done() and not reading.cancelled() else None

    async def _read(self, namespace: str, selector: str) -> Sequence[MarkedPod] | None:
        found: list[MarkedPod] = []
        size = 0
        try:
            async with aclosing(marked_pods(self._api, namespace, selector, most_bytes=_MOST_READ)) as pods:
                async for each in pods:
                    if len(each.token) <= LONGEST_TOKEN and _NUMBER.fullmatch(each.number):
                        found.append(each)
                        size += len(each.metadata) + _MARKED
                    if size > _MOST_KEPT:
                        _LOG.warning("namespace %s has more numbered pods than can be restored", namespace)
                        break
        except ApiFailed as error:
            _LOG.warning("%s", error)
            return found or None
        return found

    def _has_read(self, key: tuple[str, str], reading: asyncio.Task[Any]) -> None:
        reading.get_loop().call_later(_KEPT_READING, self._readings.pop, key, None)


class _Marks(msgspec.Struct):
    token: str = msgspec.field(default="", name=ADMISSION_ANNOTATION)
    number: str = msgspec.field(default="", name=ATTEMPT_ANNOTATION)


class _Owner(msgspec.Struct):
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    annotations: _Marks | None = None
    owner_references: list[_Owner] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata


class _Naming(msgspec.Struct):
    name: Raw | UnsetType = UNSET
    namespace: Raw | UnsetType = UNSET
    labels: Raw | UnsetType = UNSET
    annotations: Raw | UnsetType = UNSET


class _Named(msgspec.Struct):
    metadata: _Naming


def _marked(text: bytes) -> MarkedPod | None:
    try:
        meta = read_as(_Pod, text).metadata
        if meta.annotations is None or not meta.annotations.token:
            return None
        naming = msgspec.json.encode(read_as(_Named, text).metadata)
    except msgspec.DecodeError:
        return None
    controller = next((each.uid for each in meta.owner_references or () if each.controller), "")
    marks = meta.annotations
    return MarkedPod(marks.token, marks.number, controller, naming if len(naming) <= _LARGEST else b"")
