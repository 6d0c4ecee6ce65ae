"""Ways in which a pod asks for a device beside whole devices in its resource requests.

Pools do not state the number of such devices, so it is unknown whether the pod fits; but nodes without devices do not fit, and
GPU nodes are meant for it. Other ways are not recognized.

Sources: Kubernetes, "Dynamic Resource Allocation"; NVIDIA/k8s-device-plugin, README (MPS, time slicing), and the RuntimeClass of
NVIDIA's GPU operator; run.ai documentation, "GPU fractions"; Project-HAMi/HAMi, "Device configuration"; Volcano, "vGPU";
AliyunContainerService/gpushare-scheduler-extender; koordinator-sh/koordinator, "Device scheduling"; tkestack/gpu-manager.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.kube.object_fields import mapping, mappings, text

__all__ = ["devices_asked", "is_share"]

_SHARES = re.compile(
    r"(?:nvidia\.com|amd\.com)/(?:gpumem|gpucores|gpumem-percentage|priority)"
    r"|volcano\.sh/(?:v?gpu-(?:number|memory|cores|memory-percentage)|gpu-(?:memory|index))"
    r"|aliyun\.com/gpu-(?:mem|core\.percentage|count)"
    r"|koordinator\.sh/gpu(?:-core|-memory|-memory-ratio|\.shared)?"
    r"|(?:tencent\.com/vcuda|4paradigm\.com/|elasticgpu\.io/|run\.ai/|metax-tech\.com/s?gpu|huawei\.com/Ascend\w+-memory).*"
)

_FRACTIONS = ("gpu-fraction", "gpu-fraction-num-devices", "gpu-memory", "runai/gpu-fraction", "runai/gpu-memory")
"""Annotations of pods, in older releases labels."""

_RUNTIMES = re.compile(r"nvidia(?:-cdi|-legacy|-experimental)?|kata-(?:qemu-)?nvidia-gpu.*")


def is_share(resource: str) -> bool:
    """Whether a resource is a part of a device that another scheduler counts and nodes do not state."""
    return _SHARES.fullmatch(resource) is not None


def devices_asked(spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The ways in which a pod asks for devices beside whole ones in its requests, in the words of messages, each once."""
    return tuple(dict.fromkeys(_asked(spec, metadata)))


def _asked(spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[str]:
    for claim in mappings(spec.get("resourceClaims")):
        for field in ("resourceClaimTemplateName", "resourceClaimName"):
            if name := text(claim.get(field)):
                yield f"the {'ResourceClaimTemplate' if 'Template' in field else 'ResourceClaim'} {name}"
    for field in ("annotations", "labels"):
        for key in mapping(metadata.get(field)).keys() & set(_FRACTIONS):
            yield f"the {field.removesuffix('s')} {key}"
    for container in (*mappings(spec.get("containers")), *mappings(spec.get("initContainers"))):
        resources = mapping(container.get("resources"))
        for name in (*mapping(resources.get("limits")), *mapping(resources.get("requests"))):
            if is_share(str(name)):
                yield str(name)
    runtime = text(spec.get("runtimeClassName"))
    if _RUNTIMES.fullmatch(runtime):
        yield f"runtimeClassName {runtime}"
