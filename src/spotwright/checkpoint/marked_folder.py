"""Folders that a framework fills with many files, made whole or absent by one file that is written last: the mark.

The mark lists every other file with its size, and facts of the training. It is written when all other files are durable. A
folder without a mark, or with a file of another size, is torn: its process ended in the middle of a save or of a removal. It is
moved aside under a name that no framework takes for a checkpoint. One torn folder per place is kept for people.

A process claims the place first. A process of an earlier attempt that still runs finds the claim before its next save, and
stops. A process frozen in the middle of a save may continue to write before it finds the claim. So each attempt fills folders
below its own folder, and moves a whole folder to its place.
"""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from spotwright.checkpoint.errors import OtherProgram, PlaceError
from spotwright.checkpoint.place_owners import PlaceOwner
from spotwright.checkpoint.save_log import SaveLog, describe_writer
from spotwright.checkpoint.store import FolderStore, open_store

__all__ = [
    "MARK",
    "MarkedFolders",
    "facts_of",
    "fault_of",
    "folder_at",
    "is_object_store",
    "mark_whole",
    "model_facts",
    "sync_files",
    "unmark",
]


MARK = "spotwright-whole.json"
"""Name of the mark in a folder."""

TORN = "torn-"
"""Prefix of the name of a folder that was moved aside."""

_WRITING = "spotwright-writing-"  # prefix of an attempt's folder, in which it writes
_REPLACED = "replaced-"  # prefix of a replaced folder there
_CLAIMS = "spotwright-claims"  # the folder of the claims, beside the checkpoints
_LARGEST_MARK = 16 << 20  # bytes; a mark of 100,000 files has 10 MB
_MOST_SHAPES = 20_000  # parameters with their shapes in a mark, about 100 bytes each
_MOST_TOLD = 3  # differences of two models in a message


def folder_at(place: str | os.PathLike[str] | None = None, name: str = "") -> Path:
    """Return the folder of a place and a name, as :class:`~spotwright.checkpoint.Checkpoint` takes them.

    Raises :class:`PlaceError` for an object store, which has no folders.
    """
    address = os.environ.get("SPOTWRIGHT_CHECKPOINT", "") if place is None else os.fspath(place)
    if is_object_store(address):
        raise PlaceError(
            f"{address}: this framework saves into folders, not into object stores: mount a volume and name a folder there, or"
            " write your own training loop with spotwright.checkpoint.Checkpoint, which accepts this place"
        )
    store = open_store(place, name=name)
    assert isinstance(store, FolderStore)  # noqa: S101  # any other address is an object store
    return Path(store.place)


def is_object_store(address: str) -> bool:
    """True if the address is a URL other than a folder of this machine."""
    scheme, mark, _ = address.partition("://")
    return bool(mark) and scheme not in {"file", "pvc"}


def mark_whole(folder: Path, facts: Mapping[str, Any]) -> None:
    """Make the files of a folder durable, then mark it as whole. ``facts`` are values of JSON."""
    import json

    sync_files(folder)
    text = json.dumps({"format": 1, "files": _sizes(folder), "facts": dict(facts)}).encode()
    beside = folder / f"{MARK}.{os.getpid()}"
    with open(beside, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, folder / MARK)
    _sync_folder(folder)
    _sync_folder(folder.parent)


def unmark(folder: Path) -> None:
    """Remove the mark, if any, from a folder that is about to be filled again."""
    (folder / MARK).unlink(missing_ok=True)


def sync_files(folder: Path) -> None:
    """Make all files in and below a folder durable."""
    for name, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):  # another process' temporary file
                _sync(os.path.join(name, file), os.O_RDONLY)
        _sync_folder(Path(name))


def fault_of(folder: Path) -> str | None:
    """Return the reason why a folder is torn; ``None`` if it is complete."""
    mark = _read(folder)
    if mark is None:
        return "it has no completion mark, so its save did not finish"
    sizes = _sizes(folder)
    for name, size in mark["files"].items():
        if name not in sizes:
            return f"{name} is missing"
        if sizes[name] != size:
            return f"{name} has {sizes[name]} bytes instead of {size}"
    return None


def facts_of(folder: Path) -> dict[str, Any]:
    """Return the facts in the mark of a folder; empty if it has no mark."""
    mark = _read(folder)
    return {} if mark is None else mark["facts"]


def model_facts(models: Iterable[Any]) -> dict[str, Any]:
    """Return the facts by which :meth:`MarkedFolders.newest_of` recognizes a PyTorch model: parameter names and shapes."""
    import json

    shapes = [{name: list(value.shape) for name, value in each.named_parameters()} for each in models]
    number = zlib.crc32(json.dumps([sorted(each.items()) for each in shapes]).encode())
    few = sum(map(len, shapes)) <= _MOST_SHAPES
    return {"model": number, **({"shapes": shapes} if few else {})}


def check_one_place(place: Path, steps: Sequence[int]) -> None:
    """Raise :class:`PlaceError` if ranks see different checkpoints, because each has a separate folder.

    ``steps`` has the step of each rank's newest checkpoint; 0 for none.
    """
    if len(set(steps)) > 1:
        raise PlaceError(
            f"{place}: the ranks see checkpoints of different steps there ({', '.join(map(str, steps))}): "
            "name a folder on a volume that all nodes mount"
        )


class MarkedFolders:
    """The checkpoints of a training in one place: folders with a common prefix and the number of a step, ``checkpoint-20``.

    ``looks_whole`` decides on folders without a mark from before Spotwright was used, so that such a training continues.
    """

    def __init__(self, place: Path, prefix: str, looks_whole: Callable[[Path], bool] = lambda _: False) -> None:
        self.place, self.prefix = place, prefix
        self._looks_whole = looks_whole
        self._claims = SaveLog(FolderStore(str(place / _CLAIMS)))
        self.writer = 0
        """Number of the attempt in whose folder all processes write, from the claim."""

    def claim(self, owner: PlaceOwner | None = None) -> list[str]:
        """Become the writer of the place, and move torn folders aside. Returns a line for each.

        ``owner`` is the claiming training. Raises :class:`PlaceError` if the place cannot be used, or another training of this
        process has it.
        """
        is_new = self._claims.latest_claim() is None
        saves = str(self.place / self.prefix)
        if owner is not None:
            owner.check(saves, is_claimed=not is_new)
        self.writer = self._claims.claim_token({"who": describe_writer(), "at": time.time()}).number
        if owner is not None:
            owner.set(saves)
        moved = self._clear_writers()
        for folder in self._folders():
            if is_new and not (folder / MARK).exists() and self._looks_whole(folder):
                mark_whole(folder, {})
            elif fault := fault_of(folder):
                moved.append(f"{folder.name} is torn ({fault}); moved it to {self._move_aside(folder).name}")
        return moved

    def check(self) -> None:
        """Raise :class:`StaleWriter` if another attempt took over. Only the process that claimed the place knows."""
        if self._claims.claim is not None:
            self._claims.check()

    def _clear_writers(self) -> list[str]:
        """Move unfinished folders of earlier attempts aside; return a line for each."""
        moved: list[str] = []
        for writer in sorted(self.place.glob(f"{_WRITING}*")):
            for folder in sorted(writer.glob(f"{_REPLACED}{self.prefix}*")):
                with suppress(OSError):  # its place is in use
                    os.rename(folder, self.place / folder.name.removeprefix(_REPLACED))
            moved += [
                f"{folder.name} is torn (its save did not finish); moved it to {self._move_aside(folder).name}"
                for folder in sorted(writer.glob(f"{self.prefix}*"))
            ]
            shutil.rmtree(writer, ignore_errors=True)
        return moved

    def own_folder(self, step: int) -> Path:
        """Return the folder in which only this attempt writes the checkpoint of a step."""
        return self.place / f"{_WRITING}{self.writer}" / f"{self.prefix}{step}"

    def put(self, step: int) -> None:
        """Move this attempt's complete folder of a step to its place, replacing an existing one.

        Raises :class:`StaleWriter` if another attempt took over. That is checked before and after the move: a process frozen in
        between restores the previous folder.
        """
        written, folder = self.own_folder(step), self.folder_of(step)
        replaced = written.with_name(f"{_REPLACED}{written.name}")
        self.check()
        is_put = False
        try:
            with suppress(FileNotFoundError):
                os.rename(folder, replaced)
            os.rename(written, folder)
            is_put = True
            self.check()
        except BaseException:
            with suppress(OSError):  # the error above matters
                if is_put:
                    os.rename(folder, written)
                os.rename(replaced, folder)
            self.check()
            raise
        _sync_folder(self.place)
        self.discard()

    def discard(self) -> None:
        """Remove this attempt's folder with its unfinished and invalid checkpoints."""
        shutil.rmtree(self.place / f"{_WRITING}{self.writer}", ignore_errors=True)

    def newest(self) -> Path | None:
        """Return the complete folder of the highest step; ``None`` without one."""
        return next((folder for folder in self._folders() if fault_of(folder) is None), None)

    def newest_of(self, model: Mapping[str, Any], processes: int) -> Path | None:
        """Return the newest complete folder for a model with these :func:`model_facts` and this number of processes.

        Raises :class:`OtherProgram` for another model's. A different number of processes causes a warning.
        """
        found = self.newest()
        facts = {} if found is None else facts_of(found)
        if facts.get("model", model["model"]) != model["model"]:
            raise OtherProgram(
                f"{found}: this checkpoint's model has other parameters{_differences(facts, model)}: name another place, or"
                " remove this folder (it was left unchanged)"
            )
        if facts.get("processes", processes) != processes:
            import logging

            text = (
                "%s: was saved by %s processes, and %s are running now: batches and random numbers will differ from an"
                " uninterrupted training"
            )
            logging.getLogger("spotwright.checkpoint").warning(text, found, facts["processes"], processes)
        return found

    def folder_of(self, step: int) -> Path:
        """Return the folder of a step."""
        return self.place / f"{self.prefix}{step}"

    def prune(self, keep: int) -> None:
        """Remove all whole folders except the ``keep`` newest."""
        for folder in [each for each in self._folders() if fault_of(each) is None][keep:]:
            unmark(folder)
            shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> list[Path]:
        """The folders of checkpoints, highest step first."""
        found = []
        try:
            for name in os.listdir(self.place):
                number = name.removeprefix(self.prefix)
                is_step = name != number and number.isascii() and number.isdecimal()
                if is_step and (self.place / name).is_dir():
                    found.append((int(number), self.place / name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise PlaceError(f"{self.place}: cannot be read ({error})") from error
        return [folder for _, folder in sorted(found, reverse=True)]

    def _move_aside(self, folder: Path) -> Path:
        for earlier in self.place.glob(f"{TORN}{self.prefix}*"):  # torn ones must not fill the disk
            shutil.rmtree(earlier, ignore_errors=True)
        aside = self.place / f"{TORN}{folder.name}"
        try:
            os.rename(folder, aside)
        except OSError as error:
            raise PlaceError(
                f"{folder}: is torn and cannot be moved aside ({error}): remove it, so that training can resume"
            ) from error
        return aside


def _differences(saved: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """The differences of two models, in brackets for a message; empty if their marks do not show any."""
    there: dict[str, Any] = {}
    here: dict[str, Any] = {}
    for value, into in ((saved, there), (model, here)):
        for each in shapes if isinstance(shapes := value.get("shapes"), list) else ():
            into.update(each if isinstance(each, dict) else {})
    if not (there and here):
        return ""
    found = [
        f"{name} is {there.get(name, 'missing')} there and {here.get(name, 'missing')} here"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]
    more = [f"and {len(found) - _MOST_TOLD} more"] if len(found) > _MOST_TOLD else []
    return f" ({'; '.join(found[:_MOST_TOLD] + more)})" if found else ""


def _sizes(folder: Path) -> dict[str, int]:
    """The size of every file below a folder by its relative name, except marks."""
    sizes = {}
    for name, _, files in os.walk(folder):
        for file in files:
            if not file.startswith(MARK):
                path = os.path.join(name, file)
                sizes[os.path.relpath(path, folder)] = os.lstat(path).st_size
    return sizes


def _read(folder: Path) -> dict[str, Any] | None:
    """The mark of a folder; ``None`` if it is missing or invalid."""
    import json

    try:
        with open(folder / MARK, "rb") as file:
            mark = json.loads(file.read(_LARGEST_MARK))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(mark, dict) or not all(isinstance(mark.get(part), dict) for part in ("files", "facts")):
        return None
    return mark


def _sync_folder(folder: Path) -> None:
    _sync(str(folder), os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str, flags: int) -> None:
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)
