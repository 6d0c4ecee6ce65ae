"""What is found out about a container engine before anything runs in it, and what becomes of it on a command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotwright.local.clients import Engine, answering
from spotwright.local.containers import Run, conclude, run_command

INFO = {"SecurityOptions": ["name=seccomp"], "CpuCfsQuota": True, "MemoryLimit": True, "Runtimes": {"runc": {}}}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, script: str) -> None:
    """Put a client on the PATH."""
    path = folder / kind
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    answering.cache_clear()


def docker(folder: Path, monkeypatch: pytest.MonkeyPatch, **said: Any) -> Engine:
    (folder / "info").write_text(json.dumps(INFO | said))
    install(folder, monkeypatch, "docker", f'test "$1" = --version && echo Docker version 28 || cat {folder}/info')
    found, why = answering("docker")
    assert found is not None, why
    return found


def test_a_docker_says_what_it_can_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert docker(tmp_path, monkeypatch, CpuCfsQuota=False).limits == ("memory",)


def test_a_docker_without_root_and_one_with_gpus_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = docker(tmp_path, monkeypatch, SecurityOptions=["name=rootless"], Runtimes={"nvidia": {}})
    assert (found.rootless, found.gpus) == (True, True)


def test_a_daemon_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "docker", 'test "$1" = --version || { echo "Cannot connect to it" >&2; exit 1; }')
    assert answering("docker") == (None, "docker does not answer (Cannot connect to it)")


def test_a_podman_under_the_name_of_docker_is_a_podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "docker", 'test "$1" = --version && echo podman version 4.9.3 || echo "[]"')
    found, _ = answering("docker")
    assert found is not None
    assert found.kind == "podman"


def line(engine: Engine, **said: Any) -> str:
    return " ".join(run_command(engine, Run("n", "image", ["sh"], ["-c"], {}, **said)))


def test_limits_stand_on_the_line_where_they_can_be_kept() -> None:
    asked = {"cpu": 500, "memory": 1000, "gpus": True}
    assert "--memory 1000b --memory-swap 1000b --cpus 0.5 --gpus all" in line(Engine("d", "docker", gpus=True), **asked)
    assert "--device nvidia.com/gpu=all" in line(Engine("p", "podman", gpus=True), **asked)
    without = line(Engine("p", "podman", limits=()), **asked)
    assert not any(option in without for option in ("--cpus", "--memory", "--gpus", "--device"))


def test_more_processors_than_there_are_is_no_limit() -> None:
    assert "--cpus" not in line(Engine("d", "docker"), cpu=10**9)


def test_an_init_is_used_where_there_is_one() -> None:
    assert "--init --init-path /x/catatonit" in line(Engine("p", "podman", init="/x/catatonit"))
    assert "--init" not in line(Engine("p", "podman", init=None))


def concluded(folder: Path, state: str, code: int, log: str = "", machine: int = 0) -> dict[str, Any]:
    """What is concluded of a container that its engine describes so."""
    (folder / "client").write_text(f'#!/bin/sh\ntest "$1" = rm || echo "{state}"\n')
    (folder / "client").chmod(0o755)
    (folder / "log.txt").write_text(log)
    container = {"program": str(folder / "client"), "name": "n", "image": "image", "folder": ""}
    return conclude(container, code, str(folder / "log.txt"), machine)


@pytest.mark.parametrize("state", ["", "false created 0", "false running 0", "false exited 1"])
def test_exit_0_of_a_client_is_none_of_a_container_that_has_not_ended_so(tmp_path: Path, state: str) -> None:
    assert concluded(tmp_path, state, 0) == {"exit_code": 143}
    assert concluded(tmp_path, "false exited 0", 0) == {}


def test_what_never_began_is_no_end_of_the_code(tmp_path: Path) -> None:
    log = "docker: no such device\n\nRun 'docker run --help' for more information\n"
    assert concluded(tmp_path, "false created 0", 126, log) == {"start_error": "docker: no such device"}
    assert concluded(tmp_path, "false exited 126", 126, log) == {}


def test_a_command_that_the_init_of_podman_cannot_execute_is_not_found(tmp_path: Path) -> None:
    log = "ERROR (catatonit:6): failed to exec pid1: No such file or directory\n"
    assert concluded(tmp_path, "false exited 1", 1, log) == {"exit_code": 127}
    assert (
        (tmp_path / "log.txt")
        .read_text()
        .endswith("the image image has no such command, or it cannot be executed there\n")
    )


def test_a_kill_for_memory_is_seen_also_where_the_engine_does_not_see_it(tmp_path: Path) -> None:
    assert concluded(tmp_path, "true exited 137", 137) == {"oom_kills": 1}
    assert concluded(tmp_path, "false exited 137", 137, machine=2) == {"oom_kills": 1}
    assert concluded(tmp_path, "false exited 137", 137) == {}
