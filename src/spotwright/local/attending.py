"""One attempt below its shim, from claim to record: nothing of it is left behind, and how it ended is written.

The attempt is claimed (once and for all: a second claim runs nothing), the user's code is forked, and the shim waits without
using the processor. Whatever the attempt starts stays below the shim, also daemons, because the shim is a child subreaper.
When the main process has ended, the rest is killed, and only then ``exit.jsonl`` appears, whole: so where it is, nothing of
the attempt lives. It is the file of the claim by another name, with the record as its second line: a new file costs more than
all that is written to it.

Runs inside the fork server's interpreter, so it imports nothing outside the standard library.
"""

# ruff: noqa: PTH101, PTH102, PTH103, PTH104 (system calls as they are, for the reason in identity.py)

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import cgroups, identity, taskmain
from .masking import Masker

if TYPE_CHECKING:
    import resource

__all__ = ["KILL", "Attended"]

KILL = signal.SIGUSR1
"""What tells a shim that the node of its attempt is gone."""

_EXIT_SIZE = 2048  # bytes kept for the record behind the claim, so that it can be written when the disk is full
_WALL = 0x40000000  # __WALL of wait(2): also children that were cloned with another signal than SIGCHLD
_OTHERS_PATIENCE = 10.0  # seconds for processes that have become another user's to end by themselves
_PUMP_PATIENCE = 2.0  # seconds for the last lines of a log when somebody we may not kill holds its pipe open


class Attended:
    """One attempt. The order is the JSON object that the engine sent, see :class:`~spotwright.local.processes.Processes`.

    ``listen`` waits for the next signal that concerns the attempt (SIGCHLD, SIGTERM, :data:`KILL`), until a moment of the
    monotonic clock; ``None`` when that passes first.
    """

    def __init__(self, order: dict[str, Any], listen: Callable[[float | None], int | None]) -> None:
        self._order, self._listen = order, listen
        self._directory: str = order["directory"]
        self._group: cgroups.Group | None = None
        self._main = 0
        self._status: int | None = None  # of the main process, as wait(2) gives it
        self._ordered: list[tuple[str, float]] = []
        self._timed_out = False
        self._deadline: float | None = None
        self._pump: threading.Thread | None = None
        self._has_begun = False  # nothing that its start had opened is open any more
        self._out_of_reach: set[int] = set()  # what another user's rights keep us from ending
        self._line = b""  # what the claim says
        self._max_rss, self._cpu = 0, 0.0  # of whatever of it has ended: KiB, seconds

    @property
    def left_nothing(self) -> bool:
        """After the end: whether its shim is as it was before, and can attend another one."""
        usual = self._order["container"] is None and not self._order["mounts"] and not self._out_of_reach
        return usual and self._has_begun and (self._pump is None or not self._pump.is_alive())

    def attend(self) -> dict[str, Any] | None:
        """Run the attempt to its end. Returns its record, which is written then; ``None`` where somebody else has claimed it."""
        if not self._claim():
            return None
        oom_before = cgroups.machine_oom_kills()
        started_at, started = time.time(), time.monotonic()
        record: dict[str, Any] = {"started_at": started_at, "epoch": self._order["epoch"]}
        try:
            self._start()
        except OSError as error:  # a full disk, no more processes: the attempt never ran
            record["start_error"] = str(error)
        else:
            self._supervise(started)
        ended = time.monotonic()
        of_container = self._conclude_container(oom_before)
        self._kill_below()
        self._remove_scratch()
        if self._pump is not None:
            self._pump.join(_PUMP_PATIENCE)
        record |= (
            (self._how_it_ended() if "start_error" not in of_container else {})
            | {
                "ended_at": time.time(),
                "seconds": ended - started,
                "max_rss": self._max_rss * 1024,
                "cpu_seconds": self._cpu,
                "timed_out": self._timed_out,
                "ordered": self._ordered,
                "oom_kills": None if self._group is None else self._group.oom_kills(),
                "machine_oom_kills": cgroups.machine_oom_kills() - oom_before,
            }
            | of_container
        )
        self._write(record)
        if self._group is not None:
            cgroups.remove(self._group)
        return record

    def _claim(self) -> bool:
        me = identity.mine()
        content = {name: self._order[name] for name in ("folder", "run", "task", "attempt", "epoch")}
        content |= {"by": "shim", "pid": me.pid, "starttime": me.starttime, "boot_id": me.boot_id}
        content |= {name: self._order[name] for name in ("group", "container")}
        self._line = identity.as_line(content)
        return identity.claim(self._directory, content, _EXIT_SIZE)

    def _start(self) -> None:
        """Fork the main process in its own process group; everything that can fail is done before."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{self._directory}/work")
        log = os.open(f"{self._directory}/log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._group = self._make_group()
        reading, output = (None, log) if not self._order["mask"] else os.pipe()
        if self._order["component"]:
            taskmain.compiled(self._order["component"])
        shim = os.getpid()
        self._main = os.fork()
        if self._main == 0:
            taskmain.run_forked(self._order, parent=shim, output=output, group=self._group)
        with contextlib.suppress(OSError):  # it has done so itself, or has ended
            os.setpgid(self._main, self._main)
        os.close(output)
        if reading is not None:
            masker = Masker(text.encode("latin-1") for text in self._order["mask"])
            pump = threading.Thread(target=_pump, args=(reading, log, masker), daemon=True)
            try:
                pump.start()
            except RuntimeError as error:  # the limit of processes counts threads
                raise OSError(str(error)) from error
            self._pump = pump
        self._has_begun = True

    def _make_group(self) -> cgroups.Group | None:
        if self._order["group"] is None:
            return None
        with contextlib.suppress(OSError):  # the hierarchy was taken from us since the engine tried: no limit then
            version, parent, name = self._order["group"]
            return cgroups.Group(version, parent).create(name, self._order["memory_limit"])
        return None

    def _supervise(self, started: float) -> None:
        """Wait until the main process has ended, passing orders on and keeping its time."""
        if self._order["timeout"] is not None:
            self._deadline = started + self._order["timeout"]
        while not self._reap():
            seen = self._listen(self._deadline)
            if seen is None:
                self._time_is_up()
            elif seen == signal.SIGTERM:
                self._ordered.append(("term", time.time()))
                self._signal_group(signal.SIGTERM)
            elif seen == KILL:
                self._ordered.append(("kill", time.time()))
                self._signal_group(signal.SIGKILL)

    def _time_is_up(self) -> None:
        if self._timed_out:
            self._deadline = None
            self._signal_group(signal.SIGKILL)
        else:
            self._timed_out = True
            self._deadline = time.monotonic() + self._order["grace"]
            self._signal_group(signal.SIGTERM)

    def _signal_group(self, number: int) -> None:
        # the main process has not been waited for, so its pid, and the group of that number, are still the attempt's
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._main, number)
        if number == signal.SIGKILL:
            os.kill(self._main, number)

    def _reap(self) -> bool:
        """Bury every descendant that has ended; whether the main process was among them."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG | _WALL)
                if pid == 0:
                    break
                self._count(used)
                if pid == self._main:
                    self._status = status
        return self._status is not None

    def _count(self, used: resource.struct_rusage) -> None:
        """What a process that has ended took, with those that it has waited for itself."""
        self._max_rss = max(self._max_rss, used.ru_maxrss)
        self._cpu += used.ru_utime + used.ru_stime

    def _kill_below(self) -> None:
        """Kill what the attempt left, generation by generation: the children of whoever is killed become ours."""
        if self._group is not None:
            self._group.kill()
        me = os.getpid()
        while left := [pid for pid in identity.children(me) if pid not in self._out_of_reach]:
            mortal = [pid for pid in left if identity.killed(pid)]
            for pid in mortal:
                with contextlib.suppress(ChildProcessError):
                    self._count(os.wait4(pid, _WALL)[2])
            if not mortal:
                self._await_others(left)

    def _await_others(self, pids: list[int]) -> None:
        """Give processes that we may not kill a while to end by themselves; then say which are left, and let go of them."""
        deadline = time.monotonic() + _OTHERS_PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                if os.wait4(-1, os.WNOHANG | _WALL)[0]:
                    return
            time.sleep(0.02)
        self._out_of_reach.update(pids)
        with contextlib.suppress(OSError):  # no log can be had any more: the record, which follows, matters more
            log = os.open(f"{self._directory}/log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            _write_all(log, f"spotwright: left behind, another user's: {' '.join(map(str, pids))}\n".encode())
            os.close(log)

    def _conclude_container(self, oom_before: int) -> dict[str, Any]:
        """End the container that the main process was the client of: it is no child of ours."""
        if self._order["container"] is None:
            return {}
        from . import containers  # few attempts need it, and every fork server would pay for it

        code, log = self._how_it_ended().get("exit_code"), f"{self._directory}/log.txt"
        return containers.conclude(self._order["container"], code, log, cgroups.machine_oom_kills() - oom_before)

    def _remove_scratch(self) -> None:
        """What lies there went with the attempt's mounts, and may be large."""
        if self._order["mounts"]:
            import shutil  # few attempts need it, and every fork server would pay for it

            shutil.rmtree(f"{self._directory}/scratch", ignore_errors=True)

    def _how_it_ended(self) -> dict[str, Any]:
        if self._status is None:
            return {}
        if os.WIFSIGNALED(self._status):
            return {"signal": os.WTERMSIG(self._status)}
        return {"exit_code": os.WEXITSTATUS(self._status)}

    def _write(self, record: dict[str, Any]) -> None:
        text = json.dumps(record).encode().ljust(_EXIT_SIZE)
        try:
            self._publish(text)
        except PermissionError:  # the attempt has taken them from its own directory
            for path, rights in ((self._directory, 0o700), (f"{self._directory}/claim", 0o600)):
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(path, rights)
            self._publish(text)

    def _publish(self, text: bytes) -> None:
        claim, name = f"{self._directory}/claim", f"{self._directory}/exit.jsonl"
        try:
            identity.overwrite(claim, text, len(self._line))  # over the room that was kept
        except FileNotFoundError:  # the attempt has removed its own directory
            os.makedirs(self._directory, exist_ok=True)
            identity.write(claim, self._line + text)
        try:
            os.link(claim, name)
        except OSError:  # no room for one more name (tmpfs counts them), or the attempt has put something there
            os.rename(claim, name)


def _pump(reading: int, log: int, masker: Masker) -> None:
    """Carry the attempt's output into its log, without its secrets, until everybody who could write is gone."""
    while data := os.read(reading, 65536):
        _write_all(log, masker.feed(data))
    _write_all(log, masker.flush())
    os.close(reading)
    os.close(log)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except (
            OSError
        ):  # a full disk: the attempt goes on, as it would with a file that fails; its output is read and lost
            return
