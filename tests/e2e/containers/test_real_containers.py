"""Container components in the podman and docker of this machine, where they can run containers; see machine_images.py."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containers.container_tasks import container, exit_code, log, pipeline
from tests.e2e.containers.machine_images import REAL, Images, real_engine
from tests.e2e.project import AT_WORK, Project, eventually

pytestmark = pytest.mark.slow

TELLS = 'id -u; id -g; pwd; echo 7 > "$0"; echo x > "$SPOTWRIGHT_CHECKPOINT/x"; echo 0.5 > "$SPOTWRIGHT_PROGRESS_FILE"'
N = "{{$.outputs.parameters['n'].output_file}}"


@pytest.fixture(scope="module", params=REAL)
def images(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    with real_engine(request.param, tmp_path_factory.mktemp("settings")) as images:
        yield images


@pytest.fixture
def real(project: Project, images: Images) -> Iterator[Project]:
    """A project whose commands find the container runtime; after the test all its containers must be gone."""
    own = ("HOME", "XDG_", "DOCKER_", "CONTAINER")  # by which the client finds its images
    project.extra |= {key: value for key, value in os.environ.items() if key.startswith(own)} | dict(images.env)
    yield project
    assert not _containers(images, project)


def _containers(images: Images, project: Project) -> list[str]:
    """The containers of a project, whatever their state: they have its run's folder."""
    names = images.ask("ps", "--all", "--format", "{{.Names}}", "--filter", "name=spotwright-").split()
    return [name for name in names if str(project.folder) in images.description(name)]


def run(project: Project, images: Images, *options: str, **steps: dict[str, Any]) -> int:
    return project.run(pipeline(project, **steps), "--containers", images.kind, *options).code


def of(image: str, script: str, *args: str, **settings: Any) -> dict[str, Any]:
    return container(*args, script=script, image=image, **settings)


def test_a_container_returns_an_output(real: Project, images: Images) -> None:
    says = of(images.made(), 'echo "$A"; echo 7 > "$0"', N, parameters=["n"], env=[{"name": "A", "value": "it's"}])
    assert run(real, images, says=says) == 0
    assert real.show()["tasks"]["says"]["outputs"]["parameters"] == {"n": 7}
    assert log(real, "says") == "it's\n"


def test_the_entry_point_of_an_image_runs(real: Project, images: Images) -> None:
    image = images.made('ENTRYPOINT ["/bin/sh", "-c", "echo $0 $1"]', 'CMD ["its", "own"]')
    assert run(real, images, own=of(image, "", command=[]), other=of(image, "", "an", "other", command=[])) == 0
    assert (log(real, "own"), log(real, "other")) == ("its own\n", "an other\n")


@pytest.mark.parametrize("user", ["jovyan", "1000:100"])
def test_a_container_runs_as_the_user_of_its_image_and_its_files_belong_to_us(
    real: Project, images: Images, user: str
) -> None:
    assert run(real, images, says=of(images.made(f"USER {user}", "WORKDIR /srv"), TELLS, N, parameters=["n"])) == 0
    is_mine = images.kind == "docker" and os.getuid() != 0
    assert log(real, "says").split()[:3] == [
        *((str(os.getuid()), str(os.getgid())) if is_mine else ("1000", "100")),
        "/srv",
    ]
    if os.getuid() != 0:
        assert {path.stat().st_uid for path in real.state.rglob("*")} == {os.getuid()}


def test_a_container_runs_as_the_user_of_its_security_context(real: Project, images: Images) -> None:
    path = pipeline(real, says=of(images.made(), TELLS, N, parameters=["n"]), root=of(images.made(), "id -u"))
    contexts = {"says": {"runAsUser": "1234", "runAsGroup": "100"}, "root": {"runAsNonRoot": True}}
    executors = {f"exec-{name}": {"securityContext": settings} for name, settings in contexts.items()}
    platforms = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}}
    path.write_text(f"{path.read_text()}\n---\n{json.dumps(platforms)}")
    done = real.run(path, "--containers", images.kind)
    if images.kind == "podman" or os.getuid() == 0:
        assert log(real, "says").split()[:2] == ["1234", "100"]
        assert real.causes("root") == ["start-up"]
        assert "runs as root, which its task forbids (run_as_non_root)" in done.out


def test_a_missing_image_is_named(real: Project, images: Images) -> None:
    path = pipeline(real, starts=of("localhost/spotwright-test-none:1", "true"))
    platform = {"deploymentSpec": {"executors": {"exec-starts": {"imagePullPolicy": "Never"}}}}
    path.write_text(f"{path.read_text()}\n---\n{json.dumps({'platforms': {'kubernetes': platform}})}")
    done = real.run(path, "--containers", images.kind)
    assert done.code == 1
    assert real.causes("starts") == ["start-up"]
    assert "localhost/spotwright-test-none:1 is not on this machine, and its imagePullPolicy is Never" in log(
        real, "starts"
    )


def test_a_command_that_is_missing_in_the_image_is_named(real: Project, images: Images) -> None:
    assert run(real, images, fails=of(images.made(), "", command=["no-such-program"])) == 1
    assert (exit_code(real, "fails"), real.causes("fails")) == (127, ["failed"])


def test_memory_over_the_limit_is_out_of_memory(real: Project, images: Images) -> None:
    script = "x=aaaaaaaa; i=0; while [ $i -lt 25 ]; do x=$x$x; i=$((i + 1)); done"
    done = real.run(
        pipeline(real, eats=of(images.made(), script, resources={"memoryLimit": 0.03})), "--containers", images.kind
    )
    if "the memory limit of eats is not kept" in done.out:
        pytest.skip("this engine may not limit memory here")
    assert real.causes("eats") == ["out of memory"]


@pytest.mark.parametrize("user", ["0", "1000"])
def test_secrets_reach_a_container_and_no_log(real: Project, images: Images, user: str) -> None:
    real.config(
        'secrets: {tok: {key: "@env:TOK"}}\n' + Path(real.folder, "spotwright.yaml").read_text().split("\n", 1)[1]
    )
    real.extra["TOK"] = "not-to-be-seen"
    path = pipeline(real, says=of(images.made(f"USER {user}"), "cat /sec/key; echo; echo $T > /empty/x; cat /empty/x"))
    of_task = {
        "secretAsVolume": [{"secretName": "tok", "mountPath": "/sec"}],
        "secretAsEnv": [{"secretName": "tok", "keyToEnv": [{"secretKey": "key", "envVar": "T"}]}],
        "emptyDirMounts": [{"volumeName": "e", "mountPath": "/empty"}],
    }
    platform = {"deploymentSpec": {"executors": {"exec-says": of_task}}}
    path.write_text(f"{path.read_text()}\n---\n{json.dumps({'platforms': {'kubernetes': platform}})}")
    assert real.run(path, "--containers", images.kind).code == 0
    assert log(real, "says").split() == ["***", "***"]


WAITS = 'touch "$SPOTWRIGHT_CHECKPOINT/started"; while [ ! -e "$SPOTWRIGHT_CHECKPOINT/go" ]; do sleep 0.05; done'


def _place(project: Project, task: str) -> Path:
    return project.state / "runs" / "r" / "checkpoints" / task


def test_the_last_output_of_a_cancelled_container_is_logged(real: Project, images: Images) -> None:
    path = pipeline(real, waits=of(images.made(), f'trap "echo told; exit 143" TERM; {WAITS}'))
    started = real.start("run", str(path), "--name", "r", "--containers", images.kind)
    eventually((_place(real, "waits") / "started").exists)
    started.send(signal.SIGINT)
    assert started.wait().code == 130
    assert log(real, "waits") == "told\n"


def test_a_container_that_ignores_sigterm_ends_with_its_node(real: Project, images: Images) -> None:
    real.config(AT_WORK.format(notice="20ms", grace="20ms"))
    reports = "for i in 0 1 2 3 4 5 6 7 8 9; do echo 0.$i > $SPOTWRIGHT_PROGRESS_FILE; sleep 0.05; done"
    script = f'test "$SPOTWRIGHT_ATTEMPT" = 2 || {{ trap "" TERM; {reports}; while :; do sleep 0.05; done; }}'
    assert run(real, images, taken=of(images.made(), script)) == 0
    assert real.causes("taken") == ["interrupted", "succeeded"]


def test_no_container_of_a_killed_shim_is_left_when_the_run_goes_on(real: Project, images: Images) -> None:
    path = pipeline(real, waits=of(images.made(), WAITS))
    started = real.start("run", str(path), "--name", "r", "--containers", images.kind)
    eventually((_place(real, "waits") / "started").exists)
    shim = real.shim("waits")
    started.kill()  # first, or it may already begin the next attempt
    os.kill(shim, signal.SIGKILL)
    (_place(real, "waits") / "go").touch()
    assert real.spotwright("resume", "r").code == 0
    assert real.causes("waits") == ["lost", "succeeded"]
