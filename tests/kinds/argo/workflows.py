"""Workflows for tests: one line for each template, and helpers that read the placed ones."""

from __future__ import annotations

from typing import Any

from tests import plain_yaml
from tests.placing.placed import Outcome, at_path
from tests.placing.placed import place as place_any

__all__ = ["FALL_BACK", "LEAF", "a_workflow", "env_of", "patch_of", "place", "template"]

LEAF = "{name: train, container: {image: trainer}}"
"""A template with only a container."""

FALL_BACK = "{default: {spot: prefer, fall_back_after: 3}}"


def a_workflow(*templates: str, spec: str = "", kind: str = "Workflow", metadata: str = "{name: nightly}") -> str:
    lines = "".join(f"  - {template}\n" for template in templates or (LEAF,))
    return f"""\
apiVersion: argoproj.io/v1alpha1
kind: {kind}
metadata: {metadata}
spec:
  entrypoint: train
{spec}  templates:
{lines}"""


def place(text: str, policy: str = FALL_BACK, *, argo: str = "4.0", **more: Any) -> Outcome:
    return place_any(text, policy, target=f"{{kubernetes: '1.33', argo: '{argo}'}}", **more)


def template(outcome: Outcome, name: str = "train") -> Any:
    """A template of the only workflow, by its name or by the name of the step around it."""
    spec = at_path(outcome.value, "spec.workflowSpec") or at_path(outcome.value, "spec")
    [wanted] = [one for one in spec["templates"] if one["name"] == name]
    return wanted


def patch_of(value: Any) -> Any:
    """The pod spec patch of a template as data."""
    return plain_yaml.load(value["podSpecPatch"])


def env_of(container: Any) -> dict[str, Any]:
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}
