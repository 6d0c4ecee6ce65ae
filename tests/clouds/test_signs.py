"""The names by which a node's end is announced never say two things."""

from __future__ import annotations

from spotwright.clouds import signs


def test_no_taint_means_both_that_the_provider_takes_the_node_and_that_our_side_removes_it() -> None:
    kinds = [
        signs.TAKEN_TAINTS,
        signs.AUTO_DRAIN_TAINTS,
        set(signs.REMOVED_TAINTS),
        signs.GONE_TAINTS,
        signs.UNREACHABLE_TAINTS,
    ]

    assert len(set().union(*kinds)) == sum(len(kind) for kind in kinds)


def test_no_event_means_both() -> None:
    kinds = [signs.TAKEN_EVENTS, set(signs.REMOVED_EVENTS), signs.GONE_EVENTS]

    assert len(set().union(*kinds)) == sum(len(kind) for kind in kinds)


def test_every_removal_has_a_sentence_for_people() -> None:
    sentences = [*signs.REMOVED_TAINTS.values(), *signs.REMOVED_EVENTS.values()]

    assert all(sentence and not sentence.endswith(".") for sentence in sentences)
