"""The sentences about what the mover of a cluster decides: attempts that are taken back, nodes that hold pods, pods deleted."""

from __future__ import annotations

from spotwright.clouds.providers import commands_to_free
from spotwright.engine.events import AttemptHeld, AttemptReleased, AttemptTakenBack, Event, NoticeWithdrawn

__all__ = ["workload_sentence"]


def workload_sentence(event: Event) -> str:
    """The sentence of an event of a run that an orchestrator drives; empty for events without one."""
    if isinstance(event, AttemptTakenBack):
        pools = ", ".join(event.left_out)
        left_out = f"; {pools} {'is' if len(event.left_out) == 1 else 'are'} left out for a while" if pools else ""
        return f"{event.task}: attempt {event.attempt} is taken back: {event.why}{left_out}"
    if isinstance(event, AttemptHeld) and event.node:
        taint, delete = commands_to_free(event.node)
        held = f"{event.task}: node {event.node} does not report and holds the pod of attempt {event.attempt}"
        return f"{held}; if its machine is gone: {taint}, or {delete}"
    if isinstance(event, AttemptReleased):
        return f"{event.task}: the pod of attempt {event.attempt} is deleted: {event.why}"
    if isinstance(event, NoticeWithdrawn):
        return f"{event.node} stays: the provider has withdrawn its notice"
    return ""
