"""The page reads the records of a cluster, with the caller's own login, in a separate process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.reading.served import Served as Controller
from tests.cluster.reading.served import spotwright
from tests.page.served import Served, serving

from spotwright.page.vendor import vendor_faults


@pytest.fixture(autouse=True)
def trusted(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page trusts the controller's certificate."""
    monkeypatch.setenv("SPOTWRIGHT_CONTROLLER_CA", str(certificates / "tls.crt"))


def source(served: Controller, name: str = "anna", **other: str) -> dict[str, object]:
    """The cluster as the command names it to the page, for this user."""
    _, _, kubeconfig, _, url = served.options(name)
    return {"cluster": True, "context": None, "namespace": "", "kubeconfig": kubeconfig, "controller": url, **other}


@pytest.fixture
def page(served: Controller, tmp_path: Path, trusted: None) -> Iterator[Served]:
    """The page of Anna, who may read team-a."""
    with serving(source(served), tmp_path / "assets") as made:
        yield made


def test_it_shows_what_the_caller_may_read_and_nothing_of_others(page: Served) -> None:
    answer = page.api("runs")
    assert {line["namespace"] for line in answer["lines"]} == {"team-a"}
    assert (answer["indexed"], answer["total"]) == (2, 2)
    assert all(0 <= line["progress"] <= 1 for line in answer["lines"])
    assert page.api("runs?namespace=team-b")["total"] == 0
    assert page.api("runs?namespace=team-a")["total"] == 2
    refused = page.ask("/api/v1/runs?cause=failed")
    assert (refused.status, refused.json()["error"]) == (400, "input")


def test_a_run_is_read_as_one_of_this_machine(page: Served) -> None:
    for name in [line["run"] for line in page.api("runs")["lines"]]:
        assert page.api(f"runs/{name}")["summary"]["run"] == name
        tasks, timeline = page.api(f"runs/{name}/tasks"), page.api(f"runs/{name}/timeline")
        assert tasks["columns"]["path"]
        assert timeline["attempts"]["columns"]["number"]
        with page.stream(name, f"{timeline['made_at']}.{timeline['seq']}") as events:
            assert next(events)[0] == "head"
        assert page.ask(f"/api/v1/runs/{name[:-1]}").status == 404  # a beginning is no address


def test_a_run_of_another_team_is_as_one_that_is_none(served: Controller, page: Served, tmp_path: Path) -> None:
    with serving(source(served, "admin"), tmp_path / "admins") as admins:
        (other,) = (line["run"] for line in admins.api("runs")["lines"] if line["namespace"] == "team-b")
    theirs, none = page.ask(f"/api/v1/runs/{other}"), page.ask("/api/v1/runs/nobody")
    assert theirs.status == none.status == 404
    assert theirs.json()["message"].replace(other, "") == none.json()["message"].replace("nobody", "")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"context": "other"}, "other"),
        ({"kubeconfig": "/nowhere"}, "/nowhere"),
        ({"namespace": "team-b"}, "team-b"),
    ],
)
def test_what_is_wrong_is_one_sentence(served: Controller, tmp_path: Path, what: dict[str, str], message: str) -> None:
    with serving(source(served, **what), tmp_path / "assets") as made:
        answer = made.ask("/api/v1/runs")
    assert 400 <= answer.status < 500
    assert message in answer.json()["message"]


@pytest.mark.skipif(bool(vendor_faults()), reason="the page's modules are not made: make page")
def test_the_command_tells_it_at_once(served: Controller) -> None:
    printed = spotwright("page", "-n", "team-b", "--no-browser", "--listen", "127.0.0.1:0", *served.options())
    assert (printed.code, printed.out) == (2, "")
    assert "you may not list SpotRuns in namespace team-b" in printed.err
    printed = spotwright("page", "nobody", "--no-browser", "--listen", "127.0.0.1:0", *served.options())
    assert printed.code == 2
    assert "nobody" in printed.err
