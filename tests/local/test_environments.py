"""Python environments for packages of tasks, built once and cached, never the user's own."""

from __future__ import annotations

import base64
import functools
import http.server
import json
import os
import shlex
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.local.process_harness import ProcessHarness, marked, until
from tests.local.wheels import wheel

import spotwright.checkpoint
from spotwright.kfp.executors import PythonComponent
from spotwright.local import build_environment, python_envs
from spotwright.local.build_environment import without_credentials
from spotwright.local.protocol import Ended, PythonEnvironment, StartFailed
from spotwright.local.python_envs import directory_of, environment_of, find_python
from spotwright.version import __version__

USES = "def work() -> str:\n    import littlepackage, sys\n    return littlepackage.VERSION + ' ' + sys.prefix\n"


pytestmark = pytest.mark.long


@pytest.fixture
def little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PythonEnvironment:
    """An environment with one package, built without a network."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return PythonEnvironment((f"littlepackage @ {wheel(tmp_path / 'wheels').as_uri()}",))


def built(harness: ProcessHarness) -> list[Path]:
    return [path for path in (harness.folder / "cache").iterdir() if path.is_dir()]


def test_packages_are_installed_and_not_in_the_users_environment(
    harness: ProcessHarness, little: PythonEnvironment
) -> None:
    assert harness.play(USES, environment=little).exit_code == 0
    version, prefix = harness.output().split()
    assert version == "1.0"
    assert Path(prefix) == directory_of(little, harness.folder / "cache")
    with pytest.raises(ImportError):
        __import__("littlepackage")


@pytest.mark.parametrize("name", ["spotwright", "spotwright-train"])
def test_spotwright_itself_is_not_installed_by_pip(name: str) -> None:
    packages = (name, f"{name} == {__version__}", f"{name}==0.0.1", "pandas")

    assert environment_of(PythonComponent("def f(): ...", "f", packages)).packages == (f"{name}==0.0.1", "pandas")


def test_orders_share_one_build_and_later_orders_reuse_it(harness: ProcessHarness, little: PythonEnvironment) -> None:
    keys = [harness.start(USES, name=f"task-{number}", environment=little) for number in range(3)]
    assert len(harness.processes.builds.running) == 1
    assert {harness.end(key).exit_code for key in keys} == {0}
    harness.start(USES, name="later", environment=little)
    assert harness.processes.builds.running == []
    assert harness.end("later#1").exit_code == 0
    assert len(harness.processes._servers) == 1


def test_a_later_run_reuses_the_environment(harness: ProcessHarness, little: PythonEnvironment) -> None:
    harness.play(USES, environment=little)
    other = ProcessHarness(harness.folder / "other", cache=harness.folder / "cache")
    try:
        assert other.play(USES, environment=little).exit_code == 0
        assert other.processes.builds.running == []
    finally:
        other.close()


def test_two_engines_build_once(harness: ProcessHarness, little: PythonEnvironment) -> None:
    other = ProcessHarness(harness.folder / "other", cache=harness.folder / "cache")
    try:
        key, others = harness.start(USES, environment=little), other.start(USES, environment=little)
        assert harness.end(key).exit_code == 0
        assert other.end(others).exit_code == 0
        assert len(built(harness)) == 1
    finally:
        other.close()


def test_an_environment_has_only_the_packages_and_kfps_runtime(
    harness: ProcessHarness, little: PythonEnvironment
) -> None:
    harness.play(
        """
        import importlib.metadata, subprocess, sys
        def work() -> list:
            import kfp
            subprocess.run([sys.executable, "-c", "import kfp.dsl"], check=True)
            names = sorted(found.name for found in importlib.metadata.distributions())
            third = sorted({m.__file__ for m in sys.modules.values() if "site-packages" in (getattr(m, "__file__", "") or "")})
            return [names, third, "linked-packages" in kfp.__file__]
        """,
        environment=little,
    )
    assert harness.output() == [["littlepackage"], [], True]


def test_an_environment_has_the_checkpoint_library_of_this_spotwright(
    harness: ProcessHarness, little: PythonEnvironment
) -> None:
    source = (
        "def work() -> list:\n"
        "    import littlepackage, os, spotwright.checkpoint as library\n"
        "    return [library.__file__, os.path.realpath(library.__file__)]\n"
    )
    assert harness.play(source, environment=little).exit_code == 0
    linked, real = harness.output()
    assert Path(linked).is_relative_to(directory_of(little, harness.folder / "cache"))
    assert real == os.path.realpath(spotwright.checkpoint.__file__)


def test_a_listed_spotwright_takes_precedence(
    harness: ProcessHarness, little: PythonEnvironment, tmp_path: Path
) -> None:
    own = f"spotwright @ {wheel(tmp_path / 'wheels', 'spotwright', '9.9', 'spotwright/__init__.py').as_uri()}"
    source = "def work() -> str:\n    import spotwright\n    return spotwright.VERSION\n"

    assert harness.play(source, environment=PythonEnvironment((*little.packages, own))).exit_code == 0
    assert harness.output() == "9.9"


def test_a_listed_kfp_package_takes_precedence(
    harness: ProcessHarness, little: PythonEnvironment, tmp_path: Path
) -> None:
    own = f"kfp @ {wheel(tmp_path / 'wheels', 'kfp', '0.1', 'kfp/__init__.py').as_uri()}"
    environment = PythonEnvironment((*little.packages, own))
    failed = harness.wait_for(StartFailed, harness.start(USES, environment=environment))
    assert "kfp.dsl" in failed.reason  # the listed package takes precedence, and it has no runtime


def test_packages_that_cannot_be_installed_are_reported(
    harness: ProcessHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    keys = [
        harness.start(USES, name=name, environment=PythonEnvironment(("no-such-package-here",)))
        for name in ("one", "two")
    ]
    failed = [harness.wait_for(StartFailed, key) for key in keys]
    assert all("no-such-package-here" in event.reason for event in failed)
    assert "No matching distribution" in failed[0].reason
    assert not failed[0].ours


def test_a_cache_folder_that_cannot_be_written_is_one_message(tmp_path: Path, little: PythonEnvironment) -> None:
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "environments"
    with closing(ProcessHarness(tmp_path / "run", cache=cache)) as harness:
        failed = harness.wait_for(StartFailed, harness.start(USES, environment=little))
    assert failed.reason.splitlines()[0] == (
        f"packages could not be installed: {cache}: cannot be written (Not a directory); "
        "free some space there, or set XDG_CACHE_HOME to a folder that this user can write"
    )
    assert "Traceback" not in failed.reason


def on_small_disk(disk: Path, kilobytes: int, script: str, *arguments: str, text: str = "") -> tuple[int, str]:
    """Execute a shell script whose mount namespace has a small disk at this folder; returns its exit status and output."""
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(disk)]
    if subprocess.run(["unshare", "--mount", *mount], check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    command = ["unshare", "--mount", "sh", "-c", f"{shlex.join(mount)} && {script}", "sh", *arguments]
    done = subprocess.run(command, input=text, stdout=-1, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("kilobytes", [16, 400])
def test_a_disk_that_is_full_while_an_environment_is_built_is_named(
    tmp_path: Path, little: PythonEnvironment, kilobytes: int
) -> None:
    """venv needs more than 16 kB, and pip more than 400 kB for this package."""
    made = next((tmp_path / "wheels").glob("*.whl"))
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr("large.bin", bytes(2_000_000))
    lists: dict[str, list[str]] = {"index_urls": [], "trusted_hosts": [], "shown": ["littlepackage"]}
    request = {"python": sys.executable, "packages": little.packages, "linked": {}, **lists}
    disk = tmp_path / "disk"
    arguments = [sys.executable, build_environment.__file__, str(disk / "e")]
    status, output = on_small_disk(disk, kilobytes, 'exec "$@"', *arguments, text=json.dumps(request))

    assert status == build_environment.UNWRITABLE, output
    assert output.splitlines()[-1] == (
        f"{disk}: cannot be written (No space left on device); free some space there, or set XDG_CACHE_HOME to a folder that "
        "this user can write"
    )


def test_a_full_disk_of_temporary_files_is_named_with_their_variable(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from spotwright.local.build_environment import _FullDisk\n"
        "full = _FullDisk(Path(sys.argv[1])); full.look('ERROR: [Errno 28] No space left on device: x')\n"
        "print(full.folder, full.variable, full.words)"
    )
    fill = 'head -c 8192 /dev/zero > "$1/filler"; TMPDIR="$1" exec "$2" -c "$3" "$4"'
    disk = tmp_path / "disk"
    status, output = on_small_disk(disk, 16, fill, str(disk), sys.executable, code, str(tmp_path))

    assert (status, output.strip()) in (
        (0, f"{disk} TMPDIR No space left on device"),
        (
            0,
            f"{tmp_path} XDG_CACHE_HOME No space left on device",
        ),  # Python takes another folder if it cannot write there
    )


def test_a_failed_build_is_repeated_for_the_next_order(
    harness: ProcessHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    environment = PythonEnvironment(
        (f"littlepackage @ {(tmp_path / 'wheels' / 'littlepackage-1.0-py3-none-any.whl').as_uri()}",)
    )
    harness.wait_for(StartFailed, harness.start(USES, name="one", environment=environment))
    wheel(tmp_path / "wheels")
    assert harness.play(USES, name="two", environment=environment).exit_code == 0


@pytest.mark.parametrize("harm", ["marker", "python"])
def test_an_incomplete_environment_is_built_again(
    harness: ProcessHarness, little: PythonEnvironment, harm: str
) -> None:
    harness.play(USES, name="one", environment=little)
    directory = directory_of(little, harness.folder / "cache")
    if harm == "marker":
        (directory / "spotwright-built.json").unlink()
        (directory / "lib").rename(directory / "gone")
    else:
        (directory / "bin" / "python").unlink()
        (directory / "bin" / "python").symlink_to("/nowhere")
    later = ProcessHarness(harness.folder / "later", cache=harness.folder / "cache")
    try:
        assert later.play(USES, environment=little).exit_code == 0
    finally:
        later.close()


def test_the_link_to_a_moved_kfp_is_renewed(harness: ProcessHarness, little: PythonEnvironment) -> None:
    harness.play(USES, environment=little)
    link = directory_of(little, harness.folder / "cache") / "linked-packages" / "kfp"
    expected = link.readlink()
    link.unlink()
    link.symlink_to("/nowhere/kfp")
    assert find_python(little, harness.folder / "cache") is not None
    assert link.readlink() == expected


def test_an_attempt_that_is_killed_while_it_waits_for_packages_never_runs(
    harness: ProcessHarness, little: PythonEnvironment
) -> None:
    key = harness.start(USES, environment=little)
    harness.processes.kill(key)
    assert harness.wait_for(Ended, key).record is None
    harness.turn_until(lambda: not harness.processes.builds.running, "the build's end")
    assert not (harness.directory() / "claim").exists()


def test_closing_ends_a_running_build(harness: ProcessHarness, little: PythonEnvironment) -> None:
    harness.start(USES, environment=little)
    until(lambda: marked(harness.run), "the builder")  # a program that is being loaded has no environment yet
    harness.processes.close()
    assert marked(harness.run) == []


def test_the_engines_pythonpath_does_not_reach_a_built_environment(
    harness: ProcessHarness, little: PythonEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = harness.folder / "own"
    own.mkdir()
    (own / "littlepackage.py").write_text("VERSION = 'shadow'\n")
    monkeypatch.setenv("PYTHONPATH", str(own))
    harness.play(USES, environment=little)
    assert harness.output().startswith("1.0 ")


class Index(http.server.SimpleHTTPRequestHandler):
    """A package index on the loopback that requires a password."""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") == "Basic " + base64.b64encode(b"user:hunter2").decode():
            super().do_GET()
        else:
            self.send_error(401)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """The index's URL without credentials."""
    wheel(tmp_path / "simple" / "littlepackage")
    handler = functools.partial(Index, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}/simple/"
        server.shutdown()
        thread.join()


def test_an_index_with_credentials_is_used(harness: ProcessHarness, index: str) -> None:
    environment = PythonEnvironment(("littlepackage",), (f"http://user:hunter2@{index}",), ("127.0.0.1",))
    assert harness.play(USES, environment=environment).exit_code == 0
    texts = [path.read_bytes() for path in (harness.folder / "cache").rglob("*.json")]
    assert not any(b"hunter2" in text for text in texts)


def test_the_credentials_of_an_index_are_never_printed(harness: ProcessHarness, index: str) -> None:
    environment = PythonEnvironment(("littlepackage==7",), (f"http://user:hunter2@{index}",), ("127.0.0.1",))
    key = harness.start(USES, environment=environment)
    (builder,) = harness.processes.builds.running
    command = Path(f"/proc/{builder}/cmdline").read_bytes()
    failed = harness.wait_for(StartFailed, key)
    assert b"hunter2" not in command
    assert "littlepackage==7" in failed.reason
    assert "hunter2" not in failed.reason


def test_credentials_are_removed_from_urls() -> None:
    assert (
        without_credentials("https://me:pw@x/y git+ssh://git@host/p http://z/")
        == "https://***@x/y git+ssh://***@host/p http://z/"
    )


def test_the_order_of_packages_does_not_matter_but_that_of_options_does(tmp_path: Path) -> None:
    def name(*packages: str) -> Path:
        return directory_of(PythonEnvironment(packages), tmp_path)

    assert name("a", "b") == name("b", "a") != name("a")
    assert name("--find-links", "x", "a") != name("x", "--find-links", "a")


@pytest.mark.parametrize("field", ["index_urls", "trusted_hosts"])
def test_another_index_is_another_environment(tmp_path: Path, field: str) -> None:
    other = PythonEnvironment(("a",), **{field: ("https://one",)})  # type: ignore[arg-type]
    assert directory_of(PythonEnvironment(("a",)), tmp_path) != directory_of(other, tmp_path)


def test_without_packages_the_interpreter_is_the_engines(tmp_path: Path) -> None:
    assert find_python(PythonEnvironment(), tmp_path) == sys.executable


def test_the_cache_folder_follows_xdg_cache_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert python_envs.cache_folder() == tmp_path / "spotwright" / "environments"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", os.sep + "home-of-a-user")
    assert python_envs.cache_folder() == Path("/home-of-a-user/.cache/spotwright/environments")
