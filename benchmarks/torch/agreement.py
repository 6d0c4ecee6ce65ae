"""What agreeing on one step costs: a step without a notice, and the time from a notice at one rank to the decision of all.

    python -m benchmarks.torch.agreement [NOTICES]

Four ranks on gloo, with a collective operation in each step. The store of the group is in a process of its own.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from benchmarks.torch.forked import run_ranks

__all__ = ["measure"]

RANKS = 4
STEPS = 5000
SECONDS_BETWEEN = 0.02


def measure(notices: int = 100) -> list[tuple[str, float, str]]:
    """Return the measurements: name, figure, and unit."""
    with (
        tempfile.TemporaryDirectory(prefix="spotwright-agreement-") as name,
        socket.create_server(("127.0.0.1", 0)) as at,
    ):
        folder, port = Path(name), int(at.getsockname()[1])
        store = os.fork()
        if not store:
            _serve(at.fileno(), port)
        try:
            run_ranks(RANKS, lambda rank: _run(rank, port, folder, notices))
        finally:
            os.kill(store, 9)
            os.waitpid(store, 0)
        ranks = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]
    steps = sorted(seconds for rank in ranks for seconds in rank["steps"])
    decisions = sorted(
        max(times) - asked for asked, *times in zip(ranks[0]["asked"], *(r["decided"] for r in ranks), strict=True)
    )
    apart = sum(len(set(each)) > 1 for each in zip(*(rank["saved"] for rank in ranks), strict=True))
    return [
        ("step without a notice, median", 1e6 * steps[len(steps) // 2], "µs"),
        ("step without a notice, 99th percentile", 1e6 * steps[len(steps) * 99 // 100], "µs"),
        ("notice to the decision of all ranks, median", 1e3 * decisions[len(decisions) // 2], "ms"),
        ("notice to the decision of all ranks, 99th percentile", 1e3 * decisions[len(decisions) * 99 // 100], "ms"),
        ("notices that did not save one step of all", float(apart), ""),
    ]


def _serve(listener: int, port: int) -> None:
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", port, None, is_master=True, wait_for_workers=False, master_listen_fd=listener)
    while os.getppid() != 1:
        time.sleep(0.5)
    os._exit(int(store is None))


def _run(rank: int, port: int, folder: Path, notices: int) -> None:
    import torch
    import torch.distributed as dist

    from spotwright.checkpoint.save_coordinator import Agreement

    store = dist.TCPStore("127.0.0.1", port, None, is_master=False, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    agreement = Agreement.of_group()
    steps = []
    for step in range(STEPS):
        began = time.perf_counter()
        agreement.step_done(step)
        steps.append(time.perf_counter() - began)
    dist.barrier()
    step = STEPS
    asked: list[float] = []
    decided: list[float] = []
    saved: list[int] = []
    while len(saved) < notices:
        if rank == 0 and len(asked) == len(saved):
            asked.append(time.time())
            agreement.ask("a notice")
        time.sleep(SECONDS_BETWEEN)
        dist.all_reduce(torch.ones(1))
        step += 1
        if agreement.step_done(step):
            decided.append(agreement.decided_at)
            saved.append(step)
            agreement.saved()
    dist.barrier()
    agreement.close()
    (folder / f"rank-{rank}.json").write_text(
        json.dumps({"steps": steps, "asked": asked, "decided": decided, "saved": saved})
    )


if __name__ == "__main__":
    for name, figure, unit in measure(*(int(each) for each in sys.argv[1:])):
        print(f"{name}: {figure:.3g} {unit}")
