"""The command ``spotwright page``: its work before it serves, and the address that it opens in the browser."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPCookieProcessor, build_opener

import pytest
from tests.page.made_runs import Kind, make_run

from spotwright.page.vendor import vendor_faults

pytestmark = pytest.mark.skipif(bool(vendor_faults()), reason="the page's modules are not made: make page")

COMMAND = [sys.executable, "-m", "spotwright", "page", "--listen", "127.0.0.1:0"]

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:PORT", insecure-skip-tls-verify: true}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {token: x}}]
"""


def test_it_can_be_ended_while_a_cluster_does_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.replace("PORT", str(silent.getsockname()[1])))
        command = [*COMMAND, "--no-browser", "--cluster", "--kubeconfig", str(kubeconfig)]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
        try:
            silent.settimeout(60)
            asked, _ = silent.accept()
            with asked:
                process.send_signal(signal.SIGINT)
                assert process.wait(timeout=20) in (0, 130)
        finally:
            process.kill()
            process.wait()


def test_the_command_line_of_a_browser_has_a_token_that_is_right_once(tmp_path: Path) -> None:
    make_run(tmp_path / "state", "r", Kind(1))
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/said.new && mv {tmp_path}/said.new {tmp_path}/said\n')
    browser.chmod(0o755)
    printed = tmp_path / "printed"
    env = os.environ | {"BROWSER": str(browser), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with printed.open("w") as out:
        process = subprocess.Popen([*COMMAND, "--state", str(tmp_path / "state")], env=env, stdout=out)
    try:
        until = time.monotonic() + 60
        while not (tmp_path / "said").exists() and time.monotonic() < until:
            time.sleep(0.05)
        told = (tmp_path / "said").read_text().strip()
        (token,) = parse_qs(urlsplit(told).query)["token"]
        assert token not in printed.read_text()
        assert build_opener(HTTPCookieProcessor()).open(told).status == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
