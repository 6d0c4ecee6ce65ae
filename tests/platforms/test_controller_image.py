"""The controller's image is built of the repository's files, twice to one digest, and works as a user without rights."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import build_image

ROOT = Path(__file__).resolve().parents[2]
SETUID = 0o6000

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root file system of a small Debian."""
    if os.geteuid() != 0:
        pytest.skip("images are built by root")
    for program in ("buildah", "mmdebstrap"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    target = tmp_path_factory.mktemp("base") / "base.tar"
    try:
        build_image.make_base(target)
    except build_image.RefusalError as error:
        pytest.skip(f"this machine reaches no package index: {str(error).splitlines()[-1]}")
    return target


def built(base: Path, folder: Path) -> tuple[str, Path]:
    """The digest of the image, and the archive that holds it."""
    made = subprocess.run([sys.executable, ROOT / "scripts" / "page_assets.py"], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip("this machine reaches no npm registry")
    archive = folder / "image.tar"
    try:
        return build_image.build("localhost/spotwright-base:1", base, archive), archive
    except build_image.RefusalError as error:
        if re.search(r"Connection|Temporary failure|No matching distribution", str(error)):
            pytest.skip(f"this machine reaches no package index: {str(error).splitlines()[-1]}")
        raise


@pytest.fixture(scope="module")
def image(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The image, by its digest, as an archive."""
    return built(base, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def archive(image: tuple[str, Path]) -> Path:
    """The archive of the image."""
    return image[1]


@pytest.fixture(scope="module")
def root(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root file system of the image, which is read-only."""
    folder = tmp_path_factory.mktemp("unpacked")
    root = folder / "root"
    root.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "oci", filter="data")
    for layer in manifest(archive)["layers"]:
        blob = folder / "oci" / "blobs" / "sha256" / layer["digest"].removeprefix("sha256:")
        subprocess.run(["tar", "xzf", str(blob), "-C", str(root)], check=True)
    mounted = subprocess.run(["mount", "--bind", str(root), str(root)], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(root)], check=True)
        yield root
    finally:
        subprocess.run(["umount", str(root)], check=True)


def blob(archive: Path, digest: str) -> dict[str, object]:
    with tarfile.open(archive) as tar:
        found = tar.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")
        assert found is not None
        return dict(json.load(found))


def manifest(archive: Path) -> dict[str, list[dict[str, str]]]:
    with tarfile.open(archive) as tar:
        index = tar.extractfile("index.json")
        assert index is not None
        (only,) = json.load(index)["manifests"]
    return blob(archive, only["digest"])  # type: ignore[return-value]


def inside(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The output of a command in the image, as its user."""
    path = "/opt/spotwright/bin:/usr/local/bin:/usr/bin:/bin"
    whole = ["chroot", "--userspec=65532:65532", str(root), "/usr/bin/env", "-i", f"PATH={path}", "HOME=/tmp", *command]
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.many
def test_a_second_build_has_the_same_digest(base: Path, image: tuple[str, Path], tmp_path: Path) -> None:
    assert built(base, tmp_path)[0] == image[0]


def test_it_runs_the_controller_as_a_user_without_rights_on_a_root_that_nobody_can_write(
    archive: Path, root: Path
) -> None:
    config = blob(archive, manifest(archive)["config"]["digest"])["config"]  # type: ignore[call-overload]
    assert isinstance(config, dict)
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["spotwright"]
    shown = inside(root, "spotwright", "controller", "--help")
    assert shown.returncode == 0, shown.stderr
    for process in ("recorder", "webhook"):
        assert inside(root, "python", "-c", f"import spotwright.cluster.{process}_process").returncode == 0
    refused = inside(root, "sh", "-c", "touch /opt/spotwright/x")
    assert "Read-only" in refused.stderr


IMPORTS = """
import importlib, importlib.metadata, importlib.util
for name in sorted(importlib.metadata.packages_distributions()):
    if name.isidentifier() and importlib.util.find_spec(name):
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(name, error)
"""


def test_every_package_in_it_finds_its_libraries(root: Path) -> None:
    done = inside(root, "python", "-c", IMPORTS)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_refused_pod_finds_a_shell_in_it(root: Path) -> None:
    script = 'printf "%s" "$WHY"; sleep 0; exit 86'
    ended = inside(root, "sh", "-c", f"WHY=spent; export WHY; {script}")
    assert (ended.returncode, ended.stdout) == (86, "spent")


def test_it_lists_its_parts_and_has_no_installer(root: Path) -> None:
    parts = json.loads((root / "opt/spotwright/sbom.cdx.json").read_text(encoding="utf-8"))
    listed = {re.sub(r"[-_.]+", "-", part["name"]).lower(): part["version"] for part in parts["components"]}
    text = (ROOT / "requirements" / "cluster.txt").read_text(encoding="utf-8")
    locked = re.findall(r"^([A-Za-z0-9._-]+)==(\S+?)( ;[^\\]*)? \\$", text, re.MULTILINE)
    wanted = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version, marker in locked if not marker}
    assert wanted.items() <= listed.items()
    assert listed["spotwright"] == "0.1.0"
    assert {"pip", "setuptools"}.isdisjoint(listed)
    assert inside(root, "python", "-m", "pip", "--version").returncode != 0
    ours = [path for path in (root / "opt").rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in ours if path.stat().st_mode & SETUID] == []
    assert [path for path in ours if path.stat().st_mode & 0o022] == []
