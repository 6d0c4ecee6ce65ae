"""What an attempt finds around it on this machine: the variables and mounts that its pod would have."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.engine.claims import is_of_run
from spotwright.engine.state import RunState, TaskState
from spotwright.engine.values import context_of
from spotwright.errors import PipelineError, StateError
from spotwright.pipelines.objects import Objects
from spotwright.pipelines.spec import TaskSpec
from spotwright.pipelines.surroundings import Surroundings

__all__ = ["Around", "Volumes", "around", "make_folder"]

SCRATCH = "scratch"
"""The folder of an attempt that goes with it: its empty folders lie there."""

_ADDRESS = "127.0.0.1"
_OTHER = re.compile(r"[^a-z0-9-]+")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class Around(NamedTuple):
    """Variables, and mounts as :func:`spotwright.local.mounts.enter` takes them."""

    env: Mapping[str, str]
    mounts: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Volumes:
    """Where claims are: those made in the run under no name of their own below ``own``, all others where ``shared`` says."""

    own: Path
    shared: Callable[[str], Path]

    def folder(self, state: RunState, claim: str) -> Path:
        """The folder that stands for a claim."""
        shared = self.shared(claim)
        return self.own / shared.name if is_of_run(state, claim) else shared

    def delete(self, state: RunState, claim: str) -> None:
        """Delete what a claim holds. Raises :class:`StateError`."""
        folder = self.folder(state, claim)
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return  # nothing was ever mounted
        except OSError as error:
            raise StateError(f"{folder}: cannot be deleted ({error.strerror})") from error


def around(
    state: RunState, task: TaskState, spec: TaskSpec, directory: str, volumes: Volumes, objects: Objects
) -> Around:
    """What surrounds a task's newest attempt; makes the folders that are mounted.

    Raises :class:`PipelineError` for a secret or config map that is not known, :class:`StateError` for a folder.
    """
    said = spec.surroundings
    if not said:
        return Around({}, ())
    try:
        env = {variable: value for keyed in said.keyed for variable, value in objects.environment(keyed).items()}
        mounts = [
            *({"target": each.mount, "files": dict(objects.files(each))} for each in said.keyed if each.mount),
            *_claims(state, said, volumes),
            *_scratch(said, f"{directory}/{SCRATCH}"),
        ]
    except PipelineError as error:
        raise PipelineError(f"task {task.path}: {error}") from error
    return Around(env | _fields(state, task, spec, said), tuple(mounts))


def _claims(state: RunState, said: Surroundings, volumes: Volumes) -> Iterator[Mapping[str, Any]]:
    for claim in said.claims:
        folder = volumes.folder(state, claim.name) / claim.below
        make_folder(folder)
        yield {"target": claim.mount, "source": str(folder)}


def _scratch(said: Surroundings, folder: str) -> Iterator[Mapping[str, Any]]:
    for number, each in enumerate(said.scratch):
        if each.in_memory:
            yield {"target": each.mount, "size": each.size}
        else:
            source = Path(folder, str(number))
            make_folder(source)
            yield {"target": each.mount, "source": str(source)}


def make_folder(folder: Path) -> None:
    """Make a folder with what is above it. Raises :class:`StateError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(
            f"{folder}: cannot be made ({error.strerror}); free some space, then resume the run"
        ) from error


def _pod_name(run: str, task: str, number: int) -> str:
    """The name that an attempt's pod would have: its run, task and number, as Kubernetes takes names."""
    return _OTHER.sub("-", f"{run}-{task}-{number}".lower()).strip("-")[:253]


def _fields(state: RunState, task: TaskState, spec: TaskSpec, said: Surroundings) -> dict[str, str]:
    """The fields of the pod that are asked for; an attempt's identity and node are its own, the rest is this machine's."""
    if not said.fields:
        return {}
    run, number = str(state.meta.get("run", "")), task.last.number
    digest = hashlib.sha256(f"{run}\0{task.path}\0{number}".encode()).hexdigest()
    path = f"{run}.{task.path.replace('/', '.')}({number - 1})"
    known = {
        "metadata.name": _pod_name(run, task.path, number),
        "metadata.namespace": "default",
        "metadata.uid": "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32])),
        "spec.nodeName": task.last.node or "",
        "spec.serviceAccountName": "default",
        **{f"status.{name}": _ADDRESS for name in ("hostIP", "hostIPs", "podIP", "podIPs")},
    }
    keyed = {
        "labels": {"pipeline/runid": context_of(state, task).run_id, **spec.labels},
        "annotations": {"workflows.argoproj.io/node-name": path, **spec.annotations},
    }
    found = {}
    for variable, field in said.fields.items():
        match = _KEYED.fullmatch(field)
        found[variable] = known[field] if match is None else keyed[match[1]].get(match[2], "")
    return found
