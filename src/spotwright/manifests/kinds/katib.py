"""Katib's Experiment: its trials are objects of other kinds, placed by those kinds, in the Experiment or in a ConfigMap.

Katib never tries a trial again, so what survives interruptions is the trial's own kind. Placeholders (``${trialParameters.x}``)
are text that Katib replaces in the trial; nothing here looks into them. Sources: kubeflow/katib v0.19.0,
``pkg/webhook/v1beta1/experiment/validator/validator.go``, ``pkg/controller.v1beta1/experiment/manifest/generator.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from spotwright.manifests import embedded
from spotwright.manifests.context import Context, Level, RoleReport, name_of
from spotwright.manifests.documents import Document, Path
from spotwright.manifests.edits import Editor
from spotwright.manifests.kinds import Place, find_kind
from spotwright.manifests.levels import POD_FIELDS, refuse_misplaced

__all__ = ["KINDS"]

_TEMPLATE: Path = ("spec", "trialTemplate")
_FROZEN = "refused are changes of everything but parallelTrialCount, maxTrialCount and maxFailedTrialCount"
_SUGGESTION = (
    "suggestion and early stopping run where katib-config puts them, which is no part of the Experiment: they stay"
)


def _place_experiment(ctx: Context) -> None:
    trial = ctx.at(*_TEMPLATE, "trialSpec")
    spec = ctx.get(*_TEMPLATE, "trialSpec")
    for level in (ctx.at("spec"), ctx.at(*_TEMPLATE)):
        refuse_misplaced(ctx, level, (*trial, "spec", "template", "spec"), POD_FIELDS)
    if isinstance(spec, dict):
        before = len(ctx.roles)
        _place_trial(ctx, spec)
        _report(ctx, ctx.roles[before:])
    else:
        _look_for_template(ctx)


def _place_trial(ctx: Context, spec: Mapping[str, Any]) -> None:
    """Place the trial by its own kind, as part of the experiment: it has no name of its own."""
    at = ctx.at(*_TEMPLATE, "trialSpec")
    for field in ("name", "namespace"):
        if field in (spec.get("metadata") or {}):
            ctx.say(
                Level.WARNING,
                (*at, "metadata", field),
                f"Katib refuses a trialSpec with a {field}: it gives each trial its own",
            )
    api_version, kind = str(spec.get("apiVersion", "")), str(spec.get("kind", ""))
    place = find_kind(api_version, kind)
    if place is None:
        text = f"trials are {kind} ({api_version}): no kind that is placed; they pass through untouched"
        ctx.say(Level.WARNING, (*at, "kind"), text)
        return
    place(ctx.inside(*_TEMPLATE, "trialSpec", owner=ctx.name))


def _report(ctx: Context, roles: list[RoleReport]) -> None:
    """What interruptions mean for the experiment around its trials."""
    for role in roles:
        role.frozen = _FROZEN
    if not any(ctx.config.pools[pool].is_spot for role in roles for pool in role.pools):
        return
    limit = ctx.get("spec", "maxFailedTrialCount")
    counts = "there is no maxFailedTrialCount" if limit is None else f"it counts towards maxFailedTrialCount {limit}"
    text = (
        f"Katib never tries a trial again: one that its own kind gives up after interruptions has failed, and {counts}"
    )
    ctx.say(Level.NOTE, ctx.at("spec", "maxFailedTrialCount"), text)
    ctx.say(Level.NOTE, ctx.at("spec", "algorithm"), _SUGGESTION)


def _look_for_template(ctx: Context) -> None:
    """The trial stands in a ConfigMap, which is placed where it stands; without it nothing can be said here."""
    at = ctx.at(*_TEMPLATE, "configMap")
    given = ctx.editor.get(at)
    if not isinstance(given, dict):
        raise ctx.problem(ctx.at(*_TEMPLATE), "expected a trialSpec, or a configMap that holds one")
    name, key = str(given.get("configMapName")), str(given.get("templatePath"))
    found = ctx.find("ConfigMap", name, _text(given.get("configMapNamespace")))
    if found is None:
        text = (
            f"the trials' template is in ConfigMap {name}, which is not here: nothing is placed; give its file as well"
        )
        ctx.say(Level.WARNING, at, text)
    elif not isinstance(found.get(("data", key), None), str):
        raise ctx.problem((*at, "templatePath"), f"{found.file}:{found.line(('data',))}: ConfigMap {name} has no {key}")
    else:
        text = f"the trials' template stands in ConfigMap {name} ({found.file}:{found.line(('data', key))})"
        if ctx.is_input(found):
            ctx.say(Level.NOTE, at, f"{text}, and is placed with it")
        else:
            ctx.say(Level.WARNING, at, f"{text}, which is only read: give its file to be placed as well")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _place_config_map(ctx: Context) -> None:
    """Place the trial templates that experiments take from here; everything else in a ConfigMap is left alone."""
    owners: dict[str, list[Document]] = {}
    for experiment, key in _users(ctx):
        known = owners.setdefault(key, [])
        if name_of(experiment.get(("metadata",), {})) not in [name_of(one.get(("metadata",), {})) for one in known]:
            known.append(experiment)
    for key, experiments in owners.items():
        first, *others = (name_of(one.get(("metadata",), {})) for one in experiments)
        before = len(ctx.roles)
        owned = replace(ctx, around=ctx.embedded(Editor(experiments[0])))  # whose labels speak for its trials
        embedded.place(owned, ctx.at("data", key), owner=first)
        for role in ctx.roles[before:]:
            role.frozen = "nothing is refused; experiments that were made already keep the template that they had"
        if others:
            text = f"placed by the policy of {first}; {', '.join(others)} take it from here as well"
            ctx.say(Level.WARNING, ctx.at("data", key), text)


def _users(ctx: Context) -> Iterator[tuple[Document, str]]:
    """The experiments that take a trial template from this ConfigMap, with the key of it."""
    data, metadata = ctx.get("data"), ctx.get("metadata", default={})
    for experiment in ctx.find_all("Experiment") if isinstance(data, dict) else ():
        if str(metadata.get("name")) not in experiment.text:
            continue  # a quick look: there may be a thousand of each
        given = experiment.get((*_TEMPLATE, "configMap"), None)
        if not isinstance(given, dict) or given.get("configMapName") != metadata.get("name"):
            continue
        if metadata.get("namespace") in (None, given.get("configMapNamespace")) and given.get("templatePath") in data:
            yield experiment, str(given.get("templatePath"))


def _wrong_version(ctx: Context) -> None:
    text = f"Katib serves no {ctx.get('apiVersion')}, and nothing is placed: write kubeflow.org/v1beta1"
    ctx.say(Level.WARNING, ctx.at("apiVersion"), text)


KINDS: Mapping[tuple[str, str], Place] = {
    ("kubeflow.org/v1beta1", "Experiment"): _place_experiment,
    ("kubeflow.org", "Experiment"): _wrong_version,
    ("", "ConfigMap"): _place_config_map,
}
