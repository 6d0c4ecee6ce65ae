"""Records a cluster: runs the watcher, the log keeper and the descheduler until one of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import httpx2

from spotwright import config as configuration
from spotwright.cluster.api_client import Api
from spotwright.cluster.autoscaler_status import DEFAULT_LIMIT
from spotwright.cluster.descheduler import Descheduler
from spotwright.cluster.kept_admissions import Admissions
from spotwright.cluster.log_keeper import NAMESPACE_LIMIT, LogKeeper
from spotwright.cluster.log_place import LogPlace
from spotwright.cluster.namespace_costs import NamespaceCosts
from spotwright.cluster.observer import OnRecorded
from spotwright.cluster.parts import until_one_ends
from spotwright.cluster.retention import Retention
from spotwright.cluster.run_store import RunStore, WorkloadRun
from spotwright.cluster.spot_pools import PoolObjects
from spotwright.cluster.unavailable_pools import CapacityBackoff, Findings, Tally
from spotwright.cluster.view import SeenPod
from spotwright.cluster.watched import Watched
from spotwright.cluster.watcher import Watcher
from spotwright.config import Config

__all__ = ["watch_and_keep_logs", "without_pools"]

_T = TypeVar("_T")


_LOOK = 2.0  # seconds between checks of whether anything can be recorded


async def watch_and_keep_logs(  # noqa: PLR0913  # each has a default
    api: Api,
    store: RunStore,
    open_streams: Callable[[], httpx2.AsyncClient],
    *,
    place: LogPlace | None = None,
    namespace_limit: int = NAMESPACE_LIMIT,
    namespaces: Sequence[str] = (),
    tally: Tally | None = None,
    order_limit: float = DEFAULT_LIMIT,
    costs: NamespaceCosts | None = None,
    on_recorded: OnRecorded = lambda *_: None,
    pools: PoolObjects | None = None,
    name: str = "spotwright",
    on_kinds: Callable[[Mapping[str, str]], None] = lambda _: None,
    on_watched: Callable[[Watched], None] = lambda _: None,
    retention: Retention | None = None,
    on_problem: Callable[[str], None] = lambda _: None,
    on_defect: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> None:
    """Watch until cancelled. ``open_streams`` makes a client for many streams at once; every log has one while it is followed.

    ``place`` is the log place; None: logs are not kept. ``namespace_limit`` is in bytes, for all logs of a namespace.
    ``namespaces`` are the watched ones, each with its own streams; by default all labelled ones. ``tally`` counts evictions and
    waiting pods. ``order_limit`` is the most seconds that a pod may wait for an ordered node. ``costs`` are the namespaces'
    costs. ``on_recorded`` gets each recorded pod. ``pools`` publishes the pools and their backoffs, if given. ``name`` is the
    registration's. ``on_kinds`` gets each change of the watched kinds and reasons, ``on_watched`` the whole watched scope.
    ``retention`` deletes records. ``on_problem`` gets the reason why recording fails, and an empty text once it works.
    ``on_defect`` gets each workload that is set aside because of a defect.
    """
    tally = tally or Tally()
    pauses = CapacityBackoff(_unsaid if pools is None else pools.write)
    tally.unread = pauses.begin(store.records, api.now(), store.require)
    descheduler = Descheduler(api, pauses, tally=tally)
    tally.begin()
    streams = Api(open_streams())

    def look(run: WorkloadRun, seen: SeenPod, is_cut_off: bool) -> None:
        descheduler.recorded(seen.pod, is_gone=seen.is_gone)
        on_recorded(run, seen, is_cut_off)
        if keeper is not None:
            keeper.look(run.folder, run.attempts, seen.pod, is_gone=seen.is_gone, is_cut_off=is_cut_off)

    def tell(watched: Watched) -> None:
        pauses.know(watched.namespaces)
        on_watched(watched)
        on_kinds(watched.kinds)

    def look_again(pods: Iterable[str]) -> None:
        watcher.look_again(pods)

    admissions = Admissions(api, look_again)

    on_forgotten: list[Callable[[str], None]] = [descheduler.forget, admissions.forget]
    on_cut: list[Callable[[WorkloadRun], None]] = []
    watcher = Watcher(
        streams,
        store,
        namespaces,
        look,
        descheduler.decide,
        order_limit,
        on_forgotten=partial(_tell, on_forgotten),
        on_watched=tell,
        on_cut=partial(_tell, on_cut),
        on_defect=on_defect,
        costs=costs,
        admission=admissions.of,
        is_admission_known=admissions.is_known,
        last_line=lambda key: None if keeper is None else keeper.last_line(key),
        name=name,
    )
    if pools is not None:
        pools.nodes = watcher.nodes
    if retention is not None:
        retention.cut = watcher.cut_largest
        on_cut.append(retention.heard)
    keeper = None if place is None else LogKeeper(streams, place, namespace_limit, watcher.note)
    if keeper is not None:
        on_forgotten.append(keeper.forget)
        on_cut.append(lambda run: keeper.leave(run.attempts))
    parts = [
        watcher.run(),
        watcher.hear_of_starts(),
        watcher.read_leases(),
        watcher.tell_people(),
        *([] if pools is None else [pools.run()]),
        descheduler.run(watcher.look_at),
        *([] if keeper is None else [keeper.run()]),
        *([] if retention is None else [retention.run()]),
        _tell_problem(watcher, on_problem),
        admissions.run(),
    ]
    try:
        await until_one_ends(parts)
    finally:
        tally.end()
        await streams.close()


async def _tell_problem(watcher: Watcher, on_problem: Callable[[str], None]) -> None:
    reported = ""
    while True:
        problem = watcher.problems.get("store", "")
        if problem != reported:
            on_problem(problem)
            reported = problem
        await asyncio.sleep(_LOOK)


def _tell(listeners: Iterable[Callable[[_T], None]], news: _T) -> None:
    for hear in listeners:
        hear(news)


def _unsaid(_found: Findings) -> None:
    """Drop findings about pools: there are no readers."""


def without_pools() -> Config:
    """A configuration for namespaces without one: spot is preferred, and pools are read from the nodes."""
    return configuration.from_mapping({"pools": {"unknown-nodes": {"capacity": "on-demand"}}}, "pools of the cluster")
