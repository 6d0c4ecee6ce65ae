"""Live a script's attempts by the simplest means: start it, read its processor time, kill it, start it in a new folder.

It uses nothing of the package, so that the truth rests on what happens. An attempt is process 1 of a pid namespace,
with its own host name, boot id, working folder, home and ``TMPDIR``, as in a new pod.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import sqlite3
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.rehearsal.truth.table import Truth, Verdict, path_with_this_python

__all__ = ["Evidence", "Proof", "pod_prefix"]

_POD = """hostname "$1"; mount --bind "$2" /proc/sys/kernel/random/boot_id; shift 2; exec "$@" """
_TICKS = os.sysconf("SC_CLK_TCK")
_SHARE = 1 / 3
_LIVES = 5  # a step that resumes has ended by then: 1 / _SHARE + 2
_DAYS = 3  # yesterday, today and tomorrow: a time zone is at most a day away
_OVER = 0.9  # of the work again: nothing was kept
_ENDLESS = 30.0  # seconds of a processor; no script of the table has so much to do
_SHORT = 0.3  # seconds; shorter work cannot be interrupted


@functools.cache
def pod_prefix() -> tuple[str, ...] | None:
    """The command that makes the namespaces of a pod; None where this user may not."""
    made = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts", "--mount-proc"]
    for rights in ([], ["--user", "--map-root-user"]):
        prefix = ("setpriv", "--pdeathsig", "KILL", made[0], *rights, *made[1:])  # it goes with this process
        with contextlib.suppress(OSError):
            if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode == 0:
                return prefix
    return None


class Life(NamedTuple):
    """One attempt: its exit code if it ended by itself, its processor time and time, and whether it was given up as hanging."""

    code: int | None
    cpu: float
    seconds: float
    hangs: bool = False


class Evidence(NamedTuple):
    """What was seen of a script: the verdict, and the numbers behind it."""

    verdict: Verdict
    because: str


class Proof:
    """The lives of one script in a folder of their own."""

    def __init__(self, truth: Truth, folder: Path) -> None:
        self._truth, self._folder = truth, folder
        self._number = 0
        self._work = folder / "work"
        self._limit = 300.0
        self._base = 0.0

    def evidence(self) -> Evidence:
        """Interrupt the script again and again, without notice and with, and say what is true of it."""
        first = self._undisturbed()
        if isinstance(first, Evidence):
            return first
        self._whole, self._reference, self._sizes = first
        self._limit = 4 * self._whole.seconds + 10
        if self._truth.modules:
            self._base = self._import_seconds()
        killed, why = self._lives(notice=False)
        if killed in (Verdict.NOT_SAFE, Verdict.NEVER_FINISHES):
            return Evidence(killed, why)
        noticed, why_noticed = self._lives(notice=True)
        if noticed in (Verdict.NOT_SAFE, Verdict.NEVER_FINISHES):
            return Evidence(noticed, f"with notice: {why_noticed}")
        if killed is not Verdict.RESUMES and noticed is Verdict.RESUMES:
            return Evidence(Verdict.WITH_NOTICE, f"{why}; with notice: {why_noticed}")
        if killed is Verdict.RESUMES and self._truth.moment and (harm := self._harm()):
            return Evidence(Verdict.NOT_SAFE, harm)
        return Evidence(killed, why)

    # -- undisturbed

    def _undisturbed(self) -> Evidence | tuple[Life, dict[str, bytes | None], dict[str, int]]:
        found = []
        for _ in range(2):
            self._forget()
            life = self._live(lambda *_: False)
            if life.hangs:
                return Evidence(Verdict.UNDECIDED, f"does not end in {life.cpu:.0f}s of work, undisturbed")
            if life.code:
                return Evidence(Verdict.UNDECIDED, f"exit code {life.code}, undisturbed")
            found.append((life, self._outputs(), self._file_sizes()))
        (one, outputs, sizes), (two, again, _) = found
        if None in outputs.values():
            return Evidence(Verdict.UNDECIDED, "it did not write its outputs, undisturbed")
        if outputs != again:
            return Evidence(Verdict.UNDECIDED, "its outputs differ, undisturbed")
        if max(one.cpu, one.seconds if self._truth.waits else 0) < _SHORT:
            return Evidence(Verdict.UNDECIDED, f"{one.cpu:.2f}s of work")
        return min(one, two, key=lambda each: each.cpu), outputs, sizes

    def _import_seconds(self) -> float:
        imports = subprocess.Popen([self._truth.command[0], "-c", "import " + ",".join(self._truth.modules)])
        _, _, usage = os.wait4(imports.pid, 0)
        imports.returncode = 0
        return usage.ru_utime + usage.ru_stime

    # -- lives

    def _lives(self, *, notice: bool) -> tuple[Verdict, str]:
        self._forget()
        goal = self._goal(_SHARE)
        lives = _DAYS - 1 if self._truth.days else _LIVES
        for number in range(1, lives + 1):
            life = self._live(lambda used, seconds: self._used(used, seconds) >= goal, notice=notice)
            if life.hangs:
                return Verdict.NEVER_FINISHES, f"life {number} hung after {life.cpu:.2f}s of work"
            if life.code is not None and (life.code == 0 or not notice):
                return self._ended(life, f"in life {number} of a third of the work")
            if life.code is not None and self._used(life.cpu, life.seconds) < goal / 2:
                return self._ended(life, f"in life {number}, before its notice")
        left = self._live(lambda *_: False)
        if left.hangs:
            return Verdict.NEVER_FINISHES, f"after {lives} lives it hung after {left.cpu:.2f}s of work"
        verdict, why = self._ended(left, f"after {lives} lives of a third of the work, when it was left alone")
        if verdict is not Verdict.RESUMES:
            return verdict, why
        share = self._share(left)
        return (
            Verdict.STARTS_OVER if share >= _OVER else Verdict.GOES_BACK,
            f"{lives} lives of a third of the work did not end it, and {share:.0%} was left",
        )

    def _ended(self, life: Life, when: str) -> tuple[Verdict, str]:
        if life.code:
            return Verdict.NOT_SAFE, f"exit code {life.code} {when}"
        if self._outputs() != self._reference:
            return Verdict.NOT_SAFE, f"other outputs {when}"
        return Verdict.RESUMES, f"ended {when}"

    def _harm(self) -> str:
        """Kill it at the moment that does harm; say what came of it, or nothing if nothing did."""
        kind, _, path = self._truth.moment.partition(" ")
        self._forget()
        early = self._goal(0.3)
        for _ in range(8):
            life = self._live(
                lambda used, seconds: self._used(used, seconds) >= early and self._is_at(kind, path), eager=True
            )
            if life.code is not None:
                self._forget()
            elif self._is_at(kind, path):
                left = self._live(lambda *_: False)
                verdict, why = self._ended(left, f"after a kill at: {self._truth.moment}")
                if verdict is Verdict.NOT_SAFE:
                    return why
                if self._share(left) >= _OVER:
                    return f"all was done again after a kill at: {self._truth.moment}"
                self._forget()
        return ""

    def _is_at(self, kind: str, name: str) -> bool:
        path = self._work / name if self._work.joinpath("kept").exists() else self._folder / name
        with contextlib.suppress(OSError, sqlite3.Error):
            match kind:
                case "half":
                    return path.stat().st_size < self._sizes[name]
                case "gone":
                    return not path.exists()
                case "made":
                    return path.exists()
                case "lacks":
                    return any(not Path(each, path.name).exists() for each in path.parent.parent.glob(path.parent.name))
                case "ahead":
                    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
                        query = "select (select count(*) from rows) > (select count(*) from position)"
                        return bool(database.execute(query).fetchone()[0])
                case _:
                    raise ValueError(kind)
        return False

    # -- one attempt

    def _live(self, is_over: Callable[[float, float], bool], *, notice: bool = False, eager: bool = False) -> Life:
        """One attempt, until it ends or is over: then it is killed, with ``notice`` a moment after SIGTERM."""
        self._number += 1
        argv = self._prepare()
        began = time.monotonic()
        with (self._folder / f"{self._number}.log").open("wb") as log:
            process = subprocess.Popen(
                argv,
                cwd=self._work,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            life = self._watch(process, began, is_over, notice=notice, eager=eager)
        finally:
            _end(process)
        if self._truth.is_kept:
            (self._work / "kept").rename(self._folder / "kept")
        return life

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        began: float,
        is_over: Callable[[float, float], bool],
        *,
        notice: bool,
        eager: bool,
    ) -> Life:
        used, looked = 0.0, -1.0
        grace: tuple[float, float] | None = None
        while True:
            seconds = time.monotonic() - began
            if seconds - looked > 0.02:
                used, looked = max(used, _cpu_of(process.pid)), seconds
            if (code := process.poll()) is not None:
                return Life(code if code >= 0 else 128 - code, used, seconds)
            if seconds > self._limit or used > _ENDLESS:
                return Life(None, used, seconds, hangs=True)
            if grace is not None and (self._used(used, seconds) > grace[0] or seconds > grace[1]):
                return Life(None, used, seconds)
            if grace is None and is_over(used, seconds):
                if not notice:
                    return Life(None, used, seconds)
                for first in list(_below(process.pid))[
                    1:2
                ]:  # process 1 of the namespace, as a container's runtime does it
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(first, signal.SIGTERM)
                grace = (self._used(used, seconds) + self._goal(0.1), seconds + self._limit / 4)
            if not eager:
                time.sleep(0.01)

    def _prepare(self) -> list[str]:
        for name in ("work", "home", "tmp"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
            (self._folder / name).mkdir()
        if self._truth.is_kept:
            (self._folder / "kept").rename(self._work / "kept")
        self._truth.put_into(self._work)
        boot = self._folder / "boot_id"
        boot.write_text(f"{uuid.uuid4()}\n")
        prefix = pod_prefix()
        assert prefix is not None
        return [*prefix, "sh", "-c", _POD, "sh", f"node-{self._number}", str(boot), *self._truth.command]

    def _environment(self) -> dict[str, str]:
        kept = {key: os.environ[key] for key in ("LANG", "LD_LIBRARY_PATH") if key in os.environ}
        day = f"DAY{(self._number % _DAYS - 1) * 24:+}" if self._truth.days else "UTC0"
        return {
            **kept,
            "PATH": path_with_this_python(),
            "HOME": str(self._folder / "home"),
            "TMPDIR": str(self._folder / "tmp"),
            "SPOTWRIGHT_CHECKPOINT": str(self._folder / "checkpoint"),
            "OMP_NUM_THREADS": "1",
            "TZ": day,
        }

    def _forget(self) -> None:
        for name in ("kept", "checkpoint"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
            (self._folder / name).mkdir()

    # -- measures

    def _used(self, cpu: float, seconds: float) -> float:
        return seconds if self._truth.waits else cpu

    def _goal(self, share: float) -> float:
        return self._base + share * (self._used(self._whole.cpu, self._whole.seconds) - self._base)

    def _share(self, life: Life) -> float:
        """The share of the work that this attempt did."""
        whole = self._used(self._whole.cpu, self._whole.seconds) - self._base
        return (self._used(life.cpu, life.seconds) - self._base) / whole

    def _outputs(self) -> dict[str, bytes | None]:
        """The outputs of the attempt that has just ended."""
        found: dict[str, bytes | None] = {}
        for name in self._truth.outputs:
            path = (self._folder if name.startswith("kept/") else self._work) / name
            found[name] = path.read_bytes() if path.exists() else None
        return found

    def _file_sizes(self) -> dict[str, int]:
        paths = (self._folder / "kept").rglob("*")
        return {str(path.relative_to(self._folder)): path.stat().st_size for path in paths if path.is_file()}


def _below(pid: int) -> Iterator[int]:
    """A process and all below it. In a pid namespace an orphan becomes a child of process 1, so that none is missed."""
    yield pid
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            for child in (thread / "children").read_text().split():
                yield from _below(int(child))


def _cpu_of(pid: int) -> float:
    """Processor seconds of a process and of all below it, also of those that have ended."""
    ticks = 0
    for each in _below(pid):
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / _TICKS


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill process 1 of the namespace, with which all others go, and wait until they have."""
    alive = list(_below(process.pid))
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in alive):
        assert time.monotonic() < deadline, f"processes {alive} do not end"
        time.sleep(0.002)
