"""Read the outputs of an attempt: the values and artifacts that its component wrote, and the names of missing ones.

Reading never fails: an attempt may have been killed at any byte, or have written anything. An output that cannot be read is
missing, with a note of the reason.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.graph import ArtifactSpec, Container, PodTemplate, TaskSpec
from spotwright.pipelines.values.parameter_values import coerce, parse_json, parse_text, whole_numbers

__all__ = ["ARTIFACTS", "EXECUTOR_OUTPUT", "PARAMETERS", "AttemptOutputs", "read_outputs"]

EXECUTOR_OUTPUT = "executor_output.json"
PARAMETERS = "parameters"
ARTIFACTS = "artifacts"


class AttemptOutputs(NamedTuple):
    """The outputs of an attempt: values by name, artifacts as plain dicts by name, and the names of missing outputs.

    ``notes`` are the reasons why some outputs are missing. ``accepted_by_kfp``: the KFP backend takes them for complete. It
    does so where a component without output parameters exits with 0 and leaves no ``executor_output.json``; the next task then
    reads half-written artifacts (seen on KFP 2.17.0; with an output parameter the task fails there).
    """

    parameters: Mapping[str, Any]
    artifacts: Mapping[str, Mapping[str, Any]]
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    accepted_by_kfp: bool = False


def read_outputs(task: TaskSpec, out_dir: str, roots: tuple[str, ...] = ()) -> AttemptOutputs:
    """Read the outputs of a task's attempt below ``out_dir``.

    ``executor_output.json`` comes first, then the file of an ``OutputPath`` parameter, as in ``collectOutputParameters`` of
    the launcher. Every declared parameter without a value is missing. Without a complete ``executor_output.json`` all
    declared outputs are missing, and where none is declared the file itself is, as ``executor_output``: the SDK writes it
    whenever the function returned, so without it the code ended in another way (``sys.exit(0)``). A container need not write it.

    A declared artifact without a file is *not* missing: ``uploadOutputArtifacts`` of the launcher accepts it too ("We allow
    components to not produce output files"). A file at an artifact's ``custom_path`` is copied to the artifact's own
    path, as the launcher uploads it from there. An address that the code set itself must be remote, or below ``out_dir`` or
    one of the absolute ``roots`` (the run's folder); with any other the artifact is missing.
    """
    written = Path(out_dir, EXECUTOR_OUTPUT)
    output, note = _read_executor_output(written)
    if output is None and isinstance(task.executor, Container | PodTemplate) and not written.exists():
        output = {}
    if output is None:
        declared = (*task.outputs.parameters, *task.outputs.artifacts) or ("executor_output",)
        accepted = not task.outputs.parameters and not os.path.lexists(written)
        return AttemptOutputs({}, {}, declared, (note,), accepted_by_kfp=accepted)
    notes: list[str] = []
    parameters = _read_parameters(task, output.get("parameterValues"), out_dir, notes)
    artifacts = _read_artifacts(task, output.get("artifacts"), (out_dir, *roots), notes)
    missing = [name for name in task.outputs.parameters if name not in parameters]
    missing += [name for name in task.outputs.artifacts if name not in artifacts]
    return AttemptOutputs(parameters, artifacts, tuple(missing), tuple(notes))


def _read_executor_output(path: Path) -> tuple[Mapping[str, Any] | None, str]:
    try:
        output = parse_json(_read(path))
    except FileNotFoundError:
        return None, f"{EXECUTOR_OUTPUT} was not written: the function did not return"
    except (OSError, ValueError, RecursionError) as error:
        return None, f"{EXECUTOR_OUTPUT} cannot be read: {error}"
    if not isinstance(output, dict):
        return None, f"{EXECUTOR_OUTPUT} is not a JSON object"
    return output, ""


def _read(path: Path) -> bytes:
    """The content of a file. Raises ``OSError`` for a pipe of that name, which would never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (it is a descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        return file.read()


def _read_parameters(task: TaskSpec, returned: Any, out_dir: str, notes: list[str]) -> dict[str, Any]:
    given = returned if isinstance(returned, Mapping) else {}
    values: dict[str, Any] = {}
    for name, spec in task.outputs.parameters.items():
        value = given.get(name)
        if value is None:
            value = _read_output_file(Path(out_dir, PARAMETERS, name), name, spec.type, notes)
        if value is not None:
            values[name] = _as_declared(value, spec.type)
    return values


def _as_declared(value: Any, kind: str) -> Any:
    try:
        return coerce(value, kind)
    except ValueError:
        return whole_numbers(value)  # the backend keeps a value of another type; a task that reads it fails


def _read_output_file(path: Path, name: str, kind: str, notes: list[str]) -> Any:
    try:
        return parse_text(_read(path).decode("utf-8"), kind)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{name}: its file cannot be read: {error}")
        return None


def _read_artifacts(
    task: TaskSpec, returned: Any, roots: tuple[str, ...], notes: list[str]
) -> dict[str, Mapping[str, Any]]:
    given = returned if isinstance(returned, Mapping) else {}
    artifacts: dict[str, Mapping[str, Any]] = {}
    for name, spec in task.outputs.artifacts.items():
        artifact = _first(given.get(name))
        own_path = f"{roots[0]}/{ARTIFACTS}/{name}"
        custom = artifact.get("custom_path")
        if isinstance(custom, str) and custom and not _copy_custom_path(custom, own_path):
            why = "cannot be copied" if Path(custom).is_absolute() else "is relative; write an absolute path"
            notes.append(f"{name}: its custom path {custom} {why}")
            continue
        uri = artifact.get("uri") if isinstance(artifact.get("uri"), str) and artifact.get("uri") else own_path
        if not any(_is_within(str(uri), root) for root in roots):
            notes.append(
                f"{name}: its address {uri} leaves the run's folder; use a remote address, or write below its path"
            )
            continue
        artifacts[name] = _artifact(name, spec, str(uri).removeprefix("file://"), artifact.get("metadata"))
    return artifacts


def _first(entry: Any) -> Mapping[str, Any]:
    entries = entry.get("artifacts") if isinstance(entry, Mapping) else None
    first = entries[0] if isinstance(entries, list) and entries else None
    return first if isinstance(first, Mapping) else {}


def _artifact(name: str, spec: ArtifactSpec, uri: str, metadata: Any) -> dict[str, Any]:
    """The record of an artifact: metadata of the code is merged into the declared (``mergeRuntimeArtifacts``)."""
    own = metadata if isinstance(metadata, Mapping) else {}
    return {
        "name": name,
        "type": {"schemaTitle": spec.schema, "schemaVersion": spec.version},
        "uri": uri,
        "metadata": {**spec.metadata, **whole_numbers(own)},
    }


def _is_within(uri: str, root: str) -> bool:
    """Whether an address is remote or below a folder. Links above the artifact are followed; the artifact may be a link.

    No address may hold ``..``: remote ones become paths too.
    """
    scheme, sign, rest = uri.partition("://")
    if sign and ".." in rest.split("/"):
        return False
    if sign and scheme != "file":
        return True
    parent, name = os.path.split(os.path.normpath(rest if sign else uri))
    path, folder = os.path.join(os.path.realpath(parent), name), os.path.realpath(root)  # noqa: PTH118 (may be no path at all)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _copy_custom_path(custom: str, own_path: str) -> bool:
    """Copy the file or folder at a custom path to the artifact's own path; ``True`` also where there is none.

    ``False`` where copying failed, and for a relative path: it began at the working directory of the code, which is not recorded.
    """
    import shutil

    source, target = Path(custom), Path(own_path)
    if not source.is_absolute():
        return False
    if not source.exists() or source.resolve() == target.resolve() or target.exists():
        return True
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)
    except (OSError, shutil.Error):
        return False
    return True
