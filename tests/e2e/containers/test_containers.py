"""Container components: as processes of this machine, through a stand-in for podman, and refused without either."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.e2e.containers.container_engine import ContainerEngine
from tests.e2e.containers.container_tasks import container, exit_code, log, pipeline
from tests.e2e.project import AT_WORK, QUICK, Project, eventually

WAITS = 'trap "echo told; exit 143" TERM; echo started; touch "$PLAYGROUND/started"; while :; do sleep 0.05; done'


@pytest.fixture
def engine(project: Project) -> Iterator[ContainerEngine]:
    """A podman on the PATH of every command."""
    with contextlib.closing(ContainerEngine(project.folder / "e")) as made:
        project.extra["PATH"] = f"{made.bin}:{os.environ['PATH']}"
        yield made


@pytest.fixture
def nothing(project: Project) -> None:
    """A PATH with a shell and neither podman nor docker."""
    folder = project.folder / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to("/bin/sh")
    project.extra["PATH"] = str(folder)


def test_a_command_is_a_process_of_this_machine_when_the_user_says_so(project: Project) -> None:
    says = container("{{$.outputs.parameters['n'].output_file}}", script='echo "$A"; echo 7 > "$0"', parameters=["n"],
                     env=[{"name": "A", "value": "it's"}])  # fmt: skip
    done = project.run(pipeline(project, says=says), "--containers", "host")
    assert done.code == 0, done.err
    assert log(project, "says") == "it's\n"
    assert project.show()["tasks"]["says"]["outputs"]["parameters"] == {"n": 7}


def test_without_a_container_runtime_the_run_is_refused_with_both_alternatives(project: Project, nothing: None) -> None:
    path = pipeline(project, says=container(script="true"))
    done = project.run(path)
    line = 1 + path.read_text().split('"says": {\n     "componentRef"')[0].count("\n")
    assert done.code == 2
    assert f"{path}:{line}: task says is a container component" in done.err
    assert "podman is not installed; docker is not installed" in done.err
    assert "--containers host" in done.err
    assert not (project.state / "runs" / "r").exists()


def test_a_command_that_is_not_installed_is_refused_before_the_run(project: Project, nothing: None) -> None:
    path = pipeline(project, ok=container(script="true"), says=container(command=["no-such-program"]))
    done = project.run(path, "--containers", "host")
    assert done.code == 2
    assert "task says executes 'no-such-program', which is not on the PATH" in done.err


def test_the_container_client_gets_paths_and_only_the_names_of_variables(
    project: Project, engine: ContainerEngine
) -> None:
    says = container("$(A) {{$.inputs.parameters['x']}}", inputs={"x": "a b"}, script='echo "$0" "$A"',
                     env=[{"name": "A", "value": "not seen"}], resources={"memoryLimit": 0.1})  # fmt: skip
    done = project.run(pipeline(project, says=says))
    assert done.code == 0, done.err
    [call] = engine.calls
    runs = project.state / "runs" / "r"
    assert f"type=bind,source={runs},target={runs}" in call
    assert [call[at + 1] for at, part in enumerate(call) if part == "--env"][-1].startswith("SPOTWRIGHT_")
    assert "A" in call
    assert "A=not seen" not in call
    assert f"PYTHONPATH={runs}/spotwright_checkpoint.pyz" in call
    assert call[-5:] == ["sh", "alpine", "-c", 'echo "$0" "$A"', "not seen a b"]
    assert {"--memory", "100000000b"} <= set(call)
    assert log(project, "says") == "not seen a b not seen\n"
    assert engine.removed == [call[call.index("--name") + 1]]


def test_the_exit_code_of_an_attempt_is_that_of_its_container(project: Project, engine: ContainerEngine) -> None:
    done = project.run(pipeline(project, fails=container(script="exit 7")))
    assert done.code == 1
    assert exit_code(project, "fails") == 7


def test_an_image_that_cannot_be_pulled_is_a_start_up_error(project: Project, engine: ContainerEngine) -> None:
    done = project.run(pipeline(project, starts=container(script="true", image="missing")))
    assert done.code == 1
    assert project.causes("starts")[0] == "start-up"
    assert log(project, "starts").splitlines() == [
        "spotwright: pulling missing",
        "Error: missing: no such image",
        "spotwright: the image missing cannot be pulled: missing: no such image",
    ]


COMPONENT = """
name: Adds one
inputs: [{name: number, type: Integer}]
outputs: [{name: sum, type: Integer}]
implementation:
  container:
    image: alpine
    command: [sh, -c, 'echo $(($0 + 1)) > "$1"', {inputValue: number}, {outputPath: sum}]
"""


def test_component_yaml_comes_from_a_file_and_from_an_address(project: Project) -> None:
    project.write("component.yaml", COMPONENT)
    handler = partial(SimpleHTTPRequestHandler, directory=str(project.folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        source = f"""
from kfp import components, dsl
of_file = components.load_component_from_file("{project.folder}/component.yaml")
of_address = components.load_component_from_url("http://127.0.0.1:{server.server_port}/component.yaml")
@dsl.pipeline
def adding() -> int:
    return of_address(number=of_file(number=1).outputs["sum"]).outputs["sum"]
"""
        done = project.run(project.write("adding.py", source), "--containers", "host")
        server.shutdown()
    assert done.code == 0, done.err
    assert project.show()["outputs"]["Output"]["value"] == 3


def test_cancelling_ends_the_container_and_its_last_output_is_logged(project: Project, engine: ContainerEngine) -> None:
    started = project.start("run", str(pipeline(project, waits=container(script=WAITS))), "--name", "r")
    eventually((project.playground / "started").exists)
    started.send(signal.SIGINT)
    assert started.wait().code == 130
    assert log(project, "waits") == "started\ntold\n"
    assert all(process.poll() is not None for process in engine.containers.values())


def test_a_container_that_starts_after_the_cancelling_gets_sigterm_once_it_runs(
    project: Project, engine: ContainerEngine
) -> None:
    path = pipeline(project, waits=container(script="while :; do sleep 0.05; done", image="late"))
    started = project.start("run", str(path), "--name", "r")
    eventually(lambda: engine.calls)
    started.send(signal.SIGINT)
    eventually(lambda: len(engine.kills) > 1)
    assert not engine.containers
    project.raise_file("begin")
    assert started.wait().code == 130
    assert exit_code(project, "waits") == 143
    [process] = engine.containers.values()
    assert process.poll() == -signal.SIGTERM


def test_an_engine_that_was_killed_leaves_no_container_when_the_run_goes_on(
    project: Project, engine: ContainerEngine
) -> None:
    path = pipeline(project, waits=container(script=f'test -e "$PLAYGROUND/go" || {{ {WAITS}; }}'))
    started = project.start("run", str(path), "--name", "r")
    eventually((project.playground / "started").exists)
    shim = project.shim("waits")
    started.kill()  # first, or it may still remove what its shim has left
    os.kill(shim, signal.SIGKILL)
    [first] = eventually(lambda: list(engine.containers.values()))
    assert first.poll() is None  # it is nobody's child here
    project.raise_file("go")
    assert project.spotwright("resume", "r").code == 0
    assert first.poll() is not None
    assert len(engine.removed) == 2


def test_a_container_ends_with_its_node(project: Project, engine: ContainerEngine) -> None:
    project.config(AT_WORK.format(notice="20ms", grace="20ms"))
    reports = "for i in 0 1 2 3 4 5 6 7 8 9; do echo 0.$i > $SPOTWRIGHT_PROGRESS_FILE; sleep 0.02; done"
    stays = f"trap '' TERM; {reports}; while :; do sleep 0.05; done"
    script = f'test "$SPOTWRIGHT_ATTEMPT" = 2 || {{ {stays}; }}'
    done = project.run(pipeline(project, taken=container(script=script)))
    assert done.code == 0, done.err
    assert project.causes("taken") == ["interrupted", "succeeded"]
    assert all(process.poll() is not None for process in engine.containers.values())


def test_a_client_that_ends_with_0_before_its_container_started_is_no_success(
    project: Project, engine: ContainerEngine
) -> None:
    done = project.run(pipeline(project, fails=container(script="true", image="unbegun")))
    assert done.code == 1
    assert exit_code(project, "fails") == 143


def test_limits_of_a_task_are_those_of_its_container_and_unsupported_ones_are_noted(
    project: Project, engine: ContainerEngine
) -> None:
    project.config(QUICK.replace("cpu: 8", "cpu: 8, nvidia.com/gpu: 1"))
    resources = {"cpuLimit": 0.5, "accelerator": {"resourceType": "nvidia.com/gpu", "resourceCount": "1"}}
    done = project.run(pipeline(project, says=container(script="true", resources=resources)))
    [call] = engine.calls
    assert call[call.index("--cpus") + 1] == "0.5"
    assert "the container of says has no nvidia.com/gpu: podman knows of none on this machine" in done.out


def test_a_container_has_the_security_context_and_shared_memory_of_its_task(
    project: Project, engine: ContainerEngine
) -> None:
    path = pipeline(project, says=container(script="true"))
    settings = {"securityContext": {"runAsUser": "0"}, "enabledSharedMemory": {"volumeName": "shm", "size": "1Mi"}}
    platforms = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": {"exec-says": settings}}}}}
    path.write_text(f"{path.read_text()}\n---\n{json.dumps(platforms)}")
    done = project.run(path)
    [call] = engine.calls
    assert call[call.index("--user") + 1] == "0:0"
    assert "type=tmpfs,target=/dev/shm,tmpfs-size=1048576" in call
    assert "securityContext" not in done.out
