"""Looks at our Python, the chart and the Dockerfiles with the tools of others: `make audit`.

bandit reads the sources; checkov reads the Dockerfiles and what `helm template` prints; kube-score reads the latter too. What a
tool finds and we leave stands in scripts/audit.yaml with its reason. Any other finding fails, and so does a reason that nothing
needs any more, so the list stays true. The tools come from the package index and the Go proxy into folders of their own: the
locked set `audit` into build/audit, Helm and kube-score into the cache of the test bed. Where Go or a module is out of reach, one
line says which part was left out. Go builds while pip installs, and the tools look side by side: each mostly takes one core.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from testbed.building.builds import Cache, build_one  # noqa: E402  # the line above finds it
from testbed.building.programs import PROGRAMS  # noqa: E402
from testbed.errors import TestbedError  # noqa: E402
from testbed.settings import Settings  # noqa: E402

ACCEPTED = ROOT / "scripts" / "audit.yaml"
CHART = ROOT / "charts" / "spotwright"
FORMS = {  # how the chart is rendered: the default, and the choices that add rights or objects
    "namespaces": ["--set", "namespaces={team-a,team-b}"],
    "cluster-wide": ["--set", "clusterWide=true"],
}
DIGEST = "sha256:" + "0" * 64  # a release names its image by digest; what is rendered from a clone has none


class Finding(NamedTuple):
    """A tool's finding: ``where`` is a file of ours, or Kind/name of an object that the chart renders."""

    tool: str
    check: str
    where: str
    text: str


class RefusalError(Exception):
    """The audit cannot be made; the text is for the user."""


def environment() -> Path:
    """The programs of the locked set `audit`, installed once into a separate folder."""
    folder, lock = ROOT / "build" / "audit", ROOT / "requirements" / "audit.txt"
    stamp, wanted = folder / "audit.txt", lock.read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        print("audit: installing bandit and checkov", flush=True)
        run([sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        run([*pip, "-r", str(ROOT / "requirements" / "build.txt")])
        run([*pip, "--no-build-isolation", "--use-pep517", "-r", str(lock)])
        stamp.write_text(wanted, encoding="utf-8")
    return folder / "bin"


def run(command: list[str]) -> None:
    """Run one step with its output shown. Raises RefusalError if it fails."""
    if subprocess.run(command, check=False).returncode != 0:
        raise RefusalError(f"audit: `{' '.join(command[:4])} …` fails; fix what it names and run this again")


def asked(command: list[str], *codes: int) -> str:
    """The output of a tool; it may exit with one of these codes when it finds something."""
    quiet = {**os.environ, "LOG_LEVEL": "ERROR"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet, cwd=ROOT)
    if done.returncode not in codes:
        raise RefusalError(f"audit: {Path(command[0]).name} ends with {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout


def of_bandit(programs: Path) -> Iterator[Finding]:
    """The findings of bandit in our Python."""
    found = json.loads(asked([str(programs / "bandit"), "-q", "-r", "src", "scripts", "-f", "json"], 0, 1))
    if found["errors"]:
        raise RefusalError(f"audit: bandit cannot read {found['errors']}")
    for one in found["results"]:
        yield Finding("bandit", one["test_id"], one["filename"], f"line {one['line_number']}: {one['issue_text']}")


def of_checkov(programs: Path, framework: str, files: list[Path]) -> Iterator[Finding]:
    """The findings of checkov in Dockerfiles or rendered manifests."""
    command = [str(programs / "checkov"), "--framework", framework, "--quiet", "--skip-download", "-o", "json"]
    found = json.loads(asked([*command, *(part for file in files for part in ("-f", str(file)))], 0, 1))
    for report in found if isinstance(found, list) else [found]:
        for one in report.get("results", {}).get("failed_checks", ()):
            kind, _, rest = one["resource"].partition(".")
            where = Path(one["file_path"]).name if framework == "dockerfile" else f"{kind}/{rest.rpartition('.')[2]}"
            yield Finding("checkov", one["check_id"], where, one["check_name"])


def of_kube_score(program: Path, file: Path) -> Iterator[Finding]:
    """kube-score's findings in rendered manifests."""
    for one in json.loads(asked([str(program), "score", "-o", "json", str(file)], 0, 1)) or ():
        where = f"{one['type_meta']['kind']}/{one['object_meta']['name']}"
        for check in one["checks"] or ():
            if check["grade"] < 10 and not check["skipped"]:
                comments = "; ".join(comment["summary"] for comment in check["comments"] or ())
                yield Finding("kube-score", check["check"]["id"], where, comments or check["check"]["name"])


def go_programs() -> tuple[Path | None, Path | None]:
    """Helm and kube-score from the test bed's cache, built if missing; None if that is impossible."""
    cache = Cache(Settings.from_environment().cache)
    found: list[Path | None] = []
    for name in ("helm", "kube-score"):
        try:
            if not cache.program(name).exists():  # it alone: what a cluster needs holds all of Kubernetes
                program = next(each for each in PROGRAMS if each.name == name)
                build_one(cache, program, lambda line: print(f"audit: {line}", flush=True))
            found.append(cache.program(name))
        except (TestbedError, OSError) as error:
            print(f"audit: {name} cannot be had here: {str(error).splitlines()[0]}")
            found.append(None)
    return found[0], found[1]


def rendered(helm: Path, folder: Path) -> list[Path]:
    """The chart in each of its forms, one file each."""
    files = []
    for form, options in FORMS.items():
        command = [str(helm), "template", "spotwright", str(CHART), "-n", "spotwright", *options]
        files.append(folder / f"{form}.yaml")
        files[-1].write_text(asked([*command, "--set", f"image.digest={DIGEST}"], 0), encoding="utf-8")
    return files


def looked_at(folder: Path) -> set[Finding]:
    """What all tools find, side by side where there are cores."""
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as threads:
        going: list[Future[list[Finding]]] = []

        def start(look: Callable[..., Iterator[Finding]], *arguments: object) -> None:
            going.append(threads.submit(lambda: list(look(*arguments))))

        built = threads.submit(go_programs)
        programs = environment()
        start(of_bandit, programs)
        start(of_checkov, programs, "dockerfile", sorted(ROOT.glob("Dockerfile*")))
        helm, kube_score = built.result()
        if helm is None:
            print("audit: the chart is not looked at")
        for file in rendered(helm, folder) if helm is not None else ():
            start(of_checkov, programs, "kubernetes", [file])
            if kube_score is not None:
                start(of_kube_score, kube_score, file)
        return {finding for each in going for finding in each.result()}


def judge(findings: set[Finding], accepted: list[dict[str, str]], tools: set[str]) -> list[str]:
    """The problems: findings without a reason, and reasons without a finding of a tool that ran."""
    used: set[int] = set()
    wrong = []
    for finding in sorted(findings):
        fits = [
            number
            for number, one in enumerate(accepted)
            if (one["tool"], one["check"]) == finding[:2] and fnmatch.fnmatchcase(finding.where, one["where"])
        ]
        used.update(fits)
        if not fits:
            wrong.append(f"{finding.tool} {finding.check} {finding.where}: {finding.text}")
    for number, one in enumerate(accepted):
        if number not in used and one["tool"] in tools:
            wrong.append(f"scripts/audit.yaml: {one['tool']} {one['check']} {one['where']} is no longer needed")
    return wrong


def main() -> int:
    """Ask every tool. Returns the exit code."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            findings = looked_at(Path(folder))
    except (RefusalError, OSError) as error:
        print(str(error), file=sys.stderr)
        return 1
    accepted = yaml.safe_load(ACCEPTED.read_text(encoding="utf-8"))
    ran = {"bandit", "checkov", "kube-score"} if "kube-score" in {one.tool for one in findings} else {"bandit"}
    wrong = judge(findings, accepted, ran)
    print("\n".join(wrong) if wrong else f"audit: {len(findings)} findings, each with its reason")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
