"""What an attempt left behind: the values and artifacts of a Python component, and what of them is missing.

Reading never fails: an attempt may have been killed at any byte, or have written anything. What cannot be read is missing,
with a note that says why.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotwright.pipelines.spec import ArtifactSpec, Container, TaskSpec
from spotwright.pipelines.values import fit, parse_text, read_json, whole_numbers

__all__ = ["ARTIFACTS", "EXECUTOR_OUTPUT", "PARAMETERS", "Outputs", "read_outputs"]

EXECUTOR_OUTPUT = "executor_output.json"
PARAMETERS = "parameters"
ARTIFACTS = "artifacts"


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of an attempt: values by name, artifacts as plain dicts by name, the names that are missing.

    ``notes`` says of some missing ones why they do not count.
    """

    parameters: Mapping[str, Any]
    artifacts: Mapping[str, Mapping[str, Any]]
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_outputs(task: TaskSpec, out_dir: str, roots: tuple[str, ...] = ()) -> Outputs:
    """Read the outputs of a task's attempt below ``out_dir``.

    ``executor_output.json`` comes first, then the file of an ``OutputPath`` parameter, as in ``collectOutputParameters`` of
    the launcher. Missing is every declared parameter without a value. Without a whole ``executor_output.json`` everything
    declared is missing, and where nothing is declared the file itself, as ``executor_output``: the SDK writes it whenever
    the function returned, so without it the code ended in another way (``sys.exit(0)``). A container writes it only if it
    wants to.

    A declared artifact without a file is *not* missing: ``uploadOutputArtifacts`` of the launcher accepts it too ("We allow
    components to not produce output files"). A file at an artifact's ``custom_path`` is copied to the artifact's own
    place, as the launcher uploads it from there. An address that the code set itself counts when it is remote, or below
    ``out_dir`` or one of the absolute ``roots`` (the run's folder); any other leaves the artifact missing.
    """
    written = Path(out_dir, EXECUTOR_OUTPUT)
    said, note = _read_executor_output(written)
    if said is None and isinstance(task.executor, Container) and not written.exists():
        said = {}
    if said is None:
        declared = (*task.outputs.parameters, *task.outputs.artifacts) or ("executor_output",)
        return Outputs({}, {}, declared, (note,))
    notes: list[str] = []
    parameters = _read_parameters(task, said.get("parameterValues"), out_dir, notes)
    artifacts = _read_artifacts(task, said.get("artifacts"), (out_dir, *roots), notes)
    missing = [name for name in task.outputs.parameters if name not in parameters]
    missing += [name for name in task.outputs.artifacts if name not in artifacts]
    return Outputs(parameters, artifacts, tuple(missing), tuple(notes))


def _read_executor_output(path: Path) -> tuple[Mapping[str, Any] | None, str]:
    try:
        said = read_json(_read(path))
    except FileNotFoundError:
        return None, f"{EXECUTOR_OUTPUT} was not written: the function did not return"
    except (OSError, ValueError, RecursionError) as error:
        return None, f"{EXECUTOR_OUTPUT} cannot be read: {error}"
    if not isinstance(said, dict):
        return None, f"{EXECUTOR_OUTPUT} is no JSON object"
    return said, ""


def _read(path: Path) -> bytes:
    """A file's content; a pipe of that name, which would never end, is refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (it is a descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        return file.read()


def _read_parameters(task: TaskSpec, said: Any, out_dir: str, notes: list[str]) -> dict[str, Any]:
    given = said if isinstance(said, Mapping) else {}
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
        return fit(value, kind)
    except ValueError:
        return whole_numbers(value)  # the backend keeps a value of another type; the task that reads it is told


def _read_output_file(path: Path, name: str, kind: str, notes: list[str]) -> Any:
    try:
        return parse_text(_read(path).decode("utf-8"), kind)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{name}: its file cannot be read: {error}")
        return None


def _read_artifacts(
    task: TaskSpec, said: Any, roots: tuple[str, ...], notes: list[str]
) -> dict[str, Mapping[str, Any]]:
    given = said if isinstance(said, Mapping) else {}
    artifacts: dict[str, Mapping[str, Any]] = {}
    for name, spec in task.outputs.artifacts.items():
        found = _first(given.get(name))
        place = f"{roots[0]}/{ARTIFACTS}/{name}"
        custom = found.get("custom_path")
        if isinstance(custom, str) and custom and not _bring(custom, place):
            what = "cannot be copied" if Path(custom).is_absolute() else "cannot be found: write an absolute path"
            notes.append(f"{name}: what lies at its custom path {custom} {what}")
            continue
        uri = found.get("uri") if isinstance(found.get("uri"), str) and found.get("uri") else place
        if not any(_is_within(str(uri), root) for root in roots):
            notes.append(
                f"{name}: its address {uri} leaves the run's folder; use a remote address, or write below its path"
            )
            continue
        artifacts[name] = _artifact(name, spec, str(uri).removeprefix("file://"), found.get("metadata"))
    return artifacts


def _first(entry: Any) -> Mapping[str, Any]:
    entries = entry.get("artifacts") if isinstance(entry, Mapping) else None
    first = entries[0] if isinstance(entries, list) and entries else None
    return first if isinstance(first, Mapping) else {}


def _artifact(name: str, spec: ArtifactSpec, uri: str, metadata: Any) -> dict[str, Any]:
    """Metadata of the code joins the declared (``mergeRuntimeArtifacts``); name and type stay those of the declaration."""
    said = metadata if isinstance(metadata, Mapping) else {}
    return {
        "name": name,
        "type": {"schemaTitle": spec.schema, "schemaVersion": spec.version},
        "uri": uri,
        "metadata": {**spec.metadata, **whole_numbers(said)},
    }


def _is_within(uri: str, root: str) -> bool:
    """Whether an address is remote or below a folder, links on the way followed; the artifact itself may be one.

    No address may climb: remote ones become paths too.
    """
    scheme, sign, rest = uri.partition("://")
    if sign and ".." in rest.split("/"):
        return False
    if sign and scheme != "file":
        return True
    above, name = os.path.split(os.path.normpath(rest if sign else uri))
    path, folder = os.path.join(os.path.realpath(above), name), os.path.realpath(root)  # noqa: PTH118 (may be no path at all)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _bring(custom: str, place: str) -> bool:
    """Copy what lies at a custom path to the artifact's place; nothing there is no fault. ``False`` when copying failed.

    A path that is not absolute begins where the code was at that moment, which nobody knows any more.
    """
    source, target = Path(custom), Path(place)
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
