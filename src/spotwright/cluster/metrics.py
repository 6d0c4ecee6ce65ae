"""Serves the metrics of a controller's process at ``/metrics``, in the text format of Prometheus, over plain HTTP.

It also answers probes: ``/healthz`` (restart the process?) and ``/readyz``. The port is separate: API servers must reach the
webhook's port, and metrics are for readers who may see the names of pools and namespaces. By default it listens only on this
machine. The format has four kinds of line (https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4), so it
needs no library.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from aiohttp import web

from spotwright.cluster.controller_settings import Settings
from spotwright.cluster.health import Health
from spotwright.cluster.limited_server import serve
from spotwright.cluster.unavailable_pools import LeftOut, Tally
from spotwright.errors import InputError

__all__ = ["Metrics", "serve_metrics"]


_LOG = logging.getLogger(__name__)
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_Labels = tuple[tuple[str, str], ...]


class _Family(NamedTuple):
    """A metric: its name, kind, meaning, and a value for each set of labels."""

    name: str
    kind: str
    help: str
    values: Iterable[tuple[_Labels, float]]


class Metrics:
    """The metrics of one process, computed on request.

    ``pauses`` returns the unavailable pools; ``verdicts`` counts the answered reviews, ``tally`` recorded attempts and
    evictions. ``aside`` returns the namespaces that are set aside, each with the responsible part.
    """

    def __init__(
        self,
        *,
        pauses: Callable[[], Sequence[LeftOut]],
        tally: Tally | None = None,
        verdicts: Callable[[], Mapping[str, int]] | None = None,
        aside: Callable[[], Iterable[tuple[str, str]]] = tuple,
    ) -> None:
        self._tally, self._pauses, self._verdicts, self._aside = tally, pauses, verdicts, aside

    def text(self) -> str:
        """All metrics as text."""
        return "".join(line for family in self._families() for line in _lines(family))

    def _families(self) -> Iterator[_Family]:
        if self._tally is not None:
            yield from _of_recorder(self._tally)
        pauses = {(("namespace", one.namespace), ("pool", one.pool)): one.pause for one in self._pauses()}
        until = [(labels, pause.until) for labels, pause in pauses.items()]
        text = "Time until which attempts skip a pool that had no node, in Unix seconds; without a namespace: for all."
        yield _Family("spotwright_pool_left_out_until_seconds", "gauge", text, until)
        times = [(labels, pause.times) for labels, pause in pauses.items()]
        yield _Family("spotwright_pool_left_out_times", "gauge", "Times in a row that a pool had no node.", times)
        if self._verdicts is not None:
            reviews = [((("verdict", verdict),), count) for verdict, count in self._verdicts().items()]
            yield _Family("spotwright_reviews_total", "counter", "Admission reviews answered by this process.", reviews)
        aside = [((("by", part), ("namespace", namespace)), 1.0) for namespace, part in set(self._aside())]
        text = "Namespaces set aside because their objects cost too much."
        yield _Family("spotwright_set_aside", "gauge", text, aside)


def _of_recorder(tally: Tally) -> Iterator[_Family]:
    yield _Family(
        "spotwright_leading", "gauge", "Whether this process records and evicts.", [((), float(tally.is_leading))]
    )
    text = "1 while events cannot be recorded and wait in memory."
    yield _Family("spotwright_not_recorded", "gauge", text, [((), float(bool(tally.problem)))])
    moves = [((("move", what),), count) for what, count in tally.moves.items()]
    text = (
        "Attempts recalled after pending_timeout, pods evicted for it, and pods deleted because their machine is gone."
    )
    yield _Family("spotwright_moves_total", "counter", text, moves)
    waiting = [((("namespace", name), ("reason", why)), count) for (name, why), count in tally.waiting.items()]
    yield _Family("spotwright_pods_waiting", "gauge", "Pods of attempts waiting for a node.", waiting)
    text = "Pods with a policy that started unplaced, because their review was late or unanswered."
    yield _Family("spotwright_pods_unplaced_total", "counter", text, [((), float(tally.unplaced))])
    archives = [((("outcome", outcome),), count) for outcome, count in tally.archives.items()]
    text = "Ended runs archived, failed tries, and runs deleted without an archive for lack of space."
    yield _Family("spotwright_runs_archived_total", "counter", text, archives)
    text = "Workloads no longer recorded, because of a defect in Spotwright."
    yield _Family("spotwright_workloads_set_aside_total", "counter", text, [((), float(tally.defects))])
    text = (
        "Runs whose records could not be read when this recorder began to lead: pauses of their pools may be missing."
    )
    yield _Family("spotwright_runs_unread", "gauge", text, [((), float(tally.unread))])
    kinds = [((("kind", kind),), float(is_read)) for kind, is_read in tally.kinds.items()]
    text = "Whether Spotwright reads a kind that the API server serves; 0: unsupported versions, or reading it is forbidden."
    yield _Family("spotwright_kind_read", "gauge", text, kinds)


async def serve_metrics(
    metrics: Metrics, settings: Settings, health: Health, is_ready: Callable[[], bool], stack: AsyncExitStack
) -> None:
    """Listen until ``stack`` is closed.

    For the default address, a port in use (by another process on this machine) is a warning. Else it
    raises :class:`InputError`.
    """
    host, port = settings.metrics_host, settings.metrics_port

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.text().encode(), headers={"Content-Type": _TYPE})

    async def healthz(_request: web.Request) -> web.Response:
        problem = health.problem
        return web.Response(status=500 if problem else 200, text=problem or "ok")

    async def readyz(_request: web.Request) -> web.Response:
        return web.Response(text="ready") if is_ready() else web.Response(status=503, text="not ready yet")

    app = web.Application()
    app.add_routes([web.get("/metrics", answer), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    try:
        runner = await serve(app, host=host, port=port)
    except OSError as error:
        if settings.metrics_are_asked:
            raise InputError(f"{host}:{port}: cannot listen there ({error}); see --metrics-listen") from error
        _LOG.warning("cannot serve metrics: %s:%d is in use; name another address with --metrics-listen", host, port)
        return
    stack.push_async_callback(runner.cleanup)
    _LOG.info("metrics are served at http://%s:%d/metrics", host, runner.addresses[0][1])


def _lines(family: _Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
    for labels, value in sorted(family.values):
        named = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels)
        yield f"{family.name}{{{named}}} {value:.15g}\n" if named else f"{family.name} {value:.15g}\n"
