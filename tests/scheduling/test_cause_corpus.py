"""Every recorded ending has the cause it was given by hand, and the page that shows them is up to date."""

from __future__ import annotations

import re

import pytest
from scripts.make_failure_matrix import Recorded, evidence_page, page, read, reported

from spotwright.model.attempts import Cause
from spotwright.scheduling.cause import classify

RECORDED = read()


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.case)
def test_a_recorded_ending_has_its_cause(recorded: Recorded) -> None:
    ending = classify(recorded.signals)

    assert ending.cause is recorded.cause, f"{recorded.seen}: {ending.why}"


def test_every_cause_that_an_ended_attempt_can_have_is_recorded() -> None:
    assert {recorded.cause for recorded in RECORDED} == set(Cause) - {Cause.UNSCHEDULABLE}


def test_every_case_has_a_name_of_its_own_and_names_its_thread() -> None:
    assert len({recorded.case for recorded in RECORDED}) == len(RECORDED)
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", recorded.issue) for recorded in RECORDED)


def test_no_two_cases_have_the_same_signals_and_another_cause() -> None:
    causes: dict[str, set[Cause]] = {}
    for recorded in RECORDED:
        causes.setdefault(repr(recorded.signals), set()).add(recorded.cause)

    assert all(len(found) == 1 for found in causes.values())


def test_the_matrix_is_short() -> None:
    assert len(page().replace("|", " ").split()) <= 1500


def test_the_matrix_has_every_case_behind_one_of_its_links() -> None:
    linked = re.findall(r"\[(\d+)\]\(failure-evidence\.md#", page())

    assert sum(map(int, linked)) == len(RECORDED)


def test_the_evidence_has_a_row_for_every_case() -> None:
    rows = [line for line in evidence_page().splitlines() if line.startswith("| ") and "https://" in line]

    assert len(rows) == len(RECORDED)


def test_the_bodies_of_today_report_moves_and_nothing_that_only_kubernetes_knows() -> None:
    assert {"exit_code", "noticed", "node_gone", "moved", "oom_kills"} <= reported()
    assert not {"conditions", "containers", "node_taints", "pod_deleted"} & reported()
