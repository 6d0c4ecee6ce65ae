"""The certificates, tokens and kubeconfigs of a cluster, made with openssl and valid for 30 days.

One authority signs the certificate of the API server and those of webhooks. Users show a token from a file.
"""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from testbed.machine.processes import run
from testbed.settings import NETWORK, Settings

__all__ = ["Credentials"]

_DAYS = "30"
_API_NAMES = (
    "DNS:localhost",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "IP:127.0.0.1",
    f"IP:{NETWORK.control_plane}",
    f"IP:{NETWORK.kubernetes_service}",
)
_INSIDE, _NODES = "127.0.0.1:6443", f"{NETWORK.control_plane}:6443"


@dataclass(frozen=True, slots=True)
class _User:
    file: str
    name: str
    group: str
    server: str


class Credentials:
    """The files below ``pki`` in the folder of a cluster, and the kubeconfigs beside it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.folder = settings.folder / "pki"
        self.ca, self.ca_key = self.folder / "ca.crt", self.folder / "ca.key"
        self.tokens = self.folder / "tokens.csv"
        self.service_accounts = self.folder / "service-accounts.key"

    def create(self) -> None:
        """Make everything that the control plane and the nodes need."""
        self.folder.mkdir(parents=True, mode=0o700)
        _new_key(self.ca_key)
        subject = f"/CN={self._settings.name}-ca"
        run(["openssl", "req", "-x509", "-new", "-key", self.ca_key, "-subj", subject, "-days", _DAYS, "-out", self.ca])
        self.serving("api", "kube-apiserver", _API_NAMES)
        _new_key(self.service_accounts)
        users = [
            _User("inside", "admin", "system:masters", _INSIDE),
            _User("controllers", "system:kube-controller-manager", "", _INSIDE),
            _User("scheduler", "system:kube-scheduler", "", _INSIDE),
            _User("proxy", "system:kube-proxy", "", _NODES),
            *(_User(f"n{n}", f"system:node:n{n}", "system:nodes", _NODES) for n in self._settings.numbers),
        ]
        lines = []
        for user in users:
            token = secrets.token_urlsafe(24)
            lines.append(f'{token},{user.name},{user.file},"{user.group}"\n')
            self._write_kubeconfig(self._settings.user_kubeconfig(user.file), user.server, token)
            if user.file == "inside":
                self._write_kubeconfig(self._settings.kubeconfig, f"127.0.0.1:{self._settings.port}", token)
        self.tokens.write_text("".join(lines))

    def serving(self, name: str, subject: str, addresses: tuple[str, ...]) -> tuple[Path, Path]:
        """Make a certificate for a server, and return its file and that of its key."""
        certificate, key, request = (self.folder / f"{name}.{end}" for end in ("crt", "key", "csr"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(addresses)}\n")
        _new_key(key)
        run(["openssl", "req", "-new", "-key", key, "-subj", f"/CN={subject}", "-out", request])
        authority = ["-CA", str(self.ca), "-CAkey", str(self.ca_key), "-set_serial", str(secrets.randbits(63))]
        output = ["-days", _DAYS, "-extfile", str(extensions), "-out", str(certificate)]
        run(["openssl", "x509", "-req", "-in", str(request), *authority, *output])
        return certificate, key

    def _write_kubeconfig(self, path: Path, server: str, token: str) -> None:
        authority = base64.b64encode(self.ca.read_bytes()).decode()
        context = self._settings.name
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": context,
            "clusters": [
                {"name": context, "cluster": {"server": f"https://{server}", "certificate-authority-data": authority}}
            ],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": "admin"}}],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=1) + "\n")  # JSON is YAML


def _new_key(path: Path) -> None:
    run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path])
