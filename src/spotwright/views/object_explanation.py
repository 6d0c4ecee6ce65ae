"""The text of ``explain OBJECT --cluster``: why a pod is where it is, or waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.views.phrasing import time_of_day
from spotwright.views.table import fitted

__all__ = ["object_text"]


def object_text(explained: Mapping[str, Any]) -> str:
    """The explanation for people, of the JSON that :func:`spotwright.cluster.explaining.explain_object` makes."""
    run = f", run {explained['run']}" if explained["run"] else ""
    lines = [f"{explained['object']}{run}"]
    for pod in explained["pods"]:
        lines.append("")
        lines += [line for text in _pod(pod) for line in fitted(text, hang="    ")]
    if explained["notes"]:
        lines += ["", *explained["notes"]]
    return "\n".join(lines)


def _pod(pod: Mapping[str, Any]) -> Iterator[str]:
    which = "" if pod["attempt"] is None else f": attempt {pod['attempt']} of task {pod['task']}"
    yield f"pod {pod['name']}{which}"
    yield f"  {_where(pod)}"
    yield from (f"  {line}" for line in (*_move(pod["move"]), *_lost_node(pod["lost_node"])))
    rung = pod["rung"]
    if rung is not None:
        yield f"  rung {rung['number']} of {rung['of']}: {', '.join(rung['pools']) or 'any pool'}"
    if pod["budgets"] is not None:
        spent = (f"{each['spent']} of {each['max']} {name}" for name, each in pod["budgets"].items())
        yield f"  spent: {', '.join(spent)}"
    yield from (f"  {sentence}" for sentence in pod["history"])
    if pod["webhook"]["why"]:
        yield f"  admitted as attempt {pod['webhook']['attempt']}: {pod['webhook']['why']}"
    yield from (f"  not enforced: {what}" for what in pod["not_enforced"])


def _move(move: Mapping[str, Any] | None) -> Iterator[str]:
    """What becomes of a pod that waits for a node."""
    if move is not None:
        if move["stays"]:
            yield f"stays there: {move['stays']}"
        else:
            yield f"is taken back at {time_of_day(move['at'])}; the next pod waits for a node of {' or '.join(move['to'])}"


def _lost_node(lost: Mapping[str, Any] | None) -> Iterator[str]:
    """What a person can do about a node that does not report."""
    if lost is None:
        return
    if lost["gone"]:
        yield f"its pods are deleted, so that their successors start: {lost['gone']}"
        return
    yield f"node {lost['node']} does not report since {time_of_day(lost['since'])}; if its machine is gone, free it by one of:"
    yield from (f"  {command}" for command in lost["commands"])


def _where(pod: Mapping[str, Any]) -> str:
    if pod["status"] == "waiting":
        says = pod["scheduler"]
        return (
            f"waits for a node; kube-scheduler says: {says}"
            if says
            else "waits; kube-scheduler has not looked at it yet"
        )
    pool = (
        "" if pod["pool"] is None else f" in pool {pod['pool']}" + (f" ({pod['capacity']})" if pod["capacity"] else "")
    )
    if pod["not_started"]:
        return f"has not started on node {pod['node']}{pool}: {pod['not_started']}"
    return f"{'ran' if pod['status'] == 'ended' else 'runs'} on node {pod['node']}{pool}"
