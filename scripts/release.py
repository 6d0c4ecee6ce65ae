#!/usr/bin/env python3
"""Builds what a release publishes into dist/, from the commit that is checked out: `make release`.

    spotwright          sdist and wheel: the command, the page with its modules from npm, everything
    spotwright-train    sdist and wheel: what training images need
    spotwright-pytest   sdist and wheel: the entry point of the pytest plugin
    *.cdx.json          what each of them brings, as CycloneDX, from the locked requirements; not for spotwright-pytest
    release-notes.md    the newest section of CHANGELOG.md
    SHA256SUMS          of all of them

A wheel is built from its source distribution, so that others can do it too. Every file has the time of the commit, or of
SOURCE_DATE_EPOCH, and modes that no umask changes, so two builds of one commit are equal to the byte. Signing and publishing are
left to a person. A changed tree is refused, because nobody could build its files again.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = {
    "spotwright": ".",
    "spotwright-train": "distributions/train",
    "spotwright-pytest": "distributions/pytest",
}
VENDOR = "src/spotwright/page/assets/vendor"
HOOK = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
VALIDATE = (
    "import sys; from cyclonedx.schema import SchemaVersion; from cyclonedx.validation.json import JsonStrictValidator;"
    "sys.exit(str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read()) or '') or 0)"
)


class RefusalError(Exception):
    """The release cannot be built; the text is for the user."""


def run(command: list[str], cwd: Path, **variables: str) -> str:
    """The output of a command. Raises RefusalError with its last lines if it fails."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True, check=False, umask=0o022
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-10:]
        raise RefusalError(f"{' '.join(command[:4])} fails:\n" + "\n".join(said))
    return done.stdout


def committed_time(root: Path) -> int:
    """The time for every file. Raises RefusalError where the tree is not the one of the commit."""
    changed = run(["git", "status", "--porcelain"], root).splitlines()
    if changed:
        raise RefusalError(
            f"{len(changed)} files are not committed, such as {changed[0][3:]}: commit or stash them first"
        )
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if given and not given.isdecimal():
        raise RefusalError(f"SOURCE_DATE_EPOCH={given}: expected seconds since 1970, such as 1767225600")
    return int(given or run(["git", "log", "-1", "--format=%ct"], root))


def copy_of(root: Path, target: Path) -> None:
    """Copy the tracked files and the page's modules."""
    names = run(["git", "ls-files", "-z"], root).split("\0")
    vendor = root / VENDOR
    names += [str(path.relative_to(root)) for path in vendor.glob("[!.]*")] if vendor.exists() else []
    for name in filter(None, names):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, target / name)


def settle(folder: Path, epoch: int) -> None:
    """Give all files one time, and modes that depend on no umask."""
    for path in [*sorted(folder.rglob("*"), reverse=True), folder]:
        if path.is_symlink():
            continue
        executable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if executable else 0o644)
        os.utime(path, (epoch, epoch))


def build(name: str, source: Path, out: Path, epoch: int) -> list[Path]:
    """Build the sdist of a distribution in a copy of the project, and its wheel from the sdist, in a folder thrown away."""
    settle(source, epoch)
    variables = {
        "SOURCE_DATE_EPOCH": str(epoch),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": "",
    }
    with tempfile.TemporaryDirectory(prefix="spotwright-release-") as there:
        folder = Path(there)
        made = _hook("build_sdist", source / DISTRIBUTIONS[name], folder, variables)
        with tarfile.open(made) as archive:
            archive.extractall(folder, filter="data")
        unpacked = folder / made.name.removesuffix(".tar.gz")
        settle(unpacked, epoch)
        sdist = out / made.name
        sdist.write_bytes(packed(unpacked, epoch))
        wheel = _hook("build_wheel", unpacked, folder, variables)
        return [sdist, Path(shutil.copy(wheel, out))]


def _hook(name: str, source: Path, out: Path, variables: dict[str, str]) -> Path:
    printed = run([sys.executable, "-c", HOOK, name, str(out)], source, **variables)
    return out / printed.splitlines()[-1]


def packed(folder: Path, epoch: int) -> bytes:
    """The folder as a .tar.gz in which the order, the owners and the times are the same wherever it is made."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in [folder, *sorted(folder.rglob("*"))]:
            entry = archive.gettarinfo(path, str(path.relative_to(folder.parent)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = epoch
            if entry.isfile():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    return gzip.compress(content.getvalue(), 9, mtime=epoch)


def release_notes(changelog: str, version: str) -> str:
    """The newest section of the changelog. Raises RefusalError if it is about another version, or empty."""
    _, _, rest = changelog.partition("\n## ")
    title, _, body = rest.partition("\n")
    if title.split()[:1] != [version]:
        raise RefusalError(
            f"CHANGELOG.md begins with {title or 'no version'}, and the version is {version}: write its section"
        )
    section = body.partition("\n## ")[0].strip()
    if not section:
        raise RefusalError(f"CHANGELOG.md has no section for {version}: write it")
    return f"# Spotwright {version}\n\n{section}\n"


def versions(root: Path) -> str:
    """The version, which all distributions share. Raises RefusalError if one differs."""
    found = {}
    for name, folder in DISTRIBUTIONS.items():
        text = (root / folder / "pyproject.toml").read_text(encoding="utf-8")
        found[name] = str(tomllib.loads(text)["project"]["version"])
    if len(set(found.values())) != 1:
        raise RefusalError(f"the versions differ: {', '.join(f'{name} {version}' for name, version in found.items())}")
    return found["spotwright"]


def page_components(root: Path) -> list[dict[str, object]]:
    """The packages of npm whose files the wheel of spotwright carries, for its list."""
    packages = json.loads((root / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    components: list[dict[str, object]] = []
    for place, package in sorted(packages.items()):
        if place:
            name, version = place.removeprefix("node_modules/"), package["version"]
            purl = f"pkg:npm/{name.replace('@', '%40')}@{version}"
            facts = {"bom-ref": purl, "type": "library", "name": name, "version": version, "purl": purl}
            components.append({**facts, "licenses": [{"license": {"id": package["license"]}}]})
    return components


def write_sboms(root: Path, out: Path, version: str) -> list[Path]:
    """Write the lists with the locked tool (requirements/image.txt), in an environment that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="spotwright-sbom-") as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        lock = str(root / "requirements" / "image.txt")
        run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", lock], root)
        none = Path(folder, "none.txt")
        none.touch()
        written = []
        for name, requirements in (("spotwright", root / "requirements" / "run.txt"), ("spotwright-train", none)):
            target = out / f"{name}-{version}.cdx.json"
            tool = [f"{folder}/bin/cyclonedx-py", "requirements", "--output-reproducible", "--spec-version", "1.6"]
            project = str(root / DISTRIBUTIONS[name] / "pyproject.toml")
            document = json.loads(run([*tool, "--pyproject", project, str(requirements)], root))
            if name == "spotwright":
                document["components"] += page_components(root)
            target.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            run([python, "-c", VALIDATE, str(target)], root)
            written.append(target)
        return written


def release(root: Path, out: Path) -> list[Path]:
    """Build everything into an empty folder."""
    version, epoch = versions(root), committed_time(root)
    notes = release_notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    files = []
    with tempfile.TemporaryDirectory(prefix="spotwright-source-") as folder:
        for name in DISTRIBUTIONS:
            source = Path(folder, name)
            copy_of(root, source)
            files += build(name, source, out, epoch)
    files += write_sboms(root, out, version)
    files.append(out / "release-notes.md")
    files[-1].write_text(notes, encoding="utf-8")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(files)]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return sorted(files)


def main(arguments: list[str]) -> int:
    """Build into the folder that the options name. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/release.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="it is emptied first")
    options = parser.parse_args(arguments)
    try:
        files = release(ROOT, options.out.resolve())
    except (RefusalError, OSError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in files:
        print(f"release: {path.stat().st_size / 1000:8.1f} kB  {path.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
