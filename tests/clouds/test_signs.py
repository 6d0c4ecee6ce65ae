"""No sign on a node has two meanings."""

from __future__ import annotations

from spotwright.clouds import node_signs


def test_no_taint_means_both_that_the_provider_takes_the_node_and_that_our_side_removes_it() -> None:
    kinds = [
        node_signs.TAKEN_TAINTS,
        node_signs.AUTO_DRAIN_TAINTS,
        set(node_signs.REMOVED_TAINTS),
        node_signs.GONE_TAINTS,
        node_signs.UNREACHABLE_TAINTS,
    ]

    assert len(set().union(*kinds)) == sum(len(kind) for kind in kinds)


def test_no_event_means_both() -> None:
    kinds = [node_signs.TAKEN_EVENTS, set(node_signs.REMOVED_EVENTS), node_signs.GONE_EVENTS]

    assert len(set().union(*kinds)) == sum(len(kind) for kind in kinds)


def test_every_removal_has_a_sentence_for_people() -> None:
    sentences = [*node_signs.REMOVED_TAINTS.values(), *node_signs.REMOVED_EVENTS.values()]

    assert all(sentence and not sentence.endswith(".") for sentence in sentences)
