"""The cache of the test bed: entries are complete or absent, named after their content, and made once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from testbed.building import builds, requirements
from testbed.building.archives import Image, write_archive
from testbed.building.builds import Cache
from testbed.building.programs import GO, MANIFESTS, PROGRAMS, digest_of, version_of


def test_an_interrupted_build_leaves_no_entry_and_the_next_one_starts_afresh(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        interrupt(cache)
    assert not (tmp_path / "pause-v1").exists()
    with cache.new_entry("pause-v1") as folder:
        (folder / "pause").write_text("")
    assert [path.name for path in (tmp_path / "pause-v1").iterdir()] == ["pause"]


def interrupt(cache: Cache) -> None:
    with cache.new_entry("pause-v1") as folder:
        (folder / "half").write_text("")
        raise KeyboardInterrupt


BUILD = """
import math
from pathlib import Path
from testbed.building.builds import _go
from testbed.machine.processes import ended_by_sigterm
with ended_by_sigterm():
    _go(["go", "build"], Path.cwd(), math.inf)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_build_ends_with_the_command_that_began_it(tmp_path: Path, number: signal.Signals) -> None:
    go, pid = tmp_path / "go", tmp_path / "pid"
    go.write_text(f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600\n")
    go.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(GO.parent.parent)}
    with subprocess.Popen([sys.executable, "-c", BUILD], cwd=tmp_path, env=env, stderr=subprocess.DEVNULL) as command:
        until(pid.exists)
        command.send_signal(number)
    until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_built_is_not_missing_any_more(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    every = {program.folder for program in PROGRAMS}
    everything = cache.missing(every)
    assert {*everything} == {*PROGRAMS, *MANIFESTS}
    with cache.new_entry(cache.entry(PROGRAMS[0]).name):
        pass
    assert cache.missing(every) == everything[1:]


def test_only_what_the_controllers_of_the_cluster_need_is_built(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert [item.name for item in cache.missing(())] == ["kubernetes", "pause"]
    assert [item.name for item in cache.missing(("jobset",))] == ["kubernetes", "pause", "jobset", "jobset-manifests"]


def test_the_versions_are_those_that_the_pages_name() -> None:
    versions = {program.name: version_of(program.folder, program.module) for program in PROGRAMS}
    page = (GO.parent / "README.md").read_text(encoding="utf-8")
    for version in set(versions.values()) - {"v1"}:
        assert version.removeprefix("v") in page, f"the page on the test bed does not name {version}"


def test_each_part_is_named_when_it_begins_and_each_minute_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "MINUTE", 0.05)
    monkeypatch.setattr(builds, "_build", lambda *_: time.sleep(0.3))
    monkeypatch.setattr(builds, "_copy_manifests", lambda *_: None)
    said: list[str] = []
    builds.build_all(Cache(tmp_path), ("jobset",), said.append)
    version = version_of("kubernetes", "k8s.io/kubernetes")
    assert said[0] == f"building kubernetes {version}, 1 of 4"
    assert said[1].startswith(f"still building kubernetes {version}, since ")
    ended = [line for line in said if line.startswith("built ")]
    assert [line.split()[1] for line in ended] == ["kubernetes", "pause", "jobset", "jobset-manifests"]


def test_the_lock_of_the_cache_is_free_between_two_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, taken = Cache(tmp_path), list[str]()
    monkeypatch.setattr(builds, "_build", lambda *_: None)
    monkeypatch.setattr(builds, "_copy_manifests", lambda *_: None)

    def take(line: str) -> None:
        if line.startswith("built "):
            with cache.locked(time.monotonic()):
                taken.append(line.split()[1])

    builds.build_all(cache, ("jobset",), take)
    assert taken == ["kubernetes", "pause", "jobset", "jobset-manifests"]


def test_a_second_start_builds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "_build", lambda *_: None)
    monkeypatch.setattr(builds, "_copy_manifests", lambda *_: None)
    builds.build_all(Cache(tmp_path), ("argo",), lambda _: None)
    said: list[str] = []
    builds.build_all(Cache(tmp_path), ("argo",), said.append)
    assert said == []


def test_help_pages_and_command_name_one_duration() -> None:
    root = GO.parent.parent
    for name in ("Makefile", "CONTRIBUTING.md", "testbed/README.md"):
        assert f"about {builds.FIRST_TIME}" in (root / name).read_text(encoding="utf-8"), name


def test_an_entry_is_named_after_version_and_sources(tmp_path: Path) -> None:
    entry = Cache(tmp_path).entry(PROGRAMS[0])
    assert re.fullmatch(r"kubernetes-v1\.\d+\.\d+-[0-9a-f]{8}", entry.name)
    assert entry.name.endswith(digest_of("kubernetes"))


def test_no_module_of_the_test_bed_names_where_modules_are_fetched() -> None:
    for path in GO.rglob("go.*"):
        assert "GOPROXY" not in path.read_text(encoding="utf-8")


def test_the_same_content_gives_the_same_image(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"#!/bin/sh\n")
    image = Image("localhost/tool:1", files={"/bin/tool": tmp_path / "tool"}, entrypoint=["/bin/tool"])
    write_archive(image, tmp_path / "first.tar")
    with tarfile.open(tmp_path / "first.tar") as archive:
        manifest = json.load(stream(archive, "manifest.json"))
        config = json.load(stream(archive, manifest[0]["Config"]))
        with tarfile.open(fileobj=stream(archive, manifest[0]["Layers"][0])) as files:
            assert files.getmember("bin/tool").uid == 0
            assert {"tmp", "etc/passwd"} <= set(files.getnames())
    assert manifest[0]["RepoTags"] == ["localhost/tool:1"]
    assert config["config"]["Entrypoint"] == ["/bin/tool"]
    write_archive(image, tmp_path / "second.tar")
    assert layer_names(tmp_path / "first.tar") == layer_names(tmp_path / "second.tar")
    assert not list(tmp_path.glob("*.partial")) + list(tmp_path.glob("*.layer"))


def stream(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    assert found is not None
    return found


def layer_names(archive: Path) -> list[str]:
    with tarfile.open(archive) as opened:
        return sorted(opened.getnames())


def test_missing_programs_are_one_message_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None if name in ("socat", "runc") else f"/usr/bin/{name}")
    monkeypatch.setattr("pathlib.Path.exists", lambda path: path.name != "busybox")
    reason = requirements.obstacle(building=False)
    assert reason == "missing programs; on Debian: apt-get install -y --no-install-recommends runc socat busybox-static"


def test_an_ordinary_user_is_told_that_root_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "needs root" in (requirements.obstacle(building=False) or "")


@pytest.mark.parametrize(
    ("version", "message"),
    [((), "go is not on the PATH"), ((1, 22), "go 1.22 is too old"), ((1, 25), None)],
)
def test_go_is_needed_only_where_something_has_to_be_built(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], message: str | None
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("pathlib.Path.exists", lambda path: True)
    monkeypatch.setattr(requirements, "_go_version", lambda: version)
    assert requirements.obstacle(building=False) is None
    reason = requirements.obstacle(building=True)
    assert (reason is None) if message is None else (message in (reason or ""))
