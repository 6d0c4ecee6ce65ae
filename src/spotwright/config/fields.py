"""Every field of ``spotwright.yaml``, once: its name, what it expects, its default, its meaning, and the reader that checks it.

Reading, the error messages and the reference page (``docs/reference/configuration.md``) are all made from these tables. The
policy's fields are the model's (:data:`spotwright.model.policy.FIELDS`), because they are written in other places too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spotwright.clouds import default_notice
from spotwright.config import keyed, readers
from spotwright.config.nodes import Table
from spotwright.config.problems import Place
from spotwright.config.readers import Reader
from spotwright.model.pools import Capacity, Drain, Provider, Simulate
from spotwright.model.quantities import format_duration

__all__ = [
    "POLICY",
    "POLICY_MEANINGS",
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
"""The default of a field that must be there."""


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a mapping. ``shown`` is its default as the reference page says it."""

    name: str
    expects: str
    read: Reader
    default: Any
    shown: str
    meaning: str


def read_fields(node: Table, place: Place, fields: tuple[Field, ...]) -> dict[str, Any]:
    """Read a mapping by its table of fields: a value for every field, its default where the file says nothing.

    What is wrong is noted at ``place``; a value that is wrong is ``None``.
    """
    values = {}
    for field in fields:
        entry = node.entries.get(field.name)
        if entry is not None:
            values[field.name] = field.read(entry.node, place.key(field.name), field.expects)
        elif field.default is REQUIRED:
            place.key(field.name).wrong(node.line, f"expected {field.expects}, found nothing: it is required")
        else:
            values[field.name] = field.default
    known = [field.name for field in fields]
    for key, entry in node.entries.items():
        if key not in known:
            place.unknown(entry.line, key, known)
    return values


def duration_text(seconds: float) -> str:
    """A duration as the reference page and the file write it: ``5m``, not ``5m00s``."""
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
    Field("currency", "a currency code such as USD", readers.currency, "USD", "USD", "What prices are in."),
    Field("target", "a mapping", readers.table, None, "nothing", "The cluster the work is meant for; see below."),
    Field("pools", "a mapping of pools by name", readers.table, None, "the built-in pair", "The pools; see below."),
    Field("policy", "a mapping with default and tasks", readers.table, None, "nothing", "What is wanted; see below."),
    Field(
        "secrets",
        'a mapping such as {db: {password: "@env:DB_PASSWORD"}}',
        keyed.secrets,
        {},
        "none",
        "What stands on this machine for the cluster's secrets, by name and key: `@env:VARIABLE` or `@file:PATH`; "
        "`@folder:PATH` in the place of the keys is a folder with a file for each. Paths are relative to this file.",
    ),
    Field(
        "config_maps",
        "a mapping such as {settings: {mode: fast}}",
        keyed.config_maps,
        {},
        "none",
        "The same for its config maps, whose values may also be texts.",
    ),
)
"""The keys of the file."""

TARGET = (
    Field("kubernetes", "a version such as 1.33", readers.release, None, "detected", "Version of the cluster."),
    Field("kfp", "a version such as 2.17", readers.release, None, "detected", "Version of Kubeflow Pipelines."),
    Field("trainer", "a version such as 2.2", readers.release, None, "detected", "Version of Kubeflow Trainer."),
    Field("argo", "a version such as 4.0", readers.release, None, "detected", "Version of Argo Workflows."),
    Field(
        "autoscaler",
        "cluster-autoscaler or karpenter",
        readers.one_of("cluster-autoscaler", "karpenter"),
        None,
        "detected",
        "What adds nodes to the cluster.",
    ),
)
"""The keys of ``target``. What is not said is detected where a cluster is at hand."""

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
        "Whose labels, taints and notice the nodes carry beside those said here; generic: none.",
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
        "node",
        "a mapping such as {cpu: 6, memory: 112Gi, nvidia.com/gpu: 1}",
        readers.resources,
        None,
        "that of a pool with the same machine",
        "What one node offers. Where no pool with the same machine says it either, a node takes one attempt at a time, "
        "whatever it asks for.",
    ),
    Field("min_nodes", "a whole number, 0 or more", readers.whole, 0, "0", "Nodes that are always there."),
    Field("max_nodes", "a whole number, 0 or more", readers.whole, 10, "10", "Nodes there may be at most."),
    Field(
        "labels",
        'a mapping of texts such as {gpu: "true"}',
        readers.labels,
        {},
        "none",
        "Labels of the nodes beside those the provider sets.",
    ),
    Field(
        "taints",
        'a list such as ["sku=gpu:NoSchedule"]',
        readers.taints,
        (),
        "none",
        "Taints of the nodes beside those the provider sets: `key=value:Effect` or `key:Effect`.",
    ),
    Field(
        "price",
        "an amount per hour such as 0.97/h",
        readers.price,
        None,
        "nothing",
        "Price of one node. Without prices figures are node-hours.",
    ),
    Field(
        "max_price",
        "an amount per hour such as 1.20/h",
        readers.price,
        None,
        "nothing",
        "Spot pools only: the highest price that is paid.",
    ),
    Field(
        "notice",
        "a duration such as 30s",
        readers.duration,
        None,
        _notices(),
        "How long before it takes a node the provider says so; `0s`: it takes them without a word.",
    ),
    Field(
        "lifetime",
        "a duration such as 24h, more than 0",
        readers.positive_duration,
        None,
        "no limit",
        "How old a node gets at most; it is then taken like any other.",
    ),
    Field(
        "simulate",
        "a mapping such as {taken_every: 20s}",
        readers.table,
        None,
        "see below",
        "Read by the local and simulated worlds only.",
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
        "How long a new node takes to be ready.",
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
        "Beside `taken_every`: how long a whole attempt that reports its progress is taken to be, so that an interruption "
        "comes at a share of its work.",
    ),
    Field(
        "trace",
        "the path of a recorded trace",
        readers.words,
        None,
        "none",
        "Spot pools only, instead of `taken_every`: a recording, its path relative to this file; "
        '`{"metadata": {"gap_seconds": 300}, "data": [4, 4, 3]}` says how many nodes could be had every 300 seconds.',
    ),
    Field(
        "start",
        "a duration such as 6h",
        readers.duration,
        _SIMULATE.start,
        "0s",
        "Beside `trace`: where in the recording a run begins.",
    ),
    Field(
        "drain",
        "at-notice or before-end",
        readers.choice(Drain),
        _SIMULATE.drain,
        str(_SIMULATE.drain),
        "When SIGTERM comes: at the notice, or at the end of the notice minus the grace period.",
    ),
)
"""The keys of ``simulate`` of a pool. Its durations are of the simulated world."""

POLICY = (
    Field("default", "a mapping of policy fields", readers.table, None, "nothing", "What holds for every task."),
    Field(
        "tasks",
        "a mapping of policies by pattern",
        readers.table,
        None,
        "nothing",
        "What holds for the tasks whose path matches the pattern; the later line wins, key by key.",
    ),
)
"""The keys of ``policy``."""

POLICY_MEANINGS: Mapping[str, str] = {
    "spot": "Spot only, spot first, or on-demand only. Where nobody says it, nothing is added: the task goes where its own "
    "settings let it.",
    "ladder": "The pools an attempt may use, in this order.",
    "interruptions.max": "How often a task may be interrupted. An interruption never counts as an error.",
    "interruptions.backoff": "The wait before an attempt that returns to the pool it was taken from.",
    "interruptions.factor": "How much longer each further wait is.",
    "interruptions.ceiling": "The longest wait.",
    "errors.retries": "How often a task may fail and be tried again. An error never counts as an interruption.",
    "errors.backoff": "The wait after an error.",
    "errors.factor": "How much longer each further wait is.",
    "errors.ceiling": "The longest wait.",
    "fall_back_after": "After so many interruptions the task goes to on-demand and stays there. Only with `spot: prefer`.",
    "pending_timeout": "How long an attempt waits for a node of one pool before the next pool is tried.",
    "deadline": "When the work must be done. It then decides which pool, instead of `fall_back_after` and `pending_timeout`.",
    "work": "How long the task takes; a deadline is planned with it.",
    "grace_period": "How long the code has between SIGTERM and SIGKILL.",
    "timeout": "How long one attempt may take.",
    "checkpoint": "Where the code keeps its checkpoints; it finds it in the environment variable SPOTWRIGHT_CHECKPOINT.",
    "image_pull_secrets": "Secrets that the cluster pulls the image with.",
}
"""What each policy field means."""
