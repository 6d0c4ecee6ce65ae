"""Pages of the reference: commands from click, Python and JSON from docstrings, labels and taints from the providers' facts."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

import spotwright
from spotwright import checkpoint
from spotwright.cli import cli
from spotwright.cli.pools_list import pool_json
from spotwright.cli.pools_nodes import check_json
from spotwright.cli.prune import prune_json
from spotwright.clouds import node_labels, providers
from spotwright.clouds.provider import Setter
from spotwright.clouds.provider_records import PROVIDERS
from spotwright.forecast.policy_comparison import comparison_json
from spotwright.forecast.report import beside_json, forecast_json
from spotwright.linter.formats import lint_json
from spotwright.model.pools import Capacity, Pool
from spotwright.model.quantities import format_duration
from spotwright.page import answers, attempt_panel, columns, heads, scopes, stream
from spotwright.page import money as page_money
from spotwright.page.artifacts import artifact_raw, task_artifacts
from spotwright.page.index import RunIndex
from spotwright.page.log_lines import RunLogs
from spotwright.rehearsal.report import as_json
from spotwright.views import account_report, run_json
from spotwright.views.explanation import explanation_json
from spotwright.views.spending import totals_json

__all__ = [
    "checkpoint_page",
    "cli_page",
    "json_page",
    "markdown",
    "page_answers_page",
    "providers_page",
    "python_page",
]

ROOT = Path(__file__).resolve().parent.parent
_CLI = """# Commands

`spotwright COMMAND --help` prints the same. `python -m spotwright` is the same command.

Exit codes: 0 the run succeeded, 1 it failed, 2 wrong usage or input, 130 stopped by the user. RUN is a run's name, its unique
beginning, or `last`. Durations are written `500ms`, `30s`, `5m` or `1h30m`; a bare number is seconds.
"""

_PYTHON = """# Python API

```python
import spotwright as spot
```

Every error that Spotwright raises is a `spot.SpotwrightError` with a message of one or two lines; wrong input is its subclass
`InputError`. See [Use it from Python and notebooks](../how-to/use-from-python.md).
"""

_JSON = """# JSON

With `--json` a command prints one JSON document on standard output; messages for people go to standard error. Later
versions may add keys; no key is removed within a major version.

| command | document |
|---|---|
| `run`, `resume`, `show`, `cancel` | [a run](#a-run) |
| `runs` | a list of [summaries](#a-summary), oldest first |
| `plan` | [a plan](#a-plan); without a pipeline [a comparison of policies](#a-comparison-of-policies) |
| `report` | [an account](#an-account); with `--plan` [beside its plan](#a-run-beside-its-plan) |
| `rehearse` | [a rehearsal](#a-rehearsal) |
| `explain` | [an explanation](#an-explanation) |
| `lint --format json` | [findings](#findings) |
| `pools list` | a list of [pools](#a-pool) |
| `pools check` | a list of [findings about pools](#a-finding-about-pools) |
| `prune` | [what takes space](#what-takes-space) |
| `logs` | a list of [logs](#a-log) in the order of the attempts; with `--follow` one object a line, as text is written |
"""

_LOG = """## A log

`task`, `attempt`, `path` of the log file, `ended`, and `text`, the log so far (with `--follow`: the new part).
"""

_CHECKPOINT = """# Checkpoint library

```python
from spotwright.checkpoint import Checkpoint
```

How to use it: [Save checkpoints](../how-to/checkpoint.md). How it works: [Checkpoints](../explanation/checkpoints.md).
"""

_PROVIDERS = """# Providers

The labels and taints that this version expects each provider to set on a pool's nodes, and the time between the notice and the
loss of a spot node. `NAME` is the pool's name, `TYPE` its machine. Describe differences of your cluster with `labels`, `taints`
and `notice` of the pool: [Configure pools](../how-to/configure-pools.md). The sources of these facts are in
`src/spotwright/clouds/`.

| provider | pool | labels | taints | notice |
|---|---|---|---|---|
"""


def cli_page() -> str:
    """Every command with its arguments and options."""
    context = click.Context(cli, info_name="spotwright")
    return "\n".join([_CLI, *(_command(name, context) for name in cli.list_commands(context))])


def _command(name: str, parent: click.Context) -> str:
    """A command's section; a group's commands follow it with separate sections."""
    group = parent.command
    command = group.get_command(parent, name) if isinstance(group, click.Group) else None
    if command is None:
        raise SystemExit(f"the command {name} is listed and not there")
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    options = [option for option in command.params if isinstance(option, click.Option)]
    rows = "".join(_option(option, context) for option in options)
    text = inspect.cleandoc(command.help or "")
    table = f"| option | meaning |\n|---|---|\n{rows}" if rows else ""
    path = context.command_path
    page = f"## {path}\n\n```text\n{path} {usage}\n```\n\n{text}\n\n{table}".rstrip("\n") + "\n"
    if isinstance(command, click.Group):
        page = "\n".join([page, *(_command(each, context) for each in command.list_commands(context))])
    return page


def _option(option: click.Option, context: click.Context) -> str:
    names, help_text = option.get_help_record(context) or ("", "")
    variable = f" Also read from `{option.envvar}`." if option.envvar else ""
    return f"| `{_cell(names)}` | {_cell(help_text)}{variable} |\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def python_page() -> str:
    """Every public name with its signature and docstring."""
    return "\n".join([_PYTHON, *(_public(name, getattr(spotwright, name)) for name in spotwright.__all__)])


def _public(name: str, value: Any) -> str:
    if not inspect.isclass(value):
        return f"## {name}\n\n{_signature(name, value)}\n\n{markdown(value.__doc__)}\n"
    parts = [f"## {name}\n\n{markdown(value.__doc__)}\n"]
    for member, found in vars(value).items():
        if not member.startswith("_") and not issubclass(value, Exception):
            parts.append(_member(member, found))
    return "\n".join(parts)


def _member(name: str, found: Any) -> str:
    if isinstance(found, property):
        return f"### {name}\n\n{markdown(found.__doc__)}\n"
    return f"### {name}()\n\n{_signature(name, found)}\n\n{markdown(found.__doc__)}\n"


def _signature(name: str, function: Callable[..., Any]) -> str:
    """The signature as Python, one argument a line where it is long. Annotations are text in our modules."""
    signature = inspect.signature(function)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    result = str(signature.return_annotation).replace("_Task", "task").replace("_Decorated", "pipeline")
    shown = [_parameter(parameter) for parameter in parameters]
    keyword = next((i for i, p in enumerate(parameters) if p.kind is inspect.Parameter.KEYWORD_ONLY), None)
    if keyword is not None:
        shown.insert(keyword, "*")
    line = f"{name}({', '.join(shown)}) -> {result}"
    if len(line) > 100:
        line = "\n".join([f"{name}(", *(f"    {each}," for each in shown), f") -> {result}"])
    return f"```python\n{line}\n```"


def _parameter(parameter: inspect.Parameter) -> str:
    annotation = str(parameter.annotation).replace("_Task", "task")
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: {annotation}{default}"


def json_page() -> str:
    """The documents of --json, from the docstrings of their functions."""
    run = markdown(run_json.__doc__).partition("\n\n")[2]
    summary, account = markdown(run_json.summary.__doc__), markdown(account_report.report_json.__doc__)
    rehearsal = f"## A rehearsal\n\n{markdown(as_json.__doc__)}\n"
    return "\n".join(
        [
            _JSON,
            f"## A run\n\n{run}\n",
            f"## A summary\n\n{summary}\n",
            f"## An account\n\n{account}\n",
            f"## A plan\n\n{markdown(forecast_json.__doc__)}\n",
            f"## A comparison of policies\n\n{markdown(comparison_json.__doc__)}\n",
            f"## A run beside its plan\n\n{markdown(beside_json.__doc__)}\n",
            f"## The total of several runs\n\n{markdown(totals_json.__doc__)}\n",
            _LOG,
            rehearsal,
            f"## An explanation\n\n{markdown(explanation_json.__doc__)}\n",
            f"## Findings\n\n{markdown(lint_json.__doc__)}\n",
            f"## A pool\n\n{markdown(pool_json.__doc__)}\n",
            f"## A finding about pools\n\n{markdown(check_json.__doc__)}\n",
            f"## What takes space\n\n{markdown(prune_json.__doc__)}\n",
        ]
    )


def providers_page() -> str:
    """Labels, taints and notices, computed by the scheduler's functions."""
    rows = [_provider(provider, capacity, gpu) for provider in PROVIDERS for capacity, gpu in _KINDS]
    setters = "".join(map(_setter, node_labels.SETTERS))
    remarks = "".join(f"\n`{one.name}`: {one.remark}\n" for one in PROVIDERS.values() if one.remark)
    return _PROVIDERS + "".join(dict.fromkeys(rows)) + remarks + _SET_BY_OTHERS + setters


def _setter(one: Setter) -> str:
    where = ", ".join(sorted(one.on)) or "everywhere"
    devices = {"gpu": ", with GPUs", "tpu": ", with TPUs", "": ""}[one.devices]
    return f"| {one.name} | {where}{devices} | {'<br>'.join(f'`{key}`' for key in one.keys)} | {one.source} |\n"


_SET_BY_OTHERS = """
## Labels set by others

Kubernetes, clouds, autoscalers and device plugins set these labels on nodes; `*` is any rest of a name. Your selectors and
affinity may name them. A value that follows from a pool's `machine`, `zones`, `region`, `os` and `node` (the accelerator of
`g2-standard-8`, the family of `g5.2xlarge`, the architecture, the zone) is compared. Otherwise nodes may have any value: the
condition counts as met, with a note, until the pool states the label under `labels`.

| set by | on pools of | labels | source |
|---|---|---|---|
"""

_PAGE = """# Answers of the page

The answers of `spotwright page` to its own modules under `api/v1/`, only to GET and with the cookie of the printed address.
Every answer has `"format": "spotwright-page/1"`; version 1 may gain keys, but existing keys keep their meaning. An error is
`{"error": KIND, "message": SENTENCE}` with a status of 400, 401, 403, 404, 405, 409, 500 or 503. Amounts are
`{"seconds", "money"}` of node time as in [JSON](json.md). Moments are Unix seconds; in columns, seconds since `t0`. Names,
reasons and lines have marks such as `<U+202E>` for invisible characters.

Parameters are those in the address below; RUN is the whole name of a run.
"""

_PAGE_ANSWERS: Mapping[str, Callable[..., Any] | type] = {
    "runs?limit=&before=&status=&cause=&namespace=&q=&sort=": RunIndex.runs,
    "runs/RUN": heads.head,
    "runs/RUN/tasks": columns.RunColumns.tasks,
    "runs/RUN/timeline": columns.timeline,
    "runs/RUN/graph?scope=&first=": scopes.graph,
    "runs/RUN/attempt?task=&n=": attempt_panel.attempt_panel,
    "runs/RUN/account": page_money.account_document,
    "runs/RUN/plan": page_money.plan_document,
    "runs/RUN/nodes": attempt_panel.nodes,
    "runs/RUN/history?after=&limit=&task=&kind=": attempt_panel.history,
    "runs/RUN/log?task=&n=&environment=&line=&count=": RunLogs.page,
    "runs/RUN/log/find?task=&n=&q=&from=": RunLogs.find,
    "runs/RUN/log/raw?task=&n=": RunLogs.raw,
    "runs/RUN/artifacts?task=": task_artifacts,
    "runs/RUN/artifact?task=&name=": artifact_raw,
    "pools": heads.pools,
    "totals?since=": page_money.totals_document,
    "rehearsals?name=": answers.rehearsals_document,
}


def page_answers_page() -> str:
    """The page's JSON by address, from the functions that make the documents."""
    index = "".join(
        f"| [`{address.partition('?')[0]}`](#{_anchor(address)}) | {_summary(made)} |\n"
        for address, made in _PAGE_ANSWERS.items()
    )
    parts = [f"{_PAGE}\n| address | document |\n|---|---|\n{index}"]
    parts += [f"## {address}\n\n{markdown(made.__doc__)}\n" for address, made in _PAGE_ANSWERS.items()]
    tables = {"tasks": columns.TASK_COLUMNS, "attempts": columns.ATTEMPT_COLUMNS, "nodes": columns.NODE_COLUMNS}
    rows = "\n".join(f"| {table} | {', '.join(f'`{name}`' for name in names)} |" for table, names in tables.items())
    parts.append(f"## Columns\n\n{markdown(columns.__doc__)}\n\n| table | columns |\n|---|---|\n{rows}\n")
    parts.append(
        f"## stream?run=&after=MADE_AT.SEQ\n\n{markdown(stream.__doc__)}\n\n{markdown(columns.Changes.__doc__)}\n"
    )
    return "\n".join(parts)


def _summary(made: Callable[..., Any] | type) -> str:
    """The first sentence of a docstring."""
    return _cell(re.split(r"\.\s|\n\n", markdown(made.__doc__))[0].rstrip("."))


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


_HELPERS: Mapping[str, Sequence[str]] = {
    "sklearn": ("state_of", "restore"),
    "xgboost": ("SaveTrees", "train"),
    "lightgbm": ("save_trees", "train"),
    "keras": ("state_of", "restore", "SaveEpochs", "fit"),
    "torch": ("state_of", "restore"),
    "dcp": ("StoreWriter", "StoreReader"),
    "huggingface": ("SpotCallback",),
    "lightning": ("SpotCheckpointIO", "SpotCheckpoint"),
    "accelerate": ("SpotState",),
}
"""The modules for other libraries, with their users' entry points."""


def checkpoint_page() -> str:
    """The public names of the checkpoint library, and its helpers, which are parsed, not imported."""
    classes = [checkpoint.Checkpoint, checkpoint.File, checkpoint.Directory]
    first = [*classes, checkpoint.progress, checkpoint.notice]
    errors = [getattr(checkpoint, name) for name in checkpoint.__all__]
    parts = [_CHECKPOINT]
    for value in [*first, *(error for error in errors if error not in first)]:
        text = _public(value.__name__, value)
        if value in classes:
            heading, _, rest = text.partition("\n\n")
            signature = _signature(value.__name__, value.__init__).replace(" -> None", "")
            text = f"{heading}\n\n{signature}\n\n{rest}"
        parts.append(text)
    return "\n".join([*parts, *map(_helper, _HELPERS)])


def _helper(module: str) -> str:
    tree = ast.parse((ROOT / "src" / "spotwright" / "checkpoint" / f"{module}.py").read_text(encoding="utf-8"))
    parts = [f"## spotwright.checkpoint.{module}\n\n{markdown(ast.get_docstring(tree))}\n"]
    named = {each.name: each for each in tree.body if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
    for name in _HELPERS[module]:
        found = named[name]
        parts.append(_described(f"{module}.{name}", found))
        if (
            isinstance(found, ast.ClassDef) and not found.bases
        ):  # those with a base are called by the library that has it
            methods = [each for each in found.body if isinstance(each, ast.FunctionDef) and each.name[0] != "_"]
            parts += [_described(f"{name}.{each.name}", each) for each in methods]
    return "\n".join(parts)


def _described(name: str, found: ast.FunctionDef | ast.ClassDef) -> str:
    made = found
    if isinstance(found, ast.ClassDef):
        made = next(
            (each for each in found.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), found
        )
    taken = found.name
    if isinstance(made, ast.FunctionDef) and not any(isinstance(each, ast.Name) for each in made.decorator_list):
        arguments = ast.unparse(made.args)
        taken += f"({re.sub(r'^self(, )?', '', arguments)})"
    return f"### {name}\n\n```python\n{taken}\n```\n\n{markdown(ast.get_docstring(found))}\n"


_KINDS = ((Capacity.SPOT, 0), (Capacity.ON_DEMAND, 0), (Capacity.SPOT, 1))


def _provider(provider: str, capacity: Capacity, gpu: int) -> str:
    pool = Pool(
        "NAME", capacity, provider, machine="TYPE", node={"cpu": 1000, **({"nvidia.com/gpu": 1} if gpu else {})}
    )
    labels = "<br>".join(f"`{key}={value}`" for key, value in providers.labels(pool).items())
    taints = "<br>".join(f"`{taint}`" for taint in providers.taints(pool)) or "none"
    notice = format_duration(PROVIDERS[provider].notice).replace("m00s", "m") if pool.is_spot else ""
    return f"| {provider} | {capacity}{' with GPUs' if gpu else ''} | {labels} | {taints} | {notice} |\n"


def markdown(docstring: str | None) -> str:
    """A docstring as Markdown: roles and double backticks become code, a paragraph that ends with ``::`` opens a block."""
    text = inspect.cleandoc(docstring or "")
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text).replace("``", "`")
    return "\n\n".join(_blocks(text.split("\n\n")))


def _blocks(paragraphs: list[str]) -> Iterator[str]:
    """Consecutive indented paragraphs after ``::`` are one block of code."""
    code: list[str] = []
    opened = False
    for paragraph in [*paragraphs, ""]:
        if opened and paragraph.startswith("    "):
            code.append(paragraph)
            continue
        if code:
            yield "```python\n" + inspect.cleandoc("\n\n".join(code)) + "\n```"
            code = []
        opened = paragraph.endswith("::")
        if paragraph not in {"", "::"}:
            yield paragraph[:-1] if opened else paragraph
