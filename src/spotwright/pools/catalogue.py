"""The tools that can make a pool, which provider each serves, and the one that is used where none is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from spotwright.errors import InputError
from spotwright.model.pools import Provider
from spotwright.pools.aws import aws_script, eksctl_config
from spotwright.pools.azure import az_script
from spotwright.pools.gcloud import gcloud_script
from spotwright.pools.generic import generic_script
from spotwright.pools.karpenter import karpenter_objects
from spotwright.pools.request import Request

__all__ = ["TOOLS", "Tool", "script"]


class Tool(NamedTuple):
    """A tool that makes pools of one provider; ``write`` gives the lines of its text."""

    provider: Provider
    write: Callable[[Request], Iterator[str]]


TOOLS: Mapping[str, Tool] = {
    "az": Tool(Provider.AKS, az_script),
    "gcloud": Tool(Provider.GKE, gcloud_script),
    "eksctl": Tool(Provider.EKS, eksctl_config),
    "aws": Tool(Provider.EKS, aws_script),
    "karpenter": Tool(Provider.KARPENTER, karpenter_objects),
    "generic": Tool(Provider.GENERIC, generic_script),
}
"""The tools by the name for ``--as``. The first of a provider is the one where none is named."""


def script(request: Request, tool: str | None = None) -> list[str]:
    """The lines that make the pool with a tool; the default is the one of its provider.

    Raises :class:`InputError` if the tool makes no pools of this provider, or if the provider cannot have such a pool.
    """
    pool = request.pool
    if pool.automatic:
        raise InputError(
            f"pool {pool.name}: it is automatic, so its provider makes it by itself: there is no command for it"
        )
    fitting = [name for name, one in TOOLS.items() if one.provider is pool.provider]
    name = tool or fitting[0]
    chosen = TOOLS[name]
    if chosen.provider is not pool.provider:
        raise InputError(
            f"pool {pool.name}: its provider is {pool.provider}, and {name} makes pools of {chosen.provider}: use --as "
            f"{', '.join(fitting)}, or set provider: in spotwright.yaml"
        )
    return list(chosen.write(request))
