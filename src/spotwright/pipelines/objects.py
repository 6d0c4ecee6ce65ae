"""The secrets and config maps of a run, as far as they are known on this machine.

They come from ``spotwright.yaml``; a variable that a pipeline takes from a key of one may simply be set in the environment
instead. Values are looked up once when a run starts, so that they can be kept out of everything that is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spotwright.errors import PipelineError
from spotwright.pipelines.surroundings import Keyed

__all__ = ["Objects", "look_up"]

_FOLDER = "@folder:"
Name = tuple[str, str]
"""The kind and the name of an object."""


@dataclass(frozen=True, slots=True)
class Objects:
    """Values by object and key, and of variables that are set in the environment. ``unknown`` says why a key has no value."""

    known: Mapping[Name, Mapping[str, str]] = field(default_factory=dict)
    unknown: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def secrets(self) -> dict[str, str]:
        """Every value that must not be seen, by the reference that stands in its place."""
        found = {
            f"@secret:{name}/{key}": value
            for (kind, name), keys in self.known.items()
            if kind == "secret"
            for key, value in keys.items()
        }
        return found | {f"@env:{name}": value for name, value in self.variables.items()}

    def environment(self, keyed: Keyed) -> dict[str, str]:
        """The variables of one object. Raises :class:`PipelineError` for a value that is missing and not optional."""
        found = {}
        for variable, key in keyed.env.items():
            value = self.known.get((keyed.kind, keyed.name), {}).get(key, self.variables.get(variable))
            if value is not None:
                found[variable] = value
            elif not keyed.optional:
                raise self._missing(keyed, key, f", or set the variable {variable}")
        return found

    def files(self, keyed: Keyed) -> Mapping[str, str]:
        """The files of one object. Raises :class:`PipelineError` where it is missing and not optional."""
        found = self.known.get((keyed.kind, keyed.name))
        if found is None and not keyed.optional:
            raise self._missing(keyed, "", "")
        for kind, name, key in self.unknown:
            if (kind, name) == (keyed.kind, keyed.name) and not keyed.optional:
                raise self._missing(keyed, key, "")
        return found or {}

    def _missing(self, keyed: Keyed, key: str, more: str) -> PipelineError:
        section = keyed.kind.replace(" ", "_") + "s"
        what = f"the key {key!r} of the {keyed.kind} {keyed.name!r}" if key else f"the {keyed.kind} {keyed.name!r}"
        why = self.unknown.get((keyed.kind, keyed.name, key))
        if why is not None:
            return PipelineError(f"it needs {what}, which cannot be read: {why}")
        shown = f'{section}: {{{keyed.name}: {{{key or "KEY"}: "@env:VARIABLE"}}}}'
        return PipelineError(f"it needs {what}, which is not known here: write {shown} into spotwright.yaml{more}")


def look_up(
    configured: Mapping[str, Mapping[str, Mapping[str, str] | str]],
    used: Iterable[Keyed],
    folder: Path,
    environ: Mapping[str, str],
    read: Callable[[Path], str],
) -> Objects:
    """Look up the objects of a configuration, by kind and name, as far as ``used`` may name them.

    Paths are relative to ``folder``. What cannot be read is an error only for the task that needs it.
    """
    used = list(used)
    names = {(keyed.kind, keyed.name) for keyed in used}
    kinds = {keyed.kind for keyed in used if not keyed.name}  # whose names are not known yet
    known: dict[Name, Mapping[str, str]] = {}
    unknown: dict[tuple[str, str, str], str] = {}
    for kind, objects in configured.items():
        for name, said in objects.items():
            if (kind, name) in names or kind in kinds:
                known[kind, name] = found = {}
                for key, text in _keys(said, folder).items():
                    try:
                        found[key] = _value(text, folder, environ, read)
                    except (OSError, ValueError) as error:
                        unknown[kind, name, key] = str(error)
    variables = {name: environ[name] for keyed in used for name in keyed.env if name in environ}
    return Objects(known, unknown, variables)


def _keys(said: Mapping[str, str] | str, folder: Path) -> Mapping[str, str]:
    """The keys of an object with what says their values; the files of a folder as Kubernetes takes them: no hidden ones."""
    if not isinstance(said, str):
        return said
    place = folder / said.removeprefix(_FOLDER)
    if not place.is_dir():
        return {"": f"@file:{place}/"}
    return {path.name: f"@file:{path}" for path in sorted(place.iterdir()) if path.is_file() and path.name[0] != "."}


def _value(text: str, folder: Path, environ: Mapping[str, str], read: Callable[[Path], str]) -> str:
    kind, _, name = text.partition(":")
    if kind == "@env":
        if name not in environ:
            raise ValueError(f"the environment has no variable {name}")
        return environ[name]
    if kind == "@file":
        try:
            return read(folder / name)
        except OSError as error:
            raise ValueError(f"{folder / name}: {error.strerror}") from error
    return text[1:] if text.startswith("@@") else text
