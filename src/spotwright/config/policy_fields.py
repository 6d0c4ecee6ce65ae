"""Tables of the keys of ``policy`` in ``spotwright.yaml``, and the meaning of each policy field for the reference page.

The policy's fields themselves, with their defaults, are in :data:`spotwright.model.policy.FIELDS`, because policies are
written in other places too.
"""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.config import readers
from spotwright.config.fields import Field

__all__ = ["POLICY", "POLICY_MEANINGS"]

POLICY = (
    Field("default", "a mapping of policy fields", readers.table, None, "nothing", "The policy of every task."),
    Field(
        "tasks",
        "a mapping of policies by pattern",
        readers.table,
        None,
        "nothing",
        "The policy of tasks whose path matches the pattern; a later pattern wins over an earlier one, key by key.",
    ),
)
"""The keys of ``policy``."""

POLICY_MEANINGS: Mapping[str, str] = {
    "spot": "Spot only, spot first, or on-demand only. Where it is not set, nothing is added: the task goes where its own "
    "settings let it.",
    "ladder": "The pools an attempt may use, in this order.",
    "interruptions.max": "Number of interruptions that a task survives. An interruption never counts as an error.",
    "interruptions.backoff": "Wait before an attempt that returns to the pool that it was taken from.",
    "interruptions.factor": "Factor by which each further wait is longer.",
    "interruptions.ceiling": "Maximum wait.",
    "errors.retries": "Number of errors after which a task is tried again. An error never counts as an interruption.",
    "errors.backoff": "Wait after an error.",
    "errors.factor": "Factor by which each further wait is longer.",
    "errors.ceiling": "Maximum wait.",
    "fall_back_after": "Number of interruptions from which on the task stays on on-demand. Only with `spot: prefer`.",
    "pending_timeout": "Time for which an attempt waits for a node of one pool before it tries the next pool.",
    "deadline": "Time by which the work must be done. It decides the pool, in place of `fall_back_after` and `pending_timeout`.",
    "work": "Duration of the task, for a deadline to plan with.",
    "grace_period": "Time of the code between SIGTERM and SIGKILL.",
    "timeout": "Maximum duration of one attempt.",
    "checkpoint": "Place of the code's checkpoints, which the code reads from the environment variable SPOTWRIGHT_CHECKPOINT.",
    "image_pull_secrets": "Secrets with which the cluster pulls the image.",
}
"""The meaning of each policy field."""
