"""One process that watches the pods of a namespace with one library, and prints its memory, CPU and lag as JSON lines.

``compare_clients.py`` starts it: ``watch_clients.py READER KUBECONFIG NAMESPACE``. Every reader lists once and then uses the
watch that its library offers, with its own way to go on after an error.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

PODS: dict[str, Any] = {}
LAGS: list[float] = []
SEEN: dict[str, int] = {"changes": 0, "deletions": 0}


def report(what: str, **more: object) -> None:
    """Print a line about this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    resident, peak = (
        int(status[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM")
    )  # ru_maxrss begins with the parent's
    line = {"what": what, "at": time.time(), "cpu": usage.ru_utime + usage.ru_stime, "rss": resident, "peak": peak}
    print(json.dumps({**line, "pods": len(PODS), **SEEN, **more}), flush=True)


def take(kind: str, name: str, pod: object, changed_at: str | None) -> None:
    """Keep one pod as its event says, and its lag where the change says when it was made."""
    SEEN["changes"] += 1
    if kind == "DELETED":
        PODS.pop(name, None)
        SEEN["deletions"] += 1
        return
    PODS[name] = pod
    if changed_at is not None and float(changed_at) > STARTED_AT:
        LAGS.append(time.time() - float(changed_at))


async def asyncio_typed(kubeconfig: str, namespace: str) -> None:
    """kubernetes_asyncio with its models: list, then its own watch."""
    from kubernetes_asyncio import client, config, watch

    await config.load_kube_config(config_file=kubeconfig)
    api = client.CoreV1Api()
    listed = await api.list_namespaced_pod(namespace)
    for pod in listed.items:
        PODS[pod.metadata.name] = pod
    version = listed.metadata.resource_version
    del listed
    report("synced")
    stream = watch.Watch().stream(
        api.list_namespaced_pod, namespace, resource_version=version, allow_watch_bookmarks=True
    )
    async for event in stream:
        if event["type"] != "BOOKMARK":
            meta = event["object"].metadata
            take(event["type"], meta.name, event["object"], (meta.annotations or {}).get("at"))


async def asyncio_raw(kubeconfig: str, namespace: str) -> None:
    """kubernetes_asyncio without its models: lists in chunks, dictionaries without managed fields."""
    from kubernetes_asyncio import client, config, watch

    await config.load_kube_config(config_file=kubeconfig)
    api = client.CoreV1Api()
    more, version = "", ""
    while True:
        answer = await api.list_namespaced_pod(namespace, limit=500, _continue=more, _preload_content=False)
        listed = json.loads(await answer.read())
        for pod in listed["items"]:
            pod["metadata"].pop("managedFields", None)
            PODS[pod["metadata"]["name"]] = pod
        version, more = listed["metadata"]["resourceVersion"], listed["metadata"].get("continue", "")
        if not more:
            break
    report("synced")
    stream = watch.Watch("").stream(
        api.list_namespaced_pod, namespace, resource_version=version, allow_watch_bookmarks=True
    )
    stream.return_type = ""
    async for event in stream:
        if event["type"] != "BOOKMARK":
            meta = event["object"]["metadata"]
            meta.pop("managedFields", None)
            take(event["type"], meta["name"], event["object"], meta.get("annotations", {}).get("at"))


async def lightkube_typed(kubeconfig: str, namespace: str) -> None:
    """Watch with lightkube and its structs: list, then its own watch, retried by its own handler."""
    from lightkube import AsyncClient, KubeConfig
    from lightkube.resources.core_v1 import Pod

    await _lightkube(Pod, AsyncClient(KubeConfig.from_file(kubeconfig)), namespace)


async def lightkube_raw(kubeconfig: str, namespace: str) -> None:
    """Watch with lightkube and dictionaries: a generic resource, without managed fields."""
    from lightkube import AsyncClient, KubeConfig
    from lightkube.generic_resource import create_namespaced_resource

    await _lightkube(
        create_namespaced_resource("", "v1", "Pod", "pods"), AsyncClient(KubeConfig.from_file(kubeconfig)), namespace
    )


async def _lightkube(kind: Any, client: Any, namespace: str) -> None:
    from lightkube.types import OnErrorAction, OnErrorResult

    def retry(_error: Exception, count: int) -> OnErrorResult:
        return OnErrorResult(OnErrorAction.RETRY, min(2.0, 0.1 * 2**count))

    listed = client.list(kind, namespace=namespace, chunk_size=500)
    async for pod in listed:
        _without_managed_fields(pod)
        PODS[pod.metadata.name] = pod
    version = listed.resourceVersion
    report("synced")
    async for event, pod in client.watch(kind, namespace=namespace, resource_version=version, on_error=retry):
        _without_managed_fields(pod)
        meta = pod.metadata
        take(event, meta.name, pod, (meta.annotations or {}).get("at"))


def _without_managed_fields(pod: Any) -> None:
    if isinstance(pod, dict):
        pod["metadata"].pop("managedFields", None)
    else:
        pod.metadata.managedFields = None


READERS: dict[str, Callable[[str, str], Awaitable[None]]] = {
    "kubernetes_asyncio, models": asyncio_typed,
    "kubernetes_asyncio, dictionaries": asyncio_raw,
    "lightkube, structs": lightkube_typed,
    "lightkube, dictionaries": lightkube_raw,
}


async def _main(reader: str, kubeconfig: str, namespace: str) -> None:
    """Report when asked by a line of standard input; also after the library's watch has ended, with why it did."""
    loop = asyncio.get_running_loop()
    watching = asyncio.ensure_future(READERS[reader](kubeconfig, namespace))
    while await loop.run_in_executor(None, sys.stdin.readline):
        ended: dict[str, str] = {}
        if watching.done():
            error = watching.exception()
            ended = {"error": "the stream ended" if error is None else f"{type(error).__name__}: {error}"[:200]}
        report("asked", lags=LAGS, **ended)
        LAGS.clear()


STARTED_AT = time.time()

if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:4]))
