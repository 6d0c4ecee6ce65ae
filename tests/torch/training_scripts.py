"""Runs training scripts in processes that are forked from one that has imported the frameworks: an import takes ten seconds.

The parent starts a :class:`Forge` and asks it for trainings. The forge itself is this file, run as a program.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]

EXAMPLES = PROJECT / "examples" / "torch"


class Training:
    """A script that runs, in one process or in several ranks. Their output is in ``log-RANK`` of its folder."""

    def __init__(self, forge: Forge, folder: Path, pids: list[int]) -> None:
        self._forge, self.folder, self.pids = forge, folder, pids

    def progress(self) -> float:
        """The share of the work that rank 0 has reported; -1 before its first report."""
        try:
            return float((self.folder / "progress").read_text().partition(" ")[0])
        except (FileNotFoundError, ValueError):
            return -1.0

    def until(self, share: float) -> None:
        """Wait until so much is done."""
        while self.progress() < share:
            time.sleep(0.002)
            codes = self._forge.ask({"codes": self.pids})["codes"]
            assert None in codes, f"{codes}: {self.log()}"

    def send(self, number: signal.Signals, ranks: Sequence[int] = ()) -> None:
        """Send a signal to some ranks, by default to all."""
        for rank in ranks or range(len(self.pids)):
            with suppress(ProcessLookupError):
                os.kill(self.pids[rank], number)

    def end(self, seconds: float = 240) -> list[int]:
        """The exit codes of all ranks; -9 for one that SIGKILL has ended."""
        deadline = time.monotonic() + seconds
        while None in (codes := self._forge.ask({"codes": self.pids})["codes"]):
            assert time.monotonic() < deadline, f"{codes}: {self.log()}"
            time.sleep(0.02)
        return list(codes)

    def ended(self) -> bool:
        """True if all ranks have ended."""
        return None not in self._forge.ask({"codes": self.pids})["codes"]

    def log(self) -> str:
        """The output of the ranks, one after the other."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("log-*")))

    def notice(self, seconds: float, rank: int = 0) -> None:
        """Notify the node of a rank that it will be reclaimed."""
        path = self.folder / f"notice-{rank}"
        path.with_suffix(".tmp").write_text(json.dumps({"goes_at": time.time() + seconds, "why": "taken"}))
        path.with_suffix(".tmp").rename(path)


class Forge:
    """A process that has imported the frameworks, and forks others for training scripts."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Send an order and return the answer."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def start(
        self,
        script: Path,
        folder: Path,
        *arguments: str,
        ranks: int = 1,
        pace: float = 0.03,
        die_at: int = 0,
        **variables: str,
    ) -> Training:
        """Run a script in a folder, which holds its checkpoints (``place``), its output and its notices.

        A step of its optimizer lasts ``pace`` seconds longer, so that a test can interrupt it. Rank 0 is killed before its
        ``die_at``th change of a file in the place.
        """
        folder.mkdir(exist_ok=True)
        for old in (folder / "progress", folder / "steps", *folder.glob("notice-*"), *folder.glob("log-*")):
            old.unlink(missing_ok=True)
        order: dict[str, Any] = {"script": str(script), "arguments": arguments, "folder": str(folder)}
        order |= {"environments": [], "pace": pace, "die_at": die_at}
        port = str(free_port())
        for rank in range(ranks):
            environment = {"SPOTWRIGHT_CHECKPOINT": str(folder / "place"), **variables}
            environment["SPOTWRIGHT_NOTICE_FILE"] = str(folder / f"notice-{rank}")
            if rank == 0:
                environment["SPOTWRIGHT_PROGRESS_FILE"] = str(folder / "progress")
            if ranks > 1:
                environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
                environment["TORCHELASTIC_RUN_ID"] = "test"
                environment |= {"LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            order["environments"].append(environment)
        return Training(self, folder, self.ask(order)["pids"])

    def run(self, script: Path, folder: Path, *arguments: str, ranks: int = 1, **variables: str) -> Training:
        """Run a script to its end, which must be a success."""
        training = self.start(script, folder, *arguments, ranks=ranks, pace=0, die_at=0, **variables)
        assert training.end() == [0] * ranks, training.log()
        return training


@contextmanager
def forge(*modules: str) -> Iterator[Forge]:
    """Start a forge that has imported these modules."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOTWRIGHT_")}
    environment = {**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(
        [sys.executable, __file__, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield Forge(process)
    finally:
        process.communicate(timeout=60)


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> None:
    """The forge: import, then answer orders until there are no more; its children end with it."""
    for name in sys.argv[1:]:
        import_module(name)
    codes: dict[int, int | None] = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "codes" in order:
            for pid in [pid for pid in order["codes"] if codes[pid] is None]:
                done, status = os.waitpid(pid, os.WNOHANG)
                codes[pid] = os.waitstatus_to_exitcode(status) if done else None
            answer: dict[str, Any] = {"codes": [codes[pid] for pid in order["codes"]]}
        else:
            answer = {"pids": [fork(order, rank) for rank in range(len(order["environments"]))]}
            codes |= dict.fromkeys(answer["pids"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in [pid for pid, code in codes.items() if code is None]:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def fork(order: Mapping[str, Any], rank: int) -> int:
    """Run the script of an order in a child, and return its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.chdir(order["folder"])
        output = os.open(f"log-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(order["environments"][rank])
        prepare(order, rank)
        sys.argv = [order["script"], *order["arguments"]]
        runpy.run_path(order["script"], run_name="__main__")
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    except BaseException:  # noqa: BLE001  # as an interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def prepare(order: Mapping[str, Any], rank: int) -> None:
    """Make the steps of this child as slow, and its life as short, as the order says."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    if rank == 0:
        steps = os.open("steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)  # a byte for each step of the optimizer

        def count(optimizer: Any, *_: Any) -> None:
            if any(
                group["lr"] for group in optimizer.param_groups
            ):  # get_state_dict makes a step with 0 of a new optimizer
                os.write(steps, b".")

        register_optimizer_step_post_hook(count)
    if order["pace"]:
        register_optimizer_step_post_hook(lambda *_: time.sleep(order["pace"]))
    if order["die_at"] and rank == 0:
        place = os.environ["SPOTWRIGHT_CHECKPOINT"]
        left = order["die_at"]

        def watch(event: str, values: tuple[Any, ...]) -> None:
            nonlocal left
            changes = event in {"os.rename", "os.remove", "os.mkdir", "os.rmdir"} or (
                event == "open" and isinstance(values[2], int) and bool(values[2] & (os.O_WRONLY | os.O_RDWR))
            )
            if changes and str(values[0]).startswith(place):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)


if __name__ == "__main__":
    main()
