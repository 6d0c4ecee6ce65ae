"""The tools that can create a pool, and the default one; the provider's record lists its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from spotwright.clouds import providers
from spotwright.clouds.provider_records import PROVIDERS
from spotwright.errors import InputError
from spotwright.pools.aws import aws_script, eksctl_config
from spotwright.pools.azure import az_script
from spotwright.pools.gcloud import gcloud_script
from spotwright.pools.generic import generic_script
from spotwright.pools.karpenter import karpenter_objects
from spotwright.pools.request import Request

__all__ = ["TOOLS", "script"]


TOOLS: Mapping[str, Callable[[Request], Iterator[str]]] = {
    "az": az_script,
    "gcloud": gcloud_script,
    "eksctl": eksctl_config,
    "aws": aws_script,
    "karpenter": karpenter_objects,
    "generic": generic_script,
}
"""The writers of the tools' texts, by the name for ``--as``."""


def script(request: Request, tool: str | None = None) -> list[str]:
    """The lines that make the pool with a tool; the default is the usual one of its provider.

    Raises :class:`InputError` if the tool makes no pools of this provider, or if the provider cannot have such a pool.
    """
    pool = request.pool
    if pool.automatic:
        raise InputError(f"pool {pool.name}: it is automatic, so its provider makes it by itself, without a command")
    fitting = providers.of(pool).tools
    if not fitting:
        raise InputError(f"pool {pool.name}: Spotwright writes no commands that make pools of {pool.provider}")
    name = tool or fitting[0]
    if name not in fitting:
        owner = next(one.name for one in PROVIDERS.values() if name in one.tools)
        raise InputError(
            f"pool {pool.name}: its provider is {pool.provider}, and {name} makes pools of {owner}: use --as "
            f"{', '.join(fitting)}, or set provider: in spotwright.yaml"
        )
    return list(TOOLS[name](request))
