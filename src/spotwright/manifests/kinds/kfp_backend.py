"""What Kubeflow Pipelines does with a pod that was taken away, by the version of its backend, and what its admin can change.

A compiled pipeline has a count and waits, but no word on which endings are retried: that is Argo's default, or what the
installation's manifests say. As read from kubeflow/pipelines (``argocompiler/container.go``, ``argocompiler/spec_patch.go``, the
manifests since #13485) and argo-workflows (``operator.go``), not seen on a cluster. Issues: kubeflow/pipelines #4333, #11309,
#12389, #13386, #14266.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from spotwright import clouds
from spotwright.model.placing import Taint
from spotwright.model.pools import Pool

__all__ = ["admin_notes", "after_interruption"]

_MERGED = (2, 17)  # since its manifests the controller merges retryPolicy OnError into every template


def after_interruption(target: Mapping[str, str], tries: int, *, loops: bool) -> str:
    """What happens to a task whose pod is taken away; ``tries``: how often it may be started again."""
    version = _version(target)
    if not tries:
        said = "the task fails: nothing starts it again"
    elif version is None:
        said = (
            f"it is started again, {tries} times at most, errors counted with it; after which endings depends on the backend "
            "(up to 2.16 failed pods, from 2.17 on deleted ones; set target.kfp in spotwright.yaml)"
        )
    elif version < _MERGED:
        said = (
            f"a pod that failed (evicted, its node shut down with notice) is started again, {tries} times at most, errors "
            "counted with it; one that was deleted (its node drained or gone: 'pod deleted') is not, and the task fails"
        )
    else:
        said = (
            f"a pod that was deleted (its node drained or gone) is started again, {tries} times at most; one that failed is "
            "not (an eviction with a message, exit code 143, an error of the code), because the manifests of 2.17 and later "
            "merge retryPolicy OnError into every template"
        )
    return f"{said}. Iterations of a loop are not started again at all (kubeflow/pipelines#12389)" if loops else said


def admin_notes(pools: Iterable[Pool]) -> tuple[str, ...]:
    """What an installation can change, ready to paste: which endings are retried, and where driver pods may run."""
    patch: dict[str, object] = {"templateDefaults": {"retryStrategy": {"limit": "0", "retryPolicy": "Always"}}}
    tolerations = [_toleration(taint) for taint in _spot_taints(pools)]
    lines = [
        "for Kubeflow Pipelines, by its admin (backends since the end of 2025):",
        "  # every ending is retried as often as a task says, and a task that says nothing is not retried:",
        f"  {_command(patch)}",
        "  # a pipeline cannot place its driver pods, of which every task has one: they tolerate nothing, so they stay off",
        "  # tainted pools, and nothing keeps them off others.",
    ]
    if tolerations:
        lines += [
            "  # Where every pool is tainted, this instead lets them start:",
            f"  {_command({**patch, 'tolerations': tolerations})}",
        ]
    return ("\n".join(lines),)


def _version(target: Mapping[str, str]) -> tuple[int, int] | None:
    parts = str(target.get("kfp", "")).removeprefix("v").split(".")
    if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit():
        return int(parts[0]), int(parts[1])
    return None


def _command(patch: Mapping[str, object]) -> str:
    value = json.dumps(patch, separators=(",", ":"))
    return f"kubectl -n kubeflow set env deployment/ml-pipeline COMPILED_PIPELINE_SPEC_PATCH='{value}'"


def _spot_taints(pools: Iterable[Pool]) -> list[Taint]:
    taints = (
        taint for pool in pools if pool.is_spot for taint in clouds.taints(pool) if clouds.is_spot_taint(pool, taint)
    )
    return list(dict.fromkeys(taints))


def _toleration(taint: Taint) -> dict[str, str]:
    operator = {"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"}
    return {"key": taint.key, **operator, "effect": taint.effect}
