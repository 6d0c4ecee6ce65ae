"""On a real API server: listed namespaces are watched alone, a CRD may come and go, and only the authority is patched."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.live.kube import Kube
from tests.cluster.watching.started_watcher import states

from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.install import Registration, webhook_configuration

pytestmark = pytest.mark.cluster

TRIALS = "trials.kubeflow.org"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": TRIALS},
    "spec": {
        "group": "kubeflow.org",
        "scope": "Namespaced",
        "names": {"kind": "Trial", "plural": "trials", "singular": "trial"},
        "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": ANYTHING}}],
    },
}
QUICK = "from spotwright.cluster import watch_streams; watch_streams._DISCOVERS = 1.0"


@pytest.fixture
def second(kube: Kube) -> Iterator[str]:
    """The name of a namespace that a test may make."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    yield name
    kube.run("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def no_trials(kube: Kube) -> Iterator[None]:
    if not kube.lacks(TRIALS):
        pytest.skip("this cluster has Katib")
    yield
    kube.run("delete", "crd", TRIALS, "--ignore-not-found")


@pytest.fixture
def watching(kube: Kube, namespace: str, second: str, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A watcher of both namespaces, with its folder."""
    code = f"""
import asyncio, sys
from functools import partial
from pathlib import Path
{QUICK}
from spotwright import config
from spotwright.cluster.api_client import Api, connect, find_cluster
from tests.cluster.folder_records import FolderRecords
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.recording import watch_and_keep_logs
from spotwright.records.state_folder import StateFolder
import logging
logging.basicConfig(level=logging.INFO)
async def main():
    cluster = find_cluster(kubeconfig={str(kube.kubeconfig)!r})
    state = StateFolder.open(Path({str(tmp_path / "state")!r}))
    store = RunStore(FolderRecords(state), config.from_mapping({{"pools": {{"x": {{"capacity": "on-demand"}}}}}}))
    streams = partial(connect, cluster, many_streams=True)
    await watch_and_keep_logs(Api(connect(cluster)), store, streams, namespaces={[namespace, second]!r})
asyncio.run(main())
"""
    log = tmp_path / "watcher.log"
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", code], stderr=file, env={**os.environ})
    yield process, tmp_path
    process.terminate()
    process.wait(30)


def waiting_pod(kube: Kube, namespace: str, name: str, owner: dict[str, Any] | None = None) -> None:
    """A pod that no node takes: it waits, and is an attempt."""
    references = [] if owner is None else [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]  # fmt: skip
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "ownerReferences": references,
                "annotations": {} if owner else {"spotwright.dev/policy": "{}"},
            },
            "spec": {"containers": [kube.container("true")], "nodeSelector": {"nobody": "has-it"}},
        }
    )


def test_a_crd_that_comes_and_goes_and_a_namespace_that_comes_later(
    kube: Kube, namespace: str, second: str, no_trials: None, watching: tuple[subprocess.Popen[bytes], Path]
) -> None:
    process, folder = watching
    log = folder / "watcher.log"

    def is_recorded(name: str) -> bool:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        return name in states(folder / "state") and bool(states(folder / "state")[name].tasks)

    kube.wait(lambda: "streams are complete" in log.read_text(encoding="utf-8"), "the streams", 60)
    waiting_pod(kube, namespace, "first")
    kube.wait(lambda: is_recorded("first"), "a pod of the namespace that exists", 60)
    kube.run("create", "namespace", second)
    kube.wait(lambda: kube.get("serviceaccount", "default", second), "its service account", 60)
    waiting_pod(kube, second, "second")
    kube.wait(lambda: is_recorded("second"), "a pod of the namespace that came later", 60)
    recorded = states(folder / "state")
    for name, where in (("first", namespace), ("second", second)):
        found = kube.get("namespace", where)
        assert found is not None
        assert recorded[name].meta.arguments["namespace_uid"] == found["metadata"]["uid"]

    kube.apply(CRD)
    kube.wait(lambda: "Trial is served now" in log.read_text(encoding="utf-8"), "the kind", 60)
    kube.apply(
        {
            "apiVersion": "kubeflow.org/v1beta1",
            "kind": "Trial",
            "metadata": {"name": "tried", "namespace": namespace},
            "spec": {"deep": _nested(60), "objective": 7},
            "status": {"conditions": "none", "nodes": 7},
        }
    )
    trial = kube.get("trial", "tried", namespace)
    assert trial is not None
    waiting_pod(kube, namespace, "of-the-trial", trial)
    kube.wait(lambda: is_recorded("tried"), "the Trial", 60)
    kube.run("delete", "crd", TRIALS)
    kube.wait(lambda: "Trial is no longer served" in log.read_text(encoding="utf-8"), "its end", 90)
    waiting_pod(kube, second, "third")
    kube.wait(lambda: is_recorded("third"), "what goes on", 60)


def _nested(depth: int) -> Any:
    return [_nested(depth - 1)] if depth else "deep"


def test_only_the_authority_of_the_chart_s_registration_is_written(kube: Kube) -> None:
    name = f"spotwright-{uuid.uuid4().hex[:6]}"
    made = webhook_configuration(name, ("nowhere", "webhook"), b"", ("no-such-namespace",))
    kube.apply(made)
    try:
        before = kube.get("mutatingwebhookconfiguration", name)
        assert before is not None
        authority = _a_certificate()

        async def write() -> None:
            api = Api(connect(find_cluster(kubeconfig=str(kube.kubeconfig))))
            try:
                await Registration(api, name, ("nowhere", "webhook")).put(authority)
            finally:
                await api.close()

        asyncio.run(write())
        after = kube.get("mutatingwebhookconfiguration", name)
        assert after is not None
        written = deepcopy(after["webhooks"])
        for webhook in written:
            assert base64.b64decode(webhook["clientConfig"].pop("caBundle")) == authority
        for webhook in before["webhooks"]:
            webhook["clientConfig"].pop("caBundle", None)
        assert written == before["webhooks"]
    finally:
        kube.run("delete", "mutatingwebhookconfiguration", name)


def _a_certificate() -> bytes:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    done = subprocess.run([*command, "-keyout", "/dev/null", "-subj", "/CN=authority"], check=True, capture_output=True)
    return done.stdout
