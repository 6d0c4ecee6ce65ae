"""A node as the API writes it: the conditions and taints that announce its end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.notices.servers import after

from spotwright.notices import Notice, SourceError
from spotwright.notices.http_client import format_http_date
from spotwright.notices.kubernetes_node import KubernetesSource, node_in_file


def node(
    *,
    taints: tuple[str, ...] = (),
    labels: dict[str, str] | None = None,
    conditions: tuple[dict[str, str], ...] = (),
    **metadata: Any,
) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": "n1", "labels": labels or {}, **metadata},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "message": "kubelet is posting"}, *conditions]},
    }


def preemption(message: str, status: str = "True") -> dict[str, str]:
    """As AKS' node-problem-detector sets it."""
    return {"type": "PreemptionScheduled", "status": status, "reason": "SpotEvictionIncoming", "message": message}


def notice_of(given: dict[str, Any]) -> Notice | None:
    return KubernetesSource(lambda: given).wait(0)


def test_a_node_that_is_well_is_no_notice() -> None:
    assert notice_of(node(taints=("kubernetes.azure.com/scalesetpriority", "sku"))) is None


def test_no_node_yet_is_no_notice() -> None:
    assert KubernetesSource(lambda: None).wait(0) is None


def test_a_preemption_of_aks_comes_at_its_time() -> None:
    began = time.time()
    text = f"Preempt Scheduled: {format_http_date(time.time() + 30)}. For more information, see the page. EventId: 1-2"
    notice = notice_of(node(conditions=(preemption(text),)))
    assert notice is not None
    assert (notice.kind, notice.source, notice.certain) == ("interruption", "kubernetes", True)
    assert notice.ends_at == after(began, 30)


def test_a_preemption_that_has_begun_ends_now() -> None:
    notice = notice_of(node(conditions=(preemption("Preempt Started. For more information, see the page."),)))
    assert notice is not None
    assert notice.certain
    assert notice.ends_at <= time.time()


def test_a_condition_that_is_false_again_is_no_notice() -> None:
    assert notice_of(node(conditions=(preemption("", status="False"),))) is None


@pytest.mark.parametrize(
    "message", ["SpotRebalanceRecommendation Advisory.", "SpotRebalanceRecommendation Advisory: x."]
)
def test_an_advice_under_the_same_condition_is_never_certain(message: str) -> None:
    notice = notice_of(node(conditions=(preemption(message),)))
    assert notice is not None
    assert (notice.kind, notice.certain) == ("rebalance", False)


@pytest.mark.parametrize("message", ["", "something else", "Preempt Scheduled: soon.", "Preempt Advisory: x."])
def test_a_message_that_cannot_be_read_gives_an_uncertain_notice(message: str) -> None:
    notice = notice_of(node(conditions=(preemption(message),)))
    assert notice is not None
    assert (notice.kind, notice.certain) == ("interruption", False)


@pytest.mark.parametrize(
    ("event", "counts"), [("Redeploy", True), ("Terminate", True), ("Freeze", False), ("Reboot", False)]
)
def test_other_events_of_azure_count_where_the_machine_is_gone_after_them(event: str, counts: bool) -> None:
    text = f"{event} Scheduled: {format_http_date(time.time() + 300)}. EventId: 1"
    condition = {"type": "VMEventScheduled", "status": "True", "message": text}
    assert (notice_of(node(conditions=(condition,))) is not None) is counts


@pytest.mark.parametrize(
    ("taint", "kind", "certain", "seconds"),
    [
        ("aws-node-termination-handler/spot-itn", "interruption", True, 120),
        ("aks-node-termination-handler/preempt", "interruption", True, 30),
        ("cloud.google.com/impending-node-termination", "interruption", True, 30),
        ("karpenter.sh/disrupted", "disruption", True, 30),
        ("karpenter.sh/disruption", "disruption", True, 30),
        ("ToBeDeletedByClusterAutoscaler", "disruption", True, 30),
        ("aws-node-termination-handler/scheduled-maintenance", "disruption", True, 30),
        ("aws-node-termination-handler/rebalance-recommendation", "rebalance", False, float("inf")),
        ("node.cloudprovider.kubernetes.io/shutdown", "interruption", True, 0),
    ],
)
def test_each_taint_gives_its_kind_of_notice(taint: str, kind: str, certain: bool, seconds: float) -> None:
    began = time.time()
    notice = notice_of(node(taints=(taint,)))
    assert notice is not None
    assert (notice.kind, notice.certain) == (kind, certain)
    assert notice.ends_at == after(began, seconds)


@pytest.mark.parametrize(("priority", "kind"), [("spot", "interruption"), ("regular", "disruption")])
def test_aks_drains_a_spot_node_because_it_is_preempted(priority: str, kind: str) -> None:
    labels = {"kubernetes.azure.com/scalesetpriority": priority}
    notice = notice_of(node(labels=labels, taints=("remediator.kubernetes.azure.com/unschedulable",)))
    assert notice is not None
    assert notice.kind == kind


def test_a_node_that_shuts_down_is_interrupted() -> None:
    condition = {"type": "Ready", "status": "False", "message": "node is shutting down"}
    notice = notice_of(node(conditions=(condition,)))
    assert notice is not None
    assert notice.kind == "interruption"


def test_a_node_that_is_being_deleted_is_disrupted() -> None:
    notice = notice_of(node(deletionTimestamp="2026-11-20T10:00:00Z"))
    assert notice is not None
    assert notice.kind == "disruption"


def test_an_interruption_wins_over_every_other_notice() -> None:
    taints = ("ToBeDeletedByClusterAutoscaler", "aws-node-termination-handler/spot-itn")
    notice = notice_of(node(taints=taints, deletionTimestamp="2026-11-20T10:00:00Z"))
    assert notice is not None
    assert notice.kind == "interruption"


def test_a_taint_that_is_taken_off_is_no_notice_any_more() -> None:
    given = node(taints=("karpenter.sh/disrupted",))
    source = KubernetesSource(lambda: given)
    assert source.wait(0) is not None
    given["spec"]["taints"] = []
    assert source.wait(0) is None


def test_the_seconds_count_from_when_a_taint_was_first_seen() -> None:
    given = node(taints=("aws-node-termination-handler/spot-itn",))
    source = KubernetesSource(lambda: given)
    assert source.wait(0) is source.wait(0)


def test_a_node_is_read_from_a_file_whenever_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    source = KubernetesSource(node_in_file(path))
    assert source.wait(0) is None
    path.write_text(json.dumps(node(taints=("karpenter.sh/disrupted",))))
    assert source.wait(0) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "Pod"}', "\0\1"])
def test_a_file_that_holds_no_node_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "node.json").write_text(text)
    with pytest.raises(SourceError, match=r"^kubernetes: .*node\.json"):
        KubernetesSource(node_in_file(tmp_path / "node.json")).wait(0)


_KEYS = ["metadata", "spec", "status", "taints", "conditions", "key", "type", "message", "labels"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=5),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=5))
def test_no_garbage_is_ever_a_notice(given_node: dict[str, Any]) -> None:
    assert notice_of(given_node) is None
