"""Spark on Kubernetes (the Spark operator): SparkApplication and ScheduledSparkApplication.

The driver stays on on-demand, because the application is lost with it; executors follow the policy. ``spec.driver`` and
``spec.executor`` have the scheduling fields of a pod themselves, and the operator's webhook copies them to the pods. The
webhook skips a role with its own pod ``template`` (Spark 3 and later), so the template is placed instead. Requests are computed
as Spark computes them: the JVM's memory and its overhead. Sources: kubeflow/spark-operator v2.5.2,
``internal/webhook/sparkpod_defaulter.go``, ``internal/controller/sparkapplication/submission.go``,
``pkg/util/sparkapplication.go``; Apache Spark, "Running Spark on Kubernetes" (node selectors and pod templates in
``sparkConf``), "Spark Configuration" (decommissioning, since 3.1).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.kinds.kind import (
    Claim,
    Kind,
    PlaceObject,
    PodLevels,
    Reads,
    RetryFields,
    Words,
    claims_in,
    number_at,
    one_pod,
    pods_at,
)
from spotwright.kube.object_fields import mapping
from spotwright.model.policy import BUILT_IN, Policy
from spotwright.placing.context import RETRIES_STAY, Group, Level, PlaceContext
from spotwright.placing.documents import Path
from spotwright.placing.enforcement import POD_FACTS, Mechanism, in_object, nothing, waits
from spotwright.placing.merging import place_merged, strategic, write
from spotwright.placing.patch import value_at
from spotwright.placing.pod_change import write_metadata
from spotwright.placing.pod_spec import POD, TEMPLATE, TEXT, check, refuse_misplaced
from spotwright.placing.pods import Placed, PodRole, Role, metadata_change
from spotwright.placing.retries import counting_text, no_interruption_text, whole_number, write_unless_set

__all__ = ["KINDS", "levels_of"]


_RUNS = "app:restartPolicy.onFailureRetries"
_INTERVAL = nothing("the operator waits 5s, longer with each retry")

_SPARK = Mechanism(
    "",
    {
        **POD_FACTS,
        **waits("the operator waits 5s, longer with each retry"),
        "errors.backoff": in_object(
            "app:restartPolicy.onFailureRetryInterval", "longer with each retry", absent=_INTERVAL
        ),
        "interruptions.max": in_object(_RUNS, "of the application; errors count there too"),
        "errors.retries": in_object(_RUNS, "of the application; interruptions count there too"),
        "fall_back_after": nothing("a new executor has the fields of the old one"),
    },
)


_DRIVER = "the application is lost with its driver"
_APP = "metadata.labels['sparkoperator.k8s.io/app-name']"
_METADATA = ("labels", "annotations")
_SCHEDULING = ("tolerations", "affinity", "terminationGracePeriodSeconds")
_ROLE_FIELDS = frozenset({"tolerations", "affinity", "terminationGracePeriodSeconds"})
_ROLE = {
    **{name: POD[name] for name in ("affinity", "nodeSelector", "tolerations")},
    "env": [{"name": TEXT}],
    "volumeMounts": [{"name": TEXT}],
    "labels": {},
    "annotations": {},
    "gpu": {"name": TEXT, "quantity": TEXT},
    "template": TEMPLATE,
}
_APPLICATION = {
    "driver": _ROLE,
    "executor": _ROLE,
    "nodeSelector": {},
    "sparkConf": {},
    "restartPolicy": {"type": TEXT},
    "volumes": [{"name": TEXT}],
    "imagePullSecrets": [TEXT],
}
_MEMORY = re.compile(r"(\d{1,15})\s*([bkmgtp]?)b?", re.IGNORECASE)
_MIB = {"b": 2**-20, "k": 2**-10, "": 1, "m": 1, "g": 2**10, "t": 2**20, "p": 2**30}
"""Mebibytes of Spark's units; a number without a unit is mebibytes. ``512m`` is 512 MiB, not Kubernetes' 0.512 bytes."""

_LEAST_OVERHEAD = 384  # MiB, spark.{driver,executor}.minMemoryOverhead
_OVERHEAD, _OVERHEAD_OF_OTHERS = 0.1, 0.4  # spark.kubernetes.memoryOverheadFactor: of JVM applications, of Python and R
_DECOMMISSION = (
    "spark.decommission.enabled",
    "spark.storage.decommission.enabled",
    "spark.storage.decommission.rddBlocks.enabled",
    "spark.storage.decommission.shuffleBlocks.enabled",
)
_WEBHOOK = (
    "the operator's webhook copies tolerations, affinity and environment to the pods: it must be on and watch this namespace, "
    "otherwise they are ignored in silence (kubeflow/spark-operator#2537)"
)


def _place_application(ctx: PlaceContext) -> None:
    _application_at(ctx, ctx.at("spec"))


def _place_scheduled(ctx: PlaceContext) -> None:
    _application_at(ctx, ctx.at("spec", "template"))
    if ctx.get("spec", "concurrencyPolicy") in (None, "Allow") and any(role.policy.spot for role in ctx.roles):
        text = "retries of an application may overlap the next one of the schedule: set concurrencyPolicy to Forbid or Replace"
        ctx.add_finding(Level.WARNING, ctx.at("spec", "schedule"), text)


def _application_at(ctx: PlaceContext, at: Path) -> None:
    """Place the application whose spec is at ``at``."""
    check(ctx, at, _APPLICATION)
    executor = (*at, "executor")
    refuse_misplaced(ctx, at, executor, _ROLE_FIELDS)
    for name in ("driver", "executor"):
        if not isinstance(ctx.editor.get((*at, name)), dict):
            raise ctx.problem(at, f"expected a Spark application with a {name}")
    driver_placed = _place_role(ctx, at, "driver", _DRIVER)
    executor_placed = _place_role(ctx, at, "executor", "")
    members = [driver_placed, executor_placed]
    for placed in members:
        placed.report.mechanism = _SPARK
        placed.report.anchor("app", ctx.editor, at)
        placed.report.frozen = "a changed spec ends the application, and the operator submits it again"
        placed.report.after_interruption = "" if placed.on_spot else no_interruption_text(placed.policy)
        _warn_of_template_file(ctx, at, placed)
    spot = [placed for placed in members if placed.on_spot]
    if not spot:
        return
    writes = ctx.writes(Group.RETRIES)
    retried = _settle_restarts(ctx, at, spot) if writes else RETRIES_STAY
    if executor_placed.on_spot:
        decommissioned = _decommission(ctx, at) if writes else ""
        executor_placed.report.after_interruption = (
            f"Spark starts another executor and runs the lost tasks again{decommissioned}; {retried}"
        )
    if driver_placed.on_spot:
        driver_placed.report.after_interruption = f"the application fails; {retried}"
        text = f"driver: it is on spot ({driver_placed.policy.sources['spot']}), and {_DRIVER}"
        ctx.add_finding(Level.WARNING, (*at, "driver"), text)


def _place_role(ctx: PlaceContext, at: Path, name: str, reason: str) -> Placed:
    path, task = (*at, name), f"{ctx.name}/{name}"
    application = ctx.editor.get(at)
    levels = levels_of(application, name)
    template = (*path, "template") if levels.form == "T" else None
    role = Role(
        name,
        task,
        path if template is None else (*template, "spec"),
        template,
        reason,
        work=ctx.name,
        run=_APP,
        is_pinned=bool(reason),
    )
    own = ctx.editor.get(path)
    places = {(*role.spec, *inside): (*at, *place) for inside, place in levels.where.items()}
    if template is None:
        before = _pod_of(ctx, at, name, levels)
        placed, after = place_merged(ctx, role, before, places)
        _write_role(ctx, at, path, before, after)
        if placed.policy.spot is not None and ctx.writes(Group.PLACEMENT):
            write_metadata(ctx.editor, path, metadata_change(ctx, path, placed))
            ctx.add_finding(Level.NOTE, ctx.at("kind"), _WEBHOOK)
        return placed
    pod = own["template"].get("spec") or {}
    before = {**own["template"], "spec": _with_requests(ctx, at, name, levels.spec)}
    placed, after = place_merged(ctx, role, before, places)
    write(ctx.editor, template, own["template"], {**after, "spec": _without_requests(pod, after["spec"])})
    _warn_of_ignored(ctx, path, own)
    return placed


def _warn_of_template_file(ctx: PlaceContext, at: Path, placed: Placed) -> None:
    """Warn of a pod template in a file of the submitting machine, which cannot be read here."""
    name = placed.report.name
    path = (*at, "sparkConf", f"spark.kubernetes.{name}.podTemplateFile")
    if ctx.editor.get(path) and _spark_version(ctx.editor.get(at)) >= (3, 0) and placed.policy.spot is not None:
        text = f"{name}: what this file says about nodes, tolerations and requests holds too, and is unknown here: write it"
        ctx.add_finding(Level.WARNING, path, f"{text} into {name}.template")


def levels_of(application: Mapping[str, Any], name: str) -> PodLevels:
    """The pods of a role; paths are in the application's spec.

    A role's template hides the scheduling fields beside it. The selectors of the application and ``sparkConf`` apply to both
    roles, then the role's in ``sparkConf``, then its own field, which the operator's webhook reads.
    """
    conf, role = (mapping(application.get(key)) for key in ("sparkConf", name))
    template = role.get("template")
    has_template = isinstance(template, dict) and _spark_version(application) >= (3, 0)
    own = mapping(mapping(template).get("spec")) if has_template else role
    selector: dict[str, Any] = dict(mapping(own.get("nodeSelector"))) if has_template else {}
    where: dict[Path, Path] = {}
    for part, prefix, place in (
        (conf, "spark.kubernetes.node.selector.", ("sparkConf",)),
        (mapping(application.get("nodeSelector")), "", ("nodeSelector",)),
        (conf, f"spark.kubernetes.{name}.node.selector.", ("sparkConf",)),
        (mapping(None if has_template else role.get("nodeSelector")), "", (name, "nodeSelector")),
    ):
        for key, value in part.items():
            if str(key).startswith(prefix):
                label = str(key).removeprefix(prefix)
                selector[label], where["nodeSelector", label] = value, (*place, key)
    metadata = strategic(
        mapping(mapping(template).get("metadata")), {key: role[key] for key in _METADATA if role.get(key)}
    )
    path: Path = (name, "template", "spec") if has_template else (name,)
    spec = {**own, "nodeSelector": selector} if selector else own
    return PodLevels(path, "T" if has_template else "H", spec, metadata, where)


def _read(data: Mapping[str, Any], path: Path) -> PodLevels:
    """The pods of the role at a path."""
    at = path[:-1]
    levels = levels_of(mapping(value_at(data, at)), str(path[-1]))
    where = {inside: (*at, *place) for inside, place in levels.where.items()}
    if len(places := {place[:-1] for place in where.values()}) == 1:
        where["nodeSelector",] = places.pop()
    return levels._replace(path=(*at, *levels.path), where=where)


def _warn_of_ignored(ctx: PlaceContext, path: Path, own: Mapping[str, Any]) -> None:
    """Warn of scheduling fields beside a template, which the webhook does not copy."""
    for field in ("tolerations", "affinity", "nodeSelector"):
        if own.get(field):
            text = (
                f"{path[-1]}: it has a template, so the operator's webhook ignores this field: move it to template.spec"
            )
            ctx.add_finding(Level.WARNING, (*path, field), text)


def _pod_of(ctx: PlaceContext, at: Path, name: str, levels: PodLevels) -> dict[str, Any]:
    """The fields of a role in the form of a pod spec, with the requests that Spark will make."""
    role = levels.spec
    container = {key: role[key] for key in ("env", "volumeMounts") if role.get(key)}
    spec = {key: role[key] for key in (*_SCHEDULING, "nodeSelector") if role.get(key) is not None}
    secrets = [{"name": secret} for secret in ctx.editor.get((*at, "imagePullSecrets")) or ()]
    volumes = ctx.editor.get((*at, "volumes")) or ()
    containers = {"containers": [{"name": f"spark-{name}", **container}]}
    shared = {"volumes": list(volumes)} if volumes else {}
    spec |= containers | shared | ({"imagePullSecrets": secrets} if secrets else {})
    return _with_requests(ctx, at, name, spec)


def _with_requests(ctx: PlaceContext, at: Path, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A pod spec whose first container has the requests of the role."""
    first, *others = spec.get("containers") or [{"name": f"spark-{name}"}]
    first = {**first, "resources": {"requests": _requests(ctx, at, name)}} if isinstance(first, dict) else first
    return {**spec, "containers": [first, *others]}


def _without_requests(pod: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """A placed pod spec without the additions of :func:`levels_of` and :func:`_with_requests` to ``pod``."""
    selector = {"nodeSelector": pod["nodeSelector"]} if "nodeSelector" in pod else {}
    rest = {key: value for key, value in after.items() if key not in ("nodeSelector", "containers")}
    if not pod.get("containers"):
        return {**rest, **selector}
    first, *others = after["containers"]
    own = pod["containers"][0]
    resources = {"resources": own["resources"]} if "resources" in own else {}
    first = {key: value for key, value in first.items() if key != "resources"}
    return {**rest, **selector, "containers": [{**first, **resources}, *others]}


def _requests(ctx: PlaceContext, at: Path, name: str) -> dict[str, str]:
    """Spark's requests for a pod of the role: cores, the JVM's memory with its overhead, GPUs."""
    role, conf = ctx.editor.get((*at, name)), ctx.editor.get((*at, "sparkConf")) or {}
    memory = _mebibytes(ctx, (*at, name, "memory"), role.get("memory") or conf.get(f"spark.{name}.memory") or "1g")
    overhead = role.get("memoryOverhead") or conf.get(f"spark.{name}.memoryOverhead")
    if overhead is None:
        extra = max(_LEAST_OVERHEAD, memory * _overhead_factor(ctx, at))
    else:
        extra = _mebibytes(ctx, (*at, name, "memoryOverhead"), overhead)
    requested = role.get("coreRequest") or conf.get(f"spark.kubernetes.{name}.request.cores")
    cores = requested or role.get("cores") or conf.get(f"spark.{name}.cores") or 1
    gpu = role.get("gpu") or {}
    gpus = {str(gpu["name"]): str(gpu["quantity"])} if gpu.get("name") and gpu.get("quantity") else {}
    return {"cpu": str(cores), "memory": f"{math.ceil(memory + extra)}Mi", **_devices(conf, name), **gpus}


def _devices(conf: Mapping[str, Any], name: str) -> dict[str, str]:
    """The devices of a role in ``sparkConf``: the resource is that of the vendor's device plugin (``nvidia.com/gpu``)."""
    prefix = f"spark.{name}.resource."
    found: dict[str, str] = {}
    for key, amount in conf.items():
        device = str(key).removeprefix(prefix).removesuffix(".amount")
        vendor = conf.get(f"{prefix}{device}.vendor")
        if key == f"{prefix}{device}.amount" and vendor:
            found[f"{vendor}/{device}"] = str(amount)
    return found


def _overhead_factor(ctx: PlaceContext, at: Path) -> float:
    try:
        return float(ctx.editor.get((*at, "memoryOverheadFactor")) or 0) or _default_factor(ctx, at)
    except (TypeError, ValueError) as error:
        raise ctx.problem((*at, "memoryOverheadFactor"), "expected a number in quotes, such as '0.1'") from error


def _default_factor(ctx: PlaceContext, at: Path) -> float:
    return _OVERHEAD_OF_OTHERS if ctx.editor.get((*at, "type")) in ("Python", "R") else _OVERHEAD


def _mebibytes(ctx: PlaceContext, path: Path, given: Any) -> float:
    match = _MEMORY.fullmatch(str(given).strip())
    if match is None:
        raise ctx.problem(path, f"expected memory as Spark writes it, such as 512m or 4g, found {given!r}")
    return int(match[1]) * _MIB[match[2].lower()]


def _write_role(ctx: PlaceContext, at: Path, path: Path, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Write the additions to a role's pod into the operator's fields."""
    for field in _SCHEDULING:
        if after.get(field) != before.get(field):
            write(ctx.editor, (*path, field), before.get(field), after.get(field))
    old, new = before["containers"][0], after["containers"][0]
    for field in ("env", "volumeMounts"):
        ctx.editor.extend((*path, field), _new(old, new, field))
    ctx.editor.extend((*at, "volumes"), _new(before, after, "volumes"))
    ctx.editor.extend((*at, "imagePullSecrets"), [secret["name"] for secret in _new(before, after, "imagePullSecrets")])


def _new(before: Mapping[str, Any], after: Mapping[str, Any], field: str) -> list[Any]:
    old = before.get(field) or []
    kept = set(map(id, old))  # most items are the same objects, which saves comparing all with all
    return [item for item in after.get(field) or () if id(item) not in kept and item not in old]


def _spark_version(application: Mapping[str, Any]) -> tuple[int, int]:
    """The application's Spark, by ``sparkVersion``; a new one if it cannot be read."""
    match = re.match(r"v?(\d{1,9})\.(\d{1,9})", str(application.get("sparkVersion") or ""))
    return (int(match[1]), int(match[2])) if match else (4, 0)


def _decommission(ctx: PlaceContext, at: Path) -> str:
    """Let an executor with a notice move its blocks first; returns how, for the report."""
    if _spark_version(ctx.editor.get(at)) < (3, 1):
        text = (
            "executor: Spark before 3.1 cannot decommission executors, so their shuffle data is lost and computed again"
        )
        ctx.add_finding(Level.WARNING, (*at, "sparkVersion"), text)
        return ""
    conf = ctx.editor.get((*at, "sparkConf")) or {}
    if str(conf.get(_DECOMMISSION[0], "true")) != "true":
        text = "executor: spark.decommission.enabled is off, so blocks of an interrupted executor are computed again"
        ctx.add_finding(Level.NOTE, (*at, "sparkConf", _DECOMMISSION[0]), text)
        return ""
    for key in _DECOMMISSION:
        if key not in conf:
            ctx.editor.add((*at, "sparkConf", key), "true")
    return "; with a notice, an executor moves its blocks to others first"


def _settle_restarts(ctx: PlaceContext, at: Path, spot: Sequence[Placed]) -> str:
    """Write the retry limit of a failed application; returns the effect of a failure."""
    policy = max((placed.policy for placed in spot), key=lambda p: p.max_interruptions + p.retries)
    total, path = policy.max_interruptions + policy.retries, (*at, "restartPolicy")
    kind = write_unless_set(ctx, (*path, "type"), "OnFailure")
    if kind == "Never":
        text = "restartPolicy Never stays (--replace-retries): an application that an interruption fails is not submitted again"
        ctx.add_finding(Level.WARNING, (*path, "type"), text)
        return "if the application fails by it, it is not submitted again"
    if kind == "Always":
        text = "restartPolicy Always stays (--replace-retries): the application is submitted again after every end, without bound"
        ctx.add_finding(Level.WARNING, (*path, "type"), text)
        return "if the application fails by it, it is submitted again, as after every end"
    in_force = write_unless_set(ctx, (*path, "onFailureRetries"), total)
    text = counting_text("onFailureRetries", policy)
    if in_force != total:
        text = f"onFailureRetries {in_force} stays; the policy allows {total} (--replace-retries); it counts both"
    ctx.add_finding(Level.WARNING, (*path, "onFailureRetries"), text)
    _write_interval(ctx, (*path, "onFailureRetryInterval"), policy)
    return f"if the application fails by it, it is submitted again, counted, with errors, against onFailureRetries {in_force}"


def _write_interval(ctx: PlaceContext, path: Path, policy: Policy) -> None:
    """Write the wait before a retry if the policy sets one; the operator's default is 5 s, growing with each retry."""
    is_set = policy.sources.get("errors.backoff", BUILT_IN.source) != BUILT_IN.source
    if is_set and ctx.editor.get(path) is None:
        ctx.editor.add(path, max(1, math.ceil(policy.error_backoff.first)))


_POLICY = dict.fromkeys(
    (
        *("type", "onFailureRetries", "onFailureRetryInterval"),
        *("onSubmissionFailureRetries", "onSubmissionFailureRetryInterval"),
    )
)


def _retries(top: str) -> RetryFields:
    """The retry fields of an application at this path. Source: the custom resource definitions of spark-operator v2.5."""
    above: dict[str, tuple[str, ...]] = {} if top == "spec" else {"spec": ()}
    levels = {top: ("restartPolicy", "failureRetries"), f"{top}.driver": (), f"{top}.executor": ()}
    policy = f"{top}.restartPolicy"
    words = (Words(f"{policy}.type", ("Never", "Always", "OnFailure")),)
    return RetryFields(f"{policy}.onFailureRetries", {**above, **levels}, {policy: _POLICY}, words)


def _executors(data: Mapping[str, Any], path: Path) -> int | None:
    """The executors at one time; with dynamic allocation, the most. Source: Apache Spark, "Configuration"."""
    allocation = value_at(data, (*path[:-1], "dynamicAllocation")) or {}
    if allocation.get("enabled") is True:
        return whole_number(allocation.get("maxExecutors"))
    return number_at(data, (*path, "instances"), 2)


def _claims(data: Mapping[str, Any], path: Path) -> Iterator[Claim]:
    """The claims of an application that a role mounts, and those in the pod template of the role."""
    role = value_at(data, path)
    mounts = role.get("volumeMounts") if isinstance(role, dict) else None
    mounted = {str(value_at(one, ("name",))) for one in mounts} if isinstance(mounts, list) else set()
    yield from (one for one in claims_in(data, (*path[:-1], "volumes")) if one.volume in mounted)
    yield from claims_in(data, (*path, "template", "spec", "volumes"))


def _kind(name: str, spec: str, place: PlaceObject, **more: Any) -> Kind:
    return Kind(
        group="sparkoperator.k8s.io",
        name=name,
        version="v1beta2",
        place=place,
        places=(
            pods_at(f"{spec}.driver", "H", PodRole.COORDINATOR, read=_read, at_once=one_pod),
            pods_at(f"{spec}.executor", "H", read=_read, at_once=_executors),
        ),
        claims=_claims,
        retries=_retries(spec),
        mechanisms=(_SPARK,),
        annotations=("annotations",),
        reads=Reads.OBJECTS,
        page="sparkapplication",
        top=tuple(spec.split(".")),
        may_change=spec != "spec",
        **more,
    )


KINDS = (
    _kind(
        "SparkApplication",
        "spec",
        _place_application,
        notes=(
            "Executors go to spot; the driver stays on on-demand, because the application is lost with it. Only "
            "`policy.tasks` can move the driver.\n"
            "Spark starts another executor and runs the lost tasks again. `sparkConf` gets "
            "`spark.decommission.enabled` and the settings to move blocks after a notice (Spark 3.1), unless you "
            "turned it off.\n"
            "If the application fails, the operator submits it again: `onFailureRetries` counts interruptions and "
            "errors together.\n"
            "The operator's webhook applies tolerations and affinity. Where it is off, they have no effect "
            "(spark-operator#2537). A role with a pod `template` is placed there, because the webhook skips it."
        ),
        tried=(
            "Read in the source of the Spark operator 2.5.2 and checked against its schemas, also by the API "
            "server 1.35.4 (dry run). Its operator was not run."
        ),
    ),
    _kind(
        "ScheduledSparkApplication",
        "spec.template",
        _place_scheduled,
        notes=("The application in `spec.template` is placed like a SparkApplication."),
    ),
    Kind(
        group="sparkoperator.k8s.io",
        name="SparkConnect",
        places=(pods_at("spec.server.template", duty=PodRole.COORDINATOR), pods_at("spec.executor.template")),
    ),
)
