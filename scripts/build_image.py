"""Builds the controller's image by buildah, without a daemon, and writes it as an archive: `make image`.

`Dockerfile.controller` says what is in it. Everything is locked with hashes, files have no time of their own and the compiled
modules depend on their sources alone, so two builds on one base have one digest: `--twice` builds a second time and compares.

The base is an image by name and digest (a slim Python for a release), or `debian`: one that mmdebstrap makes of Debian's
packages, for machines that reach Debian and no image registry. Needs root or user namespaces, and `make page` before.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "localhost/spotwright"
PACKAGES = "python3,python3-venv,ca-certificates,libstdc++6"  # re2 is in C++
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
EPOCH = "315532800"  # 1980-01-01, the earliest time that a wheel can have
MISSING = "build_image: {0} is missing; on Debian: apt-get install -y --no-install-recommends {0}"


class RefusalError(Exception):
    """The image cannot be built; the text is for the user."""


class Buildah:
    """buildah with a temporary storage folder, so that earlier builds do not count."""

    def __init__(self, folder: Path) -> None:
        self._command = ["buildah", "--storage-driver", "vfs", "--root", str(folder / "root")]
        self._command += ["--runroot", str(folder / "run")]

    def ask(self, *arguments: str) -> str:
        """The output of a command. Raises RefusalError with its last lines."""
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-15:]
            raise RefusalError(f"buildah {arguments[0]} fails:\n" + "\n".join(said))
        return done.stdout.strip()

    def import_root(self, archive: Path, name: str) -> None:
        """Make an image of an archive of a root file system."""
        container = self.ask("from", "scratch")
        self.ask("add", "--quiet", container, str(archive), "/")
        self.ask("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container)
        self.ask("commit", "--quiet", "--timestamp", "0", "--rm", container, name)


def make_base(target: Path) -> None:
    """Write the root file system of a small Debian with Python, of the release of this machine."""
    release = _os_release().get("VERSION_CODENAME", "")
    if not release:
        raise RefusalError("build_image: --base debian needs a Debian to know which release to take; name an image")
    paths = [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
    command = ["mmdebstrap", "--quiet", "--variant=essential", f"--include={PACKAGES}", *paths, release, str(target)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RefusalError("mmdebstrap fails:\n" + "\n".join(done.stderr.strip().splitlines()[-10:]))


def _os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def pip_settings(folder: Path) -> Path:
    """The machine's own settings of pip as a file: an index, a certificate. They go into the build as a secret."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    names = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")
    said = [line.partition("=") for line in listed.splitlines()]
    values = {key.rpartition(".")[2]: value.strip("'\"") for key, _, value in said}
    target = folder / "pip.conf"
    target.touch(mode=0o600)
    target.write_text("\n".join(["[global]", *(f"{name} = {values[name]}" for name in names if name in values)]) + "\n")
    return target


def version() -> str:
    """The version of the project."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])


def build(base: str, root: Path | None, archive: Path) -> str:
    """Build once, into an archive that `docker load` and containerd's import read. Returns the image's digest."""
    with tempfile.TemporaryDirectory(prefix="spotwright-image-") as name:
        folder = Path(name)
        buildah = Buildah(folder)
        if root is not None:
            buildah.import_root(root, base)
        context = folder / "context"
        copy_sources(context)
        tag = f"{NAME}:{version()}"
        settings = pip_settings(folder)
        options = ["--isolation", "chroot", "--timestamp", "0", "--layers=false", "--format", "oci", "--quiet"]
        options += ["--build-arg", f"BASE={base}", "--build-arg", f"VERSION={version()}"]
        options += ["--secret", f"id=pip,src={settings}", "-f", str(context / "Dockerfile.controller"), "-t", tag]
        certificates = Path("/etc/ssl/certs/ca-certificates.crt")
        if certificates.exists():  # of a machine behind a proxy with an authority of its own
            options += ["--volume", f"{certificates}:{certificates}:ro"]
        buildah.ask("build", *options, str(context))
        oci = folder / "image.tar"
        buildah.ask("push", "--quiet", tag, f"oci-archive:{oci}:{tag}")
        shutil.move(oci, archive)
    return digest_of(archive)


def copy_sources(target: Path) -> None:
    """Copy the files that Dockerfile.controller uses, and nothing else that is beside it."""
    target.mkdir()
    for name in ("Dockerfile.controller", "pyproject.toml", "README.md", "LICENSE", "setup.py"):
        shutil.copy(ROOT / name, target)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / name, target)
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", target / "src", ignore=leave)
    shutil.copytree(ROOT / "requirements", target / "requirements")


def digest_of(archive: Path) -> str:
    """The digest of the manifest in an OCI archive: what `image@sha256:...` names."""
    with tarfile.open(archive) as tar:
        index = tar.extractfile("index.json")
        if index is None:
            raise RefusalError(f"build_image: {archive} has no index")
        return str(json.load(index)["manifests"][0]["digest"])


def check_programs(*names: str) -> None:
    """Raise RefusalError for one that this machine lacks."""
    for name in names:
        if shutil.which(name) is None:
            raise RefusalError(MISSING.format(name))


def main(arguments: list[str]) -> int:
    """Build as the options say. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/build_image.py", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--base", default="debian", metavar="IMAGE", help="an image by digest, or debian, which is made"
    )
    parser.add_argument("--archive", type=Path, default=ROOT / "build" / "spotwright-image.tar", metavar="FILE")
    parser.add_argument("--twice", action="store_true", help="build a second time, and fail if the digest differs")
    options = parser.parse_args(arguments)
    try:
        check_programs("buildah", *(["mmdebstrap"] if options.base == "debian" else []))
        with tempfile.TemporaryDirectory(prefix="spotwright-base-") as name:
            base, root = options.base, None
            if base == "debian":
                root = Path(name) / "base.tar"
                make_base(root)
                print(f"build_image: the base is {hashlib.sha256(root.read_bytes()).hexdigest()[:12]}", flush=True)
                base = "localhost/spotwright-base:1"
            options.archive.parent.mkdir(parents=True, exist_ok=True)
            digests = []
            for count in range(1 + options.twice):
                started = time.monotonic()
                target = options.archive if count == 0 else Path(name) / "again.tar"
                digests.append(build(base, root, target))
                print(f"build_image: {digests[-1]} in {time.monotonic() - started:.0f} s", flush=True)
    except (RefusalError, OSError) as error:
        print(str(error), file=sys.stderr)
        return 1
    if len(set(digests)) != 1:
        print("build_image: the second build has another digest", file=sys.stderr)
        return 1
    print(f"build_image: {options.archive} has {NAME}:{version()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
