"""Keeps a second training in a process from resuming at the end of the first one, which would skip training and look finished.

Folds, stages and loops over settings run several trainings in one process. Each needs a separate place, so the second claim of
a place raises, unless the caller declares that it continues the first one's work. Attempts are separate processes and claim
freely, as does a training whose place was removed meanwhile.
"""

from __future__ import annotations

import os
import weakref

from spotwright.checkpoint.errors import PlaceError

__all__ = ["PlaceOwner", "in_use"]

_owners: dict[tuple[int, str], weakref.ref[object]] = {}  # by process and place: the claiming training


class PlaceOwner:
    """A training that claims a place for this process, without keeping it alive.

    ``advice`` explains how to use a separate place or to continue in another training's. ``again`` allows the latter.
    """

    def __init__(self, training: object, advice: str, *, again: bool = False) -> None:
        self._training, self._advice, self._again = weakref.ref(training), advice, again

    def check(self, place: str, *, is_claimed: bool) -> None:
        """Raise :class:`PlaceError` if another training of this process claimed the place, even one that has ended.

        ``is_claimed``: whether the place has a claim now; if not, it was removed, and the training starts over.
        """
        owner = _owners.get((os.getpid(), place))
        if owner is not None and not self._again and owner() is not self._training() and is_claimed:
            raise in_use(place, self._advice)

    def set(self, place: str) -> None:
        """Make the training the owner of the place."""
        _owners[os.getpid(), place] = self._training


def in_use(place: str, advice: str) -> PlaceError:
    """Return the error of a second training in a place."""
    return PlaceError(
        f"{place}: another training in this process used this place, and this one would resume from its saves instead of"
        f" training: {advice}"
    )
