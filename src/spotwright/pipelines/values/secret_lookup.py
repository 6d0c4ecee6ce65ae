"""Look up the secrets and config maps that a pipeline names, on this machine.

They are configured in ``spotwright.yaml``; a variable that a pipeline takes from one of their keys may be set in the environment
instead. Values are looked up once when a run starts, so that they can be kept out of everything that is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spotwright.errors import PipelineError
from spotwright.graph import KeyRefs

__all__ = ["ClusterObjects", "look_up_objects"]

_FOLDER = "@folder:"
Name = tuple[str, str]
"""The kind and the name of an object."""


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """Secrets and config maps as this machine has them.

    ``values`` are the values by object and key, ``errors`` the reasons why a key has none. ``variables`` are variables of the
    environment that replace a key.
    """

    values: Mapping[Name, Mapping[str, str]] = field(default_factory=dict)
    errors: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def secrets(self) -> dict[str, str]:
        """Every value that must be hidden, by the reference that replaces it."""
        values = {
            f"@secret:{name}/{key}": value
            for (kind, name), keys in self.values.items()
            if kind == "secret"
            for key, value in keys.items()
        }
        return values | {f"@env:{name}": value for name, value in self.variables.items()}

    def environment(self, refs: KeyRefs) -> dict[str, str]:
        """The variables of one object. Raises :class:`PipelineError` for a value that is missing and not optional."""
        environment = {}
        for variable, key in refs.env.items():
            value = self.values.get((refs.kind, refs.name), {}).get(key, self.variables.get(variable))
            if value is not None:
                environment[variable] = value
            elif not refs.optional:
                raise self._missing(refs, key, f", or set the variable {variable}")
        return environment

    def files(self, refs: KeyRefs) -> Mapping[str, str]:
        """The files of one object. Raises :class:`PipelineError` where it is missing and not optional."""
        values = self.values.get((refs.kind, refs.name))
        if values is None and not refs.optional:
            raise self._missing(refs, "", "")
        for kind, name, key in self.errors:
            if (kind, name) == (refs.kind, refs.name) and not refs.optional:
                raise self._missing(refs, key, "")
        return values or {}

    def _missing(self, refs: KeyRefs, key: str, more: str) -> PipelineError:
        section = refs.kind.replace(" ", "_") + "s"
        what = f"the key {key!r} of the {refs.kind} {refs.name!r}" if key else f"the {refs.kind} {refs.name!r}"
        why = self.errors.get((refs.kind, refs.name, key))
        if why is not None:
            return PipelineError(f"it needs {what}, which cannot be read: {why}")
        setting = f'{section}: {{{refs.name}: {{{key or "KEY"}: "@env:VARIABLE"}}}}'
        return PipelineError(f"it needs {what}, which is not known here: write {setting} into spotwright.yaml{more}")


def look_up_objects(
    configured: Mapping[str, Mapping[str, Mapping[str, str] | str]],
    used: Iterable[KeyRefs],
    folder: Path,
    environ: Mapping[str, str],
    read: Callable[[Path], str],
) -> ClusterObjects:
    """Look up those objects of a configuration, by kind and name, that ``used`` may name.

    Paths are relative to ``folder``. A value that cannot be read is an error only for a task that needs it.
    """
    used = list(used)
    names = {(refs.kind, refs.name) for refs in used}
    kinds = {refs.kind for refs in used if not refs.name}  # names that only the run has
    values: dict[Name, Mapping[str, str]] = {}
    errors: dict[tuple[str, str, str], str] = {}
    for kind, objects in configured.items():
        for name, setting in objects.items():
            if (kind, name) in names or kind in kinds:
                values[kind, name] = of_object = {}
                for key, text in _keys(setting, folder).items():
                    try:
                        of_object[key] = _value(text, folder, environ, read)
                    except (OSError, ValueError) as error:
                        errors[kind, name, key] = str(error)
    variables = {name: environ[name] for refs in used for name in refs.env if name in environ}
    return ClusterObjects(values, errors, variables)


def _keys(setting: Mapping[str, str] | str, folder: Path) -> Mapping[str, str]:
    """The keys of an object with the texts that configure them; of a folder its files, hidden ones left out as in Kubernetes."""
    if not isinstance(setting, str):
        return setting
    place = folder / setting.removeprefix(_FOLDER)
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
