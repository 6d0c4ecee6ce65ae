"""Serves the controller's metrics at ``/metrics``, in the text format of Prometheus, over plain HTTP.

The port is one of its own: that of the webhook has to be reached by API servers, and metrics are for those who may see the
names of pools and namespaces. By default it is reached from this machine alone. The format is four kinds of line
(https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4), so no library is needed for it.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from aiohttp import web

from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.certificates import are_same, united
from spotwright.cluster.controller_settings import Settings
from spotwright.cluster.limited_server import serve
from spotwright.cluster.log_server import publish_authority, start_log_server
from spotwright.cluster.unavailable_pools import LeftOut, Move
from spotwright.errors import InputError

__all__ = ["Metrics", "Readers", "serve_metrics"]


_LOG = logging.getLogger(__name__)
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_Labels = tuple[tuple[str, str], ...]


class _Family(NamedTuple):
    """One metric: its name, its kind, what it means, and a value for each set of labels."""

    name: str
    kind: str
    help: str
    values: Iterable[tuple[_Labels, float]]


class _Counts(Protocol):
    """What is counted by whoever records and moves."""

    @property
    def is_leading(self) -> bool: ...
    @property
    def moves(self) -> Mapping[Move, int]: ...
    @property
    def waiting(self) -> Mapping[tuple[str, str], int]: ...
    @property
    def unplaced(self) -> int: ...
    @property
    def kinds(self) -> Mapping[str, bool]: ...


class Metrics:
    """The metrics of one replica, computed when they are asked for.

    ``pauses`` gives the pools that are left out now; ``verdicts`` counts the reviews that this replica has answered. ``aside``
    gives the namespaces that are set aside now, each with the part that does so.
    """

    def __init__(
        self,
        tally: _Counts,
        pauses: Callable[[], Sequence[LeftOut]],
        verdicts: Callable[[], Mapping[str, int]],
        aside: Callable[[], Iterable[tuple[str, str]]] = tuple,
    ) -> None:
        self._tally, self._pauses, self._verdicts, self._aside = tally, pauses, verdicts, aside

    def text(self) -> str:
        """All metrics as text."""
        return "".join(line for family in self._families() for line in _lines(family))

    def _families(self) -> Iterator[_Family]:
        leading = [((), float(self._tally.is_leading))]
        yield _Family("spotwright_leading", "gauge", "Whether this replica records and moves.", leading)
        moves = [((("move", what),), count) for what, count in self._tally.moves.items()]
        text = "Attempts taken back after pending_timeout, pods evicted for it, and pods deleted whose machine is gone."
        yield _Family("spotwright_moves_total", "counter", text, moves)
        waiting = [
            ((("namespace", name), ("reason", why)), count) for (name, why), count in self._tally.waiting.items()
        ]
        yield _Family("spotwright_pods_waiting", "gauge", "Pods of attempts that wait for a node.", waiting)
        text = "Pods with a policy that no review has placed, because it came too late or nobody answered it."
        yield _Family("spotwright_pods_unplaced_total", "counter", text, [((), float(self._tally.unplaced))])
        kinds = [((("kind", kind),), float(is_read)) for kind, is_read in self._tally.kinds.items()]
        text = "Whether a kind that the API server has is read; 0: its controller has other versions, or nobody may read it."
        yield _Family("spotwright_kind_read", "gauge", text, kinds)
        pauses = {(("namespace", one.namespace), ("pool", one.pool)): one.pause for one in self._pauses()}
        until = [(labels, pause.until) for labels, pause in pauses.items()]
        text = "Until when a pool is left out because it had no node, in Unix seconds; without a namespace for all."
        yield _Family("spotwright_pool_left_out_until_seconds", "gauge", text, until)
        times = [(labels, pause.times) for labels, pause in pauses.items()]
        yield _Family("spotwright_pool_left_out_times", "gauge", "How often in a row a pool had no node.", times)
        reviews = [((("verdict", verdict),), count) for verdict, count in self._verdicts().items()]
        yield _Family("spotwright_reviews_total", "counter", "Reviews that this replica has answered.", reviews)
        aside = [((("by", part), ("namespace", namespace)), 1.0) for namespace, part in set(self._aside())]
        text = "Namespaces that are set aside, because their objects cost too much."
        yield _Family("spotwright_set_aside", "gauge", text, aside)


async def serve_metrics(metrics: Metrics, host: str, port: int, *, is_asked: bool) -> web.AppRunner | None:
    """Listen; ``await runner.cleanup()`` ends it.

    Where nobody ``is_asked`` for this address, a port that is taken (by another replica on this machine) is a warning, and None
    comes back. Else it raises :class:`InputError`.
    """

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.text().encode(), headers={"Content-Type": _TYPE})

    app = web.Application()
    app.add_routes([web.get("/metrics", answer)])
    try:
        runner = await serve(app, host=host, port=port)
    except OSError as error:
        if is_asked:
            raise InputError(f"{host}:{port}: cannot listen there ({error}); see --metrics-listen") from error
        _LOG.warning("no metrics are served: %s:%d is taken; name another address with --metrics-listen", host, port)
        return None
    _LOG.info("metrics are served at http://%s:%d/metrics", host, runner.addresses[0][1])
    return runner


def _lines(family: _Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
    for labels, value in sorted(family.values):
        named = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels)
        yield f"{family.name}{{{named}}} {value:.15g}\n" if named else f"{family.name} {value:.15g}\n"


def _united(own: str, known: str) -> str:
    found = united(own.encode(), known.encode(), datetime.now(UTC)).decode()
    return known if are_same(found.encode(), known.encode()) else found


def _alone(own: str, _known: str) -> str:
    return own


class Readers:
    """The server that people read logs from, if the settings name a port for it; else every call does nothing."""

    def __init__(self, settings: Settings, api: Api) -> None:
        self._settings, self._api = settings, api
        self._runner: web.AppRunner | None = None
        self._problem = ""

    async def start(self, context: ssl.SSLContext) -> None:
        """Listen with this certificate. Raises :class:`InputError` where the port cannot be listened on."""
        port = self._settings.read_port
        if port is None:
            return
        host = self._settings.read_host
        try:
            self._runner = await start_log_server(self._api, context, host=host, port=port, logs=self._settings.logs)
        except OSError as error:
            raise InputError(f"{host}:{port}: cannot listen there ({error}); see --read-listen") from error
        _LOG.info("logs are read at https://%s:%d", host, self._runner.addresses[0][1])

    async def publish(self, authority: bytes) -> None:
        """Write the authority where readers find it. Without the right to do so they name a file themselves."""
        if self._runner is None:
            return
        try:
            unite = _united if self._settings.is_stateless else _alone
            await publish_authority(self._api, self._settings.home, authority.decode(), unite)
            self._problem = ""
        except ApiFailed as error:
            if self._problem != str(error):
                _LOG.warning("readers do not find the authority of our certificate: %s", error)
            self._problem = str(error)

    async def stop(self) -> None:
        """End every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
