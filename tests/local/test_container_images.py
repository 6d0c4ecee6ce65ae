"""The user of a container for each kind of runtime and image, with a script as the client."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from spotwright.local.supervisor.containers import CALLING_USER, IMAGE_USER, MAPPED_USER, ROOT_USER, prepare_image

RUN = ["client", "run", "image"]
CLIENT = """#!/bin/sh
echo "$@" >> {folder}/calls
case "$1 $2" in
"image inspect") test -e {folder}/there && cat {folder}/user;;
"pull --quiet") test -e {folder}/registry && touch {folder}/there || {{ echo "Error: no route to it" >&2; exit 125; }};;
"--version ") echo "podman version $(cat {folder}/version)";;
cp\\ *) cat {folder}/packed;;
esac
"""


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """The folder of a fake client, whose image is present and runs as root."""
    for name, text in {"there": "", "user": "", "version": "4.3.1", "client": CLIENT.format(folder=tmp_path)}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "client").chmod(0o755)
    return tmp_path


def options(client: Path, user_mode: str, named: str, /, **fields: Any) -> list[str]:
    """The user options for an image that names this user."""
    (client / "user").write_text(f"{named}\n")
    return prepare_image(_container(client, user_mode, **fields), RUN)[2:-1]


def _container(client: Path, user_mode: str, **fields: Any) -> dict[str, Any]:
    return {
        "program": str(client / "client"), "name": "n", "image": "image", "pull": "", "user_mode": user_mode, "user": None,
        "group": None, "non_root": False, "home": "/home", "folders": [], "shared": [], "folder": "",
    } | fields  # fmt: skip


def _pack(client: Path, passwd: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("passwd")
        entry.size = len(passwd)
        archive.addfile(entry, io.BytesIO(passwd.encode()))
    (client / "packed").write_bytes(packed.getvalue())


@pytest.mark.parametrize("user", ["", "0", "0:0", "root", "<no value>"])
@pytest.mark.parametrize("user_mode", [MAPPED_USER, IMAGE_USER, ROOT_USER])
def test_an_image_of_root_needs_no_user_option(client: Path, user_mode: str, user: str) -> None:
    _pack(client, "root:x:0:0::/root:/bin/sh\n")
    assert options(client, user_mode, user) == []


def test_rootless_podman_maps_the_images_user_to_the_calling_user(client: Path) -> None:
    assert options(client, MAPPED_USER, "1000:100") == ["--userns", "keep-id:uid=1000,gid=100", "--user", "1000:100"]


def test_a_user_in_roots_group_is_mapped_with_its_own_group(client: Path) -> None:
    assert options(client, MAPPED_USER, "1000") == ["--userns", "keep-id:uid=1000,gid=1000", "--user", "1000:0"]


def test_an_old_podman_runs_the_image_as_root(client: Path) -> None:
    (client / "version").write_text("3.4.4")
    assert options(client, MAPPED_USER, "1000") == ["--user", "0:0"]


def test_a_user_name_is_resolved_in_the_image(client: Path) -> None:
    _pack(client, "root:x:0:0::/root:/bin/sh\njovyan:x:1001:100::/home/jovyan:/bin/sh\n")
    assert options(client, MAPPED_USER, "jovyan")[-1] == "1001:100"
    assert "rm --force n" in (client / "calls").read_text()


def test_rootless_docker_runs_every_image_as_root(client: Path) -> None:
    assert options(client, ROOT_USER, "1000") == ["--user", "0:0"]


def test_roots_docker_runs_an_image_as_the_calling_user_with_a_home(client: Path) -> None:
    me = f"{os.getuid()}:{os.getgid()}"
    assert options(client, CALLING_USER, "1000") == ["--user", me, "--env", "HOME=/home"]


def test_a_security_context_overrides_the_images_user(client: Path) -> None:
    assert options(client, MAPPED_USER, "1000:100", user=7, group=8) == [
        "--userns",
        "keep-id:uid=7,gid=8",
        "--user",
        "7:8",
    ]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_root_makes_the_images_user_the_owner_of_the_attempts_folders(client: Path, tmp_path: Path) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    own.mkdir()
    shared.mkdir()
    assert options(client, IMAGE_USER, "1000", folders=[str(own)], shared=[str(shared)]) == []
    assert (own.stat().st_uid, shared.stat().st_uid, shared.stat().st_mode & 0o777) == (1000, 0, 0o777)


def _ended(client: Path, **fields: Any) -> tuple[int, str]:
    order = _container(client, MAPPED_USER, **fields)
    code = f"from spotwright.local.supervisor.containers import prepare_image; prepare_image({order!r}, {RUN!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_an_image_that_cannot_be_pulled_ends_the_attempt_with_the_reason(client: Path) -> None:
    (client / "there").unlink()
    assert _ended(client) == (
        125,
        "spotwright: pulling image\nError: no route to it\nspotwright: the image image cannot be pulled: no route to it\n",
    )


def test_an_image_with_pull_policy_never_is_not_pulled(client: Path) -> None:
    (client / "there").unlink()
    (client / "registry").touch()
    assert _ended(client, pull="Never")[0] == 125
    assert _ended(client, pull="IfNotPresent")[0] == 0


def test_an_image_with_pull_policy_always_is_pulled_again(client: Path) -> None:
    (client / "registry").touch()
    assert _ended(client, pull="Always")[0] == 0
    assert "pull --quiet image" in (client / "calls").read_text()


def test_an_image_of_root_is_refused_with_run_as_non_root(client: Path) -> None:
    code, message = _ended(client, non_root=True)
    assert code == 125
    assert "runs as root, which its task forbids (run_as_non_root): set run_as_user" in message


@pytest.mark.parametrize(
    ("of_the_image", "expected"),
    [("null", "/run/library"), ('["A=b"]', "/run/library"), ('["PYTHONPATH=/opt/app"]', "/opt/app:/run/library")],
)
def test_the_library_comes_after_the_python_path_of_the_image(client: Path, of_the_image: str, expected: str) -> None:
    env = options(client, ROOT_USER, f"\n{of_the_image}", library="/run/library")

    assert env == ["--env", f"PYTHONPATH={expected}"]


def test_a_user_and_variables_of_an_image_are_both_read(client: Path) -> None:
    got = options(client, IMAGE_USER, '1000:100\n["PYTHONPATH=/x"]', library="/l", user=1000)

    assert got == ["--user", "1000:100", "--env", "PYTHONPATH=/x:/l"]
