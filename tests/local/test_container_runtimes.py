"""Detection of container runtimes, the command lines of containers, and the end of containers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotwright.local.supervisor.containers import ContainerRun, ContainerRuntime, conclude, detect_runtime, run_command

INFO = {"SecurityOptions": ["name=seccomp"], "CpuCfsQuota": True, "MemoryLimit": True, "Runtimes": {"runc": {}}}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, script: str) -> None:
    """Install a fake client on the PATH."""
    path = folder / kind
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    detect_runtime.cache_clear()


def docker(folder: Path, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> ContainerRuntime:
    (folder / "info").write_text(json.dumps(INFO | fields))
    install(folder, monkeypatch, "docker", f'test "$1" = --version && echo Docker version 28 || cat {folder}/info')
    found, why = detect_runtime("docker")
    assert found is not None, why
    return found


def test_the_limits_that_docker_supports_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert docker(tmp_path, monkeypatch, CpuCfsQuota=False).limits == ("memory",)


def test_rootless_docker_and_docker_with_gpus_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = docker(tmp_path, monkeypatch, SecurityOptions=["name=rootless"], Runtimes={"nvidia": {}})
    assert (found.rootless, found.gpus) == (True, True)


def test_a_daemon_that_does_not_answer_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "docker", 'test "$1" = --version || { echo "Cannot connect to it" >&2; exit 1; }')
    assert detect_runtime("docker") == (None, "docker does not answer (Cannot connect to it)")


def test_podman_installed_as_docker_is_detected_as_podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "docker", 'test "$1" = --version && echo podman version 4.9.3 || echo "[]"')
    found, _ = detect_runtime("docker")
    assert found is not None
    assert found.kind == "podman"


def line(runtime: ContainerRuntime, **fields: Any) -> str:
    return " ".join(run_command(runtime, ContainerRun("n", "image", ["sh"], ["-c"], {}, **fields)))


def test_supported_limits_are_options_of_the_command() -> None:
    asked = {"cpu": 500, "memory": 1000, "gpus": True}
    assert "--memory 1000b --memory-swap 1000b --cpus 0.5 --gpus all" in line(
        ContainerRuntime("d", "docker", gpus=True), **asked
    )
    assert "--device nvidia.com/gpu=all" in line(ContainerRuntime("p", "podman", gpus=True), **asked)
    without = line(ContainerRuntime("p", "podman", limits=()), **asked)
    assert not any(option in without for option in ("--cpus", "--memory", "--gpus", "--device"))


def test_a_cpu_limit_above_the_machines_cpus_is_omitted() -> None:
    assert "--cpus" not in line(ContainerRuntime("d", "docker"), cpu=10**9)


def test_an_available_init_program_is_used() -> None:
    assert "--init --init-path /x/catatonit" in line(ContainerRuntime("p", "podman", init="/x/catatonit"))
    assert "--init" not in line(ContainerRuntime("p", "podman", init=None))


def concluded(folder: Path, state: str, code: int, log: str = "", machine: int = 0) -> dict[str, Any]:
    """The result of conclude() for a container that its runtime describes like this."""
    (folder / "client").write_text(f'#!/bin/sh\ntest "$1" = rm || echo "{state}"\n')
    (folder / "client").chmod(0o755)
    (folder / "log.txt").write_text(log)
    container = {"program": str(folder / "client"), "name": "n", "image": "image", "folder": ""}
    return conclude(container, code, str(folder / "log.txt"), machine)


@pytest.mark.parametrize("state", ["", "false created 0", "false running 0", "false exited 1"])
def test_exit_code_0_of_the_client_does_not_count_for_a_container_without_it(tmp_path: Path, state: str) -> None:
    assert concluded(tmp_path, state, 0) == {"exit_code": 143}
    assert concluded(tmp_path, "false exited 0", 0) == {}


def test_a_container_that_never_started_has_a_start_error(tmp_path: Path) -> None:
    log = "docker: no such device\n\nRun 'docker run --help' for more information\n"
    assert concluded(tmp_path, "false created 0", 126, log) == {"start_error": "docker: no such device"}
    assert concluded(tmp_path, "false exited 126", 126, log) == {}


def test_a_command_that_podmans_init_cannot_execute_has_exit_code_127(tmp_path: Path) -> None:
    log = "ERROR (catatonit:6): failed to exec pid1: No such file or directory\n"
    assert concluded(tmp_path, "false exited 1", 1, log) == {"exit_code": 127}
    assert (
        (tmp_path / "log.txt")
        .read_text()
        .endswith("the image image has no such command, or it cannot be executed there\n")
    )


def test_an_out_of_memory_kill_that_the_runtime_misses_is_detected(tmp_path: Path) -> None:
    assert concluded(tmp_path, "true exited 137", 137) == {"oom_kills": 1}
    assert concluded(tmp_path, "false exited 137", 137, machine=2) == {"oom_kills": 1}
    assert concluded(tmp_path, "false exited 137", 137) == {}
