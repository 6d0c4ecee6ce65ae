"""Puts the local body of a run together: processes, progress watch, metadata servers, supply and the world above them."""

from __future__ import annotations

import selectors
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import NamedTuple

from spotwright.engine.events import Event
from spotwright.engine.ports import Clock
from spotwright.engine.state import RunState
from spotwright.local.attempts import AttemptPaths
from spotwright.local.imds.imds_client import MetadataServers, has_metadata_server
from spotwright.local.interruption_port import InterruptionSource
from spotwright.local.processes.attempt_processes import AttemptProcesses
from spotwright.local.processes.prestart import EarlyServer
from spotwright.local.progress_watch import ProgressWatch
from spotwright.local.result_cache import Results
from spotwright.local.supervisor.process_identity import marks
from spotwright.local.world import LocalWorld, Machine
from spotwright.model.pools import Pool, Trace
from spotwright.supply.simulated_pools import Supply

__all__ = ["EngineSide", "LocalHooks", "MakeInterruptions", "open_world"]

MakeInterruptions = Callable[[selectors.BaseSelector, Clock], InterruptionSource]
"""Makes the interruption source of a rehearsal from the run's selector and clock."""


class LocalHooks(NamedTuple):
    """Optional parts of a run on this machine: a fork server that was started early, and a source of interruptions."""

    server: EarlyServer | None = None
    interruptions: MakeInterruptions | None = None


class EngineSide(NamedTuple):
    """What the engine lends to its body: the selector in which everything waits, the clock, and the facts from outside.

    ``facts`` returns the stops and requests since its last call.
    """

    selector: selectors.BaseSelector
    clock: Clock
    facts: Callable[[], list[Event]]


@contextmanager
def open_world(
    engine: EngineSide,
    paths: AttemptPaths,
    state: RunState,
    pools: Mapping[str, Pool],
    traces: Mapping[str, Trace],
    results: Results | None,
    hooks: LocalHooks,
) -> Iterator[LocalWorld]:
    """The world of one run on this machine."""
    meta, selector, clock = state.meta, engine.selector, engine.clock
    made = Counter(node.pool for node in state.nodes.values())
    supply = Supply(pools, seed=meta.seed, scale=meta.time_scale, now=clock(), traces=traces, made=made)
    with (
        closing(AttemptProcesses(selector, run=paths.run, folder=paths.folder)) as processes,
        _metadata(selector, paths, pools, meta.time_scale) as metadata,
    ):
        server = hooks.server.take if hooks.server is not None else _no_server
        machine = Machine(selector, processes, ProgressWatch(selector), metadata, server)
        interruptions = hooks.interruptions(selector, clock) if hooks.interruptions is not None else None
        yield LocalWorld(
            machine,
            supply,
            paths,
            clock,
            pools=pools,
            results=results,
            outside_facts=engine.facts,
            interruptions=interruptions,
        )


def _no_server() -> None:
    return None


@contextmanager
def _metadata(
    selector: selectors.BaseSelector, paths: AttemptPaths, pools: Mapping[str, Pool], scale: float
) -> Iterator[MetadataServers | None]:
    """The metadata servers for nodes with a cloud provider; ``None`` where no pool of the run has one."""
    if not any(has_metadata_server(pool) for pool in pools.values()):
        yield None
        return
    with closing(MetadataServers(selector, marks(paths.run, paths.folder), scale=scale)) as metadata:
        yield metadata
