"""``--json`` of a run on a cluster has the shape of that of a run on this machine: who reads one reads the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.reading.served import Served
from tests.cluster.reading.served import spotwright as on_the_cluster
from tests.e2e.building import step
from tests.e2e.inside import attempt
from tests.e2e.project import Project, a_project

pytestmark = pytest.mark.slow

CONFIG = """\
pools:
  spot: {capacity: spot, price: 1/h, node: {cpu: 2, memory: 4Gi}, simulate: {boot: 0s}}
policy:
  default: {spot: prefer, errors: {retries: 1, backoff: 0s}}
"""
OPEN = {"arguments", "parameters", "artifacts", "outputs", "by_status", "causes", "spent", "tasks", "on_demand_pools"}
"""Fields whose keys are names or statuses of a run's own; their values are not compared."""


def trains() -> str:
    if attempt() == 1:
        raise SystemExit(3)
    return "done"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A local run with one attempt that failed and one that succeeded."""
    with a_project(tmp_path_factory.mktemp("local")) as made:
        made.config(CONFIG)
        assert made.run(made.pipeline({"train": step(trains)})).code == 0
        yield made


def shape(value: Any) -> Any:
    """The names of all fields, level by level; elements of a list are merged."""
    if isinstance(value, dict):
        return {key: shape(each) if key not in OPEN or isinstance(each, list) else ... for key, each in value.items()}
    if isinstance(value, list):
        found: dict[str, Any] = {}
        for each in map(shape, value):
            if isinstance(each, dict):
                found |= {key: known for key, known in each.items() if isinstance(known, dict) or key not in found}
        return [found] if found else ...
    return ...


def differences(here: Any, there: Any, path: str = "") -> Iterator[str]:
    """The fields that one of two shapes has and the other has not, where both have something at that place."""
    if isinstance(here, list) and isinstance(there, list):
        yield from differences(here[0], there[0], f"{path}[]")
    elif isinstance(here, dict) and isinstance(there, dict):
        yield from (f"{path}.{key}" for key in sorted(here.keys() ^ there.keys()))
        for key in sorted(here.keys() & there.keys()):
            yield from differences(here[key], there[key], f"{path}.{key}")


@pytest.mark.parametrize("command", ["runs", "show", "report", "logs"])
def test_the_json_of_a_cluster_has_the_fields_of_a_local_run(project: Project, served: Served, command: str) -> None:
    name = [] if command == "runs" else ["last"]
    here = project.here(command, *name, "--json")
    there = on_the_cluster(command, *(["job/train"] if name else []), "--json", *served.options("admin"))
    assert (here.code, there.code) == (0, 0), (here.err, there.err)
    local, cluster = (_documents(each.out) for each in (here, there))
    assert list(differences(shape(local), shape(cluster))) == []
    if command == "show":
        assert {"number", "cause", "pool", "node", "seconds", "cost", "log"} <= shape(cluster)[0]["tasks"][0][
            "attempts"
        ][0].keys()


def _documents(text: str) -> list[Any]:
    """The output of a command: one document, or one a line."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = [json.loads(line) for line in text.splitlines()]
    return found if isinstance(found, list) else [found]
