"""A server of Kubeflow Pipelines that accepts connections and never answers counts as away, for every request."""

from __future__ import annotations

import socket

import pytest

from spotwright.kubeflow import server
from spotwright.kubeflow.server import KfpServer, Login, ServerAway, Version


def test_no_request_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_TIMEOUT", (0.2, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kfp = KfpServer(Login(host=f"http://127.0.0.1:{silent.getsockname()[1]}"))
        with pytest.raises(ServerAway, match="does not answer"):
            kfp.terminate("run")
        with pytest.raises(ServerAway, match="does not answer"):
            kfp.start(Version("p", "v", is_new=False), "name", {}, experiment="Default")
