"""Runs controllers as processes in the control plane's network: Argo, JobSet, Trainer, Kueue, KWOK, Karpenter, Katib.

CRDs and webhooks are those of the published modules. A webhook's Service becomes an address of the control plane, and its
certificate is made here, so a controller must not manage certificates itself: our configurations switch that off.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from testbed.building.builds import Cache
from testbed.building.images import ARGOEXEC
from testbed.control import katib
from testbed.control.api import Api, has_condition
from testbed.control.credentials import Credentials
from testbed.errors import TestbedError
from testbed.machine.processes import Processes, wait_until
from testbed.settings import NETWORK, Settings

__all__ = ["NEEDS", "run_again", "start"]

_CONFIGURATION = Path(__file__).resolve().parent / "configuration"
_LAYERED = (
    "unshare", "--mount", "--propagation", "private",
    "sh", "-ec", 'mount -t overlay overlay -o "lowerdir=$0:/etc" /etc; exec "$@"',
)  # fmt: skip
"""Runs a command with a folder laid over /etc that only the command sees."""

NEEDS: Mapping[str, tuple[str, ...]] = {
    "trainer": ("jobset",),
    "kueue": ("jobset", "trainer"),
    "karpenter": ("kwok",),
    "katib": ("jobset", "trainer"),
}
"""Which controllers must run before one starts, where the cluster has them: it looks for their kinds once, when it starts."""

_TIMEOUT = 180.0  # seconds until a controller serves, on a busy machine


@dataclass(frozen=True, slots=True)
class _Controller:
    """One controller, which serves ``health`` inside the control plane's network once it works.

    Of the module's webhooks those are installed whose path contains one of ``webhooks``.
    """

    program: str
    arguments: tuple[str, ...]
    health: str
    has_manifests: bool = True
    port: int = 0  # of the webhooks; 9443 and the next ones are Spotwright's by default
    webhooks: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    certificates: str = ""  # folder below /etc where it reads the same certificate once more


_CONTROLLERS = {
    "argo": _Controller(
        "workflow-controller",
        (
            "--kubeconfig={kubeconfig}",
            "--namespace=argo",
            f"--executor-image={ARGOEXEC}",
            "--executor-image-pull-policy=Never",
        ),
        "http://127.0.0.1:6060/healthz",
        environment={"LEADER_ELECTION_DISABLE": "true", "DEFAULT_REQUEUE_TIME": "1s"},
    ),
    "jobset": _Controller(
        "jobset",
        ("--config={configuration}/jobset.yaml",),
        "http://127.0.0.1:8081/readyz",
        port=9643,
        webhooks=("-jobset",),  # those of pods are for exclusive placement, and would stand in the way of every pod
    ),
    "trainer": _Controller(
        "trainer",
        ("--config={configuration}/trainer.yaml",),
        "http://127.0.0.1:8082/readyz",
        port=9644,
        webhooks=("trainer",),
    ),
    "kueue": _Controller(
        "kueue",
        ("--config={configuration}/kueue.yaml", "--feature-gates=VisibilityOnDemand=false"),
        "http://127.0.0.1:8083/readyz",
        port=9645,
        webhooks=("batch-v1-job", "v1alpha2-jobset", "v1alpha1-trainjob", "kueue-x-k8s-io"),
        certificates="/etc/kueue/metrics/certs",
    ),
    "kwok": _Controller(
        "kwok",
        (
            "--kubeconfig={kubeconfig}",
            "--config={configuration}/kwok.yaml",
            "--node-lease-duration-seconds=200",  # renewed at a quarter of it: 500 nodes write ten times a second
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--server-address=127.0.0.1:10247",
        ),
        "http://127.0.0.1:10247/healthz",
        has_manifests=False,
    ),
    "karpenter": _Controller(
        "karpenter",
        (
            "--instance-types-file-path={configuration}/karpenter-instance-types.json",
            "--disable-leader-election=true",
            "--health-probe-port=8084",
            "--metrics-port=0",
        ),
        "http://127.0.0.1:8084/readyz",
    ),
    "katib": _Controller(
        "katib-controller",
        (f"--katib-config={katib.CONFIGURATION}",),
        "http://127.0.0.1:8086/readyz",
        port=9646,
        webhooks=("experiment", "mutate-pod"),
        environment=katib.ENVIRONMENT,
    ),
}


def start(settings: Settings, names: Sequence[str]) -> None:
    """Install and start controllers, all at once, and wait until they work. Some need the CRDs of others, so these come first."""
    if not names:
        return
    api, cache = Api(settings), Cache(settings.cache)
    manifests = {
        name: _read(sorted(cache.manifests(name).rglob("*.yaml"))) if _CONTROLLERS[name].has_manifests else []
        for name in names
    }
    _install_crds(api, [item for objects in manifests.values() for item in objects])
    with ThreadPoolExecutor(len(names)) as threads:
        starting = [threads.submit(_start, settings, name, objects) for name, objects in manifests.items()]
    for future in starting:
        future.result()


def _start(settings: Settings, name: str, manifests: list[dict[str, Any]]) -> None:
    controller, api = _CONTROLLERS[name], Api(settings)
    ours = _CONFIGURATION / f"{name}-objects.yaml"
    if ours.exists():
        api.apply(_read([ours]))
    certificate = _make_certificate(settings, name) if controller.port else None
    if name == "katib" and certificate is not None:
        katib.start_parts(settings, *certificate)
    run_again(settings, name)
    if controller.port:
        address = ["socat", "-u", "/dev/null", f"TCP:{NETWORK.control_plane}:{controller.port}"]
        wait_until(lambda: _succeeds(settings, address), f"the webhooks of {name}", _TIMEOUT)
        authority = base64.b64encode(Credentials(settings).ca.read_bytes()).decode()
        api.apply([_webhooks(item, name, controller, authority) for item in manifests if "webhooks" in item])


def run_again(settings: Settings, name: str) -> None:
    """Start the process of an installed controller, after ending it if it runs, and wait until it works."""
    controller, processes = _CONTROLLERS[name], Processes(settings)
    processes.end(name)
    places = {"kubeconfig": settings.inside_kubeconfig, "configuration": _CONFIGURATION}
    command: list[str | Path] = [Cache(settings.cache).program(controller.program)]
    if controller.certificates:
        command = [*_LAYERED, _temporary(settings, name) / "etc", *command]
    if name == "katib":
        command = [*katib.command(settings), *command]
    arguments = [argument.format(**places) for argument in controller.arguments]
    environment = {"KUBECONFIG": str(settings.inside_kubeconfig), **controller.environment}
    if controller.port:
        environment["TMPDIR"] = str(_temporary(settings, name))
    processes.start(name, [*command, *arguments], namespace=settings.namespace, environment=environment)
    health = ["/bin/busybox", "wget", "-q", "-O", "/dev/null", controller.health]
    wait_until(lambda: _is_up(settings, name, health), f"{name}; see {processes.log(name)}", _TIMEOUT)


def _install_crds(api: Api, manifests: list[dict[str, Any]]) -> None:
    """Install the CRDs among manifests without their conversion webhooks: one version of each is used here."""
    crds = [item for item in manifests if item["kind"] == "CustomResourceDefinition"]
    for item in crds:
        item["spec"].pop("conversion", None)
    if crds:
        api.apply(crds)
    for item in crds:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{item['metadata']['name']}"
        wait_until(partial(_established, api, path), path, _TIMEOUT)


def _established(api: Api, path: str) -> bool:
    return has_condition(api.get(path), "Established")


def _temporary(settings: Settings, name: str) -> Path:
    return settings.folder / "tmp" / name


def _make_certificate(settings: Settings, name: str) -> tuple[Path, Path]:
    """Put a certificate where controller-runtime looks for one: in its folder below that of temporary files.

    Returns its file and that of its key.
    """
    credentials = Credentials(settings)
    certificate, key = credentials.serving(name, name, (f"IP:{NETWORK.control_plane}",))
    folders = [_temporary(settings, name) / "k8s-webhook-server" / "serving-certs"]
    if _CONTROLLERS[name].certificates:
        folders.append(_temporary(settings, name) / _CONTROLLERS[name].certificates.lstrip("/"))
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(certificate, folder / "tls.crt")
        shutil.copy(key, folder / "tls.key")
    return certificate, key


def _webhooks(item: dict[str, Any], name: str, controller: _Controller, authority: str) -> dict[str, Any]:
    """A webhook configuration with addresses in place of Services, and a separate name."""
    kept = []
    for webhook in item["webhooks"]:
        client = webhook["clientConfig"]
        path = client["service"]["path"]
        if any(part in path for part in controller.webhooks):
            url = f"https://{NETWORK.control_plane}:{controller.port}{path}"
            kept.append({**webhook, "clientConfig": {"url": url, "caBundle": authority}})
    metadata = {**item["metadata"], "name": f"{name}-{item['metadata']['name']}"}
    return {**item, "metadata": metadata, "webhooks": kept}


def _is_up(settings: Settings, name: str, health: list[str]) -> bool:
    """Whether a controller answers; raise as soon as its process has ended."""
    processes = Processes(settings)
    if processes.pid(name) is None:
        raise TestbedError(f"{name} has ended; see {processes.log(name)}")
    return _succeeds(settings, health)


def _succeeds(settings: Settings, command: list[str]) -> bool:
    """Whether a command ends well inside the control plane's network."""
    words = ["nsenter", f"--net=/run/netns/{settings.namespace}", *command]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _read(paths: list[Path]) -> list[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times as fast
    return [item for path in paths for item in yaml.load_all(path.read_text(encoding="utf-8"), loader) if item]
