"""What the backend of Kubeflow Pipelines does after each kind of ending, by its version, and the settings an admin can change.

A compiled pipeline has a count of retries and their backoff, but cannot choose which endings are retried: that is Argo's
default, or a setting of the installation. Seen on KFP 2.16.1 (Argo 3.7.3) and 2.17.0 (Argo 4.0.5), on real nodes: the endings
of :func:`after_interruption`, and both forms of an affinity that changes with the attempt (:attr:`Backend.attempt_guard`). Read
in kubeflow/pipelines (``argocompiler/container.go``, ``argocompiler/spec_patch.go``, the manifests since #13485): the versions
between which the behaviour changes. Issues: kubeflow/pipelines #4333, #11309, #13386, #14266.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spotwright.clouds import providers
from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Taint

__all__ = ["Backend", "admin_notes", "after_interruption", "backend_of", "lost_nodes_note", "stock_warning"]

_OLDEST_SEEN = (2, 15)  # the oldest release whose Argo, 3.7.3, was seen to change an affinity with the attempt
_MERGED = (2, 17)  # its manifests merge retryPolicy OnError into every template
_SEEN_BEFORE, _SEEN = "2.16.1", "2.17.0"
_PATCH: Mapping[str, object] = {"templateDefaults": {"retryStrategy": {"limit": "0", "retryPolicy": "Always"}}}


@dataclass(frozen=True, slots=True)
class Backend:
    """An installation of Kubeflow Pipelines. ``is_patched``: its admin has set that every ending is retried."""

    version: tuple[int, int]
    is_assumed: bool
    is_patched: bool

    @property
    def is_stock(self) -> bool:
        """Whether its configuration retries only endings that Argo calls Error: no error of the code, and no drained pod."""
        return self.version >= _MERGED and not self.is_patched

    @property
    def source(self) -> str:
        """The source of the facts about it: the release on which they were seen, and whether they are assumed for this one."""
        seen = _SEEN_BEFORE if self.version < _MERGED else _SEEN
        configuration = ", stock configuration" if self.is_stock else ""
        configuration = ", retryPolicy Always" if self.is_patched else configuration
        own = f"{self.version[0]}.{self.version[1]}"
        assumed = "" if seen.startswith(f"{own}.") else f"; assumed for {own} too"
        if self.is_assumed:
            assumed = f"; target.kfp is not set, so {own} is assumed"
        return f"seen on KFP {seen}{configuration}{assumed}"

    @property
    def attempt_guard(self) -> str | None:
        """The beginning of an expression over ``retries`` in a pod's settings; ``None`` if the backend does not evaluate one.

        Where every template has a retry strategy, drivers and DAGs would replace ``retries`` by their own 0 before the pod's
        template can, unless the expression is nil there. Seen: without the guard on 2.16.1, with it on 2.17.0.
        """
        if self.version < _OLDEST_SEEN:
            return None
        if self.version < _MERGED and not self.is_patched:
            return ""
        return "inputs.parameters['retry-max-count'] == nil || inputs.parameters['cached-decision'] != nil ? nil : "


def backend_of(target: Mapping[str, str]) -> Backend:
    """The backend for which pipelines are placed: that of ``target``, or the newest known one."""
    parts = str(target.get("kfp", "")).removeprefix("v").split(".")
    is_known = len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit()
    version = (int(parts[0]), int(parts[1])) if is_known else _MERGED
    return Backend(version, is_assumed=not is_known, is_patched=target.get("kfp_retries") == "always")


def after_interruption(backend: Backend, tries: int) -> str:
    """What an interruption does to a task; ``tries``: how often the task may be retried."""
    lost = "a lost node: the same attempt again, not counted, so interruptions.max holds nothing there"
    if not tries:
        moved = "a drain or a delete: the task fails, it has no retries"
    elif backend.is_stock:
        moved = "a drain or a delete: the task fails with exit code 143, whatever its retries"
    else:
        moved = f"a drain or a delete: tried again, at most {tries} times, errors counted too"
    return f"{lost}; {moved} ({backend.source})"


def lost_nodes_note(backend: Backend) -> str:
    """The note that no budget holds for lost nodes."""
    return (
        "a task whose node is lost is tried again as often as that happens, also without retries: the backend does not count it, "
        f"so interruptions.max and fall_back_after hold nothing there ({backend.source})"
    )


def stock_warning(backend: Backend, tasks: int) -> str:
    """The warning that the retries of a pipeline are void on a stock installation, with the line that changes it."""
    those = "1 task" if tasks == 1 else f"{tasks} tasks"
    return (
        "KFP as its manifests install it retries neither errors of the code nor drained pods, whatever the pipeline says "
        f"({backend.source}): errors.retries is void and a drain fails the task, for {those}. Its admin changes "
        f"that with: {_command(_PATCH)} (then set target.kfp_retries to always)"
    )


def admin_notes(backend: Backend, pools: Iterable[Pool]) -> tuple[str, ...]:
    """Settings for an installation, ready to paste: which endings are retried, and where driver pods may run."""
    retries = _PATCH if backend.is_stock or backend.is_patched else {}
    tolerations = [taint.toleration_fields for taint in _spot_taints(pools)]
    lines = ["for Kubeflow Pipelines, by its admin (backends since the end of 2025):"]
    if backend.is_stock:
        lines += [
            "  # every ending is retried as often as the task allows, and a task without retries is not retried:",
            f"  {_command(retries)}",
        ]
    lines += [
        "  # a pipeline cannot place its driver pods, one for each task: they have no tolerations, so they stay off tainted",
        "  # pools, and nothing keeps them off other pools.",
    ]
    if tolerations:
        lines += [
            "  # If every pool is tainted, use this instead, so that they can start:",
            f"  {_command({**retries, 'tolerations': tolerations})}",
        ]
    return ("\n".join(lines),)


def _command(patch: Mapping[str, object]) -> str:
    value = json.dumps(patch, separators=(",", ":"))
    return f"kubectl -n kubeflow set env deployment/ml-pipeline COMPILED_PIPELINE_SPEC_PATCH='{value}'"


def _spot_taints(pools: Iterable[Pool]) -> list[Taint]:
    taints = (
        taint
        for pool in pools
        if pool.is_spot
        for taint in providers.taints(pool)
        if providers.is_spot_taint(pool, taint)
    )
    return list(dict.fromkeys(taints))
