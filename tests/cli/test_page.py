"""``spotwright page`` and ``run --page`` as a user types them: the address, the end, and what is refused."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.e2e.building import step
from tests.e2e.inside import raise_file, until
from tests.e2e.project import Project, RunningCommand, eventually
from tests.page.made_runs import Kind, make_run

from spotwright.cli.page import _bound
from spotwright.errors import InputError
from spotwright.notices.agent import Address
from spotwright.page.vendor import vendor_faults

pytestmark = pytest.mark.skipif(bool(vendor_faults()), reason="the page's modules are not made: make page")

ADDRESS = re.compile(r"the page is at (http://\S+)")


def address_of(command: RunningCommand) -> str:
    """The address that a page has printed."""
    found = eventually(lambda: ADDRESS.search(command.out.read_text()), 30)
    return str(found[1])


class Visitor:
    """Somebody who has opened an address, with the cookie that it gave."""

    def __init__(self, address: str) -> None:
        self.url = urlsplit(address)
        self.cookie = ""
        status, headers, _ = self.get(f"{self.url.path}?{self.url.query}")
        assert status == 303
        self.cookie = headers["Set-Cookie"].partition(";")[0]

    def get(self, target: str) -> tuple[int, Any, bytes]:
        """Status, headers and body of an answer."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.url.port or 0, timeout=30)) as connection:
            connection.request("GET", target, headers={"Cookie": self.cookie} if self.cookie else {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def runs(self) -> list[str]:
        """The names of all runs."""
        return [line["run"] for line in json.loads(self.get("/api/v1/runs")[2])["lines"]]


def page(project: Project, *options: str) -> RunningCommand:
    """Start a page at a free port."""
    return project.start("page", "--no-browser", "--listen", "127.0.0.1:0", *options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_prints_its_address_serves_the_runs_and_ends_at_a_signal(project: Project, number: signal.Signals) -> None:
    make_run(project.state, "one", Kind(1))
    command = page(project)
    visitor = Visitor(address_of(command))
    assert visitor.runs() == ["one"]
    assert b"<html" in visitor.get("/")[2]
    stream = http.client.HTTPConnection("127.0.0.1", visitor.url.port or 0, timeout=30)
    stream.request("GET", "/api/v1/stream?run=one", headers={"Cookie": visitor.cookie})
    began = time.monotonic()
    command.send(number)
    done = command.wait(20)  # and no process is left, says the fixture
    assert done.code == 0
    assert time.monotonic() - began < 6
    assert done.err == "Ctrl-C ends it\n"
    stream.close()


def test_two_pages_of_one_project_have_tokens_of_their_own(project: Project) -> None:
    make_run(project.state, "one", Kind(1))
    commands = [page(project), page(project, "one")]
    visitors = [Visitor(address_of(command)) for command in commands]
    assert [visitor.runs() for visitor in visitors] == [["one"], ["one"]]
    assert visitors[1].url.path == "/runs/one"
    visitors[0].cookie, visitors[1].cookie = visitors[1].cookie, visitors[0].cookie
    assert [visitor.get("/api/v1/runs")[0] for visitor in visitors] == [401, 401]
    for command in commands:
        command.send(signal.SIGTERM)
        assert command.wait(20).code == 0


def test_a_run_is_named_as_in_other_commands(project: Project) -> None:
    make_run(project.state, "alpha", Kind(1))
    make_run(project.state, "beta", Kind(1))
    for name, found in (("last", "beta"), ("al", "alpha")):
        command = page(project, name)
        assert urlsplit(address_of(command)).path == f"/runs/{found}"
        command.send(signal.SIGTERM)
        command.wait(20)
    done = project.spotwright("page", "--no-browser", "nobody")
    assert (done.code, done.out) == (2, "")
    assert done.err == project.here("show", "nobody").err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--listen", "0.0.0.0:8790"],
            "--listen 0.0.0.0: the page has no login, so it listens on this machine alone: use 127.0.0.1",
        ),
        (["--listen", "192.168.1.5:8790"], "use 127.0.0.1"),
        (["--listen", "[::]:8790"], "use 127.0.0.1"),
        (["--listen", "8790"], "Invalid value for '--listen'"),
        (["--base-path", "spot"], "--base-path 'spot': expected a path such as /spotwright"),
        (["--base-path", "/a/../b"], "expected a path such as /spotwright"),
        (["--base-path", "/a//b"], "expected a path such as /spotwright"),
        (["--kfp-url", "javascript:alert(1)"], "expected an address that begins with http:// or https://"),
        (["--workers", "0"], "Invalid value for '--workers'"),
    ],
)
def test_options_that_are_refused(project: Project, options: list[str], message: str) -> None:
    done = project.here("page", "--no-browser", *options)
    assert done.code == 2
    assert message in done.err


def test_a_state_folder_of_a_newer_version_is_told_at_once(project: Project) -> None:
    make_run(project.state, "one", Kind(1))
    (project.state / "format").write_text("99\n")
    done = project.here("page", "--no-browser", "--listen", "127.0.0.1:0")
    assert done.code == 2
    assert "written by a newer version of spotwright" in done.err


def test_where_the_port_is_taken_the_next_is_used_unless_it_was_asked_for() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with closing(_bound(Address("127.0.0.1", port), only_port=False)) as other:
            assert port < other.getsockname()[1] <= port + 20
        with pytest.raises(
            InputError, match=rf"--listen 127.0.0.1:{port}: cannot be listened at \(Address already in use\)"
        ):
            _bound(Address("127.0.0.1", port), only_port=True)


# -- beside a run


def works() -> int:
    return 1


def fails() -> int:
    raise ValueError("it fails")


def holds() -> int:
    raise_file("began")
    until("go on")
    return 1


WORK = {"work": step(works)}
FAILS = {"work": step(fails)}


class Terminal:
    """A command at a terminal of its own. ``out``: what it printed there."""

    def __init__(self, project: Project, *command: str) -> None:
        self.far, near = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "spotwright", *command],
            cwd=project.folder, env=project.env, stdin=near, stdout=near, stderr=near, start_new_session=True,
        )  # fmt: skip
        os.close(near)
        self.out = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self.far, 65536)
            except OSError:  # nobody has the other side any more
                return
            if not piece:
                return
            self.out += piece.decode(errors="replace")

    def wait(self) -> int:
        """Its exit code."""
        code = self.process.wait(60)
        self._reader.join(30)
        os.close(self.far)
        return code


@contextmanager
def browser(project: Project) -> Iterator[Path]:
    """A browser that notes the address that it opens in a file."""
    opened = project.folder / "opened"
    script = project.write("browser", f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n')
    script.chmod(0o755)
    project.extra["BROWSER"] = f"{script} %s"
    yield opened


def test_the_page_beside_a_run_stays_until_ctrl_c_and_the_exit_code_is_the_runs(project: Project) -> None:
    pipeline = project.pipeline(WORK)
    with browser(project) as opened:
        terminal = Terminal(project, "run", str(pipeline), "--name", "r", "--page")
        eventually(lambda: "the page stays" in terminal.out, 60)
    found = ADDRESS.match(terminal.out)
    assert found is not None  # in the first line
    assert urlsplit(found[1]).path == "/runs/r"
    assert eventually(opened.exists, 30)
    here = urlsplit(opened.read_text().strip())
    assert here._replace(query="") == urlsplit(found[1])._replace(query="")
    assert here.query != urlsplit(found[1]).query  # others see a browser's arguments: its token is right once
    assert Visitor(found[1]).runs() == ["r"]
    assert terminal.process.poll() is None
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.wait() == 0
    assert terminal.out.count("the run has ended, and the page stays: Ctrl-C ends it") == 1


def test_a_run_that_ctrl_c_stops_ends_with_its_page_and_is_resumed_with_another(project: Project) -> None:
    pipeline = project.pipeline({"work": step(holds)})
    with browser(project):
        terminal = Terminal(project, "run", str(pipeline), "--name", "r", "--page")
        eventually((project.playground / "began").exists, 60)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.wait() == 130
        assert "the page stays" not in terminal.out
    project.raise_file("go on")
    done = project.spotwright("resume", "r", "--page")
    assert done.code == 0
    assert ADDRESS.match(done.out)


def test_without_a_terminal_the_page_ends_with_the_run(project: Project) -> None:
    with browser(project) as opened:
        done = project.run(project.pipeline(FAILS), "--page", "--json")
    assert done.code == 1
    assert json.loads(done.out)["status"] == "failed"  # nothing else is printed there
    assert ADDRESS.match(done.err)
    assert not opened.exists()


def test_wrong_input_of_a_run_ends_its_page_too(project: Project) -> None:
    done = project.run(project.pipeline(WORK), "--page", "--set", "nothing=1")
    assert done.code == 2
