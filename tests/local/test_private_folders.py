"""Private folders: an attempt finds temporary folders empty, reads the home folder, and leaves nothing in either."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.local.process_harness import ProcessHarness

from spotwright.local.protocol import PrivateFolderSettings
from spotwright.local.supervisor import mounts, private_folders, process_identity
from spotwright.local.supervisor.fork_server import _Server
from spotwright.local.supervisor.mounts import why_impossible
from spotwright.local.supervisor.private_folders import PrivateFolders, why_incomplete
from spotwright.local.visible_paths import named_paths, private_folder_settings

LOOK_AND_WRITE = """
import json, os, sys
from pathlib import Path

def names(folder):
    return sorted(os.listdir(folder))

def work(shared: str, readable: str) -> str:
    home = Path.home()
    seen = {"tmp": names("/tmp"), "shm": names("/dev/shm"), "home": (home / "credentials").read_text()}
    seen["readable"] = Path(readable, "data").read_text()
    for folder in ("/tmp", "/var/tmp", "/dev/shm", str(home), shared, readable):
        Path(folder, "left-by-attempt").write_text("x")
    seen["own"] = (home / "left-by-attempt").read_text()
    return json.dumps(seen)
"""
# Attempts of one shim's private folders, with or without the right to mount.
IN_TURN = """
import ctypes, json, os, sys
from pathlib import Path
from spotwright.local.supervisor.private_folders import PrivateFolders

request = json.loads(sys.argv[1])
if request["without_rights"]:
    held = int(next(line for line in open("/proc/self/status") if line.startswith("CapPrm")).split()[1], 16)
    held &= ~(1 << 21)  # CAP_SYS_ADMIN: the right to mount
    low, high = held & 0xFFFFFFFF, held >> 32
    header, rights = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    assert ctypes.CDLL(None).capset(header, rights) == 0
folders = PrivateFolders()
found = []
for file in ("/tmp/left-behind-1", "", str(Path.home() / "left-behind-2"), "/dev/shm/left-behind-3", "/tmp/left-behind-4"):
    folders.prepare({"shared": [], "readable": [], "everything": False})
    namespace = os.fstat(folders._namespaces[-1]).st_ino
    reader, writer = os.pipe()
    if os.fork() == 0:
        folders.enter()
        seen = [name for folder in ("/tmp", "/dev/shm", Path.home()) for name in os.listdir(folder)]
        if file:
            Path(file).write_text("x")
        os.write(writer, json.dumps(seen).encode())
        os._exit(0)
    os.wait()
    found.append([namespace, json.loads(os.read(reader, 9999)), list(folders.problems)])
    folders.clean()
folders.remove()
print(json.dumps(found))
"""


@pytest.fixture(autouse=True)
def possible() -> None:
    if why := why_impossible():
        pytest.skip(why)


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a file in it, outside of the run's folder."""
    made = tmp_path_factory.mktemp("home")
    (made / "credentials").write_text("token")
    monkeypatch.setenv("HOME", str(made))
    return made


def test_writes_to_private_folders_go_with_the_attempt(
    harness: ProcessHarness, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared, readable = tmp_path_factory.mktemp("shared"), tmp_path_factory.mktemp("readable")
    (readable / "data").write_text("rows")
    settings = PrivateFolderSettings(own=(str(harness.folder),), named=(str(shared),), readable=(str(readable),))
    given = {"shared": str(shared), "readable": str(readable)}

    for name in ("first", "second"):
        record = harness.play(LOOK_AND_WRITE, given, name, private=settings, env={"HOME": str(home)})

        assert record.exit_code == 0, harness.log(name)
        seen = json.loads(harness.output(name))
        assert "left-by-attempt" not in (*seen["tmp"], *seen["shm"])
        assert (seen["home"], seen["readable"], seen["own"]) == ("token", "rows", "x")

    assert (shared / "left-by-attempt").read_text() == "x"
    for folder in (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), home, readable):  # noqa: S108 (the folders themselves)
        assert not (folder / "left-by-attempt").exists()


@pytest.mark.parametrize("without_rights", [False, True])
def test_the_namespace_is_used_again_until_an_attempt_leaves_files(home: Path, without_rights: bool) -> None:
    request = json.dumps({"without_rights": without_rights})

    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, request], capture_output=True, text=True, check=False, timeout=600
    )

    assert done.returncode == 0, done.stderr
    found: list[tuple[int, list[str], list[str]]] = json.loads(done.stdout)
    namespaces = [namespace for namespace, _, _ in found]
    assert not [name for _, seen, _ in found for name in seen if name.startswith("left-behind-")]
    assert not any(problems for _, _, problems in found)
    assert namespaces[1] == namespaces[2], "an attempt that wrote nothing left a namespace for the next one"
    assert home.joinpath("credentials").exists()
    assert not any(name.startswith(f"spotwright-{os.getuid()}-{os.getpid()}") for name in os.listdir("/var/tmp"))  # noqa: S108, PTH208


@pytest.mark.parametrize(
    ("text", "is_named"),
    [("{}/data.csv", True), ("file://{}/data.csv", True), ("--data={}/data.csv", True), ("{}/new.csv", False)],
)
def test_a_path_that_a_text_names_is_seen(tmp_path: Path, text: str, is_named: bool) -> None:
    (tmp_path / "data.csv").touch()

    expected = tmp_path / "data.csv" if is_named else tmp_path  # the folder of a file that does not exist yet
    assert named_paths({"list": [text.format(tmp_path)]}) == (str(expected),)


@pytest.mark.parametrize("text", ["/tmp", "/tmp/nothing-of-that-name", "/usr/bin", "tmp/x", "a\n/tmp/x"])  # noqa: S108
def test_other_texts_name_no_path_in_a_private_folder(text: str) -> None:
    assert named_paths([text]) == ()


def test_parameters_are_shared_and_artifacts_are_readable(tmp_path: Path) -> None:
    for name in ("parameter", "artifact", "variable", "state"):
        (tmp_path / name).mkdir()
    inputs: dict[str, Any] = {
        "inputs": {
            "parameterValues": {"folder": str(tmp_path / "parameter")},
            "artifacts": {"data": {"artifacts": [{"uri": str(tmp_path / "artifact")}]}},
        }
    }

    settings = private_folder_settings(
        str(tmp_path / "state" / "runs"),
        str(tmp_path / "state" / "checkpoint"),
        inputs,
        {"DATA": str(tmp_path / "variable")},
    )

    assert settings.own == (str(tmp_path / "state"),)
    assert settings.named == (str(tmp_path / "parameter"), str(tmp_path / "variable"))
    assert str(tmp_path / "artifact") in settings.readable


def refuse(*_: object, **__: object) -> bool:
    raise PermissionError(1, "Operation not permitted")


def test_where_nothing_can_be_mounted_the_attempt_has_a_temporary_folder_and_the_reason_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "unshare", refuse)
    folders = PrivateFolders()

    folders.prepare(PrivateFolderSettings().data)

    assert folders.problems[0].startswith("attempts share /tmp and the home folder with this machine")
    assert folders.environment({}, str(tmp_path)) == {"TMPDIR": f"{tmp_path}/scratch/tmp"}
    assert folders.environment({"TMPDIR": "/own"}, str(tmp_path)) == {}
    folders.remove()


def test_a_run_names_what_cannot_be_isolated_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_incomplete() == ""

    monkeypatch.setattr(mounts, "unshare", refuse)
    monkeypatch.setattr(private_folders, "_may_mount", lambda: False)

    assert why_incomplete().startswith("attempts share /tmp and the home folder with this machine")


def test_without_an_overlay_the_home_folder_is_shared_and_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = mounts.mount_file_system

    def no_overlay(kind: str, target: str, options: str = "") -> None:
        if kind == "overlay" and target == str(home.resolve()):  # the interpreter may need one where it lies below /tmp
            refuse()
        mount(kind, target, options)

    monkeypatch.setattr(mounts, "mount_file_system", no_overlay)
    folders = PrivateFolders()

    folders.prepare(PrivateFolderSettings().data)

    assert list(folders.problems) == [f"attempts share {home} with this machine: no overlay is possible"]
    folders.remove()


def test_what_a_killed_shim_left_is_removed_and_that_of_a_living_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_folders, "_SCRATCH", str(tmp_path))
    own = process_identity.mine()
    living = tmp_path / f"spotwright-{os.getuid()}-{own.pid}-{own.starttime}"
    killed = tmp_path / f"spotwright-{os.getuid()}-{own.pid}-{own.starttime + 1}"
    outside = tmp_path / "file"
    outside.touch()
    for folder in (living, killed / "1" / "work"):
        folder.mkdir(parents=True)
    (killed / "1" / "link").symlink_to(tmp_path)
    (killed / "1" / "work").chmod(0)

    private_folders.remove_abandoned()

    assert sorted(tmp_path.iterdir()) == [outside, living]


def test_this_process_is_outside_of_the_namespace_that_it_has_made(tmp_path: Path) -> None:
    folders, before = PrivateFolders(), (Path("/proc/self/ns/mnt").stat().st_ino, Path.cwd())
    descriptors = len(list(Path("/proc/self/fd").iterdir()))

    folders.prepare(PrivateFolderSettings().data)
    made = os.fstat(folders._namespaces[-1]).st_ino

    assert made != before[0]
    assert (Path("/proc/self/ns/mnt").stat().st_ino, Path.cwd()) == before
    folders.remove()
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_folders_without_files_are_removed_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = PrivateFolders()
    folders.prepare(PrivateFolderSettings(own=(str(tmp_path),)).data)
    scratch = Path(folders._scratch)
    assert scratch.is_dir()
    monkeypatch.setattr(private_folders, "_remove_tree", refuse)

    folders.remove()

    assert not scratch.exists()


def test_only_paths_that_exist_are_remembered_for_the_attempts_of_a_run(tmp_path: Path) -> None:
    existing, missing = PrivateFolderSettings(own=(str(tmp_path),)), PrivateFolderSettings(own=(str(tmp_path / "no"),))
    rehearsed = PrivateFolderSettings(own=(str(tmp_path),), everything=True)

    for settings in (existing, missing, rehearsed):
        private_folders.remember_visible_paths(settings.data)

    assert list(private_folders._remembered) == [private_folders._key(existing.data)]
    private_folders.forget_visible_paths()
    assert not private_folders._remembered


def test_a_mount_makes_the_fork_server_look_the_paths_up_again(tmp_path: Path) -> None:
    def mount_and_look() -> bytes:
        mounts.unshare()
        server = _Server(socket.socketpair()[0])
        private_folders.remember_visible_paths(PrivateFolderSettings(own=(str(tmp_path),)).data)
        before = len(private_folders._remembered)
        server._poll(0)
        unchanged = len(private_folders._remembered)
        mounts.mount_file_system("tmpfs", str(tmp_path))
        server._poll(0)
        return repr([before, unchanged, len(private_folders._remembered)]).encode()

    assert mounts.try_in_child(mount_and_look) == b"[1, 1, 0]"
