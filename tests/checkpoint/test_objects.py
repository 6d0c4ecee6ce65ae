"""Object stores: a real server that speaks S3 on the loopback, and fsspec's own file system in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoint.s3_server import s3_server

from spotwright.checkpoint import Checkpoint, PlaceError, SaveFailed, StaleWriter

HERE = Path(__file__).parent


@pytest.fixture(scope="module", autouse=True)
def endpoint() -> Iterator[str]:
    """A server of S3, started only in the process of the suite that executes these tests."""
    with s3_server("bucket") as url:
        yield url


@pytest.fixture
def place(endpoint: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of a checkpoint below a separate prefix."""
    return {"place": f"s3://bucket/{request.node.name}/run", "storage_options": {"endpoint_url": endpoint}}


def newest(place: dict[str, Any]) -> Any:
    return Checkpoint(**place, writer=False).load()


def test_a_state_comes_back_from_a_bucket(place: dict[str, Any]) -> None:
    import numpy as np

    large = np.arange(3_000_000)
    with Checkpoint(**place) as ckpt:
        assert ckpt.load(default="none") == "none"
        ckpt.save({"large": large, "small": [1, (2.5, None)], "bytes": b"x"})

    loaded = newest(place)
    assert np.array_equal(loaded.pop("large"), large)
    assert loaded == {"small": [1, (2.5, None)], "bytes": b"x"}


def test_a_bucket_keeps_as_many_saves_as_a_folder(place: dict[str, Any]) -> None:
    with Checkpoint(**place, keep=2) as ckpt:
        for number in range(4):
            ckpt.save(number)
        names = ckpt._manager.store.names()

    assert sum(name.startswith("state-") for name in names) == 2
    assert sum(name.startswith("entry-") for name in names) == 3


@pytest.mark.usefixtures("attempts_in_one_process")
def test_the_older_of_two_writers_is_refused_in_a_bucket(
    place: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with Checkpoint(**place) as older, Checkpoint(**place) as younger:
        older.load()
        older.save("first")
        assert younger.load() == "first"

        with pytest.raises(StaleWriter, match="another attempt took over"):
            older.save("late")
    assert newest(place) == "first"
    assert "overwrites" not in caplog.text


@pytest.mark.usefixtures("attempts_in_one_process")
def test_a_commit_that_meets_a_claim_is_refused_by_the_server(
    place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Checkpoint(**place) as older, Checkpoint(**place) as younger:
        older.load()
        older.save("first")
        check = older._manager.log.check

        def begin_between() -> None:
            check()
            younger.load()

        monkeypatch.setattr(older._manager.log, "check", begin_between)
        with pytest.raises(StaleWriter):
            older.save("late")
    assert newest(place) == "first"


def test_a_torn_object_is_passed_over(place: dict[str, Any]) -> None:
    with Checkpoint(**place) as ckpt:
        ckpt.save(1)
        ckpt.save(2)
        store: Any = ckpt._manager.store
        last = max(name for name in store.names() if name.startswith("state-"))
        store._system.pipe_file(store._path(last), b"torn")

    assert newest(place) == 1


def test_files_come_back_from_a_bucket(place: dict[str, Any], tmp_path: Path) -> None:
    from spotwright.checkpoint import Directory

    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "weights").write_bytes(os.urandom(100_000))
    with Checkpoint(**place) as ckpt:
        ckpt.save(Directory(tmp_path / "source"))
        ckpt.load().restore(tmp_path / "target")

    assert (tmp_path / "target" / "weights").read_bytes() == (tmp_path / "source" / "weights").read_bytes()


def test_a_missing_bucket_is_reported(endpoint: str) -> None:
    with pytest.raises(PlaceError, match=r"s3://nowhere/run: cannot be written .*bucket"):
        Checkpoint("s3://nowhere/run", storage_options={"endpoint_url": endpoint}).load()


def test_missing_credentials_are_reported_and_none_are_shown(endpoint: str) -> None:
    code = (
        "import sys; from spotwright.checkpoint import Checkpoint, PlaceError\n"
        "try:\n    Checkpoint('s3://bucket/x', storage_options={'endpoint_url': sys.argv[1]}).load()\n"
        "except PlaceError as error:\n    print(error)\n"
    )
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-c", code, endpoint], capture_output=True, text=True, check=False,
        env={**bare, "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(HERE / "nowhere")},
    )  # fmt: skip

    assert "check that the credentials of this process" in done.stdout, done.stderr


def test_a_server_that_goes_away_fails_the_save_and_not_the_training(
    place: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Checkpoint(**place, every=0) as ckpt:
        ckpt.load()
        steps = ckpt.steps(5)
        next(steps)
        assert ckpt.step_done(1)
        store: Any = ckpt._manager.store
        next(steps)
        with monkeypatch.context() as patch:
            patch.setattr(
                store._system, "open", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("reset by peer"))
            )
            assert not ckpt.step_done(2)
        next(steps)
        assert ckpt.step_done(3)

    assert "ConnectionError: reset by peer" in caplog.text
    assert newest(place) == 3


def test_a_store_that_ignores_conditional_writes_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    class Careless(MemoryFileSystem):
        protocol = "careless"

        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
            super().pipe_file(path, value)

    import fsspec

    fsspec.register_implementation("careless", Careless, clobber=True)
    with Checkpoint("careless://place/run") as ckpt:
        ckpt.load()
    assert "ignores conditional writes" in caplog.text


@pytest.mark.usefixtures("attempts_in_one_process")
def test_any_other_file_system_of_fsspec_works(caplog: pytest.LogCaptureFixture) -> None:
    with Checkpoint("memory://place/run") as older, Checkpoint("memory://place/run") as younger:
        older.load()
        older.save(1)
        assert younger.load() == 1
        with pytest.raises(StaleWriter):
            older.save(2)
    assert caplog.text == ""


def fail(file: Any) -> None:
    file._file.write = lambda _: (_ for _ in ()).throw(OSError("gone"))
    file.write(b"x")


def test_errors_of_the_client_are_distinguished_from_errors_of_the_state(place: dict[str, Any]) -> None:
    store: Any = Checkpoint(**place)._manager.store

    with pytest.raises(KeyError), store.write("state-1"):
        raise KeyError
    with pytest.raises(SaveFailed, match="OSError: gone"), store.write("state-2") as file:
        fail(file)
    assert store.names() == []


def test_credentials_in_an_address_are_not_shown() -> None:
    assert Checkpoint("memory://user:secret@place/run?token=x")._manager.store.place == "memory://place/run"
