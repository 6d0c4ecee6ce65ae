"""A hostile namespace's attempt to fill the memory of a controller or the API, by a user who may create pods and Workflows.

Its pods wait forever at a gate, so they never run, and no Argo serves its Workflows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.cluster.live.kube import Object
from tests.cluster.recorder.api import Api

__all__ = ["ATTACKS", "carry_out"]

_IN_PARALLEL = 4
_TEMPLATE = 6_000  # characters: an Argo pod carries its whole template in a variable
_LARGEST = 120  # tolerations: of a pod with more than about 140 less is recorded
_PODS = 8  # of a run

Creating = tuple[Object, list[Object]]
"""An object, and the pods that it owns; or a pod by itself."""


def gated_pods() -> Iterator[Creating]:
    """60 pods that are runs by themselves, each of 600 kB that do not repeat themselves."""
    chance = random.Random(1)  # noqa: S311
    for number in range(60):
        variables = [{"name": f"V{each}", "value": chance.randbytes(500).hex()} for each in range(50)]
        yield _pod(f"gated-{number}", _tolerations(chance, 5_000), variables), []


def distinct_steps() -> Iterator[Creating]:
    """500 pods of one Workflow, each with a template that no other step has."""
    chance = random.Random(2)  # noqa: S311
    yield _workflow("flood"), [_step("flood", number, chance, 50) for number in range(500)]


def live_runs() -> Iterator[Creating]:
    """299 Workflows that go on, each with pods that differ; their records take about 40 MB."""
    chance = random.Random(3)  # noqa: S311
    for number in range(299):
        name = f"flood-{number:03}"
        yield _workflow(name), [_step(name, each, chance, _LARGEST) for each in range(_PODS)]


ATTACKS: Mapping[str, Callable[[], Iterator[Creating]]] = {
    each.__name__: each for each in (gated_pods, distinct_steps, live_runs)
}


def carry_out(attack: str, kubeconfig: Path, namespace: str) -> int:
    """Create all that belongs to an attack, some at a time. Returns how many objects these are."""
    api = Api(kubeconfig)

    def one(item: Object, owner: Object | None = None) -> Object:
        made: Object = api.create(item if owner is None else _owned(item, owner), namespace)
        return made

    count = 0
    with ThreadPoolExecutor(_IN_PARALLEL) as pool:
        for batch in _batches(ATTACKS[attack]()):
            owners = list(pool.map(one, [each for each, _ in batch]))
            pods = [(pod, owner) for (_, found), owner in zip(batch, owners, strict=True) for pod in found]
            list(pool.map(lambda pair: one(*pair), pods))
            count += len(owners) + len(pods)
    return count


def _batches(found: Iterator[Creating]) -> Iterator[list[Creating]]:
    batch: list[Creating] = []
    for each in found:
        batch.append(each)
        if len(batch) == _IN_PARALLEL:
            yield batch
            batch = []
    yield batch


def _owned(item: Object, owner: Object) -> Object:
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [{**reference, "controller": True}]}}


def _workflow(name: str) -> Object:
    labels = {"workflows.argoproj.io/controller-instanceid": "nobody"}
    spec = {"entrypoint": "main", "templates": [{"name": "main", "suspend": {}}]}
    meta = {"name": name, "labels": labels}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": spec}


def _step(run: str, number: int, chance: random.Random, tolerations: int) -> Object:
    template = {"name": "ARGO_TEMPLATE", "value": f'{{"name": "step-{number}", "text": "{"x" * _TEMPLATE}"}}'}
    made = _pod(f"{run}-{number}", _tolerations(chance, tolerations), [template])
    made["metadata"]["annotations"] = {"workflows.argoproj.io/node-name": f"{run}.step-{number}"}
    return made


def _pod(name: str, tolerations: list[dict[str, Any]], variables: list[dict[str, str]]) -> Object:
    requests = {"cpu": "1", "memory": "1Mi"}
    container = {"name": "main", "image": "none", "env": variables, "resources": {"requests": requests}}
    spec = {
        "schedulingGates": [{"name": "example.org/never"}],
        "tolerations": tolerations,
        "restartPolicy": "Never",
        "containers": [container],
    }
    meta = {"name": name, "labels": {"spotwright.dev/spot": "prefer"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _tolerations(chance: random.Random, count: int) -> list[dict[str, Any]]:
    return [{"key": chance.randbytes(30).hex(), "operator": "Exists", "effect": "NoSchedule"} for _ in range(count)]
