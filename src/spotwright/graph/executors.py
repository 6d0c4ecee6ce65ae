"""The executors of tasks: a container, a pod, code of its source's own kind, or none because outputs follow from inputs.

The engine asks only whether a task has attempts (:class:`RunsNowhere`). A body (:mod:`spotwright.local`) starts the kinds
of executor that it knows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spotwright.graph.dialect import TaskContext

__all__ = ["Container", "Executor", "PodTemplate", "RunsNowhere"]


@dataclass(frozen=True, slots=True)
class Executor:
    """The base of all executors."""

    @property
    def environment(self) -> Hashable | None:
        """A key of the Python environment that an attempt needs beside the body's own; ``None``: it needs none."""
        return None


@dataclass(frozen=True, slots=True)
class Container(Executor):
    """An image, its command and arguments, and its environment. The graph's dialect may fill in its texts.

    Without a ``command`` the image's entry point runs. ``pull`` is Kubernetes' imagePullPolicy, empty if the source does not
    set it. ``user``, ``group`` and ``non_root`` are its security context. ``shared_memory`` is the size of ``/dev/shm`` in
    bytes, 0 for unlimited, ``None`` if the source does not set it.
    """

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    pull: str = ""
    user: int | None = None
    group: int | None = None
    non_root: bool = False
    shared_memory: int | None = None


@dataclass(frozen=True, slots=True)
class PodTemplate(Executor):
    """The pod of an attempt as Kubernetes has it: its spec, and the ``kind`` of the object that it belongs to."""

    kind: str
    spec: Mapping[str, Any]

    def only_container(self) -> Container:
        """The pod's only container, for a body that has no pods.

        Raises ``ValueError`` for a pod that needs more of Kubernetes: other containers, volumes, variables from elsewhere.
        """
        containers: Sequence[Mapping[str, Any]] = self.spec.get("containers") or ()
        if len(containers) != 1 or self.spec.get("initContainers"):
            raise ValueError("has more containers than one, or none")
        container = containers[0]
        if container.get("volumeMounts"):
            raise ValueError("mounts volumes")
        variables = container.get("env") or ()
        if container.get("envFrom") or any("valueFrom" in variable for variable in variables):
            raise ValueError("reads environment variables from other objects (envFrom, valueFrom)")
        security = {**(self.spec.get("securityContext") or {}), **(container.get("securityContext") or {})}
        return Container(
            image=container.get("image", ""),
            command=tuple(container.get("command") or ()),
            args=tuple(container.get("args") or ()),
            env={variable["name"]: variable.get("value", "") for variable in variables},
            pull=container.get("imagePullPolicy", ""),
            user=security.get("runAsUser"),
            group=security.get("runAsGroup"),
            non_root=bool(security.get("runAsNonRoot")),
        )


@dataclass(frozen=True, slots=True)
class RunsNowhere(Executor, ABC):
    """A step without attempts: the engine computes its outputs from its inputs (in KFP an importer, a PVC step)."""

    @abstractmethod
    def outputs(
        self, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: TaskContext
    ) -> dict[str, Any]:
        """The outputs under ``parameters`` and ``artifacts``, from the resolved and filled inputs.

        Raises ``ValueError`` for inputs without a result; the task fails then.
        """
