"""``spot.rehearse`` with a configuration that is a mapping."""

from __future__ import annotations

import json
from itertools import chain, repeat
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer
from threading import Thread

import pytest

import spotwright as spot
from spotwright.errors import InputError

POOLS = {"own": {"capacity": "spot", "notice": "1s", "simulate": {"boot": "0s"}}}


@pytest.mark.long
def test_the_pools_of_a_rehearsal_can_be_given_as_a_mapping(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    spot.rehearse(
        ["sh", "-c", "echo done > result"],
        config={"pools": POOLS},
        folder=work,
        state=tmp_path / "state",
        interruptions=1,
        seed=1,
        progress=False,
    )
    plans = list((tmp_path / "state").glob("rehearsals/*/runs/*/plan-1.json"))
    assert plans
    for plan in plans:
        assert json.loads(json.loads(plan.read_text())["config"]["text"])["pools"] == POOLS


def test_a_wrong_mapping_is_refused_before_anything_is_executed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^<config>:1: pools\.own\.capacity: .*'sport'"):
        spot.rehearse(["true"], config={"pools": {"own": {"capacity": "sport"}}}, folder=tmp_path, state=tmp_path / "s")
    assert not list(tmp_path.glob("s/rehearsals/*"))


def test_a_command_is_rehearsed_with_the_file_at_the_root_of_its_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "spotwright.yaml").write_text(f"version: 1\npools: {json.dumps(POOLS)}\n")
    (tmp_path / "work").mkdir()
    spot.rehearse(["true"], folder=tmp_path / "work", state=tmp_path / "state", interruptions=1, seed=1, progress=False)
    plans = list((tmp_path / "state").glob("rehearsals/*/runs/*/plan-1.json"))
    assert [json.loads(plan.read_text())["config"]["path"] for plan in plans] == [
        str(tmp_path / "spotwright.yaml")
    ] * len(plans)
    assert plans


@pytest.mark.long
def test_a_step_that_gets_faster_is_interrupted_in_the_middle_all_the_same(tmp_path: Path) -> None:
    """Its first execution takes six times as long, so a third of that, and half of it, are more than it takes later."""
    work = tmp_path / "work"
    work.mkdir()
    durations = chain(("6",), repeat("1"))

    class Answer(StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(f"{next(durations)}\n".encode())

    with TCPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        script = f"read -r seconds < /dev/tcp/127.0.0.1/{server.server_address[1]}; sleep $seconds; echo done > result"
        report = spot.rehearse(
            ["bash", "-c", script],
            config={"pools": POOLS},
            folder=work,
            state=tmp_path / "state",
            interruptions=1,
            seed=1,
            progress=False,
        )
        server.shutdown()
        thread.join()
    middle = [point for point in report.steps[0]["points"] if point["kind"] == "middle"]
    assert len(middle) == 2
    assert all(point["interrupted"] for point in middle), middle
