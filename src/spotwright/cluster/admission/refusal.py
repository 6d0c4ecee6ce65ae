"""The pod that takes the place of an attempt for which no budget is left: it says why, and exits with 86.

Denying a pod would not end its work: a Job asks again for ever, and Argo does so silently. So the pod is created with a small
image in its main container, which costs next to nothing, starts on any node, and ends at once. What makes the exit code final was
placed on the object before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.manifests.rules.job_failure_policy import REFUSED

__all__ = ["refused_pod"]

_SCRIPT = f'printf "%s" "$SPOTWRIGHT_REFUSAL" > /dev/termination-log; echo "$SPOTWRIGHT_REFUSAL" >&2; exit {REFUSED}'
_DROPPED = frozenset(
    {"affinity", "nodeSelector", "topologySpreadConstraints", "resourceClaims", "runtimeClassName", "overhead"}
    | {"ephemeralContainers", "resources", "hostNetwork", "hostPID", "hostIPC"}
)
_SECURE: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 65534,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_ARGO_NODE = "workflows.argoproj.io/node-name"
_EMISSARY_END = "--"
_LONGEST = 3000  # characters of the message; a termination message has at most 4096 bytes


def refused_pod(data: Mapping[str, Any], image: str, message: str) -> dict[str, Any]:
    """The pod with ``image`` in its main container, which writes ``message`` as its termination message.

    It requests nothing, runs anywhere, and mounts nothing of the user's. Argo's own containers stay, as Argo reads the pod's end
    through them; of other pods the main container alone is left.
    """
    spec: dict[str, Any] = {name: value for name, value in data["spec"].items() if name not in _DROPPED}
    of_argo = _ARGO_NODE in ((data.get("metadata") or {}).get("annotations") or {})
    containers: Sequence[Mapping[str, Any]] = spec.get("containers") or ()
    main = next((one for one in containers if one.get("name") == "main"), containers[0])
    beside = [_without_requests(one) for one in containers if of_argo and one.get("name") == "wait"]
    before = [
        _without_requests(one) for one in spec.get("initContainers") or () if of_argo and one.get("name") == "init"
    ]
    spec["containers"] = [*beside, _refusing(main, image, message[:_LONGEST], of_argo=of_argo)]
    spec.pop("initContainers", None)
    if before:
        spec["initContainers"] = before
    spec["tolerations"] = [{"operator": "Exists"}]
    spec["restartPolicy"] = "Never"
    mounted = {mount.get("name") for one in (*spec["containers"], *before) for mount in one.get("volumeMounts") or ()}
    volumes = [volume for volume in spec.get("volumes") or () if volume.get("name") in mounted]
    spec.pop("volumes", None)
    if volumes:
        spec["volumes"] = volumes
    return {**data, "spec": spec}


def _refusing(main: Mapping[str, Any], image: str, message: str, *, of_argo: bool) -> dict[str, Any]:
    """The main container of a refused pod; on Argo its emissary stays in front, because it reports the end."""
    command: list[str] = ["sh", "-c", _SCRIPT]
    env: list[Any] = [{"name": "SPOTWRIGHT_REFUSAL", "value": message.replace("$(", "$$(")}]
    mounts: list[Any] = []
    if of_argo:
        given = list(main.get("command") or ())
        if _EMISSARY_END in given:
            command = [*given[: given.index(_EMISSARY_END) + 1], *command]
        env += [one for one in main.get("env") or () if str(one.get("name", "")).startswith("ARGO_")]
        mounts = [
            one for one in main.get("volumeMounts") or () if str(one.get("mountPath", "")).startswith("/var/run/argo")
        ]
    refusing: dict[str, Any] = {
        "name": main.get("name", "main"),
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "env": env,
        "securityContext": dict(_SECURE),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    if mounts:
        refusing["volumeMounts"] = mounts
    return refusing


def _without_requests(container: Mapping[str, Any]) -> dict[str, Any]:
    """One of Argo's containers, without requests and hooks."""
    kept = {name: value for name, value in container.items() if name not in ("lifecycle", "livenessProbe")}
    return {**kept, "resources": {}}
