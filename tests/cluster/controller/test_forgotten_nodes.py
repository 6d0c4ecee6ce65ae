"""Deleted nodes leave the memory: spot nodes get new names again and again."""

from __future__ import annotations

import pytest
from tests.cluster.watching.watched_objects import SPOT, node

from spotwright.cluster import view
from spotwright.cluster.view import ClusterView


def test_events_and_notices_of_nodes_that_went_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "_KEPT", 3)
    seen = ClusterView()
    for number in range(10):
        name = f"n{number}"
        seen.put_node(node(name, **SPOT))
        seen.put_node_event(
            {
                "metadata": {"uid": name, "namespace": "default"},
                "involvedObject": {"name": name},
                "reason": "NodeNotReady",
            }
        )
        seen.notice(name)
        seen.delete_node(node(name, **SPOT))
    assert [bool(seen.events_of(f"n{number}")) for number in range(10)] == [False] * 7 + [True] * 3
    assert len(seen._notices) == 3
