"""The tutorial's folder as a user has it, the data of the demo, and a server that can hold answers back."""

from __future__ import annotations

import http.server
import importlib.util
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.e2e.project import Project

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session")
def demo() -> ModuleType:
    """The demo's own module, which makes and serves its data."""
    spec = importlib.util.spec_from_file_location("iris_demo", EXAMPLES / "iris" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def archive(demo: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The iris data as the tutorials' archive."""
    path = tmp_path_factory.mktemp("data") / "iris-csv-files.tar.gz"
    demo.pack_iris(path)
    return path


@dataclass
class Server:
    """Serves the archive on the loopback address. A request that comes while ``holds`` is true is never answered."""

    url: str = ""
    holds: Callable[[], bool] = lambda: False
    requests: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Release waiting threads."""
        self.released.set()


@pytest.fixture
def server(archive: Path) -> Iterator[Server]:
    """A server that answers at once unless a test says otherwise."""
    made = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.requests += 1
            if made.holds():
                made.released.wait()
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(archive.read_bytes())

        def log_message(self, *_: Any) -> None:
            """Do not log."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        made.url = f"http://127.0.0.1:{serving.server_port}/{archive.name}"
        yield made
        made.release()
        serving.shutdown()
        thread.join()


@pytest.fixture
def tutorial(tmp_path: Path) -> Iterator[Project]:
    """A folder with the tutorial's files. After the test, all of its processes must have ended."""
    shutil.copytree(EXAMPLES / "tutorial", tmp_path, dirs_exist_ok=True)
    project = Project(tmp_path)
    yield project
    left = project.processes()
    project.end_all()
    assert not left, f"left behind: {left}"
