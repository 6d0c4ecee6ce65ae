"""Give the pods of Argo and KFP a preStop hook that turns their grace period into time before SIGTERM.

KFP's launcher dies of SIGTERM, and the code with it, within a second and whatever the grace period (seen on KFP 2.17.0).
Kubernetes runs a preStop hook before it sends SIGTERM, for each deletion, drain, eviction and taint. So the hook writes a notice
that :mod:`spotwright.checkpoint` reads, and returns when the code has saved. It waits only for processes that have registered
(:mod:`spotwright.notices.pod_hook`): for other code the pod ends without a wait.

A plain step of Argo gets the hook as well. Other kinds get none: the grace period after SIGTERM is the code's there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.manifests.yamltext.edits import value_at
from spotwright.notices.pod_hook import FOLDER_VARIABLE, NOTICE, SAVER

__all__ = ["FOLDER", "MARGIN", "add_grace", "hook_script"]

FOLDER = "/spotwright/grace"
"""Where each container has its own folder of the volume."""

MARGIN = 2
"""Seconds of the grace period that the hook leaves to SIGTERM: the least that a kubelet gives a container after its hook."""

_VOLUME = "spotwright-grace"
_NODE_NAME = "workflows.argoproj.io/node-name"

# Plain POSIX sh, and `date` and `sleep` of any image with a shell.
# `umask 0`: the code may run as another user than the hook. The notice appears whole, by `mv`.
# `[ -d /proc/PID ]`: a process that was killed is not waited for, also one of another user. Without a match, PID is a `*`.
# The clock bounds the wait and not the number of turns, which take longer on a busy node. If `date` fails, nothing is waited for.
_SCRIPT = """\
umask 0
d={folder}
now=$(date +%s) || exit 0
end=$((now + {seconds}))
printf '{{"noticed_at":%s,"goes_at":%s,"seconds":{seconds},"kind":"disruption","why":"this pod is ending"}}' \
"$now" "$end" >"$d/{notice}.new" && mv "$d/{notice}.new" "$d/{notice}"
unsaved() {{
  for f in "$d/{saver}"*; do [ -d "/proc/${{f##*.}}" ] && return 0; done
  return 1
}}
while unsaved && [ "$(date +%s)" -lt "$end" ]; do sleep 0.1 || sleep 1; done
"""


def hook_script(seconds: int, folder: str = FOLDER) -> str:
    """The program of the hook. It waits for at most ``seconds``."""
    return _SCRIPT.format(folder=folder, seconds=seconds, notice=NOTICE, saver=SAVER)


def add_grace(spec: dict[str, Any], data: Mapping[str, Any]) -> list[str]:
    """Add the hook, its folder and its variables to the containers of a pod's ``spec`` that run a task's code on Argo.

    Returns the warnings: a container with a preStop hook of its user's keeps it, and has no time before SIGTERM. A pod whose
    grace period is not longer than :data:`MARGIN` gets nothing.
    """
    seconds = int(spec.get("terminationGracePeriodSeconds") or 0) - MARGIN
    if _NODE_NAME not in (value_at(data, ("metadata", "annotations")) or {}) or seconds <= 0 or _is_windows(spec):
        return []
    warnings: list[str] = []
    for container in spec.get("containers") or ():
        if "SPOTWRIGHT_TASK" not in _names(container.get("env")) or _VOLUME in _names(container.get("volumeMounts")):
            continue
        if value_at(container, ("lifecycle", "preStop")):
            warnings.append(
                f"container {container.get('name')} keeps its own preStop hook: its code has no time to save before SIGTERM"
            )
            continue
        _add_hook(container, seconds)
        if _VOLUME not in _names(spec.get("volumes")):
            spec["volumes"] = [*(spec.get("volumes") or ()), {"name": _VOLUME, "emptyDir": {}}]
    return warnings


def _add_hook(container: dict[str, Any], seconds: int) -> None:
    """Add the hook to a container. A subPath gives each container of the pod a folder of its own, with the volume's mode 0777."""
    name = str(container.get("name"))
    container["lifecycle"] = {
        **(container.get("lifecycle") or {}),
        "preStop": {"exec": {"command": ["sh", "-c", hook_script(seconds)]}},
    }
    mount = {"name": _VOLUME, "mountPath": FOLDER, "subPath": name}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    variables = {FOLDER_VARIABLE: FOLDER, "SPOTWRIGHT_NOTICE_FILE": f"{FOLDER}/{NOTICE}"}
    given = _names(container.get("env"))
    new = [{"name": key, "value": value} for key, value in variables.items() if key not in given]
    container["env"] = [*(container.get("env") or ()), *new]


def _is_windows(spec: Mapping[str, Any]) -> bool:
    return bool(value_at(spec, ("os", "name")) == "windows")


def _names(items: Sequence[Mapping[str, Any]] | None) -> set[str]:
    return {str(item.get("name")) for item in items or ()}
