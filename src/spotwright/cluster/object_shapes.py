"""The schemas of objects from API servers: of the common fields, and of pods.

An API server decodes an object into its own types before it calls a webhook, so deciding code reads these fields without type
checks. But any pod of the cluster can send a review to the webhook's port: malformed objects are found here, once, before any
decision. Kinds other than pods are read defensively during placement, because the schemas of some are open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

__all__ = ["why_misshapen"]


_MOST_WORDS = 200  # characters


def why_misshapen(data: Any) -> str:
    """A clause about the part of an object that an API server would not have sent; empty for a well-formed object."""
    is_pod = isinstance(data, Mapping) and data.get("kind") == "Pod" and data.get("apiVersion") == "v1"
    try:
        msgspec.convert(data, _Pod if is_pod else _Object)
    except (msgspec.ValidationError, RecursionError) as error:
        return f"it cannot be read ({str(error)[:_MOST_WORDS]})"
    return ""


class _Part(msgspec.Struct, rename="camel"):
    """A part of an object: each field may be missing or null, and others are ignored."""


class _Named(_Part):
    name: str | None = None


class _Owner(_Named):
    api_version: str | None = None
    kind: str | None = None
    uid: str | None = None
    controller: bool | None = None


class _Metadata(_Named):
    namespace: str | None = None
    generate_name: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    managed_fields: list[dict[str, Any]] | None = None


class _Object(_Part, kw_only=True):
    api_version: str | None = None
    kind: str | None = None
    metadata: _Metadata


class _Requirement(_Part):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class _Term(_Part):
    match_expressions: list[_Requirement] | None = None
    match_fields: list[_Requirement] | None = None


class _Terms(_Part):
    node_selector_terms: list[_Term] | None = None


class _Preference(_Part):
    weight: int | None = None
    preference: _Term | None = None


class _NodeAffinity(_Part):
    required: _Terms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[_Preference] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(_Part):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class _Toleration(_Part):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Variable(_Named):
    value: str | None = None
    value_from: dict[str, Any] | None = None


class _Mount(_Named):
    mount_path: str | None = None


_Amounts = dict[str, str | int | float]


class _Resources(_Part):
    requests: _Amounts | None = None
    limits: _Amounts | None = None


class _User(_Part):
    run_as_user: int | None = None


class _Container(_Named):
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[_Variable] | None = None
    env_from: list[dict[str, Any]] | None = None
    volume_mounts: list[_Mount] | None = None
    resources: _Resources | None = None
    lifecycle: dict[str, Any] | None = None
    security_context: _User | None = None
    restart_policy: str | None = None


class _PodSpec(_Part):
    containers: Annotated[list[_Container], msgspec.Meta(min_length=1)]
    init_containers: list[_Container] | None = None
    volumes: list[_Named] | None = None
    tolerations: list[_Toleration] | None = None
    affinity: _Affinity | None = None
    node_selector: dict[str, str] | None = None
    node_name: str | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    overhead: _Amounts | None = None
    scheduling_gates: list[_Named] | None = None
    security_context: _User | None = None
    os: _Named | None = None


class _Pod(_Object, kw_only=True):
    spec: _PodSpec
