"""Objects in Python placed and taken apart: dicts, the models of the ``kubernetes`` client, and what looks like them.

An object is never changed: a placed one comes back. Models are turned into the data they stand for and back again by their own
client, which has to be installed only where such objects are used.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import yaml

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.errors import InputError
from spotwright.manifests.context import Level, Options
from spotwright.manifests.documents import parse
from spotwright.manifests.files import Placement, place_text, unplace_text
from spotwright.manifests.references import References

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
    records: MutableMapping[str, str] | None = None,
) -> T:
    """The same object with what the policy asks for in it.

    ``policy`` is the path of a ``spotwright.yaml``, a mapping in its shape, or a loaded configuration; by default the file of
    the current folder. ``beside`` are objects that this one refers to (a training runtime). What a person should know is
    raised as a warning of Python. ``records`` gets what the way back needs where that is more than an annotation holds (32 KiB):
    keep it with the object, and give it to :func:`unplace`. Raises :class:`InputError` where the object cannot be placed.
    """
    references = References([document for other in beside for document in parse(_text(_data(other)), _BESIDE)])
    options = Options(replace_retries=replace_retries, may_add=False)
    return _like(obj, place_text(_text(_data(obj)), _NAME, _config(policy), references, options, records))


def unplace(obj: T, *, records: MutableMapping[str, str] | None = None) -> T:
    """The same object without what :func:`place` or ``spotwright place`` put into it.

    ``records`` are those that :func:`place` was given, or the ``records`` of a file that ``spotwright place --record`` wrote.
    """
    return _like(obj, unplace_text(_text(_data(obj)), _NAME, records))


def _config(policy: Config | Mapping[str, Any] | str | Path | None) -> Config:
    if isinstance(policy, Config):
        return policy
    if isinstance(policy, Mapping):
        return configuration.parse(json.dumps({"version": 1, **policy}), "policy")
    return configuration.find(Path.cwd(), policy)


def _data(obj: Any) -> Mapping[str, Any]:
    """The data an object stands for, in the field names of its API."""
    if isinstance(obj, Mapping):
        return obj
    if hasattr(obj, "openapi_types") and hasattr(obj, "attribute_map"):  # kubernetes, kubeflow.training, kubeflow.katib
        data: Mapping[str, Any] = _client(obj).sanitize_for_serialization(obj)
        return data
    if hasattr(obj, "to_dict"):  # hera, lightkube, kubeflow_trainer_api
        found = obj.to_dict()
        if isinstance(found, Mapping):
            return found
    raise InputError(f"{type(obj).__name__}: expected a dict, or a model of the kubernetes client or a Kubeflow SDK")


def _client(obj: Any) -> Any:
    """The ``ApiClient`` of the package that the model is from."""
    package = type(obj).__module__.split(".models")[0]
    maker = getattr(import_module(package), "ApiClient", None) or import_module(f"{package}.api_client").ApiClient
    return maker()


def _text(data: Mapping[str, Any]) -> str:
    return yaml.safe_dump(json.loads(json.dumps(data, default=str)), sort_keys=False, allow_unicode=True, width=10**6)


def _like(obj: T, placement: Placement) -> T:
    """The placed data as an object of the same type."""
    for finding in placement.findings:
        if finding.level is Level.WARNING:
            warnings.warn(finding.text, stacklevel=3)
    first, *others = parse(placement.text, _NAME)
    if others:
        raise InputError(
            "a compiled pipeline is placed in two documents, and an object is one: use spotwright compile, or place its file"
        )
    data = first.get(())
    made: Any
    if isinstance(obj, dict):
        made = data
    elif hasattr(obj, "openapi_types"):
        made = _client(obj).deserialize(_Response(json.dumps(data)), type(obj).__name__)
    else:
        made = type(obj).from_dict(data)  # type: ignore[attr-defined]
    return made  # type: ignore[no-any-return]


class _Response:
    """What the client's ``deserialize`` reads: a body as text."""

    def __init__(self, data: str) -> None:
        self.data = data
