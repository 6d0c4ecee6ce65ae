"""One save by several ranks: their messages, in the main thread or in another one.

They use keys (:mod:`spotwright.checkpoint.rank_keys`), because a collective operation of a second thread would mix with the
training's, and would wait for half an hour if a rank is frozen. Here a rank waits while the awaited rank's process responds.
The first rank decides how to begin and, at the end, whether the save is committed; the others report their parts. An error in
one rank is an error in all.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from spotwright.checkpoint import errors
from spotwright.checkpoint.errors import CheckpointError, SaveFailed
from spotwright.checkpoint.save_coordinator import SaveCoordinator

__all__ = ["SaveInThread", "SharedSave", "SilentRank"]

_PATIENCE = 5.0
"""Seconds until an awaited rank's process is pinged, and for which its answer is awaited."""

_LEAST_PATIENCE = 0.5  # the same near this rank's end: a writing rank answers later than a waiting one
_SHORT_PATIENCE = 1.0  # the same after the training, so that the next attempt may begin

_MOST_READS = 1280  # per second, of all ranks together
_LARGEST_KEY = 4 << 20  # bytes; PyTorch's TCPStore takes 8 MiB ("max: 8388608" in TCPStoreLibUvBackend.cpp)
_LARGEST_PART = 256 << 20  # bytes of JSON
_GIVEN_UP = 2.0  # seconds within which a thread that was asked to give up ends, unless it writes

_LATE_AFTER = 60.0
"""Least seconds after which a save in a thread is late: its store may never answer."""

_LATE_TIMES = 10.0  # the same, as a multiple of the slowest recent save
_LOOK = 0.1  # seconds between checks of a save in a thread, and of the end of the program

_log = logging.getLogger("spotwright.checkpoint")


class SilentRank(SaveFailed):
    """A rank needed by a save does not answer: it is dead, frozen or unreachable."""


class SharedSave:
    """A save, for one rank. ``name`` is :meth:`SaveCoordinator.begin_save`'s; ``left`` returns the seconds until this rank's end.

    Methods raise :class:`SaveFailed` if ranks cannot reach each other, and :class:`SilentRank` for a silent one.
    """

    def __init__(self, agreement: SaveCoordinator, name: str, savers: Sequence[int], left: Callable[[], float]) -> None:
        self._agreement, self._name, self.left = agreement, name, left
        self.savers = list(savers)
        self.first = self.savers[0]
        self.given_up = threading.Event()
        """Set to make a rank stop waiting for others."""
        self.hurried = threading.Event()
        """Set to make a rank ping the awaited ranks sooner."""
        self.has_all_parts = False
        """Whether every other rank has sent its part."""
        self.waits_for: int | None = None
        """The rank whose part is awaited."""
        self._known: set[str] = set()  # the keys that this rank has written or read

    @contextmanager
    def telling_errors(self) -> Iterator[None]:
        """Send an error that is raised in the block to the other ranks."""
        try:
            yield
        except BaseException as error:
            rank = self._agreement.rank
            kind, text = type(error).__name__, str(error)
            if not isinstance(error, CheckpointError):
                kind, text = SaveFailed.__name__, f"rank {rank}: {kind}: {text}"
            with suppress(SaveFailed):  # the error above matters
                for what in ("begin", "saved") if rank == self.first else (f"part/{rank}",):
                    self.tell(what, {"error": [kind, text]})
            raise

    @property
    def is_first(self) -> bool:
        """Whether this rank is the one that commits."""
        return self._agreement.rank == self.first

    def tell(self, what: str, value: Any) -> None:
        """Send a JSON value, unless already sent."""
        if (keys := self._agreement.keys) is None:
            return
        text = base64.b64encode(zlib.compress(json.dumps(value).encode(), 1))
        pieces = [text[start : start + _LARGEST_KEY] for start in range(0, len(text), _LARGEST_KEY)]
        self._note(what, len(pieces))
        for number, piece in enumerate(pieces[1:], start=1):
            self._call(keys.create, f"{self._key(what)}/{number}", piece)
        self._call(keys.create, self._key(what), f"{len(pieces)} ".encode() + pieces[0])  # last: the others exist then

    def hear(self, what: str, rank: int, *, reserve: float = 0.0) -> Any:
        """Return a rank's message, or raise the error it sends. Waits until ``reserve`` seconds are left."""
        began, pause = time.monotonic(), 0.001
        self.waits_for = rank
        while (found := self._read(what)) is None:
            if self.given_up.is_set():
                raise SaveFailed(f"the save was abandoned: rank {rank} did not finish its part in time")
            if (left := self.left() - reserve) <= 0:
                raise SaveFailed(f"rank {rank} did not finish its part of the save before this one ended")
            patience = min(_SHORT_PATIENCE if self.hurried.is_set() else _PATIENCE, max(left / 4, _LEAST_PATIENCE))
            if time.monotonic() - began > patience:
                answers = self._call(self._agreement.answers, rank, patience, self.given_up)
                if self.given_up.is_set():
                    continue
                if not answers and self._read(what) is None:
                    raise SilentRank(f"rank {rank} does not answer, and its part of the save is missing")
                began = time.monotonic()
            time.sleep(pause)
            pause = min(1.5 * pause, max(0.05, self._agreement.size / _MOST_READS))
        self.waits_for = None
        if isinstance(found, dict) and "error" in found:
            kind, text = found["error"]
            raise getattr(errors, kind, SaveFailed)(text)
        return found

    def hear_parts(self, *, reserve: float = 0.0) -> list[Any]:
        """Return the parts of all ranks except the first; ``reserve`` is as in :meth:`hear`."""
        parts = [self.hear(f"part/{rank}", rank, reserve=reserve) for rank in self.savers[1:]]
        self.has_all_parts = True
        return parts

    def elect(self) -> int:
        """Return the rank that saves instead of the silent first one: the same in all ranks."""
        keys, rank = self._agreement.keys, self._agreement.rank
        return rank if keys is None else int(self._call(keys.create, self._key("writer"), str(rank).encode()))

    def forget(self) -> None:
        """Remove the keys of a save that all its ranks are done with."""
        if (keys := self._agreement.keys) is not None:
            self._call(keys.remove, sorted(self._known))

    def _read(self, what: str) -> Any:
        if (keys := self._agreement.keys) is None:
            return None
        if (found := self._call(keys.read, self._key(what))) is None:
            return None
        count, _, text = found.partition(b" ")
        self._note(what, int(count))
        for number in range(1, int(count)):
            text += self._call(keys.read, f"{self._key(what)}/{number}") or b""
        inflate = zlib.decompressobj()
        return json.loads(inflate.decompress(base64.b64decode(text), _LARGEST_PART))

    def _note(self, what: str, pieces: int) -> None:
        self._known |= {self._key(what), *(f"{self._key(what)}/{number}" for number in range(1, pieces))}

    def _key(self, what: str) -> str:
        return f"{self._name}/{what}"

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except RuntimeError as error:
            self._agreement.lose(error)
            raise SaveFailed(
                f"the ranks cannot reach one another for a save: {str(error).partition(chr(10))[0]}"
            ) from error


class SaveInThread:
    """A save of a copied state, written in a thread while the training continues. The interpreter exits only after it.

    ``step`` is the state's, ``place`` names the store, and ``usual`` is the duration of the slowest recent save in seconds. A
    save that takes much longer is *late*: a warning says so, once per group, and the interpreter no longer waits for it.
    """

    def __init__(self, save: SharedSave, work: Callable[[], None], step: int, place: str, usual: float) -> None:
        self._save, self._work, self._place, self._usual = save, work, place, usual
        self.step = step
        self.began, self._began_at = time.monotonic(), time.time()
        self.seconds = 0.0
        self.error: CheckpointError | None = None
        """Why it failed."""
        self.taken = threading.Event()
        """Set when its outcome was received; if never, its error is logged at the end of the program."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spotwright-save", daemon=True)
        keeper = threading.Thread(target=self._keep, name="spotwright-save-keeper")  # the interpreter waits for it
        keeper.start()
        try:
            self._thread.start()
        except BaseException:
            self._over.set()
            raise

    def _run(self) -> None:
        try:
            self._work()
        except CheckpointError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001  # it is passed to the main thread
            self.error = SaveFailed(f"a save in a thread failed: {type(error).__name__}: {error}")
            self.error.__cause__ = error
        self.seconds = time.monotonic() - self.began
        self._over.set()

    def _keep(self) -> None:
        """Warn when the save is late, and report its error even after the end of the main thread."""
        warned = False
        while not self._over.wait(_LOOK):
            if self.is_late and not warned:
                warned = True
                self._warn()
            if self.is_late and not threading.main_thread().is_alive():
                self._save.given_up.set()
                if not self._over.wait(_GIVEN_UP):
                    _log.error("%s; the program ends without this save", self.describe())
                    return
        while self.error is not None and not self.taken.wait(_LOOK):
            if not threading.main_thread().is_alive():
                _log.error("%s: the save of step %d failed: %s", self._place, self.step, self.error)
                return

    def _warn(self) -> None:
        if not self._save.is_first:
            return  # the first rank is not done either, and reports it for all
        rank = self._save.waits_for
        where = "this rank is still writing" if rank is None else f"rank {rank} has not finished its part"
        _log.warning(
            "%s: %s. Until it ends, other saves cannot begin, and an interruption loses the work since the previous save. A"
            " save before a node's end waits for it as long as the notice allows. Check that this place is reachable",
            self.describe(), where,
        )  # fmt: skip

    def describe(self) -> str:
        """Describe the current phase and its start."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._began_at))
        seconds = time.monotonic() - self.began
        return f"{self._place}: the save of step {self.step}, begun at {since}, has not ended after {seconds:.0f} s"

    @property
    def is_over(self) -> bool:
        """True once it has ended."""
        return self._over.is_set()

    @property
    def is_late(self) -> bool:
        """True if it has lasted so long that it may never end."""
        return not self.is_over and self._until_late() <= 0

    def _until_late(self) -> float:
        return self.began + max(_LATE_AFTER, _LATE_TIMES * self._usual) - time.monotonic()

    def end(self, seconds: float, *, hurried: bool = False) -> bool:
        """Wait for its end, unless it is late, and make it give up after ``seconds``. Returns whether it has ended."""
        if hurried:
            self._save.hurried.set()
        self._over.wait(max(0.0, min(seconds, self._until_late())))
        if not self.is_over:
            self._save.given_up.set()
            self._over.wait(_GIVEN_UP)
        return self.is_over
