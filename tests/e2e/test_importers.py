"""Importers: what they give, and addresses that they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.building import document, step
from tests.e2e.inside import alone
from tests.e2e.project import Done, Project

DATASET = {"schemaTitle": "system.Dataset", "schemaVersion": "0.0.1"}


def reads(data: dsl.Input[dsl.Dataset]) -> str:  # type: ignore[name-defined]  # noqa: F821
    with alone():
        return Path(data.path).read_text() + f" {data.path}"


def imported(project: Project, uri: str) -> Done:
    """Import an address and read the artifact."""
    pipeline = json.loads(document({"reads": step(reads)}))
    made = {"artifacts": {"artifact": {"artifactType": DATASET}}}
    pipeline["components"]["comp-i"] = {"executorLabel": "exec-i", "outputDefinitions": made}
    importer = {"artifactUri": {"constant": uri}, "typeSchema": DATASET}
    pipeline["deploymentSpec"]["executors"]["exec-i"] = {"importer": importer}
    tasks = pipeline["root"]["dag"]["tasks"]
    tasks["i"] = {"componentRef": {"name": "comp-i"}}
    source = {"taskOutputArtifact": {"producerTask": "i", "outputArtifactKey": "artifact"}}
    tasks["reads"] |= {"inputs": {"artifacts": {"data": source}}, "dependentTasks": ["i"]}
    return project.run(project.write("imports.yaml", json.dumps(pipeline)))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_file_of_this_machine_is_read_where_it_is(project: Project, scheme: str) -> None:
    path = project.write("data.csv", "a,b")
    done = imported(project, f"{scheme}{path}")
    assert done.code == 0, done.err
    assert project.show()["tasks"]["reads"]["outputs"]["parameters"] == {"Output": f"a,b {path}"}


@pytest.mark.parametrize(("uri", "said"), [("gs://b/../../etc/passwd", "climbs with '..'"), ("", "is empty")])
def test_an_address_that_cannot_be_one_fails_with_its_reason(project: Project, uri: str, said: str) -> None:
    done = imported(project, uri)
    assert done.code == 1
    assert said in done.out
