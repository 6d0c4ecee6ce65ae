"""Katib's Experiment: its trials are objects of other kinds, in the Experiment or in a ConfigMap, placed by those kinds.

Katib never retries a trial, so only the trial's own kind can survive interruptions. Katib replaces placeholders
(``${trialParameters.x}``) in the trial's text; they are not interpreted here. Sources: kubeflow/katib v0.19.0,
``pkg/webhook/v1beta1/experiment/validator/validator.go``, ``pkg/controller.v1beta1/experiment/manifest/generator.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from spotwright.manifests.kinds import PlaceObject, embedded, find_kind
from spotwright.manifests.rules.context import Level, PlaceContext, RoleReport, name_of
from spotwright.manifests.rules.misplaced_fields import POD_FIELDS, refuse_misplaced
from spotwright.manifests.yamltext.documents import Document, Path
from spotwright.manifests.yamltext.edits import Editor

__all__ = ["KINDS"]

_TEMPLATE: Path = ("spec", "trialTemplate")
_FROZEN = "only parallelTrialCount, maxTrialCount and maxFailedTrialCount can be changed"
_SUGGESTION = "katib-config decides where suggestion and early stopping run; the Experiment cannot place them"


def _place_experiment(ctx: PlaceContext) -> None:
    trial = ctx.at(*_TEMPLATE, "trialSpec")
    spec = ctx.get(*_TEMPLATE, "trialSpec")
    for level in (ctx.at("spec"), ctx.at(*_TEMPLATE)):
        refuse_misplaced(ctx, level, (*trial, "spec", "template", "spec"), POD_FIELDS)
    if isinstance(spec, dict):
        before = len(ctx.roles)
        _place_trial(ctx, spec)
        _report(ctx, ctx.roles[before:])
    else:
        _report_template(ctx)


def _place_trial(ctx: PlaceContext, spec: Mapping[str, Any]) -> None:
    """Place the trial by its own kind, as part of the experiment: a trial template has no name."""
    at = ctx.at(*_TEMPLATE, "trialSpec")
    for field in ("name", "namespace"):
        if field in (spec.get("metadata") or {}):
            ctx.add_finding(
                Level.WARNING,
                (*at, "metadata", field),
                f"Katib refuses a trialSpec with a {field}: it sets one for each trial",
            )
    api_version, kind = str(spec.get("apiVersion", "")), str(spec.get("kind", ""))
    place = find_kind(api_version, kind)
    if place is None:
        text = f"trials are {kind} ({api_version}): this kind is not placed; they stay unchanged"
        ctx.add_finding(Level.WARNING, (*at, "kind"), text)
        return
    place(ctx.nested(*_TEMPLATE, "trialSpec", owner=ctx.name))


def _report(ctx: PlaceContext, roles: list[RoleReport]) -> None:
    """Report what interruptions of trials mean for the experiment."""
    for role in roles:
        role.frozen = _FROZEN
    if not any(ctx.config.pools[pool].is_spot for role in roles for pool in role.pools):
        return
    limit = ctx.get("spec", "maxFailedTrialCount")
    counts = "there is no maxFailedTrialCount" if limit is None else f"it counts towards maxFailedTrialCount {limit}"
    text = f"Katib never retries a trial: one whose own kind gives up after interruptions has failed, and {counts}"
    ctx.add_finding(Level.NOTE, ctx.at("spec", "maxFailedTrialCount"), text)
    ctx.add_finding(Level.NOTE, ctx.at("spec", "algorithm"), _SUGGESTION)


def _report_template(ctx: PlaceContext) -> None:
    """Report in which ConfigMap the trial template is; it is placed there."""
    at = ctx.at(*_TEMPLATE, "configMap")
    given = ctx.editor.get(at)
    if not isinstance(given, dict):
        raise ctx.problem(ctx.at(*_TEMPLATE), "expected a trialSpec, or a configMap that holds one")
    name, key = str(given.get("configMapName")), str(given.get("templatePath"))
    config_map = ctx.find("ConfigMap", name, _text(given.get("configMapNamespace")))
    if config_map is None:
        text = f"the trial template is in ConfigMap {name}, which was not given: nothing is placed; pass its file too"
        ctx.add_finding(Level.WARNING, at, text)
    elif not isinstance(config_map.get(("data", key), None), str):
        place = f"{config_map.file}:{config_map.line(('data',))}"
        raise ctx.problem((*at, "templatePath"), f"{place}: ConfigMap {name} has no {key}")
    else:
        text = f"the trial template is in ConfigMap {name} ({config_map.file}:{config_map.line(('data', key))})"
        if ctx.is_input(config_map):
            ctx.add_finding(Level.NOTE, at, f"{text}, and is placed there")
        else:
            ctx.add_finding(Level.WARNING, at, f"{text}, which is only read: pass its file to place it too")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _place_config_map(ctx: PlaceContext) -> None:
    """Place the trial templates that experiments take from a ConfigMap; everything else in it stays unchanged."""
    owners: dict[str, list[Document]] = {}
    for experiment, key in _users(ctx):
        experiments = owners.setdefault(key, [])
        names = [name_of(other.get(("metadata",), {})) for other in experiments]
        if name_of(experiment.get(("metadata",), {})) not in names:
            experiments.append(experiment)
    for key, experiments in owners.items():
        first, *others = (name_of(one.get(("metadata",), {})) for one in experiments)
        before = len(ctx.roles)
        owned = replace(ctx, outer=ctx.embedded(Editor(experiments[0])))  # its labels set the policy of its trials
        embedded.place(owned, ctx.at("data", key), owner=first)
        for role in ctx.roles[before:]:
            role.frozen = "everything can be changed; experiments that exist keep the old template"
        if others:
            text = f"placed by the policy of {first}; {', '.join(others)} use it too"
            ctx.add_finding(Level.WARNING, ctx.at("data", key), text)


def _users(ctx: PlaceContext) -> Iterator[tuple[Document, str]]:
    """The experiments that take a trial template from this ConfigMap, each with the key of the template."""
    data, metadata = ctx.get("data"), ctx.get("metadata", default={})
    for experiment in ctx.find_all("Experiment") if isinstance(data, dict) else ():
        if str(metadata.get("name")) not in experiment.text:
            continue  # a quick check: there may be a thousand of each
        given = experiment.get((*_TEMPLATE, "configMap"), None)
        if not isinstance(given, dict) or given.get("configMapName") != metadata.get("name"):
            continue
        if metadata.get("namespace") in (None, given.get("configMapNamespace")) and given.get("templatePath") in data:
            yield experiment, str(given.get("templatePath"))


def _wrong_version(ctx: PlaceContext) -> None:
    text = f"Katib does not serve {ctx.get('apiVersion')}, so nothing is placed: write kubeflow.org/v1beta1"
    ctx.add_finding(Level.WARNING, ctx.at("apiVersion"), text)


KINDS: Mapping[tuple[str, str], PlaceObject] = {
    ("kubeflow.org/v1beta1", "Experiment"): _place_experiment,
    ("kubeflow.org", "Experiment"): _wrong_version,
    ("", "ConfigMap"): _place_config_map,
}
