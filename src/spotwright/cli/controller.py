"""The group ``controller``: a controller's two processes, and the commands to check and unregister it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spotwright.cli import FAILED, SUCCEEDED, cluster_extra, say
from spotwright.cli.options import Listen
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
_Command = Callable[..., Any]


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
        raise click.BadParameter(f"{text!r} is not a size; use one such as 20Gi")
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


_CLUSTER = (
    click.option(
        "--name",
        default="spotwright",
        show_default=True,
        callback=_name,
        metavar="NAME",
        help="The name of the registration and of the Lease.",
    ),
    click.option("--context", metavar="NAME", help="A context of the kubeconfig.  [default: the current one]"),
    click.option("--kubeconfig", type=_File, metavar="FILE", help="[default: the pod's own cluster, else $KUBECONFIG]"),
)
_PROCESS = (
    click.option("-v", "--verbose", is_flag=True, help="Log every event that is recorded."),
    click.option(
        "--authority", type=_File, metavar="FILE", help="The certificate of the authority behind --certificate."
    ),
    click.option("--key", type=_File, metavar="FILE", help="The key of --certificate."),
    click.option("--certificate", type=_File, metavar="FILE", help="A serving certificate.  [default: own, renewed]"),
    click.option(
        "--metrics-listen",
        type=Listen(),
        metavar="HOST:PORT",
        help="Address for /metrics, in Prometheus' format, over plain HTTP.  [default: 127.0.0.1:9445, if that is free]",
    ),
    click.option(
        "--namespaces",
        callback=_namespaces,
        multiple=True,
        metavar="NAMESPACE,...",
        help="The namespaces that it serves; each is watched alone.  [default: all labelled spotwright.dev/enabled=true]",
    ),
    click.option(
        "--home",
        callback=_namespace,
        metavar="NAMESPACE",
        help="The controller's own namespace, with the cluster's ConfigMap and the Lease.  [default: the pod's, else spotwright]",
    ),
    click.option(
        "--authority-folder",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="FOLDER",
        help="Where the authority is kept that signs its own certificate, so that it is the same after a new start.  "
        "[default: a temporary folder]",
    ),
)


def _cluster_options(command: _Command) -> _Command:
    """Add the options that select a cluster and its controller."""
    for option in _CLUSTER:
        command = option(command)
    return command


def _process_options(command: _Command) -> _Command:
    """Add the options of both processes; the command receives them in ``common``, as fields of its settings."""

    @functools.wraps(command)
    def with_common(
        *,
        kubeconfig: Path | None,
        context: str | None,
        home: str | None,
        namespaces: tuple[str, ...],
        name: str,
        metrics_listen: Address | None,
        certificate: Path | None,
        key: Path | None,
        authority: Path | None,
        authority_folder: Path | None,
        verbose: bool,
        **own: Any,
    ) -> Any:
        _require_extra()
        from spotwright.cluster.controller_settings import CertificateFiles

        files = CertificateFiles(certificate, key, authority) if certificate and key and authority else None
        if files is None and (certificate or key or authority):
            raise click.UsageError("--certificate, --key and --authority: give all three or none")
        _configure_logging(verbose=verbose)
        with ExitStack() as stack:
            folder = authority_folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spotwright-")))
            common = {
                "authority_folder": folder,
                "kubeconfig": None if kubeconfig is None else str(kubeconfig),
                "context": context,
                "home": home or _own_namespace(),
                "name": name,
                "namespaces": namespaces,
                "files": files,
                "metrics_host": "127.0.0.1" if metrics_listen is None else metrics_listen.host,
                "metrics_port": _METRICS_PORT if metrics_listen is None else metrics_listen.port,
                "metrics_are_asked": metrics_listen is not None,
            }
            return command(common, **own)

    decorated = _cluster_options(with_common)
    for option in _PROCESS:
        decorated = option(decorated)
    return decorated


@click.group()
def controller() -> None:
    """Place new workloads in a cluster, and record every attempt.

    Works in the listed namespaces, or in namespaces labeled spotwright.dev/enabled=true, as their ConfigMaps named spotwright
    say. The chart installs it; by hand, start its two processes, webhook and recorder.
    Needs the extra: pip install 'spotwright[cluster]'.
    """


@controller.command()
@_process_options
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
    "--listen",
    type=Listen(),
    default="127.0.0.1:9443",
    show_default=True,
    metavar="HOST:PORT",
    help="Address for API servers; the default is reached from this machine only.",
)
@click.option("--webhook-service", metavar="NAMESPACE/NAME", help="The Service through which API servers reach it.")
@click.option("--webhook-url", metavar="URL", help="The address at which API servers reach it, without a Service.")
@click.option(
    "--client-authority",
    type=_File,
    metavar="FILE",
    help="The authority of the certificates with which API servers log in; then only they may ask for reviews.",
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
    "--no-registration",
    is_flag=True,
    help="Write no authority into the registration: whoever makes --certificate does, such as cert-manager.",
)
def webhook(
    common: dict[str, Any],
    makes_library: bool,
    claim_size: str,
    claim_class: str,
    claim_access_mode: str,
    listen: Address,
    webhook_service: str | None,
    webhook_url: str | None,
    client_authority: Path | None,
    refusal_image: str,
    refusal_user: int,
    argo_executor_images: tuple[str, ...],
    no_registration: bool,
) -> int:
    """Answer admission reviews: place new objects. Runs until SIGTERM."""
    from spotwright.cluster.controller_settings import WebhookSettings
    from spotwright.cluster.webhook_process import run_webhook

    if no_registration and common["files"] is None:
        raise click.UsageError(
            "--no-registration: API servers cannot know the authority of its own certificate; give --certificate"
        )
    if claim_class and not claim_size:
        raise click.UsageError("--claim-class belongs to claims that are made: give --make-claims as well")
    settings = WebhookSettings(
        **common,
        host=listen.host,
        port=listen.port,
        where=_where(webhook_service, webhook_url, home=common["home"]),
        client_authority=client_authority,
        refusal_image=refusal_image,
        refusal_user=refusal_user,
        argo_executor_images=argo_executor_images,
        registers=not no_registration,
        makes_library=makes_library,
        claim_size=claim_size,
        claim_class=claim_class,
        claim_access_mode=claim_access_mode,
    )
    return _run(common, lambda api: run_webhook(settings, api))


@controller.command()
@_process_options
@click.option(
    "--read-listen",
    type=Listen(),
    metavar="HOST:PORT",
    help="Address at which people read logs, with spotwright logs --cluster.  [default: logs are not served]",
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
    "--namespace-log-limit",
    callback=_bytes,
    default="5Gi",
    show_default=True,
    metavar="SIZE",
    help="All logs and archived runs of one namespace; of more the oldest are dropped.",
)
@click.option(
    "--logs",
    default="",
    metavar="URL",
    help="The object store that has the logs: s3://BUCKET/FOLDER, gs://, abfss:// or file:///FOLDER. Its credentials come from "
    "the environment. Runs are archived there a week after their end.  [default: the last 4 KiB of each stand in its record]",
)
@click.option(
    "--repair-group",
    default="spotwright:repair",
    show_default=True,
    metavar="NAME",
    help="The group whose members may delete archived runs, with spotwright prune --cluster. Empty: no one.",
)
def recorder(
    common: dict[str, Any],
    read_listen: Address | None,
    order_limit: float,
    log_limit: int,
    namespace_log_limit: int,
    logs: str,
    repair_group: str,
) -> int:
    """Record attempts, keep their logs, and evict pods that cannot be scheduled. Runs until SIGTERM.

    Of several replicas, only the holder of the Lease works.
    """
    store = _store(logs)
    from spotwright.cluster.controller_settings import RecorderSettings
    from spotwright.cluster.recorder_process import run_recorder

    settings = RecorderSettings(
        **common,
        read_host="127.0.0.1" if read_listen is None else read_listen.host,
        read_port=None if read_listen is None else read_listen.port,
        log_limit=log_limit,
        namespace_log_limit=namespace_log_limit,
        logs=store,
        max_node_provision_time=order_limit,
        repair_group=repair_group,
    )
    return _run(common, lambda api: run_recorder(settings, api))


@controller.command()
@_cluster_options
@click.argument("namespace", callback=_namespace)
def check(kubeconfig: Path | None, context: str | None, name: str, namespace: str) -> int:
    """Create a pod in NAMESPACE by dry run, and report why it is not placed."""
    _require_extra()
    return _ask(kubeconfig, context, lambda api: _check(api, name, namespace))


@controller.command()
@_cluster_options
def unregister(kubeconfig: Path | None, context: str | None, name: str) -> int:
    """Remove the webhook's registration from the cluster."""
    _require_extra()
    return _ask(kubeconfig, context, lambda api: _unregister(api, name))


def _run(common: dict[str, Any], work: Callable[[Api], Coroutine[Any, Any, None]]) -> int:
    """Work until SIGTERM or SIGINT. Returns the exit code."""
    from spotwright.cluster.api_client import ApiFailed

    os.umask(0o077)  # its files are private

    async def run(api: Api) -> int:
        task = asyncio.ensure_future(work(api))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task
        logging.getLogger(__name__).info("ended")
        return SUCCEEDED

    try:
        return _ask(common["kubeconfig"], common["context"], run)
    except ApiFailed as error:
        raise InputError(
            f"{error}; helm upgrade gives the rights that it needs: docs/how-to/cluster/install.md"
        ) from error


def _ask(kubeconfig: Path | str | None, context: str | None, work: Callable[[Api], Coroutine[Any, Any, int]]) -> int:
    """Work with a connection to the cluster. Returns what it returns."""
    from spotwright.cluster.api_client import Api, connect, find_cluster

    async def connected() -> int:
        api = Api(
            connect(
                find_cluster(context, kubeconfig=None if kubeconfig is None else str(kubeconfig)), many_streams=True
            )
        )
        try:
            return await work(api)
        finally:
            await api.close()

    return asyncio.run(connected())


async def _unregister(api: Api, name: str) -> int:
    from spotwright.cluster.install import Registration

    was_there = await Registration(api, name, "").remove()
    say(f"{name}: " + ("no API server asks any more" if was_there else "was not registered"))
    return SUCCEEDED if was_there else FAILED


async def _check(api: Api, name: str, namespace: str) -> int:
    """Retry for up to 30 s until a pod of the namespace would be placed: a controller that has just started is not ready.

    The reason for waiting is printed at once, and again when it changes.
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


def _where(service: str | None, url: str | None, *, home: str) -> tuple[str, str] | str:
    """How API servers reach the webhook: inside a cluster, the Service ``spotwright`` of the controller's namespace."""
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
    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise click.UsageError("say how API servers reach it: --webhook-service or --webhook-url")
    return home, "spotwright"


def _own_namespace() -> str:
    try:
        return _NAMESPACE_FILE.read_text(encoding="ascii").strip()
    except OSError:  # not in a pod
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
