"""The group ``cluster``, and the options with which any command reads a cluster instead of the state folder."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from spotwright import yaml_composer
from spotwright.cli import cluster_extra, say
from spotwright.cli.options import state_option
from spotwright.errors import InputError

if TYPE_CHECKING:
    from spotwright.cluster.kubernetes_login import Kubernetes
    from spotwright.cluster.recorded_runs import RecordedRuns
    from spotwright.records.reader import RunReader


__all__ = ["Place", "cluster_options", "cluster_place", "explain_objects", "open_cluster", "open_run", "place_options"]


_Command = Callable[..., Any]


@dataclass(frozen=True)
class Place:
    """Where runs are read: the state folder, or with ``cluster`` a cluster. ``namespace``: empty for all."""

    state: Path
    cluster: bool = False
    context: str | None = None
    namespace: str = ""
    kubeconfig: str | None = None
    controller: str = ""


def cluster_options(command: _Command) -> _Command:
    """Add ``--cluster`` and the options that select the cluster; the command receives their values one by one."""
    for option in (
        click.option(
            "--controller", default="", envvar="SPOTWRIGHT_CONTROLLER", metavar="URL|NAMESPACE", show_envvar=True,
            help="The controller, asked for logs and archived runs: its namespace, or its https URL.  [default: spotwright]",
        ),
        click.option("--kubeconfig", metavar="FILE", help="The kubeconfig.  [default: $KUBECONFIG, or ~/.kube/config]"),
        click.option(
            "-n", "--namespace", default="", metavar="NAME",
            help="Only runs in this namespace.  [default: all that you may read]",
        ),
        click.option("--context", metavar="NAME", help="The context of the kubeconfig.  [default: the current one]"),
        click.option("--cluster", is_flag=True, help="Read the runs that are recorded in a cluster."),
    ):  # fmt: skip
        command = option(command)
    return command


def place_options(command: _Command) -> _Command:
    """Add ``--state`` and ``--cluster`` with its options; the command receives a :class:`Place` as its first argument."""

    @functools.wraps(command)
    def with_place(
        *,
        state: Path,
        cluster: bool,
        context: str | None,
        namespace: str,
        kubeconfig: str | None,
        controller: str,
        **own: Any,
    ) -> Any:
        place = Place(state, cluster, context, namespace, kubeconfig, controller)
        _check(place)
        return command(place, **own)

    return state_option(cluster_options(with_place))


def cluster_place(
    *, cluster: bool, context: str | None, namespace: str, kubeconfig: str | None, controller: str
) -> Place:
    """The values of :func:`cluster_options` as a place, for a command that reads no state folder."""
    place = Place(Path(), cluster, context, namespace, kubeconfig, controller)
    _check(place)
    return place


def explain_objects(place: Place, names: Sequence[str], *, as_json: bool) -> str:
    """Explain the placement of these objects' pods: text, or ``{"objects": [...]}`` as JSON."""
    with open_cluster(place) as (kubernetes, runs):
        from spotwright.cluster.explaining import explain_object
        from spotwright.views.explanation import object_text

        explained = [
            explain_object(kubernetes, runs, name, namespace or place.namespace)
            for text in names
            for name, namespace in (_named_in(Path(text)) if _is_file(text) else [(text, "")])
        ]
    return json.dumps({"objects": explained}) if as_json else "\n\n".join(map(object_text, explained))


def _is_file(text: str) -> bool:
    return text.endswith((".yaml", ".yml", ".json"))


def _named_in(path: Path) -> list[tuple[str, str]]:
    """The objects of a file as ``kind/name``, each with its namespace; other kinds are skipped.

    Raises :class:`InputError` for a file that names none.
    """
    from spotwright.cluster.explaining import EXPLAINED
    from spotwright.config.document import read_input

    found: list[tuple[str, str]] = []
    try:
        documents = list(yaml_composer.compose(read_input(path), lenient=True))
    except (yaml_composer.ComposeError, yaml.YAMLError, UnicodeEncodeError) as error:
        raise InputError(f"{path}: it is not valid YAML ({str(error).splitlines()[0]})") from None
    objects = [(document.line, each) for document in documents for each in _objects_of(document)]
    for line, data in objects:
        kind, meta = data.get("kind"), data.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        if str(kind) not in EXPLAINED:
            continue
        if not meta.get("name"):
            raise InputError(
                f"{path}:{line}: its {kind} gets its name when it is created: name the run that "
                "spotwright runs --cluster lists, or an object as kind/name"
            )
        found.append((f"{str(kind).lower()}/{meta['name']}", str(meta.get("namespace") or "")))
    if not found:
        kinds = ", ".join(EXPLAINED)
        raise InputError(f"{path}: no object of the kinds {kinds}: name a run, or an object as kind/name")
    return found


def _objects_of(document: yaml_composer.Composed) -> list[Any]:
    """The object of a document, or the objects of a list as kubectl writes it."""
    data: Any = document.root.data if isinstance(document.root, yaml_composer.MappingNode) else {}
    items = data.get("items") if data.get("kind") == "List" else None
    return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else [data]


def _check(place: Place) -> None:
    """Refuse options that the other place would ignore."""
    given = click.get_current_context().get_parameter_source
    typed = click.core.ParameterSource.COMMANDLINE
    if place.cluster:
        if given("state") is typed:
            raise click.UsageError("--state is a folder of this machine, --cluster reads a cluster: choose one")
        return
    for name in ("context", "namespace", "kubeconfig", "controller"):
        if given(name) is typed:
            raise click.UsageError(f"--{name} names a cluster: add --cluster")


@contextmanager
def open_cluster(place: Place) -> Iterator[tuple[Kubernetes, RecordedRuns]]:
    """The cluster of a place, and its runs. Raises :class:`InputError` with what to do."""
    with cluster_extra("--cluster"):
        from spotwright.cluster.kubernetes_login import Kubernetes
        from spotwright.cluster.recorded_runs import open_runs
    kubernetes = Kubernetes(place.context, place.kubeconfig)
    try:
        with open_runs(kubernetes, place.controller) as runs:
            yield kubernetes, runs
    finally:
        kubernetes.close()


@contextmanager
def open_run(place: Place, name: str) -> Iterator[RunReader]:
    """A run by name, unique beginning, or ``last``; on a cluster also as ``kind/name`` or by its id in KFP.

    Raises :class:`UnknownRun`.
    """
    if place.cluster:
        with open_cluster(place) as (_, runs):
            from spotwright.cluster.recorded_runs import archive_note

            reader = runs.open(name, place.namespace)
            if note := archive_note(reader):
                say(f"spotwright: run {reader.folder.name}: {note}", err=True)
            yield reader
        return
    from spotwright.records.reader import RunReader
    from spotwright.records.state_folder import StateFolder
    from spotwright.runs.bodies import is_alive

    yield RunReader(StateFolder.existing(place.state).find(name), is_alive)
