"""Place manifests in tests: a small set of pools, any policy, and every placement is also unplaced."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import plain_yaml

from spotwright import config
from spotwright.config import Config
from spotwright.manifests.files import place_text, unplace_text
from spotwright.placing.context import PlaceOptions, RoleReport
from spotwright.placing.documents import ManifestError, References, parse
from spotwright.placing.patch import value_at

__all__ = [
    "FILE",
    "PREFER",
    "REQUIRE",
    "SHARED",
    "Outcome",
    "a_config",
    "assert_unplaces",
    "at_path",
    "place",
    "refusal",
    "without_added",
]

SHARED = Path(__file__).resolve().parents[3] / "shared"
"""Upstream manifests and schemas, which are no part of the project and may be missing."""

FILE = "work.yaml"
PREFER = "{default: {spot: prefer, errors: {retries: 0}}}"
REQUIRE = "{default: {spot: require, timeout: 1h, errors: {retries: 0}}}"

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
    """A placed file: the text, its documents as data, the findings, and the roles by their policy path."""

    text: str
    documents: list[Any]
    messages: list[str]
    roles: dict[str, RoleReport]

    @property
    def value(self) -> Any:
        """The only document of the input."""
        [document] = without_added(self.documents)
        return document

    @property
    def added(self) -> list[Any]:
        """The documents that were added in front of others."""
        return [document for document in self.documents if document not in without_added(self.documents)]

    def reports(self, *parts: str) -> bool:
        """Whether one finding contains all these texts."""
        return any(all(part in text for part in parts) for text in self.messages)


def without_added(documents: Iterable[Any]) -> list[Any]:
    """The documents without those that place has added."""
    path = "metadata.annotations.spotwright@dev/placed"
    return [one for one in documents if '"added":' not in str(at_path(one, path))]


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
    """Place a text; check that placing twice gives the same text, and that unplace works, also after reformatting."""
    settings, options = a_config(policy, target), PlaceOptions(replace_retries=replace_retries)
    references = References(parse(beside, "beside.yaml"))
    placement = place_text(text, FILE, settings, references, options)
    assert place_text(placement.text, FILE, settings, references, options).text == placement.text
    assert_unplaces(text, placement.text)
    documents = [document for document in plain_yaml.load_all(placement.text) if document is not None]
    messages = [str(finding) for finding in placement.findings]
    return Outcome(placement.text, documents, messages, {role.policy_path: role for role in placement.roles})


def assert_unplaces(text: str, placed: str) -> None:
    """Check that unplace restores the same bytes, and equal documents after a tool has reformatted them."""
    assert unplace_text(placed, FILE).text == text
    reformatted = plain_yaml.dump_all(plain_yaml.load_all(placed), width=60)
    back = unplace_text(reformatted, FILE)
    assert list(plain_yaml.load_all(back.text)) == list(plain_yaml.load_all(text))


def refusal(text: str, policy: str = PREFER, *, beside: str = "") -> str:
    """The message with which a text is refused."""
    try:
        place_text(text, FILE, a_config(policy), References(parse(beside, "beside.yaml")))
    except ManifestError as error:
        return str(error)
    raise AssertionError("it was placed")


def at_path(value: Any, path: str) -> Any:
    """The value at a path such as ``spec.containers.0.name`` (``@`` for a dot in a key); ``None`` if there is none."""
    steps = (step.replace("@", ".") for step in path.split("."))
    return value_at(value, tuple(int(step) if step.isdigit() else step for step in steps))
