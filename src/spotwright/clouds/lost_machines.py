"""How a person tells Kubernetes that the machine of a node is gone: two commands, for people to read and type.

Source: Kubernetes documentation, "Node Shutdowns", "Non-graceful node shutdown handling".
"""

from __future__ import annotations

__all__ = ["commands_to_free"]


def commands_to_free(node: str) -> tuple[str, str]:
    """The command after which the Node object stays, marked as out of service, and the one that deletes it."""
    return (
        f"kubectl taint nodes {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        f"kubectl delete node {node}",
    )
