"""Finds a cluster's run by its name, its unique prefix, its object, or its id or name in Kubeflow Pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from spotwright.cluster.run_objects import rows_of
from spotwright.engine.events import Event, RunCreated
from spotwright.errors import SpotwrightError, UnknownRun
from spotwright.kube.object_fields import metadata
from spotwright.records.journal import decoded

__all__ = ["NamedRun", "find_run", "named_run"]


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run and the object that it records.

    ``kfp_run`` is its id in Kubeflow Pipelines, ``kfp_name`` its user's name there; or both are empty. ``namespace_uid`` is
    empty if the recorder did not know it.
    """

    run: str
    namespace: str
    namespace_uid: str
    kind: str
    name: str
    kfp_run: str
    kfp_name: str = ""

    def is_called(self, text: str) -> bool:
        """Whether this is the name of the run, of its object as ``kind/name``, or its id or name in Kubeflow Pipelines."""
        kind, slash, name = text.partition("/")
        if slash:
            return name == self.name and kind.lower() in {self.kind.lower(), f"{self.kind.lower()}s"}
        return bool(text) and text in {self.run, self.kfp_run, self.kfp_name}


def named_run(found: Mapping[str, Any]) -> NamedRun | None:
    """The names of a SpotRun's run; None if it is unreadable or has only begun."""
    name = str(metadata(found).get("name"))
    try:
        first = next((event for _, event in decoded((row.journal_row for row in rows_of(found)), name, str)), None)
    except SpotwrightError:
        return None  # by name it is "not found"; lists say why
    return _object_of(name, first)


def _object_of(run: str, first: Event | None) -> NamedRun | None:
    """The object of a run, from its first event; None for one that has only begun."""
    if not isinstance(first, RunCreated) or not first.meta.arguments.get("namespace"):
        return None
    known = ("namespace", "namespace_uid", "kind", "name", "kfp_run", "kfp_name")
    return NamedRun(run, **{key: str(first.meta.arguments.get(key, "")) for key in known})


Named = TypeVar("Named", bound=NamedRun)


def find_run(text: str, wanted: Sequence[Named], namespace: str = "") -> Named:
    """The newest run of this name, or the only one with this prefix; ``last`` for the newest of all.

    ``wanted`` are the runs that the caller may read, newest first, of the requested ``namespace``. Raises :class:`UnknownRun`.
    """
    if text == "last" and wanted:
        return wanted[0]
    called = [run for run in wanted if run.is_called(text)]
    spaces = list(dict.fromkeys(run.namespace for run in called))
    if len(spaces) > 1:
        raise UnknownRun(f"{text!r} is in several namespaces ({', '.join(spaces)}): name one with -n")
    if called:
        return called[0]
    matches = [run for run in wanted if text and run.run.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UnknownRun(f"{text!r} is the beginning of several runs: {', '.join(run.run for run in matches[:5])}")
    raise UnknownRun(_not_found(text, wanted, namespace))


def _not_found(text: str, wanted: Iterable[NamedRun], namespace: str) -> str:
    newest = ", ".join(run.run for run in list(wanted)[:3])
    where = f"namespace {namespace}" if namespace else "the namespaces that you may read"
    return f"no run {text!r} in {where}: {f'the newest are {newest}' if newest else 'none exists yet'}"
