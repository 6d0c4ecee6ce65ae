"""Reads machine types: a machine's cloud, processor architecture and accelerators. Pure, no IO.

Sources: Google Cloud, "Arm on GKE"; AWS, "Amazon EC2 instance type naming conventions"; Microsoft Learn, "Azure virtual machine
sizes naming conventions".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from spotwright.clouds.provider import NVIDIA_GPU
from spotwright.model.pools import Pool

__all__ = [
    "architecture",
    "gpu_parts",
    "has_accelerators",
    "is_of_aws",
    "labels_of_aws_machine",
    "labels_of_azure_machine",
]

# Texts, compiled by re on first use: most commands look at no machine.
_AWS = (
    r"(?P<family>(?P<category>[a-z]+)(?:-[0-9]+tb)?(?P<generation>[0-9]+)(?P<traits>[a-z0-9-]*))\.(?P<size>[a-z0-9-]+)"
)
_AZURE = r"Standard_(?P<family>[A-Z])[A-Z]*[0-9]+(?:-[0-9]+)?(?P<traits>[a-z]*)(?:_.*)?"


def architecture(machine: str) -> str:
    """The processor architecture of a machine of AWS or Azure as Kubernetes names it; empty for another machine.

    Arm: Amazon's A1 and machines with a ``g`` after the generation; Azure's with a ``p`` among the lowercase letters.
    """
    if aws := re.fullmatch(_AWS, machine):
        return "arm64" if aws["traits"].startswith("g") or aws["family"] == "a1" else "amd64"
    if azure := re.fullmatch(_AZURE, machine):
        return "arm64" if "p" in azure["traits"] else "amd64"
    return ""


def has_accelerators(machine: str) -> bool | None:
    """Whether a machine of AWS, Azure or Google Cloud has GPUs or other accelerators; ``None`` if its name does not show it.

    AWS: the categories of accelerated computing. Azure: sizes of the N family. Google Cloud: the series of accelerators and TPUs;
    an ``n1`` machine has the GPUs that its pool attaches to it. Sources: AWS, "Amazon EC2 instance types"; Microsoft Learn,
    "GPU accelerated virtual machine sizes"; Google Cloud, "Machine families resource and comparison guide".
    """
    if aws := re.fullmatch(_AWS, machine):
        return aws["category"] in _ACCELERATED
    if azure := re.fullmatch(_AZURE, machine):
        return azure["family"] == "N"
    if re.match(r"(?:a[2-9]|g[2-9]|ct[0-9])[a-z0-9]*-", machine):
        return True
    return False if re.match(r"(?:[cehmtxz][0-9]|n[2-9])[a-z]?-(?:[a-z]+-)*[0-9a-z]+$", machine) else None


_ACCELERATED = frozenset({"dl", "f", "g", "gr", "inf", "p", "trn", "vt"})


def gpu_parts(size: str) -> int:
    """The number of MIG instances of a size per GPU, by the size's compute slices (``3g.20gb``: 2); 1 for another text.

    Source: NVIDIA, "Multi-Instance GPU User Guide": a GPU has 7 compute slices.
    """
    return 7 // int(size[0]) if size[:1] in tuple("1234567") else 1


def is_of_aws(machine: str) -> bool:
    """Whether a machine type has the form of Amazon's."""
    return re.fullmatch(_AWS, machine) is not None


def labels_of_aws_machine(pool: Pool) -> dict[str, str]:
    """Karpenter's labels for an Amazon machine, under its domain and EKS Auto Mode's."""
    match = re.fullmatch(_AWS, pool.machine)
    if match is None:
        return {}
    facts = {
        "category": match["category"],
        "family": match["family"],
        "generation": match["generation"],
        "size": match["size"],
        **_gpus(pool),
    }
    domains = ("karpenter.k8s.aws", "eks.amazonaws.com")
    return {f"{domain}/instance-{name}": value for domain in domains for name, value in facts.items()}


def labels_of_azure_machine(pool: Pool) -> dict[str, str]:
    """Karpenter's labels for an Azure machine."""
    match = re.fullmatch(_AZURE, pool.machine)
    if match is None:
        return {}
    facts = {"name": pool.machine, "family": match["family"], **_gpus(pool)}
    return {f"karpenter.azure.com/sku-{name}": value for name, value in facts.items()}


def _gpus(pool: Pool) -> Mapping[str, str]:
    gpus = (pool.node or {}).get(NVIDIA_GPU)
    return {"gpu-count": str(gpus), "gpu-manufacturer": "nvidia"} if gpus else {}
