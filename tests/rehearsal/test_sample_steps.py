"""Every sample step gets its expected verdict."""

from __future__ import annotations

import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from kfp import dsl
from tests.rehearsal.conftest import Rehearse
from tests.rehearsal.process_steps import counts_on_a_server
from tests.rehearsal.samples import SAMPLES, USER_STEPS, SampleStep
from tests.sampling import shared

from spotwright.rehearsal.causes import step_cause
from spotwright.rehearsal.report import as_text
from spotwright.rehearsal.verdict import Verdict

pytestmark = pytest.mark.slow

SEEDS = 20
KEPT = {"by_hand"}
"""The sample of `make test`: a step that resumes. Steps that are not safe: test_rehearse_command.py, and `make test-long`."""


def check_verdict(rehearse: Rehearse, sample: SampleStep, seed: int, folder: Path) -> None:
    """Rehearse a sample step once, and compare the verdict."""
    ledger = str(folder / "ledger.csv")
    options = {"arguments": {"ledger": ledger}, "keep": (ledger,), "outputs": (ledger,)} if sample.writes_ledger else {}

    rehearsal = rehearse(sample.step, seed=seed, **options)

    assert rehearsal.steps[0].verdict is sample.verdict, as_text(rehearsal)
    assert sample.cause in step_cause(rehearsal.steps[0]), as_text(rehearsal)


@pytest.mark.parametrize("name", shared(2, KEPT, SAMPLES))
def test_a_sample_step_gets_its_verdict(name: str, rehearse: Rehearse, tmp_path: Path) -> None:
    check_verdict(rehearse, SAMPLES[name], len(name), tmp_path)


@pytest.mark.parametrize("name", shared(2, (), USER_STEPS))
def test_a_step_as_users_write_it_gets_its_verdict(name: str, rehearse: Rehearse, tmp_path: Path) -> None:
    check_verdict(rehearse, USER_STEPS[name], len(name), tmp_path)


@pytest.mark.many
@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("name", SAMPLES)
def test_the_same_seed_gives_the_same_verdict_ten_times(
    name: str, number: int, rehearse: Rehearse, tmp_path: Path
) -> None:
    check_verdict(rehearse, SAMPLES[name], 17, tmp_path)


def waits_for_three_seconds(model: dsl.Output[dsl.Model]) -> None:
    """Waits, as a step does that trains on a GPU or calls a service."""
    for _ in range(100):
        time.sleep(0.03)
    Path(model.path).write_text("done")


@pytest.mark.many
def test_the_verdict_on_a_step_that_waits_takes_five_times_its_time_and_ten_seconds(rehearse: Rehearse) -> None:
    began = time.monotonic()

    rehearsal = rehearse(waits_for_three_seconds, interruptions=5)

    assert time.monotonic() - began <= 5 * min(rehearsal.steps[0].undisturbed_seconds) + 10
    assert rehearsal.steps[0].verdict is Verdict.STARTS_OVER


@pytest.mark.long
def test_what_a_step_changes_on_a_server_is_named_as_not_compared(rehearse: Rehearse) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), _Counter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        rehearsal = rehearse(counts_on_a_server, arguments={"url": f"http://{address}/"})
        server.shutdown()

    assert rehearsal.steps[0].verdict.is_safe
    assert f"it connected to {address}: what it changed there is not compared" in as_text(rehearsal)


class _Counter(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.mark.many
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", SAMPLES | USER_STEPS)
def test_a_sample_step_gets_its_verdict_for_every_seed(
    name: str, seed: int, rehearse: Rehearse, tmp_path: Path
) -> None:
    check_verdict(rehearse, (SAMPLES | USER_STEPS)[name], 1000 + seed, tmp_path)
