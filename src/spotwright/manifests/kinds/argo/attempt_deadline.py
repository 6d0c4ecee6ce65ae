"""Write the policy's ``timeout`` as ``activeDeadlineSeconds`` of a template, which bounds each pod of its retries by itself.

The kubelet counts from the start of the pod on its node, so the time to pull the image counts too. Argo records the end as Failed
``Pod was active on the node longer than the specified deadline``, whatever exit code SIGTERM leads to. The expression for retries
matches no part of this message, so a timeout is an error, as the policy says; before Argo 3.5 the expression sees only the exit
code and takes a timeout for an interruption. The records and retries were seen on Argo 3.7.3.

Only code that runs to its end gets a deadline: a daemon serves until its steps end, and the pod of a ``resource`` template waits
for an object that has retries of its own. A template with a ``timeout``, a field of Argo, gets none either: Argo computes
``activeDeadlineSeconds`` from it, over any other value (seen on 3.7.3). A deadline in ``podSpecPatch`` overrides the template's.
Source: argo-workflows, ``workflow/controller/workflowpod.go`` (createWorkflowPod).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from spotwright.manifests.enforcement.facts import Anchor
from spotwright.manifests.kinds.argo.pod_spec_patch import read_patch
from spotwright.manifests.kinds.argo.templates import Template, argo_version
from spotwright.manifests.rules.context import Level, PlaceContext
from spotwright.manifests.rules.pod_rules import Placed
from spotwright.manifests.rules.retry_bounds import seconds_text, write_unless_set
from spotwright.manifests.yamltext.documents import Path
from spotwright.manifests.yamltext.edits import value_at

__all__ = ["anchor_given_deadline", "write_deadline"]

_FIELD = "activeDeadlineSeconds"


def write_deadline(
    ctx: PlaceContext, template: Template, placed: Placed, defaults: Path, patches: Sequence[Path]
) -> None:
    """Write the deadline of a template's pods unless the template, the ``defaults`` or one of the ``patches`` has one."""
    timeout = placed.policy.timeout
    if timeout is None or not template.runs_code or ctx.editor.get((*template.path, "daemon")) is True:
        return
    wanted, at = math.ceil(timeout), (*template.path, _FIELD)
    limited = next((path for path in (template.path, defaults) if ctx.editor.get((*path, "timeout")) is not None), None)
    if limited is not None:
        placed.report.anchor("limit", ctx.editor, limited)
        text = f"its own timeout {ctx.editor.get((*limited, 'timeout'))} stays: Argo prefers it to {_FIELD}"
        text += f"; the policy allows {seconds_text(wanted)}"
        ctx.add_finding(Level.WARNING, (*limited, "timeout"), f"{template.name}: {text}")
        return
    patched = next((path for path in reversed(patches) if read_patch(ctx, path).get(_FIELD) is not None), None)
    if patched is not None:
        patch = read_patch(ctx, patched)
        placed.report.anchors["deadline"] = Anchor((), partial(value_at, patch), partial(value_at, patch))
        _report_own(ctx, template, patched, patch[_FIELD], wanted)
        return
    inherited = ctx.editor.get((*defaults, _FIELD))
    if ctx.editor.get(at) is None and inherited is not None and not ctx.options.replace_retries:
        placed.report.anchor("deadline", ctx.editor, defaults)
        _report_own(ctx, template, (*defaults, _FIELD), inherited, wanted, " (--replace-retries)")
        return
    in_force = write_unless_set(ctx, at, wanted)
    placed.report.anchor("deadline", ctx.editor, template.path)
    _report_own(ctx, template, at, in_force, wanted, " (--replace-retries)")
    if placed.on_spot and argo_version(ctx) < (3, 5):
        text = "Argo before 3.5 shows retries no message of a deadline: a timeout counts as an interruption"
        ctx.add_finding(Level.WARNING, at, f"{template.name}: {text}")


def anchor_given_deadline(ctx: PlaceContext, template: Template, placed: Placed, defaults: Path) -> bool:
    """Whether a template or its ``defaults`` bound each attempt; then ``explain`` shows that field."""
    for path in (template.path, defaults):
        for name, field in (("limit", "timeout"), ("deadline", _FIELD)):
            if ctx.editor.get((*path, field)) is not None:
                placed.report.anchor(name, ctx.editor, path)
                return True
        patch = read_patch(ctx, (*path, "podSpecPatch"))
        if patch.get(_FIELD) is not None:
            placed.report.anchors["deadline"] = Anchor((), partial(value_at, patch), partial(value_at, patch))
            return True
    return False


def _report_own(
    ctx: PlaceContext, template: Template, path: Path, in_force: object, wanted: int, advice: str = ""
) -> None:
    """Warn of a deadline of the user that is not the policy's timeout."""
    if str(in_force) != str(wanted):
        text = f"{_FIELD} {in_force} stays; the policy allows {seconds_text(wanted)}{advice}"
        ctx.add_finding(Level.WARNING, path, f"{template.name}: {text}")
