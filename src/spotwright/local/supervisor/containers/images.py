"""Pull the image of an attempt's container and choose the container's user, before the attempt executes the client.

On a cluster a container runs as the user that its image or its security context names. Here it does too, with one more
condition: it must be able to write to the run's folder, and its files must belong to the user who started the run.

- An ordinary user's podman: root in a container is that user outside, and any other user of an image is mapped to that user
  (``--userns keep-id:uid=``, podman 4.3 and later; with older versions such an image runs as root).
- Root's podman or docker: the image's user is the same outside, so that user becomes the owner of the attempt's folders.
- An ordinary user's docker with root's daemon: the container runs as that ordinary user, who could not remove root's files from
  the run's folder. With the user's own daemon the container runs as root, who is that user outside.

Runs in the fork server's interpreter, so it uses only the standard library.
"""

# ruff: noqa: PTH101, PTH118 (as in process_identity.py)

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

__all__ = ["CALLING_USER", "IMAGE_USER", "MAPPED_USER", "ROOT_USER", "prepare_image"]

IMAGE_USER, MAPPED_USER, CALLING_USER, ROOT_USER = "image", "mapped", "calling", "root"
"""The user modes described above; :func:`spotwright.local.container_attempt.user_mode` chooses one."""

_CANNOT_START = 125  # exit code of a client that could not start a container
_MAPS_SINCE = (4, 3)  # version of podman
_OPTIONS_AT = 2  # index after the program and `run`


def prepare_image(container: Mapping[str, Any], command: Sequence[str]) -> list[str]:
    """Pull the image if needed, and return the client's command line with the options for the container's user.

    Reads from ``container``: ``program``, ``name``, ``image``, ``pull`` (Kubernetes' imagePullPolicy), ``user_mode`` (one of
    those above), ``user``, ``group`` and ``non_root`` (the security context), ``home``, the folders that the user writes
    to (``folders`` of the attempt, ``shared`` with other tasks), and ``library``: a path that Python programs in the container
    import from, after the image's own ``PYTHONPATH``. On failure the process prints the reason and exits as its client would.
    """
    image = _Image(container)
    named_user = image.ensure_present()
    options = [*_user_options(image, named_user), *_python_path(image)]
    return [*command[:_OPTIONS_AT], *options, *command[_OPTIONS_AT:]]


def _python_path(image: _Image) -> list[str]:
    """The option for ``PYTHONPATH``, which keeps what the image sets."""
    library = image.container.get("library")
    if not library:
        return []
    own = next((entry.partition("=")[2] for entry in image.env if entry.startswith("PYTHONPATH=")), "")
    return ["--env", f"PYTHONPATH={own}:{library}" if own else f"PYTHONPATH={library}"]


def _user_options(image: _Image, named_user: str) -> list[str]:
    container = image.container
    if container["user_mode"] == CALLING_USER:
        return ["--user", f"{os.getuid()}:{os.getgid()}", "--env", f"HOME={container['home']}"]
    is_requested = container["user"] is not None or container["group"] is not None
    uid, gid = image.numeric_ids(named_user)
    uid = uid if container["user"] is None else container["user"]
    gid = gid if container["group"] is None else container["group"]
    if container["non_root"] and uid == 0:
        _refuse(
            f"the image {container['image']} runs as root, which its task forbids (run_as_non_root): set run_as_user"
        )
    user = ["--user", f"{uid}:{gid}"]
    if container["user_mode"] == IMAGE_USER:
        if uid != 0:
            try:
                _make_owner(container, uid)
            except OSError as error:
                _refuse(
                    f"user {uid} of the image {container['image']} cannot become the owner of {error.filename}: {error.strerror}"
                )
        return user if is_requested else []
    if uid != 0 and container["user_mode"] == MAPPED_USER and image.client_version() >= _MAPS_SINCE:
        # the group cannot be root, which is mapped already
        return ["--userns", f"keep-id:uid={uid},gid={gid or uid}", *user]
    return ["--user", "0:0"] if uid != 0 else (user if is_requested else [])


class _Image:
    """The image of a container, queried through the client."""

    def __init__(self, container: Mapping[str, Any]) -> None:
        self.container = container
        self._program, self._image = container["program"], container["image"]
        self.env: list[str] = []
        """The variables that the image sets, ``NAME=VALUE``; known once the image is present."""

    def ensure_present(self) -> str:
        """Pull the image as its policy says. Returns the user that the image names; empty for none."""
        policy = self.container["pull"]
        user = None if policy == "Always" else self._named_user()
        if user is not None:
            return user
        if policy == "Never":
            _refuse(f"the image {self._image} is not on this machine, and its imagePullPolicy is Never")
        print(f"spotwright: pulling {self._image}", file=sys.stderr, flush=True)  # noqa: T201
        done = subprocess.run(
            [self._program, "pull", "--quiet", self._image], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        message = done.stderr.decode(errors="replace")
        print(message, end="", file=sys.stderr)  # noqa: T201
        user = self._named_user() if done.returncode == 0 else None
        if user is None:
            _refuse(f"the image {self._image} cannot be pulled: {_last_line(message)}")
        return user

    def _named_user(self) -> str | None:
        answer = self._ask("image", "inspect", "--format", "{{.Config.User}}\n{{json .Config.Env}}", self._image)
        if answer is None:
            return None
        user, _, env = answer.partition("\n")
        with contextlib.suppress(ValueError):  # an image of another tool may have none
            self.env = json.loads(env) or []
        return user if user != "<no value>" else ""  # some versions print that for an image without a user

    def numeric_ids(self, named_user: str) -> tuple[int, int]:
        """User and group id of an image's user (``1000``, ``1000:100``, ``jovyan``, ``jovyan:users``); root for none."""
        user, _, group = named_user.strip().partition(":")
        uid, gid = user or "0", group or "0"
        if not user.isdigit() and user:
            entry = self._entries("passwd").get(user)
            if entry is None:
                _refuse(f"the image {self._image} runs as {user}, who is not in its /etc/passwd")
            uid, gid = entry[2], group or entry[3]
        if not gid.isdigit():
            gid = self._entries("group").get(gid, ["", "", "0"])[2]
        return int(uid), int(gid)

    def _entries(self, file: str) -> dict[str, list[str]]:
        """The lines of a file in the image's /etc by first field, read through a container with the attempt's name."""
        name = self.container["name"]
        self._ask("create", "--name", name, "--pull", "never", "--entrypoint", "none", self._image)
        archive_bytes = subprocess.run(
            [self._program, "cp", f"{name}:/etc/{file}", "-"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        ).stdout
        self._ask("rm", "--force", name)
        with (
            contextlib.suppress(tarfile.TarError, KeyError),
            tarfile.open(fileobj=io.BytesIO(archive_bytes)) as archive,
        ):
            member = archive.extractfile(file)
            lines = member.read().decode(errors="replace").splitlines() if member is not None else ()
            return {line.split(":")[0]: line.split(":") for line in lines if line.count(":") >= 3}
        return {}

    def client_version(self) -> tuple[int, ...]:
        """The client's major and minor version."""
        return tuple(int(part) for part in re.findall(r"\d+", self._ask("--version") or "0")[:2])

    def _ask(self, *arguments: str) -> str | None:
        """The client's output; None if it fails. The reason is printed later, when the client runs the container."""
        done = subprocess.run([self._program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done.stdout.decode(errors="replace").rstrip() if done.returncode == 0 else None


def _make_owner(container: Mapping[str, Any], uid: int) -> None:
    """Make a user the owner of the attempt's folders. Folders shared with other tasks become writable for everybody."""
    for folder in container["folders"]:
        os.chown(folder, uid, -1)
    for folder in container["shared"]:
        os.chmod(folder, 0o777)  # noqa: S103 (tasks that share it may run as different users)
    for folder, _, files in os.walk(container["folder"]) if container["folder"] else ():
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, uid, -1)


def _last_line(message: str) -> str:
    lines = message.strip().splitlines() or ["the client gives no reason"]
    return lines[-1].strip().removeprefix("Error: ")


def _refuse(reason: str) -> NoReturn:
    print(f"spotwright: {reason}", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(_CANNOT_START)
