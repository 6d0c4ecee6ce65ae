"""Packages of tasks: an environment built once, kept for later runs, never the user's own."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.local.lab import Lab, marked, until

from spotwright.local import environments
from spotwright.local.environments import directory_of, find_python, without_credentials
from spotwright.local.orders import Ended, Environment, StartFailed

USES = "def work() -> str:\n    import littlepackage, sys\n    return littlepackage.VERSION + ' ' + sys.prefix\n"


pytestmark = pytest.mark.slow  # pip takes most of a second


def wheel(folder: Path, name: str = "littlepackage", version: str = "1.0", module: str = "littlepackage.py") -> Path:
    """A wheel with one module, ``VERSION`` in it."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {
        module: f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items())
    made = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in (files | {f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}).items():
            archive.writestr(path, text)
    return made


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
def little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment with one package; nothing is asked of any network."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return Environment((f"littlepackage @ {wheel(tmp_path / 'wheels').as_uri()}",))


def built(lab: Lab) -> list[Path]:
    return [path for path in (lab.folder / "cache").iterdir() if path.is_dir()]


def test_packages_are_there_and_not_in_the_users_environment(lab: Lab, little: Environment) -> None:
    assert lab.play(USES, environment=little).exit_code == 0
    version, prefix = lab.output().split()
    assert version == "1.0"
    assert Path(prefix) == directory_of(little, lab.folder / "cache")
    with pytest.raises(ImportError):
        __import__("littlepackage")


def test_orders_share_one_build_and_later_ones_need_none(lab: Lab, little: Environment) -> None:
    keys = [lab.start(USES, name=f"task-{number}", environment=little) for number in range(3)]
    assert len(lab.processes._builds) == 1
    assert {lab.end(key).exit_code for key in keys} == {0}
    lab.start(USES, name="later", environment=little)
    assert lab.processes._builds == {}
    assert lab.end("later#1").exit_code == 0
    assert len(lab.processes._servers) == 1


def test_a_later_run_finds_the_environment(lab: Lab, little: Environment) -> None:
    lab.play(USES, environment=little)
    other = Lab(lab.folder / "other", cache=lab.folder / "cache")
    try:
        assert other.play(USES, environment=little).exit_code == 0
        assert other.processes._builds == {}
    finally:
        other.close()


def test_two_engines_build_once(lab: Lab, little: Environment) -> None:
    other = Lab(lab.folder / "other", cache=lab.folder / "cache")
    try:
        key, others = lab.start(USES, environment=little), other.start(USES, environment=little)
        assert lab.end(key).exit_code == 0
        assert other.end(others).exit_code == 0
        assert len(built(lab)) == 1
    finally:
        other.close()


def test_only_kfps_runtime_is_there_beside_the_packages(lab: Lab, little: Environment) -> None:
    lab.play(
        """
        import importlib.metadata, subprocess, sys
        def work() -> list:
            import kfp
            subprocess.run([sys.executable, "-c", "import kfp.dsl"], check=True)
            names = sorted(found.name for found in importlib.metadata.distributions())
            third = sorted({m.__file__ for m in sys.modules.values() if "site-packages" in (getattr(m, "__file__", "") or "")})
            return [names, third, "kfp-runtime" in kfp.__file__]
        """,
        environment=little,
    )
    assert lab.output() == [["littlepackage"], [], True]


def test_a_kfp_that_the_user_lists_comes_first(lab: Lab, little: Environment, tmp_path: Path) -> None:
    own = f"kfp @ {wheel(tmp_path / 'wheels', 'kfp', '0.1', 'kfp/__init__.py').as_uri()}"
    environment = Environment((*little.packages, own))
    failed = lab.wait_for(StartFailed, lab.start(USES, environment=environment))
    assert "kfp.dsl" in failed.reason  # the listed one is looked at, and it has no runtime


def test_packages_that_cannot_be_installed_are_said(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    keys = [lab.start(USES, name=name, environment=Environment(("no-such-package-here",))) for name in ("one", "two")]
    failed = [lab.wait_for(StartFailed, key) for key in keys]
    assert all("no-such-package-here" in event.reason for event in failed)
    assert "No matching distribution" in failed[0].reason
    assert not failed[0].ours


def test_a_failed_build_is_tried_again(lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    environment = Environment(
        (f"littlepackage @ {(tmp_path / 'wheels' / 'littlepackage-1.0-py3-none-any.whl').as_uri()}",)
    )
    lab.wait_for(StartFailed, lab.start(USES, name="one", environment=environment))
    wheel(tmp_path / "wheels")
    assert lab.play(USES, name="two", environment=environment).exit_code == 0


@pytest.mark.parametrize("harm", ["marker", "python"])
def test_a_half_built_environment_is_made_again(lab: Lab, little: Environment, harm: str) -> None:
    lab.play(USES, name="one", environment=little)
    directory = directory_of(little, lab.folder / "cache")
    if harm == "marker":
        (directory / "spotwright-built.json").unlink()
        (directory / "lib").rename(directory / "gone")
    else:
        (directory / "bin" / "python").unlink()
        (directory / "bin" / "python").symlink_to("/nowhere")
    later = Lab(lab.folder / "later", cache=lab.folder / "cache")
    try:
        assert later.play(USES, environment=little).exit_code == 0
    finally:
        later.close()


def test_a_link_to_a_kfp_that_has_moved_is_renewed(lab: Lab, little: Environment) -> None:
    lab.play(USES, environment=little)
    link = directory_of(little, lab.folder / "cache") / "kfp-runtime" / "kfp"
    expected = link.readlink()
    link.unlink()
    link.symlink_to("/nowhere/kfp")
    assert find_python(little, lab.folder / "cache") is not None
    assert link.readlink() == expected


def test_an_attempt_that_is_killed_while_it_waits_for_packages_never_runs(lab: Lab, little: Environment) -> None:
    key = lab.start(USES, environment=little)
    lab.processes.kill(key)
    assert lab.wait_for(Ended, key).record is None
    lab.turn_until(lambda: not lab.processes._builds, "the build's end")
    assert not (lab.directory() / "claim").exists()


def test_closing_ends_a_build(lab: Lab, little: Environment) -> None:
    lab.start(USES, environment=little)
    until(lambda: marked(lab.run), "the builder")  # a program that is being loaded shows no environment for a moment
    lab.processes.close()
    assert marked(lab.run) == []


def test_the_engines_own_python_path_does_not_leak_in(
    lab: Lab, little: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = lab.folder / "own"
    own.mkdir()
    (own / "littlepackage.py").write_text("VERSION = 'shadow'\n")
    monkeypatch.setenv("PYTHONPATH", str(own))
    lab.play(USES, environment=little)
    assert lab.output().startswith("1.0 ")


class Index(http.server.SimpleHTTPRequestHandler):
    """A package index that wants a password, on the loopback."""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") == "Basic " + base64.b64encode(b"user:hunter2").decode():
            super().do_GET()
        else:
            self.send_error(401)

    def log_message(self, *_: object) -> None:
        """Silence."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """The index's address without its credentials."""
    wheel(tmp_path / "simple" / "littlepackage")
    handler = functools.partial(Index, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}/simple/"
        server.shutdown()
        thread.join()


def test_an_index_with_credentials_is_used(lab: Lab, index: str) -> None:
    environment = Environment(("littlepackage",), (f"http://user:hunter2@{index}",), ("127.0.0.1",))
    assert lab.play(USES, environment=environment).exit_code == 0
    texts = [path.read_bytes() for path in (lab.folder / "cache").rglob("*.json")]
    assert not any(b"hunter2" in text for text in texts)


def test_the_credentials_of_an_index_are_never_shown(lab: Lab, index: str) -> None:
    environment = Environment(("littlepackage==7",), (f"http://user:hunter2@{index}",), ("127.0.0.1",))
    key = lab.start(USES, environment=environment)
    (build,) = lab.processes._builds.values()
    command = Path(f"/proc/{build.process.pid}/cmdline").read_bytes()
    failed = lab.wait_for(StartFailed, key)
    assert b"hunter2" not in command
    assert "littlepackage==7" in failed.reason
    assert "hunter2" not in failed.reason


def test_credentials_are_taken_out_of_addresses() -> None:
    assert (
        without_credentials("https://me:pw@x/y git+ssh://git@host/p http://z/")
        == "https://***@x/y git+ssh://***@host/p http://z/"
    )


def test_the_order_of_packages_does_not_matter_but_that_of_options_does(tmp_path: Path) -> None:
    def name(*packages: str) -> Path:
        return directory_of(Environment(packages), tmp_path)

    assert name("a", "b") == name("b", "a") != name("a")
    assert name("--find-links", "x", "a") != name("x", "--find-links", "a")


@pytest.mark.parametrize("field", ["index_urls", "trusted_hosts"])
def test_another_index_is_another_environment(tmp_path: Path, field: str) -> None:
    other = Environment(("a",), **{field: ("https://one",)})  # type: ignore[arg-type]
    assert directory_of(Environment(("a",)), tmp_path) != directory_of(other, tmp_path)


def test_without_packages_the_interpreter_is_the_engines(tmp_path: Path) -> None:
    assert find_python(Environment(), tmp_path) == sys.executable


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environments.cache_folder() == tmp_path / "spotwright" / "environments"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", os.sep + "home-of-somebody")
    assert environments.cache_folder() == Path("/home-of-somebody/.cache/spotwright/environments")
