"""What a rehearsal found, for people, for programs (JSON) and for a build server (JUnit)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from spotwright.model.attempts import Cause
from spotwright.rehearsal.playing import Rehearsal
from spotwright.rehearsal.points import At, Blow
from spotwright.rehearsal.trials import Trial
from spotwright.rehearsal.verdict import Outcome, Rehearsed, Verdict

__all__ = ["as_json", "as_junit", "as_text", "failures", "passes", "point_text"]

_NOISE_SHOWN = 5


def as_text(rehearsal: Rehearsal, *, points: bool = True) -> str:
    """The verdict of every step with its evidence; what to look at where it is not safe. ``points`` lists them."""
    return "\n\n".join("\n".join(_step_lines(rehearsal, step, points=points)) for step in rehearsal.steps)


def point_text(outcome: Outcome) -> str:
    """How one point went, as a line."""
    return f"  {_mark(outcome)} {outcome.point.name:<22} {_came(outcome)}"


def _step_lines(rehearsal: Rehearsal, step: Rehearsed, *, points: bool) -> Iterator[str]:
    yield f"{step.task}: {step.verdict}"
    if step.fails:
        yield f"  {step.fails}"
        for path, attempts in step.failed.executed.items() if step.failed is not None else ():
            if attempts[-1].cause != Cause.SUCCEEDED:
                yield f"  log: spotwright logs {step.failed.run.name} {path} --state {_shown(rehearsal.state)}"  # type: ignore[union-attr]
        return
    yield f"  undisturbed: {' and '.join(map(_seconds, step.usual))}; {_saves(step)}"
    yield from (f"  {line}" for line in _noise(step))
    if points:
        yield from map(point_text, step.outcomes)
    yield from (f"  {line}" for line in _cost(step))
    for outcome in step.outcomes:
        if outcome.problem:
            yield from (f"  {line}" for line in _where_to_look(rehearsal, step, outcome))
            break


def _saves(step: Rehearsed) -> str:
    longest = step.learnt.longest_save
    if not step.learnt.looked:
        return "its files could not be watched"
    if not step.learnt.traced:
        return f"{len(step.learnt.saves)} saves, seen from outside: it may not be traced here, and small ones are over too soon"
    if longest is None:
        return "it saved nothing"
    count = len(step.learnt.saves)
    return f"{count} save{'s' * (count != 1)}, the longest {_seconds(longest)}"


def _noise(step: Rehearsed) -> Iterator[str]:
    if step.noise:
        places = [each.place for each in step.noise]
        more = f" and {len(places) - _NOISE_SHOWN} more" if len(places) > _NOISE_SHOWN else ""
        yield f"differs without any interruption, so it is not compared: {', '.join(places[:_NOISE_SHOWN])}{more}"


def _mark(outcome: Outcome) -> str:
    return "-" if not outcome.met and not outcome.problem else "x" if outcome.problem else "."


def _came(outcome: Outcome) -> str:
    """How a point went, in one line."""
    if outcome.trial is None:
        return "not tried any more"
    if not outcome.met and not outcome.problem:
        return "it was done before the interruption came"
    hits = (
        ", ".join(_hit(outcome.trial))
        if len(outcome.trial.landed) < 3
        else f"{len(outcome.trial.landed)} interruptions"
    )
    if outcome.problem:
        return f"{hits}: {outcome.problem}"
    cost = (
        f", {_seconds(outcome.loss.seconds)} lost" if outcome.loss is not None else ", it was done before its node went"
    )
    return f"{hits}: the same outputs{cost}"


def _hit(trial: Trial) -> Iterator[str]:
    for landed in trial.landed:
        what = "notice" if landed.blow.notice else "killed"
        where = "in the save after the notice" if landed.in_save else _where(landed.blow)
        yield f"{what} at {_seconds(landed.age)}{f', {where}' if where else ''}"


def _where(blow: Blow) -> str:
    return blow.where if isinstance(blow.when, At) else ""


def _cost(step: Rehearsed) -> Iterator[str]:
    if not step.interruptions and all(not outcome.problem for outcome in step.outcomes):
        yield "it was done before any interruption came: there is nothing that could be said"
    if step.cost is not None:
        usual = min(step.usual)
        share = f" ({step.cost / usual:.0%} of the step)" if usual else ""
        yield f"one interruption costs {_seconds(step.cost)}{share} on average"
    if step.again is not None:
        yield f"of the interrupted work {step.again:.0%} was done again, by {step.by}"
    if step.verdict is Verdict.STARTS_OVER and step.learnt.saves:
        yield "it saves, and begins at the beginning all the same: look at what it does with a save when it starts"
    longest = step.learnt.longest_save
    if longest is not None and step.notices:
        yield f"the longest save of {_seconds(longest)}: {'; '.join(_fits(longest, *pool) for pool in step.notices)}"


def _fits(longest: float, pool: str, notice: float) -> str:
    if notice <= 0:
        return f"{pool} gives no notice, only what was saved before counts"
    return f"{'fits' if longest < notice else 'does not fit'} the {_seconds(notice)} of notice of {pool}"


def _where_to_look(rehearsal: Rehearsal, step: Rehearsed, outcome: Outcome) -> Iterator[str]:
    if outcome.trial is None:
        return
    yield f"log: spotwright logs {outcome.trial.run.name} {step.task} --state {_shown(rehearsal.state)}"
    for name, path in zip(("undisturbed", "interrupted"), outcome.outputs, strict=False):
        yield f"{name}: {_shown(path)}"


def _shown(path: Path) -> str:
    """A path as short as it can be typed here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _seconds(value: float) -> str:
    if value >= 120:
        return f"{value / 60:.0f}min"
    if value >= 10:
        return f"{value:.0f}s"
    return f"{value:.2g}s" if value >= 0.1 else f"{value * 1000:.0f}ms"


# For programs


def as_json(rehearsal: Rehearsal) -> dict[str, Any]:
    """``name``, ``seed``, ``safe``, ``state`` (the state folder with the runs of all points) and ``steps``. Times are seconds.

    A step: ``task``; ``verdict``; ``fails_undisturbed``, why there is nothing to rehearse; ``undisturbed_seconds`` of both
    executions; ``saves`` and the ``longest_save``; the ``notice`` that points with notice had; ``not_compared``, what differs
    without any interruption; ``interruptions``, how many there were; ``cost_per_interruption``, the mean time beyond the
    undisturbed one; ``done_again``, the share of the interrupted work that was done again (0: none, 1: it started over),
    ``measured_by`` the step's own progress, its saves, or time; and ``points``.

    A point: ``name``, ``kind`` (``start``, ``middle``, ``save``, ``outputs``, ``end``, ``several``); ``interrupted``, false
    where the step was done before; ``problem``, what the interruption broke, with all ``differences``; ``run``, its run in the
    state folder; ``lost_seconds``; ``interruptions``, each with its ``attempt``, the ``age`` at which it came, whether with
    ``notice``, whether the node went ``in_save`` after the notice, and ``where``; ``attempts``, each with ``number``,
    ``cause``, ``why`` and ``seconds``.
    """
    return {
        "name": rehearsal.name,
        "seed": rehearsal.conditions.seed,
        "safe": rehearsal.is_safe,
        "state": str(rehearsal.state),
        "steps": [_step_json(step) for step in rehearsal.steps],
    }


def _step_json(step: Rehearsed) -> dict[str, Any]:
    return {
        "task": step.task,
        "verdict": step.verdict.value,
        "fails_undisturbed": step.fails or None,
        "undisturbed_seconds": list(step.usual),
        "saves": len(step.learnt.saves),
        "longest_save": step.learnt.longest_save,
        "notice": step.notice,
        "not_compared": [str(each) for each in step.noise],
        "interruptions": step.interruptions,
        "cost_per_interruption": step.cost,
        "done_again": step.again,
        "measured_by": step.by.value if step.by is not None else None,
        "points": [_point_json(outcome) for outcome in step.outcomes],
    }


def _point_json(outcome: Outcome) -> dict[str, Any]:
    trial = outcome.trial
    return {
        "name": outcome.point.name,
        "kind": outcome.point.kind.value,
        "interrupted": outcome.met,
        "problem": outcome.problem or None,
        "differences": [str(each) for each in outcome.differences],
        "run": trial.run.name if trial is not None else None,
        "interruptions": [
            {"attempt": landed.attempt, "age": landed.age, "notice": landed.blow.notice, "in_save": landed.in_save,
             "where": landed.blow.where}
            for landed in (trial.landed if trial is not None else ())
        ],
        "attempts": [
            {"number": each.number, "cause": each.cause, "why": each.why, "seconds": each.seconds}
            for each in (trial.attempts if trial is not None else ())
        ],
        "lost_seconds": outcome.loss.seconds if outcome.loss is not None else None,
    }  # fmt: skip


def as_junit(rehearsal: Rehearsal, *, must_resume: bool) -> str:
    """JUnit's XML: a suite for every step, a case for every point and one for the verdict."""
    root = ET.Element("testsuites", name=f"spotwright rehearse {rehearsal.name}")
    for step in rehearsal.steps:
        _suite(root, step, must_resume=must_resume)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ET.Element, step: Rehearsed, *, must_resume: bool) -> None:
    suite = ET.SubElement(root, "testsuite", name=step.task)
    for outcome in step.outcomes:
        time = outcome.trial.seconds if outcome.trial is not None else 0.0
        case = ET.SubElement(suite, "testcase", classname=step.task, name=outcome.point.name, time=f"{time:.3f}")
        if outcome.problem:
            ET.SubElement(case, "failure", message=outcome.problem).text = "\n".join(map(str, outcome.differences))
        elif not outcome.met:
            ET.SubElement(case, "skipped", message=_came(outcome))
    case = ET.SubElement(suite, "testcase", classname=step.task, name="verdict", time="0.000")
    if not passes(step, must_resume=must_resume):
        ET.SubElement(case, "failure", message=f"{step.verdict}{f': {step.fails}' if step.fails else ''}")
    for attribute, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("errors", "0")


def passes(step: Rehearsed, *, must_resume: bool) -> bool:
    """Whether a step's verdict is good enough."""
    return step.verdict is Verdict.RESUMES or (step.verdict.is_safe and not must_resume)


def failures(steps: Sequence[Rehearsed], *, must_resume: bool) -> list[Rehearsed]:
    """The steps whose verdict is not good enough."""
    return [step for step in steps if not passes(step, must_resume=must_resume)]
