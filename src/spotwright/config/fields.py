"""Tables of the fields of ``spotwright.yaml``: name, expected value, default, meaning, and the reader that checks the value.

Reading, error messages and the reference page (``docs/reference/configuration.md``) are made from these tables. Those of the
policy are in :mod:`spotwright.config.policy_fields`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from spotwright.clouds.providers import default_notice
from spotwright.config import readers, secret_refs
from spotwright.config.problems import Location
from spotwright.config.readers import Reader
from spotwright.config.yaml_nodes import Table
from spotwright.model.pools import EXPECTED_BOOT, Capacity, Drain, Provider, Simulate
from spotwright.model.quantities import format_duration

__all__ = [
    "LINT",
    "POOL",
    "REQUIRED",
    "SIMULATE",
    "TARGET",
    "TOP",
    "VERSION",
    "Field",
    "duration_text",
    "read_fields",
]

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
    for field in fields:
        entry = node.entries.get(field.name)
        if entry is not None:
            values[field.name] = field.read(entry.node, location.key(field.name), field.expects)
        elif field.default is REQUIRED:
            location.key(field.name).wrong(node.line, f"expected {field.expects}, found nothing: it is required")
        else:
            values[field.name] = field.default
    known = [field.name for field in fields]
    for key, entry in node.entries.items():
        if key not in known:
            location.unknown(entry.line, key, known)
    return values


def duration_text(seconds: float) -> str:
    """Write a duration as in the reference page and the file: ``5m``, not ``5m00s``."""
    return format_duration(seconds).replace("m00s", "m")


def _notices() -> str:
    by_length: dict[float, list[str]] = {}
    for provider in Provider:
        by_length.setdefault(default_notice(provider), []).append(str(provider))
    return "; ".join(f"{duration_text(seconds)} ({', '.join(names)})" for seconds, names in by_length.items())


TOP = (
    Field(
        "version",
        f"the number {VERSION}",
        readers.exactly(VERSION),
        REQUIRED,
        "required",
        "The version of this format.",
    ),
    Field("currency", "a currency code such as USD", readers.currency, "USD", "USD", "Currency of all prices."),
    Field(
        "prices",
        "the path of a price sheet, or a list of them",
        readers.one_or_more,
        (),
        "none",
        "Price sheets for the pools without a `price`: what Azure, AWS or Google Cloud publish, answer or export, as JSON or "
        "CSV; paths relative to this file. The first sheet that has the machine counts.",
    ),
    Field("target", "a mapping", readers.table, None, "nothing", "The cluster that work is placed for; see below."),
    Field("pools", "a mapping of pools by name", readers.table, None, "the built-in pair", "The pools; see below."),
    Field(
        "policy", "a mapping with default and tasks", readers.table, None, "nothing", "The policy of tasks; see below."
    ),
    Field(
        "secrets",
        'a mapping such as {db: {password: "@env:DB_PASSWORD"}}',
        secret_refs.secrets,
        {},
        "none",
        "Sources on this machine of the values of the cluster's secrets, by name and key: `@env:VARIABLE` or `@file:PATH`; "
        "`@folder:PATH` instead of the keys is a folder with a file for each key. Paths are relative to this file.",
    ),
    Field(
        "config_maps",
        "a mapping such as {settings: {mode: fast}}",
        secret_refs.config_maps,
        {},
        "none",
        "The same for config maps, whose values may also be texts.",
    ),
    Field(
        "lint", "a mapping with off", readers.table, None, "nothing", "What `spotwright lint` leaves out; see below."
    ),
)
"""The keys of the file."""

LINT = (
    Field(
        "off",
        'a mapping such as {no-fallback: "our jobs may wait"}',
        readers.reasons,
        {},
        "none",
        "Rules that are switched off for all files, by their names, each with the reason.",
    ),
)
"""The keys of ``lint``."""

TARGET = (
    Field("kubernetes", "a version such as 1.33", readers.release, None, "the newest", "Version of the cluster."),
    Field(
        "kfp",
        "a version such as 2.17",
        readers.release,
        None,
        "the newest known, 2.17",
        "Version of Kubeflow Pipelines. Messages name the version where it is assumed.",
    ),
    Field(
        "kfp_retries",
        "stock or always",
        readers.one_of("stock", "always"),
        None,
        "stock",
        "Which endings KFP 2.17 and later retry. `stock`: those of its manifests, which are neither errors of the code nor "
        "drained pods. `always`: every ending, after its admin has set what `place` prints.",
    ),
    Field(
        "trainer",
        "a version such as 2.2",
        readers.release,
        None,
        "that of the manifest's fields, else the newest",
        "Version of Kubeflow Trainer.",
    ),
    Field(
        "argo",
        "a version such as 4.0 or 3.7.14",
        readers.release,
        None,
        "the newest",
        "Version of Argo Workflows. Its last number matters for inline templates: without it they get no retries on 3.7 and 4.0.",
    ),
    Field("kueue", "a version such as 0.19", readers.release, None, "the newest", "Version of Kueue."),
    Field(
        "autoscaler",
        "cluster-autoscaler or karpenter",
        readers.one_of("cluster-autoscaler", "karpenter"),
        None,
        "cluster-autoscaler",
        "The autoscaler that adds nodes to the cluster.",
    ),
    Field(
        "package",
        "embedded, configmap, image, a version (0.1.0), a URL or a path in the image",
        readers.package,
        None,
        "embedded in KFP components, image elsewhere",
        "How pods get `spotwright.checkpoint`. `embedded`: as one file, in the command of KFP components that import it and in a "
        "ConfigMap for other pods. `configmap`: all pods mount a ConfigMap that you make once in their namespace with "
        "`spotwright checkpoint-file --config-map`. `image`: the images have it. A version or a URL: pip installs it at the "
        "start of KFP components. A path (a wheel, the file of `spotwright checkpoint-file`, a folder with the package): it goes "
        "into PYTHONPATH.",
    ),
)
"""The keys of ``target``, which ``place`` and ``explain`` read. No cluster is asked: a key that is not set has its default."""

POOL = (
    Field(
        "capacity",
        "spot or on-demand",
        readers.choice(Capacity),
        REQUIRED,
        "required",
        "Whether the provider may take the nodes away.",
    ),
    Field(
        "provider",
        "aks, gke, eks, karpenter or generic",
        readers.choice(Provider),
        Provider.GENERIC,
        "generic",
        "Provider whose labels, taints and notice the nodes have beside those set here; generic: none.",
    ),
    Field(
        "machine",
        "a machine type such as Standard_NC6s_v3",
        readers.words,
        "",
        "nothing",
        "The provider's machine type.",
    ),
    Field("zones", 'a list of zones such as ["1"]', readers.texts, (), "nothing", "The zones the nodes may be in."),
    Field(
        "region",
        "a region such as eastus",
        readers.words,
        "",
        "that of the zones",
        "The provider's region, for which a price sheet has the price; AKS writes it before the number of a zone on its nodes "
        "(`eastus-1`).",
    ),
    Field(
        "os",
        "linux or windows",
        readers.one_of("linux", "windows"),
        "linux",
        "linux",
        "The operating system, for which a price sheet has the price.",
    ),
    Field(
        "node",
        "a mapping such as {cpu: 6, memory: 112Gi, nvidia.com/gpu: 1}",
        readers.resources,
        None,
        "that of a pool with the same machine",
        "Resources of one node. Where no pool with the same machine has them either, a node runs one attempt at a time, "
        "whatever the attempt requests. CPU, memory and ephemeral storage that a size does not name bound nothing; other "
        "resources (GPUs) that it does not name are not there.",
    ),
    Field("min_nodes", "a whole number, 0 or more", readers.whole, 0, "0", "Number of nodes that always exist."),
    Field("max_nodes", "a whole number, 0 or more", readers.whole, 10, "10", "Maximum number of nodes."),
    Field(
        "labels",
        'a mapping of texts such as {gpu: "true"}',
        readers.labels,
        {},
        "none",
        "Labels of the nodes beside those that the provider sets.",
    ),
    Field(
        "taints",
        'a list such as ["sku=gpu:NoSchedule"]',
        readers.taints,
        (),
        "none",
        "Taints of the nodes beside those that the provider sets: `key=value:Effect` or `key:Effect`.",
    ),
    Field(
        "price",
        "an amount per hour such as 0.97/h",
        readers.price,
        None,
        "nothing",
        "Price of one node. Default: that of a price sheet in `prices`. Without prices figures are node-hours.",
    ),
    Field(
        "max_price",
        "an amount per hour such as 1.20/h",
        readers.price,
        None,
        "nothing",
        "Spot pools only: the maximum price of a node. A pool whose `price` is higher is on no ladder; while the prices in its "
        "`trace` are higher, its nodes are taken and none is available.",
    ),
    Field(
        "notice",
        "a duration such as 30s",
        readers.duration,
        None,
        _notices(),
        "Time between the provider's notice and the end of a node; `0s`: nodes are taken without a notice.",
    ),
    Field(
        "lifetime",
        "a duration such as 24h, more than 0",
        readers.positive_duration,
        None,
        "no limit",
        "Maximum age of a node, at which the provider takes it.",
    ),
    Field(
        "boot",
        "a duration such as 90s",
        readers.duration,
        EXPECTED_BOOT,
        duration_text(EXPECTED_BOOT),
        "Expected time until a new node is ready. Deadlines leave room for it until a run has seen a node of the pool boot; a "
        "local run has it from `simulate`.",
    ),
    Field(
        "create_flags",
        "a mapping such as {vnet-subnet-id: SUBNET, node-osdisk-size: 200}",
        readers.create_flags,
        {},
        "none",
        "More settings with which `spotwright pools command` makes the pool, by the names that the provider's tool has for them: "
        "flags of `az`, `gcloud` and `aws` without their dashes, fields of a node group (eksctl) or of a node class (Karpenter). "
        "`true` is a flag without a value. Nothing else reads them.",
    ),
    Field(
        "simulate",
        "a mapping such as {taken_every: 20s}",
        readers.table,
        None,
        "see below",
        "Settings of the local and simulated worlds; a cluster ignores them.",
    ),
)
"""The keys of a pool."""

_SIMULATE = Simulate()
SIMULATE = (
    Field(
        "boot",
        "a duration such as 2s",
        readers.duration,
        _SIMULATE.boot,
        duration_text(_SIMULATE.boot),
        "Time until a new node is ready.",
    ),
    Field(
        "taken_every",
        "a duration such as 20s, more than 0",
        readers.positive_duration,
        None,
        "never",
        "Spot pools only: the mean time between two interruptions of a node.",
    ),
    Field(
        "work",
        "a duration such as 1h, more than 0",
        readers.positive_duration,
        None,
        "taken_every",
        "Beside `taken_every`: assumed duration of a whole attempt that reports its progress, so that an interruption "
        "comes at a share of its work.",
    ),
    Field(
        "trace",
        "the path of a recorded trace",
        readers.words,
        None,
        "none",
        "Spot pools only, instead of `taken_every`: a recording, its path relative to this file; "
        '`{"metadata": {"gap_seconds": 300}, "data": [4, 4, 3]}` gives the number of available nodes for each 300 '
        "seconds. `prices`, beside `data`, may give the price of a node for each number.",
    ),
    Field(
        "start",
        "a duration such as 6h",
        readers.duration,
        _SIMULATE.start,
        "0s",
        "Beside `trace`: time in the recording at which a run begins.",
    ),
    Field(
        "drain",
        "at-notice or before-end",
        readers.choice(Drain),
        _SIMULATE.drain,
        str(_SIMULATE.drain),
        "Time of SIGTERM: at the notice, or at the end of the notice minus the grace period.",
    ),
)
"""The keys of ``simulate`` of a pool. Durations are in the time of the simulated world."""
