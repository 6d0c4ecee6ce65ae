"""The page about the node agent and its manifest agree with the command and with the environment of placed pods."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml
from tests.docs.pages import ROOT, blocks

from spotwright.cli.node_agent import node_agent
from spotwright.notices.agent import PROVIDERS, Address
from spotwright.placing.environment import NOTICE_PORT

PAGE = ROOT / "docs" / "how-to" / "cluster" / "run-the-node-agent.md"


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    [manifest] = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.file == "node-agent.yaml"]
    assert manifest["kind"] == "DaemonSet"
    spec: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return spec


def test_the_manifest_runs_the_agent_where_placed_pods_look_for_it(pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    [host] = [item for item in container["env"] if item["name"] == "HOST_IP"]
    assert host["valueFrom"]["fieldRef"]["fieldPath"] == "status.hostIP"
    command, *arguments = [word.replace("$(HOST_IP)", "10.0.0.7") for word in container["args"]]
    read = node_agent.make_context("agent", list(arguments)).params
    assert command == "node-agent"
    assert read["listen"] == Address("10.0.0.7", NOTICE_PORT)
    assert container["livenessProbe"]["httpGet"] == {"path": "/health", "port": NOTICE_PORT}
    assert container["ports"] == [{"containerPort": NOTICE_PORT, "hostPort": NOTICE_PORT}]


def test_the_manifest_gives_the_agent_no_rights(pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "volumes" not in pod


def test_the_agent_needs_no_more_than_the_image_on_the_page_has() -> None:
    """No SDK, no display: ``click`` and ``PyYAML``."""
    code = (
        "import sys\n"
        "for name in ('kfp', 'kubernetes', 'rich', 'google'): sys.modules[name] = None\n"
        "sys.argv = ['spotwright', 'node-agent', '--help']\n"
        "from spotwright.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "click PyYAML" in PAGE.read_text(encoding="utf-8")


def test_the_page_names_every_source() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {name for name in PROVIDERS if f"| `{name}` |" in text} == {"azure", "gcp", "aws", "kubernetes", "local"}
