"""``python -m spotwright.cluster.reading_main``: the server that people read from as a process of its own, beside a watcher."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import ssl
from pathlib import Path

from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.log_parts import require_url
from spotwright.cluster.run_api import PORT, serving_context, start_reading
from spotwright.errors import InputError, SpotwrightError
from spotwright.records.state_folder import StateFolder
from spotwright.visible_logs import log_visibly

__all__ = ["main"]


_LOG = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spotwright.cluster.reading_main", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="the state folder of the runs")
    parser.add_argument("--certificate", type=Path, required=True, help="the server's certificate, PEM")
    parser.add_argument("--key", type=Path, required=True, help="its key, PEM")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; default: this machine alone")
    parser.add_argument("--port", type=int, default=PORT, help="0 for any free one, which is printed")
    parser.add_argument("--logs", default="", help="the store of logs; default: the state folder")
    parser.add_argument("--kubeconfig")
    parser.add_argument("--context")
    options = parser.parse_args(arguments)
    log_visibly(logging.INFO)
    for noisy in ("httpx2", "httpcore2"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        asyncio.run(_serve(options))
    except SpotwrightError as error:
        _LOG.error("%s", error)  # one line, no traceback
        return 1
    return 0


async def _serve(options: argparse.Namespace) -> None:
    state = StateFolder.existing(options.state)
    logs = require_url(options.logs) if options.logs else ""
    api = Api(connect(find_cluster(options.context, kubeconfig=options.kubeconfig)))
    try:
        context = serving_context(options.certificate, options.key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"{options.certificate}: cannot be used as a certificate with {options.key}: {error}"
        ) from error
    ends = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    runner = await start_reading(state, api, context, host=options.host, port=options.port, logs=logs)
    _LOG.info("serves %s on port %d", options.state, runner.addresses[0][1])
    await ends.wait()
    await runner.cleanup()
    await api.close()


if __name__ == "__main__":
    raise SystemExit(main())
