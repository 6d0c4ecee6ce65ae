"""Place and unplace Python objects: dicts, models of the ``kubernetes`` client, and models of SDKs with the same interface.

An object is never changed; a placed copy is returned. Models are converted to plain data and back by their own client, which
has to be installed only where such objects are used.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import yaml

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.errors import InputError
from spotwright.manifests.files.place_files import PlacedFile, place_text, unplace_text
from spotwright.manifests.files.references import References
from spotwright.manifests.files.required_pools import require_pools
from spotwright.manifests.files.unmatched_patterns import unmatched_patterns
from spotwright.manifests.kinds.unknown import read_pod_path
from spotwright.manifests.rules.context import Group, Level, PlaceOptions
from spotwright.manifests.yamltext.documents import parse

__all__ = ["place", "unplace"]

_NAME = "object"
_BESIDE = "beside"

T = TypeVar("T")


def place(
    obj: T,
    policy: Config | Mapping[str, Any] | str | Path | None = None,
    *,
    beside: Sequence[Any] = (),
    replace_retries: bool = False,
    pod_paths: Sequence[str] = (),
    only: str | Collection[str] = (),
    records: MutableMapping[str, str] | None = None,
) -> T:
    """A copy of the object with the additions of the policy.

    ``policy`` is the path of a ``spotwright.yaml``, a mapping in its shape, or a loaded configuration; by default the file in
    the current folder. ``beside`` are objects that this one refers to (a training runtime). ``pod_paths`` are further pod specs
    to place, as for ``--pod-path``: ``spec.workerGroupSpecs[*].template.spec``. ``only`` names the groups of changes that are
    written, as ``--only`` does: ``placement``, ``retries``, ``checkpoint``; all by default. Findings of level warning are Python
    warnings.
    ``records`` gets the record if it is larger than an annotation may be (32 KiB): keep it with the object, and pass it to
    :func:`unplace`. Raises :class:`InputError` if the object cannot be placed, and its subclass :class:`ConfigError` if there is
    no configuration, or one without pools: the built-in pools are for local runs.
    """
    references = References([document for other in beside for document in parse(_text(_data(other)), _BESIDE)])
    paths = tuple(map(read_pod_path, pod_paths))
    options = PlaceOptions(replace_retries, paths, may_add=False, only=_groups(only))
    text, config = _text(_data(obj)), _config(policy)
    require_pools(config, [text])
    placed = place_text(text, _NAME, config, references, options, records)
    placed.findings += unmatched_patterns(config, placed.roles)
    return _like(obj, placed)


def _groups(only: str | Collection[str]) -> frozenset[Group]:
    """The groups of changes with these names; all for none. Raises :class:`InputError` for another name, as the command does."""
    names = [only] if isinstance(only, str) else [*only]
    known = [group.value for group in Group]
    for name in names:
        if name not in known:
            raise InputError(f"Invalid value for only: {name!r} is not one of {', '.join(map(repr, known))}.")
    return frozenset(map(Group, names or Group))


def unplace(obj: T, *, records: MutableMapping[str, str] | None = None) -> T:
    """A copy of the object without the additions of :func:`place` or ``spotwright place``.

    ``records`` is the mapping that :func:`place` got, or the ``records`` of a file that ``spotwright place --record`` wrote.
    """
    return _like(obj, unplace_text(_text(_data(obj)), _NAME, records))


def _config(policy: Config | Mapping[str, Any] | str | Path | None) -> Config:
    if isinstance(policy, Config):
        return policy
    if isinstance(policy, Mapping):
        return configuration.from_mapping(policy, "policy")
    return configuration.find(Path.cwd(), policy)


def _data(obj: Any) -> Mapping[str, Any]:
    """An object as plain data, in the field names of its API."""
    if isinstance(obj, Mapping):
        return obj
    if hasattr(obj, "openapi_types") and hasattr(obj, "attribute_map"):  # kubernetes, kubeflow.training, kubeflow.katib
        data: Mapping[str, Any] = _client(obj).sanitize_for_serialization(obj)
        return data
    if hasattr(obj, "to_dict"):  # hera, lightkube, kubeflow_trainer_api
        converted = obj.to_dict()
        if isinstance(converted, Mapping):
            return converted
    raise InputError(f"{type(obj).__name__}: expected a dict, or a model of the kubernetes client or a Kubeflow SDK")


def _client(obj: Any) -> Any:
    """The ``ApiClient`` of the model's package."""
    package = type(obj).__module__.split(".models")[0]
    client_class = (
        getattr(import_module(package), "ApiClient", None) or import_module(f"{package}.api_client").ApiClient
    )
    return client_class()


def _text(data: Mapping[str, Any]) -> str:
    return yaml.safe_dump(json.loads(json.dumps(data, default=str)), sort_keys=False, allow_unicode=True, width=10**6)


def _like(obj: T, placement: PlacedFile) -> T:
    """The placed data as an object of the type of ``obj``; findings become warnings."""
    for finding in placement.findings:
        if finding.level is Level.WARNING:
            warnings.warn(finding.text, stacklevel=3)
    first, *others = parse(placement.text, _NAME)
    if others:
        raise InputError(
            "a placed pipeline has two documents, which one object cannot hold: use spotwright compile, or place its file"
        )
    data = first.get(())
    converted: Any
    if isinstance(obj, dict):
        converted = data
    elif hasattr(obj, "openapi_types"):
        converted = _client(obj).deserialize(_JsonBody(json.dumps(data)), type(obj).__name__)
    else:
        converted = type(obj).from_dict(data)  # type: ignore[attr-defined]
    return converted  # type: ignore[no-any-return]


class _JsonBody:
    """The response object that the client's ``deserialize`` reads: its body as text."""

    def __init__(self, data: str) -> None:
        self.data = data
