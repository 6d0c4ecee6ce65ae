"""``make demo``: the iris pipeline on spot nodes that are taken away while it runs, in a folder of its own.

The data is scikit-learn's packaged copy, packed as the tutorials' archive of CSV files and served on this machine only.
"""

from __future__ import annotations

import functools
import http.server
import io
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sklearn.datasets import load_iris

HERE = Path(__file__).resolve().parent
SEED = "2256"


def pack_iris(archive: Path) -> None:
    """Write the iris data as a tar.gz of one CSV file per species."""
    iris = load_iris(as_frame=True)
    frame = iris.frame.assign(species=iris.target_names[iris.target]).drop(columns="target")
    with tarfile.open(archive, "w:gz") as tar:
        for species, rows in frame.groupby("species"):
            content = rows.to_csv(index=False).encode()
            member = tarfile.TarInfo(f"iris-{species}.csv")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port of the loopback address; the value is its URL."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing: the download step prints what it fetched."""


def main() -> int:
    """Run the pipeline with a fixed seed; the exit code is the run's."""
    with tempfile.TemporaryDirectory() as data, served(Path(data)) as url:
        pack_iris(Path(data) / "iris-csv-files.tar.gz")
        command = [
            sys.executable, "-m", "spotwright", "run", str(HERE / "pipeline.py"),
            "--arg", f"url={url}/iris-csv-files.tar.gz", "--seed", SEED, *sys.argv[1:],
        ]  # fmt: skip
        run = subprocess.Popen(command)
        try:
            return run.wait()
        except KeyboardInterrupt:  # Ctrl-C reaches the run as well: it stops cleanly and says how to go on
            return run.wait()


if __name__ == "__main__":
    sys.exit(main())
