"""A notice as a file."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.notices.servers import after

from spotwright.local.attempt_orders import NOTICE, write_notice
from spotwright.notices import KINDS, SourceError
from spotwright.notices.sources import FileSource, _read


def test_no_file_is_no_notice(tmp_path: Path) -> None:
    assert FileSource(tmp_path / "notice.json").wait(0) is None
    assert FileSource(tmp_path / "notice.json" / "below").wait(0) is None


def test_what_a_local_run_writes_is_read(tmp_path: Path) -> None:
    ends_at = time.time() + 7
    write_notice(tmp_path, time.time(), ends_at, "at 50% of the work of train")
    notice = FileSource(tmp_path / NOTICE).wait(0)
    assert notice is not None
    assert (notice.ends_at, notice.kind, notice.certain) == (ends_at, "interruption", True)
    assert notice.reason == "at 50% of the work of train"


def test_a_file_that_is_removed_withdraws_its_notice(tmp_path: Path) -> None:
    write_notice(tmp_path, time.time(), time.time() + 7, "why")
    source = FileSource(tmp_path / NOTICE)
    assert source.wait(0) is not None
    (tmp_path / NOTICE).unlink()
    assert source.wait(0) is None


def test_kind_and_certainty_are_optional(tmp_path: Path) -> None:
    path = tmp_path / "n"
    path.write_text(json.dumps({"goes_at": 2e9, "why": "drained", "kind": "disruption", "certain": False}))
    notice = FileSource(path).wait(0)
    assert notice is not None
    assert (notice.kind, notice.certain) == ("disruption", False)


def test_an_empty_file_says_that_the_node_goes_and_gives_the_shortest_time(tmp_path: Path) -> None:
    began = time.time()
    (tmp_path / "n").touch()
    notice = FileSource(tmp_path / "n").wait(0)
    assert notice is not None
    assert notice.ends_at == after(began, 30)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^file: "):
        FileSource(tmp_path).wait(0)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_notice_with_an_end(text: bytes) -> None:
    notice = _read(text, 1000.0)
    assert notice.ends_at > 0
    assert notice.kind in KINDS
