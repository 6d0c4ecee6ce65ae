"""The files of commands on manifests: finds manifests, reads and writes records, prints findings.

A folder is searched for manifests; other files, charts and patches are skipped with a message. The file of ``--record`` holds
the placement records that are too large for an annotation. A finding that many objects share is one line with their number.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from spotwright.cli import say
from spotwright.config import FILE_NAME
from spotwright.config.document import name_of, read_input
from spotwright.errors import InputError
from spotwright.placing.context import Finding, Level
from spotwright.placing.documents import Document, ManifestError, parse
from spotwright.views.text import plural

__all__ = ["ManifestFolder", "find_manifests", "print_findings", "read_beside", "read_records", "records_text"]


_MANY = 4
"""From this many further places of a finding on, they are counted instead of named."""

_MOST = 4
"""Different findings that place and compile print; explain shows all of them."""


class Printed(NamedTuple):
    """The number of findings, printed or not, in words, and the number of distinct ones not printed."""

    counts: str
    left_out: int


def print_findings(
    findings: Iterable[Finding], *, with_lines: bool = True, least: Level = Level.NOTE, explained: bool = False
) -> Printed:
    """Print findings of at least a severity; findings that differ only in their role are printed once, with their places.

    ``with_lines`` is false for a text without a file, whose lines would lead nowhere. Where another command explains them, only
    the four most important are printed: actions first, then warnings, then notes.
    """
    groups: dict[tuple[Level, str], list[Finding]] = {}
    counts: Counter[Level] = Counter()
    for finding in findings:
        counts[finding.level] += 1
        text = finding.group or _ROLE.sub("", finding.text, count=1)
        if least is Level.NOTE or finding.level is least:
            groups.setdefault((finding.level, text), []).append(finding)
    shown = list(groups.values())
    if explained and len(shown) > _MOST:
        shown = sorted(shown, key=lambda group: 0 if group[0].to_do else 1 + (group[0].level is Level.NOTE))[:_MOST]
    for first, *others in shown:
        text = str(first) if with_lines else f"{first.level}: {first.text}"
        say(f"{text}{_also(first, others, with_lines=with_lines)}", err=True)
    words = ", ".join(plural(counts[level], level.value) for level in (Level.WARNING, Level.NOTE) if counts[level])
    return Printed(words, len(groups) - len(shown))


_ROLE = re.compile(r"\A[^\s:]+: ")  # the role's name at the beginning of a finding


def _also(first: Finding, others: Sequence[Finding], *, with_lines: bool) -> str:
    """Where else a finding holds."""
    if not others:
        return ""
    if len(others) >= _MANY or not with_lines:
        return f" (and {len(others)} more like it)"
    places = (f"line {one.line}" if one.file == first.file else f"{one.file}:{one.line}" for one in others)
    return f" (also {', '.join(dict.fromkeys(places))})"


_VERSION = 1


def read_beside(files: Iterable[Path]) -> list[Document]:
    """The documents of the files of ``--with``. Raises :class:`InputError` for one that cannot be read."""
    return [document for path in files for document in parse(read_input(path), name_of(path))]


def read_records(path: Path, *, must_exist: bool) -> dict[str, str]:
    """The records of a file by their digests; none if the file does not exist and need not. Raises :class:`InputError`."""
    if not must_exist and not path.exists():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"--record {path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"--record {path}: {_NOT_RECORDS}") from error
    records = content.get("records") if isinstance(content, dict) else None
    if not isinstance(records, dict) or not all(isinstance(record, str) for record in records.values()):
        raise InputError(f"--record {path}: {_NOT_RECORDS}")
    if content.get("version") != _VERSION:
        raise InputError(f"--record {path}: written by a newer version of spotwright: upgrade")
    return records


_NOT_RECORDS = "not a file of records; name the file that place wrote, or a new one"


def records_text(records: dict[str, str]) -> str:
    """The content of the file for these records."""
    return json.dumps({"version": _VERSION, "records": records}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


_SUFFIXES = (".yaml", ".yml", ".json")
_CHART = "Chart.yaml"
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_KIND = re.compile(r"""^(?:---[ ]+)?(?:[{][ ]*)?[ ]*["']?kind["']?[ ]*:""", re.MULTILINE)
_JSON_KIND = re.compile(r'"kind"\s*:')
_PIPELINE = "pipelineInfo"
_TEMPLATE_LINE = re.compile(r"^\s*(?:- )?\{\{", re.MULTILINE)


@dataclass(slots=True)
class ManifestFolder:
    """The manifests in a folder with their texts, in the order of their names, and a message for each reason to skip others."""

    texts: list[tuple[Path, str]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def find_manifests(folder: Path, read: Callable[[Path], str]) -> ManifestFolder:
    """The manifests below a folder; hidden folders are not searched. Raises :class:`InputError` if a file cannot be read."""
    found = ManifestFolder()
    files = sorted(_files(folder))
    charts = {path.parent for path in files if path.name == _CHART}
    patches = set(_patches(files, read, found))
    templates: dict[Path, int] = {}
    others = 0
    for path in files:
        chart = next((chart for chart in charts if (chart / "templates") in path.parents), None)
        if chart is not None:
            templates[chart] = templates.get(chart, 0) + 1
        elif path.suffix in _SUFFIXES and path.name != FILE_NAME and not (patches and path.resolve() in patches):
            text = read(path)
            if path.name in _KUSTOMIZATIONS or not _has_kind(path, text):
                others += 1
            elif _is_template(path, text):
                found.messages.append(f"{path}: warning: a template stays unchanged: {_RENDER.format('CHART')}")
            else:
                found.texts.append((path, text))
    for chart, count in templates.items():
        text = f"templates of this chart that stay unchanged: {count}; {_RENDER.format(chart)}"
        found.messages.append(f"{chart}: warning: {text}")
    if not found.texts:
        found.messages.append(f"{folder}: warning: no manifest in this folder can be placed")
    if others:
        found.messages.append(f"{folder}: note: skipped files without a Kubernetes object: {others}")
    return found


_RENDER = "render it first: helm template {} | spotwright place -"


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.is_file() and (path.suffix in _SUFFIXES or path.name in _KUSTOMIZATIONS):
            yield path


def _has_kind(path: Path, text: str) -> bool:
    return _PIPELINE in text or (_JSON_KIND if path.suffix == ".json" else _KIND).search(text) is not None


def _is_template(path: Path, text: str) -> bool:
    """Whether template markers make a file invalid YAML. Other mistakes are refused later, with their line."""
    if _TEMPLATE_LINE.search(text) is None:
        return False
    try:
        parse(text, str(path))
    except ManifestError:
        return True
    return False


def _patches(files: list[Path], read: Callable[[Path], str], found: ManifestFolder) -> Iterator[Path]:
    """The resolved path of each patch of a kustomization; adds a note for each kustomization that has some."""
    for path in files:
        if path.name not in _KUSTOMIZATIONS:
            continue
        try:
            value = yaml.safe_load(read(path))
        except yaml.YAMLError as error:
            raise InputError(f"{path}: not valid YAML: {error}") from error
        names = [name for name in _patch_names(value) if (path.parent / name).is_file()]
        if names:
            result = f"place the result: kustomize build {path.parent} | spotwright place -"
            text = f"its patches stay unchanged ({', '.join(names)}): {result}"
            found.messages.append(f"{path}: note: {text}")
        yield from ((path.parent / name).resolve() for name in names)


def _patch_names(value: Any) -> Iterator[str]:
    """The file names of the patches in a kustomization; an inline patch has none."""
    if not isinstance(value, dict):
        return
    for key in ("patches", "patchesStrategicMerge", "patchesJson6902"):
        entries = value.get(key)
        for entry in entries if isinstance(entries, list) else ():
            name = entry.get("path") if isinstance(entry, dict) else entry
            if isinstance(name, str) and "\n" not in name:
                yield name
