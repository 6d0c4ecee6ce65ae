"""``place``, ``unplace`` and ``explain``: manifests in, manifests out; nothing is written unless all of it could be."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from spotwright import config as configuration
from spotwright.cli import FAILED, SUCCEEDED
from spotwright.cli.options import config_option, json_option
from spotwright.cli.records import read_records, records_text
from spotwright.cli.writing import replace_files
from spotwright.config import Config
from spotwright.errors import InputError
from spotwright.manifests.context import Finding, Options
from spotwright.manifests.documents import parse
from spotwright.manifests.files import Placement, place_text, unplace_text
from spotwright.manifests.kinds.unknown import read_pod_path
from spotwright.manifests.references import References
from spotwright.views.explanation import explanation_json, explanation_text

__all__ = ["explain", "place", "unplace"]

_STDIN = Path("-")
_Command = Callable[..., Any]


def _files(command: _Command) -> _Command:
    """``FILE...``, as many as there are."""
    return click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))(command)


def _output(command: _Command) -> _Command:
    """Where the result goes: ``-o``, ``--in-place``, ``--diff``."""
    for option in (
        click.option(
            "--diff", "as_diff", is_flag=True, help="Show what would change; exit code 1 when something would."
        ),
        click.option("--in-place", is_flag=True, help="Write each file where it was read, whole or not at all."),
        click.option(
            "-o", "--output", type=click.Path(path_type=Path), metavar="OUT", help="A file, or a folder for several."
        ),
    ):
        command = option(command)
    return command


def _record(help_text: str) -> Callable[[_Command], _Command]:
    """``--record FILE``."""
    return click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help=help_text)


def _with(command: _Command) -> _Command:
    """``--with FILE``, as often as there are."""
    help_text = "Documents that the manifests refer to: runtimes, templates, ConfigMaps."
    file = click.Path(path_type=Path)
    return click.option("--with", "beside", multiple=True, type=file, metavar="FILE", help=help_text)(command)


@click.command()
@_files
@_output
@_with
@config_option("the first file")
@click.option("--replace-retries", is_flag=True, help="Also change retry fields that are there already.")
@click.option(
    "--pod-path",
    "pod_paths",
    multiple=True,
    metavar="PATH",
    help="Where kinds that are not known have their pod spec: spec.template.spec.",
)
@_record("A file for the records of objects that are changed more than an annotation can hold; unplace asks for it.")
def place(
    files: tuple[Path, ...],
    output: Path | None,
    in_place: bool,
    as_diff: bool,
    beside: tuple[Path, ...],
    config: Path | None,
    replace_retries: bool,
    pod_paths: tuple[str, ...],
    record: Path | None,
) -> int:
    """Put what the policy asks for into each FILE of YAML; - is standard input. The result goes to standard output."""
    _one_way(output, in_place, as_diff)
    texts = [(path, _read(path)) for path in files]
    found = _config_of(files, config)
    options = Options(replace_retries, tuple(read_pod_path(text) for text in pod_paths))
    known = None if record is None else read_records(record, must_exist=False)
    records = None if known is None else dict(known)
    references = _references(texts, beside, records)
    placements = [place_text(text, _name(path), found, references, options, records) for path, text in texts]
    if found.note:
        click.echo(
            f"warning: {found.note}; they are made for runs on one machine: name those of your cluster", err=True
        )
    _tell(finding for placement in placements for finding in placement.findings)
    kept = [(record, records_text(records))] if record is not None and records and records != known else []
    return _give(texts, placements, output, kept, in_place=in_place, as_diff=as_diff)


@click.command()
@_files
@_output
@_record("The file that place was given with this option.")
def unplace(files: tuple[Path, ...], output: Path | None, in_place: bool, as_diff: bool, record: Path | None) -> int:
    """Take out of each FILE what place put into it: the same bytes as before where nobody touched it since."""
    _one_way(output, in_place, as_diff)
    texts = [(path, _read(path)) for path in files]
    records = None if record is None else read_records(record, must_exist=True)
    placements = [unplace_text(text, _name(path), records) for path, text in texts]
    _tell(finding for placement in placements for finding in placement.findings)
    return _give(texts, placements, output, in_place=in_place, as_diff=as_diff)


@click.command()
@_files
@_with
@config_option("the first file")
@click.option("--replace-retries", is_flag=True, help="As place would with this option.")
@click.option("--pod-path", "pod_paths", multiple=True, metavar="PATH", help="As place would with this option.")
@_record("The file that place was given with this option, where it was.")
@json_option
def explain(
    files: tuple[Path, ...],
    beside: tuple[Path, ...],
    config: Path | None,
    replace_retries: bool,
    pod_paths: tuple[str, ...],
    record: Path | None,
    as_json: bool,
) -> int:
    """Say for each role of each FILE: its pools in order and why, where each policy value was said, what an interruption does."""
    texts = [(path, _read(path)) for path in files]
    found = _config_of(files, config)
    options = Options(replace_retries, tuple(read_pod_path(text) for text in pod_paths))
    records = {} if record is None else read_records(record, must_exist=True)  # new ones go nowhere
    references = _references(texts, beside, records)
    placements = {_name(p): place_text(text, _name(p), found, references, options, records) for p, text in texts}
    if as_json:
        click.echo(json.dumps(explanation_json(placements, found)))
    else:
        click.echo(explanation_text(placements, found))
    return SUCCEEDED


def _one_way(output: Path | None, in_place: bool, as_diff: bool) -> None:
    if sum((output is not None, in_place, as_diff)) > 1:
        raise click.UsageError("-o, --in-place and --diff exclude each other: choose one")


def _read(path: Path) -> str:
    """The text of a file with its line ends as they are. Raises :class:`InputError` with the fix."""
    try:
        data = sys.stdin.buffer.read() if path == _STDIN else path.read_bytes()
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        text = "not UTF-8 text: save it as UTF-8 (what > writes in PowerShell is UTF-16)"
        raise InputError(f"{_name(path)}:{line}: {text}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _name(path: Path) -> str:
    return "standard input" if path == _STDIN else str(path)


def _config_of(files: Sequence[Path], explicit: Path | None) -> Config:
    first = next((path for path in files if path != _STDIN), Path.cwd() / "-")
    return configuration.find(first, explicit)


def _references(
    texts: Sequence[tuple[Path, str]], beside: Sequence[Path], records: dict[str, str] | None
) -> References:
    """Every object that a manifest may refer to: of the other files, as they were before they were placed, then of ``--with``."""
    given = [(path, unplace_text(text, _name(path), records).text) for path, text in texts] if len(texts) > 1 else []
    given += [(path, _read(path)) for path in beside]
    documents = [document for path, text in given for document in parse(text, _name(path))]
    return References(documents, frozenset(_name(path) for path, _ in texts))


def _tell(findings: Iterable[Finding]) -> None:
    for finding in findings:
        click.echo(str(finding), err=True)


def _give(
    texts: Sequence[tuple[Path, str]],
    placements: Sequence[Placement],
    output: Path | None,
    records: Sequence[tuple[Path, str]] = (),
    *,
    in_place: bool,
    as_diff: bool,
) -> int:
    """Give the results where they are wanted, and before them the ``records`` that they cannot be without."""
    pairs = [(path, text, placement.text) for (path, text), placement in zip(texts, placements, strict=True)]
    if as_diff:
        return _show_diff(pairs)
    targets: list[tuple[Path, str]] = []
    if in_place:
        if any(path == _STDIN for path, _, _ in pairs):
            raise InputError("--in-place: standard input has no place to write to")
        targets = [(path, new) for path, text, new in pairs if new != text]
    elif output is not None:
        targets = _targets(output, pairs)
    taken = {path.resolve() for path, _ in [*texts, *targets]}
    for path, _ in records:
        if path.resolve() in taken:
            raise InputError(f"--record {path}: is one of the manifests: name another file")
    replace_files([*records, *targets])
    if not in_place and output is None:
        sys.stdout.write(_joined([new for _, _, new in pairs]))
        sys.stdout.flush()
    return SUCCEEDED


def _joined(texts: Sequence[str]) -> str:
    """Several files as one stream of documents; a single one as it is."""
    parts = list(texts[:1])
    for text in texts[1:]:
        if not parts[-1].endswith("\n"):
            parts.append("\n")
        parts += [text] if text.startswith("---") else ["---\n", text]
    return "".join(parts)


def _show_diff(pairs: Sequence[tuple[Path, str, str]]) -> int:
    changed = False
    for path, text, new in pairs:
        name = _name(path)
        lines = list(difflib.unified_diff(text.splitlines(keepends=True), new.splitlines(keepends=True), name, name))
        changed = changed or bool(lines)
        for line in lines:
            click.echo(line.rstrip("\r\n"))
    return FAILED if changed else SUCCEEDED


def _targets(output: Path, pairs: Sequence[tuple[Path, str, str]]) -> list[tuple[Path, str]]:
    """Which file gets which text."""
    if len(pairs) == 1 and not output.is_dir():
        return [(output, pairs[0][2])]
    if output.exists() and not output.is_dir():
        raise InputError(f"{output}: is a file, and there are {len(pairs)} results: name a folder")
    names = [path.name for path, _, _ in pairs]
    if len(set(names)) < len(names):
        raise InputError(f"{output}: two of the files have one name: place them into folders of their own")
    output.mkdir(parents=True, exist_ok=True)
    return [(output / path.name, new) for path, _, new in pairs]
