"""What all tools share: the request for the text that makes a pool, the flags that the user adds, and the name at the provider.

``create_flags`` of a pool come last: they add to our flags, and replace those that are ours to choose. A flag whose value another
field of the pool says is refused, because labels, prices and sizes that placement does not know of would be wrong on every page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.providers import naming_rule
from spotwright.errors import InputError
from spotwright.model.pools import Pool
from spotwright.provisioning.script import Flags, Word, comment

__all__ = ["Request", "counted", "cpus", "gpus", "introduction", "name_at_provider", "own_fields", "with_create_flags"]


@dataclass(frozen=True, slots=True)
class Request:
    """One pool to make. ``pools`` are all of the configuration, ``ladder`` that of its default policy.

    ``cluster`` is the name of the cluster, empty where it is not known. ``warnings`` collects what a person must read even if the
    text goes straight into a shell.
    """

    pool: Pool
    pools: Mapping[str, Pool]
    currency: str = "USD"
    ladder: Sequence[str] = ()
    cluster: str = ""
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> str:
        """Collect a warning about the pool, and return it for the text."""
        self.warnings.append(text)
        return text


def introduction(request: Request, where: str) -> Iterator[str]:
    """The first lines of a script: the pool in words, and that nothing has run."""
    pool = request.pool
    yield from comment(f"{pool.name}: {counted(pool)} on {where}.")
    yield from comment("Nothing has been run. Read the commands, set their variables, then pass them to a shell.")


def name_at_provider(request: Request) -> str:
    """The pool's name at its provider. Warns where the configuration has another; refuses a name without a form there."""
    pool = request.pool
    name = providers.pool_name(pool)
    label = providers.pool_label(pool)
    wanted = pool.labels.get(label, pool.name)
    if name is None:
        raise InputError(
            f"pool {pool.name}: {str(pool.provider).upper()} allows no pool of the name {wanted}: {naming_rule(pool)}; "
            f"rename the pool in spotwright.yaml, or set labels: {{{label}: NAME}} there"
        )
    if name != wanted:
        request.warn(
            f"the pool is called {name} there, because a name has {naming_rule(pool)}. Rename it in spotwright.yaml, "
            f"or add labels: {{{label}: {name}}}: placement looks for {label}={wanted}, which no node will have"
        )
    return name


def with_create_flags(
    request: Request, flags: Flags, said_by: Mapping[str, str], *, separator: str = ""
) -> dict[str, tuple[Word, ...]]:
    """Our flags with those of ``create_flags``. ``said_by``: the pool's field that says the value of a flag.

    ``separator`` joins the values of a list to one; without one they stay separate words. Raises :class:`InputError`.
    """
    merged = {name: tuple(values) for name, values in flags.items()}
    for name, value in request.pool.create_flags.items():
        where = _where(request, name, said_by)
        if isinstance(value, Mapping) or (
            isinstance(value, Sequence) and any(isinstance(one, Mapping) for one in value)
        ):
            raise InputError(f"{where}: expected a value or a list of values for this tool, found nested settings")
        if value is False:
            merged.pop(name, None)
        else:
            words = _words(value)
            merged[name] = (separator.join(map(str, words)),) if separator and words else words
    return merged


def own_fields(request: Request, said_by: Mapping[str, str], tool: str, example: str) -> dict[str, Any]:
    """The fields of ``create_flags``, for a tool that reads an object. Raises :class:`InputError` for flags of other tools."""
    fields: dict[str, Any] = {}
    for name, value in request.pool.create_flags.items():
        where = _where(request, name, said_by)
        if "-" in name:
            raise InputError(f"{where}: a flag of another tool; fields of {tool} have no dashes, such as {example}")
        fields[name] = list(value) if isinstance(value, tuple) else value
    return fields


def _where(request: Request, name: str, said_by: Mapping[str, str]) -> str:
    """A flag as messages name it. Raises :class:`InputError` where a field of the pool says its value."""
    where = f"pool {request.pool.name}: create_flags: {name}"
    if name in said_by:
        raise InputError(f"{where}: {said_by[name]} says it: set that, so that placement knows of it")
    return where


def _words(value: Any) -> tuple[Word, ...]:
    if value is True:
        return ()
    return tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)


def gpus(pool: Pool) -> int:
    """Whole GPUs of one node of the pool."""
    return sum(amount for name, amount in providers.gpus_of(pool).items() if name.endswith("/gpu"))


def cpus(pool: Pool) -> int:
    """CPUs of all nodes of the pool at its largest; 0 where ``node`` does not say it."""
    return (pool.node or {}).get("cpu", 0) * pool.max_nodes // 1000


def counted(pool: Pool) -> str:
    """The pool in words: ``0 to 4 spot nodes of Standard_NC6s_v3``."""
    machine = f" of {pool.machine}" if pool.machine else ""
    return f"{pool.min_nodes} to {pool.max_nodes} {pool.capacity} nodes{machine}"
