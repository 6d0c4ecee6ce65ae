"""What Argo says of a pod that ended, as the signals from which the cause is decided.

Its words were seen in Workflows of real backends, with Argo 3.7.3 and 4.0.5: ``main: Error (exit code 3)``,
``main: OOMKilled (exit code 137)``, ``pod deleted``, ``Pod was active on the node longer than the specified deadline``.
KFP's launcher makes 1 of every exit code of user code. The pod, its node and the provider's notice stay unseen, so a pod that was
deleted with its node and one that was deleted alone look the same.
"""

from __future__ import annotations

import re

from spotwright.kubeflow.nodes import Node
from spotwright.model.attempts import ContainerEnd, Signals

__all__ = ["signals_of"]

_EXIT = re.compile(r"main: (\w+) \(exit code (\d+)\)")
_INIT = re.compile(r"^(init|wait): ")
_DELETED = "pod deleted"
_DEADLINE = "longer than the specified deadline"


def signals_of(node: Node, *, cancelled: bool = False) -> Signals:
    """The signals of an ended try. ``cancelled``: the run was cancelled before."""
    if node.phase == "Succeeded":
        return Signals(exit_code=0, outputs_complete=True, phase=node.phase)
    told = _EXIT.search(node.message)
    code = int(told[2]) if told else node.exit_code
    main = ContainerEnd("main", code, reason=told[1]) if told else None
    return Signals(
        exit_code=code,
        cancelled=cancelled,
        timed_out=_DEADLINE in node.message,
        pod_deleted=node.message == _DELETED,
        start_error=node.message if _INIT.match(node.message) else "",
        phase="Failed",
        message=node.message,
        containers=() if main is None else (main,),
    )
