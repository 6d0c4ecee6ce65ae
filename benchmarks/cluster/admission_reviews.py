"""Measures the admission webhook: CPU of each decision, and reviews a second over TLS with connections that stay open.

Needs the extra ``cluster`` and the command ``openssl``::

    admission_reviews.py [--seconds 5] [--connections 16]

The objects are a Job as its user wrote it, a pod of that Job as an API server sends it, with three attempts before it, and a KFP
Workflow of twenty tasks. CPU is that of this process, so that other work on the machine does not count; server and load of the
second table share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from spotwright import config as configuration
from spotwright.cluster.admission_server import Webhook, admit, answer, parse_review, start_server
from spotwright.cluster.admit_pods import AdmissionContext
from spotwright.cluster.certificates import ServedCertificate
from spotwright.cluster.configurations import Configurations
from spotwright.model.attempts import Cause
from spotwright.scheduling.next_attempt import PastAttempt

CONFIG = """\
version: 1
pools:
  spot-a: {capacity: spot, provider: aks}
  spot-b: {capacity: spot, provider: aks}
  regular: {capacity: on-demand, provider: aks}
policy: {default: {spot: prefer, interruptions: {max: 8}, fall_back_after: 4}}
"""
FACTS = AdmissionContext([PastAttempt(Cause.INTERRUPTED, ("spot-a",), "spot-a")] * 3)


def a_job() -> dict[str, Any]:
    """A Job of one container."""
    container = {"name": "main", "image": "train:1", "env": [{"name": f"S_{n}", "value": "v"} for n in range(20)]}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"backoffLimit": 6, "podReplacementPolicy": "TerminatingOrFailed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}


def a_pod() -> dict[str, Any]:
    """A pod of the placed Job."""
    placed = admit(a_job(), configuration.parse(CONFIG), refusal_image="none").placed
    template = (placed or {})["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
    metadata = {**template["metadata"], "generateName": "train-", "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def a_workflow(tasks: int = 20) -> dict[str, Any]:
    """A Workflow of a KFP backend."""
    names = [f"task-{number}" for number in range(tasks)]
    refs = {
        name: {"componentRef": {"name": f"comp-{name}"}, "taskInfo": {"name": name}, "cachingOptions": {}}
        for name in names
    }
    parameters = [{"name": "components-root", "value": json.dumps({"dag": {"tasks": refs}})}]
    steps: list[dict[str, Any]] = []
    for name in names:
        code = {"image": "train:1", "command": ["sh", "-c", "x" * 2000]}
        parameters += [
            {"name": f"components-{name}", "value": json.dumps({"executorLabel": f"exec-{name}"})},
            {"name": f"implementations-{name}", "value": json.dumps(code)},
        ]
        arguments = [
            {"name": "component", "value": f"{{{{workflow.parameters.components-{name}}}}}"},
            {"name": "container", "value": f"{{{{workflow.parameters.implementations-{name}}}}}"},
            {"name": "task", "value": json.dumps(refs[name])},
        ]
        steps.append(
            {"name": f"{name}-driver", "template": "system-container-driver", "arguments": {"parameters": arguments}}
        )
        steps.append({"name": name, "template": "system-container-executor"})
    driver = {
        "container": {"image": "driver:1"},
        "metadata": {"annotations": {"pipelines.kubeflow.org/runtime-role": "driver"}},
    }
    templates = [
        {"name": "system-container-driver", **driver},
        {"name": "system-dag-driver", **driver},
        {
            "name": "system-container-executor",
            "dag": {"tasks": [{"name": "executor", "template": "system-container-impl"}]},
        },
        {"name": "system-container-impl", "container": {"image": "none"}, "podSpecPatch": "{}"},
        {"name": "root", "dag": {"tasks": steps}},
    ]
    spec = {"entrypoint": "root", "arguments": {"parameters": parameters}, "templates": templates}
    metadata = {"name": "run", "labels": {"pipeline/runid": "1"}}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}


def a_review(data: Mapping[str, Any]) -> bytes:
    """The body of a request for an object."""
    request = {"uid": "u", "operation": "CREATE", "namespace": "team-a", "object": data}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def cpu_of(body: bytes, times: int) -> float:
    """Milliseconds of CPU for a review, from its bytes to those of its answer."""
    config = configuration.parse(CONFIG)
    begin = time.process_time()
    for _ in range(times):
        review, _ = answer(parse_review(body), lambda asked: admit(asked.data, config, (), FACTS, refusal_image="none"))
        if "patch" not in review["response"]:
            raise SystemExit(f"not placed: {review}")
        json.dumps(review)
    return (time.process_time() - begin) * 1000 / times


async def rate_of(body: bytes, seconds: float, connections: int) -> tuple[float, float, float]:
    """Reviews a second over TLS, and the 50th and 99th percentile of an answer in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "tls.crt"), Path(folder, "tls.key")
        options = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        command = ["openssl", "req", *options, *names, "-out", str(files[0]), "-keyout", str(files[1])]
        subprocess.run(command, check=True, capture_output=True)  # noqa: ASYNC221 (before anything is served)
        configurations = Configurations("spotwright")
        configurations.apply("spotwright", {"data": {"spotwright.yaml": CONFIG}})
        webhook = Webhook(configurations, _nothing, _facts, lambda: True, "none")
        runner = await start_server(webhook, ServedCertificate(*files).context(), host="127.0.0.1", port=0)
        context = ssl.create_default_context(cafile=files[0])
        address = f"https://127.0.0.1:{runner.addresses[0][1]}/mutate"
        lags: list[float] = []
        end = time.perf_counter() + seconds
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=connections)) as session:

            async def ask() -> None:
                while time.perf_counter() < end:
                    begin = time.perf_counter()
                    async with session.post(address, data=body) as response:
                        await response.read()
                    lags.append((time.perf_counter() - begin) * 1000)

            await asyncio.gather(*(ask() for _ in range(connections)))
        await runner.cleanup()
    cuts = statistics.quantiles(lags, n=100)
    return len(lags) / seconds, cuts[49], cuts[98]


async def _nothing(_version: str, _kind: str, _name: str, _namespace: str) -> None:
    return None


async def _facts(_pod: Mapping[str, Any]) -> AdmissionContext:
    return FACTS


def main() -> None:
    """Print a line for each object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=16)
    given = parser.parse_args()
    print("| object | size | CPU a review | reviews a second | p50 | p99 |\n| --- | --- | --- | --- | --- | --- |")
    for name, data, times in (
        ("Job", a_job(), 200),
        ("pod", a_pod(), 400),
        ("KFP Workflow, 20 tasks", a_workflow(), 20),
    ):
        body = a_review(data)
        cpu_of(body, 2)
        cpu = cpu_of(body, times)
        rate, middle, late = asyncio.run(rate_of(body, given.seconds, given.connections))
        print(f"| {name} | {len(body) / 1000:.1f} kB | {cpu:.1f} ms | {rate:.0f} | {middle:.0f} ms | {late:.0f} ms |")


if __name__ == "__main__":
    main()
