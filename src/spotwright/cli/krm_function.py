"""The command ``krm-function``: places the items of a ResourceList, as a function of kustomize or kpt.

The tool starts a program without arguments, passes all objects as one ResourceList on standard input, and reads the resulting
list. So the configuration is in the functionConfig or in a file beside it, and documents that placement adds become items.
Source: "KRM Functions Specification" (kubernetes-sigs/kustomize, ``cmd/config/docs/api-conventions``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from spotwright import config as configuration
from spotwright.cli import SUCCEEDED, say, show_content
from spotwright.config import Config, require_pools
from spotwright.config.document import STANDARD_INPUT, read_input
from spotwright.errors import InputError
from spotwright.manifests.files import PlacedFile, place_texts
from spotwright.placing.context import Finding, Level
from spotwright.placing.documents import References, parse, show

__all__ = ["krm_function"]

_WHERE = "standard input"
_VERSIONS = ("config.kubernetes.io/v1", "config.kubernetes.io/v1beta1", "config.kubernetes.io/v1alpha1")
_OF_TOOLS = ("config.k8s.io", "config.kubernetes.io", "internal.config.kubernetes.io", "kustomize.config.k8s.io")
"""Prefixes of annotations that kustomize and kpt add and later remove."""
_SEVERITIES = {Level.NOTE: "info", Level.WARNING: "warning"}


@click.command("krm-function")
def krm_function() -> int:
    """Place the items of a ResourceList from standard input, as a KRM function of kustomize.

    The configuration is the spec of the functionConfig (pools, policy, target), else the file that spec.config names, else
    spotwright.yaml in the current folder or above it in its repository.
    """
    given = _read(read_input(STANDARD_INPUT))
    config = _config_of(given.get("functionConfig"))
    bare = [_without_marks(item) for item in given["items"]]
    texts = [(_name(item), _dumped(item)) for item, _ in bare]
    require_pools(config, (text for _, text in texts))
    references = References(
        [document for name, text in texts for document in parse(text, name)], frozenset(name for name, _ in texts)
    )
    placements = place_texts(texts, config, references)
    results = [*(given.get("results") or ()), *_results(given["items"], placements)]
    items = [
        item
        for placement, (_, marks) in zip(placements, bare, strict=True)
        for item in _with_marks(list(yaml.safe_load_all(placement.text)), marks)
    ]
    answer = {**given, "items": items, **({"results": results} if results else {})}
    for (name, _), placement in zip(texts, placements, strict=True):
        for finding in placement.findings:
            if finding.level is Level.WARNING:
                say(f"{name}: {finding.level}: {finding.text}", err=True)
    show_content(_dumped(answer))
    return SUCCEEDED


def _read(text: str) -> dict[str, Any]:
    """Parse a ResourceList. Raises :class:`InputError` for anything else."""
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{_WHERE}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(given, dict) or given.get("kind") != "ResourceList" or given.get("apiVersion") not in _VERSIONS:
        hint = "a KRM function is started by kustomize build --enable-alpha-plugins --enable-exec"
        raise InputError(
            f"{_WHERE}: expected a ResourceList of {_VERSIONS[0]}: {hint}; for manifests use spotwright place -"
        )
    items = given.get("items") or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InputError(f"{_WHERE}: items: expected a list of objects")
    return {**given, "items": items}


def _config_of(function: Any) -> Config:
    """The configuration that the functionConfig holds or names, else the current folder's."""
    spec = function.get("spec") if isinstance(function, dict) else None
    if spec is not None and not isinstance(spec, dict):
        raise InputError(f"functionConfig: spec: expected a configuration as in spotwright.yaml, found {spec!r}")
    spec = spec or {}
    if "config" not in spec:
        return (
            configuration.from_mapping(spec, "functionConfig.spec")
            if spec
            else configuration.find(Path.cwd() / "-", None)
        )
    if len(spec) > 1 or not isinstance(spec["config"], str):
        raise InputError("functionConfig: spec.config: expected only the path of a file")
    return configuration.find(Path.cwd() / "-", Path(spec["config"]))


def _name(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{item.get('kind', 'object')} {name or '?'}"


def _without_marks(item: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """An item without the tool's temporary annotations, and these annotations.

    The tool finds its files by them. They are not part of the object: unplace would leave the mapping that held them.
    """
    metadata = item.get("metadata")
    given = metadata.get("annotations") if isinstance(metadata, dict) else None
    marks = (
        {key: value for key, value in given.items() if key.split("/")[0] in _OF_TOOLS}
        if isinstance(given, dict)
        else {}
    )
    if not marks or not isinstance(metadata, dict) or not isinstance(given, dict):
        return dict(item), {}
    kept = {key: value for key, value in given.items() if key not in marks}
    rest = {key: value for key, value in metadata.items() if key != "annotations"}
    return {**item, "metadata": {**rest, **({"annotations": kept} if kept else {})}}, marks


def _with_marks(documents: list[Any], marks: Mapping[str, Any]) -> list[Any]:
    """The documents of a placed item, with the tool's annotations on the last of them, the item."""
    *added, item = documents
    if not marks:
        return documents
    metadata = item.get("metadata") or {}
    annotations = {**marks, **(metadata.get("annotations") or {})}
    return [*added, {**item, "metadata": {**metadata, "annotations": annotations}}]


def _dumped(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=10**6)


def _results(items: Sequence[Mapping[str, Any]], placements: Sequence[PlacedFile]) -> Iterator[dict[str, Any]]:
    """The findings in the form of the KRM specification, each with its object."""
    for item, placement in zip(items, placements, strict=True):
        for finding in placement.findings:
            yield _result(item, finding)


def _result(item: Mapping[str, Any], finding: Finding) -> dict[str, Any]:
    metadata = item.get("metadata") or {}
    names = {key: metadata[key] for key in ("name", "namespace") if metadata.get(key)}
    reference = {"apiVersion": item.get("apiVersion"), "kind": item.get("kind"), **names}
    field = {"field": {"path": show(finding.path)}} if finding.path else {}
    return {"message": finding.text, "severity": _SEVERITIES[finding.level], "resourceRef": reference, **field}
