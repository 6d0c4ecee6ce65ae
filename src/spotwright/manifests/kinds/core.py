"""Kubernetes' own kinds: Pod, Job and CronJob."""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.manifests.context import Context, Level
from spotwright.manifests.kinds import Place
from spotwright.manifests.pods import Role, place_pod

__all__ = ["KINDS"]


def _place_pod(ctx: Context) -> None:
    role = Role("pod", ctx.name, ctx.at("spec"), ctx.base)
    placed = place_pod(ctx, role)
    placed.report.after_interruption = "nothing brings it back: a bare Pod is never scheduled again"
    if placed.on_spot:
        ctx.say(Level.WARNING, ctx.at("kind"), "a bare Pod is not scheduled again after an interruption; use a Job")


KINDS: Mapping[tuple[str, str], Place] = {("", "Pod"): _place_pod}
