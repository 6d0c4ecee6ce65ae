"""The ``controller`` command: its options, and the process that they start."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spotwright.cli import FAILED, SUCCEEDED, cluster_extra, say
from spotwright.cli.options import Listen, state_option
from spotwright.errors import InputError
from spotwright.model.quantities import parse_duration, parse_memory
from spotwright.notices.agent import Address
from spotwright.visible_logs import log_visibly

if TYPE_CHECKING:
    from spotwright.cluster.api_client import Api

__all__ = ["controller"]


_METRICS_PORT = 9445
_CHECK_FOR, _CHECK_AGAIN = 30.0, 2.0  # seconds
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_File = click.Path(path_type=Path, dir_okay=False)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_IMAGE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:/@-]*")


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


def _quantity(ctx: click.Context, parameter: click.Parameter, text: str) -> str:
    """A size as Kubernetes reads it; empty for none."""
    if text and _bytes(ctx, parameter, text) <= 0:
        raise click.BadParameter(f"{text!r} is no size: expected one such as 20Gi")
    return text


def _namespaces(_ctx: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """The names of comma lists, each once in order."""
    names = [name.strip() for text in texts for name in text.split(",")]
    wrong = next((name for name in names if not _NAMESPACE.fullmatch(name)), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is not the name of a namespace: expected names such as team-a,team-b")
    return tuple(dict.fromkeys(names))


def _namespace(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    if text is not None and not _NAMESPACE.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not the name of a namespace: expected a name such as team-a")
    return text


def _name(_ctx: click.Context, _parameter: click.Parameter, text: str) -> str:
    if not _NAME.fullmatch(text):
        raise click.BadParameter(f"{text!r} cannot be the name of an object: expected lower case, such as spotwright")
    return text


def _class(context: click.Context, parameter: click.Parameter, text: str) -> str:
    return _name(context, parameter, text) if text else text


def _image(_ctx: click.Context, _parameter: click.Parameter, text: str) -> str:
    if not _IMAGE.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not the name of an image: expected one such as busybox:1")
    return text


def _images(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_image(context, parameter, text) for text in texts)


def _store(url: str) -> str:
    """The address of a store of logs; empty for none."""
    from spotwright.cluster.log_parts import require_url

    try:
        return require_url(url) if url else ""
    except InputError as error:
        raise click.BadParameter(str(error), param_hint="--logs") from error


def _user(_ctx: click.Context, _parameter: click.Parameter, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise click.BadParameter(f"{text!r} is not the number of a user: expected one from 0, such as 65532")
    return int(text)


@click.command()
@state_option
@click.option("--kubeconfig", type=_File, metavar="FILE", help="[default: the pod's own cluster, else $KUBECONFIG]")
@click.option("--context", metavar="NAME", help="A context of the kubeconfig.  [default: the current one]")
@click.option(
    "--home",
    callback=_namespace,
    metavar="NAMESPACE",
    help="The controller's own namespace, with the cluster's ConfigMap and the Lease.  [default: the pod's, else spotwright]",
)
@click.option(
    "--namespaces",
    callback=_namespaces,
    multiple=True,
    metavar="NAMESPACE,...",
    help="The namespaces that it serves; each is watched alone.  [default: all labelled spotwright.dev/enabled=true]",
)
@click.option(
    "--make-library",
    "makes_library",
    is_flag=True,
    help="Make the ConfigMap with the checkpoint library in every served namespace, which needs the right to create ConfigMaps "
    "there. Without it, make it once in each: spotwright checkpoint-file --config-map | kubectl -n NAMESPACE apply -f -",
)
@click.option(
    "--make-claims",
    "claim_size",
    default="",
    callback=_quantity,
    metavar="SIZE",
    help="Make the claims that the namespaces' policies name (checkpoint: pvc://NAME) with this size, such as 20Gi, which needs "
    "the right to create PersistentVolumeClaims there.  [default: none are made]",
)
@click.option(
    "--claim-class",
    default="",
    callback=_class,
    metavar="NAME",
    help="The storage class of these claims.  [default: the cluster's]",
)
@click.option(
    "--claim-access-mode",
    type=click.Choice(["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]),
    default="ReadWriteMany",
    show_default=True,
    help="The access mode of these claims. Only ReadWriteMany lets pods on several nodes save at once.",
)
@click.option(
    "--name",
    default="spotwright",
    show_default=True,
    callback=_name,
    metavar="NAME",
    help="The name of the registration and of the Lease.",
)
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
    "--client-authority",
    type=_File,
    metavar="FILE",
    help="The authority of the certificates with which API servers log in; then nobody else may ask for reviews.",
)
@click.option(
    "--refusal-image",
    default="busybox:1",
    callback=_image,
    show_default=True,
    metavar="IMAGE",
    help="The image of refused pods, which needs a POSIX shell alone. The default comes from docker.io: where nodes cannot pull "
    "from there, name one that they can pull, such as the controller's own image (the chart does that).",
)
@click.option(
    "--refusal-user",
    default="65532",
    callback=_user,
    show_default=True,
    metavar="UID",
    help="The user of refused pods, never root. 0: the pod's own user, or else the image's, where the platform gives each "
    "namespace its users.",
)
@click.option(
    "--argo-executor-image",
    "argo_executor_images",
    callback=_images,
    multiple=True,
    metavar="IMAGE",
    help="An image of Argo's own containers, which a refused pod keeps; tags do not count. It can be repeated.  "
    "[default: every image named argoexec]",
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
@click.option(
    "--records",
    type=click.Choice(["api", "folder"]),
    default="folder",
    show_default=True,
    help="Where runs are recorded: as objects of the Kubernetes API, whose kinds the chart installs, or in the state folder.",
)
@click.option(
    "--namespace-log-limit",
    callback=_bytes,
    default="5Gi",
    show_default=True,
    metavar="SIZE",
    help="All logs of one namespace; of more the oldest are dropped.",
)
@click.option(
    "--logs",
    default="",
    metavar="URL",
    help="The object store that has the logs: s3://BUCKET/FOLDER, gs://, abfss:// or file:///FOLDER. Its credentials come from "
    "the environment.  [default: the state folder has them]",
)
@click.option("--no-webhook", is_flag=True, help="Watch only.")
@click.option("--no-watch", is_flag=True, help="Answer reviews only.")
@click.option(
    "--no-registration",
    is_flag=True,
    help="Write no authority into the registration: whoever makes --certificate does, such as cert-manager.",
)
@click.option(
    "--check",
    callback=_namespace,
    metavar="NAMESPACE",
    help="Create a pod there by dry run, say what keeps it from being placed, and end.",
)
@click.option("--unregister", is_flag=True, help="Take the webhook's registration out of the cluster, and end.")
@click.option("-v", "--verbose", is_flag=True, help="Log every event that is recorded.")
def controller(
    state: Path,
    kubeconfig: Path | None,
    context: str | None,
    home: str | None,
    namespaces: tuple[str, ...],
    makes_library: bool,
    claim_size: str,
    claim_class: str,
    claim_access_mode: str,
    name: str,
    listen: Address,
    read_listen: Address | None,
    metrics_listen: Address | None,
    webhook_service: str | None,
    webhook_url: str | None,
    certificate: Path | None,
    key: Path | None,
    authority: Path | None,
    client_authority: Path | None,
    refusal_image: str,
    refusal_user: int,
    argo_executor_images: tuple[str, ...],
    order_limit: float,
    log_limit: int,
    records: str,
    namespace_log_limit: int,
    logs: str,
    no_webhook: bool,
    no_watch: bool,
    no_registration: bool,
    check: str | None,
    unregister: bool,
    verbose: bool,
) -> int:
    """Place what is created in a cluster, and record every attempt.

    Works in the namespaces that are listed, or in those with the label spotwright.dev/enabled=true, by the ConfigMaps named
    spotwright. Runs until SIGTERM.
    Needs the extra: pip install 'spotwright[cluster]'.
    """
    _require_extra()
    store = _store(logs)
    from spotwright.cluster.controller_settings import CertificateFiles, Settings

    own = home or _own_namespace()
    if no_webhook and no_watch:
        raise click.UsageError("--no-webhook and --no-watch leave nothing to do")
    if no_webhook and read_listen is not None:
        raise click.UsageError("--read-listen uses the webhook's certificate: leave out --no-webhook")
    files = CertificateFiles(certificate, key, authority) if certificate and key and authority else None
    if files is None and (certificate or key or authority):
        raise click.UsageError("--certificate, --key and --authority: give all three or none")
    if no_registration and files is None:
        raise click.UsageError(
            "--no-registration: nobody else knows the authority of its own certificate; give --certificate"
        )
    if claim_class and not claim_size:
        raise click.UsageError("--claim-class belongs to claims that are made: give --make-claims as well")
    settings = Settings(
        state=state,
        kubeconfig=None if kubeconfig is None else str(kubeconfig),
        context=context,
        home=own,
        host=listen.host,
        port=listen.port,
        read_host="127.0.0.1" if read_listen is None else read_listen.host,
        read_port=None if read_listen is None else read_listen.port,
        metrics_host="127.0.0.1" if metrics_listen is None else metrics_listen.host,
        metrics_port=_METRICS_PORT if metrics_listen is None else metrics_listen.port,
        metrics_are_asked=metrics_listen is not None,
        where=_where(webhook_service, webhook_url, is_needed=not (no_webhook or unregister or check), home=own),
        files=files,
        client_authority=client_authority,
        name=name,
        refusal_image=refusal_image,
        refusal_user=refusal_user,
        argo_executor_images=argo_executor_images,
        log_limit=log_limit,
        records_in_api=records == "api",
        namespace_log_limit=namespace_log_limit,
        logs=store,
        max_node_provision_time=order_limit,
        has_webhook=not no_webhook,
        watches=not no_watch,
        registers=not no_registration,
        namespaces=namespaces,
        makes_library=makes_library,
        claim_size=claim_size,
        claim_class=claim_class,
        claim_access_mode=claim_access_mode,
    )
    _configure_logging(verbose=verbose)
    return asyncio.run(_main(settings, check=check, unregister=unregister))


async def _main(settings: object, *, check: str | None, unregister: bool) -> int:
    """Run the controller, look whether it places pods, or take its registration out. Returns the exit code."""
    from spotwright.cluster.api_client import Api, connect, find_cluster
    from spotwright.cluster.controller import run_controller
    from spotwright.cluster.controller_settings import Settings
    from spotwright.cluster.install import Registration

    if not isinstance(settings, Settings):
        raise TypeError("the settings are made by this module")
    api = Api(connect(find_cluster(settings.context, kubeconfig=settings.kubeconfig), many_streams=True))
    try:
        if check:
            return await _check(api, settings.name, check)
        if unregister:
            was_there = await Registration(api, settings.name, settings.where).remove()
            say(f"{settings.name}: " + ("no API server asks any more" if was_there else "was not registered"))
            return SUCCEEDED if was_there else FAILED
        os.umask(0o077)  # what it writes is for itself alone, also in the processes that it starts
        task = asyncio.ensure_future(run_controller(settings, api))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        await api.close()
    logging.getLogger(__name__).info("ended")
    return SUCCEEDED


async def _check(api: Api, name: str, namespace: str) -> int:
    """Look until a pod of the namespace would be placed, for some time: a controller that has just begun is not ready.

    What is waited for is said at once, and again where it is something else.
    """
    from spotwright.cluster.install import obstacle

    found, ends, said = await obstacle(api, name, namespace), time.monotonic() + _CHECK_FOR, ""
    while found is not None and found.may_pass and time.monotonic() < ends:
        if found.text != said:
            said = found.text
            say(f"{namespace}: not yet, and looked at again for up to {ends - time.monotonic():.0f} s: {said}")
        await asyncio.sleep(_CHECK_AGAIN)
        found = await obstacle(api, name, namespace)
    say(f"{namespace}: a pod that is created there is placed" if found is None else found.text)
    return SUCCEEDED if found is None else FAILED


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
    log_visibly(logging.DEBUG if verbose else logging.INFO)
    for noisy in ("httpx2", "httpcore2", "asyncio", "aiohttp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
