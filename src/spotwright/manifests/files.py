"""Place, unplace and explain whole files: text in, text out, each object by its kind.

Each object is placed in the text of the previous placement, so that positions of edits are valid. If one object of a file is
wrong, the file is not written. Documents that ``place`` adds in front of their users are removed whole. A pattern of
``policy.tasks`` that matches no role of any file is reported, because it may be misspelt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from spotwright.config import Config
from spotwright.errors import ConfigError, InputError
from spotwright.kfp.placed_record import VERSION, digest, value_digest
from spotwright.kinds.kind import PlaceObject, kind_of
from spotwright.kinds.unknown import find_pod_specs, pass_through, pattern_text, place_at
from spotwright.manifests.objects import ObjectRules
from spotwright.manifests.record import (
    ANNOTATION,
    AT,
    FIXED_AT,
    MAX_RECORD,
    Outside,
    annotations_at,
    is_placed,
    placed_text,
    reserve,
    unplaced,
)
from spotwright.model.not_judged import NotJudged
from spotwright.model.task_names import matches, may_mean, nearest_path, no_such_task
from spotwright.placing.aliases import refuse_changed
from spotwright.placing.context import Finding, Level, PlaceContext, PlaceOptions, RoleReport, name_of
from spotwright.placing.document_pair import AT as PAIR_AT
from spotwright.placing.document_pair import KIND, PipelinePair, objects_of
from spotwright.placing.documents import (
    Document,
    ManifestError,
    Path,
    References,
    may_be_referred_to,
    no_garbage_collection,
    parse,
)
from spotwright.placing.patch import Editor
from spotwright.placing.text_objects import edit_objects, has_directives, split
from spotwright.placing.yaml_writer import Removal, block, flow, remove

__all__ = [
    "Additions",
    "PlacedFile",
    "Trial",
    "has_added_content",
    "is_added",
    "is_untouched",
    "place_text",
    "place_texts",
    "prepend",
    "refuse_unmatched",
    "tried",
    "unfix_text",
    "unmatched_patterns",
    "unplace_text",
    "without_record",
]


_TOKEN = "@"  # noqa: S105 (a placeholder until the record is known)


class Additions:
    """The documents that the objects of one file need, each once."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        self._pending: list[Mapping[str, Any]] = []

    def add(self, value: Mapping[str, Any]) -> bool:
        """Request a document. False if another one of its name was requested with different content."""
        metadata = value["metadata"]
        identity = (str(value["kind"]), str(metadata.get("namespace")), str(metadata["name"]))
        first = self._by_name.setdefault(identity, value)
        if first is value:
            self._pending.append(value)
        return first == value

    def take(self) -> list[Mapping[str, Any]]:
        """The documents requested since the last call."""
        pending, self._pending = self._pending, []
        return pending


def prepend(text: str, added: Sequence[Mapping[str, Any]]) -> str:
    """A part of a file with documents added in front of it."""
    if not added:
        return text
    documents = [_serialize(value) for value in added]
    if text.startswith("---"):
        new = "".join(f"---\n{document}" for document in documents)
    else:
        new = "".join(f"{document}---\n" for document in documents)
    return (new.replace("\n", "\r\n") if "\r\n" in text else new) + text


def _serialize(value: Mapping[str, Any]) -> str:
    """A document with its record."""
    marked = {**value, "metadata": {**value["metadata"], "annotations": {ANNOTATION: _TOKEN}}}
    text = "\n".join(block(marked, 0)) + "\n"
    record = {"v": VERSION, "added": [digest(text), value_digest(_content(value))]}
    return text.replace(flow(_TOKEN), flow(json.dumps(record, separators=(",", ":"))), 1)


def is_added(document: Document) -> bool:
    """Whether :func:`prepend` wrote the object, even if it has changed since."""
    return bool(_digests(document))


def is_untouched(document: Document) -> bool:
    """Whether the document, alone in its text, has exactly the added bytes."""
    node = document.node(AT)
    digests = _digests(document)
    if node is None or not digests:
        return False
    text = document.text[: node.start_mark.index] + flow(_TOKEN) + document.text[node.end_mark.index :]
    return digest(text.replace("\r\n", "\n").removeprefix("---\n")) == digests[0]


def has_added_content(document: Document) -> bool:
    """Whether the object has the added content, in any format."""
    return value_digest(_content(document.get((), {}))) in _digests(document)


def without_record(document: Document) -> str:
    """The text without the record, for an object that the user has changed and so keeps."""
    others = document.get(AT[:-1]).keys() - {ANNOTATION}
    return remove(document, [Removal(AT if others else AT[:-1], ())])


def _digests(document: Document) -> list[str]:
    """The two digests in the record of an added document; none for any other record."""
    annotation = document.get(AT, None)
    try:
        record = json.loads(annotation) if isinstance(annotation, str) else None
    except ValueError:
        return []  # not our record: reading it later raises the error
    digests = record.get("added") if isinstance(record, dict) else None
    return [str(digest) for digest in digests] if isinstance(digests, list) else []


def _content(value: Any) -> Any:
    """The content of an object for comparison, without the API server's metadata."""
    if not isinstance(value, Mapping):
        return None
    metadata = value.get("metadata") or {}
    content = [value.get("apiVersion"), value.get("kind"), metadata.get("name"), value.get("spec")]
    return [*content, value["binaryData"]] if "binaryData" in value else content


_SEPARATOR_LINE = re.compile(r"\A---\r?\n")
_JSON_OBJECT = re.compile(r'\s*\{\s*"')
_BOM = "\ufeff"
_RECORD_MARKS = (ANNOTATION, "spotwright:", '"spotwright"')  # every document with a record has one of them


@dataclass(slots=True)
class PlacedFile:
    """The outcome for one file: its new text, the findings, and a report of each role.

    ``has_lines`` is false if the text was compiled in memory, so that line numbers are meaningless.
    """

    text: str
    findings: list[Finding] = field(default_factory=list)
    roles: list[RoleReport] = field(default_factory=list)
    has_lines: bool = True

    @property
    def not_judged(self) -> list[NotJudged]:
        """The unjudged parts of its objects and of its roles' pools."""
        found = [one.not_judged for one in self.findings if one.not_judged is not None]
        return [*found, *(one for role in self.roles for one in role.not_judged)]


def place_text(
    text: str,
    file: str,
    config: Config,
    references: References | None = None,
    options: PlaceOptions | None = None,
    outside: Outside | None = None,
) -> PlacedFile:
    """Place one file, as :func:`place_texts` does."""
    return place_texts([(file, text)], config, references, options, outside)[0]


@no_garbage_collection()
def place_texts(
    texts: Iterable[tuple[str, str]],
    config: Config,
    references: References | None = None,
    options: PlaceOptions | None = None,
    outside: Outside | None = None,
) -> list[PlacedFile]:
    """Place every object whose kind is known in files, each a name and a text.

    Raises :class:`ManifestError`; then do not write. Placed objects are unplaced first, so that placement is idempotent.
    ``outside`` has the records that are too large for an annotation, and gets new ones; without it, an object with such a
    record is refused.
    """
    work = _Work(config, references or References(), options or PlaceOptions(), outside)
    placed = [_place_file(text, file, work) for file, text in texts]
    if placed:
        placed[0].findings += _paths_to_nothing(work, [file for file, _ in texts])
    return placed


def _paths_to_nothing(work: _Work, files: Sequence[str]) -> Iterator[Finding]:
    """A warning for each pattern of ``--pod-path`` that leads to no pod spec in any file, unless already reported."""
    for pattern in work.options.pod_paths:
        if pattern not in work.answered_paths:
            where = "in these files" if len(files) > 1 else "here"
            text = f"--pod-path {pattern_text(pattern)} leads to no pod spec {where}: correct the path, or leave it out"
            yield Finding(Level.WARNING, files[0], 1, (), text)


def _place_file(text: str, file: str, common: _Work) -> PlacedFile:
    unplaced_file = unplace_text(text, file, common.outside)
    result = PlacedFile(unplaced_file.text, unplaced_file.findings)
    bom, body = (_BOM, result.text[1:]) if result.text.startswith(_BOM) else ("", result.text)
    parts = list(split(body))
    parsed = {above: list(objects_of(parse(part, file, above))) for above, part in parts if may_be_referred_to(part)}
    own = [document for documents in parsed.values() for document in documents]
    given = common.references
    work = replace(
        common,
        references=References(own, given.inputs | {file}, given),
        may_add=common.options.may_add and not _is_json(file, body) and not has_directives(body),
        additions=Additions(),
    )
    texts = []
    for (
        above,
        part,
    ) in parts:  # unreferenced parts are parsed in turn and dropped, to save memory
        objects = parsed[above] if above in parsed else list(objects_of(parse(part, file, above)))
        edited = edit_objects(part, objects, lambda document: _place_object(document, result, work)) or ""
        texts.append(prepend(edited, work.additions.take()))
    result.text = bom + "".join(texts)
    return result


def _is_json(file: str, body: str) -> bool:
    """Whether other tools read the file as JSON, which allows only one document."""
    return file.endswith(".json") or _JSON_OBJECT.match(body) is not None


@dataclass(frozen=True, slots=True)
class _Work:
    """The shared state of a placement: the objects of one command, and in copies of one file.

    A copy for a file also finds this file's objects, and has its own ``may_add`` and ``additions``. ``answered_paths``: the
    patterns of ``--pod-path`` that lead to a pod spec, and those reported not to.
    """

    config: Config
    references: References
    options: PlaceOptions
    outside: Outside | None
    may_add: bool = False
    additions: Additions = field(default_factory=Additions)
    answered_paths: set[Path] = field(default_factory=set)


def _place_object(document: Document, result: PlacedFile, work: _Work) -> str:
    """Place one object; returns the whole text around it."""
    api_version, kind = _kind_of(document)
    place = _how_to_place(document, api_version, kind, work)
    if place is None:
        refuse_changed(document)
        left = list(pass_through(document, api_version, kind, work.options.pod_paths))
        if any("--pod-path" in finding.text for finding in left):
            work.answered_paths.update(work.options.pod_paths)
        result.findings += left
        return document.text
    at = _record_path(document)
    editor = _editor(document, at)
    reserve(editor, at)
    reserved = editor.changes
    add = work.additions.add if work.may_add else None
    rules = ObjectRules(work.config, work.references, work.options, add)
    rules.apply(place, editor, result.findings, result.roles)
    if editor.changes == reserved:
        refuse_changed(document)
        return document.text  # no edits, so no record
    return placed_text(editor, at, None if isinstance(document, PipelinePair) else MAX_RECORD, work.outside)


class Trial(NamedTuple):
    """The result of :func:`place_texts` on an object: why it refuses it, and which of its pools it cannot judge."""

    refusal: InputError | None = None
    not_judged: Sequence[NotJudged] = ()


def tried(document: Document, config: Config, references: References) -> Trial:
    """Try :func:`place_texts` on an object, without changing it.

    ``references`` has the objects of the same input. The trial of an object that is placed already, or left alone, is empty.
    """
    api_version, kind = _kind_of(document)
    own = _record_path(document)
    roles: list[RoleReport] = []
    if any(document.get(at, None) is not None for at in (own, AT)):
        return Trial()
    rules = ObjectRules(config, references, PlaceOptions(only_explain=True), Additions().add)
    try:
        place = kind_of(api_version, kind).place
        if place is not None:
            rules.apply(place, _editor(document, own), [], roles)
    except (ManifestError, ConfigError) as error:
        return Trial(error)
    return Trial(not_judged=[one for role in roles for one in role.not_judged])


def _editor(document: Document, at: Path) -> Editor:
    """The editor of an object whose record is ``at``; a pipeline without a platform document gets an empty one."""
    editor = Editor(document)
    if at[0] == len(editor.data):
        editor.append()
    return editor


def _how_to_place(document: Document, api_version: str, kind: str, work: _Work) -> PlaceObject | None:
    """How to place an object: by its kind, and at the paths of ``--pod-path`` that its kind leaves alone.

    ``None`` if its kind is unknown and no path leads to a pod spec. Kinds that are never placed by themselves are placed only
    at the paths.
    """
    place = kind_of(api_version, kind).place
    paths: list[Path] = []
    for pattern in work.options.pod_paths:
        found = find_pod_specs(document.get((), None), [pattern], may_be_partial=place is None)
        if found:
            work.answered_paths.add(pattern)
        paths += [path for path in found if path not in paths]
    if not paths:
        return place

    def place_paths(ctx: PlaceContext) -> None:
        findings, roles = len(ctx.findings), len(ctx.roles)
        if place is not None:
            place(ctx)
        left = [path for path in paths if not ctx.editor.is_edited(path)]
        if left and len(ctx.roles) == roles:
            del ctx.findings[findings:]  # about the kind not being placed by itself
        if left:
            place_at(ctx, left)

    return place_paths


def _kind_of(document: Document) -> tuple[str, str]:
    if isinstance(document, PipelinePair):
        return KIND
    return str(document.get(("apiVersion",), "")), str(document.get(("kind",), ""))


def _record_path(document: Document) -> Path:
    """The path of a new record."""
    return PAIR_AT if isinstance(document, PipelinePair) else (*annotations_at(document.get(())), AT[-1])


@no_garbage_collection()
def unplace_text(text: str, file: str, outside: Outside | None = None) -> PlacedFile:
    """Remove everything that was placed in a file.

    An unchanged object gets its original bytes back; a reformatted one becomes an equal document, with a finding. ``outside``
    has the records that were too large for an annotation. Raises :class:`ManifestError` if one is missing.
    """
    return _undone(text, file, outside, AT, _RECORD_MARKS)


def unfix_text(text: str, file: str) -> PlacedFile:
    """Undo the changes of ``lint --fix`` in a file, as :func:`unplace_text` undoes placement."""
    return _undone(text, file, None, FIXED_AT, (str(FIXED_AT[-1]),))


def _undone(text: str, file: str, outside: Outside | None, at: Path, marks: Sequence[str]) -> PlacedFile:
    """Undo the changes of each object's record at a path, which only texts with one of the ``marks`` can have."""
    result = PlacedFile(text)
    bom, body = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    if not any(mark in body for mark in marks):
        return result

    texts: list[str] = []
    follows_removed = False  # the first document, which needs no separator, was removed
    for above, part in split(body):
        rest: str | None = part
        if any(mark in part for mark in marks):
            objects = list(objects_of(parse(part, file, above)))
            rest = edit_objects(part, objects, lambda document: _unplace_object(document, result, outside, at))
        if rest is None:
            follows_removed |= not texts and not part.startswith("---")
            continue
        texts.append(_SEPARATOR_LINE.sub("", rest, count=1) if follows_removed else rest)
        follows_removed = False
    result.text = bom + "".join(texts)
    return result


def _unplace_object(document: Document, result: PlacedFile, outside: Outside | None, at: Path) -> str | None:
    if isinstance(document, PipelinePair) and at == AT:
        at = PAIR_AT
    elif is_placed(document, own := (*annotations_at(document.get(())), at[-1])):
        at = own  # older versions wrote it into the metadata
    if not is_placed(document, at):
        return document.text
    if at != FIXED_AT and is_added(document):
        return _remove_added(document, result)
    outcome = unplaced(document, at, outside)
    for path, text in outcome.left:
        result.findings.append(Finding(Level.WARNING, document.file, document.line(path), path, text))
    if not outcome.exact:
        _note_reformatted(document, at, result)
    return outcome.text


def _note_reformatted(document: Document, at: Path, result: PlacedFile) -> None:
    text = "was changed or reformatted since it was placed: all additions are removed, but the bytes differ from the original"
    result.findings.append(Finding(Level.NOTE, document.file, document.line(at), at, text))


def _remove_added(document: Document, result: PlacedFile) -> str | None:
    """Remove an added document; one that the user has changed stays, without its record."""
    if has_added_content(document):
        if not is_untouched(document):
            _note_reformatted(document, AT, result)
        return None
    kind, name = document.get(("kind",), ""), name_of(document.get(("metadata",), {}))
    text = f"{kind} {name} was changed since it was added, so it stays"
    result.findings.append(Finding(Level.WARNING, document.file, document.line(()), (), text))
    return without_record(document)


def unmatched_patterns(config: Config, roles: Iterable[RoleReport]) -> Iterator[Finding]:
    """A warning for each pattern that nearly names a role, a note for each other unmatched one; empty without roles.

    A configuration may serve many files, so a pattern without a role here may be right.
    """
    paths = _policy_paths(roles)
    for pattern, layer in config.policy_tasks if paths else ():
        if any(matches(pattern, path) for path in paths):
            continue
        file, _, line = layer.source.rpartition(":")
        nearest = nearest_path(pattern, paths)
        text = f"policy.tasks {pattern!r} matches no placed task"
        finding = Finding(Level.NOTE, file, int(line), ("policy", "tasks", pattern), text)
        yield finding._replace(level=Level.WARNING, text=f"{text}: did you mean {nearest!r}?") if nearest else finding


def refuse_unmatched(config: Config, roles: Iterable[RoleReport]) -> None:
    """Raise :class:`ConfigError` for a pattern that means no task of the one pipeline whose roles these are."""
    paths = _policy_paths(roles)
    for pattern, layer in config.policy_tasks:
        if not any(may_mean(pattern, path) for path in paths):
            raise ConfigError(f"{layer.source}: policy.tasks {pattern!r} matches no task{no_such_task(pattern, paths)}")


def _policy_paths(roles: Iterable[RoleReport]) -> list[str]:
    return list(dict.fromkeys(path for role in roles for path in (role.policy_path, *role.tasks)))
