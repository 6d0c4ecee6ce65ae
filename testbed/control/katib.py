"""What Katib needs beside its controller: a PostgreSQL, the db-manager, and names for the services of suggestions.

The controller dials each suggestion service by the name of its Service, and the test bed has no DNS: a process writes the
address of each suggestion's pod into the file that the controller sees as /etc/hosts. The database is Debian's PostgreSQL, on
the loopback of the control plane's network; its process refuses to be root, so it is the user ``postgres``, and its folder is
mounted where that user may go.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from testbed.building.builds import Cache
from testbed.control.api import Api
from testbed.errors import TestbedError
from testbed.machine.processes import Processes, run, wait_until
from testbed.settings import NETWORK, Settings

__all__ = ["ENVIRONMENT", "command", "start_parts"]

NAMESPACE = "kubeflow"
CONFIGURATION = Path(__file__).resolve().parent / "configuration" / "katib.yaml"
_PORT = "6789"  # of the db-manager

ENVIRONMENT: Mapping[str, str] = {
    "KATIB_CORE_NAMESPACE": NAMESPACE,
    "KATIB_DB_MANAGER_SERVICE_IP": NETWORK.control_plane,  # pods reach it as well
    "KATIB_DB_MANAGER_SERVICE_NAMESPACE": "",
    "KATIB_DB_MANAGER_SERVICE_PORT": _PORT,
}
"""The controller's environment. Its own manifests name the Service of the db-manager, in its namespace."""

_PRIVATE = ("unshare", "--mount", "--propagation", "private", "sh", "-ec")
_SEES = 'mount -t overlay overlay -o "lowerdir=$0/tmp:/tmp" /tmp; mount --bind "$0/hosts" /etc/hosts; exec "$@"'
"""The controller reads its certificate in /tmp/cert, and nowhere else (``consts.CertDir``)."""

_DATABASE = """\
mount --bind "$0" /var/lib/postgresql
[ -d /var/lib/postgresql/data ] || setpriv --reuid=postgres --regid=postgres --clear-groups \
  "$1/initdb" -D /var/lib/postgresql/data -U katib --auth=trust --no-sync
exec setpriv --reuid=postgres --regid=postgres --clear-groups \
  "$1/postgres" -D /var/lib/postgresql/data -h 127.0.0.1 -k /var/lib/postgresql -c fsync=off
"""
_SECONDS = 60.0
_TURN = 0.5  # seconds between two looks at the pods of suggestions


def _folder(settings: Settings) -> Path:
    return settings.folder / "tmp" / "katib"


def command(settings: Settings) -> list[str | Path]:
    """The prefix of the controller's command."""
    return [*_PRIVATE, _SEES, _folder(settings)]


def start_parts(settings: Settings, certificate: Path, key: Path) -> None:
    """Start the database, the db-manager and the process of names, and put the certificate where the controller reads it."""
    folder, processes, cache = _folder(settings), Processes(settings), Cache(settings.cache)
    (folder / "tmp" / "cert").mkdir(parents=True, exist_ok=True)
    shutil.copy(certificate, folder / "tmp" / "cert" / "tls.crt")
    shutil.copy(key, folder / "tmp" / "cert" / "tls.key")
    (folder / "hosts").write_text(_HOSTS)
    database = folder / "postgresql"
    database.mkdir(exist_ok=True)
    shutil.chown(database, "postgres", "postgres")
    processes.start("katib-postgres", [*_PRIVATE, _DATABASE, database, _programs()], namespace=settings.namespace)
    inside: list[str | Path] = ["nsenter", f"--net=/run/netns/{settings.namespace}"]
    psql: list[str | Path] = [*inside, _programs() / "psql", "-h", "127.0.0.1", "-U", "katib", "-d"]
    wait_until(
        lambda: _runs([*psql, "template1", "-c", ""]), f"PostgreSQL; see {processes.log('katib-postgres')}", _SECONDS
    )
    if not _runs([*psql, "katib", "-c", ""]):
        run([*psql, "template1", "-c", "CREATE DATABASE katib"])
    environment = {"DB_NAME": "postgres", "DB_PASSWORD": "katib", "KATIB_POSTGRESQL_DB_HOST": "127.0.0.1"}
    manager: list[str | Path] = [cache.program("katib-db-manager"), f"-listen-address={NETWORK.control_plane}:{_PORT}"]
    processes.start("katib-db", manager, namespace=settings.namespace, environment=environment)
    names = {"TESTBED_NAME": settings.name, "TESTBED_PORT": str(settings.port), "TESTBED_STATE": str(settings.state)}
    root = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    processes.start("katib-names", [sys.executable, "-m", "testbed.control.katib"], environment={**names, **root})
    configuration = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "katib-config", "namespace": NAMESPACE},
        "data": {"katib-config.yaml": CONFIGURATION.read_text(encoding="utf-8")},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    Api(settings).apply([namespace, configuration])


def _programs() -> Path:
    """The folder of PostgreSQL's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise TestbedError("Katib needs PostgreSQL; on Debian: apt-get install -y --no-install-recommends postgresql")
    return found[-1].parent


def _runs(words: list[str | Path]) -> bool:
    try:
        run(words)
    except TestbedError:
        return False
    return True


_HOSTS = "127.0.0.1 localhost\n"


def _names(settings: Settings) -> str:
    """The lines of /etc/hosts for the suggestion services that run: a Service has the name of its Deployment."""
    found = Api(settings).get("/api/v1/pods?labelSelector=katib.kubeflow.org%2Fdeployment") or {}
    lines = [
        f"{pod['status']['podIP']} {pod['metadata']['labels']['katib.kubeflow.org/deployment']}.{pod['metadata']['namespace']}"
        for pod in found.get("items", ())
        if pod.get("status", {}).get("podIP") and not pod["metadata"].get("deletionTimestamp")
    ]
    return _HOSTS + "".join(f"{line}\n" for line in sorted(lines))


def _write_names(settings: Settings) -> None:
    """Keep the file of names up to date, in its place: another file of that name would not be the mounted one."""
    file, written = _folder(settings) / "hosts", _HOSTS
    while os.getppid():
        try:
            text = _names(settings)
        except (OSError, TestbedError, ValueError) as error:
            print(f"the pods of suggestions cannot be read: {error}", flush=True)  # noqa: T201  # its log
            text = written
        if text != written:
            file.write_text(text)
            written = text
        time.sleep(_TURN)


if __name__ == "__main__":
    _write_names(Settings.from_environment())
