"""The commands ``place``, ``unplace`` and ``explain``. Several files are written together or not at all."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from spotwright.cli import FAILED, SUCCEEDED, say, show_content
from spotwright.cli.cluster import cluster_options, cluster_place, explain_objects
from spotwright.cli.manifest_files import find_manifests, print_findings, read_beside, read_records, records_text
from spotwright.cli.options import (
    beside_option,
    config_option,
    json_option,
    pipeline_option,
    replace_files,
    strict_option,
    with_strict,
)
from spotwright.config import Config, find, require_pools
from spotwright.config.document import STANDARD_INPUT, name_of, read_input
from spotwright.errors import InputError
from spotwright.kinds.unknown import read_pod_path
from spotwright.manifests.files import PlacedFile, place_texts, unfix_text, unmatched_patterns, unplace_text
from spotwright.model.not_judged import NotJudged, counted
from spotwright.placing.context import Group, Level, PlaceOptions, RoleReport
from spotwright.placing.documents import References, may_be_referred_to, parse
from spotwright.views.explanation import explanation_json, explanation_text
from spotwright.views.text import plural

__all__ = ["explain", "place", "unplace"]

_Command = Callable[..., Any]


def _files(command: _Command) -> _Command:
    """Add one or more ``FILE`` arguments."""
    return click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))(command)


def _output(command: _Command) -> _Command:
    """Add the options for the output: ``-o``, ``--in-place``, ``--diff``."""
    for option in (
        click.option("--diff", "as_diff", is_flag=True, help="Show what would change; exit code 1 if something would."),
        click.option("--in-place", is_flag=True, help="Write each file where it was read; all of them or none."),
        click.option(
            "-o", "--output", type=click.Path(path_type=Path), metavar="OUT", help="A file, or a folder for several."
        ),
    ):
        command = option(command)
    return command


def _recursive(command: _Command) -> _Command:
    """``-R``: folders as arguments."""
    help_text = "Take all manifests of each folder; other files in it are skipped and counted."
    return click.option("-R", "--recursive", is_flag=True, help=help_text)(command)


def _record(help_text: str) -> Callable[[_Command], _Command]:
    """``--record FILE``."""
    return click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help=help_text)


@click.command()
@_files
@_recursive
@_output
@beside_option
@config_option("the first file")
@click.option("--replace-retries", is_flag=True, help="Also replace retry fields that are set already.")
@click.option(
    "--pod-path",
    "pod_paths",
    multiple=True,
    metavar="PATH",
    help="Also place the pod specs at this path, in any kind: spec.workerGroupSpecs[*].template.spec. May be repeated.",
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([group.value for group in Group]),
    help="Write only this group of changes; may be repeated. unplace removes what was written.",
)
@_record("A file for placement records that are too large for an annotation; unplace needs it.")
@click.option(
    "--severity",
    type=click.Choice([level.value for level in Level]),
    default=Level.NOTE.value,
    show_default=True,
    help="The least severity of findings that are shown.",
)
@strict_option
@click.option("-q", "--quiet", is_flag=True, help="Show no findings and no summary; errors are shown.")
def place(
    files: tuple[Path, ...],
    recursive: bool,
    output: Path | None,
    in_place: bool,
    as_diff: bool,
    beside: tuple[Path, ...],
    config: Path | None,
    replace_retries: bool,
    pod_paths: tuple[str, ...],
    only: tuple[str, ...],
    record: Path | None,
    severity: str,
    strict: bool,
    quiet: bool,
) -> int:
    """Add the policy's scheduling fields to the manifests in each FILE (- is standard input), on standard output."""
    _check_output(output, in_place, as_diff)
    for path in filter(_is_python, files):
        raise InputError(f"{path}: a pipeline in Python has to be compiled: use spotwright compile {path} -o FILE.yaml")
    texts = _read_all(files, recursive=recursive)
    configuration = _config_of(files, config)
    require_pools(configuration, (text for _, text in texts))
    groups = frozenset(map(Group, only or Group))
    options = PlaceOptions(replace_retries, tuple(read_pod_path(text) for text in pod_paths), only=groups)
    old_records = None if record is None else read_records(record, must_exist=False)
    records = None if old_records is None else dict(old_records)
    references = _references(texts, beside, records)
    named = [(name_of(path), text) for path, text in texts]
    placements = place_texts(named, configuration, references, options, records)
    if not quiet:
        _print_outcome(placements, configuration, Level(severity))
    changed = record is not None and records and records != old_records
    record_files = [(record, records_text(records))] if record is not None and records and changed else []
    code = _write_results(
        texts, placements, output, record_files, folders=_folders(files), in_place=in_place, as_diff=as_diff
    )
    return with_strict(code, _not_judged(placements), strict=strict)


def _not_judged(placements: Iterable[PlacedFile]) -> list[NotJudged]:
    return [one for placement in placements for one in placement.not_judged]


def _print_outcome(placements: Sequence[PlacedFile], config: Config, least: Level) -> None:
    """Print the findings, and one line on what was placed."""
    if config.found_above and least is Level.NOTE:
        say(f"note: {config.found_above}", err=True)
    roles = list(_roles(placements))
    findings = [finding for placement in placements for finding in placement.findings]
    printed = print_findings([*findings, *unmatched_patterns(config, roles)], least=least, explained=True)
    placed = [role for role in roles if role.policy.spot is not None]
    on_spot = sum(role.on_spot for role in placed)
    what = f"placed {plural(len(placed), 'role')} in {plural(len(placements), 'file')}, {on_spot} of them on spot"
    found = f"{printed.counts}; explain shows {printed.left_out} more" if printed.left_out else printed.counts
    say(f"{what if placed else 'no object was placed'}{f' ({found})' if found else ''}", err=True)
    if left := counted(_not_judged(placements)):
        say(left, err=True)


@click.command()
@_files
@_recursive
@_output
@_record("The file that place wrote with this option.")
def unplace(
    files: tuple[Path, ...],
    recursive: bool,
    output: Path | None,
    in_place: bool,
    as_diff: bool,
    record: Path | None,
) -> int:
    """Remove from each FILE what place added. A file that has not changed since becomes its original byte for byte."""
    _check_output(output, in_place, as_diff)
    for path in filter(_is_python, files):
        raise InputError(f"{path}: a Python file contains no placement: name the YAML file that compile wrote from it")
    texts = _read_all(files, recursive=recursive)
    records = None if record is None else read_records(record, must_exist=True)
    placements = [_undone(text, name_of(path), records) for path, text in texts]
    print_findings(finding for placement in placements for finding in placement.findings)
    return _write_results(texts, placements, output, folders=_folders(files), in_place=in_place, as_diff=as_diff)


@click.command()
@_files
@beside_option
@config_option("the first file")
@click.option("--replace-retries", is_flag=True, help="As place would with this option.")
@click.option("--pod-path", "pod_paths", multiple=True, metavar="PATH", help="As place would with this option.")
@_record("The file that place wrote with this option, if it was used.")
@pipeline_option
@cluster_options
@strict_option
@json_option
def explain(
    files: tuple[Path, ...],
    beside: tuple[Path, ...],
    config: Path | None,
    replace_retries: bool,
    pod_paths: tuple[str, ...],
    record: Path | None,
    pipeline_name: str | None,
    strict: bool,
    as_json: bool,
    **cluster: Any,
) -> int:
    """Explain each role of each FILE: its pools in order, the source of each policy value, and the effect of an interruption.

    FILE is a manifest, a compiled pipeline, or a .py file with @dsl.pipeline, which is compiled first.

    With --cluster, FILE is an object such as pod/NAME or job/NAME, or a run: explains where its pods run, or why they wait.
    """
    place = cluster_place(**cluster)
    if place.cluster:
        say(explain_objects(place, [str(file) for file in files], as_json=as_json))
        return SUCCEEDED
    texts = [(path, _compile(path, pipeline_name) if _is_python(path) else read_input(path)) for path in files]
    configuration = _config_of(files, config)
    options = PlaceOptions(replace_retries, tuple(read_pod_path(text) for text in pod_paths), only_explain=True)
    records = {} if record is None else read_records(record, must_exist=True)  # new records are dropped
    references = _references(texts, beside, records)
    named = [(name_of(path), text) for path, text in texts]
    placed = place_texts(named, configuration, references, options, records)
    placements = {name: placement for (name, _), placement in zip(named, placed, strict=True)}
    for path in filter(_is_python, files):
        placements[name_of(path)].has_lines = False
    placements[name_of(files[-1])].findings += unmatched_patterns(configuration, _roles(placements.values()))
    if as_json:
        say(json.dumps(explanation_json(placements, configuration)))
    else:
        say(explanation_text(placements, configuration))
    return with_strict(SUCCEEDED, _not_judged(placements.values()), strict=strict)


def _undone(text: str, name: str, records: dict[str, str] | None) -> PlacedFile:
    """A text without what ``place`` and ``lint --fix`` have added."""
    unplaced = unplace_text(text, name, records)
    unfixed = unfix_text(unplaced.text, name)
    return PlacedFile(unfixed.text, unplaced.findings + unfixed.findings)


def _check_output(output: Path | None, in_place: bool, as_diff: bool) -> None:
    if sum((output is not None, in_place, as_diff)) > 1:
        raise click.UsageError("-o, --in-place and --diff exclude each other: choose one")


def _is_python(path: Path) -> bool:
    return path.suffix == ".py"


def _compile(path: Path, pipeline: str | None) -> str:
    """The KFP YAML of a pipeline's Python file. Raises :class:`PipelineError`."""
    from spotwright.cli.compile import compiled_yaml  # the compiler's modules are loaded for Python files only

    return compiled_yaml(path, pipeline)


def _read_all(files: Sequence[Path], *, recursive: bool) -> list[tuple[Path, str]]:
    """Each file with its text, also of each folder with ``-R``."""
    texts = []
    for path in files:
        if not path.is_dir():
            texts.append((path, read_input(path)))
        elif not recursive:
            raise InputError(f"{path}: this is a folder: -R takes all its manifests")
        else:
            found = find_manifests(path, read_input)
            texts += found.texts
            for message in found.messages:
                say(message, err=True)
    return texts


def _config_of(files: Sequence[Path], explicit: Path | None) -> Config:
    first = next((path for path in files if path != STANDARD_INPUT), Path.cwd() / "-")
    return find(first, explicit)


def _references(
    texts: Sequence[tuple[Path, str]], beside: Sequence[Path], records: dict[str, str] | None
) -> References:
    """Every object that a manifest may refer to: from the command's files, unplaced, then from the files of ``--with``."""
    shared = [(path, text) for path, text in texts if may_be_referred_to(text)] if len(texts) > 1 else []
    given = [(path, unplace_text(text, name_of(path), records).text) for path, text in shared]
    documents = [document for path, text in given for document in parse(text, name_of(path))]
    documents += read_beside(beside)
    return References(documents, frozenset(name_of(path) for path, _ in texts))


def _roles(placements: Iterable[PlacedFile]) -> Iterator[RoleReport]:
    return (role for placement in placements for role in placement.roles)


def _write_results(
    texts: Sequence[tuple[Path, str]],
    placements: Sequence[PlacedFile],
    output: Path | None,
    records: Sequence[tuple[Path, str]] = (),
    *,
    folders: Sequence[Path],
    in_place: bool,
    as_diff: bool,
) -> int:
    """Write the ``records`` that unplace needs, then the results to their targets. Returns the exit code."""
    pairs = [(path, text, placement.text) for (path, text), placement in zip(texts, placements, strict=True)]
    if as_diff:
        return _show_diff(pairs)
    targets: list[tuple[Path, str]] = []
    if in_place:
        if any(path == STANDARD_INPUT for path, _, _ in pairs):
            raise InputError("--in-place: standard input cannot be written in place")
        targets = [(path, new) for path, text, new in pairs if new != text]
    elif output is not None:
        targets = _targets(output, pairs, folders)
    for path, _ in records:
        if path.resolve() in {manifest.resolve() for manifest, _ in [*texts, *targets]}:
            raise InputError(f"--record {path}: this file is one of the manifests: name another one")
    replace_files([*records, *targets])
    if not in_place and output is None:
        show_content(_joined([new for _, _, new in pairs]))
    return SUCCEEDED


def _joined(texts: Sequence[str]) -> str:
    """Several files as one stream of documents; a single file unchanged."""
    parts = list(texts[:1])
    for text in texts[1:]:
        if not parts[-1].endswith("\n"):
            parts.append("\n")
        parts += [text] if text.startswith("---") else ["---\n", text]
    return "".join(parts)


def _show_diff(pairs: Sequence[tuple[Path, str, str]]) -> int:
    changed = False
    for path, text, new in pairs:
        name = name_of(path)
        lines = list(difflib.unified_diff(text.splitlines(keepends=True), new.splitlines(keepends=True), name, name))
        changed = changed or bool(lines)
        for line in lines:
            show_content(line.rstrip("\r\n") + "\n")
    return FAILED if changed else SUCCEEDED


def _folders(files: Sequence[Path]) -> list[Path]:
    return [path for path in files if path.is_dir()]


def _targets(output: Path, pairs: Sequence[tuple[Path, str, str]], folders: Sequence[Path]) -> list[tuple[Path, str]]:
    """The target file of each result; results from ``folders`` keep their place in the folder."""
    if len(pairs) == 1 and not folders and not output.is_dir():
        return [(output, pairs[0][2])]
    if output.exists() and not output.is_dir():
        raise InputError(f"{output}: this is a file, but there are {len(pairs)} results: name a folder")
    names = [_target_name(path, folders) for path, _, _ in pairs]
    if len(set(names)) < len(names):
        raise InputError(f"{output}: two of the files have the same name: write them to different folders")
    for name in names:
        (output / name).parent.mkdir(parents=True, exist_ok=True)
    return [(output / name, new) for name, (_, _, new) in zip(names, pairs, strict=True)]


def _target_name(path: Path, folders: Sequence[Path]) -> Path:
    """The path of a result in the output folder."""
    folder = next((folder for folder in folders if folder in path.parents), path.parent)
    return path.relative_to(folder)
