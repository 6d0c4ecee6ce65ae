"""What ``explain`` says: per role the pools in order, the source of every policy value, and what an interruption does there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.config import Config
from spotwright.manifests.context import RoleReport
from spotwright.manifests.expander import EXPANDER, expander_lines
from spotwright.manifests.files import Placement
from spotwright.model.policy import Policy
from spotwright.model.quantities import format_duration

__all__ = ["explanation_json", "explanation_text"]


def explanation_json(placements: Mapping[str, Placement], config: Config) -> dict[str, Any]:
    """The same facts for a machine: ``{"config", "files": {name: {"roles": [...], "findings": [...]}}}``."""
    return {
        "config": config.path,
        "files": {
            name: {
                "roles": [_role_facts(role, config) for role in placement.roles],
                "findings": [
                    {"level": f.level.value, "file": f.file, "line": f.line, "path": list(f.path), "text": f.text}
                    for f in placement.findings
                ],
            }
            for name, placement in placements.items()
        },
    }


def explanation_text(placements: Mapping[str, Placement], config: Config) -> str:
    """The same for people."""
    lines = [f"pools and policy: {config.path}"]
    if config.note:
        lines.append(f"note: {config.note}")
    for name, placement in placements.items():
        if not placement.roles:
            lines += ["", f"{name}: nothing that is placed"]
        for role in placement.roles:
            lines += ["", f"{name}:{role.line}: {role.policy_path} ({role.name})", *_role_lines(role, config)]
        for finding in placement.findings:
            where = "" if finding.file == name else f"{finding.file}: "
            lines.append(f"  {finding.level}: {where}line {finding.line}: {finding.text}")
    if any(EXPANDER in finding.text for placement in placements.values() for finding in placement.findings):
        lines += ["", "for the cluster autoscaler:", *(f"  {line}" for line in expander_lines(config.pools))]
    roles = (role for placement in placements.values() for role in placement.roles)
    for note in dict.fromkeys(note for role in roles for note in role.notes):
        lines += ["", note]
    return "\n".join(lines)


def _role_facts(role: RoleReport, config: Config) -> dict[str, Any]:
    return {
        "name": role.name,
        "path": role.policy_path,
        "line": role.line,
        "pools": [{"name": name, "capacity": config.pools[name].capacity.value} for name in role.pools],
        "refused": dict(role.refusals),
        "policy": {field: {"value": value, "source": source} for field, value, source in _values(role.policy)},
        "after_interruption": role.after_interruption,
        "frozen": role.frozen,
        "notes": list(role.notes),
    }


def _role_lines(role: RoleReport, config: Config) -> Iterator[str]:
    if role.policy.spot is None:
        yield "  nothing is added: no policy says anything about spot here"
        if role.pools or role.refusals:
            yield f"  pools that take it as it is: {_named(role, config) or 'none'}"
            yield from _refused(role)
        return
    yield f"  pools, in order: {_named(role, config)}"
    yield from _refused(role)
    for field, value, source in _values(role.policy):
        yield f"  {field + ':':<24}{value}  ({source})"
    if role.after_interruption:
        yield f"  after an interruption: {role.after_interruption}"
    if role.frozen:
        yield f"  on a live object: {role.frozen}"


def _named(role: RoleReport, config: Config) -> str:
    return ", ".join(f"{name} ({config.pools[name].capacity})" for name in role.pools)


def _refused(role: RoleReport) -> Iterator[str]:
    return (f"    not {name}: {why}" for name, why in role.refusals.items())


def _values(policy: Policy) -> Iterator[tuple[str, str, str]]:
    """Every value with where it was said, in the words of the configuration."""
    shown: dict[str, Any] = {
        "spot": policy.spot,
        "ladder": ", ".join(policy.ladder) if policy.ladder is not None else None,
        "interruptions.max": policy.max_interruptions,
        "interruptions.backoff": format_duration(policy.interruption_backoff.first),
        "errors.retries": policy.retries,
        "errors.backoff": format_duration(policy.error_backoff.first),
        "fall_back_after": policy.fall_back_after,
        "pending_timeout": format_duration(policy.pending_timeout),
        "grace_period": format_duration(policy.grace_period),
        "timeout": format_duration(policy.timeout) if policy.timeout is not None else None,
        "checkpoint": policy.checkpoint,
        "image_pull_secrets": ", ".join(policy.image_pull_secrets) or None,
    }
    for field, value in shown.items():
        if value is not None:
            yield field, str(value), policy.sources.get(field, "built in")
