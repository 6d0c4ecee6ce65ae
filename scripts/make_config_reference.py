"""The reference of ``spotwright.yaml``, from the field tables of its loader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spotwright.config import FILE_NAME
from spotwright.config.fields import LINT, POOL, SIMULATE, TARGET, TOP, Field, duration_text
from spotwright.config.sections import POLICY, POLICY_MEANINGS
from spotwright.model.policy import BUILT_IN, FIELDS

__all__ = ["page"]

_INTRODUCTION = f"""# Configuration: {FILE_NAME}

A run uses the file named with `--config`, else `{FILE_NAME}` beside the pipeline, else the nearest one in the folders above it
up to the root of the repository (the folder that holds `.git`); the run reports a file from above. Outside a repository only
the pipeline's folder counts. From Python, `config` may be a mapping in the shape of the file. Without a configuration, a
built-in pair of pools is used with `spot: prefer`, and the run says so. The file is read once when a run starts and stored with
it.

```yaml
version: 1
currency: USD
target: {{kubernetes: "1.33", autoscaler: cluster-autoscaler}}
pools:
  gpu-spot:
    capacity: spot
    provider: aks
    machine: Standard_NC6s_v3
    zones: ["1"]
    node: {{cpu: 6, memory: 112Gi, nvidia.com/gpu: 1}}
    max_nodes: 4
    labels: {{gpu: "true"}}
    taints: ["sku=gpu:NoSchedule"]
    price: 0.97/h
    simulate: {{interrupt_every: 20s}}
  gpu: {{capacity: on-demand, provider: aks, machine: Standard_NC6s_v3, max_nodes: 2, price: 3.06/h}}
policy:
  default:
    spot: prefer
    interruptions: {{max: 10, backoff: 1s}}
    errors: {{retries: 1}}
  tasks:
    "**/train*": {{fall_back_after: 3, timeout: 1h, checkpoint: pvc://checkpoints}}
    "deploy": {{spot: never}}
```

Durations are written `500ms`, `30s`, `5m`, `1h30m` or `2d`, a bare number is seconds; amounts of cpu and memory as Kubernetes
writes them. Anchors, aliases and merge keys (`<<`) of YAML may be used, types (`!!`) may not. Unknown and duplicate keys and
invalid values are refused before anything starts, up to ten at once, each with its line.
"""

_POOLS = """A pool is nodes of one kind: a node pool on AKS and GKE, a node group on EKS. Its name is up to 63 lower-case
letters, digits and `-`. Without `pools`, the built-in pair is used, with `spot: prefer` unless there is a `policy.default`.
"""

_POLICY = """The same fields stand under `policy.default` and under each pattern of `policy.tasks`. Precedence of values:
command line, `policy.tasks`, the pipeline's own (`spot.prefer` and the like), KFP's settings (`set_retry`, `set_timeout`),
`policy.default`, built in. A file with pools but without a `policy` adds no placement.
"""

_PATTERNS = """A pattern is compared with the whole path of a task in its run, such as `train` or `loop/train-3`. `*` stands for
any characters within one name, `**` for any characters at all, and `**/` also for nothing: `**/train*` matches `train` and
`loop/train-3`. A plain name, without `*` and `/`, also matches a task of that name inside loops, conditions and nested pipelines:
`train` matches `loop/train`. Write patterns that begin with `*` in quotes. If several match, the later line wins, key by key.

`run` and `plan` refuse a pattern that matches no task, with the nearest name; `place` warns. Pipelines with different tasks in
one folder need separate files, named with `--config`.

A task in a loop has its iteration in its path, counted from zero. `loop/train`, without a number, means every iteration of it.
A loop, condition or exit handler is called by its name in the pipeline, as in `dsl.ParallelFor(items, name="loop")`, else by
the SDK's, such as `for-loop-1`. `spotwright show` lists the paths of a run.
"""


def page() -> str:
    """The whole reference page."""
    sections = [
        _INTRODUCTION,
        "## The file\n\n" + _table(TOP),
        "## `target`\n\nClusters are not asked: unset keys have their defaults.\n\n" + _table(TARGET),
        f"## `pools.NAME`\n\n{_POOLS}\n" + _table(POOL),
        "## `pools.NAME.simulate`\n\nDurations are simulated time.\n\n" + _table(SIMULATE),
        f"## `policy`\n\n{_POLICY}\n" + _table(POLICY),
        "### Fields of a policy\n\nA name with a dot is a key within a mapping: `interruptions: {max: 10}`.\n\n"
        + _policy_table(),
        f"### Patterns\n\n{_PATTERNS}",
        "## `lint`\n\nComments in a file allow single findings: [Lint](../how-to/lint.md).\n\n" + _table(LINT),
    ]
    return "\n".join(sections)


def _table(fields: Iterable[Field]) -> str:
    return _rows((field.name, field.expects, field.shown, field.meaning) for field in fields)


def _policy_table() -> str:
    return _rows((name, expects, _default(name), POLICY_MEANINGS[name]) for name, expects in FIELDS.items())


def _default(name: str) -> str:
    said = {
        "ladder": "fitting spot pools by price, then on-demand pools by price",
        "fall_back_after": "`interruptions.max`",
    }
    if name not in BUILT_IN.values:
        return said.get(name, "none")
    value = BUILT_IN.values[name]
    return duration_text(value) if "duration" in FIELDS[name] else f"{value:g}"


def _rows(rows: Iterable[tuple[str, str, str, str]]) -> str:
    def lines() -> Iterator[str]:
        yield "| key | value | default | meaning |"
        yield "|---|---|---|---|"
        for name, expects, default, meaning in rows:
            yield f"| `{name}` | {expects} | {default} | {meaning} |"

    return "".join(f"{line}\n" for line in lines())
