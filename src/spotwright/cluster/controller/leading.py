"""Watches and writes journals while this replica holds the Lease, and waits for it otherwise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from spotwright.cluster.api.requests import Api
from spotwright.cluster.watching.lease import KubernetesLease, while_held
from spotwright.cluster.watching.run_store import RunStore, this_process
from spotwright.cluster.watching.watcher import Watcher
from spotwright.config import Config
from spotwright.errors import Fenced, SpotwrightError
from spotwright.records.state_folder import StateFolder

__all__ = ["lead"]

_LOG = logging.getLogger(__name__)
_AGAIN = 5.0  # seconds after a failure, of the state folder for example


async def lead(api: Api, home: str, name: str, state: StateFolder, config_of: Callable[[str], Config]) -> None:
    """Be elected and watch, again and again, until cancelled. ``home`` and ``name`` are those of the Lease."""
    while True:
        lease = KubernetesLease(api, home, name)

        async def watch(epoch: int, lease: KubernetesLease = lease) -> None:
            _LOG.info("this replica watches now, epoch %d", epoch)
            await Watcher(api, RunStore(state, config_of, this_process(), lease.require)).run()

        try:
            await while_held(lease, watch)
        except Fenced as error:
            _LOG.warning("%s", error)
        except SpotwrightError as error:
            _LOG.error("watching failed, again in %g s: %s", _AGAIN, error)  # one line, no traceback
            await asyncio.sleep(_AGAIN)
