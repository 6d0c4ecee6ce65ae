"""The classifier is right on every death that was recorded on a real cluster, for every kind of workload."""

from __future__ import annotations

import pytest
from scripts.make_recorded_deaths import (
    RECORDINGS,
    RecordedDeath,
    RecordedMoment,
    expected_causes,
    page,
    read_deaths,
)

DEATHS = read_deaths()
EXPECTED = expected_causes()
KINDS = {"pod", "job", "jobset", "trainjob", "argo", "kfp", "job-stock", "argo-stock"}
WITHOUT_PODS = "refused-by-api"  # no pod, so no attempt: the recording holds what their owners say
MOMENTS = [
    pytest.param(death.name, moment, id=f"{death.name}-{moment.workload}-{moment.moment}")
    for death in DEATHS
    for moment in death.moments
]


@pytest.mark.parametrize(("death", "moment"), MOMENTS)
def test_a_recorded_death_has_its_cause(death: str, moment: RecordedMoment) -> None:
    ending = moment.ending
    wanted = moment.expected(EXPECTED[death])

    assert ending.cause is wanted.cause, f"{ending.why}; expected: {wanted.because}"


def test_every_recording_has_expected_causes_and_the_reverse() -> None:
    assert {path.stem for path in RECORDINGS.glob("*/*.json")} == set(EXPECTED)


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.name)
def test_every_kind_was_recorded_in_every_death(death: RecordedDeath) -> None:
    ended = {moment.workload for moment in death.moments if moment.moment == "ended"}

    assert death.pods.keys() == KINDS
    assert ended == (set() if death.name == WITHOUT_PODS else KINDS)


def test_a_recording_tells_nothing_of_the_machine_that_made_it() -> None:
    for path in RECORDINGS.glob("*/*.json"):
        text = path.read_text(encoding="utf-8")
        assert not [word for word in ("managedFields", "machineID", "/var/tmp", "/root", 'token":"') if word in text]  # noqa: S108
        assert len(text) < 130_000


def test_the_page_has_every_death_with_a_row_for_each_cause() -> None:
    sections = page().split("\n## ")[1:]

    assert len(sections) == len(DEATHS)
    for section, death in zip(sections, DEATHS, strict=True):
        causes = {str(moment.ending.cause) for moment in death.moments}
        assert {cause for cause in causes if f"| {cause} |" not in section} == set()
