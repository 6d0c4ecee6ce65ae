"""Steps that save their work in databases, memory maps, folders and links.

The docstring of each says what it does right or wrong. Their verdicts are in :mod:`tests.rehearsal.samples`.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from kfp import dsl


def sqlite_in_one_transaction() -> int:
    """Commits rows and position in one transaction."""
    import sqlite3

    db = sqlite3.connect(Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.db"))
    db.execute("create table if not exists rows (epoch integer, x real)")
    db.execute("create table if not exists position (epoch integer)")
    db.commit()
    epoch = db.execute("select max(epoch) from position").fetchone()[0] or 0
    while epoch < 15:
        time.sleep(0.015)
        epoch += 1
        with db:
            db.execute("insert into rows values (?, ?)", (epoch, epoch * 0.5))
            db.execute("insert into position values (?)", (epoch,))
    return db.execute("select count(*) from rows").fetchone()[0]


def sqlite_wal_in_one_transaction() -> int:
    """Commits rows and position in one transaction, with a write-ahead log."""
    import sqlite3

    db = sqlite3.connect(Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.db"))
    db.execute("pragma journal_mode=wal")
    db.execute("create table if not exists rows (epoch integer, x real)")
    db.execute("create table if not exists position (epoch integer)")
    db.commit()
    epoch = db.execute("select max(epoch) from position").fetchone()[0] or 0
    while epoch < 15:
        time.sleep(0.015)
        epoch += 1
        with db:
            db.execute("insert into rows values (?, ?)", (epoch, epoch * 0.5))
            db.execute("insert into position values (?)", (epoch,))
    return db.execute("select count(*) from rows").fetchone()[0]


def sqlite_in_two_transactions() -> int:
    """Commits rows first and the position afterwards."""
    import sqlite3

    db = sqlite3.connect(Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.db"))
    db.execute("create table if not exists rows (epoch integer, x real)")
    db.execute("create table if not exists position (epoch integer)")
    db.commit()
    epoch = db.execute("select max(epoch) from position").fetchone()[0] or 0
    while epoch < 15:
        time.sleep(0.015)
        epoch += 1
        with db:
            db.execute("insert into rows values (?, ?)", (epoch, epoch * 0.5))
        with db:
            db.execute("insert into position values (?)", (epoch,))
    return db.execute("select count(*) from rows").fetchone()[0]


def sqlite_wal_in_two_transactions() -> int:
    """Commits rows first and the position afterwards, with a write-ahead log."""
    import sqlite3

    db = sqlite3.connect(Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.db"))
    db.execute("pragma journal_mode=wal")
    db.execute("create table if not exists rows (epoch integer, x real)")
    db.execute("create table if not exists position (epoch integer)")
    db.commit()
    epoch = db.execute("select max(epoch) from position").fetchone()[0] or 0
    while epoch < 15:
        time.sleep(0.015)
        epoch += 1
        with db:
            db.execute("insert into rows values (?, ?)", (epoch, epoch * 0.5))
        with db:
            db.execute("insert into position values (?)", (epoch,))
    return db.execute("select count(*) from rows").fetchone()[0]


def memory_map_torn() -> float:
    """Keeps its state in a memory map, and counts the epoch before its work is in."""
    import mmap
    import struct

    path = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.bin")
    if not path.exists():
        path.with_suffix(".new").write_bytes(bytes(16))
        path.with_suffix(".new").rename(path)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 16) as memory:
        epoch, w = struct.unpack("dd", memory[:])
        while epoch < 20:
            epoch += 1
            memory[:8] = struct.pack("d", epoch)
            time.sleep(0.01)
            w = w * 0.9 + epoch
            memory[8:] = struct.pack("d", w)
    return w


def memory_map_whole() -> float:
    """Keeps state in a memory map with two slots and a slot number that is written last."""
    import mmap
    import struct

    path = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.bin")
    if not path.exists():
        path.with_suffix(".new").write_bytes(bytes(48))
        path.with_suffix(".new").rename(path)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 48) as memory:
        slot = memory[0]
        epoch, w = struct.unpack("dd", memory[16 * (slot + 1) : 16 * (slot + 2)])
        while epoch < 20:
            Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_text(str(epoch / 20))
            time.sleep(0.01)
            epoch += 1
            w = w * 0.9 + epoch
            slot = 1 - slot
            memory[16 * (slot + 1) : 16 * (slot + 2)] = struct.pack("dd", epoch, w)
            memory[0] = slot
    return w


def copies_trees(model: dsl.Output[dsl.Model]) -> None:
    """Copies a folder of its state into the checkpoint folder, and takes the newest as complete."""
    import shutil

    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])
    newest = max(place.glob("epoch-*"), key=lambda path: int(path.name[6:]), default=None)
    epoch, w = 0, 0.0
    if newest is not None:
        epoch = int(newest.name[6:])
        w = float((newest / "weights").read_text())
    work = Path("work")
    work.mkdir()
    while epoch < 15:
        time.sleep(0.015)
        w = w * 0.9 + epoch
        epoch += 1
        (work / "config").write_text("lr: 0.1")
        (work / "weights").write_text(repr(w))
        shutil.copytree(work, place / f"epoch-{epoch}")
    Path(model.path).write_text(repr(w))


def copies_trees_and_renames(model: dsl.Output[dsl.Model]) -> None:
    """Copies a folder of its state beside its place, and renames it."""
    import shutil

    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])
    newest = max(place.glob("epoch-*"), key=lambda path: int(path.name[6:]), default=None)
    epoch, w = 0, 0.0
    if newest is not None:
        epoch = int(newest.name[6:])
        w = float((newest / "weights").read_text())
    work = Path("work")
    work.mkdir()
    while epoch < 15:
        time.sleep(0.015)
        w = w * 0.9 + epoch
        epoch += 1
        (work / "weights").write_text(repr(w))
        shutil.rmtree(place / "copying", ignore_errors=True)
        shutil.copytree(work, place / "copying")
        (place / "copying").rename(place / f"epoch-{epoch}")
    Path(model.path).write_text(repr(w))


def symlink_to_latest(model: dsl.Output[dsl.Model]) -> None:
    """Writes numbered files, and points a symbolic link at the newest by unlink and symlink: between them it is lost."""
    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])
    latest = place / "latest"
    state = json.loads(latest.read_text()) if latest.exists() else {"epoch": 0, "w": 0.0}
    while state["epoch"] < 20:
        time.sleep(0.01)
        state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + state["epoch"]}
        path = place / f"ckpt-{state['epoch']}.json"
        path.write_text(json.dumps(state))
        latest.unlink(missing_ok=True)
        latest.symlink_to(path.name)
    Path(model.path).write_text(str(state["w"]))
