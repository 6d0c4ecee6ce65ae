"""Watches, writes journals and keeps logs while this replica holds the Lease, and waits for it otherwise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

import httpx2

from spotwright.cluster.api.requests import Api
from spotwright.cluster.moving.tally import Tally
from spotwright.cluster.watching.lease import KubernetesLease, while_held
from spotwright.cluster.watching.run_store import RunStore, this_process
from spotwright.cluster.watching.watch_and_keep_logs import watch_and_keep_logs
from spotwright.config import Config
from spotwright.errors import Fenced, SpotwrightError
from spotwright.records.state_folder import StateFolder

__all__ = ["lead"]

_LOG = logging.getLogger(__name__)
_AGAIN = 5.0  # seconds after a failure, of the state folder for example


class OpenClient(Protocol):
    """Makes a client of the cluster; with ``many_streams`` one that opens as many connections at once as are asked for."""

    def __call__(self, *, many_streams: bool = False) -> httpx2.AsyncClient:
        """The client, which its caller closes."""


async def lead(
    open_client: OpenClient,
    lease_of: Callable[[Api], KubernetesLease],
    state: StateFolder,
    config_of: Callable[[str], Config],
    log_limit: int,
    tally: Tally,
) -> None:
    """Be elected and watch, again and again, until cancelled.

    ``lease_of`` makes this replica's part in an election. ``log_limit`` is in bytes, for the log of one attempt; 0 keeps none.
    ``tally`` counts what is moved and what waits.
    """
    api = Api(open_client())
    try:
        while True:
            await _once(api, open_client, lease_of, state, config_of, log_limit, tally)
    finally:
        await api.close()


async def _once(
    api: Api,
    open_client: OpenClient,
    lease_of: Callable[[Api], KubernetesLease],
    state: StateFolder,
    config_of: Callable[[str], Config],
    log_limit: int,
    tally: Tally,
) -> None:
    lease = lease_of(api)

    async def watch(epoch: int) -> None:
        _LOG.info("this replica watches now, epoch %d", epoch)
        store = RunStore(state, config_of, this_process(), lease.require)
        streams = partial(open_client, many_streams=True)
        await watch_and_keep_logs(api, store, state, streams, limit=log_limit, tally=tally)

    try:
        await while_held(lease, watch)
    except Fenced as error:
        _LOG.warning("%s", error)
    except SpotwrightError as error:
        _LOG.error("watching failed, again in %g s: %s", _AGAIN, error)  # one line, no traceback
        await asyncio.sleep(_AGAIN)
