"""The text and JSON of ``explain``: per role the pools, the source of each policy value, and the effect of an interruption.

With ``--cluster``: why a pod is where it is, or waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spotwright.config import Config
from spotwright.manifests.files import PlacedFile
from spotwright.manifests.objects import policy_values
from spotwright.model.not_judged import not_judged_json, not_judged_lines
from spotwright.model.policy import BUILT_IN
from spotwright.placing.context import MOST_RETRIES, RoleReport
from spotwright.placing.enforcement import NOT_NEEDED, Enforcer
from spotwright.placing.retries import EXPANDER, expander_lines
from spotwright.views.text import Rows, fitted, hanging_table, span, terminal_width, time_of_day

__all__ = ["explanation_json", "explanation_text", "object_text"]


def explanation_json(placements: Mapping[str, PlacedFile], config: Config) -> dict[str, Any]:
    """``{"config", "files": {NAME: {"roles", "findings"}}, "not_judged"}``: what ``explain`` says of each file.

    A role has its ``name``, its ``path`` in policies and its ``line``, its ``pools`` in order (``name``, ``capacity``, and
    ``maybe``: why it is not known whether it fits there, or null), the reasons against the other pools (``refused``),
    ``after_interruption``, ``torchrun`` (the variable with which that starts), ``frozen`` (what cannot be changed on a live
    object), ``queue`` (what Kueue decides) and ``notes``. ``policy`` has for each field its ``value``, its ``source``,
    ``enforced_by`` (``object``, ``kind`` or ``nothing``), the ``field`` of the object that keeps it (empty if none does), and
    ``enforcement``, the same for people.

    A finding has its ``level`` (``warning`` or ``note``), ``file``, ``line``, ``path`` in the document, and ``text``. ``line`` is
    null for a pipeline in Python: its compiled text, whose lines they would be, is not kept.
    """
    return {
        "config": config.path,
        "files": {
            name: {
                "roles": [_role_facts(role, config, lines=placement.has_lines) for role in placement.roles],
                "findings": [
                    {
                        "level": f.level.value,
                        "file": f.file,
                        "line": f.line if placement.has_lines else None,
                        "path": list(f.path),
                        "text": f.text,
                    }
                    for f in placement.findings
                ],
            }
            for name, placement in placements.items()
        },
        "not_judged": not_judged_json(one for placement in placements.values() for one in placement.not_judged),
    }


def explanation_text(placements: Mapping[str, PlacedFile], config: Config) -> str:
    """The explanation for people. The placements are made with ``only_explain``, as those for :func:`explanation_json` are."""
    lines = [f"pools and policy: {config.path}"]
    lines += [f"note: {note}" for note in config.notes]
    for name, placement in placements.items():
        if not placement.roles:
            lines += ["", f"{name}: has no pods to place"]
        for alike in _alike(placement.roles, config):
            lines.append("")
            for role in alike:
                place = f"{name}:{role.line}" if placement.has_lines else name
                lines.append(f"{place}: {role.policy_path} ({role.name})")
            lines += _role_lines(alike[0], config)
        for finding in placement.findings:
            file = "" if finding.file == name else f"{finding.file}: "
            line = f"line {finding.line}: " if placement.has_lines else ""
            lines += fitted(f"  {finding.level}: {file}{line}{finding.text}", hang="    ")
    if any(EXPANDER in finding.text for placement in placements.values() for finding in placement.findings):
        lines += ["", "for the cluster autoscaler:", *(f"  {line}" for line in expander_lines(config.pools))]
    found = [one for placement in placements.values() for one in placement.not_judged]
    if found:
        lines += ["", *(line for each in not_judged_lines(found) for line in fitted(each, hang="  "))]
    roles = (role for placement in placements.values() for role in placement.roles)
    for note in dict.fromkeys(note for role in roles for note in role.notes):
        lines += ["", note]
    return "\n".join(lines)


def _alike(roles: Iterable[RoleReport], config: Config) -> Iterator[list[RoleReport]]:
    """The roles in order; roles with equal explanations are grouped at the first one's place."""
    groups: dict[tuple[str, ...], list[RoleReport]] = {}
    for role in roles:
        groups.setdefault(tuple(_role_lines(role, config)), []).append(role)
    yield from groups.values()


def _role_facts(role: RoleReport, config: Config, *, lines: bool) -> dict[str, Any]:
    return {
        "name": role.name,
        "path": role.policy_path,
        "line": role.line if lines else None,
        "pools": [
            {"name": name, "capacity": config.pools[name].capacity.value, "maybe": role.maybe.get(name)}
            for name in role.pools
        ],
        "refused": dict(role.refusals),
        "policy": {
            field: {"value": value, "source": source, **_enforcer(role, field)}
            for field, value, source in policy_values(role.policy)
        },
        "after_interruption": role.after_interruption,
        "torchrun": role.torchrun,
        "frozen": role.frozen,
        "queue": role.queue,
        "notes": list(role.notes),
    }


def _role_lines(role: RoleReport, config: Config) -> Iterator[str]:
    if role.policy.spot is None:
        yield "  left alone: no policy mentions spot here"
        if role.pools or role.refusals:
            yield f"  pools that take it as it is: {_named(role, config) or 'none'}"
            yield from _refused(role)
        return
    yield from fitted(f"  pools, in order: {_named(role, config)}", hang="    ")
    yield from _refused(role)
    if role.on_demand_reason:
        yield f"  kept on on-demand: {role.on_demand_reason}"
    yield from hanging_table(_fit(list(_policy_rows(role))), indent="  ")
    if role.queue:
        yield from fitted(f"  in the queue {role.queue}", hang="    ")
    if role.after_interruption:
        yield from fitted(f"  after an interruption: {role.after_interruption}", hang="    ")
    if role.torchrun:
        yield from fitted(f"  for torchrun: {role.torchrun}", hang="    ")
    if role.frozen:
        yield from fitted(f"  on a live object: {role.frozen}", hang="    ")


_HEADERS = ("policy", "value", "from", "enforced by")
_WAITS = ("interruptions", "errors")
_ITS_ROLE = "its role"  # the reason has its own line


def _policy_rows(role: RoleReport) -> Iterator[tuple[str, str, str, str]]:
    """The rows of the table, without unneeded fields; a built-in growth of waits is shown beside the first wait."""
    values = {field: (value, source) for field, value, source in policy_values(role.policy)}
    for field, (value, source) in values.items():
        kind, _, part = field.rpartition(".")
        folds = kind in _WAITS and _folds(role, kind, values)
        if role.enforcement[field].text == NOT_NEEDED or (folds and part in ("factor", "max_backoff")):
            continue
        if field == "errors.backoff" and folds and not role.policy.retries and source == BUILT_IN.source:
            continue
        growth = f", x{values[f'{kind}.factor'][0]}, max {values[f'{kind}.max_backoff'][0]}" if folds else ""
        shown = f"{value}{growth}" if part == "backoff" else "no bound" if value == str(MOST_RETRIES) else value
        yield field, shown, _ITS_ROLE if source == role.on_demand_reason else source, role.enforcement[field].text


def _fit(rows: list[tuple[str, str, str, str]]) -> Rows:
    """The table; on a narrow terminal the sources are behind the enforcers instead of in a column."""
    width = terminal_width()
    if width is None or width >= _WIDE:
        return Rows(_HEADERS, rows, "llll")
    shorter = [(field, value, f"{enforcer} ({source})") for field, value, source, enforcer in rows]
    return Rows(("policy", "value", "enforced by (from)"), shorter, "lll")


_WIDE = 100  # columns of a terminal on which four columns fit


def _folds(role: RoleReport, kind: str, values: Mapping[str, tuple[str, str]]) -> bool:
    """Whether the growth of waits is built in and enforced like the first wait."""
    fields = [f"{kind}.factor", f"{kind}.max_backoff"]
    first = role.enforcement[f"{kind}.backoff"].by
    return all(values[one][1] == BUILT_IN.source and role.enforcement[one].by is first for one in fields)


def _enforcer(role: RoleReport, field: str) -> dict[str, str]:
    enforced = role.enforcement[field]
    by = "nothing" if enforced.by is Enforcer.CONTROLLER else enforced.by.value
    return {"enforced_by": by, "field": enforced.field, "enforcement": enforced.text}


def _named(role: RoleReport, config: Config) -> str:
    maybe = role.maybe
    return ", ".join(
        f"{name} ({config.pools[name].capacity}{', maybe' if name in maybe else ''})" for name in role.pools
    )


def _refused(role: RoleReport) -> Iterator[str]:
    """The reasons against pools, each with all its pools."""
    reasons: dict[str, list[str]] = {}
    for name, why in role.refusals.items():
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        yield from fitted(f"    not {', '.join(names)}: {why}", hang="      ")


def object_text(explained: Mapping[str, Any]) -> str:
    """The explanation for people, from the JSON of :func:`spotwright.cluster.explaining.explain_object`."""
    run = f", run {explained['run']}" if explained["run"] else ""
    lines = [f"{explained['object']}{run}"]
    for pod in explained["pods"]:
        lines.append("")
        lines += [line for text in _pod(pod) for line in fitted(text, hang="    ")]
    if explained["left_out"]:
        lines += ["", *(line for each in explained["left_out"] for line in fitted(_left_out(each), hang="  "))]
    if explained["notes"]:
        lines += ["", *explained["notes"]]
    return "\n".join(lines)


def _left_out(pool: Mapping[str, Any]) -> str:
    """Until when new attempts skip a pool, and why."""
    row = f", {pool['times']} times in a row" if pool["times"] > 1 else ""
    until = time_of_day(pool["until"])
    return f"pool {pool['pool']} is left out until {until}: attempts waited in vain for a node of it{row}"


def _pod(pod: Mapping[str, Any]) -> Iterator[str]:
    which = "" if pod["attempt"] is None else f": attempt {pod['attempt']} of task {pod['task']}"
    yield f"pod {pod['name']}{which}"
    yield f"  {_where(pod)}"
    yield from (f"  {line}" for line in (*_move(pod["move"]), *_lost_node(pod["lost_node"])))
    rung = pod["rung"]
    if rung is not None:
        which = f"all {rung['of']} rungs" if rung["number"] is None else f"rung {rung['number']} of {rung['of']}"
        yield f"  {which}: {', '.join(rung['pools']) or 'any pool'}"
    if any(each["state"] or each["until"] for each in pod["pools"]):
        yield from (f"  {_pool_state(each)}" for each in pod["pools"])
    if pod["budgets"] is not None:
        spent = (f"{each['spent']} of {each['max']} {name}" for name, each in pod["budgets"].items())
        yield f"  spent: {', '.join(spent)}"
    yield from (f"  {sentence}" for sentence in pod["history"])
    if pod["webhook"]["why"]:
        yield f"  admitted as attempt {pod['webhook']['attempt']}: {pod['webhook']['why']}"
    yield from (f"  not enforced: {what}" for what in pod["not_enforced"])


def _pool_state(pool: Mapping[str, Any]) -> str:
    """The capacity of a waiting pod's pool."""
    state = pool["state"] or ("" if pool["is_asked"] else "not asked yet")
    if pool["state"] and pool["since"]:
        state += f", since {time_of_day(pool['since'])}"
    if pool["until"]:
        state = "; ".join(
            filter(None, [pool["state"], f"out of capacity, passed over until {time_of_day(pool['until'])}"])
        )
    return f"{pool['pool']}: {state or 'state unknown'}"


def _move(move: Mapping[str, Any] | None) -> Iterator[str]:
    """The next step for a pod that waits for a node."""
    if move is not None:
        if move["stays"]:
            yield f"stays there: {move['stays']}"
        else:
            yield f"will be evicted at {time_of_day(move['at'])}; the next pod waits for a node of {' or '.join(move['to'])}"
            if move["backoff"]:
                yield f"its Job makes that pod {span(move['backoff'])} later: it waits twice as long after each failed pod"


def _lost_node(lost: Mapping[str, Any] | None) -> Iterator[str]:
    """The remedy for a node that does not report."""
    if lost is None:
        return
    if lost["gone"]:
        yield f"its pods are deleted, so that their successors start: {lost['gone']}"
        return
    since = "" if lost["since"] is None else f" since {time_of_day(lost['since'])}"
    yield f"node {lost['node']} does not report{since}; if its machine is gone, free it by one of:"
    yield from (f"  {command}" for command in lost["commands"])


def _where(pod: Mapping[str, Any]) -> str:
    if pod["status"] == "waiting":
        says = pod["scheduler"]
        return (
            f"waits for a node; kube-scheduler says: {says}"
            if says
            else "waits; kube-scheduler has not looked at it yet"
        )
    pool = (
        "" if pod["pool"] is None else f" in pool {pod['pool']}" + (f" ({pod['capacity']})" if pod["capacity"] else "")
    )
    if pod["not_started"]:
        return f"has not started on node {pod['node']}{pool}: {pod['not_started']}"
    return f"{'ran' if pod['status'] == 'ended' else 'runs'} on node {pod['node']}{pool}"
