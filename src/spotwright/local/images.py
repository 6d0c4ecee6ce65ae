"""The image of an attempt's container, and as whom the container runs: settled in the attempt's process before its client.

In a cluster a container runs as the user that its image names, or its security context. So it does here, with one thing
more: what it writes into the run's folder must be possible to write, and belong to whoever started the run.

- An ordinary user's podman: root in a container is that user outside already, and another user of an image is mapped to it
  (``--userns keep-id:uid=``, podman 4.3 and later; before, such an image runs as root).
- Root's podman or docker: the image's user is itself outside, so the attempt's folders are given to it.
- An ordinary user's docker, whose daemon is root's: the container runs as that user, because root's files in the run's folder
  could not be removed again. Where docker's daemon is the user's own, the container runs as root, who is that user.

Runs inside the fork server's interpreter, so it imports nothing outside the standard library.
"""

# ruff: noqa: PTH101, PTH118 (as in identity.py)

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

__all__ = ["AS_IT_SAYS", "AS_ROOT", "AS_YOU", "MAPPED", "ready"]

AS_IT_SAYS, MAPPED, AS_YOU, AS_ROOT = "as it says", "mapped", "as you", "as root"
"""The ways above, in the order in which they stand there; see :func:`spotwright.local.contained.manner`."""

_CANNOT_START = 125  # the exit code of a client that could not start a container
_MAPS_SINCE = (4, 3)
_OPTIONS_AT = 2  # after the program and its `run`


def ready(container: Mapping[str, Any], command: Sequence[str]) -> list[str]:
    """Make sure that the image is there, and add to the client's command line as whom the container runs.

    Of ``container`` it reads ``program``, ``name``, ``image``, ``pull`` (Kubernetes' imagePullPolicy), ``manner`` (one of those
    here), ``user``, ``group`` and ``non_root`` (the security context), ``home``, and ``folders`` and ``shared``, which that user
    writes to, alone or with others. Where it cannot be, the process says why and ends as its client would.
    """
    asker = _Asker(container)
    named = asker.bring()
    return [*command[:_OPTIONS_AT], *_options(asker, named), *command[_OPTIONS_AT:]]


def _options(asker: _Asker, named: str) -> list[str]:
    container = asker.container
    if container["manner"] == AS_YOU:
        return ["--user", f"{os.getuid()}:{os.getgid()}", "--env", f"HOME={container['home']}"]
    said = container["user"] is not None or container["group"] is not None
    uid, gid = asker.numbers(named)
    uid = uid if container["user"] is None else container["user"]
    gid = gid if container["group"] is None else container["group"]
    if container["non_root"] and uid == 0:
        _refuse(
            f"the image {container['image']} runs as root, and its task is not to (run_as_non_root): name a run_as_user"
        )
    user = ["--user", f"{uid}:{gid}"]
    if container["manner"] == AS_IT_SAYS:
        if uid != 0:
            try:
                _give(container, uid)
            except OSError as error:
                _refuse(
                    f"{error.filename} cannot be given to user {uid} of the image {container['image']}: {error.strerror}"
                )
        return user if said else []
    if uid != 0 and container["manner"] == MAPPED and asker.version() >= _MAPS_SINCE:
        # its group cannot be root's: that is mapped already
        return ["--userns", f"keep-id:uid={uid},gid={gid or uid}", *user]
    return ["--user", "0:0"] if uid != 0 else (user if said else [])


class _Asker:
    """Asks the client about one image."""

    def __init__(self, container: Mapping[str, Any]) -> None:
        self.container = container
        self._program, self._image = container["program"], container["image"]

    def bring(self) -> str:
        """Pull the image if that is wanted. Returns its user, as it names it."""
        policy = self.container["pull"]
        found = None if policy == "Always" else self._named()
        if found is not None:
            return found
        if policy == "Never":
            _refuse(f"the image {self._image} is not on this machine, and its imagePullPolicy is Never")
        print(f"spotwright: pulling {self._image}", file=sys.stderr, flush=True)  # noqa: T201
        done = subprocess.run(
            [self._program, "pull", "--quiet", self._image], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        why = done.stderr.decode(errors="replace")
        print(why, end="", file=sys.stderr)  # noqa: T201
        found = self._named() if done.returncode == 0 else None
        if found is None:
            _refuse(f"the image {self._image} cannot be pulled: {_last(why)}")
        return found

    def _named(self) -> str | None:
        found = self._ask("image", "inspect", "--format", "{{.Config.User}}", self._image)
        return found if found != "<no value>" else ""  # the answer of some versions for an image that names none

    def numbers(self, named: str) -> tuple[int, int]:
        """A user as an image names it (``1000``, ``1000:100``, ``jovyan``, ``jovyan:users``), in numbers; root for none."""
        user, _, group = named.strip().partition(":")
        uid, gid = user or "0", group or "0"
        if not user.isdigit() and user:
            found = self._entries("passwd").get(user)
            if found is None:
                _refuse(f"the image {self._image} runs as {user}, who is not in its /etc/passwd")
            uid, gid = found[2], group or found[3]
        if not gid.isdigit():
            gid = self._entries("group").get(gid, ["", "", "0"])[2]
        return int(uid), int(gid)

    def _entries(self, file: str) -> dict[str, list[str]]:
        """The lines of a file of the image's /etc by their first field, through a container that goes with the attempt's."""
        name = self.container["name"]
        self._ask("create", "--name", name, "--pull", "never", "--entrypoint", "none", self._image)
        packed = subprocess.run(
            [self._program, "cp", f"{name}:/etc/{file}", "-"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        ).stdout
        self._ask("rm", "--force", name)
        with contextlib.suppress(tarfile.TarError, KeyError), tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            member = archive.extractfile(file)
            lines = member.read().decode(errors="replace").splitlines() if member is not None else ()
            return {line.split(":")[0]: line.split(":") for line in lines if line.count(":") >= 3}
        return {}

    def version(self) -> tuple[int, ...]:
        """The client's version."""
        return tuple(int(part) for part in re.findall(r"\d+", self._ask("--version") or "0")[:2])

    def _ask(self, *question: str) -> str | None:
        """What the client answers; nothing where it fails, for it says itself why when it is to do the thing."""
        done = subprocess.run([self._program, *question], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None


def _give(container: Mapping[str, Any], uid: int) -> None:
    """Let a user write where the attempt writes. Folders that it shares with others anybody can write to, as in a cluster."""
    for folder in container["folders"]:
        os.chown(folder, uid, -1)
    for folder in container["shared"]:
        os.chmod(folder, 0o777)  # noqa: S103 (that is what sharing needs)
    for folder, _, files in os.walk(container["folder"]) if container["folder"] else ():
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, uid, -1)


def _last(said: str) -> str:
    lines = said.strip().splitlines() or ["its client does not say why"]
    return lines[-1].strip().removeprefix("Error: ")


def _refuse(why: str) -> NoReturn:
    print(f"spotwright: {why}", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(_CANNOT_START)
