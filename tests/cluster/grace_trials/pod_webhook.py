"""Serves the webhook of pods on a cluster of the test bed, with the configuration of one file and no attempts before.

The API server has to reach it, so :func:`serving` starts it as a process in the network of the control plane.
"""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.control.api import Api
from testbed.settings import NETWORK, Settings

from spotwright.cluster import admission_server
from spotwright.cluster.admission_server import AdmissionRequest, Webhook, start_server
from spotwright.cluster.admit_pods import AdmissionContext
from spotwright.cluster.certificates import ServedCertificate
from spotwright.cluster.configurations import Configurations
from spotwright.cluster.install import webhook_configuration
from spotwright.cluster.watched import ENABLED_LABEL

__all__ = ["LABEL", "serving"]

LABEL = {ENABLED_LABEL: "true"}
"""The labels of a namespace whose pods are admitted."""

_NAME = f"grace-trials-{os.getpid()}"
_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@contextmanager
def serving(settings: Settings, configuration: str, folder: Path) -> Iterator[None]:
    """A webhook of pods that answers, with this text of ``spotwright.yaml``; ``folder`` gets its files."""
    _make_certificate(folder)
    (folder / "spotwright.yaml").write_text(configuration, encoding="utf-8")
    enter = ["nsenter", f"--net=/run/netns/{settings.namespace}"]
    command = [*enter, sys.executable, "-m", "tests.cluster.grace_trials.pod_webhook", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    api = Api(settings)
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        api.apply([_configuration(port, (folder / "tls.crt").read_bytes())])
        yield
    finally:
        subprocess.run(
            [api.kubectl_path, f"--kubeconfig={settings.kubeconfig}", "delete", "mutatingwebhookconfiguration", _NAME],
            check=False,
            capture_output=True,
        )
        process.terminate()
        process.wait(30)
        process.stdout.close()


def _configuration(port: int, authority: bytes) -> dict[str, Any]:
    made = webhook_configuration(_NAME, ("-", "-"), authority)
    client = {
        "url": f"https://{NETWORK.control_plane}:{port}/mutate",
        "caBundle": base64.b64encode(authority).decode(),
    }
    patient = {"clientConfig": client, "timeoutSeconds": 30}  # a busy machine must not make a trial without the hook
    pods = [{**one, **patient} for one in made["webhooks"] if one["name"].startswith("pods.")]
    return {**made, "webhooks": pods}


def _make_certificate(folder: Path) -> None:
    names = ["-subj", "/CN=spotwright", "-addext", f"subjectAltName=IP:{NETWORK.control_plane}"]
    options = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subprocess.run(["openssl", "req", *options, *names, *files], check=True, capture_output=True)


async def _serve(folder: Path) -> None:
    configurations = Configurations("spotwright")
    text = (folder / "spotwright.yaml").read_text(encoding="utf-8")
    configurations.apply("spotwright", {"data": {"spotwright.yaml": text}})

    async def no_object(*_: str) -> Mapping[str, Any] | None:
        return None

    async def no_facts(_: AdmissionRequest) -> AdmissionContext:
        return AdmissionContext()

    admission_server.ANSWER_AFTER = 25.0
    webhook = Webhook(configurations, no_object, no_facts, lambda: True, "localhost/busybox:1")
    context = ServedCertificate(folder / "tls.crt", folder / "tls.key").context()
    runner = await start_server(webhook, context, host=NETWORK.control_plane, port=0)
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
