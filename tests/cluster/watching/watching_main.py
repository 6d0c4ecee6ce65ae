"""``python -m tests.cluster.watching.watching_main``: the watcher as a separate process, for tests and benchmarks."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import logging
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.cluster.folder_records import FolderRecords, FolderRuns

from spotwright import config as configuration
from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.lease import KubernetesLease, while_held
from spotwright.cluster.log_keeper import DEFAULT_LIMIT
from spotwright.cluster.log_parts import require_url
from spotwright.cluster.log_store import LogStore
from spotwright.cluster.recording import watch_and_keep_logs, without_pools
from spotwright.cluster.run_store import RunStore
from spotwright.config import Config
from spotwright.errors import InputError, RunBusy, SpotwrightError
from spotwright.model.quantities import parse_memory
from spotwright.records.state_folder import StateFolder
from spotwright.visible_logs import log_visibly

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Watch until SIGTERM or SIGINT. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.watching.watching_main", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="the state folder of the runs")
    parser.add_argument("--config", type=Path, help="spotwright.yaml; without it pools are read off the nodes")
    parser.add_argument("--kubeconfig")
    parser.add_argument("--context")
    parser.add_argument("--namespace", "-n", default="", help="default: all labelled spotwright.dev/enabled=true")
    parser.add_argument(
        "--lease",
        default="",
        help="NAMESPACE/NAME: wait for this Lease, of several replicas; default: a lock of the folder",
    )
    parser.add_argument(
        "--log-limit", type=parse_memory, default=DEFAULT_LIMIT, help="of one attempt, such as 64Mi; 0 keeps no logs"
    )
    parser.add_argument("--logs", default="", help="the store of logs; default: the state folder")
    parser.add_argument("--verbose", "-v", action="store_true")
    options = parser.parse_args(arguments)
    log_visibly(logging.DEBUG if options.verbose else logging.INFO)
    for noisy in ("httpx2", "httpcore2"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        asyncio.run(_watch(options))
    except SpotwrightError as error:
        logging.getLogger(__name__).error("%s", error)  # noqa: TRY400  # one line, no traceback
        return 1
    return 0


async def _watch(options: argparse.Namespace) -> None:
    config = configuration.load(options.config) if options.config else without_pools()
    state = StateFolder.open(options.state)
    api = Api(connect(find_cluster(options.context, kubeconfig=options.kubeconfig)))
    task = asyncio.ensure_future(
        _elected(options, api, state, config) if options.lease else _only(options, api, state, config)
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await api.close()


async def _only(options: argparse.Namespace, api: Api, state: StateFolder, config: Config) -> None:
    """Watch as the only watcher of this machine that uses the folder."""
    with _alone(options.state):
        await _watch_and_keep_logs(options, api, RunStore(FolderRecords(state), config))


async def _elected(options: argparse.Namespace, api: Api, state: StateFolder, config: Config) -> None:
    """Watch once this replica holds the Lease, and no longer than that."""
    namespace, slash, name = options.lease.partition("/")
    if not (namespace and slash and name):
        raise InputError(f"--lease {options.lease}: give it as NAMESPACE/NAME")
    lease = KubernetesLease(api, namespace, name)

    async def watch(_epoch: int) -> None:
        await _watch_and_keep_logs(options, api, RunStore(FolderRecords(state), config, lease.require))

    await while_held(lease, watch)


async def _watch_and_keep_logs(options: argparse.Namespace, api: Api, store: RunStore) -> None:
    cluster = find_cluster(options.context, kubeconfig=options.kubeconfig)
    streams = partial(connect, cluster, many_streams=True)
    namespaces = [options.namespace] if options.namespace else []
    logs = options.logs or f"file://{options.state.absolute()}/logs"
    place = (
        LogStore(require_url(logs), options.log_limit, FolderRuns(StateFolder(options.state)))
        if options.log_limit
        else None
    )
    await watch_and_keep_logs(api, store, streams, place=place, namespaces=namespaces)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a state folder: two watchers would record everything twice. Raises :class:`RunBusy`."""
    with (folder / "watcher.lock").open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunBusy(f"{folder}: another watcher writes there; end it first") from None
        yield


if __name__ == "__main__":
    raise SystemExit(main())
