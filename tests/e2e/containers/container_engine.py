"""A stand-in for podman and docker: a client with their command line, and the daemon behind it, which executes on this machine.

Its containers are not children of the client, as with docker: killing the client does not end them. A client that is started
as ``podman`` records its arguments in the daemon's folder. It forwards no signals, like podman's client until some
milliseconds after the container has started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

__all__ = ["ContainerEngine"]

_WITH_VALUE = {
    "--name", "--network", "--security-opt", "--user", "--userns", "--pull", "--memory", "--memory-swap", "--mount", "--env",
    "--entrypoint", "--log-driver", "--init-path", "--stop-timeout", "--cpus",
}  # fmt: skip


class ContainerEngine:
    """The daemon, in threads of the test's process. Close it when done."""

    def __init__(self, folder: Path, kind: str = "podman") -> None:
        self.folder = folder
        folder.mkdir()
        self.bin = folder / "bin"
        self.bin.mkdir()
        client = self.bin / kind
        client.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {folder} "$@"\n')
        client.chmod(0o755)
        self.containers: dict[str, subprocess.Popen[bytes]] = {}
        self.removed: list[str] = []
        self._starting = threading.Lock()  # held until a container that is started is known
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / "s"))
        self._listening.listen()
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of every ``run``, in order."""
        return self._recorded("run")

    @property
    def kills(self) -> list[list[str]]:
        """The arguments of every ``kill``, in order, whether it succeeded or not."""
        return self._recorded("kill")

    @property
    def copies(self) -> list[list[str]]:
        """The arguments of every ``cp``, in order."""
        return self._recorded("cp")

    def _recorded(self, what: str) -> list[list[str]]:
        path = self.folder / f"{what}-calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        """End the daemon and every container."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # else the thread waits on for whoever gets the descriptor next
        self._server.join()
        self._listening.close()
        for process in self.containers.values():
            process.kill()
            process.wait()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            text, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 2)
            if not text:
                return  # the command was killed before it had asked for anything
            request = json.loads(text)
            answer = getattr(self, f"_{request.pop('what')}")(descriptors=descriptors, **request)
            with contextlib.suppress(OSError):
                connection.sendall(json.dumps(answer).encode())

    def _run(self, name: str, command: list[str], env: dict[str, str], descriptors: list[int]) -> int:
        output, errors = descriptors
        try:
            with self._starting:
                process = self.containers[name] = subprocess.Popen(
                    command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
                )
        except OSError:
            return 127
        finally:
            os.close(output)
            os.close(errors)
        code = process.wait()
        return code if code >= 0 else 128 - code

    def _find(self, name: str) -> subprocess.Popen[bytes] | None:
        with self._starting:
            return self.containers.get(name)

    def _inspect(self, name: str, descriptors: list[int]) -> str:
        process = self._find(name)
        return f"false exited {process.returncode}" if process is not None else ""

    def _kill(self, name: str, number: int, descriptors: list[int]) -> int:
        process = self._find(name)
        if process is None or process.poll() is not None:
            return 125
        process.send_signal(number)
        return 0

    def _rm(self, name: str, descriptors: list[int]) -> int:
        process = self._find(name)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self.removed.append(name)
        return 0


def _ask(folder: str, request: dict[str, Any], descriptors: list[int]) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"{folder}/s")
        socket.send_fds(connection, [json.dumps(request).encode()], descriptors)
        return json.loads(connection.recv(1 << 16))


def _client(folder: str, what: str, *args: str) -> int:
    if what in ("run", "kill", "cp"):
        with Path(folder, f"{what}-calls").open("a") as calls:
            calls.write(json.dumps(args) + "\n")
    if what == "kill":
        number = int(signal.Signals[f"SIG{args[args.index('--signal') + 1]}"])
        return int(_ask(folder, {"what": "kill", "name": args[-1], "number": number}, []))
    if what == "cp":  # what runs here has no file system of its own
        source = args[0].partition(":")[2]
        if not Path(source).exists():
            sys.stderr.write(f'Error: "{source}" could not be found on container: no such file or directory\n')
            return 125
        return subprocess.run(["cp", "-r", source, args[1]], check=False).returncode
    if what == "rm":
        return int(_ask(folder, {"what": "rm", "name": args[-1]}, []))
    if what == "container":
        sys.stdout.write(_ask(folder, {"what": "inspect", "name": args[-1]}, []))
    if what in ("image", "pull") and args[-1] == "missing":
        sys.stderr.write("Error: missing: no such image\n")
        return 125
    if what == "info":
        sys.stdout.write('["cpu", "memory"]')
    return _run_client(folder, args) if what == "run" else 0  # ps; every image runs as root


def _run_client(folder: str, args: tuple[str, ...]) -> int:
    options: dict[str, list[str]] = {}
    rest = list(args)
    while rest[0].startswith("--"):
        option = rest.pop(0)
        options.setdefault(option, []).append(rest.pop(0) if option in _WITH_VALUE else "")
    if rest[0] == "unbegun":
        return 0  # as podman's client does that hears SIGTERM too early
    [name] = options["--name"]
    env = {"PATH": os.environ["PATH"], "PLAYGROUND": os.environ["PLAYGROUND"]}
    for given in options.get("--env", []):
        variable, equals, value = given.partition("=")
        env[variable] = value if equals else os.environ[variable]
    while rest[0] == "late" and not Path(env["PLAYGROUND"], "begin").exists():
        time.sleep(0.01)
    command = [*options.get("--entrypoint", []), *rest[1:]]
    return int(_ask(folder, {"what": "run", "name": name, "command": command, "env": env}, [1, 2]))


if __name__ == "__main__":
    sys.exit(_client(*sys.argv[1:]))
