"""A recorder in a pod of the test bed, which keeps logs and lets people read them, with this machine's packages.

The nodes of the bed see the folders of this machine, so the pod takes the sources and the packages from there. On a cluster
elsewhere they would be in an image.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

from testbed.building.images import PYTHON
from tests import plain_yaml
from tests.cluster.live.chart_account import make_accounts
from tests.cluster.live.kube import Kube, Object
from tests.cluster.live.recorded import install_kinds

import spotwright as package
from spotwright.cluster.permissions import account

CODE = Path(package.__file__).parent.parent
_PACKAGES = Path(sysconfig.get_path("purelib"))
_LIBRARIES = Path("/lib") / str(sysconfig.get_config_var("MULTIARCH"))  # of the C library, which compiled packages need
_NEEDED = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6")
_LINK = f"mkdir -p /tmp/linked; for name in {' '.join(_NEEDED)}; do ln -sf /libraries/$name /tmp/linked/; done; exec python3 "
_RBAC = "rbac.authorization.k8s.io"
CONFIG = """
version: 1
pools:
  spot: {capacity: spot, provider: aks, price: 1.10/h, node: {cpu: 2, memory: 4Gi}}
  system: {capacity: on-demand, provider: aks, price: 3.30/h, node: {cpu: 2, memory: 4Gi}}
policy:
  default: {spot: prefer, interruptions: {max: 5}, fall_back_after: 3, errors: {retries: 1}}
"""


def start_controller(kube: Kube, namespace: str) -> None:
    """Start a recorder in a separate namespace, and wait until it is ready."""
    install_kinds(kube)
    kube.apply(named("Namespace", "v1", namespace, ""))
    make_accounts(kube, namespace)
    kube.apply({**named("ConfigMap", "v1", "spotwright", namespace), "data": {"spotwright.yaml": CONFIG}})
    kube.wait(lambda: kube.get("serviceaccount", account("recorder"), namespace), "the recorder's account", 60)
    kube.apply(_pod(namespace))
    try:
        kube.wait(lambda: is_ready(kube, namespace), "the controller is ready", 240)
    except AssertionError as error:
        raise AssertionError(kube.run("logs", "controller", "-n", namespace, "--all-containers")) from error


def is_ready(kube: Kube, namespace: str) -> bool:
    """Whether the controller's pod takes connections."""
    conditions = (kube.get("pod", "controller", namespace) or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def let_view(kube: Kube, person: str, team: str) -> Object:
    """Make an account in a team's namespace that may read pods, logs and records there. Returns it as the subject of bindings."""
    subject = {"kind": "ServiceAccount", "name": person, "namespace": team}
    records = rule(["spotruns", "spottasks", "spotattempts"], ["get", "list", "watch"], "spotwright.dev")
    kube.apply(
        named("ServiceAccount", "v1", person, team),
        role("pods", team, [rule(["pods", "pods/log"], ["get"]), records]),
        binding(f"pods-{person}", team, "Role", "pods", subject),
    )
    return subject


def let_read(kube: Kube, person: str, team: str, controller: str) -> None:
    """Create an account in a team's namespace that may read the objects there, and reach the controller."""
    subject = let_view(kube, person, team)
    rules = [
        rule(["pods"], ["list"]),
        rule(["configmaps"], ["get"], resourceNames=["spotwright-reading"]),
        rule(["pods/portforward"], ["get", "create"]),
    ]
    kube.apply(
        role("spotwright-reader", controller, rules),
        binding(f"read-{team}-{person}", controller, "Role", "spotwright-reader", subject),
    )


def kubeconfig_of(kube: Kube, person: str, team: str, target: Path) -> Path:
    """A kubeconfig with a token of an account, whose namespace is the team's."""
    document = plain_yaml.load(kube.kubeconfig.read_text())
    token = kube.run("create", "token", person, "-n", team).strip()
    document["users"] = [{"name": each["name"], "user": {"token": token}} for each in document["users"]]
    for each in document["contexts"]:
        each["context"]["namespace"] = team
    target.write_text(plain_yaml.dump(document))
    return target


def named(kind: str, version: str, name: str, namespace: str) -> dict[str, Any]:
    """An object with only its name."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def role(name: str, namespace: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """A Role, or without a namespace a ClusterRole."""
    return {**named("Role" if namespace else "ClusterRole", f"{_RBAC}/v1", name, namespace), "rules": rules}


def rule(resources: list[str], verbs: list[str], group: str = "", **more: Any) -> dict[str, Any]:
    """A rule of a role."""
    return {"apiGroups": [group], "resources": resources, "verbs": verbs, **more}


def binding(name: str, namespace: str, kind: str, role_name: str, subject: dict[str, Any]) -> dict[str, Any]:
    """A RoleBinding, or without a namespace a ClusterRoleBinding."""
    made = named("RoleBinding" if namespace else "ClusterRoleBinding", f"{_RBAC}/v1", name, namespace)
    return {**made, "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role_name}, "subjects": [subject]}


def python(*command: str) -> list[str]:
    """The command of a container that runs our code, after it has linked the libraries that compiled packages need."""
    return ["sh", "-c", _LINK + " ".join(command)]


def with_our_code(*containers: dict[str, Any], **volumes: dict[str, Any]) -> dict[str, Any]:
    """The containers and volumes of a pod whose containers have our code; each volume is mounted at its name."""
    folders = {"code": CODE, "packages": _PACKAGES, "libraries": _LIBRARIES}
    made: list[dict[str, Any]] = [{"name": name, "hostPath": {"path": str(path)}} for name, path in folders.items()]
    made += [{"name": name, **volume} for name, volume in volumes.items()]
    variables = {"PYTHONPATH": "/code:/packages", "LD_LIBRARY_PATH": "/tmp/linked", "PYTHONUNBUFFERED": "1"}  # noqa: S108  # of the pod
    common = {
        "image": PYTHON,
        "imagePullPolicy": "Never",
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in made],
    }
    return {"volumes": made, "containers": [{**common, **each} for each in containers]}


def _pod(namespace: str) -> dict[str, Any]:
    options = {
        "home": namespace,
        "name": namespace,
        "read-listen": "0.0.0.0:9444",  # of the pod
        "authority-folder": "/logs/authority",
        "logs": "file:///logs/kept",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    recorder = {
        "name": "recorder",
        "command": python("-m", "spotwright", "controller", "recorder", *words),
        "ports": [{"name": "reading", "containerPort": 9444}],
        "readinessProbe": {"httpGet": {"scheme": "HTTPS", "path": "/healthz", "port": 9444}, "periodSeconds": 1},
    }
    spec = {
        "serviceAccountName": account("recorder"),
        "nodeSelector": {"kubernetes.io/hostname": "n1"},
        "terminationGracePeriodSeconds": 2,
        "tolerations": [{"operator": "Exists"}],
        **with_our_code(recorder, logs={"emptyDir": {}}),
    }
    labels = {"app.kubernetes.io/name": "spotwright", "app.kubernetes.io/component": "recorder"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "controller", "namespace": namespace, "labels": labels},
        "spec": spec,
    }
