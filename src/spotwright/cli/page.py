"""The ``page`` command: runs in a browser, from a server that listens on this machine alone."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from spotwright.cli import STOPPED, SUCCEEDED
from spotwright.cli.cluster import Place, place_options
from spotwright.cli.options import Listen
from spotwright.errors import InputError

if TYPE_CHECKING:
    from spotwright.notices.agent import Address

__all__ = ["page", "serve"]

_BASE = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")


@click.command()
@click.argument("name", metavar="[RUN]", required=False)
@click.option(
    "--listen",
    type=Listen(),
    default="127.0.0.1:8790",
    show_default=True,
    metavar="HOST:PORT",
    help="The address to listen at; port 0 for a free one. Without this option the next free port is taken.",
)
@click.option("--no-browser", is_flag=True, help="Open no browser.")
@click.option("--base-path", default="", metavar="/PATH", help="Serve below this path, for a proxy that passes it on.")
@click.option("--host-name", "host_names", multiple=True, metavar="NAME", help="A name under which a proxy serves it.")
@click.option("--kfp-url", default="", metavar="URL", help="The KFP page, to which runs with an id there get a link.")
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Show beside runs what 'spotwright plan --json' had printed into this file.",
)
@click.option("--workers", type=click.IntRange(1, 16), default=1, show_default=True, help="Processes that read runs.")
@place_options
def page(
    place: Place,
    name: str | None,
    listen: Address,
    no_browser: bool,
    base_path: str,
    host_names: tuple[str, ...],
    kfp_url: str,
    plan_file: Path | None,
    workers: int,
) -> int:
    """Show runs in a browser: what happened, why each attempt ended, its log, and what was spent.

    RUN is the run to open, or 'last'; by default the list of runs. Ctrl-C ends the page.

    The printed address has a token, new at each start. The page reads, and changes nothing.
    """
    from spotwright.page.security import is_loopback

    if not is_loopback(listen.host):
        raise click.UsageError(
            f"--listen {listen.host}: the page has no login, so it listens on this machine alone: use 127.0.0.1, and for another "
            "machine 'ssh -L'"
        )
    if not _BASE.fullmatch(base_path):
        raise click.UsageError(f"--base-path {base_path!r}: expected a path such as /spotwright")
    if kfp_url and not kfp_url.startswith(("http://", "https://")):
        raise click.UsageError(f"--kfp-url {kfp_url!r}: expected an address that begins with http:// or https://")
    source: dict[str, Any] = {"state": str(place.state.absolute())}
    if place.cluster:
        from spotwright.cli import cluster_extra

        with cluster_extra("--cluster"):
            import spotwright.cluster.run_api_client  # noqa: F401
        source = {
            "cluster": True,
            "context": place.context,
            "namespace": place.namespace,
            "kubeconfig": place.kubeconfig,
            "controller": place.controller,
        }
    settings = {"source": source, "kfp_url": kfp_url, "plan": None if plan_file is None else str(plan_file.absolute())}
    is_chosen = click.get_current_context().get_parameter_source("listen") is click.core.ParameterSource.COMMANDLINE
    return serve(
        settings, listen, run=name or "", base=base_path.rstrip("/"), host_names=host_names, workers=workers,
        opens=not no_browser, only_port=is_chosen,
    )  # fmt: skip


def serve(
    settings: dict[str, Any],
    listen: Address,
    *,
    run: str = "",
    base: str = "",
    host_names: tuple[str, ...] = (),
    workers: int = 1,
    opens: bool = True,
    only_port: bool = True,
) -> int:
    """Serve the page until Ctrl-C or SIGTERM. ``only_port``: fail where the port is taken, rather than take the next free one."""
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(_serve(settings, listen, run, base, host_names, workers, opens=opens, only_port=only_port))
    return STOPPED


async def _serve(
    settings: dict[str, Any],
    listen: Address,
    run: str,
    base: str,
    host_names: tuple[str, ...],
    workers: int,
    *,
    opens: bool,
    only_port: bool,
) -> int:
    from aiohttp import web

    from spotwright.page.files import PageFiles
    from spotwright.page.identity import LocalToken
    from spotwright.page.server import PageServer
    from spotwright.page.vendor import ensure_vendor
    from spotwright.page.workers import Workers
    from spotwright.version import __version__

    ensure_vendor()
    sockets = _bound(listen, only_port=only_port)
    port = sockets.getsockname()[1]
    identity = LocalToken(port)
    about = {
        "version": __version__,
        "source": "cluster" if settings["source"].get("cluster") else "state",
        "place": settings["source"].get("state") or settings["source"].get("context") or "",
    }
    server = PageServer(
        Workers(settings, workers), identity, PageFiles(), about=about, base=base, host_names=host_names
    )
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.SockSite(runner, sockets).start()
        url = _address(listen.host, port, base, run, identity.token)
        click.echo(f"the page is at {url}")
        click.echo("Ctrl-C ends it", err=True)
        sys.stdout.flush()
        if opens:
            _open_browser(url)
        await _end()
    finally:
        await runner.cleanup()
    return SUCCEEDED


def _bound(listen: Address, *, only_port: bool) -> Any:
    """A socket at the address; where the port is taken and nobody insists on it, at the next free one."""
    import socket

    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    for port in [listen.port] if only_port or not listen.port else [*range(listen.port, listen.port + 20), 0]:
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((listen.host, port))
            found.listen(128)
        except OSError as error:
            found.close()
            refused = error
            continue
        return found
    raise InputError(f"--listen {listen.host}:{listen.port}: cannot be listened at ({refused.strerror})")


def _address(host: str, port: int, base: str, run: str, token: str) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}{base}/{f'runs/{quote(run)}' if run else ''}?token={token}"


def _open_browser(url: str) -> None:
    """Open the browser of the desktop; where there is none, the printed address is all there is."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


async def _end() -> None:
    """Wait for SIGINT or SIGTERM."""
    ends = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ends.set)
    await ends.wait()
