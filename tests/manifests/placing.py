"""Manifests placed for tests: one small set of pools, any policy, and every placement taken out again on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from spotwright import config
from spotwright.config import Config
from spotwright.manifests.context import Options, RoleReport
from spotwright.manifests.documents import parse
from spotwright.manifests.edits import value_at
from spotwright.manifests.files import place_text, unplace_text
from spotwright.manifests.nodes import ManifestError
from spotwright.manifests.references import References

__all__ = [
    "FILE",
    "PREFER",
    "REQUIRE",
    "SHARED",
    "Outcome",
    "a_config",
    "found",
    "given",
    "place",
    "refusal",
    "survives",
]

SHARED = Path(__file__).resolve().parents[3] / "shared"
"""Upstream manifests and schemas, where they are at hand; no part of the project."""

FILE = "work.yaml"
PREFER = "{default: {spot: prefer}}"
REQUIRE = "{default: {spot: require, timeout: 1h}}"

_POOLS = """\
version: 1
pools:
  spot: {capacity: spot, provider: aks, node: {cpu: 16, memory: 64Gi}}
  regular: {capacity: on-demand, provider: aks, node: {cpu: 16, memory: 64Gi}}
  gpu-spot: {capacity: spot, provider: aks, node: {cpu: 16, memory: 64Gi, nvidia.com/gpu: 8}, taints: ["sku=gpu:NoSchedule"]}
  gpu: {capacity: on-demand, provider: aks, node: {cpu: 16, memory: 64Gi, nvidia.com/gpu: 8}, taints: ["sku=gpu:NoSchedule"]}
"""


@dataclass(frozen=True)
class Outcome:
    """A placement: the text, its documents as data, what was said, and the roles by their policy path."""

    text: str
    documents: list[Any]
    said: list[str]
    roles: dict[str, RoleReport]

    @property
    def value(self) -> Any:
        """The only document of the input."""
        [document] = given(self.documents)
        return document

    @property
    def added(self) -> list[Any]:
        """The documents that were put in front of others."""
        return [document for document in self.documents if document not in given(self.documents)]

    def says(self, *parts: str) -> bool:
        """Whether one of the findings holds all these words."""
        return any(all(part in text for part in parts) for text in self.said)


def given(documents: Iterable[Any]) -> list[Any]:
    """Documents without those that were added to them."""
    path = "metadata.annotations.spotwright@dev/placed"
    return [one for one in documents if '"added":' not in str(found(one, path))]


def a_config(policy: str, target: str = "{kubernetes: '1.33'}") -> Config:
    return config.parse(f"{_POOLS}target: {target}\npolicy: {policy}\n")


def place(
    text: str,
    policy: str = PREFER,
    *,
    replace_retries: bool = False,
    beside: str = "",
    target: str = "{kubernetes: '1.33'}",
) -> Outcome:
    """Place a text; it must be idempotent and come out again, to the last byte and after a tool has written it anew."""
    settings, options = a_config(policy, target), Options(replace_retries=replace_retries)
    references = References(parse(beside, "beside.yaml"))
    placement = place_text(text, FILE, settings, references, options)
    assert place_text(placement.text, FILE, settings, references, options).text == placement.text
    survives(text, placement.text)
    documents = [document for document in yaml.safe_load_all(placement.text) if document is not None]
    said = [str(finding) for finding in placement.findings]
    return Outcome(placement.text, documents, said, {role.policy_path: role for role in placement.roles})


def survives(text: str, placed: str) -> None:
    """What was placed comes out again: the same bytes, and equal documents after a tool has written them anew."""
    assert unplace_text(placed, FILE).text == text
    anew = yaml.safe_dump_all(yaml.safe_load_all(placed), width=60)
    back = unplace_text(anew, FILE)
    assert list(yaml.safe_load_all(back.text)) == list(yaml.safe_load_all(text))


def refusal(text: str, policy: str = PREFER, *, beside: str = "") -> str:
    """The message with which a text is refused."""
    try:
        place_text(text, FILE, a_config(policy), References(parse(beside, "beside.yaml")))
    except ManifestError as error:
        return str(error)
    raise AssertionError("it was placed")


def found(value: Any, path: str) -> Any:
    """What stands at a path such as ``spec.containers.0.name`` (``@`` for a point in a key); ``None`` where nothing does."""
    steps = (step.replace("@", ".") for step in path.split("."))
    return value_at(value, tuple(int(step) if step.isdigit() else step for step in steps))
