"""Importers: tasks that bring an artifact into a run by its address, and run nowhere.

The backend looks the address up among the artifacts that it knows, or with ``reimport`` makes a new one
(``backend/src/v2/component/importer_launcher.go``). Both give the same artifact to the tasks that follow.
``download_to_workspace`` brings it into the run once, which is done here with every artifact that a task reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotwright.pipelines.lightweight import Unsupported
from spotwright.pipelines.spec import Importer
from spotwright.pipelines.values import whole_numbers

__all__ = ["read_importer"]


def read_importer(importer: Mapping[str, Any], definition: Mapping[str, Any]) -> Importer:
    """Read an importer and the component that it stands for. Raises :class:`Unsupported` for what cannot be done here."""
    outputs = list(((definition.get("outputDefinitions") or {}).get("artifacts") or {}).items())
    if len(outputs) != 1:
        raise Unsupported("an importer without an artifact")
    address = importer.get("artifactUri") or {}
    parameter = address.get("runtimeParameter")
    uri = f"{{{{$.inputs.parameters['{parameter}']}}}}" if parameter else str(address.get("constant") or "")
    if not uri:
        raise Unsupported("an importer without an address: its artifactUri has neither constant nor runtimeParameter")
    name, output = outputs[0]
    schema = importer.get("typeSchema") or output.get("artifactType") or {}
    return Importer(
        output=name,
        uri=uri,
        schema=str(schema.get("schemaTitle") or "system.Artifact"),
        version=str(schema.get("schemaVersion") or "0.0.1"),
        metadata=whole_numbers(importer.get("metadata") or {}),
    )
