"""Which source a node agent reads: one for each provider, under the provider's name and that of its Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spotwright.errors import InputError
from spotwright.notices import Source

__all__ = ["PROVIDERS", "Reading", "source_of"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the user said about where the notice is read; ``None`` and ``""``: nothing."""

    provider: str
    metadata_url: str = ""
    provider_id: str = ""
    file: Path | None = None
    notice: float | None = None


def _azure(reading: Reading) -> Source:
    from spotwright.notices.azure import METADATA, AzureSource, resource_of

    resource = resource_of(reading.provider_id) if reading.provider_id else None
    return AzureSource(reading.metadata_url or METADATA, resource=resource)


def _gcp(reading: Reading) -> Source:
    from spotwright.notices.gcp import METADATA, GcpSource
    from spotwright.notices.notice import SHORTEST

    notice = reading.notice if reading.notice is not None else SHORTEST
    return GcpSource(reading.metadata_url or METADATA, notice=notice)


def _aws(reading: Reading) -> Source:
    from spotwright.notices.aws import METADATA, AwsSource

    return AwsSource(reading.metadata_url or METADATA)


def _kubernetes(reading: Reading) -> Source:
    from spotwright.notices.kubernetes import KubernetesSource, node_in_file

    return KubernetesSource(node_in_file(_file(reading, "the node, as kubectl get node NAME -o json writes it")))


def _local(reading: Reading) -> Source:
    from spotwright.notices.file import FileSource

    return FileSource(_file(reading, "the notice, which appears there when the node goes"))


def _file(reading: Reading, what: str) -> Path:
    if reading.file is None:
        raise InputError(f"--provider {reading.provider} reads a file: say with --file where it finds {what}")
    return reading.file


PROVIDERS: dict[str, Callable[[Reading], Source]] = {
    "azure": _azure,
    "gcp": _gcp,
    "aws": _aws,
    "kubernetes": _kubernetes,
    "local": _local,
    "aks": _azure,
    "gke": _gcp,
    "eks": _aws,
}
"""How each provider is read. AKS, GKE and EKS nodes are machines of Azure, Google and AWS."""


def source_of(reading: Reading) -> Source:
    """The source for what the user said. Raises :class:`InputError` or :class:`SourceError` where it does not fit together."""
    make = PROVIDERS[reading.provider]
    if reading.provider_id and make is not _azure:
        raise InputError("--provider-id is only for azure, whose events come for many machines")
    if reading.notice is not None and make is not _gcp:
        raise InputError("--notice is only for gcp: the other providers say themselves when the machine goes")
    if reading.file is not None and make not in {_kubernetes, _local}:
        raise InputError(f"--file is only for local and kubernetes; {reading.provider} is asked over the network")
    if reading.metadata_url and make in {_kubernetes, _local}:
        raise InputError(f"--metadata-url is only for azure, gcp and aws; {reading.provider} reads a file")
    return make(reading)
