"""The contents of a pod for attempts on this machine: secrets, config maps, volume claims, empty volumes, pod fields."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import Of, Step, document, step
from tests.e2e.containers.container_engine import ContainerEngine
from tests.e2e.project import QUICK, Project

SECRET = "correct horse"


def reads_secrets() -> str:
    sys.stdout.write(f"{os.environ['PASSWORD']} {os.environ['MODE']}\n")
    folder = Path("/etc/nowhere/db")
    return (folder / "password").read_text() + str([path.name for path in folder.iterdir()])


def writes(text: str) -> str:
    for folder in ("/data", "/scratch"):
        Path(folder, "file").write_text(text)
    return "written"


def reads(after: str) -> str:
    return Path("/inner/file").read_text() + str(Path("/data").exists())


def tells_fields() -> dict[str, Any]:
    return {name: os.environ[name] for name in ("NODE", "POD", "TEAM", "NONE", "NAME")}


def secret(**more: Any) -> dict[str, Any]:
    return {"secretName": "db", "keyToEnv": [{"secretKey": "password", "envVar": "PASSWORD"}], **more}


READS_SECRETS = step(
    reads_secrets,
    kubernetes={
        "secretAsEnv": [secret()],
        "secretAsVolume": [{"secretName": "db", "mountPath": "/etc/nowhere/db"}],
        "configMapAsEnv": [{"configMapName": "settings", "keyToEnv": [{"configMapKey": "mode", "envVar": "MODE"}]}],
    },
)
CONFIG = f"{QUICK}\nsecrets: {{db: {{password: '@env:DB_PASSWORD'}}}}\nconfig_maps: {{settings: {{mode: fast}}}}\n"


def run(project: Project, steps: Mapping[str, Step], *options: str) -> dict[str, Any]:
    """Run steps to their end. Returns the output of each."""
    done = project.run(project.pipeline(steps), *options)
    assert done.code == 0, done.err + done.out
    tasks = project.show()["tasks"]
    return {path: task["outputs"]["parameters"].get("Output") for path, task in tasks.items()}


def test_a_secret_reaches_the_code_and_no_record(project: Project) -> None:
    project.config(CONFIG)
    project.extra["DB_PASSWORD"] = SECRET
    assert run(project, {"a": READS_SECRETS}) == {"a": "@secret:db/password['password']"}
    assert (project.attempt("a") / "log.txt").read_text() == "*** fast\n"
    kept = [path for path in project.state.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]
    assert not Path("/etc/nowhere").exists()


def test_a_secret_may_be_a_folder_or_just_the_variable(project: Project) -> None:
    (project.folder / "db").mkdir()
    (project.folder / "db" / "password").write_text(SECRET)
    project.config(CONFIG.replace("{password: '@env:DB_PASSWORD'}", "'@folder:db'"))
    assert run(project, {"a": READS_SECRETS}) == {"a": "@secret:db/password['password']"}
    project.config(QUICK)
    project.extra["PASSWORD"] = SECRET
    only_variable = step(tells_password, kubernetes={"secretAsEnv": [secret()]})
    done = project.run(project.pipeline({"a": only_variable}), name="s")
    assert done.code == 0
    assert project.show("s")["tasks"]["a"]["outputs"]["parameters"]["Output"] == "@env:PASSWORD"


def tells_password() -> str:
    return os.environ["PASSWORD"]


def test_an_unknown_secret_is_refused_before_the_run(project: Project) -> None:
    project.config(CONFIG)
    path = project.pipeline({"a": READS_SECRETS})
    done = project.run(path)
    assert done.code == 2
    assert "task a: it needs the key 'password' of the secret 'db'" in done.err
    assert "environment variable DB_PASSWORD is not set" in done.err
    project.config(QUICK)
    done = project.run(path)
    assert (
        'write secrets: {db: {password: "@env:VARIABLE"}} into spotwright.yaml, or set the variable PASSWORD'
        in done.err
    )
    optional = step(tells_nothing, kubernetes={"secretAsEnv": [secret(optional=True)]})
    assert run(project, {"a": optional}) == {"a": "None"}


def tells_nothing() -> str:
    return str(os.environ.get("PASSWORD"))


def claims(*tasks: tuple[str, str, str]) -> dict[str, Any]:
    return {"pvcMount": [{"constant": name, "mountPath": path, "subPath": sub} for name, path, sub in tasks]}


def test_a_volume_claim_is_a_folder_that_tasks_and_runs_share(project: Project) -> None:
    empty = [{"volumeName": "s", "mountPath": "/scratch"}]
    steps = {
        "w": step(writes, {"text": "kept"}, kubernetes={**claims(("c", "/data", "sub")), "emptyDirMounts": empty}),
        "r": step(reads, {"after": Of("w")}, kubernetes=claims(("c", "/inner", "sub"))),
    }
    assert run(project, steps) == {"w": "written", "r": "keptFalse"}
    assert (project.state / "volumes" / "c" / "sub" / "file").read_text() == "kept"
    assert not (project.attempt("w") / "scratch").exists()
    alone = {"r": step(reads, {"after": ""}, kubernetes=claims(("c", "/inner", "sub")))}
    assert project.run(project.pipeline(alone), name="s").code == 0


def makes_elsewhere(made: dsl.Output[dsl.Dataset]) -> None:  # type: ignore[name-defined]  # noqa: F821
    Path("/data/model").write_text("m")
    made.custom_path = "/data/model"


def reads_made(made: dsl.Input[dsl.Dataset]) -> str:  # type: ignore[name-defined]  # noqa: F821
    return Path(made.path).read_text()


def test_an_artifact_may_be_at_any_path_of_a_volume_claim(project: Project) -> None:
    steps = {
        "w": step(makes_elsewhere, kubernetes=claims(("c", "/data", ""))),
        "r": step(reads_made, {"made": Of("w", "made")}),
    }
    assert run(project, steps)["r"] == "m"


def test_a_volume_claim_that_the_pipeline_creates_is_in_the_run_until_it_is_deleted(project: Project) -> None:
    steps = {"w": step(writes, {"text": "x"}), "r": step(reads, {"after": Of("w")})}
    ir, _, _ = document(steps).partition("\n---\n")
    pipeline = json.loads(ir)
    texts = {"parameterType": "STRING"}
    named = {"taskOutputParameter": {"producerTask": "make", "outputParameterKey": "name"}}
    pipeline["components"] |= {
        "comp-make": {
            "executorLabel": "exec-make",
            "inputDefinitions": {"parameters": {"pvc_name_suffix": texts}},
            "outputDefinitions": {"parameters": {"name": texts}},
        },
        "comp-drop": {"executorLabel": "exec-drop", "inputDefinitions": {"parameters": {"pvc_name": texts}}},
    }
    images = {"make": "createpvc", "drop": "deletepvc"}
    executors = {f"exec-{name}": {"container": {"image": f"argostub/{image}"}} for name, image in images.items()}
    pipeline["deploymentSpec"]["executors"] |= executors
    tasks = pipeline["root"]["dag"]["tasks"]
    suffix = {"parameters": {"pvc_name_suffix": {"runtimeValue": {"constant": "-work"}}}}
    tasks["make"] = {"componentRef": {"name": "comp-make"}, "inputs": suffix}
    drop = {
        "componentRef": {"name": "comp-drop"},
        "inputs": {"parameters": {"pvc_name": named}},
        "dependentTasks": ["r"],
    }
    around: dict[str, Any] = {
        "exec-w": {
            "pvcMount": [{"pvcNameParameter": named, "mountPath": "/data"}],
            "emptyDirMounts": [{"volumeName": "s", "mountPath": "/scratch", "medium": "Memory"}],
        },
        "exec-r": {"pvcMount": [{**named, "mountPath": "/inner"}]},  # as older versions of the SDK write it
    }
    platform = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": around}}}}
    for deleted in (False, True):
        if deleted:
            tasks["drop"] = drop
        path = project.write("made.yaml", f"{json.dumps(pipeline)}\n---\n{json.dumps(platform)}")
        done = project.run(path, name=f"r{int(deleted)}")
        assert done.code == 0, done.err
        left = (project.state / "runs" / f"r{int(deleted)}" / "volumes").iterdir()
        assert [claim.name[36:] for claim in left] == ([] if deleted else ["-work"])
    assert not (project.state / "volumes").exists()


def test_fields_of_the_pod_are_those_of_the_attempt(project: Project) -> None:
    fields = {
        "NODE": "spec.nodeName", "POD": "metadata.name", "TEAM": "metadata.labels['team']", "NONE": "metadata.labels['no']",
        "NAME": "metadata.annotations['workflows.argoproj.io/node-name']",
    }  # fmt: skip
    around = {
        "fieldPathAsEnv": [{"name": name, "fieldPath": path} for name, path in fields.items()],
        "podMetadata": {"labels": {"team": "ml"}},
    }
    fields = run(project, {"a": step(tells_fields, kubernetes=around)})["a"]
    [attempt] = project.show()["tasks"]["a"]["attempts"]
    assert fields == {"NODE": attempt["node"], "POD": "r-a-1", "TEAM": "ml", "NONE": "", "NAME": "r.a(0)"}


def test_a_container_gets_its_secrets_as_files_that_are_deleted_with_it(project: Project) -> None:
    engine = ContainerEngine(project.folder / "e")
    project.extra |= {"PATH": f"{engine.bin}:{os.environ['PATH']}", "DB_PASSWORD": SECRET}
    project.config(CONFIG)
    pipeline = json.loads(document({"a": step(tells_nothing)}))
    container = {
        "image": "alpine",
        "command": ["sh", "-c", 'echo "$PASSWORD"; cat "$0/password"'],
        "args": ["$(FILES)"],
    }
    pipeline["deploymentSpec"]["executors"]["exec-a"]["container"] = container
    pipeline["components"]["comp-a"].pop("outputDefinitions")
    around = {"exec-a": {"secretAsEnv": [secret()], "secretAsVolume": [{"secretName": "db", "mountPath": "/etc/db"}]}}
    platform = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": around}}}}
    path = project.write("c.yaml", f"{json.dumps(pipeline)}\n---\n{json.dumps(platform)}")
    done = project.run(path)
    engine.close()
    [call] = engine.calls
    assert SECRET not in " ".join(call)
    [mount] = [part for part in call if "target=/etc/db" in part]
    source = dict(field.partition("=")[::2] for field in mount.split(","))["source"]
    assert mount.endswith(",readonly")
    assert not Path(source).exists()
    assert "***" in (project.attempt("a") / "log.txt").read_text(), done.err


@pytest.fixture(autouse=True)
def needs_mounts() -> None:
    from spotwright.local.supervisor.mounts import why_impossible

    if why := why_impossible():
        pytest.skip(why)
