"""As whom a container runs: decided for each kind of engine from what the image says, here by a client that is a script."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from spotwright.local.images import AS_IT_SAYS, AS_ROOT, AS_YOU, MAPPED, ready

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
    """The folder of a client whose image is there and runs as root."""
    for name, text in {"there": "", "user": "", "version": "4.3.1", "client": CLIENT.format(folder=tmp_path)}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "client").chmod(0o755)
    return tmp_path


def options(client: Path, manner: str, named: str, /, **said: Any) -> list[str]:
    """What is added for an image that names its user so."""
    (client / "user").write_text(f"{named}\n")
    return ready(_container(client, manner, **said), RUN)[2:-1]


def _container(client: Path, manner: str, **said: Any) -> dict[str, Any]:
    return {
        "program": str(client / "client"), "name": "n", "image": "image", "pull": "", "manner": manner, "user": None,
        "group": None, "non_root": False, "home": "/home", "folders": [], "shared": [], "folder": "",
    } | said  # fmt: skip


def _pack(client: Path, passwd: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("passwd")
        entry.size = len(passwd)
        archive.addfile(entry, io.BytesIO(passwd.encode()))
    (client / "packed").write_bytes(packed.getvalue())


@pytest.mark.parametrize("user", ["", "0", "0:0", "root", "<no value>"])
@pytest.mark.parametrize("manner", [MAPPED, AS_IT_SAYS, AS_ROOT])
def test_an_image_that_runs_as_root_needs_no_option(client: Path, manner: str, user: str) -> None:
    _pack(client, "root:x:0:0::/root:/bin/sh\n")
    assert options(client, manner, user) == []


def test_another_user_of_an_image_is_mapped_to_the_user_of_a_podman_without_root(client: Path) -> None:
    assert options(client, MAPPED, "1000:100") == ["--userns", "keep-id:uid=1000,gid=100", "--user", "1000:100"]


def test_a_user_in_the_group_of_root_is_mapped_with_a_group_of_its_own(client: Path) -> None:
    assert options(client, MAPPED, "1000") == ["--userns", "keep-id:uid=1000,gid=1000", "--user", "1000:0"]


def test_a_podman_that_cannot_map_runs_the_image_as_root(client: Path) -> None:
    (client / "version").write_text("3.4.4")
    assert options(client, MAPPED, "1000") == ["--user", "0:0"]


def test_a_name_is_looked_up_in_the_image(client: Path) -> None:
    _pack(client, "root:x:0:0::/root:/bin/sh\njovyan:x:1001:100::/home/jovyan:/bin/sh\n")
    assert options(client, MAPPED, "jovyan")[-1] == "1001:100"
    assert "rm --force n" in (client / "calls").read_text()


def test_a_docker_that_is_the_users_own_runs_everything_as_root(client: Path) -> None:
    assert options(client, AS_ROOT, "1000") == ["--user", "0:0"]


def test_the_docker_of_root_runs_as_an_ordinary_user_with_a_home(client: Path) -> None:
    me = f"{os.getuid()}:{os.getgid()}"
    assert options(client, AS_YOU, "1000") == ["--user", me, "--env", "HOME=/home"]


def test_a_security_context_counts_before_the_image(client: Path) -> None:
    assert options(client, MAPPED, "1000:100", user=7, group=8) == ["--userns", "keep-id:uid=7,gid=8", "--user", "7:8"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_root_gives_the_attempt_to_the_user_of_the_image(client: Path, tmp_path: Path) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    own.mkdir()
    shared.mkdir()
    assert options(client, AS_IT_SAYS, "1000", folders=[str(own)], shared=[str(shared)]) == []
    assert (own.stat().st_uid, shared.stat().st_uid, shared.stat().st_mode & 0o777) == (1000, 0, 0o777)


def _ended(client: Path, **said: Any) -> tuple[int, str]:
    code = f"from spotwright.local.images import ready; ready({_container(client, MAPPED, **said)!r}, {RUN!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_an_image_that_cannot_be_pulled_ends_the_attempt_with_the_reason(client: Path) -> None:
    (client / "there").unlink()
    assert _ended(client) == (
        125,
        "spotwright: pulling image\nError: no route to it\nspotwright: the image image cannot be pulled: no route to it\n",
    )


def test_an_image_that_may_not_be_pulled_is_not(client: Path) -> None:
    (client / "there").unlink()
    (client / "registry").touch()
    assert _ended(client, pull="Never")[0] == 125
    assert _ended(client, pull="IfNotPresent")[0] == 0


def test_an_image_is_pulled_again_where_the_task_says_always(client: Path) -> None:
    (client / "registry").touch()
    assert _ended(client, pull="Always")[0] == 0
    assert "pull --quiet image" in (client / "calls").read_text()


def test_an_image_of_root_is_refused_where_the_task_may_not_be_root(client: Path) -> None:
    code, said = _ended(client, non_root=True)
    assert code == 125
    assert "runs as root, and its task is not to (run_as_non_root): name a run_as_user" in said
