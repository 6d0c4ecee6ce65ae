"""Steps with signals, threads, processes, locks and servers, as users write them.

The docstring of each says what it does right or wrong. Their verdicts are in :mod:`tests.rehearsal.samples`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from kfp import dsl


def saves_at_sigterm_by_exception() -> int:
    """SIGTERM raises an exception; the save is in the handler of the exception."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
    step = int(saved.read_text()) if saved.exists() else 0

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        while step < 40:
            time.sleep(0.01)
            step += 1
    except SystemExit:
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").rename(saved)
        raise
    return step


def polls_the_notice_file() -> int:
    """Polls the notice file and saves; SIGTERM comes with the notice, and ends it before."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
    step = int(saved.read_text()) if saved.exists() else 0
    notice = Path(os.environ["SPOTWRIGHT_NOTICE_FILE"])
    while step < 40:
        time.sleep(0.01)
        step += 1
        if notice.exists():
            saved.with_suffix(".new").write_text(str(step))
            saved.with_suffix(".new").rename(saved)
            sys.exit(1)
    return step


def polls_the_notice_file_and_ignores_sigterm() -> int:
    """Polls the notice file, saves and ends."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
    step = int(saved.read_text()) if saved.exists() else 0
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    notice = Path(os.environ["SPOTWRIGHT_NOTICE_FILE"])
    while step < 40:
        time.sleep(0.01)
        step += 1
        if notice.exists():
            saved.with_suffix(".new").write_text(str(step))
            saved.with_suffix(".new").rename(saved)
            sys.exit(1)
    return step


def exits_143_with_half_an_output(table: dsl.Output[dsl.Dataset]) -> None:
    """Ends with 143 on SIGTERM while its only output is half written."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Path(table.path).open("w", buffering=1) as file:
        for row in range(20):
            time.sleep(0.01)
            file.write(f"{row}\n")


def breaks_on_sigterm(table: dsl.Output[dsl.Dataset]) -> None:
    """Leaves its loop on SIGTERM and writes what it has: a regular end with half of the work."""
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    rows = []
    for row in range(20):
        if stop:
            break
        time.sleep(0.01)
        rows.append(row)
    Path(table.path).write_text("\n".join(map(str, rows)))


def returns_at_sigterm_with_its_save(table: dsl.Output[dsl.Dataset]) -> None:
    """Saves and leaves its loop on SIGTERM, as trainers do, and resumes: only the exit code says that it was done."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "rows")
    rows = saved.read_text().split() if saved.exists() else []
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    while len(rows) < 40 and not stop:
        time.sleep(0.01)
        rows.append(str(len(rows)))
        Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_text(str(len(rows) / 40))
    saved.with_suffix(".new").write_text(" ".join(rows))
    saved.with_suffix(".new").rename(saved)
    Path(table.path).write_text("\n".join(rows))


def subprocess_trainer(model: dsl.Output[dsl.Model]) -> None:
    """Starts a trainer of its own, which saves every epoch, and does not forward signals."""
    import subprocess

    program = """
import json, os, time, sys
saved = os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], "s.json")
s = json.load(open(saved)) if os.path.exists(saved) else {"e": 0, "w": 0.0}
while s["e"] < 20:
    time.sleep(0.02)
    s = {"e": s["e"] + 1, "w": s["w"] * 0.9 + s["e"]}
    with open(saved + ".tmp", "w") as f:
        json.dump(s, f)
    os.replace(saved + ".tmp", saved)
open(sys.argv[1], "w").write(json.dumps(s))
"""
    subprocess.run([sys.executable, "-c", program, model.path], check=True, start_new_session=True)


def subprocess_trainer_saves_at_sigterm(model: dsl.Output[dsl.Model]) -> None:
    """Starts a trainer that saves at SIGTERM only, in a session of its own: the signal does not reach it."""
    import subprocess

    program = """
import json, os, signal, time, sys
saved = os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], "s.json")
s = json.load(open(saved)) if os.path.exists(saved) else {"e": 0, "w": 0.0}
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
while s["e"] < 20:
    time.sleep(0.02)
    s = {"e": s["e"] + 1, "w": s["w"] * 0.9 + s["e"]}
    if stop:
        with open(saved + ".tmp", "w") as f:
            json.dump(s, f)
        os.replace(saved + ".tmp", saved)
        sys.exit(143)
open(sys.argv[1], "w").write(json.dumps(s))
"""
    subprocess.run([sys.executable, "-c", program, model.path], check=True, start_new_session=True)


def background_writer(model: dsl.Output[dsl.Model]) -> None:
    """A thread writes checkpoints atomically behind the training."""
    import queue
    import threading

    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    state = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0, "w": 0.0}
    work: queue.Queue[Any] = queue.Queue()

    def write() -> None:
        while (item := work.get()) is not None:
            saved.with_suffix(".tmp").write_text(json.dumps(item))
            saved.with_suffix(".tmp").replace(saved)

    thread = threading.Thread(target=write)
    thread.start()
    while state["epoch"] < 20:
        time.sleep(0.01)
        state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + state["epoch"]}
        work.put(state)
    work.put(None)
    thread.join()
    Path(model.path).write_text(str(state["w"]))


def background_writer_mutable(model: dsl.Output[dsl.Model]) -> None:
    """A thread writes the checkpoint in place and slowly, while the training goes on."""
    import threading

    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    state = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0, "w": 0.0}
    done = threading.Event()

    def write() -> None:
        while not done.wait(0.01):
            with saved.open("w", buffering=1) as file:
                now = dict(state)
                file.write(f'{{"epoch": {now["epoch"]},\n')
                file.write(f'"w": {now["w"]!r}}}\n')

    thread = threading.Thread(target=write)
    thread.start()
    while state["epoch"] < 20:
        time.sleep(0.01)
        state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + state["epoch"]}
    done.set()
    thread.join()
    Path(model.path).write_text(str(state["w"]))


def shards_in_place(total: dsl.Output[dsl.Dataset]) -> None:
    """Worker processes write shards; a shard that exists is taken as complete."""
    import multiprocessing

    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])

    def work(numbers: range) -> None:
        for number in numbers:
            path = place / f"shard-{number}.txt"
            if path.exists():
                continue
            with path.open("w", buffering=1) as file:
                for row in range(4):
                    time.sleep(0.005)
                    file.write(f"{number * 10 + row}\n")

    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(range(first, 12, 2),)) for first in (0, 1)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    rows = [int(line) for path in place.glob("shard-*.txt") for line in path.read_text().split()]
    Path(total.path).write_text(str(sum(rows)))


def shards_renamed(total: dsl.Output[dsl.Dataset]) -> None:
    """Worker processes write shards beside their place, and rename them."""
    import multiprocessing

    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])

    def work(numbers: range) -> None:
        for number in numbers:
            path = place / f"shard-{number}.txt"
            if path.exists():
                continue
            with path.with_suffix(".part").open("w", buffering=1) as file:
                for row in range(4):
                    time.sleep(0.005)
                    file.write(f"{number * 10 + row}\n")
            path.with_suffix(".part").rename(path)

    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(range(first, 12, 2),)) for first in (0, 1)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    rows = [int(line) for path in place.glob("shard-*.txt") for line in path.read_text().split()]
    Path(total.path).write_text(str(sum(rows)))


def swallows_the_interrupt() -> int:
    """SIGTERM becomes KeyboardInterrupt, which a wide except swallows: the batch is lost."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    done = 0
    for step in range(40):
        try:
            time.sleep(0.01)
            done += step
        except BaseException:
            continue
    return done


def writes_at_exit() -> int:
    """Saves in atexit, which SIGTERM does not run."""
    import atexit

    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
    state = {"step": int(saved.read_text()) if saved.exists() else 0}

    def save() -> None:
        saved.with_suffix(".new").write_text(str(state["step"]))
        saved.with_suffix(".new").rename(saved)

    atexit.register(save)
    while state["step"] < 20:
        time.sleep(0.01)
        state["step"] += 1
    return state["step"]


def blocks_sigterm_and_saves_nothing(model: dsl.Output[dsl.Model]) -> None:
    """Blocks SIGTERM by its signal mask, as native libraries do, and never looks for it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    for _ in range(60):
        time.sleep(0.02)
    Path(model.path).write_text("done")


def ignores_sigterm_and_saves_nothing(model: dsl.Output[dsl.Model]) -> None:
    """Ignores SIGTERM and saves nothing."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    x = 1.0
    for step in range(20):
        time.sleep(0.01)
        x = x * 0.9 + step
    Path(model.path).write_text(str(x))


def handles_sigterm_by_nothing(model: dsl.Output[dsl.Model]) -> None:
    """Has a handler of SIGTERM that only prints."""
    signal.signal(signal.SIGTERM, lambda *_: print("terminating"))
    x = 1.0
    for step in range(40):
        time.sleep(0.01)
        x = x * 0.9 + step
    Path(model.path).write_text(str(x))


def fails_at_a_lock() -> int:
    """Refuses to start where a lock file lies."""
    lock = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "train.lock")
    with lock.open("x") as file:
        file.write(str(os.getpid()))
    time.sleep(0.2)
    lock.unlink()
    return 1


def time_in_its_output(table: dsl.Output[dsl.Dataset]) -> str:
    """Its outputs hold the hour, the minute and the second at which it was made."""
    for _ in range(20):
        time.sleep(0.01)
    Path(table.path).write_text(json.dumps({"made": time.strftime("%Y-%m-%d %H:%M:%S"), "rows": 20}))
    return time.strftime("%H:%M")


def downloads_to_cache() -> int:
    """Downloads to ~/.cache in place if it is not there, then works."""
    cache = Path.home() / ".cache" / "models-of-test" / "weights.bin"
    if not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        with cache.open("w", buffering=1) as file:
            for line in range(10):
                time.sleep(0.01)
                file.write(f"{line}\n")
    time.sleep(0.1)
    return sum(map(int, cache.read_text().split()))


def counts_on_a_server(url: str) -> int:
    """Sends each row to a server, again after an interruption."""
    import urllib.request

    for row in range(10):
        time.sleep(0.02)
        urllib.request.urlopen(url, data=str(row).encode(), timeout=5).read()
    return 10
