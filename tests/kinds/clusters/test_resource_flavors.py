"""Kueue's ResourceFlavors get the labels and the taints of the pool they stand for, and no tolerations."""

from __future__ import annotations

from tests.placing.placed import PREFER, place, refusal

POOL, PRIORITY = "kubernetes.azure.com/agentpool", "kubernetes.azure.com/scalesetpriority"


def a_flavor(name: str = "spot", spec: str = "{}") -> str:
    return f"apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def test_a_flavor_with_the_name_of_a_pool_gets_the_labels_and_taints_of_its_nodes() -> None:
    spec = place(a_flavor()).value["spec"]

    assert spec["nodeLabels"] == {POOL: "spot", PRIORITY: "spot"}
    assert spec["nodeTaints"] == [{"key": PRIORITY, "value": "spot", "effect": "NoSchedule"}]
    assert "tolerations" not in spec


def test_what_the_flavor_has_stays_and_what_it_lacks_is_added() -> None:
    own = f"{{nodeLabels: {{team: a, {PRIORITY}: spot}}, nodeTaints: [{{key: team, value: a, effect: NoSchedule}}]}}"
    spec = place(a_flavor(spec=own)).value["spec"]

    assert spec["nodeLabels"] == {"team": "a", PRIORITY: "spot", POOL: "spot"}
    assert {taint["key"] for taint in spec["nodeTaints"]} == {"team", PRIORITY}


def test_a_flavor_of_another_name_is_found_by_its_labels() -> None:
    spec = place(a_flavor("cheap", f"{{nodeLabels: {{{POOL}: gpu-spot}}}}")).value["spec"]

    assert spec["nodeLabels"][PRIORITY] == "spot"
    assert {taint["key"] for taint in spec["nodeTaints"]} == {"sku", PRIORITY}


def test_a_flavor_of_no_pool_stays_unchanged_with_a_note() -> None:
    for text in (a_flavor("other"), a_flavor("other", f"{{nodeLabels: {{{PRIORITY}: spot}}}}")):
        outcome = place(text)
        assert outcome.text == text
        assert outcome.reports("note", "ResourceFlavor other stays unchanged: no pool has its name", "spot, regular")


def test_a_label_that_no_node_of_the_pool_has_is_refused_with_its_line() -> None:
    message = refusal(a_flavor(spec=f"{{nodeLabels: {{{PRIORITY}: regular}}}}"), PREFER)

    assert message.startswith("work.yaml:4: ")
    assert f"nodes of pool spot have {PRIORITY}=spot, so this flavor would match none of them" in message


def test_a_toleration_of_a_spot_flavor_brings_all_work_to_spot_and_is_named() -> None:
    tolerations = f"{{tolerations: [{{key: {PRIORITY}, operator: Exists}}, {{key: other, operator: Exists}}]}}"
    outcome = place(a_flavor(spec=tolerations))

    assert len([text for text in outcome.messages if "Kueue adds this to every pod" in text]) == 1
    assert len(outcome.value["spec"]["tolerations"]) == 2


def test_a_flavor_has_at_most_eight_labels() -> None:
    own = ", ".join(f"l{index}: a" for index in range(8))

    assert len(place(a_flavor(spec=f"{{nodeLabels: {{{own}}}}}")).value["spec"]["nodeLabels"]) == 8
