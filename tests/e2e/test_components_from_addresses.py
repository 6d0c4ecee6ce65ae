"""Component YAML from addresses, verified by the digest in an address, or compared by the commit in it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.e2e.project import Project

COMPONENT = """
name: Says
outputs: [{name: out, type: String}]
implementation: {container: {image: alpine, command: [sh, -c, 'printf said > "$0"', {outputPath: out}]}}
"""
DIGEST = hashlib.sha256(COMPONENT.encode()).hexdigest()
COMMIT = "0123456789abcdef" * 2 + "01234567"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Do not log."""


@contextmanager
def served(project: Project) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(project.folder))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def pipeline(project: Project, address: str) -> Path:
    source = f"""from kfp import components, dsl
says = components.load_component_from_url("{address}")
@dsl.pipeline
def saying() -> str:
    return says().outputs["out"]
"""
    return project.write("saying.py", source)


@pytest.fixture
def component(project: Project) -> str:
    """The path of the component below the server's root, with a commit in it."""
    (project.folder / COMMIT).mkdir()
    project.write(f"{COMMIT}/says.yaml", COMPONENT)
    return f"/{COMMIT}/says.yaml"


def test_content_with_the_digest_in_its_address_is_accepted(project: Project, component: str) -> None:
    with served(project) as server:
        done = project.run(pipeline(project, f"{server}{component}#sha256={DIGEST.upper()}"), "--containers", "host")
    assert (done.code, "sha256" in done.out) == (0, False), done.err
    assert project.show()["outputs"]["Output"]["value"] == "said"


def test_content_that_differs_from_the_digest_in_its_address_is_refused_before_the_run(
    project: Project, component: str
) -> None:
    wanted = "0" * 64
    with served(project) as server:
        path = pipeline(project, f"{server}{component}#sha256={wanted}")
        done = project.run(path, "--containers", "host")
        message = f"its content changed: sha256 {DIGEST}, and the pipeline pins {wanted}"
        assert done.code == 2
        assert done.err == f"spotwright: {path}:2: {server}{component}: {message}\n"
    assert not (project.folder / ".spotwright").exists()


@pytest.mark.slow
def test_changed_content_of_a_commit_is_refused(project: Project, component: str) -> None:
    with served(project) as server:
        path = pipeline(project, f"{server}{component}")
        first = project.run(path, "--containers", "host", "--name", "first")
        project.write(component[1:], f"{COMPONENT}# changed\n")
        refused = project.run(path, "--containers", "host", "--name", "refused")
    assert (first.code, f"from now on its content is compared with sha256 {DIGEST}" in first.out) == (0, True), (
        first.err
    )
    assert refused.code == 2
    assert f"{component} changed although it names a commit" in refused.err
    assert f"before {DIGEST}." in refused.err


def test_an_address_without_digest_or_commit_is_noted(project: Project) -> None:
    project.write("says.yaml", COMPONENT)
    with served(project) as server:
        done = project.run(pipeline(project, f"{server}/says.yaml"), "--containers", "host")
    assert done.code == 0, done.err
    assert f"/says.yaml can change; write #sha256={DIGEST} after the address to have it verified" in done.out
