"""Deployments of workers, which take their work from a queue: placed if they are labelled so.

A Deployment usually serves requests or stores data, and is then left unchanged. ``spotwright.dev/role: worker`` on the object or
its pod template says that its replicas may come and go; so does a policy of its own (``spotwright.dev/spot``,
``spotwright.dev/policy``). A Deployment counts nothing and never ends: it creates each lost pod again. Source: Kubernetes,
"Deployments".
"""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.manifests.enforcement.mechanisms import Mechanism
from spotwright.manifests.kinds import PlaceObject
from spotwright.manifests.kinds.unsupported import has_claim, leave_unchanged
from spotwright.manifests.rules.context import Level, PlaceContext
from spotwright.manifests.rules.misplaced_fields import POD_FIELDS, refuse_at_template, refuse_misplaced
from spotwright.manifests.rules.pod_rules import Placed, Role, place_pod
from spotwright.manifests.rules.retry_bounds import no_interruption_text, whole_number

__all__ = ["KINDS"]

_ROLE_LABEL = "spotwright.dev/role"
_WORKER = "worker"


def _place_deployment(ctx: PlaceContext) -> None:
    if not _is_worker(ctx):
        leave_unchanged(ctx, f"if it only takes work from a queue, label it {_ROLE_LABEL}: {_WORKER}")
        return
    template = ctx.at("spec", "template")
    refuse_misplaced(ctx, ctx.at("spec"), (*template, "spec"), POD_FIELDS)
    refuse_at_template(ctx, template)
    is_bound = has_claim(ctx)  # by a volume of the user's
    role = Role("worker", ctx.name, (*template, "spec"), template, run=ctx.name)
    placed = place_pod(ctx, role)
    placed.report.mechanism = Mechanism.DEPLOYMENT
    placed.report.frozen = "everything can be changed; a changed template replaces the pods one after the other"
    placed.report.after_interruption = no_interruption_text(placed.policy)
    if placed.on_spot:
        _explain(ctx, placed, is_bound=is_bound)


def _is_worker(ctx: PlaceContext) -> bool:
    of_pods = ctx.get("spec", "template", "metadata", "labels")
    labels = [ctx.get("metadata", "labels"), of_pods]
    return ctx.has_own_policy or any(isinstance(one, dict) and one.get(_ROLE_LABEL) == _WORKER for one in labels)


def _explain(ctx: PlaceContext, placed: Placed, *, is_bound: bool) -> None:
    """Report what a Deployment does with its replicas on spot, and what would hurt it."""
    placed.report.after_interruption = (
        "the Deployment creates the pod again, uncounted; the other replicas go on; a message is worked on again if it is "
        "acknowledged only when its work is done"
    )
    replicas = whole_number(ctx.get("spec", "replicas"), 1)
    if replicas == 1:
        text = f"{ctx.name}: no work is done while its only replica is replaced: set replicas to 2 or more"
        ctx.add_finding(Level.NOTE, ctx.at("spec"), text)
    if placed.policy.checkpoint and replicas != 1:
        text = f"{ctx.name}: its replicas share one place for checkpoints: let the code name a file of its own in it"
        ctx.add_finding(Level.WARNING, ctx.at("spec"), text)
    if is_bound:
        text = f"{ctx.name}: its volume may be bound to a zone, or to one node at a time; a pod that is created elsewhere waits"
        ctx.add_finding(Level.WARNING, ctx.at("spec", "template", "spec", "volumes"), text)


KINDS: Mapping[tuple[str, str], PlaceObject] = {("apps", "Deployment"): _place_deployment}
