"""Lint files: read each into subjects, let every rule look at those that it is for, and leave out what comments allow.

Nothing of a file is run or written. A file that cannot be read is an error of its own; the others are still linted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spotwright.errors import InputError
from spotwright.lint.allowances import Allowances, Extent
from spotwright.lint.registry import ALL_IDS, RULES
from spotwright.lint.rule import Finding, Mend, Problem, Rename, Rule
from spotwright.lint.rules.fields import WRONG_SHAPE
from spotwright.lint.settings import Settings
from spotwright.lint.subjects.objects import KubeObject, objects_in
from spotwright.lint.subjects.pipelines import Pipeline, pipeline_of, pipeline_pods
from spotwright.lint.subjects.pods import Pods, pods_of
from spotwright.lint.subjects.python_files import parse_python
from spotwright.placing.document_pair import PipelinePair, objects_of
from spotwright.placing.documents import Document, ManifestError, Path, no_garbage_collection, parse
from spotwright.placing.yaml_writer import split

__all__ = ["LintedFile", "Repair", "lint_text", "repairs_in"]

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Repair:
    """A safe change for a finding: of a document, with its line, or of a Python file."""

    finding: Finding
    document: Document | None
    base: Path
    mends: tuple[Mend, ...]
    rename: Rename | None


@dataclass(slots=True)
class LintedFile:
    """What lint found in one file. ``allowed`` were found and are allowed by comments; ``documents`` counts objects."""

    file: str
    findings: list[Finding] = field(default_factory=list)
    allowed: list[Finding] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    documents: int = 0


def lint_text(text: str, file: str, settings: Settings, rules: Iterable[Rule] = RULES) -> LintedFile:
    """Lint the text of a file: Python if its name ends with ``.py``, else YAML or JSON.

    Raises :class:`InputError`, one line with the place, for a text that is neither, or has nothing in it.
    """
    checked = [rule for rule in rules if rule.id not in settings.off]
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
    for subject in objects_in(document, []):
        linter.object(subject)
    return result.repairs


def _settle(result: LintedFile, allowances: Allowances, checked: set[str]) -> None:
    """Sort the findings by line, each once, and put aside those that comments allow."""
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

    def python(self, text: str) -> list[Extent]:
        """Lint a Python file; returns its extent."""
        subject = parse_python(text.removeprefix(_BOM), self._result.file)
        if subject.tree.body:
            self._result.documents = 1
        for rule, check in self._python:
            for problem in check(subject, self._settings):
                self._add_of_python(rule, problem)
        first = subject.tree.body[0].lineno if subject.tree.body else 1
        return [Extent(min(first, 1), text.count("\n") + 1)]

    @no_garbage_collection()
    def documents(self, text: str) -> list[Extent]:
        """Lint the documents of a YAML file; returns the extent of each."""
        body = text.removeprefix(_BOM)
        extents: list[Extent] = []
        waiting: list[KubeObject] = []
        beside: list[KubeObject] = []
        for above, part in split(body):
            for document in objects_of(parse(part, self._result.file, above)):
                extents.append(_extent(document))
                if isinstance(document, PipelinePair):
                    self._result.documents += 1
                    self._pipeline(pipeline_of(document))
                    continue
                found = list(objects_in(document, beside))
                self._result.documents += len(found) or 1
                waiting += found
        for subject in waiting:  # now the claims that the file has are known
            self.object(subject)
        return extents

    def object(self, subject: KubeObject) -> None:
        """Lint one object and its pods."""
        for rule, check in self._objects:
            if rule.place_says and subject.is_placed:
                continue
            for problem in check(subject, self._settings):
                self._add(rule, subject.document, subject.base, problem, may_mend=not subject.is_placed)
        for pods in pods_of(subject, self._settings):
            if isinstance(pods, ManifestError):
                self._add_shape(pods)
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
                self._add(rule, pods.document, base, problem, may_mend=not pods.is_placed and pods.form != "K")

    def _add(self, rule: Rule, document: Document, base: Path, problem: Problem, *, may_mend: bool) -> None:
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
            can_fix=bool(mends),
        )
        self._result.findings.append(finding)
        if mends:
            self._result.repairs.append(Repair(finding, document, base, mends, None))

    def _add_of_python(self, rule: Rule, problem: Problem) -> None:
        fix, can_fix = problem.fix or rule.fix, problem.rename is not None
        finding = Finding(
            rule.id, rule.severity, self._result.file, problem.line, "", problem.text, fix, can_fix=can_fix
        )
        self._result.findings.append(finding)
        if problem.rename is not None:
            self._result.repairs.append(Repair(finding, None, (), (), problem.rename))

    def _add_shape(self, error: ManifestError) -> None:
        """Add the finding for a value of another shape: the error names the place as ``file:line: field: text``."""
        rule = self._shape
        if rule is None:
            return
        rest = str(error).removeprefix(f"{self._result.file}:")
        line, _, text = rest.partition(": ")
        name, _, what = text.partition(": ")
        finding = Finding(rule.id, rule.severity, self._result.file, int(line), name, what or text, rule.fix)
        self._result.findings.append(finding)


def _extent(document: Document) -> Extent:
    first = document.line(())
    count = document.text.count("\n", document.start, document.end)
    ends = document.text[document.start : document.end].endswith("\n")
    return Extent(first, first + count - ends)
