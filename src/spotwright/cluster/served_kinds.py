"""Discovers which kinds an API server serves: controllers may be installed in any order and release.

All groups are queried concurrently, each for a few seconds at most: an unavailable aggregated API server must not delay other
kinds or pods. A kind served only in unsupported versions may have unreadable objects, unlike a kind that is not installed.

Source: https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api (``/apis/GROUP`` and ``/apis/GROUP/VERSION``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.mirror import Resource
from spotwright.kube.object_fields import mappings, text

__all__ = ["ANSWERS", "NOT_SERVED", "Found", "find_served"]

NOT_SERVED = "the API server does not serve it"
"""Why a kind that is not installed is not read."""

ANSWERS = 10.0
"""Seconds to wait for an answer about one group."""


class Found(NamedTuple):
    """Whether a kind is served: ``why`` not, or empty. ``is_known``: the API server answered."""

    why: str = ""
    is_known: bool = True


async def find_served(api: Api, wanted: Mapping[str, Resource], read: Collection[Resource]) -> dict[str, Found]:
    """The state of each of the ``wanted`` kinds, by name. ``read`` are the resources of all kinds, in all versions."""
    by_base: dict[str, dict[str, Resource]] = {}
    for name, resource in wanted.items():
        by_base.setdefault(resource.base, {})[name] = resource
    answers = await asyncio.gather(*(_of_base(api, base, of_base, read) for base, of_base in by_base.items()))
    return {name: found for answer in answers for name, found in answer.items()}


async def _of_base(api: Api, base: str, wanted: Mapping[str, Resource], read: Collection[Resource]) -> dict[str, Found]:
    """The kinds of one group and version."""
    try:
        async with asyncio.timeout(ANSWERS):
            plurals = await _plurals(api, base)
            missing = {name: each for name, each in wanted.items() if each.plural not in plurals}
            others = await _other_versions(api, base) if missing else {}
    except TimeoutError:
        return dict.fromkeys(wanted, Found(f"{base}: no answer within {ANSWERS:g} s", is_known=False))
    except ApiFailed as error:
        return dict.fromkeys(wanted, Found(str(error), is_known=False))
    return {name: Found(_why_not(each, others, read) if name in missing else "") for name, each in wanted.items()}


def _why_not(resource: Resource, others: Mapping[str, Collection[str]], read: Collection[Resource]) -> str:
    above, _, version = resource.base.rpartition("/")
    served = [other for other, plurals in others.items() if resource.plural in plurals]
    if not served or any(Resource(f"{above}/{other}", resource.plural) in read for other in served):
        return NOT_SERVED
    return (
        f"the API server has {resource.plural}.{above.rpartition('/')[2]} in {' and '.join(served)}, but Spotwright reads"
        f" {version}; install a release of its controller that serves {version}, or a Spotwright that reads {served[0]}"
    )


async def _other_versions(api: Api, base: str) -> dict[str, Collection[str]]:
    """The resources of the other versions of a group, by version."""
    above, _, version = base.rpartition("/")
    group = await api.get_or_none(above)
    named = (text(each.get("version")) for each in mappings((group or {}).get("versions")))
    return {other: await _plurals(api, f"{above}/{other}") for other in named if other not in ("", version)}


async def _plurals(api: Api, base: str) -> Collection[str]:
    found = await api.get_or_none(base)
    return {text(each.get("name")) for each in mappings((found or {}).get("resources"))}
