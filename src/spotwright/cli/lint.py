"""The command ``lint``: files in, findings out; exit code 1 if one is an error, 2 if a file cannot be read.

An unreadable file is one message; the others are still linted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from spotwright.cli import FAILED, SUCCEEDED, WRONG, say
from spotwright.cli.manifest_files import find_manifests, read_beside
from spotwright.cli.options import beside_option, config_option, replace_files, strict_option, with_strict
from spotwright.config import find
from spotwright.config.document import STANDARD_INPUT, name_of, read_input
from spotwright.errors import InputError
from spotwright.kinds.unknown import read_pod_path
from spotwright.linter.formats import LintReport, lint_json, report_lines, sarif
from spotwright.linter.linting import RULES, fixed_text, lint_text, refuse_unknown, relinted
from spotwright.linter.rule import Severity
from spotwright.linter.settings import Settings, settings_of
from spotwright.version import __version__

__all__ = ["lint", "read_all"]


def read_all(files: Iterable[Path], unread: list[str], *, recursive: bool) -> Iterator[tuple[Path, str]]:
    """Each file with its text, and with ``recursive`` the files of each folder.

    Each unreadable file adds one message to ``unread``, with the place and the fix.
    """
    for path in _files_of(files, unread, recursive=recursive):
        try:
            text = read_input(path)
        except InputError as error:
            unread.append(str(error))
        else:
            yield path, text


def _files_of(files: Iterable[Path], unread: list[str], *, recursive: bool) -> Iterator[Path]:
    for path in files:
        if not path.is_dir():
            yield path
        elif not recursive:
            unread.append(f"{path}: this is a folder: -R takes all its manifests and Python files")
        else:
            yield from _in_folder(path, unread)


def _in_folder(folder: Path, unread: list[str]) -> Iterator[Path]:
    """The manifests in a folder, as ``place -R`` takes them, then its Python files; hidden folders are left out."""
    try:
        found = find_manifests(folder, read_input)
    except InputError as error:
        unread.append(str(error))
    else:
        yield from (path for path, _ in found.texts)
    for path in sorted(folder.rglob("*.py")):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


_FORMATS = ("text", "json", "sarif")


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, type=click.Path(path_type=Path))
@beside_option
@config_option("the first file")
@click.option("--format", "form", type=click.Choice(_FORMATS), default="text", show_default=True, help="How to print.")
@click.option(
    "--fix", is_flag=True, help="Mend what can be mended safely, in the files; unplace takes it back in YAML."
)
@click.option("-R", "--recursive", is_flag=True, help="Take all manifests and Python files of each folder.")
@click.option(
    "--pod-path",
    "pod_paths",
    multiple=True,
    metavar="PATH",
    help="Also check the pod specs at this path, as place has it.",
)
@strict_option
@click.option("--rules", "list_rules", is_flag=True, help="List the rules instead.")
def lint(
    files: tuple[Path, ...],
    beside: tuple[Path, ...],
    config: Path | None,
    form: str,
    fix: bool,
    recursive: bool,
    pod_paths: tuple[str, ...],
    strict: bool,
    list_rules: bool,
) -> int:
    """Find in each FILE what is unsafe on spot: manifests, compiled pipelines, pipelines in Python; - is standard input.

    Exit code 1 if a finding is an error, 2 if a file cannot be read. It runs no code and asks no cluster.
    """
    if list_rules:
        for rule in RULES:
            say(f"{rule.id:32} {rule.severity:8} {rule.title}")
        return SUCCEEDED
    if not files:
        raise click.UsageError("Missing argument 'FILE...'.")
    if fix and STANDARD_INPUT in files:
        raise InputError("--fix: standard input cannot be written in place")
    report = _report(files, _settings(files, config, pod_paths, beside), fix=fix, recursive=recursive)
    _print(report, form)
    if report.unread:
        return WRONG
    code = FAILED if report.count(Severity.ERROR) else SUCCEEDED
    return with_strict(code, report.not_judged, strict=strict)


def _report(files: Sequence[Path], settings: Settings, *, fix: bool, recursive: bool) -> LintReport:
    """Lint every file; with ``fix``, write all files or none first, and report the remaining findings."""
    report = LintReport()
    written: list[tuple[Path, str]] = []
    for path, text in read_all(files, report.unread, recursive=recursive):
        try:
            linted = lint_text(text, name_of(path), settings)
            new = fixed_text(text, linted, settings) if fix else text
            if new != text:
                linted, gone = relinted(new, linted, settings)
                report.fixed += gone
                written.append((path, new))
        except InputError as error:
            report.unread.append(str(error))
        else:
            report.files.append(linted)
    replace_files(written)
    return report


def _print(report: LintReport, form: str) -> None:
    if form == "json":
        say(json.dumps(lint_json(report)))
    elif form == "sarif":
        say(json.dumps(sarif(report, __version__)))
    else:
        _echo(report_lines(report))
    for message in report.unread:
        say(f"error: {message}", err=True)


def _echo(lines: Iterable[str]) -> None:
    say("\n".join(lines))


def _settings(files: Sequence[Path], config: Path | None, pod_paths: Sequence[str], beside: Sequence[Path]) -> Settings:
    first = next((path for path in files if path != STANDARD_INPUT), Path.cwd() / "-")
    configuration = find(first, config)
    if configuration.found_above:
        say(f"note: {configuration.found_above}", err=True)
    refuse_unknown(configuration)
    return settings_of(configuration, tuple(map(read_pod_path, pod_paths)), tuple(read_beside(beside)))
