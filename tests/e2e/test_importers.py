"""Importers: their outputs, and the addresses that they refuse."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.building import document, step
from tests.e2e.inside import alone
from tests.e2e.project import Done, Project
from tests.sampling import every

from spotwright.local.supervisor import fetch
from spotwright.local.supervisor.mounts import why_impossible

DATASET = {"schemaTitle": "system.Dataset", "schemaVersion": "0.0.1"}


def reads(data: dsl.Input[dsl.Dataset]) -> str:  # type: ignore[name-defined]  # noqa: F821
    with alone():
        return Path(data.path).read_text() + f" {data.path}"


def imported(project: Project, address: str, **parameters: str) -> Done:
    """Import an address, which may use the importer's parameters, and read the artifact."""
    pipeline = json.loads(document({"reads": step(reads)}))
    made = {"artifacts": {"artifact": {"artifactType": DATASET}}}
    pipeline["components"]["comp-i"] = {"executorLabel": "exec-i", "outputDefinitions": made}
    importer = {"artifactUri": {"constant": address}, "typeSchema": DATASET}
    pipeline["deploymentSpec"]["executors"]["exec-i"] = {"importer": importer}
    tasks = pipeline["root"]["dag"]["tasks"]
    tasks["i"] = {"componentRef": {"name": "comp-i"}}
    if parameters:
        given = {name: {"runtimeValue": {"constant": value}} for name, value in parameters.items()}
        tasks["i"]["inputs"] = {"parameters": given}
        types = {name: {"parameterType": "STRING"} for name in parameters}
        pipeline["components"]["comp-i"]["inputDefinitions"] = {"parameters": types}
    source = {"taskOutputArtifact": {"producerTask": "i", "outputArtifactKey": "artifact"}}
    tasks["reads"] |= {"inputs": {"artifacts": {"data": source}}, "dependentTasks": ["i"]}
    return project.run(project.write("imports.yaml", json.dumps(pipeline)))


@pytest.mark.parametrize("scheme", every(2, ["", "file://"]))
def test_a_file_of_this_machine_is_read_where_it_is(project: Project, scheme: str) -> None:
    path = project.write("data.csv", "a,b")
    done = imported(project, f"{scheme}{path}")
    assert done.code == 0, done.err
    assert project.show()["tasks"]["reads"]["outputs"]["parameters"] == {"Output": f"a,b {path}"}


def test_an_address_that_leaves_its_folder_fails_with_its_reason(project: Project) -> None:
    done = imported(project, "gs://b/../../etc/passwd")
    assert done.code == 1
    assert "must not contain '..'" in done.out


def test_an_empty_address_is_refused_before_the_run(project: Project) -> None:
    done = imported(project, "")
    assert done.code == 2
    assert "task i: an importer without an address" in done.err


def test_an_artifact_that_only_a_cluster_can_fetch_is_named_before_the_run(project: Project) -> None:
    done = imported(project, "oci://registry.test/model:1")
    output = f"{done.out}{done.err}"
    assert "oci://registry.test/model:1 (task i) exists only on a cluster" in output
    assert output.index("exists only on a cluster") < output.index("attempt 1")


RELATIVE = "data.csv, is a relative path, which names no file in a pod: write an absolute path or an address"


def test_a_relative_path_is_refused_before_the_run(project: Project) -> None:
    project.write("data.csv", "a,b")
    done = imported(project, "data.csv")
    assert done.code == 2
    assert f"task i: an importer whose address, {RELATIVE}" in done.err


def test_a_relative_path_from_a_parameter_fails_the_importer_and_not_its_consumer(project: Project) -> None:
    done = imported(project, "{{$.inputs.parameters['uri']}}", uri="data.csv")
    assert done.code == 1
    assert f"the address that it imports, {RELATIVE}" in done.out
    assert project.show()["tasks"]["reads"]["attempts"] == []


@pytest.fixture
def bucket(project: Project) -> Iterator[str]:
    """A bucket of S3 with a file and a folder in it, which the project's commands can reach."""
    s3fs = pytest.importorskip("s3fs", reason="needs the group `stores`")
    server = pytest.importorskip("moto.server", reason="needs the group `stores`")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    project.extra |= {**keys, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    system = s3fs.S3FileSystem(
        key="id", secret="secret", endpoint_url=f"http://{host}:{port}", skip_instance_cache=True
    )
    system.makedirs("bucket", exist_ok=True)  # moto keeps what it has for the whole process
    system.pipe_file("bucket/data.csv", b"a,b")
    system.pipe_file("bucket/folder/below/data.csv", b"c,d")
    yield "s3://bucket"
    running.stop()


def test_an_artifact_in_a_bucket_is_fetched_to_its_path_in_pods(project: Project, bucket: str) -> None:
    if why := why_impossible():
        pytest.skip(why)
    done = imported(project, f"{bucket}/data.csv")
    assert done.code == 0, done.err
    assert project.show()["tasks"]["reads"]["outputs"]["parameters"] == {"Output": "a,b /s3/bucket/data.csv"}
    assert not Path("/s3").exists()


@pytest.mark.long
def test_a_folder_is_fetched_with_everything_in_it(bucket: str, project: Project, tmp_path: Path) -> None:
    environ = {**os.environ, **project.extra}
    place = tmp_path / "x" / "folder"
    command = [sys.executable, "-P", fetch.__file__, f"{bucket}/folder", str(place)]
    subprocess.run(command, env=environ, check=True)
    assert (place / "below" / "data.csv").read_text() == "c,d"
    assert list(place.parent.iterdir()) == [place]


def test_an_artifact_that_cannot_be_fetched_is_named_in_the_log_and_the_code_runs(project: Project) -> None:
    project.extra["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
    done = imported(project, "s3://bucket/data.csv")
    assert done.code == 1
    log = (project.attempt("reads") / "log.txt").read_text()
    assert log.startswith("spotwright: s3://bucket/data.csv cannot be fetched: ")
    assert "No such file or directory: '/s3/bucket/data.csv'" in log


@pytest.mark.parametrize("scheme", every(2, ["oci", "huggingface"]))
def test_an_artifact_that_only_a_cluster_can_fetch_is_named_in_the_log(project: Project, scheme: str) -> None:
    uri = f"{scheme}://team/model"
    assert imported(project, uri).code == 1
    log = (project.attempt("reads") / "log.txt").read_text()
    assert log.startswith(f"spotwright: {uri} cannot be fetched: {scheme}:// is available on a cluster only")
