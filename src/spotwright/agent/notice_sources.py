"""Makes the source of notices that a node agent reads: one for each provider, also under the name of its Kubernetes service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spotwright.errors import InputError
from spotwright.notices import Source

__all__ = ["PROVIDERS", "SourceOptions", "make_source"]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The user's options about the source; ``None`` and ``""``: not given. ``notice`` is in seconds."""

    provider: str
    metadata_url: str = ""
    provider_id: str = ""
    file: Path | None = None
    notice: float | None = None


def _azure(options: SourceOptions) -> Source:
    from spotwright.notices.azure import METADATA, AzureSource, resource_of

    resource = resource_of(options.provider_id) if options.provider_id else None
    return AzureSource(options.metadata_url or METADATA, resource=resource)


def _gcp(options: SourceOptions) -> Source:
    from spotwright.notices.gcp import METADATA, GcpSource
    from spotwright.notices.notice import SHORTEST

    notice = options.notice if options.notice is not None else SHORTEST
    return GcpSource(options.metadata_url or METADATA, notice=notice)


def _aws(options: SourceOptions) -> Source:
    from spotwright.notices.aws import METADATA, AwsSource

    return AwsSource(options.metadata_url or METADATA)


def _kubernetes(options: SourceOptions) -> Source:
    from spotwright.notices.kubernetes_node import KubernetesSource, node_in_file

    return KubernetesSource(node_in_file(_file(options, "the node, as kubectl get node NAME -o json writes it")))


def _local(options: SourceOptions) -> Source:
    from spotwright.notices.file import FileSource

    return FileSource(_file(options, "the notice, which appears there when the node goes"))


def _file(options: SourceOptions, content: str) -> Path:
    if options.file is None:
        raise InputError(f"--provider {options.provider} reads a file: name with --file the file that holds {content}")
    return options.file


PROVIDERS: dict[str, Callable[[SourceOptions], Source]] = {
    "azure": _azure,
    "gcp": _gcp,
    "aws": _aws,
    "kubernetes": _kubernetes,
    "local": _local,
    "aks": _azure,
    "gke": _gcp,
    "eks": _aws,
}
"""The maker of each provider's source. Nodes of AKS, GKE and EKS are machines of Azure, Google and AWS."""


def make_source(options: SourceOptions) -> Source:
    """Return the source for these options. Raises :class:`InputError` or :class:`SourceError` where they do not fit together."""
    make = PROVIDERS[options.provider]
    if options.provider_id and make is not _azure:
        raise InputError("--provider-id is only for azure, whose events come for many machines")
    if options.notice is not None and make is not _gcp:
        raise InputError("--notice is only for gcp: the other providers say themselves when the machine goes")
    if options.file is not None and make not in {_kubernetes, _local}:
        raise InputError(f"--file is only for local and kubernetes; {options.provider} is asked over the network")
    if options.metadata_url and make in {_kubernetes, _local}:
        raise InputError(f"--metadata-url is only for azure, gcp and aws; {options.provider} reads a file")
    return make(options)
