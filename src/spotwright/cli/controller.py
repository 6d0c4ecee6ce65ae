"""The ``controller`` command: its options, and the process that they start."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from functools import partial
from pathlib import Path

import click
import yaml

from spotwright.cli import FAILED, SUCCEEDED, cluster_extra, say
from spotwright.cli.options import Listen, state_option
from spotwright.model.quantities import parse_duration, parse_memory
from spotwright.notices.agent import Address

__all__ = ["controller"]


_ACCOUNT = "spotwright-controller"
_METRICS_PORT = 9445
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_File = click.Path(path_type=Path, dir_okay=False)


def _bytes(_ctx: click.Context, _parameter: click.Parameter, text: str) -> int:
    try:
        return parse_memory(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _duration(_ctx: click.Context, _parameter: click.Parameter, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@state_option
@click.option("--kubeconfig", type=_File, metavar="FILE", help="[default: the pod's own cluster, else $KUBECONFIG]")
@click.option("--context", metavar="NAME", help="A context of the kubeconfig.  [default: the current one]")
@click.option(
    "--home",
    metavar="NAMESPACE",
    help="The controller's own namespace, with the cluster's ConfigMap and the Lease.  [default: the pod's, else spotwright]",
)
@click.option("--name", default="spotwright", show_default=True, help="The name of the registration and of the Lease.")
@click.option(
    "--listen",
    type=Listen(),
    default="127.0.0.1:9443",
    show_default=True,
    metavar="HOST:PORT",
    help="Address for API servers; the default is reached from this machine only.",
)
@click.option(
    "--read-listen",
    type=Listen(),
    metavar="HOST:PORT",
    help="Address for --cluster of runs, show, logs, report and explain.",
)
@click.option(
    "--metrics-listen",
    type=Listen(),
    metavar="HOST:PORT",
    help="Address for /metrics, in Prometheus' format, over plain HTTP.  [default: 127.0.0.1:9445, if that is free]",
)
@click.option("--webhook-service", metavar="NAMESPACE/NAME", help="The Service through which API servers reach it.")
@click.option("--webhook-url", metavar="URL", help="The address at which API servers reach it, without a Service.")
@click.option("--certificate", type=_File, metavar="FILE", help="A serving certificate.  [default: own, renewed]")
@click.option("--key", type=_File, metavar="FILE", help="The key of --certificate.")
@click.option("--authority", type=_File, metavar="FILE", help="The certificate of the authority behind --certificate.")
@click.option(
    "--refusal-image", default="busybox:1", show_default=True, help="A small image with a shell, for refused pods."
)
@click.option(
    "--max-node-provision-time",
    "order_limit",
    callback=_duration,
    default="15m",
    show_default=True,
    metavar="DURATION",
    help="How long a pod is left where it waits because an autoscaler has ordered its node: the autoscaler's own limit.",
)
@click.option(
    "--log-limit",
    callback=_bytes,
    default="64Mi",
    show_default=True,
    metavar="SIZE",
    help="The largest log of one attempt; 0 keeps no logs.",
)
@click.option("--no-webhook", is_flag=True, help="Watch only.")
@click.option("--no-watch", is_flag=True, help="Answer reviews only.")
@click.option("--unregister", is_flag=True, help="Take the webhook's registration out of the cluster, and end.")
@click.option("--print-rbac", is_flag=True, help="Print the rights that it needs, as YAML, and end.")
@click.option("-v", "--verbose", is_flag=True, help="Log every event that is recorded.")
def controller(
    state: Path,
    kubeconfig: Path | None,
    context: str | None,
    home: str | None,
    name: str,
    listen: Address,
    read_listen: Address | None,
    metrics_listen: Address | None,
    webhook_service: str | None,
    webhook_url: str | None,
    certificate: Path | None,
    key: Path | None,
    authority: Path | None,
    refusal_image: str,
    order_limit: float,
    log_limit: int,
    no_webhook: bool,
    no_watch: bool,
    unregister: bool,
    print_rbac: bool,
    verbose: bool,
) -> int:
    """Place what is created in a cluster, and record every attempt.

    Works in namespaces with the label spotwright.dev/enabled=true, by the ConfigMaps named spotwright. Runs until SIGTERM.
    Needs the extra: pip install 'spotwright[cluster]'.
    """
    _require_extra()
    from spotwright.cluster.controller_settings import CertificateFiles, Settings
    from spotwright.cluster.install import permissions

    own = home or _own_namespace()
    if print_rbac:
        say(yaml.safe_dump_all(permissions(own, _ACCOUNT, name), sort_keys=False), nl=False)
        return SUCCEEDED
    if no_webhook and no_watch:
        raise click.UsageError("--no-webhook and --no-watch leave nothing to do")
    if no_webhook and read_listen is not None:
        raise click.UsageError("--read-listen uses the webhook's certificate: leave out --no-webhook")
    files = CertificateFiles(certificate, key, authority) if certificate and key and authority else None
    if files is None and (certificate or key or authority):
        raise click.UsageError("--certificate, --key and --authority: give all three or none")
    settings = Settings(
        state=state,
        home=own,
        host=listen.host,
        port=listen.port,
        read_host="127.0.0.1" if read_listen is None else read_listen.host,
        read_port=None if read_listen is None else read_listen.port,
        metrics_host="127.0.0.1" if metrics_listen is None else metrics_listen.host,
        metrics_port=_METRICS_PORT if metrics_listen is None else metrics_listen.port,
        metrics_are_asked=metrics_listen is not None,
        where=_where(webhook_service, webhook_url, is_needed=not (no_webhook or unregister), home=own),
        files=files,
        name=name,
        refusal_image=refusal_image,
        log_limit=log_limit,
        max_node_provision_time=order_limit,
        has_webhook=not no_webhook,
        watches=not no_watch,
    )
    _configure_logging(verbose=verbose)
    return asyncio.run(_main(settings, context, kubeconfig, unregister=unregister))


async def _main(settings: object, context: str | None, kubeconfig: Path | None, *, unregister: bool) -> int:
    """Run the controller, or take its registration out. Returns the exit code."""
    from spotwright.cluster.api_client import Api, connect, find_cluster
    from spotwright.cluster.controller import run_controller
    from spotwright.cluster.controller_settings import Settings
    from spotwright.cluster.install import Registration

    if not isinstance(settings, Settings):
        raise TypeError("the settings are made by this module")
    cluster = find_cluster(context, kubeconfig=None if kubeconfig is None else str(kubeconfig))
    api = Api(connect(cluster))
    try:
        if unregister:
            was_there = await Registration(api, settings.name, settings.where).remove()
            say(f"{settings.name}: " + ("no API server asks any more" if was_there else "was not registered"))
            return SUCCEEDED if was_there else FAILED
        task = asyncio.ensure_future(run_controller(settings, api, partial(connect, cluster)))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        await api.close()
    logging.getLogger(__name__).info("ended")
    return SUCCEEDED


def _where(service: str | None, url: str | None, *, is_needed: bool, home: str) -> tuple[str, str] | str:
    """How API servers reach the webhook. Inside a cluster, the Service ``spotwright`` of the controller's namespace."""
    if service and url:
        raise click.UsageError("--webhook-service and --webhook-url exclude each other: choose one")
    if url:
        if not url.startswith("https://"):
            raise click.BadParameter(f"{url!r}: API servers ask by https alone", param_hint="--webhook-url")
        return url
    if service:
        namespace, slash, name = service.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise click.BadParameter(f"{service!r}: expected NAMESPACE/NAME", param_hint="--webhook-service")
        return namespace, name
    if is_needed and "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise click.UsageError("say how API servers reach it: --webhook-service or --webhook-url; or --no-webhook")
    return home, "spotwright"


def _own_namespace() -> str:
    try:
        return _NAMESPACE_FILE.read_text(encoding="ascii").strip()
    except OSError:  # this is no pod
        return "spotwright"


def _require_extra() -> None:
    """Raise :class:`InputError` where the libraries of the extra are missing."""
    with cluster_extra("the controller"):
        import cryptography
        import lightkube
    del cryptography, lightkube


def _configure_logging(*, verbose: bool) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    for noisy in ("httpx2", "httpcore2", "asyncio", "aiohttp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
