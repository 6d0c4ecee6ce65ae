"""Runs as text: one run in full, a list of runs, and the summary at the end of a run.

It is made from :func:`~spotwright.views.run_json.run_view`, so text and JSON agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any

from spotwright.engine.events import ON_KFP
from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause
from spotwright.views.account import account
from spotwright.views.account_report import cost_heading, money_lines
from spotwright.views.run_deadline import missed_text, missed_words
from spotwright.views.run_json import run_view
from spotwright.views.run_rows import (
    LONGEST_VALUE,
    attempt_rows,
    cost_of,
    in_pipeline_order,
    number_of,
    output_rows,
    run_title,
)
from spotwright.views.text import (
    Rows,
    after_cause,
    ended,
    fitted,
    last_words,
    plural,
    shorten,
    span,
    table,
    time_of_day,
    value_text,
    wrapped,
)

__all__ = ["end_sentence", "following", "go_on", "left_out_lines", "runs_text", "show_text", "summary_text"]


def show_text(view: Mapping[str, Any]) -> str:
    """A run in full: tasks and attempts, the reason for each end and the command for its log, waiting tasks, outputs."""
    from spotwright.views.run_rows import artifact_lines  # here: the summary of a run has none

    tasks = [*in_pipeline_order(view["tasks"]), *view["left_behind"]]
    has_deadline = any(task["needs"] is not None for task in tasks)
    parts = [
        [*fitted(run_title(view), hang="  "), *_head(view)],
        table(attempt_rows(view)),
        _titled("Trials, with their parameters and metrics", _trials(view, tasks)),
        _titled("Python environments", _environments(tasks)),
        _titled(
            "What the deadline decided" if has_deadline else "Why attempts went where they did",
            (line for task in tasks for line in _placed(view, task)),
        ),
        _titled("Why attempts ended, and what followed", (line for task in tasks for line in _ends(view, task))),
        _titled("Why tasks have failed", (line for task in tasks for line in _failure(view, task, briefly=True))),
        _titled("What waits", _waits(view, tasks)),
        left_out_lines(view["left_out"]) if view["status"] == "running" else [],
        _titled("Outputs", _output_lines(view)),
        _titled("Artifacts", artifact_lines(view)),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def summary_text(
    state: RunState, name: str, now: float | None = None, *, outputs: Mapping[str, Any] | None = None
) -> str:
    """The summary after a run: its outputs, a line per attempt, money spent, wasted and saved.

    ``outputs``: the run's outputs if its record has none, in the shape of the JSON view.
    """
    view = run_view(state, name, now)
    if outputs is not None:
        view["outputs"] = outputs
    tasks = [*view["tasks"], *view["left_behind"]]
    parts = [
        _titled("Outputs", _output_lines(view)),
        table(attempt_rows(view, by_start=True)),
        money_lines(account(state, now)),
        _titled("Why tasks have failed", (line for task in tasks for line in _failure(view, task, briefly=False))),
        [*fitted(run_title(view), hang="  "), *_deadline(view)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def runs_text(summaries: Sequence[Mapping[str, Any]], where: str = "") -> str:
    """A line per run, in the given order; without runs ``where`` says which folder was read."""
    if not summaries:
        return f"no runs yet: {where}" if where else "no runs yet"
    headers = [
        "Run",
        "Status",
        "Started",
        "Took",
        "Tasks",
        "Attempts",
        "Interruptions",
        cost_heading(item["prices"] for item in summaries),
    ]
    rows = [
        [
            item["run"], _status(item), _moment(item["started_at"]), span(item["seconds"]),
            f"{item['tasks'].get('succeeded', 0)}/{item['tasks']['all']}", str(item["attempts"]),
            str(item["interruptions"]), cost_of(item["cost"], _most(summaries, item), item["currency"]),
        ]
        for item in summaries
    ]  # fmt: skip
    lines = table(Rows(headers, rows, "lllrrrrr", ("Attempts", "Started", "Took", "Tasks")))
    if any(item["cost"]["money"] is None for item in summaries):
        lines += ["", "nh: node-hours, where a pool has no price"]
    return "\n".join(lines)


def _status(item: Mapping[str, Any]) -> str:
    late = missed_words(item["deadline"])
    return f"{item['status']}, {late}" if late else str(item["status"])


def _most(summaries: Sequence[Mapping[str, Any]], item: Mapping[str, Any]) -> Fraction:
    """The cost of the most expensive run in the unit of this one."""
    unit = item["currency"], item["cost"]["money"] is None
    alike = (other for other in summaries if (other["currency"], other["cost"]["money"] is None) == unit)
    return max(number_of(other["cost"]) for other in alike)


def _titled(title: str, lines: Iterable[str]) -> list[str]:
    listed = list(lines)
    return [title, *listed] if listed else []


def _head(view: Mapping[str, Any]) -> Iterator[str]:
    started = _moment(view["started_at"], precisely=True)
    if not view["orchestrator"]:
        started += f", seed {view['seed']}"
    if view["engines"] > 1 and not view["orchestrator"]:  # there each engine only watches and does not resume
        started += f", resumed {plural(view['engines'] - 1, 'time')}"
    rows = [("pipeline", view["pipeline"]), ("started", started)]
    rows += [
        ("argument", f"{key} = {shorten(value_text(value), LONGEST_VALUE)}") for key, value in view["arguments"].items()
    ]
    if view["time_scale"] != 1:
        rows.append(("time", f"waits pass {view['time_scale']:g} times faster; seconds are real"))
    rows += [("note", text) for text in view["notes"]]
    rows += [("deadline", text) for text in [missed_text(view["deadline"])] if text]
    rows += go_on(view)
    for word, text in rows:
        yield from wrapped(text, indent=f"  {word:<9} ", hang=" " * 12)


def _deadline(view: Mapping[str, Any]) -> Iterator[str]:
    text = missed_text(view["deadline"])
    return wrapped(f"  Deadline {text}", hang="    ") if text else iter(())


def go_on(view: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A word and the command that continues a run or follows it again; empty if neither applies.

    Reads ``run``, ``status``, ``driven`` and ``orchestrator`` of the JSON view.
    """
    is_left = view["status"] == "running" and not view["driven"]
    command = f"spotwright resume {view['run']}"
    if (is_left or view["status"] in ("stopped", "failed")) and not view["orchestrator"]:
        return [("go on", command)]
    return [("follow", command)] if is_left and view["orchestrator"] == ON_KFP else []


def _moment(at: float, *, precisely: bool = False) -> str:
    """A moment in local time, to the minute, or to the second with the zone."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z" if precisely else "%Y-%m-%d %H:%M")


def _trials(view: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The trials of a Katib experiment, each with its parameters, and its metrics once Katib has collected them."""
    if view["orchestrator"] in ("", ON_KFP):  # of other watched runs, only trials have parameters
        return
    for task in tasks:
        known = ", ".join(f"{name}={value_text(value)}" for name, value in task["outputs"]["parameters"].items())
        if known:
            yield from wrapped(f"{task['path']}  {known}", indent="  ", hang="    ")


def _environments(tasks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The builds of Python environments, each once with the tasks that waited for it."""
    builds: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for task in tasks:
        if task["environment"] is not None:
            builds.setdefault(tuple(task["environment"]["packages"]), []).append(task)
    for packages, together in builds.items():
        longest = max((task["environment"] for task in together), key=lambda environment: float(environment["seconds"]))
        how = {"building": "being built for", "failed": "could not be built, after"}.get(longest["status"], "built in")
        more = f" and {len(together) - 1} more" if len(together) > 1 else ""
        what = f"{', '.join(packages)}: {how} {span(longest['seconds'])}, on no node"
        yield from wrapped(f"{together[0]['path']}{more}  {what}", indent="  ", hang="    ")
        yield from fitted(f"    log   {together[0]['environment']['log']}", hang=" " * 10)


def _placed(view: Mapping[str, Any], task: Mapping[str, Any]) -> Iterator[str]:
    """The decisions of a deadline or a webhook about each attempt: where it went or waited, what followed, why it stayed or left.

    The last line has the figures behind the task's deadline.
    """
    for attempt in task["attempts"]:
        last = _left(view, attempt) if attempt["moved_why"] else attempt["kept_why"]
        reasons = (attempt["placed_why"], *attempt["tried"], last)
        if attempt["placed_why"]:
            for number, why in enumerate(filter(None, reasons)):
                name = f"{task['path']} attempt {attempt['number']}" if number == 0 else "  then "
                yield from wrapped(f"{name}  {why}", indent="  ", hang="    ")
    if task["needs"] is not None and any(attempt["placed_why"] for attempt in task["attempts"]):
        yield from wrapped(f"{task['path']} reckons with  {task['needs']['text']}", indent="  ", hang="    ")


def _left(view: Mapping[str, Any], attempt: Mapping[str, Any]) -> str:
    """Why an attempt was moved: ``left on-demand for spot-b at +14h00m: 9h06m of slack, expected to save 6.20 USD``."""
    where, _, numbers = attempt["moved_why"].removeprefix("to ").partition(": ")
    target, _, manner = where.partition(", ")
    at = span(attempt["moved_at"] - view["started_at"])
    return f"left {attempt['pool']} for {target} at +{at}{', ' if manner else ''}{manner}: {numbers}"


def _ends(view: Mapping[str, Any], task: Mapping[str, Any]) -> Iterator[str]:
    """The ends of a task's attempts that did not succeed."""
    for attempt in task["attempts"]:
        if attempt["cause"] is not None and attempt["cause"] != Cause.SUCCEEDED:
            yield from _end(view, task, attempt)


def _end(view: Mapping[str, Any], task: Mapping[str, Any], attempt: Mapping[str, Any]) -> Iterator[str]:
    """The cause of an attempt's end, the decision after it, and the command that prints its log."""
    yield from wrapped(end_sentence(task["path"], attempt), indent="  ", hang="    ")
    if Cause(attempt["cause"]).is_error and attempt["last_line"]:
        yield from fitted(f"    said  {last_words(attempt['last_line'], LONGEST_VALUE)}", hang=" " * 10)
    if attempt["released"]:
        yield from wrapped(f"its pod was deleted: {attempt['released']}", indent="    then  ", hang=" " * 10)
    if attempt["next"]:
        yield from wrapped(following(view, task, attempt), indent="    then  ", hang=" " * 10)
    if attempt["log"]:
        yield from fitted(f"    log   {attempt['log']}", hang=" " * 10)


def end_sentence(path: str, attempt: Mapping[str, Any]) -> str:
    """How an attempt of the JSON view with a cause ended: ``train attempt 1 on spot-1 was interrupted: its node is gone``."""
    where = f" on {attempt['node']}" if attempt["node"] else ""
    how = ended(Cause(attempt["cause"]), attempt["why"], attempt["progress"])
    return f"{path} attempt {attempt['number']}{where} {how}{_when(attempt)}"


def _when(attempt: Mapping[str, Any]) -> str:
    """The bounds of an unreported end of an attempt, with the proof of the first; else empty."""
    if attempt["ended_by"] is None:
        return ""
    began = attempt["bound_at"] if attempt["runs_since"] is None else attempt["runs_since"]
    began = attempt["placed_at"] if began is None else began
    earliest, latest = (span(attempt[key] - began) for key in ("ended_at", "ended_by"))
    return f"; it ended {earliest} to {latest} after its start: the last proof of its life is {attempt['last_proof']}"


def following(view: Mapping[str, Any], task: Mapping[str, Any], attempt: Mapping[str, Any]) -> str:
    """The decision after an attempt. One that was stopped with its run is repeated at the resume.

    Reads ``run`` and ``orchestrator`` of the JSON view, and the ``number`` of each of the task's ``attempts``.
    """
    cause = Cause(attempt["cause"])
    if cause is not Cause.CANCELLED or view["orchestrator"]:
        return after_cause(cause, attempt["next"])
    later = next((other["number"] for other in task["attempts"] if other["number"] > attempt["number"]), None)
    if later is not None:
        return f"attempt {later}, when the run was resumed"
    return f"again when the run is resumed: spotwright resume {view['run']}"


def _failure(view: Mapping[str, Any], task: Mapping[str, Any], *, briefly: bool) -> Iterator[str]:
    """Why a task has failed. ``briefly`` omits a reason that its attempts' ends give.

    Empty for a pipeline or loop that failed because of a task inside it: that task has the reason.
    """
    last = task["attempts"][-1] if task["attempts"] else None
    if task["status"] != "failed" or not task["why"] or task["why"].startswith(f"{task['path']}/"):
        return
    if last is None or last["next"] != task["why"]:
        yield from wrapped(f"{task['path']}: {task['why']}", indent="  ", hang="    ")
        yield from _end_of_build(task["environment"])
    elif not briefly:
        yield from _end(view, task, last)


def _end_of_build(environment: Mapping[str, Any] | None) -> Iterator[str]:
    """The end of a failed build's log, and the command that prints the whole log."""
    if environment is not None and environment["status"] == "failed":
        for line in environment["last_lines"]:
            yield from fitted(f"    said  {shorten(line.strip(), LONGEST_VALUE)}", hang=" " * 10)
        yield from fitted(f"    log   {environment['log']}", hang=" " * 10)


def _waits(view: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for task in tasks:
        waiting = task["waits_for"]
        if waiting is not None and (waiting["kind"] != "nothing" or view["status"] == "running"):
            until = waiting["until"]
            moment = f", until +{span(until - view['started_at'])}" if until is not None else ""
            yield from wrapped(f"{task['path']} {waiting['text']}{moment}", indent="  ", hang="    ")


def left_out_lines(left_out: Sequence[Mapping[str, Any]]) -> list[str]:
    """The pools that new attempts avoid, with a title; empty without such pools."""
    named = [item for item in left_out if item["pool"]]  # others have no name here
    return _titled("Pools left out, because attempts waited in vain for a node", map(_left_out, named))


def _left_out(item: Mapping[str, Any]) -> str:
    count = f", {plural(item['times'], 'time')} in a row" if item["times"] > 1 else ""
    where = f" in namespace {item['namespace']}" if item.get("namespace") else ""
    return f"  {item['pool']}{where} until {time_of_day(item['until'])}{count}"


def _output_lines(view: Mapping[str, Any]) -> Iterator[str]:
    outputs = output_rows(view)
    width = max((len(name) for name, _ in outputs), default=0)
    for name, value in outputs:
        yield from fitted(f"  {name:<{width}}  {value}", hang=" " * 4)
