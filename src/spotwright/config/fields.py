"""The fields of ``spotwright.yaml`` as tables: name, expected value, default, meaning, and the reader that checks the value.

Reading, error messages and the reference page (``docs/reference/configuration.md``) use these tables; the policy's tables are
in :mod:`spotwright.config.sections`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from spotwright.clouds.provider import CLUSTER_AUTOSCALER
from spotwright.clouds.provider_records import AUTOSCALERS, PROVIDERS
from spotwright.config import document
from spotwright.config.document import Entry, Items, Location, Node, Scalar, Table, plain
from spotwright.model.pools import EXPECTED_BOOT, GENERIC, Capacity, Drain, Simulate
from spotwright.model.quantities import format_duration, parse_duration, parse_price, parse_quantity, parse_resource
from spotwright.model.scheduling_terms import Taint

__all__ = [
    "DURATION_PATTERN",
    "JSON_SHAPES",
    "LINT",
    "POOL",
    "REQUIRED",
    "SIMULATE",
    "TARGET",
    "TOP",
    "VERSION",
    "Field",
    "Reader",
    "choice",
    "create_flags",
    "currency",
    "duration",
    "duration_text",
    "exactly",
    "labels",
    "one_of",
    "one_or_more",
    "package",
    "positive_duration",
    "price",
    "read_fields",
    "reasons",
    "release",
    "resources",
    "table",
    "taints",
    "texts",
    "trainer",
    "whole",
    "words",
]


Reader: TypeAlias = Callable[[Node, Location, str], Any]
"""Reads a node at a location; the text describes the expected value."""

MOST = 1_000_000  # nodes of a pool, at most
_LARGEST = 2**63 - 1  # the largest amount in the Kubernetes API
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"(?=.{1,253}/)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*/"
_KEY = re.compile(rf"(?:{_PREFIX})?{_NAME}")  # Kubernetes: "Labels and Selectors", syntax
_VALUE = re.compile(rf"(?:{_NAME})?")
_EXTENDED = re.compile(rf"{_PREFIX}{_NAME}")
_TAINT = re.compile(r"([^=:]+)(?:=([^=:]*))?:(NoSchedule|PreferNoSchedule|NoExecute)")
_FLAG = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_COUNTED = frozenset({"pods"})  # also every resource with a prefix
_MEASURED = frozenset({"cpu", "memory", "ephemeral-storage"})
_LEAST_MEMORY = 2**20  # a smaller amount lacks its unit: "16" is 16 bytes
_NUMBERS = ("int", "float")
_PACKAGE = r"embedded|configmap|image|[0-9]+\.[0-9][\w.+!-]*|(https?|file)://[!-~]+|/[!-~]+"


JSON_SHAPES: dict[Reader, Mapping[str, Any]] = {}
"""The JSON schema of each reader of a single value; ``scripts/make_config_schema.py`` makes the file's."""


def _scalar(convert: Callable[[Scalar], Any]) -> Reader:
    """Return a reader of a single value; ``convert`` raises ``ValueError`` for a wrong one."""

    def read(node: Node, location: Location, expects: str) -> Any:
        if isinstance(node, Scalar) and node.kind not in ("null", "bool"):
            try:
                return convert(node)
            except ValueError:
                location.expected(node, expects)
                return None
        location.expected(node, expects)
        return None

    return read


def _shaped(convert: Callable[[Scalar], Any], shape: Mapping[str, Any]) -> Reader:
    """Return a reader of a single value whose JSON schema is ``shape``."""
    reader = _scalar(convert)
    JSON_SHAPES[reader] = shape
    return reader


def _words(node: Scalar) -> str:
    text = node.text.strip()
    if not text or not text.isprintable() or len(text) > 1000:
        raise ValueError("no text")
    return text


def _whole(node: Scalar) -> int:
    if node.kind != "int" or not 0 <= int(node.text) <= MOST:
        raise ValueError("not a whole number")
    return int(node.text)


def _positive(node: Scalar) -> float:
    seconds = parse_duration(node.text)
    if seconds == 0:
        raise ValueError("a zero duration")
    return seconds


def _release(node: Scalar) -> str:
    if not re.fullmatch(r"[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?", node.text):
        raise ValueError("no version")
    return node.text


def _trainer(node: Scalar) -> str:
    major, minor = _release(node).split(".")[:2]
    if (int(major), int(minor)) < (2, 2):
        raise ValueError("too old")
    return node.text


def _package(node: Scalar) -> str:
    if not re.fullmatch(_PACKAGE, node.text):
        raise ValueError("no package")
    return node.text


def _currency(node: Scalar) -> str:
    if not re.fullmatch(r"[A-Z]{3}", node.text):
        raise ValueError("no currency")
    return node.text


def _number_or_text(pattern: str, least: str = "minimum") -> Mapping[str, Any]:
    """The JSON schema of a number from 0 that may also be text: with a unit, or in quotes."""
    return {"anyOf": [{"type": "number", least: 0}, {"type": "string", "pattern": pattern}]}


_AMOUNT = r"\+?(\d+(\.\d*)?|\.\d+)"
DURATION_PATTERN = rf"({_AMOUNT}|({_AMOUNT}(ms|s|m|h|d|w))+)"
_DURATION, _LONGER = (
    _number_or_text(rf"^\s*{DURATION_PATTERN}\s*$", least) for least in ("minimum", "exclusiveMinimum")
)

words = _shaped(_words, {"type": ["string", "number"], "pattern": r"^[^\n]*\S[^\n]*$"})
"""Text on one line."""
whole = _shaped(_whole, {"type": "integer", "minimum": 0, "maximum": MOST})
"""A whole number, 0 or more."""
duration = _shaped(lambda node: parse_duration(node.text), _DURATION)
"""Seconds."""
positive_duration = _shaped(_positive, _LONGER)
"""Seconds, more than 0."""
price = _shaped(lambda node: parse_price(node.text), _number_or_text(rf"^\s*{_AMOUNT}\s*(/h)?\s*$"))
"""An exact amount per node hour."""
release = _shaped(_release, _number_or_text(r"^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?$"))
"""A release such as 1.30, as text: as a number it would lose its last digit."""
trainer = _shaped(_trainer, JSON_SHAPES[release])
"""A release of Kubeflow Trainer that has ``runtimePatches``."""
package = _shaped(_package, _number_or_text(rf"^({_PACKAGE})$"))
"""How pods get the checkpoint library."""
currency = _shaped(_currency, {"type": "string", "pattern": "^[A-Z]{3}$"})
"""Three capital letters, as in ISO 4217."""


def truth(node: Node, location: Location, expects: str) -> bool | None:
    """Read ``true`` or ``false``, without quotes."""
    if isinstance(node, Scalar) and node.kind == "bool":
        return bool(plain(node))
    location.expected(node, expects)
    return None


def exactly(number: int) -> Reader:
    """Return a reader of exactly this number."""

    def convert(node: Scalar) -> int:
        if node.kind != "int" or int(node.text) != number:
            raise ValueError("another number")
        return number

    return _shaped(convert, {"const": number})


def choice(kind: type[StrEnum]) -> Reader:
    """Return a reader of a value of an enumeration."""
    return _shaped(lambda node: kind(node.text), {"enum": [each.value for each in kind]})


def one_of(*names: str) -> Reader:
    """Return a reader of one of these words."""

    def convert(node: Scalar) -> str:
        if node.text not in names:
            raise ValueError("another word")
        return node.text

    return _shaped(convert, {"enum": list(names)})


def table(node: Node, location: Location, expects: str) -> Table | None:
    """Read a mapping whose fields another table describes."""
    if not isinstance(node, Table):
        location.expected(node, expects)
        return None
    return node


def texts(node: Node, location: Location, expects: str) -> tuple[str, ...]:
    """Read a list of different texts."""
    values: dict[str, None] = {}
    for item, where in _items(node, location, expects):
        text = words(item, where, "text")
        if text in values:
            where.wrong(item.line, f"{text!r} is given twice: remove one")
        values[text] = None
    return tuple(values)


def one_or_more(node: Node, location: Location, expects: str) -> tuple[str, ...]:
    """Read a text, or a list of different texts."""
    if isinstance(node, Items):
        return texts(node, location, expects)
    text = words(node, location, expects)
    return () if text is None else (text,)


def labels(node: Node, location: Location, expects: str) -> Mapping[str, str]:
    """Read Kubernetes labels: keys with an optional prefix, values that are text."""
    values: dict[str, str] = {}
    for key, entry, where in _entries(node, location, expects):
        if not _KEY.fullmatch(key):
            where.wrong(
                entry.line, "expected a label key: letters, digits, - _ . and an optional prefix such as example.com/"
            )
        value = entry.node
        if isinstance(value, Scalar) and value.kind in ("bool", *_NUMBERS):
            where.wrong(
                value.line, f'expected text, found {value.text}: labels are text, write "{value.text}" in quotes'
            )
        elif not isinstance(value, Scalar) or value.kind == "null":
            where.expected(value, 'text ("" for an empty value)')
        elif not _VALUE.fullmatch(value.text):
            where.expected(
                value, "a label value of at most 63 letters, digits, - _ . that begins and ends with a letter or digit"
            )
        else:
            values[key] = value.text
    return values


def reasons(node: Node, location: Location, expects: str) -> Mapping[str, str]:
    """Read names, each with a sentence as its reason."""
    values: dict[str, str] = {}
    for name, entry, where in _entries(node, location, expects):
        text = words(entry.node, where, "the reason, as a text")
        if text:
            values[name] = text
        elif text is not None:
            where.wrong(entry.line, "expected the reason, found an empty text")
    return values


def taints(node: Node, location: Location, expects: str) -> tuple[Taint, ...]:
    """Read Kubernetes taints: ``key=value:Effect`` or ``key:Effect``, one for each key and effect."""
    by_key: dict[tuple[str, str], Taint] = {}
    for item, where in _items(node, location, expects):
        match = _TAINT.fullmatch(item.text) if isinstance(item, Scalar) else None
        if match is None or not _KEY.fullmatch(match[1]) or not _VALUE.fullmatch(match[2] or ""):
            where.expected(item, 'text such as "sku=gpu:NoSchedule" (or PreferNoSchedule, NoExecute)')
            continue
        taint = Taint(match[1], match[2] or "", match[3])
        if (taint.key, taint.effect) in by_key:
            where.wrong(
                item.line, f"{taint.key}:{taint.effect} is given twice, and a node has one such taint: remove one"
            )
        by_key[taint.key, taint.effect] = taint
    return tuple(by_key.values())


def create_flags(node: Node, location: Location, expects: str) -> Mapping[str, Any]:
    """Read settings of a provider's tool by name: any value but null; the tool's own names are not checked."""
    values: dict[str, Any] = {}
    for key, entry, where in _entries(node, location, expects):
        if not _FLAG.fullmatch(key):
            where.wrong(entry.line, "expected a name without dashes before it, such as disk-size")
        elif isinstance(entry.node, Scalar) and entry.node.kind == "null":
            where.expected(entry.node, "a value; true for a flag that has none")
        else:
            values[key] = _as_written(entry.node)
    return values


def _as_written(node: Node) -> Any:
    """The node as Python values; the numbers of a value or a list of values keep their text (``1.10``)."""
    if isinstance(node, Scalar):
        return node.text if node.kind == "float" else plain(node)
    if isinstance(node, Items) and all(isinstance(item, Scalar) for item in node.nodes):
        return tuple(_as_written(item) for item in node.nodes)
    return plain(node)


def resources(node: Node, location: Location, expects: str) -> Mapping[str, int]:
    """Read the resources of a node by name."""
    amounts: dict[str, int] = {}
    for name, entry, where in _entries(node, location, expects):
        amount = _amount(name, entry, where)
        if amount is not None:
            amounts[name] = amount
    return amounts


def _amount(name: str, entry: Entry, where: Location) -> int | None:
    counted = name in _COUNTED or _EXTENDED.fullmatch(name) is not None
    if not counted and name not in _MEASURED and not name.startswith("hugepages-"):
        known = "cpu, memory, ephemeral-storage or a device such as nvidia.com/gpu"
        where.wrong(entry.line, f"unknown resource, expected {known}")
        return None

    def convert(node: Scalar) -> int:
        exact, amount = parse_quantity(node.text), parse_resource(name, node.text)
        too_small = (name == "memory" and amount < _LEAST_MEMORY) or (name == "cpu" and amount == 0)
        if too_small or amount > _LARGEST or (counted and exact.denominator != 1):
            raise ValueError("out of range")
        return amount

    amount: int | None = _scalar(convert)(entry.node, where, _expected_amount(name, counted=counted))
    return amount


def _expected_amount(name: str, *, counted: bool) -> str:
    if counted:
        return "a whole number such as 1"
    return "cores such as 6 or 500m" if name == "cpu" else "an amount with its unit such as 112Gi"


def _items(node: Node, location: Location, expects: str) -> list[tuple[Node, Location]]:
    if not isinstance(node, Items):
        location.expected(node, expects)
        return []
    return [(item, location.item(index)) for index, item in enumerate(node.nodes)]


def _entries(node: Node, location: Location, expects: str) -> list[tuple[str, Entry, Location]]:
    if not isinstance(node, Table):
        location.expected(node, expects)
        return []
    return [(key, entry, location.key(key)) for key, entry in node.entries.items()]


VERSION = 1
"""The version of the file format that this Spotwright reads."""

REQUIRED = object()
"""Default of a required field."""


class Field(NamedTuple):
    """One key of a mapping. ``shown`` is its default in the words of the reference page."""

    name: str
    expects: str
    read: Reader
    default: Any
    shown: str
    meaning: str


def read_fields(node: Table, location: Location, fields: tuple[Field, ...]) -> dict[str, Any]:
    """Read a mapping by its table of fields. Returns a value for every field: its default if the file does not set it.

    Problems are reported at ``location``; a wrong value is ``None``.
    """
    values = {}
    known = [field.name for field in fields]
    entries = location.entries(node, known)
    for field in fields:
        entry = entries.get(field.name)
        if entry is not None:
            values[field.name] = field.read(entry.node, location.key(field.name), field.expects)
        elif field.default is REQUIRED:
            location.key(field.name).wrong(node.line, f"expected {field.expects}, found nothing: it is required")
        else:
            values[field.name] = field.default
    for key, entry in entries.items():
        if key not in known:
            location.unknown(entry.line, key, known)
    return values


def duration_text(seconds: float) -> str:
    """Write a duration as in the reference page and the file: ``5m``, not ``5m00s``."""
    return format_duration(seconds).replace("m00s", "m")


def _notices() -> str:
    by_length: dict[float, list[str]] = {}
    for provider in PROVIDERS.values():
        by_length.setdefault(provider.notice, []).append(provider.name)
    return "; ".join(f"{duration_text(seconds)} ({', '.join(names)})" for seconds, names in by_length.items())


def _or(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _automatic() -> str:
    return "; ".join(f"`{one.name}` with {one.makes_pools}" for one in PROVIDERS.values() if one.makes_pools)


TOP = (
    Field(
        "version",
        f"the number {VERSION}",
        exactly(VERSION),
        REQUIRED,
        "required",
        "The version of this format.",
    ),
    Field("currency", "a currency code such as USD", currency, "USD", "USD", "Currency of all prices."),
    Field(
        "prices",
        "the path of a price sheet, or a list of them",
        one_or_more,
        (),
        "none",
        "Price sheets for the pools without a `price`: CSV with the columns machine, capacity, price and perhaps currency, "
        "region, zone, os, since; paths relative to this file. The first sheet that has the machine counts.",
    ),
    Field("target", "a mapping", table, None, "none", "The cluster that work is placed for; see below."),
    Field("pools", "a mapping of pools by name", table, None, "the built-in pair", "The pools; see below."),
    Field("policy", "a mapping with default and tasks", table, None, "none", "The policy of tasks; see below."),
    Field(
        "secrets",
        'a mapping such as {db: {password: "@env:DB_PASSWORD"}}',
        document.secrets,
        {},
        "none",
        "Sources on this machine of the values of the cluster's secrets, by name and key: `@env:VARIABLE` or `@file:PATH`; "
        "`@folder:PATH` instead of the keys is a folder with a file for each key. Paths are relative to this file.",
    ),
    Field(
        "config_maps",
        "a mapping such as {settings: {mode: fast}}",
        document.config_maps,
        {},
        "none",
        "The same for config maps, whose values may also be texts.",
    ),
    Field("lint", "a mapping with off", table, None, "none", "What `spotwright lint` leaves out; see below."),
)
"""The keys of the file."""

LINT = (
    Field(
        "off",
        'a mapping such as {no-fallback: "our jobs may wait"}',
        reasons,
        {},
        "none",
        "Rules that are switched off for all files, by their names, each with the reason.",
    ),
)
"""The keys of ``lint``."""

TARGET = (
    Field("kubernetes", "a version such as 1.33", release, None, "the newest", "Version of the cluster."),
    Field(
        "kfp",
        "a version such as 2.17",
        release,
        None,
        "the newest known, 2.17",
        "Version of Kubeflow Pipelines. Messages name the version where it is assumed.",
    ),
    Field(
        "kfp_retries",
        "stock or always",
        one_of("stock", "always"),
        None,
        "stock",
        "Which failures KFP 2.17 and later retry. `stock`: its default manifests, which retry neither errors of the code nor"
        " drained pods. `always`: all failures, after its admin has set what `place` prints.",
    ),
    Field(
        "trainer",
        "a version such as 2.3 (2.2 is the oldest)",
        trainer,
        None,
        "that of the manifest's fields, else the newest",
        "Version of Kubeflow Trainer.",
    ),
    Field(
        "argo",
        "a version such as 4.0 or 3.7.14",
        release,
        None,
        "the newest",
        "Version of Argo Workflows. Its last number matters for inline templates: without it they get no retries on 3.7 and 4.0.",
    ),
    Field("kueue", "a version such as 0.19", release, None, "the newest", "Version of Kueue."),
    Field(
        "autoscaler",
        _or(AUTOSCALERS),
        one_of(*AUTOSCALERS),
        None,
        CLUSTER_AUTOSCALER,
        "The autoscaler that adds nodes to the cluster.",
    ),
    Field(
        "package",
        "embedded, configmap, image, a version (0.1.0), a URL or a path in the image",
        package,
        None,
        "embedded in KFP components, image elsewhere",
        "How pods get `spotwright.checkpoint`. `embedded`: as one file, in the command of KFP components that import it and in a "
        "ConfigMap for other pods. `configmap`: all pods mount a ConfigMap that you make once in their namespace with "
        "`spotwright checkpoint-file --config-map`. `image`: the images have it. A version (of `spotwright-train`) or a URL: pip "
        "installs it at the start of KFP components. A path (a wheel, the file of "
        "`spotwright checkpoint-file`, a folder with the package): it goes into PYTHONPATH.",
    ),
)
"""The keys of ``target``, which ``place`` and ``explain`` read. They ask no cluster: an unset key has its default."""

POOL = (
    Field(
        "capacity",
        "spot or on-demand",
        choice(Capacity),
        REQUIRED,
        "required",
        "Whether the provider may reclaim the nodes.",
    ),
    Field(
        "provider",
        _or(PROVIDERS),
        one_of(*PROVIDERS),
        GENERIC,
        GENERIC,
        "Provider whose labels, taints and notice the nodes have in addition to the ones set here; generic: none.",
    ),
    Field(
        "automatic",
        "true or false",
        truth,
        False,
        "false",
        f"Whether the provider makes the node pools by itself and names them: {_automatic()}. Work is placed there by capacity,"
        " never by pool name.",
    ),
    Field(
        "machine",
        "a machine type such as Standard_NC6s_v3",
        words,
        "",
        "none",
        "The provider's machine type.",
    ),
    Field("zones", 'a list of zones such as ["1"]', texts, (), "none", "The zones the nodes may be in."),
    Field(
        "region",
        "a region such as eastus",
        words,
        "",
        "that of the zones",
        "The provider's region, for which a price sheet has the price; AKS writes it before the number of a zone on its nodes "
        "(`eastus-1`).",
    ),
    Field(
        "os",
        "linux or windows",
        one_of("linux", "windows"),
        "linux",
        "linux",
        "The operating system, for which a price sheet has the price.",
    ),
    Field(
        "node",
        "a mapping such as {cpu: 6, memory: 112Gi, nvidia.com/gpu: 1}",
        resources,
        None,
        "that of a pool with the same machine",
        "Resources of one node. Where no pool with the same machine has them either, a node runs one attempt at a time, "
        "whatever the attempt requests. An unspecified CPU, memory or ephemeral-storage size is unlimited; any other "
        "unspecified resource (GPUs) is zero.",
    ),
    Field("min_nodes", "a whole number, 0 or more", whole, 0, "0", "Number of nodes that always exist."),
    Field("max_nodes", "a whole number, 0 or more", whole, 10, "10", "Maximum number of nodes."),
    Field(
        "labels",
        'a mapping of texts such as {gpu: "true"}',
        labels,
        {},
        "none",
        "Labels of the nodes beside those that the provider sets.",
    ),
    Field(
        "taints",
        'a list such as ["sku=gpu:NoSchedule"]',
        taints,
        (),
        "none",
        "Taints of the nodes beside those that the provider sets: `key=value:Effect` or `key:Effect`.",
    ),
    Field(
        "price",
        "an amount per hour such as 0.97/h",
        price,
        None,
        "none",
        "Price of one node. Default: that of a price sheet in `prices`. Without prices figures are node-hours.",
    ),
    Field(
        "max_price",
        "an amount per hour such as 1.20/h",
        price,
        None,
        "none",
        "Spot pools only: the maximum price of a node. A pool whose `price` is higher is on no ladder; while the prices in its "
        "`trace` are higher, its nodes are reclaimed and none is available.",
    ),
    Field(
        "notice",
        "a duration such as 30s",
        duration,
        None,
        _notices(),
        "Time between the provider's notice and the end of a node; `0s`: nodes are reclaimed without a notice.",
    ),
    Field(
        "max_lifetime",
        "a duration such as 24h, more than 0",
        positive_duration,
        None,
        "no limit",
        "Maximum age of a node, at which the provider reclaims it.",
    ),
    Field(
        "boot",
        "a duration such as 90s",
        duration,
        EXPECTED_BOOT,
        duration_text(EXPECTED_BOOT),
        "Expected time until a new node is ready. Deadlines leave room for it until a run has seen a node of the pool boot; a "
        "local run has it from `simulate`.",
    ),
    Field(
        "create_flags",
        "a mapping such as {vnet-subnet-id: SUBNET, node-osdisk-size: 200}",
        create_flags,
        {},
        "none",
        "More settings with which `spotwright pools command` makes the pool, by the names that the provider's tool has for them: "
        "flags of `az`, `gcloud` and `aws` without their dashes, fields of a node group (eksctl) or of a node class (Karpenter). "
        "`true` is a flag without a value. They have no other use.",
    ),
    Field(
        "simulate",
        "a mapping such as {interrupt_every: 20s}",
        table,
        None,
        "see below",
        "Settings of local and simulated runs; a cluster ignores them.",
    ),
)
"""The keys of a pool."""

_SIMULATE = Simulate()
SIMULATE = (
    Field(
        "boot",
        "a duration such as 2s",
        duration,
        _SIMULATE.boot,
        duration_text(_SIMULATE.boot),
        "Time until a new node is ready.",
    ),
    Field(
        "interrupt_every",
        "a duration such as 20s, more than 0",
        positive_duration,
        None,
        "never",
        "Spot pools only: the mean time between two interruptions of a node.",
    ),
    Field(
        "expected_duration",
        "a duration such as 1h, more than 0",
        positive_duration,
        None,
        "interrupt_every",
        "Beside `interrupt_every`: assumed duration of a whole attempt that reports its progress, so that an interruption "
        "comes at a share of its work.",
    ),
    Field(
        "trace",
        "the path of a recorded trace",
        words,
        None,
        "none",
        "Spot pools only, instead of `interrupt_every`: a recording, its path relative to this file; "
        '`{"metadata": {"gap_seconds": 300}, "data": [4, 4, 3]}` gives the number of available nodes for each 300 '
        "seconds. `prices`, beside `data`, may give the price of a node for each number.",
    ),
    Field(
        "start",
        "a duration such as 6h",
        duration,
        _SIMULATE.start,
        "0s",
        "Beside `trace`: time in the recording at which a run begins.",
    ),
    Field(
        "drain",
        "at-notice or before-end",
        choice(Drain),
        _SIMULATE.drain,
        str(_SIMULATE.drain),
        "Time of SIGTERM: at the notice, or at the end of the notice minus the grace period.",
    ),
)
"""The keys of a pool's ``simulate``. Durations are in simulated time."""
