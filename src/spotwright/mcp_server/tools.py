"""The table of tools: name, description, parameters, and the command that answers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import anyio.to_thread

from spotwright.errors import InputError, UnknownRun
from spotwright.mcp_server.bounds import MOST_BYTES, Project, run_command
from spotwright.page.log_lines import RunLogs
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder
from spotwright.runs.bodies import is_alive

__all__ = ["MOST_LINES", "TOOLS", "Tool"]

MOST_LINES, _LINES = 500, 100
"""Most lines of a log in one answer, and the default."""

_MOST_RUNS, _RUNS = 200, 20
_MOST_FILES = 50
_LONGEST_NAME = 1_000  # characters of a name that a client gives
_MOST_LOG_SECONDS = 30.0

Arguments = Mapping[str, Any]
_OK = frozenset({0})
_OK_OR_FINDINGS = frozenset({0, 1})


class Tool(NamedTuple):
    """A tool. ``properties`` and ``required`` are its JSON schema's; ``writes``: only a server with ``--write`` has it."""

    name: str
    does: str
    properties: Mapping[str, Mapping[str, Any]]
    required: Sequence[str]
    answer: Callable[[Project, Arguments], Awaitable[Any]]
    writes: bool = False

    def schema(self) -> dict[str, Any]:
        """Its parameters, as a JSON schema."""
        properties = {name: dict(facts) for name, facts in self.properties.items()}
        return {
            "type": "object",
            "properties": properties,
            "required": list(self.required),
            "additionalProperties": False,
        }


# -- runs


async def _runs(project: Project, asked: Arguments) -> Any:
    printed = await run_command(["runs", "--json", *_state(project)], project.folder, _OK)
    found = json.loads(printed.output)
    return {"runs": found[-asked.get("most", _RUNS) :], "of": len(found), "notes": printed.notes}


async def _run(project: Project, asked: Arguments) -> Any:
    words = ["show", "--json", *_state(project), "--", asked["run"]]
    document = json.loads((await run_command(words, project.folder, _OK)).output)
    task, number = asked.get("task"), asked.get("attempt")
    if task is None and number is None:
        return document
    tasks = [each for each in (*document["tasks"], *document["left_behind"]) if task is None or _is_called(each, task)]
    if not tasks:
        names = ", ".join(each["path"] for each in document["tasks"][:20])
        raise UnknownRun(f"run {document['run']} has no task {task!r}: it has {names or 'none'}")
    if number is not None:
        tasks = [{**each, "attempts": _numbered(each, number)} for each in tasks if _numbered(each, number)]
        if not tasks:
            raise UnknownRun(f"run {document['run']}: {task or 'every task'} has no attempt {number}")
    return {**document, "tasks": tasks, "left_behind": [], "nodes": _nodes_of(document, tasks)}


def _is_called(task: Mapping[str, Any], name: str) -> bool:
    """Whether a task has this path, or this name at any depth."""
    return name in (task["path"], task["written"]) or task["path"].rpartition("/")[2] == name


def _numbered(task: Mapping[str, Any], number: int) -> list[Any]:
    return [each for each in task["attempts"] if each["number"] == number]


def _nodes_of(document: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> list[Any]:
    names = {attempt["node"] for task in tasks for attempt in task["attempts"]}
    return [node for node in document["nodes"] if node["name"] in names]


async def _logs(project: Project, asked: Arguments) -> Any:
    with anyio.move_on_after(_MOST_LOG_SECONDS):
        return await anyio.to_thread.run_sync(_log_page, project, asked, abandon_on_cancel=True)
    raise InputError(f"reading this log took more than {_MOST_LOG_SECONDS:.0f} seconds")


def _log_page(project: Project, asked: Arguments) -> Any:
    """The lines of a log as on the page, without styles."""
    folder = StateFolder.existing(project.state).find(asked["run"])
    most = asked.get("lines", _LINES)
    first = asked.get("from_line", -most)
    page = RunLogs(RunReader(folder, is_alive)).page(asked["task"], asked.get("attempt"), first, most)
    lines: list[dict[str, Any]] = []
    size = 0
    for line in page["lines"]:
        text = "".join(part for part, _ in line["parts"])
        size += len(text.encode("utf-8", "replace")) + 40
        if size > MOST_BYTES // 2:
            page["left_out"] = f"only {len(lines)} lines fit into one answer: continue with from_line {line['n']}"
            break
        lines.append({"n": line["n"], "text": text, "cut": line["cut"]})
    return {"run": folder.name, **page, "lines": lines}


def _state(project: Project) -> list[str]:
    return ["--state", str(project.state)]


async def _cancel(project: Project, asked: Arguments) -> Any:
    words = ["cancel", "--json", *_state(project), "--", asked["run"]]
    document = json.loads((await run_command(words, project.folder, _OK)).output)
    return {name: document[name] for name in ("run", "pipeline", "status", "why")}


# -- files


def _files(project: Project, asked: Arguments, *, runs_python: bool) -> list[str]:
    """The options and names with which a command reads the files. Raises :class:`InputError` for a forbidden one."""
    paths = [project.file(name) for name in asked["files"]]
    python = next((path for path in paths if path.suffix == ".py"), None)
    if runs_python and python is not None and not project.writes:
        raise InputError(
            f"{python.name}: reading a Python pipeline runs its code: name a compiled pipeline, or start spotwright mcp --write"
        )
    return [*project.config(paths[0]), "--", *(str(path.relative_to(project.folder)) for path in paths)]


async def _lint(project: Project, asked: Arguments) -> Any:
    words = ["lint", "--format", "json", *_files(project, asked, runs_python=False)]
    return json.loads((await run_command(words, project.folder, _OK_OR_FINDINGS)).output)


async def _explain(project: Project, asked: Arguments) -> Any:
    words = ["explain", "--json", *_files(project, asked, runs_python=True)]
    return json.loads((await run_command(words, project.folder, _OK)).output)


async def _plan(project: Project, asked: Arguments) -> Any:
    options = [f"--deadline={asked['deadline']}"] if "deadline" in asked else []
    options += [f"--markets={asked['markets']}"] if "markets" in asked else []
    options += _state(project)
    named = _files(project, {"files": [asked["file"]]}, runs_python=True)
    return json.loads((await run_command(["plan", "--json", *options, *named], project.folder, _OK)).output)


async def _place(project: Project, asked: Arguments) -> Any:
    words = ["place", "--diff", *_files(project, asked, runs_python=True)]
    printed = await run_command(words, project.folder, _OK_OR_FINDINGS)
    return {"diff": printed.output, "findings": printed.notes}


async def _place_in_files(project: Project, asked: Arguments) -> Any:
    words = ["place", "--in-place", *_files(project, asked, runs_python=True)]
    return {"findings": (await run_command(words, project.folder, _OK)).notes}


# -- the table


def _text(what: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": _LONGEST_NAME, "description": what}


def _number(what: str, least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, "description": what}


_RUN = _text("A run's name, the beginning of one, or 'last' for the newest.")
_FILES = {
    "type": "array",
    "items": _text("A path in the project folder."),
    "minItems": 1,
    "maxItems": _MOST_FILES,
    "description": "Files of the project.",
}
_ATTEMPT = _number("The attempt, from 1.", 1, 1_000_000)

TOOLS: Sequence[Tool] = (
    Tool(
        "runs",
        "List the newest runs: status, counts of attempts and interruptions, cost.",
        {"most": _number("How many.", 1, _MOST_RUNS)},
        (),
        _runs,
    ),
    Tool(
        "run",
        "Show a run, one task or one attempt: where each attempt ran, its cause and why it ended, and what followed.",
        {"run": _RUN, "task": _text("A task's path or name."), "attempt": _ATTEMPT},
        ("run",),
        _run,
    ),
    Tool(
        "logs",
        "Read lines of a task's log, by default the last 100, of all attempts or of one.",
        {
            "run": _RUN,
            "task": _text("A task's path or name."),
            "attempt": _ATTEMPT,
            "lines": _number("How many lines.", 1, MOST_LINES),
            "from_line": _number("The first line, from 0.", 0, 10**12),
        },
        ("run", "task"),
        _logs,
    ),
    Tool(
        "lint",
        "Find what is unsafe on spot in manifests and pipelines.",
        {"files": _FILES},
        ("files",),
        _lint,
    ),
    Tool(
        "explain",
        "Explain where each role of a manifest may run, and why.",
        {"files": _FILES},
        ("files",),
        _explain,
    ),
    Tool(
        "plan",
        "Forecast what a run of a pipeline will cost and when it will end.",
        {
            "file": _text("The pipeline's file in the project folder."),
            "deadline": _text("Time by which everything must be done: a duration such as 8h, or a time with its zone."),
            "markets": _number("How many simulated markets.", 1, 1_000),
        },
        ("file",),
        _plan,
    ),
    Tool(
        "place",
        "Show as a diff what place would add to manifests, and its findings. It does not write.",
        {"files": _FILES},
        ("files",),
        _place,
    ),
    Tool(
        "place_in_files",
        "Write into manifests what place adds; spotwright unplace removes it.",
        {"files": _FILES},
        ("files",),
        _place_in_files,
        writes=True,
    ),
    Tool("cancel", "Cancel a run.", {"run": _RUN}, ("run",), _cancel, writes=True),
)
