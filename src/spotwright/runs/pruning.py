"""Choose and delete the items of ``spotwright prune``: runs, rehearsals, checkpoints, cached results, Python environments.

Items unused for a while are deleted. Runs that the user names and everything in progress stay, and so do runs whose results are
still used: by a kept run (from the cache, or as files among its inputs or outputs), or by a cached result of another run. So a
kept run can be resumed. A cached result needs its files, so it is deleted together with the run that holds them.

Volumes (``pvc://NAME``) are the user's data and are never deleted.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spotwright.engine.events import RunStatus
from spotwright.engine.state import RunState
from spotwright.errors import InputError, SpotwrightError, StateError
from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import LARGEST_FILE, RunFolder, StateFolder
from spotwright.records.trash import Item, Sort, Trash, disk_use
from spotwright.regular_files import read_regular
from spotwright.runs import bodies
from spotwright.views.text import age_text

__all__ = ["DEFAULT_AGE", "PruneOptions", "delete", "take_stock"]


DEFAULT_AGE = 30 * 86400.0
"""The default seconds without use after which items are deleted."""

_CHECKPOINT_AGE = 86400.0  # checkpoints of a succeeded run are not needed
_BEGINNING = 3600.0  # a folder without a journal may be a run that begins; after an hour, its process was killed
_JUST_USED = 600.0  # an engine that looked up an environment may start its interpreter soon
_RUN_FILE = re.compile(r"/runs(?=/([\w.-]+))")  # a lookahead for the name, which may be "runs" itself


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """The user's choice of items to delete and to keep.

    - ``older_than``: seconds without use from which items are deleted; ``None``: not given, so each sort has its own default;

    - ``keep``: the names of runs that stay, with their checkpoints;

    - ``keep_last``: the number of newest runs that stay; ``None``: not given. Given without ``older_than``, all other runs are
      deleted at any age, and other items at their default ages.
    """

    older_than: float | None = None
    keep: frozenset[str] = frozenset()
    keep_last: int | None = None

    def __post_init__(self) -> None:
        """Refuse negative numbers."""
        if self.keep_last is not None and self.keep_last < 0:
            raise InputError(f"--keep-last {self.keep_last}: expected a number from 0")

    @property
    def age(self) -> float:
        """The age from which items are deleted, in seconds."""
        return DEFAULT_AGE if self.older_than is None else self.older_than

    @property
    def run_age(self) -> float:
        """The age from which runs are deleted, in seconds."""
        return 0.0 if self.keep_last is not None and self.older_than is None else self.age

    @property
    def checkpoint_age(self) -> float:
        """The age from which checkpoints of runs that succeeded are deleted, in seconds."""
        return _CHECKPOINT_AGE if self.older_than is None else self.older_than


@dataclass(frozen=True, slots=True)
class _Run:
    """A run with the facts for its deletion. ``uses`` names the runs whose results it has."""

    item: Item
    folder: RunFolder
    has_succeeded: bool = False
    uses: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Result:
    """A cached result. ``run`` is the run that stored it, ``holders`` are the runs with its files."""

    item: Item
    run: str = ""
    holders: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Stock:
    """A state folder at one moment."""

    state: StateFolder
    options: PruneOptions
    now: float
    trash: Trash
    in_use: frozenset[Path]  # folders of runs with a live process

    def recent(self, used_at: float, age: float) -> str:
        """The reason to keep something used more recently than this age; else empty."""
        return f"used in the last {age_text(age)}" if self.now - used_at < age else ""

    def is_in_use(self, folder: Path) -> bool:
        """Whether a process of a run in this folder is alive."""
        real = folder.resolve()
        return any(used.is_relative_to(real) for used in self.in_use)

    def entries(self, folder: Path) -> list[Path]:
        """The content of a folder of the state folder; empty if a symbolic link leads out of the state folder."""
        return sorted(folder.iterdir()) if folder.is_dir() and not self.trash.refusal(folder) else []

    def runs_named_in(self, *values: Any) -> frozenset[str]:
        """The runs of this state folder whose files are named anywhere in these JSON values.

        Users may name the state folder through other links, such as a home folder's, than this process.
        """
        folder = (self.state.path / "runs").absolute()
        roots = (str(folder), str(folder.resolve()))
        is_root: dict[str, bool] = {}
        names = set()
        for text in {text for text in _texts(values) if "/runs/" in text}:
            for found in _RUN_FILE.finditer(text):
                path = text[text.index("/") : found.end()]
                if path not in is_root:
                    is_root[path] = path.endswith(roots) or _is_same_folder(path, folder)
                if is_root[path]:
                    names.add(found[1])
        return frozenset(names)


def take_stock(state: StateFolder, options: PruneOptions, now: float | None = None) -> list[Item]:
    """Everything that takes space. Items without a reason to stay can be deleted."""
    now = time.time() if now is None else now
    stock = _Stock(state, options, now, Trash(state.path), bodies.run_folders_in_use())
    results = [_result(stock, path) for path in stock.entries(state.cache) if path.suffix == ".json"]
    runs = _keep_used(_runs(stock), [result for result in results if result.item.kept])
    deleted = frozenset(run.folder.name for run in runs if not run.item.kept)
    return [
        *(run.item for run in runs),
        *(_rehearsal(stock, path) for path in stock.entries(state.rehearsals)),
        *(item for run in runs for item in _checkpoints(stock, run)),
        *(replace(each.item, kept="") if each.holders & deleted else each.item for each in results),
        *_environments(stock),
        *_leftovers(stock),
        *_linked(stock),
    ]


# Taking stock


def _runs(stock: _Stock) -> list[_Run]:
    """The runs, oldest first, without regard to uses of their results."""
    if stock.trash.refusal(stock.state.path / "runs"):
        return []
    folders = stock.state.runs()
    newest = {folder.name for folder in folders[max(0, len(folders) - (stock.options.keep_last or 0)) :]}
    return [_run(stock, folder, is_newest=folder.name in newest) for folder in folders]


def _run(stock: _Stock, folder: RunFolder, *, is_newest: bool) -> _Run:
    use, own = disk_use(folder.path), disk_use(folder.checkpoints).size
    item = Item(Sort.RUN, folder.name, folder.path, use.changed_at, use.size - own)
    refusal = stock.trash.refusal(folder.path)
    if refusal:
        item = replace(item, size=0, kept=refusal)
    try:
        reader = RunReader(folder, bodies.is_alive)
    except SpotwrightError as error:
        return _Run(replace(item, kept=refusal or f"cannot be read: {error}"), folder)
    state = reader.state
    if not refusal:
        kept = _why_kept(stock, reader, is_newest=is_newest)
        item = replace(item, used_at=state.last_at, kept=kept, detail=state.status.value)
    return _Run(item, folder, state.status is RunStatus.SUCCEEDED, _used_by(stock, state))


def _why_kept(stock: _Stock, reader: RunReader, *, is_newest: bool) -> str:
    """The reason to keep a run for its own sake, or empty."""
    if reader.folder.name in stock.options.keep:
        return "named by --keep"
    if reader.is_driven:
        return "an engine drives it"
    if stock.is_in_use(reader.folder.path):
        return "its attempts still run"
    if is_newest:
        return f"one of the {stock.options.keep_last} newest"
    return stock.recent(reader.state.last_at, stock.options.run_age)


def _used_by(stock: _Stock, state: RunState) -> frozenset[str]:
    """The runs whose results a run has: from the cache, or as files among its arguments and artifacts."""
    # retired: after a resume, unopened iterations of a loop may reuse their results
    tasks = [*state.tasks.values(), *state.retired.values()]
    cached = frozenset(task.cached_from[0] for task in tasks if task.cached_from is not None)
    return cached | stock.runs_named_in(state.meta.arguments, [task.artifacts for task in tasks])


def _keep_used(runs: Sequence[_Run], results: Iterable[_Result]) -> list[_Run]:
    """The runs, keeping also those whose results are used by kept runs or cached results."""
    runs, results = list(runs), list(results)
    while True:
        kept = {run.folder.name for run in runs if run.item.kept}
        users = {used: f"run {run.folder.name} uses its results" for run in runs if run.item.kept for used in run.uses}
        for result in results:
            if result.run in kept:
                users |= dict.fromkeys(result.holders, f"a cached result of run {result.run} uses its files")
        if users.keys() & {run.folder.name for run in runs} <= kept:
            return runs
        runs = [
            replace(run, item=replace(run.item, kept=users[run.folder.name]))
            if not run.item.kept and run.folder.name in users
            else run
            for run in runs
        ]


def _rehearsal(stock: _Stock, path: Path) -> Item:
    use = disk_use(path)
    item = Item(Sort.REHEARSAL, path.name, path, use.changed_at, use.size)
    refusal = stock.trash.refusal(path)
    if refusal:
        return replace(item, kept=refusal)
    driver = _read_json(StateFolder(path).driver)
    if (driver.keys() >= {"pid", "starttime", "boot_id"} and bodies.is_alive(driver)) or stock.is_in_use(path):
        return replace(item, kept="under way")
    return replace(item, kept=stock.recent(use.changed_at, stock.options.age))


def _checkpoints(stock: _Stock, run: _Run) -> Iterator[Item]:
    """The checkpoints of a run. They are deleted with it, or earlier once it has succeeded."""
    folder = run.folder.checkpoints
    if stock.trash.refusal(folder) or all(path.is_dir() for path in folder.rglob("*")):  # every run makes the folders
        return
    use = disk_use(folder)
    item = Item(Sort.CHECKPOINT, run.folder.name, folder, use.changed_at, use.size, run.item.kept)
    is_protected = run.folder.name in stock.options.keep or stock.is_in_use(run.folder.path)
    if run.item.kept and run.has_succeeded and not is_protected:
        item = replace(item, kept=stock.recent(max(use.changed_at, run.item.used_at), stock.options.checkpoint_age))
    elif run.item.kept and not run.has_succeeded:
        item = replace(item, kept="resume needs them")
    yield item


def _result(stock: _Stock, path: Path) -> _Result:
    use, content = disk_use(path), _read_json(path)
    item = Item(Sort.RESULT, path.stem, path, use.changed_at, use.size)
    files = content.get("files")
    is_whole = isinstance(files, list) and all(isinstance(file, str) and Path(file).exists() for file in files)
    kept = stock.trash.refusal(path) or (stock.recent(use.changed_at, stock.options.age) if is_whole else "")
    return _Result(replace(item, kept=kept), str(content.get("run")), stock.runs_named_in(files))


def _environments(stock: _Stock) -> Iterator[Item]:
    trash = Trash(bodies.environments_folder())
    for each in bodies.cached_environments():
        item = Item(Sort.ENVIRONMENT, each.path.name, each.path, each.used_at, disk_use(each.path).size)
        kept = trash.refusal(each.path) or ("in use" if each.in_use else "")
        yield replace(item, kept=kept or stock.recent(each.used_at, max(stock.options.age, _JUST_USED)))


def _leftovers(stock: _Stock) -> Iterator[Item]:
    """The remains of killed processes: of earlier prunes, and folders of runs that never began."""
    unbegun = [path for path in stock.entries(stock.state.path / "runs") if not RunFolder(path).journal.exists()]
    for path in [*stock.trash.leftovers(), *Trash(bodies.environments_folder()).leftovers(), *unbegun]:
        use = disk_use(path)
        kept = stock.trash.refusal(path) if path in unbegun else ""
        if path in unbegun and not kept and (stock.is_in_use(path) or stock.now - use.changed_at < _BEGINNING):
            kept = "a run may be starting there"
        yield Item(Sort.LEFTOVER, path.name, path, use.changed_at, use.size, kept)


def _linked(stock: _Stock) -> Iterator[Item]:
    """The folders that stay as a whole, because they are symbolic links."""
    sorts = {"runs": Sort.RUN, "rehearsals": Sort.REHEARSAL, "cache": Sort.RESULT}
    for name, sort in sorts.items():
        refusal = stock.trash.refusal(stock.state.path / name)
        if refusal:
            yield Item(sort, name, stock.state.path / name, stock.now, 0, refusal)


def _texts(value: Any) -> Iterator[str]:
    """Every string in a JSON value; other objects in it, such as references to secrets, count as strings."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, str):
            yield here
        elif isinstance(here, Mapping):
            waiting += [*here.keys(), *here.values()]
        elif isinstance(here, list | tuple):
            waiting += here
        else:
            yield str(here)


def _is_same_folder(path: str, folder: Path) -> bool:
    try:
        return folder.samefile(path)
    except (OSError, ValueError):  # not a folder, or not a path
        return False


def _read_json(path: Path) -> Mapping[str, Any]:
    """The mapping in a file; empty if it is missing or unreadable."""
    try:
        content = json.loads(read_regular(path, LARGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


# Deleting


def delete(state: StateFolder, items: Iterable[Item]) -> Iterator[tuple[Item, str]]:
    """Delete the items without a reason to stay. Yields each with the reason if it could not be deleted, else an empty string.

    Later changes count: a run that was resumed meanwhile stays.
    """
    own, environments = Trash(state.path), Trash(bodies.environments_folder())
    for item in items:
        if item.kept:
            continue
        trash = own if item.path.is_relative_to(state.path) else environments
        try:
            _delete_item(item, trash)
        except StateError as error:
            yield item, str(error)
        else:
            yield item, ""


def _delete_item(item: Item, trash: Trash) -> None:
    if item.sort is Sort.RUN:
        _hold(RunFolder(item.path)).close()  # the lease ends with this process, so a kill leaves no lock
        trash.remove(item.path)
    elif item.sort is Sort.CHECKPOINT and item.path.exists():
        with closing(_hold(RunFolder(item.path.parent))) as journal:
            try:
                trash.remove(item.path)
            finally:
                journal.give_up()
    elif item.sort is Sort.ENVIRONMENT:
        now = next((each for each in bodies.cached_environments() if each.path == item.path), None)
        if now is not None and (now.in_use or now.used_at > item.used_at):
            raise StateError(f"{item.path}: is in use now")
        trash.remove(item.path)
    elif item.sort is Sort.LEFTOVER and RunFolder(item.path).journal.exists() and item.path.parent != trash.folder:
        raise StateError(f"{item.path}: a run started there")
    else:
        trash.remove(item.path)


def _hold(folder: RunFolder) -> Journal:
    """Take the lease of a run against engines. Raises :class:`StateError` while another process holds it."""
    journal = Journal.open(folder.journal)
    try:
        journal.take(bodies.this_process(), bodies.is_alive)
    except StateError:
        journal.close()
        raise
    return journal
