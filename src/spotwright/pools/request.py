"""The parts that all tools share: the request for the text that creates a pool, the user's flags, and the text itself.

``create_flags`` of a pool come last: they add to our flags and replace our choices. A flag that a field of the pool determines
is refused, because placement would not know these labels, prices or sizes.

Objects of another shape than the API's are refused with the place. Commands are quoted; values that the configuration lacks are
variables.
"""

from __future__ import annotations

import itertools
import re
import shlex
import textwrap
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from spotwright.clouds import providers
from spotwright.clouds.node_signs import is_refused_by_kubelet
from spotwright.clouds.providers import naming_rule
from spotwright.errors import InputError
from spotwright.model.policy import BUILT_IN
from spotwright.model.pools import Pool
from spotwright.model.quantities import parse_duration

__all__ = [
    "API_MODEL",
    "DURATION",
    "FLAG",
    "KUBELET",
    "NODE",
    "NODE_POOL",
    "NUMBER",
    "PRIORITY_CLASS",
    "SCALAR",
    "TEXT",
    "UNKNOWN_CAPACITY",
    "Flags",
    "ListedPool",
    "Request",
    "Variable",
    "Word",
    "command",
    "comment",
    "counted",
    "cpus",
    "find_wrong",
    "gpus",
    "heredoc",
    "introduction",
    "items",
    "labels_at_start",
    "name_at_provider",
    "name_for",
    "own_fields",
    "section",
    "with_create_flags",
    "word_for",
]


_SHOWN = 40  # characters of a value that a message repeats
_DIGITS = re.compile(r"[0-9]{1,9}")
_WORDS: Mapping[type, str] = {
    dict: "a mapping",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "nothing",
}

TEXT, SCALAR, NUMBER = "a text", "a text or a number", "a whole number"
"""The types of fields in shapes, in the words of messages."""
DURATION, FLAG = "a duration such as 30s", "true or false"
_PRIORITY = "a priority, which is a whole number"


def _is_duration(value: Any) -> bool:
    try:
        parse_duration(value)
    except ValueError:
        return False
    return True


_IS: Mapping[str, Callable[[Any], bool]] = {
    TEXT: lambda value: isinstance(value, str),
    SCALAR: lambda value: isinstance(value, str | int | float),
    NUMBER: lambda value: not isinstance(value, bool) and _DIGITS.fullmatch(str(value)) is not None,
    DURATION: _is_duration,
    FLAG: lambda value: isinstance(value, bool),
    _PRIORITY: lambda value: isinstance(value, int) and not isinstance(value, bool),
}

_TAINTS = [{"key": TEXT, "value": TEXT, "effect": TEXT}]
_LIMITS = {"min-nodes": NUMBER, "max-nodes": NUMBER}

NODE: Mapping[str, Any] = {
    "metadata": {"name": TEXT, "labels": {"*": TEXT}},
    "spec": {"taints": _TAINTS, "providerID": TEXT},
    "status": {
        "allocatable": {"*": SCALAR},
        "capacity": {"*": SCALAR},
        "conditions": [{"type": TEXT}],
        "nodeInfo": {"operatingSystem": TEXT, "architecture": TEXT},
    },
}
"""A Node of Kubernetes."""

NODE_POOL: Mapping[str, Any] = {
    "metadata": {"name": TEXT},
    "spec": {
        "template": {
            "metadata": {"labels": {"*": TEXT}},
            "spec": {
                "requirements": [{"key": TEXT, "operator": TEXT, "values": [TEXT]}],
                "taints": _TAINTS,
                "nodeClassRef": {"*": TEXT},
                "expireAfter": TEXT,
                "terminationGracePeriod": TEXT,
            },
        },
        "disruption": {"expireAfter": TEXT, "budgets": [{"nodes": SCALAR, "reasons": [TEXT], "schedule": TEXT}]},
        "limits": {"*": SCALAR},
    },
}
"""A NodePool of Karpenter."""

KUBELET: Mapping[str, Any] = {
    "shutdownGracePeriod": DURATION,
    "shutdownGracePeriodCriticalPods": DURATION,
    "shutdownGracePeriodByPodPriority": [{"priority": _PRIORITY, "shutdownGracePeriodSeconds": NUMBER}],
}
"""The settings of a kubelet on the end of its node."""

PRIORITY_CLASS: Mapping[str, Any] = {"metadata": {"name": TEXT}, "value": _PRIORITY}
"""A PriorityClass of Kubernetes."""

CONFIG_MAP: Mapping[str, Any] = {"metadata": {"name": TEXT, "namespace": TEXT}, "data": {"*": TEXT}}
"""A ConfigMap of Kubernetes."""

API_MODEL: Mapping[str, Any] = {
    "properties": {
        "agentPoolProfiles": [
            {
                "name": TEXT,
                "count": NUMBER,
                "vmSize": TEXT,
                "scaleSetPriority": TEXT,
                "scaleSetEvictionPolicy": TEXT,
                "osType": TEXT,
                "availabilityZones": [SCALAR],
                "customNodeLabels": {"*": SCALAR},
                "vnetSubnetId": TEXT,
                "OSDiskSizeGB": NUMBER,
                "osDiskSizeGB": NUMBER,
            }
        ],
        "orchestratorProfile": {
            "kubernetesConfig": {
                "addons": [{"name": TEXT, "config": _LIMITS, "pools": [{"name": TEXT, "config": _LIMITS}]}]
            }
        },
    }
}
"""The API model of aks-engine."""


def find_wrong(value: Any, shape: Any, path: str = "") -> str:
    """The first field of a wrong shape, with the right one and its own; empty without one."""
    if isinstance(shape, str):
        text = str(value)
        shown = f" ({text})" if isinstance(value, str | int | float) and 0 < len(text) <= _SHOWN else ""
        return "" if _IS[shape](value) else f"{path}: expected {shape}, found {word_for(value)}{shown}"
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{path}: expected a list, found {word_for(value)}"
        found = (find_wrong(item, shape[0], f"{path}[{index}]") for index, item in enumerate(value))
        return next(filter(None, found), "")
    if not isinstance(value, dict):
        return f"{path or 'object'}: expected a mapping, found {word_for(value)}"
    any_key = shape.get("*")
    wanted = ((key, shape.get(key, any_key), item) for key, item in value.items() if item is not None)
    found = (find_wrong(item, one, f"{path}.{key}".lstrip(".")) for key, one, item in wanted if one is not None)
    return next(filter(None, found), "")


def word_for(value: Any) -> str:
    """The type of a value, for people."""
    return _WORDS.get(type(value), "another value")


UNKNOWN_CAPACITY = "capacity unknown; assumed on-demand: correct it"
"""The note on a pool that was read without a capacity."""


class ListedPool(NamedTuple):
    """A pool that was read from a file: its settings for spotwright.yaml, and notes for people.

    ``is_known``: whether the file says its capacity.
    """

    name: str
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    is_known: bool = True


def name_for(value: str, *, taken: Container[str] = ()) -> str:
    """A free name for spotwright.yaml: small letters, digits and dashes, numbered if needed."""
    base = re.sub(r"[^a-z0-9-]+", "-", value.lower()).strip("-") or "other-nodes"
    numbered = (f"{base}-{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([base], numbered) if name not in taken)


_WIDTH = 110


class Variable(NamedTuple):
    """A value that only the user knows, as a shell variable. ``meaning``: plain words without quotes.

    Without a meaning the script sets the variable itself. ``around`` is a text with ``{}`` in the variable's place. A list is
    unquoted, so that each value is a word.
    """

    name: str
    meaning: str
    around: str = "{}"
    is_list: bool = False

    def __str__(self) -> str:
        expanded = f"${{{self.name}:?{self.meaning}}}" if self.meaning else f"${{{self.name}}}"
        if self.is_list:
            return expanded
        before, _, after = self.around.partition("{}")
        first, last = (shlex.quote(part) if part else "" for part in (before, after))
        return f'{first}"{expanded}"{last}'


Word: TypeAlias = str | int | Variable
Flags: TypeAlias = Mapping[str, Sequence[Word]]
"""Flags by name, without their dashes; a flag without values is a switch."""


def command(words: Sequence[Word], flags: Flags) -> Iterator[str]:
    """The lines of a command: each flag on its own line, and each value too if they do not fit one line."""
    lines = [" ".join(_quoted(word) for word in words)]
    for name, values in flags.items():
        quoted = [_quoted(value) for value in values]
        line = f"  --{name} {' '.join(quoted)}".rstrip()
        lines += (
            [line] if len(quoted) < 2 or len(line) <= _WIDTH else [f"  --{name}", *(f"    {one}" for one in quoted)]
        )
    for line in lines[:-1]:
        yield f"{line} \\"
    yield lines[-1]


def comment(text: str) -> Iterator[str]:
    """The text as comment lines, wrapped; line breaks in it are spaces."""
    yield from textwrap.wrap(
        " ".join(text.split()), _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )


def section(title: str, *texts: str) -> Iterator[str]:
    """An empty line, a title, and explanations below it, each with a dash."""
    yield ""
    yield f"# {title}"
    yield from items(texts)


def items(texts: Iterable[str]) -> Iterator[str]:
    """Explanations as comments, each with a dash."""
    for text in texts:
        first, *others = comment(text)
        yield f"# - {first[2:]}"
        yield from (f"#   {line[2:]}" for line in others)


def heredoc(words: Sequence[Word], lines: Iterable[str]) -> Iterator[str]:
    """A command that reads the lines from its standard input, unexpanded by the shell."""
    yield f"{' '.join(_quoted(word) for word in words)} <<'EOF'"
    yield from lines
    yield "EOF"


def _quoted(word: Word) -> str:
    return str(word) if isinstance(word, Variable) else shlex.quote(str(word))


@dataclass(frozen=True, slots=True)
class Request:
    """One pool to make. ``pools`` are the configuration's, ``ladder`` its default policy's.

    ``cluster`` is the name of the cluster, empty if unknown. ``grace_period``: the longest one of the configuration's
    policies, in seconds. ``warnings`` must be read even if the text goes straight into a shell.
    """

    pool: Pool
    pools: Mapping[str, Pool]
    currency: str = "USD"
    ladder: Sequence[str] = ()
    cluster: str = ""
    grace_period: float = BUILT_IN.values["grace_period"]
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> str:
        """Collect a warning about the pool, and return it for the text."""
        self.warnings.append(text)
        return text


def introduction(request: Request, where: str) -> Iterator[str]:
    """The first lines of a script: the pool in words, and that no command was run."""
    pool = request.pool
    yield from comment(f"{pool.name}: {counted(pool)} on {where}.")
    yield from comment("No command has run yet. Read the commands, set their variables, then pass them to a shell.")


def name_at_provider(request: Request) -> str:
    """The pool's name at its provider. Warns where the configuration has another.

    Raises :class:`InputError` for a name without a form there, and for one that two pools share, except at Karpenter, where
    they are one NodePool.
    """
    pool = request.pool
    name = providers.pool_name(pool)
    label = providers.pool_label(pool)
    wanted = pool.labels.get(label, pool.name)
    if name is None:
        raise InputError(
            f"pool {pool.name}: {pool.provider.upper()} allows no pool of the name {wanted}: {naming_rule(pool)}; "
            f"rename the pool in spotwright.yaml, or set labels: {{{label}: NAME}} there"
        )
    twins = [
        one.name for one in request.pools.values() if one.provider == pool.provider and name == providers.pool_name(one)
    ]
    if len(twins) > 1 and not providers.of(pool).mixes_capacities:
        raise InputError(
            f"pools {', '.join(twins)}: all are {name} at {pool.provider.upper()}, where a name has one pool: "
            f"rename one in spotwright.yaml, or set labels: {{{label}: NAME}} there"
        )
    if name != wanted:
        request.warn(
            f"the pool is called {name} there, because a name has {naming_rule(pool)}. Rename it in spotwright.yaml, "
            f"or add labels: {{{label}: {name}}}: placement looks for {label}={wanted}, which no node will have"
        )
    return name


def labels_at_start(request: Request) -> Mapping[str, str]:
    """The pool's own labels that its nodes can register with. Warns of labels that can only be set later."""
    own = providers.own_labels(request.pool)
    later = [key for key in own if is_refused_by_kubelet(key)]
    if later:
        request.warn(
            f"no kubelet may set {', '.join(later)}: a controller or kubectl label sets it on a node that is there, and no "
            "autoscaler knows it while the pool has no node"
        )
    return {key: value for key, value in own.items() if key not in later}


def with_create_flags(
    request: Request, flags: Flags, said_by: Mapping[str, str], *, separator: str = ""
) -> dict[str, tuple[Word, ...]]:
    """Our flags with the pool's ``create_flags``. ``said_by``: the pool's field that determines a flag.

    ``separator`` joins the values of a list; without it they stay separate words. Raises :class:`InputError`.
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
    """A flag as messages name it. Raises :class:`InputError` if a field of the pool determines it."""
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
    """CPUs of all nodes of the pool at its largest; 0 if ``node`` does not say."""
    return (pool.node or {}).get("cpu", 0) * pool.max_nodes // 1000


def counted(pool: Pool) -> str:
    """The pool in words: ``0 to 4 spot nodes of Standard_NC6s_v3``."""
    machine = f" of {pool.machine}" if pool.machine else ""
    return f"{pool.min_nodes} to {pool.max_nodes} {pool.capacity} nodes{machine}"
