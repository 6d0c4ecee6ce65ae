"""A real API server accepts all that the chart renders, and enforces `restricted` on its pods."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.cluster.chart.rendered import PROCESSES, Helm, find_helm, pod_of
from tests.cluster.chart.value_files import GOOD
from tests.cluster.live.kube import Kube

pytestmark = pytest.mark.cluster

RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}


@pytest.fixture(scope="module")
def helm(kube: Kube) -> Helm:
    """Helm with the cluster."""
    kube.awaited("helm")
    program = find_helm()
    if program is None:
        pytest.skip("helm is not installed")
    return Helm(program, kube.kubeconfig)


@pytest.fixture(scope="module")
def home(kube: Kube) -> Iterator[str]:
    """A namespace for a release, which enforces `restricted`."""
    name = f"home-{uuid.uuid4().hex[:6]}"
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}})
    yield name
    kube.run("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="module")
def teams(kube: Kube) -> Iterator[None]:
    """The namespaces that the values serve."""
    names = sorted({name for values in GOOD.values() for name in values.get("namespaces", ())})
    kube.apply(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names))
    yield
    kube.run("delete", "namespace", *names, "--wait=false", "--ignore-not-found")


@pytest.mark.usefixtures("teams")
@pytest.mark.parametrize("values", GOOD.values(), ids=GOOD)
def test_the_api_server_accepts_what_is_rendered(kube: Kube, helm: Helm, home: str, values: Mapping[str, Any]) -> None:
    objects = helm.render(values, home)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    said = kube.run("apply", "--dry-run=server", "--validate=strict", "-f", "-", text=text)
    assert said.count("(server dry run)") == len(objects)
    for process in PROCESSES:
        pod = {"apiVersion": "v1", "kind": "Pod", **pod_of(objects, process)}
        pod["metadata"] = {**pod["metadata"], "name": "as-the-deployment-makes-it"}
        pod["spec"] = {**pod["spec"], "serviceAccountName": "default"}  # its own is there after the installation
        pod["spec"] |= {"priorityClassName": ""} if pod["spec"].get("priorityClassName") == "platform.critical" else {}
        kube.run("create", "--dry-run=server", "--validate=strict", "-n", home, "-f", "-", text=json.dumps(pod))
