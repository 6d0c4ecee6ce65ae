"""The pages of kinds, each from the records of its kinds (``spotwright.kinds``) and an example of the tests.

The example is a golden manifest (tests/kinds/golden), with the output of ``place`` and ``explain`` during the build.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import yaml
from click.testing import CliRunner

from spotwright.cli import cli
from spotwright.kinds.kind import Kind, Reads, Retry, all_kinds, group_of, kind_of, leads_by_name
from spotwright.placing.document_pair import KIND
from spotwright.placing.enforcement import CONTROLLER_TEXT, Enforcer, Fact
from spotwright.placing.pods import PodRole

__all__ = ["PAGES", "index", "kinds_of", "page"]

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "kinds" / "golden"
_KATIB = "katib"

_TITLES = {
    "argo": "Argo Workflow",
    "kfp": "Compiled KFP pipeline",
    "katib": "Katib Experiment",
    "services": "Services, datastores, notebooks and DaemonSets",
    "tekton": "Tekton PipelineRun, TaskRun and Pipeline",
    "volcanojob": "Volcano Job and CronJob",
}
"""The titles of pages that do not follow from their kinds' names."""

_CONFIGURATION = """\
# spotwright.yaml
version: 1
pools:
  spot: {capacity: spot, provider: aks, node: {cpu: 16, memory: 64Gi}}
  regular: {capacity: on-demand, provider: aks, node: {cpu: 16, memory: 64Gi}}
{gpu}policy:
  default: {spot: prefer, timeout: 2h, interruptions: {max: 5}, errors: {retries: 1}, fall_back_after: 3}
"""

_GPU_POOLS = """\
  gpu-spot: {capacity: spot, provider: aks, node: {cpu: 16, memory: 64Gi, nvidia.com/gpu: 8}}
  gpu: {capacity: on-demand, provider: aks, node: {cpu: 16, memory: 64Gi, nvidia.com/gpu: 8}}
"""

_WHERE: Mapping[PodRole, str] = {
    PodRole.WORKER: "as the policy says",
    PodRole.COORDINATOR: "on-demand: the other pods need them",
    PodRole.SERVING: "unchanged, unless the object asks for spot: they answer requests",
    PodRole.DATASTORE: "unchanged, unless the object has a policy: they keep data",
    PodRole.INTERACTIVE: "unchanged, unless the object has a policy: people work in them",
    PodRole.SYSTEM: "unchanged, unless the object has a policy: they run on every node",
    PodRole.HOOK: "on-demand: a release waits for them",
}

_RETRY: Mapping[Retry, str] = {
    Retry.NONE: "A lost pod is not recreated.",
    Retry.JOB: "The Job recreates a lost pod, by its `backoffLimit` and `podFailurePolicy`.",
    Retry.ROLE: "The training operator recreates a lost pod, by the `restartPolicy` of its role.",
    Retry.SET: "The controller of the set recreates a lost pod together with the pods beside it.",
    Retry.STEP: "Argo recreates a lost pod, by the `retryStrategy` of its step.",
    Retry.TRIAL: "Each trial is retried by its own kind.",
    Retry.OTHER: "The kind's controller handles a lost pod.",
}


def page(name: str) -> str:
    """The page of that name."""
    kinds = kinds_of(name)
    parts = [
        f"# {_title(name)} on spot\n",
        *(_notes(kind, is_alone=len(kinds) == 1) for kind in kinds if kind.notes),
        *_places(kinds),
        *_interruptions(kinds),
        f"## Who enforces the policy\n\n{_enforced(name)}\n",
        *_with_the_controller(kinds),
        *_examples(name),
    ]
    return "\n".join(parts)


def kinds_of(page: str) -> list[Kind]:
    """The kinds of a page, first the one that it is named after."""
    kinds = [kind for kind in all_kinds().values() if kind.page == page]
    return sorted(kinds, key=lambda kind: not (page.endswith(kind.name.lower()) or kind.tried))


def _title(name: str) -> str:
    return _TITLES.get(name) or " and ".join(kind.name for kind in kinds_of(name))


def _notes(kind: Kind, *, is_alone: bool) -> str:
    lines = "".join(f"- {note}\n" for note in kind.notes.splitlines())
    return lines if is_alone else f"**{kind.name}**\n\n{lines}"


def _places(kinds: Sequence[Kind]) -> Iterator[str]:
    yield "## What is placed where\n\n| kind | API | pods | where |\n|---|---|---|---|"
    for kind in kinds:
        rows: dict[str, list[str]] = {}
        for place in kind.places:
            path = ".".join(place.steps).replace(".*", "[*]")
            rows.setdefault(_WHERE[place.duty], []).append(f"`{path}`" if path else "the object itself")
        if kind.holds is not None:
            rows["by their own kind"] = ["the objects inside it"]
        versions = " or ".join(f"`{api}`" for api in _versions(kind))
        for where, paths in (rows or {"as the policy says": ["its tasks"]}).items():
            yield f"| {kind.name} | {versions} | {'<br>'.join(paths)} | {where} |"
    leading = [f"`{role}`" for kind in kinds for role in kind.roles if kind.leads(role)]
    if leading:
        yield f"\nOn on-demand unless `policy.tasks` moves them: {', '.join(dict.fromkeys(leading))}."
    if any(kind.leads is leads_by_name for kind in kinds):
        yield "\nA role whose name says that it leads stays on on-demand unless `policy.tasks` moves it."
    yield ""


def _versions(kind: Kind) -> Iterator[str]:
    if kind.group == group_of(KIND[0]):
        yield "pipelineSpec"
        return
    group = f"{kind.group}/" if kind.group else ""
    for version in (kind.version, *kind.more_versions):
        yield f"{group}{version}" if version else kind.group or "v1"


def _interruptions(kinds: Sequence[Kind]) -> Iterator[str]:
    yield "## What an interruption does\n"
    yield from _said_of(kinds, _interruption)


def _said_of(kinds: Sequence[Kind], say: Callable[[Kind], Iterator[str]]) -> Iterator[str]:
    """The paragraph about each kind, once for all kinds with the same one; with their names if they differ."""
    names: dict[str, list[str]] = {}
    for kind in kinds:
        names.setdefault(" ".join(say(kind)), []).append(kind.name)
    for text, these in names.items():
        yield (text if len(names) == 1 else f"{', '.join(these)}: {text}") + "\n"


def _interruption(kind: Kind) -> Iterator[str]:
    yield _RETRY[kind.retry]
    if kind.is_gang:
        yield "Its pods run together or not at all, so an interruption of one affects all."
    if kind.retries.home:
        yield f"Retries are in `{kind.retries.home}`."
    if kind.harm:
        yield f"By default: {kind.harm}."


def _enforced(name: str) -> str:
    """The enforcer of each value of the policy, and what was tried."""
    kinds = kinds_of(name)
    if name == _KATIB:
        text = "As on the page of the trials' kind."
    else:
        text = _link(kinds[0].page_of_retries, name) or "\n".join(_tables(name))
    tried = " ".join(dict.fromkeys(kind.tried for kind in kinds if kind.tried))
    return f"{text}\n\n## What was tried\n\n{tried}" if tried else text


def _with_the_controller(kinds: Sequence[Kind]) -> Iterator[str]:
    yield "## On a cluster with the controller\n"
    yield from _said_of(kinds, _controlled)


def _controlled(kind: Kind) -> Iterator[str]:
    if kind.is_cluster_wide:
        yield "It has no namespace, so the controller leaves it unchanged."
    elif kind.is_admitted:
        again = ", and again when its file changes" if kind.may_change else ""
        yield f"The controller places it when it is created{again}."
    else:
        yield "The controller does not place it; its pods are placed by their owner's policy."
    if kind.reads is Reads.RUNS:
        yield "It is recorded as a run." + (" One restart of all pods is one attempt." if kind.restart_label else "")
    if kind.suspended_by:
        yield f"While `{'.'.join(map(str, kind.suspended_by))}` is set, it has no pods; they are recreated when it resumes."
    if kind.hands_down:
        yield "Objects that its controller makes are placed by its policy."
    if kind.is_queued:
        yield "Kueue gives it the default queue of its namespace."


def _examples(name: str) -> Iterator[str]:
    folders = _golden(name)
    if not folders:
        return
    texts = [path.read_text(encoding="utf-8") for folder in folders for path in _inputs(folder)]
    asks_for_gpus = any("gpu" in text for text in texts)
    configuration = _CONFIGURATION.replace("{gpu}", _GPU_POOLS if asks_for_gpus else "")
    yield f"## Example\n\n```yaml\n{configuration}```\n"
    with tempfile.TemporaryDirectory() as there:
        Path(there, "spotwright.yaml").write_text(configuration, encoding="utf-8")
        for folder in folders:
            yield from _example(folder, Path(there))


def _golden(name: str) -> list[Path]:
    """One golden folder for each kind of a page: the shortest that needs no other object."""
    found: dict[str, list[Path]] = {}
    for path in sorted(GOLDEN.glob("*/in.yaml"), reverse=True):
        first = next(yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))
        kind = kind_of(first.get("apiVersion", KIND[0]), first.get("kind", KIND[1]))  # a compiled pipeline has neither
        if kind.page == name:
            found.setdefault(kind.name, []).append(path.parent)
    return [min(folders, key=_length) for _, folders in sorted(found.items())]


def _inputs(folder: Path) -> list[Path]:
    """The manifest of a golden folder, and the objects given beside it."""
    return [path for path in (folder / "in.yaml", folder / "with.yaml") if path.exists()]


def _length(folder: Path) -> tuple[bool, int]:
    return len(_inputs(folder)) > 1, len((folder / "in.yaml").read_text(encoding="utf-8").splitlines())


def _example(folder: Path, there: Path) -> Iterator[str]:
    name = f"{re.sub('-[0-9.]+$', '', folder.name)}.yaml"
    names = [name, "with.yaml"][: len(_inputs(folder))]
    for each, path in zip(names, _inputs(folder), strict=True):
        text = f"# {each}\n{path.read_text(encoding='utf-8')}"
        (there / each).write_text(text, encoding="utf-8")
        yield f"```yaml\n{text}```\n"
    arguments = [name, *(["--with", "with.yaml"] if len(names) > 1 else ())]
    said = printed(["explain", *arguments], there).partition("\nfor the cluster autoscaler:")
    shown = re.sub(r"^pools and policy: .*", "...", said[0]) + ("...\n" if said[1] else "")
    yield f"```console\n$ spotwright explain {' '.join(arguments)}\n{shown}```\n"
    diff = re.sub(
        r"(?m)^([+-]).*spotwright\.dev/placed: .*$", r"\1...", printed(["place", *arguments, "--diff"], there)
    )
    lines = "".join(f"    {line}\n" for line in diff.splitlines())
    yield f'??? example "What `spotwright place {" ".join(arguments)} --diff` prints"\n\n    ```diff\n{lines}    ```\n'


def printed(arguments: Sequence[str], folder: Path) -> str:
    """The output of the command in a folder; raises ``RuntimeError`` if it fails."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        done = CliRunner().invoke(cli, arguments)
    finally:
        os.chdir(before)
    if done.exit_code:
        raise RuntimeError(f"spotwright {' '.join(arguments)}: {done.output}") from done.exception
    return done.output


def _link(page: str, of: str) -> str:
    """The reference to another page's table; empty without one."""
    up = "../" * of.count("/")
    return f"As in a [{kinds_of(page)[0].name}]({up}{page}.md#who-enforces-the-policy)." if page else ""


def _tables(name: str) -> Iterator[str]:
    """The table of the first retry mechanism, and for each other one the rows that differ."""
    ways = list(dict.fromkeys(way for kind in kinds_of(name) for way in kind.mechanisms))
    first = ways[0]
    yield "`spotwright explain` shows this beside each value" + (f" ({first.title}):" if first.title else ":")
    yield ""
    yield from _table(first.facts)
    for way in ways[1:]:
        facts = {row: fact for row, fact in way.facts.items() if first.facts.get(row) != fact}
        yield f"\nThe rows that differ ({way.title}):\n"
        yield from _table(facts)


def _table(facts: Mapping[str, Fact]) -> Iterator[str]:
    """The rows of a table; consecutive fields with one fact are one row."""
    yield "| value | enforced by |"
    yield "|---|---|"
    rows: list[tuple[list[str], str]] = []
    for field, fact in facts.items():
        text = _cell(fact)
        if rows and rows[-1][1] == text:
            rows[-1][0].append(f"`{field}`")
        else:
            rows.append(([f"`{field}`"], text))
    for fields, text in rows:
        yield f"| {', '.join(fields)} | {text} |"


def _cell(fact: Fact) -> str:
    if fact.by is Enforcer.CONTROLLER:
        return f"{CONTROLLER_TEXT}, {fact.note}" if fact.note else CONTROLLER_TEXT
    if fact.by is Enforcer.KIND:
        return fact.note
    if fact.by is Enforcer.NOTHING:
        return f"nothing: {fact.note}" if fact.note else "nothing"
    labels, otherwise = [_label(fact)], fact.absent
    while otherwise is not None and otherwise.by is Enforcer.OBJECT and otherwise.note == fact.note:
        labels.append(_label(otherwise))
        otherwise = otherwise.absent
    text = " or ".join(labels) + (f", {fact.note}" if fact.note else "")
    return text if otherwise is None else f"{text}; if missing: {_cell(otherwise)}"


def _label(fact: Fact) -> str:
    return fact.label if " " in fact.label else f"`{fact.label}`"


def index() -> str:
    """The table of all kinds, with their pages."""
    rows = []
    for kind in sorted(all_kinds().values(), key=lambda one: (one.name.lower(), one.group)):
        name = f"[{kind.name}]({kind.page}.md)" if kind.page else kind.name
        rows.append(f"| {name} | {kind.group or 'core'} | {_what_is_done(kind)} |\n")
    return _INDEX + "".join(rows)


def _what_is_done(kind: Kind) -> str:
    if kind.harm:
        return "unchanged unless it asks for placement"
    if kind.place is not None:
        return (
            "placed"
            if kind.is_admitted or kind.is_cluster_wide or kind.group == "kfp"
            else "placed by `spotwright place`"
        )
    if kind.holds is not None:
        return "the objects inside it are placed"
    return "unchanged; `lint` knows its pods" if kind.places else "unchanged"


_INDEX = """# Kinds of workload

What `spotwright place` and [the controller](../how-to/cluster/run-the-controller.md) do with each kind. Other kinds pass through
unchanged; `--pod-path` places the pods of any object: [Place manifests](../how-to/place-manifests.md).

| kind | API group | what happens |
|---|---|---|
"""

PAGES: Mapping[str, Callable[[], str]] = {
    "kinds/index.md": index,
    **{f"kinds/{name}.md": partial(page, name) for name in sorted({kind.page for kind in all_kinds().values()} - {""})},
}
"""The function of each page, by its path in docs/."""
