"""Lint files: read each into subjects, apply the rules for each, and leave out what comments allow.

Files are neither run nor written. An unreadable file is a separate error; the others are still linted. All rules are listed
here, in the order of the reference page. Fixes use the edits and the record of ``place``, so that ``unplace`` restores the same
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from spotwright.config import Config
from spotwright.errors import ConfigError, InputError
from spotwright.linter.allowances import ALLOW_RULES, Allowances, Extent
from spotwright.linter.python_source import parse_python
from spotwright.linter.python_tasks import python_pipelines
from spotwright.linter.rule import Finding, Mend, Problem, Rename, Rule, Severity
from spotwright.linter.rules import (
    argo,
    capacity,
    fields,
    frameworks,
    gangs,
    kfp,
    placement,
    pools,
    python,
    quotas,
    retries,
    selectors,
    shells,
    stateful,
    storage,
    timing,
    training,
)
from spotwright.linter.rules.fields import REFUSED, WRONG_SHAPE
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import (
    FileObjects,
    KubeObject,
    Pipeline,
    Pods,
    Source,
    objects_in,
    pipeline_of,
    pipeline_pods,
    pods_of,
    with_inner,
)
from spotwright.manifests.files import tried, unfix_text
from spotwright.manifests.record import FIXED_AT, MAX_RECORD, annotations_at, placed_text, reserve
from spotwright.model.not_judged import NotJudged
from spotwright.placing.aliases import refuse_changed
from spotwright.placing.document_pair import PipelinePair, objects_of
from spotwright.placing.documents import (
    MISSING,
    Document,
    ManifestError,
    NoPoolFitsError,
    Path,
    References,
    no_garbage_collection,
    parse,
)
from spotwright.placing.patch import Editor
from spotwright.placing.text_objects import edit_objects, split

__all__ = [
    "ALL_IDS",
    "GROUPS",
    "RULES",
    "LintedFile",
    "Repair",
    "fixed_text",
    "lint_text",
    "refuse_unknown",
    "relinted",
    "repairs_in",
]


GROUPS: Mapping[str, tuple[Rule, ...]] = {
    "Where pods run": placement.RULES,
    "What no node meets": selectors.RULES,
    "What pools and quotas can hold": (*capacity.RULES, *quotas.RULES),
    "What must not be lost": stateful.RULES,
    "Volumes and checkpoints": storage.RULES,
    "Retries": (*retries.RULES, *shells.RULES),
    "The end of a pod, and moves": timing.RULES,
    "Pools of the configuration": pools.RULES,
    "Training jobs and experiments": training.RULES,
    "Pods that train together": gangs.RULES,
    "Training frameworks": frameworks.RULES,
    "Argo workflows": argo.RULES,
    "Compiled pipelines": kfp.RULES,
    "Fields that are dropped, and what could not be checked": fields.RULES,
    "Pipelines in Python": (*python.KFP1_RULES, *python.PIPELINE_CALL_RULES, *python.PLAIN_PYTHON_RULES),
    "The training SDK": training.SDK_RULES,
}
"""The rules by the headings of the reference page."""

RULES: tuple[Rule, ...] = tuple(rule for group in GROUPS.values() for rule in group)


def refuse_unknown(config: Config) -> None:
    """Refuse a configuration that switches off a rule which does not exist. Raises :class:`ConfigError`."""
    for name in config.lint_off:
        if name not in {rule.id for rule in RULES}:
            raise ConfigError(
                f"{config.path}: lint.off: no rule has the name {name}; spotwright lint --rules lists them"
            )


ALL_IDS = frozenset({rule.id for rule in RULES} | ALLOW_RULES.keys())
"""The names that a comment or the configuration may use."""


_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Repair:
    """A safe fix for a finding: in a document, with its line, or in a Python file."""

    finding: Finding
    document: Document | None
    base: Path
    mends: tuple[Mend, ...]
    rename: Rename | None


@dataclass(slots=True)
class LintedFile:
    """What lint found in one file. ``allowed`` are findings that comments allow; ``documents`` counts objects.

    ``pools`` are the pools of which it is unknown whether the work fits.
    """

    file: str
    findings: list[Finding] = field(default_factory=list)
    allowed: list[Finding] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    documents: int = 0
    pools: list[NotJudged] = field(default_factory=list)


def lint_text(text: str, file: str, settings: Settings) -> LintedFile:
    """Lint the text of a file: Python if its name ends with ``.py``, else YAML or JSON.

    Raises :class:`InputError`, one line with the place, for an empty text or another kind of text.
    """
    checked = [rule for rule in RULES if rule.id not in settings.off]
    result = LintedFile(file)
    linter = _Linter(settings, checked, result)
    extents = linter.python(text) if file.endswith(".py") else linter.documents(text)
    if not result.documents:
        raise InputError(f"{file}: nothing to lint: the file is empty")
    _settle(result, Allowances(text, extents, ALL_IDS), {rule.id for rule in checked})
    return result


def repairs_in(document: Document, settings: Settings) -> list[Repair]:
    """The safe changes for the findings in one document, which may be an item of a list."""
    result = LintedFile(document.file)
    linter = _Linter(settings, [rule for rule in RULES if rule.id not in settings.off and rule.mends], result)
    for outer in objects_in(document, FileObjects()):
        for subject in with_inner(outer):
            linter.object(subject)
    return result.repairs


def _settle(result: LintedFile, allowances: Allowances, checked: set[str]) -> None:
    """Sort the findings by line, drop duplicates, and set allowed ones aside."""
    found = sorted(dict.fromkeys(result.findings), key=lambda one: (one.line, one.rule))
    result.findings = [one for one in found if not allowances.allows(one)]
    result.allowed = [one for one in found if one not in result.findings]
    result.repairs = [one for one in result.repairs if one.finding in result.findings]
    result.findings += allowances.findings(result.file, checked)
    result.findings.sort(key=lambda one: one.line)


class _Linter:
    """The rules at work on one file."""

    def __init__(self, settings: Settings, rules: Iterable[Rule], result: LintedFile) -> None:
        self._settings, self._result = settings, result
        self._pods = [(rule, rule.checks.pods) for rule in rules if rule.checks.pods is not None]
        self._objects = [(rule, rule.checks.objects) for rule in rules if rule.checks.objects is not None]
        self._pipelines = [(rule, rule.checks.pipelines) for rule in rules if rule.checks.pipelines is not None]
        self._python = [(rule, rule.checks.python) for rule in rules if rule.checks.python is not None]
        self._shape = next((rule for rule in rules if rule.id == WRONG_SHAPE.id), None)
        self._refused = next((rule for rule in rules if rule.id == REFUSED.id), None)

    def python(self, text: str) -> list[Extent]:
        """Lint a Python file; returns its extent."""
        subject = parse_python(text.removeprefix(_BOM), self._result.file)
        if subject.tree.body:
            self._result.documents = 1
        for rule, check in self._python:
            for problem in check(subject, self._settings):
                self._add_of_python(rule, problem)
        for pipeline in python_pipelines(subject):
            self._pipeline(pipeline)
        first = subject.tree.body[0].lineno if subject.tree.body else 1
        return [Extent(min(first, 1), text.count("\n") + 1)]

    @no_garbage_collection()
    def documents(self, text: str) -> list[Extent]:
        """Lint the documents of a YAML file; returns the extent of each."""
        body = text.removeprefix(_BOM)
        extents: list[Extent] = []
        waiting: list[KubeObject] = []
        beside = FileObjects()
        every: list[Document] = []
        for above, part in split(body):
            for document in objects_of(parse(part, self._result.file, above)):
                extents.append(_extent(document))
                every.append(document)
                if isinstance(document, PipelinePair):
                    self._result.documents += 1
                    self._pipeline(pipeline_of(document))
                    continue
                found = objects_in(document, beside)
                self._result.documents += len(found) or 1
                waiting += found
        for document in self._settings.beside:
            objects_in(document, beside)
        for outer in waiting:  # all claims of the file are known by now
            for subject in with_inner(outer):
                self._result.documents += subject is not outer
                self.object(subject)
        self._refusals(every)
        return extents

    def object(self, subject: KubeObject) -> None:
        """Lint one object and its pods."""
        for rule, check in self._objects:
            if rule.place_says and subject.is_placed:
                continue
            for problem in check(subject, self._settings):
                self._add(rule, subject.document, subject.base, problem, may_mend=subject.may_be_mended)
        for pods in pods_of(subject, self._settings):
            if isinstance(pods, ManifestError):
                if self._shape is not None:
                    self._add_error(self._shape, pods, 0)
            else:
                self._pods_of(pods, subject.base)

    def _pipeline(self, pipeline: Pipeline) -> None:
        for rule, check in self._pipelines:
            if rule.place_says and pipeline.is_placed:
                continue
            for problem in check(pipeline, self._settings):
                self._add(rule, pipeline.document, (), problem, may_mend=False)
        for pods in pipeline_pods(pipeline, self._settings):
            self._pods_of(pods, ())

    def _pods_of(self, pods: Pods, base: Path) -> None:
        for rule, check in self._pods:
            if rule.place_says and pods.is_placed:
                continue
            for problem in check(pods, self._settings):
                self._add(
                    rule, pods.document, base, problem, may_mend=pods.owner is not None and pods.owner.may_be_mended
                )

    def _add(self, rule: Rule, document: Source, base: Path, problem: Problem, *, may_mend: bool) -> None:
        mends = problem.mends if may_mend else ()
        line, shown = document.line(problem.path), document.show(problem.path)
        finding = Finding(
            rule.id,
            rule.severity,
            self._result.file,
            line,
            shown,
            problem.text,
            problem.fix or rule.fix,
            bool(mends),
            problem.not_judged,
        )
        self._result.findings.append(finding)
        if mends and isinstance(document, Document):
            self._result.repairs.append(Repair(finding, document, base, mends, None))

    def _add_of_python(self, rule: Rule, problem: Problem) -> None:
        fix, can_fix = problem.fix or rule.fix, problem.rename is not None
        finding = Finding(
            rule.id, rule.severity, self._result.file, problem.line, "", problem.text, fix, can_fix, problem.not_judged
        )
        self._result.findings.append(finding)
        if problem.rename is not None:
            self._result.repairs.append(Repair(finding, None, (), (), problem.rename))

    def _refusals(self, documents: Sequence[Document]) -> None:
        """Add what ``place`` refuses, where no other rule has found an error at that line, and pools that it cannot judge."""
        rule = self._refused
        references = References([*documents, *self._settings.beside], frozenset({self._result.file}))
        for document in documents:
            trial = tried(document, self._settings.config, references)
            error = trial.refusal
            self._result.pools += trial.not_judged if self._settings.pools else ()
            is_about_pools = isinstance(error, NoPoolFitsError | ConfigError)
            if error is not None and rule is not None and (self._settings.pools or not is_about_pools):
                self._add_error(rule, error, document.line(()))

    def _add_error(self, rule: Rule, error: InputError, line: int) -> None:
        """Add the finding for an error that names the place as ``file:line: field: text``, else at this line."""
        name, what = "", str(error)
        if isinstance(error, ManifestError):
            place, _, text = what.removeprefix(f"{self._result.file}:").partition(": ")
            name, _, what = text.partition(": ")
            line, what = int(place), what or text
        if rule is self._refused and line in self._wrong_lines():
            return
        self._result.findings.append(Finding(rule.id, rule.severity, self._result.file, line, name, what, rule.fix))

    def _wrong_lines(self) -> set[int]:
        return {one.line for one in self._result.findings if one.severity is Severity.ERROR}


def _extent(document: Document) -> Extent:
    first = document.line(())
    count = document.text.count("\n", document.start, document.end)
    ends = document.text[document.start : document.end].endswith("\n")
    return Extent(first, first + count - ends)


def fixed_text(text: str, linted: LintedFile, settings: Settings) -> str:
    """The text of a linted file after every safe fix; a second call changes nothing.

    A fix that the text does not allow is skipped, and its finding stays. Raises :class:`InputError` as
    :func:`~spotwright.linter.linting.lint_text` does.
    """
    wanted = {(finding.rule, finding.line) for finding in linted.findings if finding.can_fix}
    if not wanted:
        return text
    if linted.file.endswith(".py"):
        return _renamed(text, [one.rename for one in linted.repairs if one.rename is not None])
    original = unfix_text(text, linted.file).text
    if original != text:  # one record holds all mends of an object, so they are made anew
        text, before = original, lint_text(original, linted.file, settings)
        wanted = {(finding.rule, finding.line) for finding in before.findings if finding.can_fix}
    bom, body = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    parts = []
    for above, part in split(body):
        objects = list(objects_of(parse(part, linted.file, above)))
        try:
            parts.append(edit_objects(part, objects, lambda document: _mended(document, settings, wanted)) or "")
        except ManifestError:  # an item that is not mended would change with an anchor of one that is
            parts.append(part)
    return bom + "".join(parts)


def _mended(document: Document, settings: Settings, wanted: set[tuple[str, int]]) -> str:
    """The whole text around a document after its fixes; unchanged if they cannot be made (the findings then stay)."""
    repairs = [one for one in repairs_in(document, settings) if (one.finding.rule, one.finding.line) in wanted]
    mends = [mend for repair in repairs for mend in repair.mends]
    at = (*annotations_at(document.get(())), FIXED_AT[-1])
    if mends and document.get(FIXED_AT) is MISSING and document.get(at) is MISSING:
        editor = Editor(document)
        with suppress(ManifestError):
            reserve(editor, at)
            _apply(editor, mends)
            return placed_text(editor, at, MAX_RECORD)
    refuse_changed(document)
    return document.text


def _apply(editor: Editor, mends: Iterable[Mend]) -> None:
    for mend in mends:
        if mend.kind == "add":
            editor.add(mend.path, mend.value)
        elif mend.kind == "extend":
            editor.extend(mend.path, mend.value)
        else:
            editor.replace(mend.path, mend.value)


def _renamed(text: str, renames: Iterable[Rename]) -> str:
    """The text of a Python file with arguments renamed, the last one first, so that no column shifts."""
    lines = text.splitlines(keepends=True)
    for rename in sorted(renames, key=lambda one: (one.line, one.column), reverse=True):
        line = lines[rename.line - 1]
        start = len(line.encode()[: rename.column].decode(errors="ignore"))  # the parser counts bytes
        if line.startswith(rename.old, start):
            lines[rename.line - 1] = line[:start] + rename.new + line[start + len(rename.old) :]
    return "".join(lines)


def relinted(text: str, before: LintedFile, settings: Settings) -> tuple[LintedFile, list[Finding]]:
    """The fixed text linted again, and the findings that are gone."""
    after = lint_text(text, before.file, settings)
    left = {(finding.rule, finding.field, finding.text) for finding in after.findings}
    return after, [one for one in before.findings if (one.rule, one.field, one.text) not in left]
