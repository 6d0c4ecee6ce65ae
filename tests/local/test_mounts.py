"""Mounts that only one process sees, with and without the right to mount."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spotwright.local.supervisor import mounts

SCRIPT = """
import ctypes, json, os, sys
from pathlib import Path
from spotwright.local.supervisor import mounts

request = json.loads(sys.argv[1])
if request["without_rights"]:
    held = int(next(line for line in open("/proc/self/status") if line.startswith("CapPrm")).split()[1], 16)
    held &= ~(1 << 21)  # CAP_SYS_ADMIN: the right to mount
    low, high = held & 0xFFFFFFFF, held >> 32
    header, rights = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    assert ctypes.CDLL(None).capset(header, rights) == 0
before = sorted(os.listdir("/"))
mounts.enter(request["mounts"], request["staging"])
found = {"new": sorted(set(os.listdir("/")) - set(before)), "gone": sorted(set(before) - set(os.listdir("/")))}
found["secret"] = Path("/nowhere/deep/secret/key").read_text()
found["data"] = Path("/nowhere/data/file").read_text()
Path("/nowhere/data/new").write_text("n")
Path("/nowhere/memory/file").write_text("m")
for place in ("/nowhere/deep/secret/other", "/nowhere/fixed/other"):
    try:
        Path(place).write_text("x")
    except OSError as error:
        found[place] = error.strerror
found["uid"] = os.getuid()
found["etc"] = Path("/etc/hostname").exists() == request["hostname"] and Path("/etc/nowhere/x").read_text()
print(json.dumps(found))
"""


@pytest.fixture(autouse=True)
def possible() -> None:
    if why := mounts.why_impossible():
        pytest.skip(why)


@pytest.mark.parametrize("without_rights", [False, True])
def test_a_process_sees_its_mounts_and_an_unchanged_machine(tmp_path: Path, without_rights: bool) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("kept")
    given: list[dict[str, Any]] = [
        {"target": "/nowhere/data", "source": str(data)},
        {"target": "/nowhere/fixed", "source": str(data), "read_only": True},
        {"target": "/nowhere/deep/secret", "files": {"key": "it's\n"}},
        {"target": "/nowhere/memory", "size": 4096},
        {"target": "/etc/nowhere", "files": {"x": "y"}},
    ]
    hostname = Path("/etc/hostname").exists()
    request = {"mounts": given, "staging": str(tmp_path / "s"), "without_rights": without_rights, "hostname": hostname}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(request)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    refused = "Read-only file system"
    assert json.loads(done.stdout) == {
        "new": ["nowhere"], "gone": [], "secret": "it's\n", "data": "kept", "uid": os.getuid(), "etc": "y",
        "/nowhere/deep/secret/other": refused, "/nowhere/fixed/other": refused,
    }  # fmt: skip
    assert (data / "new").read_text() == "n"
    assert not Path("/nowhere").exists()
    assert not Path("/etc/nowhere").exists()
