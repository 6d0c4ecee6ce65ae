"""How many pods an object has at once, and which need each other: of every kind what its controller makes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import plain_yaml
from tests.linter.linting import found_in
from tests.placing.placed import FILE, PREFER, SHARED, a_config, at_path

from spotwright import config
from spotwright.errors import InputError
from spotwright.kinds.katib import parse_marked
from spotwright.kinds.kind import Mount, Sharing, all_kinds
from spotwright.kinds.situation import objects_within, pipeline_groups, pod_claims, pod_groups, run_together
from spotwright.kinds.unknown import read_pod_path
from spotwright.linter.linting import lint_text
from spotwright.linter.settings import settings_of
from spotwright.linter.subjects import FileObjects, KubeObject, objects_in, with_inner
from spotwright.manifests.files import is_added, place_text
from spotwright.placing.document_pair import PipelinePair, objects_of
from spotwright.placing.documents import Document, References, parse
from spotwright.placing.patch import data_document
from spotwright.pools.cluster_inventory import PodWork, pod_works

GOLDEN = Path(__file__).parent / "golden"
POD = {"spec": {"containers": [{"name": "main", "image": "i"}]}}


def of(api_version: str, kind: str, spec: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def a_job(**spec: Any) -> dict[str, Any]:
    return {"spec": {**spec, "template": POD}}


def a_set(*jobs: dict[str, Any]) -> dict[str, Any]:
    return {"replicatedJobs": list(jobs)}


PATCHED = {
    "runtimePatches": [{"trainingRuntimeSpec": {"template": {"spec": a_set({"name": "n", "template": a_job()})}}}]
}
COUNTS: list[tuple[dict[str, Any], list[int | None], bool]] = [
    (of("v1", "Pod", POD["spec"]), [1], False),
    (of("batch/v1", "Job", a_job()["spec"]), [1], False),
    (of("batch/v1", "Job", a_job(parallelism=4, completions=3)["spec"]), [3], False),
    (of("batch/v1", "Job", a_job(parallelism=4)["spec"]), [4], False),
    (of("batch/v1", "Job", a_job(parallelism="{{workers}}")["spec"]), [None], False),
    (of("batch/v1", "CronJob", {"jobTemplate": a_job(parallelism=2)}), [2], False),
    (
        of(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            a_set({"name": "l", "template": a_job()}, {"name": "w", "replicas": 2, "template": a_job(parallelism=3)}),
        ),
        [1, 6],
        True,
    ),
    (of("trainer.kubeflow.org/v1alpha1", "TrainJob", {"trainer": {"numNodes": 8}, **PATCHED}), [8], True),
    (of("trainer.kubeflow.org/v1alpha1", "TrainJob", PATCHED), [None], True),
    (
        of(
            "trainer.kubeflow.org/v1alpha1",
            "TrainingRuntime",
            {
                "mlPolicy": {"numNodes": 4},
                "template": {
                    "spec": a_set(
                        {
                            "name": "node",
                            "template": {
                                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                                **a_job(),
                            },
                        },
                        {"name": "data", "template": a_job(parallelism=2)},
                    )
                },
            },
        ),
        [4, 2],
        True,
    ),
    (
        of(
            "kubeflow.org/v1",
            "PyTorchJob",
            {
                "elasticPolicy": {"maxReplicas": 6},
                "pytorchReplicaSpecs": {"Master": {"template": POD}, "Worker": {"replicas": 3, "template": POD}},
            },
        ),
        [1, 6],
        True,
    ),
    (of("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"replicas": 5, "template": POD}]}), [5], True),
    (
        of(
            "ray.io/v1",
            "RayCluster",
            {
                "headGroupSpec": {"template": POD},
                "workerGroupSpecs": [{"replicas": 2, "numOfHosts": 4, "template": POD}],
            },
        ),
        [1, 8],
        False,
    ),
    (
        of(
            "ray.io/v1",
            "RayCluster",
            {"enableInTreeAutoscaling": True, "workerGroupSpecs": [{"replicas": 1, "maxReplicas": 9, "template": POD}]},
        ),
        [9],
        False,
    ),
    (
        of(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"replicas": 3, "leaderWorkerTemplate": {"size": 4, "leaderTemplate": POD, "workerTemplate": POD}},
        ),
        [3, 9],
        True,
    ),
    (
        of(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"replicas": 3, "leaderWorkerTemplate": {"size": 4, "workerTemplate": POD}},
        ),
        [12],
        True,
    ),
    (
        of("sparkoperator.k8s.io/v1beta2", "SparkApplication", {"driver": {}, "executor": {"instances": 7}}),
        [1, 7],
        False,
    ),
    (
        of(
            "sparkoperator.k8s.io/v1beta2",
            "SparkApplication",
            {"driver": {}, "executor": {}, "dynamicAllocation": {"enabled": True}},
        ),
        [1, None],
        False,
    ),
    (of("apps/v1", "Deployment", {"replicas": 2, "template": POD}), [2], False),
    (of("apps/v1", "DaemonSet", {"template": POD}), [None], False),
    (of("argoproj.io/v1alpha1", "Workflow", {"templates": [{"name": "a", "container": {}}]}), [None], False),
    (of("argoproj.io/v1alpha1", "Workflow", {"templates": [{"name": "a", "steps": []}]}), [], False),
    (of("keda.sh/v1alpha1", "ScaledJob", {"jobTargetRef": a_job(parallelism=2)["spec"]}), [200], False),
    ({"apiVersion": "v1", "kind": "PodTemplate", "template": POD}, [None], False),
    (of("example.com/v1", "Unheard", {"template": POD}), [], False),
]


@pytest.mark.parametrize(
    ("data", "counts", "is_gang"), COUNTS, ids=lambda value: value["kind"] if isinstance(value, dict) else ""
)
def test_an_object_has_as_many_pods_at_once_as_its_controller_makes(
    data: dict[str, Any], counts: list[int | None], is_gang: bool
) -> None:
    groups = list(pod_groups(data))
    assert [one.at_once for one in groups] == counts
    assert {one.is_gang for one in groups} <= {is_gang}


def test_every_place_of_pods_in_a_record_leads_to_pods_in_the_golden_files() -> None:
    seen = set()
    for file in sorted(GOLDEN.rglob("in.yaml")):
        for data in plain_yaml.load_all(file.read_text()):
            for group in pod_groups(data) if isinstance(data, dict) else ():
                seen.add((data["apiVersion"].rpartition("/")[0], data["kind"]))
                value = at_path(data, ".".join(map(str, group.path))) if group.path else data
                assert isinstance(value, dict), (file, group.path)
                assert group.place.form != "T" or "containers" in (value.get("spec") or {}), (file, group.path)
    assert seen <= all_kinds().keys()
    assert len(seen) > 15


CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Gi}}}
---
"""


def test_a_claim_of_one_pod_is_too_few_for_the_workers_of_every_kind() -> None:
    pod = {
        "containers": POD["spec"]["containers"],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    template = {"spec": pod}
    for data in (
        of("batch/v1", "Job", {"parallelism": 2, "template": template}),
        of(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            a_set({"name": "w", "replicas": 2, "template": {"spec": {"template": template}}}),
        ),
        of("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"name": "w", "replicas": 2, "template": template}]}),
        of("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}}),
        of(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"size": 3, "workerTemplate": template}},
        ),
        of("ray.io/v1", "RayCluster", {"workerGroupSpecs": [{"groupName": "w", "replicas": 2, "template": template}]}),
        a_step_with_claim(pod["volumes"], [[A_LOOP]]),
        a_step_with_claim(pod["volumes"], [[step("1"), step("2")]]),
        of("keda.sh/v1alpha1", "ScaledJob", {"jobTargetRef": {"template": template}}),
        of(
            "workload.codeflare.dev/v1beta2",
            "AppWrapper",
            {"components": [{"template": of("batch/v1", "Job", {"parallelism": 2, "template": template})}]},
        ),
    ):
        found = found_in(CLAIM + plain_yaml.dump_all([data]))
        assert "claim-of-one-node-shared" in {one.rule for one in found}, data["kind"]


def a_step_with_claim(volumes: Any, steps: Any) -> dict[str, Any]:
    work = {"name": "a", "container": {"image": "i", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}}
    return a_workflow({}, volumes=volumes, templates=[{"name": "main", "steps": steps}, work])


def test_steps_that_follow_each_other_may_have_one_claim() -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    found = found_in(CLAIM + plain_yaml.dump_all([a_step_with_claim(volumes, [[step("1")], [step("2")]])]))
    assert "claim-of-one-node-shared" not in {one.rule for one in found}


MOUNTING = {"container": {"image": "i", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}}
IN_A_LOOP = [[{"name": "all", "template": "each", "withItems": [1, 2, 3]}]]
ALONE: dict[str, list[dict[str, Any]]] = {
    "a mutex around the step": [
        {"name": "main", "steps": IN_A_LOOP},
        {
            "name": "each",
            "synchronization": {"mutexes": [{"name": "m"}]},
            "steps": [[{"name": "1", "template": "a"}], [{"name": "2", "template": "a"}]],
        },
    ],
    "a semaphore around the step": [
        {"name": "main", "steps": IN_A_LOOP},
        {
            "name": "each",
            "synchronization": {"semaphores": [{"configMapKeyRef": {"name": "c", "key": "k"}}]},
            "steps": [[{"name": "1", "template": "a"}]],
        },
    ],
    "a condition on the item": [
        {"name": "main", "steps": [[{"name": "1", "template": "a", "withItems": [1, 2], "when": "{{item}} == 2"}]]}
    ],
    "a target": [
        {"name": "main", "dag": {"target": "1", "tasks": [{"name": name, "template": "a"} for name in ("1", "2")]}}
    ],
}


@pytest.mark.parametrize("name", ALONE)
def test_steps_of_which_one_is_there_at_one_time_may_have_one_claim(name: str) -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    data = a_workflow({}, volumes=volumes, templates=[*ALONE[name], {"name": "a", **MOUNTING}])
    assert "claim-of-one-node-shared" not in {one.rule for one in found_in(CLAIM + plain_yaml.dump_all([data]))}


@given(st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=7))
def test_of_tasks_as_many_are_there_at_one_time_as_none_of_which_waits_for_another(after: list[set[int]]) -> None:
    needs = {index: {one for one in some if one < index} for index, some in enumerate(after)}
    for some in needs.values():  # in the order of the list, so that what a task waits for is whole already
        some |= {far for one in some for far in needs[one]}
    tasks = [
        step(str(index), dependencies=[str(one) for one in some if one < index]) for index, some in enumerate(after)
    ]
    group, _ = pod_groups(a_workflow({"dag": {"tasks": tasks}}))

    def are_free(some: tuple[int, ...]) -> bool:
        return all(a not in needs[b] and b not in needs[a] for a, b in combinations(some, 2))

    sizes = [size for size in range(1, len(after) + 1) if any(map(are_free, combinations(needs, size)))]
    assert group.at_once == max(sizes)


@pytest.mark.parametrize(
    "odd", [None, "x", 1, [], [None], {"metadata": {"labels": "x"}}, {"spec": {"template": "x"}}], ids=repr
)
def test_an_object_of_another_shape_has_no_pods_or_unknown_ones(odd: Any) -> None:
    for group, name in all_kinds():
        for spec in (
            odd,
            {"template": odd},
            {"replicatedJobs": [odd]},
            {"template": {"spec": {"replicatedJobs": [{"template": odd}]}}},
            {"templates": [odd, {"steps": odd}, {"steps": [odd]}, {"dag": {"tasks": odd}}], "entrypoint": odd},
            {"pipelineSpec": {"tasks": odd}, "taskRunSpecs": odd, "workspaces": odd, "volumes": odd},
            {
                "pipelineSpec": {"tasks": [{"name": odd, "workspaces": odd, "taskSpec": odd}], "finally": [odd]},
                "taskRunSpecs": [{"pipelineTaskName": odd, "podTemplate": odd}],
                "workspaces": [*TWO_CLAIMS, {"name": odd, "persistentVolumeClaim": odd}],
            },
            {"tasks": [{"template": odd}], "volumes": [odd], "parallelism": odd, "hooks": odd},
        ):
            mounted_in({"apiVersion": f"{group}/v1".lstrip("/"), "kind": name, "spec": spec})


def mounted_in(data: Mapping[str, Any]) -> list[str]:
    return [claim.name for group in pod_groups(data) for claim in pod_claims(data, group)]


FIELDS = {"affinity", "terminationGracePeriodSeconds", "tolerations"}
"""The fields of a pod spec that placement writes there and nowhere else."""


def changed(before: Any, after: Any, path: Any = ()) -> Iterator[Any]:
    """The paths of the scalars that are new, or others than before; new items of a list are in front of the old ones."""
    if isinstance(after, dict):
        for key, value in after.items():
            yield from changed(before.get(key) if isinstance(before, dict) else None, value, (*path, key))
    elif isinstance(after, list):
        old = before if isinstance(before, list) else []
        new = len(after) - len(old)
        for index, value in enumerate(after):
            yield from changed(old[index - new] if index >= new else None, value, (*path, index))
    elif after != before:
        yield path


def edited_specs(before: Document, after: Document, held: Sequence[KubeObject]) -> Iterator[tuple[str, Any]]:
    """The pod specs that were edited in a document and in its texts: each as the text of its document, and its path there."""
    texts = {one.document.text for one in held}
    for path in changed(before.get(()), after.get(())):
        fields = [depth for depth, step in enumerate(path) if step in FIELDS]
        value = after.get(path)
        if fields:
            yield after.text, path[: fields[0]]
        elif isinstance(value, str) and value in texts:
            inner = zip(parse_marked(before.get(path), FILE), parse_marked(value, FILE), strict=True)
            for old, new in inner:
                yield from edited_specs(old, new, held)


def assert_named(text: str, placed: str, beside: str = "") -> int:
    """Check that the situation names every pod spec that was edited, and count them."""
    objects = FileObjects()
    for document in parse(beside, "beside.yaml"):
        list(objects_in(document, objects))
    documents, found = [one for one in objects_of(parse(placed, FILE)) if not is_added(one)], 0
    tops = [list(objects_in(one, objects)) for one in documents]
    for old, new, outers in zip(objects_of(parse(text, FILE)), documents, tops, strict=True):
        held = [one for outer in outers for one in with_inner(outer)]
        named = {(one.document.text, one.at(*group.spec)) for one in held for group in pod_groups(one.value)}
        if isinstance(new, PipelinePair):
            named = {(new.text, group.spec) for group in pipeline_groups(new.get(()))}
        edited = set(edited_specs(old, new, held))
        lost = [(text, path) for text, path in edited - named if (text, outside_of_template(path)) not in named]
        assert not lost, new.get(("kind",), "")
        found += len(edited)
    return found


def outside_of_template(path: Any) -> Any:
    """The path of a role of Spark, of whose pods a template inside of it is a part."""
    return path[:-2] if path[-2:] == ("template", "spec") and path[-3] in ("driver", "executor") else path


WITHOUT_PODS = {"resourceflavor"}


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir()))
def test_the_situation_names_every_pod_spec_that_is_edited_in_the_golden_files(name: str) -> None:
    beside, (text, placed) = (
        GOLDEN / name / "with.yaml",
        ((GOLDEN / name / one).read_text() for one in ("in.yaml", "out.yaml")),
    )
    found = assert_named(text, placed, beside.read_text() if beside.exists() else "")
    assert (found == 0) == (name in WITHOUT_PODS)


CORPUS = sorted(path for folder in ("manifests", "cases") for path in (SHARED / folder).rglob("*.yaml"))


@pytest.mark.skipif(not CORPUS, reason="the upstream manifests are not beside this project")
def test_the_situation_names_every_pod_spec_that_is_edited_in_manifests_of_others() -> None:
    found, settings = 0, a_config(PREFER)
    references = References(
        [one for path in CORPUS if path.parent.name == "manifests" for one in parse(path.read_text(), path.name)]
    )
    for path in CORPUS:
        text = path.read_text()
        with suppress(InputError):
            placed = place_text(text, FILE, settings, references).text
            found += assert_named(text, placed)
    assert found > 80


ON_SPOT = """\
apiVersion: batch/v1
kind: Job
metadata: {generateName: train-}
spec:
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}
      containers: [{name: main, image: "train:1"}]
"""


def indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


STEP = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {{name: w}}
spec:
  templates:
  - name: send
    resource:
      action: create
      manifest: {manifest}
"""
HOLDERS = {
    "a trial": "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nmetadata: {name: w}\nspec:\n  trialTemplate:\n"
    "    trialSpec:\n" + indented(ON_SPOT.replace("metadata: {generateName: train-}\n", ""), 6),
    "an AppWrapper": "apiVersion: workload.codeflare.dev/v1beta2\nkind: AppWrapper\nmetadata: {name: w}\nspec:\n  components:\n"
    "  - template:\n" + indented(ON_SPOT, 6),
    "a step": STEP.format(manifest="|\n" + indented(ON_SPOT, 8)),
    "a quoted text in a step": STEP.format(manifest=json.dumps(ON_SPOT)),
    "a step in an AppWrapper": "apiVersion: workload.codeflare.dev/v1beta2\nkind: AppWrapper\nmetadata: {name: w}\nspec:\n"
    "  components:\n  - template:\n" + indented(STEP.format(manifest="|\n" + indented(ON_SPOT, 8)), 6),
    "a ConfigMap": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: trials}\ndata:\n  job: |\n"
    + indented(ON_SPOT, 4)
    + "---\napiVersion: kubeflow.org/v1beta1\nkind: Experiment\nmetadata: {name: w}\n"
    "spec: {trialTemplate: {configMap: {configMapName: trials, configMapNamespace: a, templatePath: job}}}\n",
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_lint_finds_in_an_object_inside_another_what_it_finds_in_it_alone(holder: str) -> None:
    rule = "affinity-without-toleration"
    [alone] = [one for one in found_in(ON_SPOT) if one.rule == rule]
    [inside] = [one for one in found_in(HOLDERS[holder]) if one.rule == rule]
    [line] = [number for number, text in enumerate(HOLDERS[holder].splitlines(), 1) if "nodeSelector" in text]

    assert inside.text.partition(" asks")[2] == alone.text.partition(" asks")[2]
    assert inside.line == line
    assert inside.can_fix == ("step" not in holder and "ConfigMap" not in holder)


def test_a_text_that_is_no_manifest_is_no_object() -> None:
    text = STEP.format(manifest='"{{inputs.parameters.manifest}}"')
    assert "affinity-without-toleration" not in {one.rule for one in found_in(text)}


UNKNOWN = ON_SPOT.replace("batch/v1", "example.com/v1")


def test_pods_of_an_unknown_kind_are_named_as_not_checked_until_their_path_is_given() -> None:
    [note] = [one for one in found_in(UNKNOWN) if one.rule == "pods-not-checked"]
    assert note.fix == "Name the path of the pod spec: --pod-path spec.template.spec."

    settings = settings_of(config.built_in(), (read_pod_path("spec.template.spec"),))
    rules = {one.rule for one in lint_text(UNKNOWN, FILE, settings).findings}
    assert "affinity-without-toleration" in rules
    assert "pods-not-checked" not in rules


VOLUMES = [
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
    {"name": "none", "emptyDir": {}},
]
MOUNTS = [
    {"name": "data", "mountPath": "/data", "subPath": "a"},
    {"name": "own", "mountPath": "/own", "readOnly": True},
]
MOUNTED = {"containers": [{"name": "main", "volumeMounts": MOUNTS}], "volumes": VOLUMES}
OWN = [{"metadata": {"name": "own"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
DATA, SCRATCH = ("data", Sharing.NAMED, (Mount("/data", "a"),)), ("scratch", Sharing.POD, ())
STEP_WITH_VOLUMES = {"name": "a", "container": {"volumeMounts": MOUNTS}}
CLAIMS: list[tuple[dict[str, Any], list[Any]]] = [
    (of("batch/v1", "Job", {"template": {"spec": MOUNTED}}), [DATA, SCRATCH]),
    (
        of("apps/v1", "StatefulSet", {"template": {"spec": MOUNTED}, "volumeClaimTemplates": OWN}),
        [DATA, SCRATCH, ("own", Sharing.POD, (Mount("/own", is_read_only=True),))],
    ),
    (
        of(
            "argoproj.io/v1alpha1",
            "Workflow",
            {"volumes": VOLUMES, "volumeClaimTemplates": OWN, "templates": [STEP_WITH_VOLUMES]},
        ),
        [DATA, ("own", Sharing.OBJECT, (Mount("/own", is_read_only=True),))],
    ),
    (
        of(
            "argoproj.io/v1alpha1",
            "Workflow",
            {"volumes": VOLUMES, "templates": [{"name": "a", "container": {}}]},
        ),
        [],
    ),
    (
        of(
            "batch.volcano.sh/v1alpha1",
            "Job",
            {
                "volumes": [
                    {"mountPath": "/a", "volumeClaimName": "data"},
                    {"mountPath": "/b", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}},
                ],
                "tasks": [{"template": POD}],
            },
        ),
        [("data", Sharing.NAMED, (Mount("/a"),)), ("volumes[1]", Sharing.OBJECT, (Mount("/b"),))],
    ),
    (
        of(
            "sparkoperator.k8s.io/v1beta2",
            "SparkApplication",
            {"volumes": VOLUMES, "driver": {"volumeMounts": MOUNTS}, "executor": {}},
        ),
        [DATA],
    ),
    (
        of(
            "tekton.dev/v1",
            "TaskRun",
            {"podTemplate": {}, "workspaces": [{"name": "w", "persistentVolumeClaim": {"claimName": "data"}}]},
        ),
        [("data", Sharing.NAMED, (Mount("/workspace/w"),))],
    ),
]


@pytest.mark.parametrize(("data", "claims"), CLAIMS, ids=lambda value: value["kind"] if isinstance(value, dict) else "")
def test_the_claims_of_pods_are_those_that_they_mount_of_each_level(data: dict[str, Any], claims: list[Any]) -> None:
    found = [one for group in pod_groups(data) for one in pod_claims(data, group)]
    assert [(one.name, one.sharing, one.mounts) for one in found] == claims
    assert all(at_path(data, ".".join(map(str, one.path))) is not None for one in found)


def test_the_claims_of_objects_inside_another_are_mounted_too() -> None:
    inner = {**of("batch/v1", "Job", {"template": {"spec": MOUNTED}}), "kind": "Job"}
    outer = of("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"template": inner}]})
    (held,) = objects_within(data_document(outer, ""), (), outer)
    assert mounted_in(held.value) == ["data", "scratch"]


def test_a_workflow_of_many_ways_is_not_told_and_takes_no_time() -> None:
    def double(depth: int) -> list[dict[str, Any]]:
        steps = [
            {"name": f"a{index}", "steps": [[{"name": str(n), "template": f"a{index + 1}"} for n in "xy"]]}
            for index in range(depth)
        ]
        return [*steps, {"name": f"a{depth}", "suspend": {}}, {"name": "pod", "container": {}}]

    def chain(length: int) -> list[dict[str, Any]]:
        called = [
            {"name": f"a{index}", "steps": [[{"name": "x", "template": f"a{index + 1}"}]]} for index in range(length)
        ]
        return [*called, {"name": f"a{length}", "container": {}}]

    spec = {"entrypoint": "a0"}
    for templates in (double(40), chain(2000)):
        group = next(iter(pod_groups(of("argoproj.io/v1alpha1", "Workflow", {**spec, "templates": templates}))))
        assert (group.at_once, group.runs) == (None, ())
    serial = [
        {"name": "a0", "steps": [[{"name": str(n), "template": "pod"}] for n in range(600)]},
        {"name": "pod", "container": {}},
    ]
    (group,) = pod_groups(of("argoproj.io/v1alpha1", "Workflow", {**spec, "templates": serial}))
    assert (group.at_once, len(group.runs)) == (None, 600)


@pytest.mark.parametrize(
    "count", ["9" * 5000, 10**5000, "{{inputs.parameters.n}}", "-1"], ids=["text", "number", "parameter", "negative"]
)
def test_a_sequence_whose_count_is_not_read_is_not_known(count: Any) -> None:
    step = {"name": "x", "template": "pod", "withSequence": {"count": count}}
    templates = [{"name": "a0", "steps": [[step]]}, {"name": "pod", "container": {}}]
    (group,) = pod_groups(of("argoproj.io/v1alpha1", "Workflow", {"entrypoint": "a0", "templates": templates}))
    assert group.at_once is None


def a_workflow(main: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A workflow whose entrypoint is ``main``, with two templates of one container each."""
    steps: list[dict[str, Any]] = [{"name": name, "container": {}} for name in ("a", "b")]
    return of(
        "argoproj.io/v1alpha1",
        "Workflow",
        {"entrypoint": "main", "templates": [{"name": "main", **main}, *steps], **spec},
    )


def step(name: str, template: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "template": template, **more}


def a_workflow_of(main: dict[str, Any], each: dict[str, Any], **more: dict[str, Any]) -> dict[str, Any]:
    """A workflow with a template ``each`` between its entrypoint and its pods; ``more`` has fields of templates."""
    templates: dict[str, Any] = {"main": main, "each": each, "a": {"container": {}}, "b": {"container": {}}}
    named = [{"name": name, **template, **more.get(name, {})} for name, template in templates.items()]
    return a_workflow({}, templates=named)


A_LOOP = step("1", withItems=[1, 2, 3])
EACH = {"steps": [[step("all", "each", withItems=[1, 2, 3])]]}
TWO_STEPS = {"steps": [[step("1")], [step("2", "b")]]}


def locked(**lock: Any) -> dict[str, Any]:
    return {"synchronization": lock}


MUTEX = locked(mutexes=[{"name": "m"}])
WORKFLOWS: dict[str, tuple[dict[str, Any], list[int | None], bool | None]] = {
    "steps beside each other": (a_workflow({"steps": [[step("1"), step("2", "b")]]}), [1, 1], True),
    "steps one after the other": (a_workflow({"steps": [[step("1")], [step("2", "b")]]}), [1, 1], False),
    "the same template twice": (a_workflow({"steps": [[step("1"), step("2")], [step("3", "b")]]}), [2, 1], False),
    "one after the other": (a_workflow({"steps": [[step("1")], [step("2")]]}), [1, None], None),
    "a loop": (a_workflow({"steps": [[A_LOOP, step("2", "b")]]}), [3, 1], True),
    "a loop with a limit": (a_workflow({"parallelism": 2, "steps": [[A_LOOP]]}), [2, None], None),
    "a loop one by one": (a_workflow({"parallelism": 1, "steps": [[A_LOOP, step("2", "b")]]}), [1, 1], False),
    "a limit of the workflow": (a_workflow({"steps": [[A_LOOP, step("2", "b")]]}, parallelism=2), [2, 1], True),
    "a workflow one by one": (a_workflow({"steps": [[A_LOOP, step("2", "b")]]}, parallelism=1), [1, 1], False),
    "items of the run": (a_workflow({"steps": [[step("1", withParam="{{x}}"), step("2", "b")]]}), [None, 1], True),
    "a sequence": (a_workflow({"steps": [[step("1", withSequence={"count": "4"})]]}), [4, None], None),
    "a sequence of the run": (a_workflow({"steps": [[step("1", withSequence={"end": "{{n}}"})]]}), [None, None], None),
    "tasks": (
        a_workflow(
            {"dag": {"tasks": [step("1"), step("2", dependencies=["1"]), step("3", "b", depends="2 || 1.Failed")]}}
        ),
        [1, 1],
        False,
    ),
    "tasks beside each other": (
        a_workflow({"dag": {"tasks": [step("1"), step("2", depends="1"), step("3", "b", depends="1")]}}),
        [1, 1],
        True,
    ),
    "of four tasks": (
        a_workflow(
            {"dag": {"tasks": [step("1"), step("2", depends="1"), step("3", depends="1"), step("4", depends="2 && 3")]}}
        ),
        [2, None],
        None,
    ),
    "branches": (a_workflow({"steps": [[step("1", when="x"), step("2", "b", when="!x")]]}), [1, 1], None),
    "an exit handler": (a_workflow({"steps": [[step("1")]]}, onExit="b"), [1, 1], False),
    "a hook": (a_workflow({"steps": [[step("1", hooks={"exit": {"template": "b"}})]]}), [1, None], None),
    "a workflow that calls itself": (a_workflow({"steps": [[step("1"), step("2", "main")]]}), [None, None], None),
    "no entrypoint": (a_workflow({"steps": [[step("1")]]}, entrypoint="{{x}}"), [None, None], None),
    "iterations of two steps": (
        a_workflow(
            {"steps": [[step("all", "each", withItems=[1, 2])]]},
            templates=[
                {"name": "main", "steps": [[step("all", "each", withItems=[1, 2])]]},
                {"name": "a", "container": {}},
                {"name": "b", "container": {}},
                {"name": "each", "steps": [[step("1")], [step("2", "b")], [step("3")]]},
            ],
        ),
        [2, 2],
        True,
    ),
    "a loop over a template with a mutex": (a_workflow_of(EACH, {**TWO_STEPS, **MUTEX}), [1, 1], False),
    "a loop in a template with a mutex": (
        a_workflow_of(EACH, {"steps": [[A_LOOP, step("2", "b")]], **locked(mutex={"name": "m"})}),
        [3, 1],
        True,
    ),
    "a loop over templates with mutexes of their own": (
        a_workflow_of(EACH, TWO_STEPS, a=MUTEX, b=locked(mutexes=[{"name": "n"}])),
        [1, 1],
        True,
    ),
    "a loop over templates with one mutex": (a_workflow_of(EACH, TWO_STEPS, a=MUTEX, b=MUTEX), [1, 1], False),
    "a mutex of one of two": (a_workflow_of(EACH, TWO_STEPS, a=MUTEX), [1, 3], True),
    "steps beside each other with one mutex": (
        a_workflow_of({"steps": [[step("1"), step("2", "b")]]}, {}, a=MUTEX, b=MUTEX),
        [1, 1],
        False,
    ),
    "two steps of a template with a mutex": (
        a_workflow_of({"steps": [[step("1"), step("2"), step("3", "b")]]}, {}, a=MUTEX),
        [1, 1],
        True,
    ),
    "a mutex of two namespaces": (
        a_workflow_of(
            {"steps": [[step("1"), step("2", "b")]]}, {}, a=MUTEX, b=locked(mutexes=[{"name": "m", "namespace": "n"}])
        ),
        [1, 1],
        True,
    ),
    "a mutex that the run names": (
        a_workflow_of(EACH, {**TWO_STEPS, **locked(mutexes=[{"name": "{{inputs.parameters.x}}"}])}),
        [None, None],
        None,
    ),
    "a loop over a template with a semaphore": (
        a_workflow_of(EACH, {**TWO_STEPS, **locked(semaphores=[{"configMapKeyRef": {}}])}),
        [None, None],
        None,
    ),
    "semaphores for two": (
        a_workflow_of(
            {"steps": [[step("1"), step("2", "b")]]},
            {},
            **dict.fromkeys("ab", locked(semaphore={"configMapKeyRef": {"name": "c", "key": "k"}})),
        ),
        [None, None],
        None,
    ),
    "a loop over items of one kind": (
        a_workflow({"steps": [[step("1", withItems=[1, 2, 3], when="{{item}} == 1"), step("2", "b")]]}),
        [None, 1],
        True,
    ),
    "loops over items of two kinds": (
        a_workflow(
            {
                "steps": [
                    [
                        step("1", withItems=[{"x": 1}, {"x": 2}], when="{{= item.x == 1 }}"),
                        step("2", "b", withSequence={"count": 3}, when="'{{item}}' == '2'"),
                    ]
                ]
            }
        ),
        [None, None],
        None,
    ),
    "a loop under a condition": (
        a_workflow({"steps": [[{**A_LOOP, "when": "{{inputs.parameters.item}}"}]]}),
        [3, None],
        None,
    ),
    "a loop over steps under a condition of each iteration": (
        a_workflow_of(
            EACH,
            {
                "steps": [
                    [step("1", when="{{inputs.parameters.x}} == 1")],
                    [step("2", "b", when="{{steps.1.status}} == x")],
                ]
            },
        ),
        [None, None],
        None,
    ),
    "a loop over a step under a condition of the workflow": (
        a_workflow_of(EACH, {"steps": [[step("1", when="{{workflow.parameters.x}} == 1")]]}),
        [3, None],
        None,
    ),
    "targets": (
        a_workflow({"dag": {"target": "2 9", "tasks": [step("1"), step("2", depends="1"), step("3", "b")]}}),
        [1, None],
        None,
    ),
    "targets of which one needs all": (
        a_workflow({"dag": {"target": "2  3", "tasks": [step("1"), step("2", depends="1"), step("3", "b")]}}),
        [1, 1],
        True,
    ),
    "targets of the run": (
        a_workflow({"dag": {"target": "{{inputs.parameters.x}}", "tasks": [step("1"), step("2", "b")]}}),
        [1, 1],
        None,
    ),
    "a daemon": (
        a_workflow(
            {},
            templates=[
                {"name": "main", "steps": [[step("1")], [step("2", "b")]]},
                {"name": "a", "daemon": True, "container": {}},
                {"name": "b", "container": {}},
            ],
        ),
        [1, 1],
        True,
    ),
}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_steps_are_there_at_one_time_unless_they_follow_each_other(name: str) -> None:
    data, counts, together = WORKFLOWS[name]
    one, other = pod_groups(data)
    assert [one.at_once, other.at_once] == counts
    assert run_together(one, other) is together
    assert run_together(other, one) is together


def test_replicated_jobs_that_wait_for_the_completion_of_others_are_not_there_with_them() -> None:
    after = {"dependsOn": [{"name": "l", "status": "Complete"}]}
    jobs: list[dict[str, Any]] = [
        {"name": "l", "template": a_job()},
        {"name": "w", "template": a_job(), **after},
        {"name": "x", "template": a_job()},
    ]
    first, second, third = pod_groups(of("jobset.x-k8s.io/v1alpha2", "JobSet", a_set(*jobs)))
    assert run_together(first, second) is False
    assert run_together(second, third) is True


def test_tasks_of_a_pipeline_run_are_there_at_one_time_unless_they_follow_each_other() -> None:
    matrix = {"params": [{"name": name, "value": ["1", "2"]} for name in ("x", "y")]}
    tasks = [
        {"name": "a"},
        {"name": "b", "runAfter": ["a"], "matrix": matrix},
        {"name": "c", "params": [{"name": "x", "value": "$(tasks.b.results.y)"}]},
    ]
    own: list[Any] = [{"pipelineTaskName": name, "podTemplate": {"nodeSelector": {}}} for name in ("b", "c")]
    spec = {"taskRunTemplate": {"podTemplate": {"x": 1}}, "taskRunSpecs": own, "pipelineSpec": {"tasks": tasks}}
    first, second, third = pod_groups(of("tekton.dev/v1", "PipelineRun", spec))
    assert [one.at_once for one in (first, second, third)] == [1, 4, 1]
    assert {run_together(a, b) for a, b in ((first, second), (second, third), (first, third))} == {False}


TWO_CLAIMS = [{"name": name, "persistentVolumeClaim": {"claimName": f"pvc-{name}"}} for name in ("a", "b")]
OWN_TEMPLATES: list[dict[str, Any]] = [{"pipelineTaskName": name, "podTemplate": {}} for name in ("x", "y")]


def a_pipeline_run(*tasks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A PipelineRun with two claims, whose tasks x and y have pod templates of their own."""
    whole = {"workspaces": TWO_CLAIMS, "taskRunSpecs": OWN_TEMPLATES, "pipelineSpec": {"tasks": list(tasks)}, **spec}
    return of("tekton.dev/v1", "PipelineRun", whole)


BOUND: dict[str, tuple[dict[str, Any], list[list[tuple[str, tuple[Mount, ...]]]]]] = {
    "each its own": (
        a_pipeline_run(
            {"name": "x", "workspaces": [{"name": "out", "workspace": "a", "subPath": "s"}]},
            {"name": "y", "workspaces": [{"name": "b"}]},
        ),
        [[("pvc-a", (Mount("/workspace/out", "s"),))], [("pvc-b", (Mount("/workspace/b"),))]],
    ),
    "one that its steps name": (
        a_pipeline_run(
            {"name": "x", "taskSpec": {"steps": [{"script": "cd $(workspaces.a.path)"}]}},
            {"name": "y", "workspaces": [{"name": "b", "workspace": "$(params.which)"}]},
        ),
        [[("pvc-a", (Mount("/workspace/a"),))], []],
    ),
    "by the template of all tasks": (
        a_pipeline_run(
            {"name": "x", "workspaces": [{"name": "a"}]},
            {"name": "y"},
            taskRunSpecs=[],
            taskRunTemplate={"podTemplate": {}},
        ),
        [[("pvc-a", (Mount("/workspace/a"),))]],
    ),
    "a pipeline elsewhere": (
        a_pipeline_run(pipelineSpec=None, pipelineRef={"name": "p"}, taskRunTemplate={"podTemplate": {}}),
        [[("pvc-a", ()), ("pvc-b", ())], [], []],
    ),
}


@pytest.mark.parametrize("name", BOUND)
def test_a_task_has_the_claims_of_the_workspaces_that_it_binds(name: str) -> None:
    data, claims = BOUND[name]
    found = [[(one.name, one.mounts) for one in pod_claims(data, group)] for group in pod_groups(data)]
    assert found == claims


A, B = ({"workspaces": [{"name": name}]} for name in ("a", "b"))
ALL_TASKS: dict[str, Any] = {"taskRunSpecs": [], "taskRunTemplate": {"podTemplate": {}}}
SHARED_BY_TASKS: dict[str, tuple[dict[str, Any], bool]] = {
    "each its own": (a_pipeline_run({"name": "x", **A}, {"name": "y", **B}), False),
    "both": (a_pipeline_run({"name": "x", **A}, {"name": "y", **A}), True),
    "one after the other": (a_pipeline_run({"name": "x", **A}, {"name": "y", "runAfter": ["x"], **A}), False),
    "each its own, one template": (a_pipeline_run({"name": "x", **A}, {"name": "y", **B}, **ALL_TASKS), False),
    "both, one template": (a_pipeline_run({"name": "x", **A}, {"name": "y", **A}, **ALL_TASKS), True),
    "not beside the task that runs beside another": (
        a_pipeline_run({"name": "x", **A}, {"name": "y", **B}, {"name": "z", "runAfter": ["x"], **A}, **ALL_TASKS),
        False,
    ),
    "one claim by two workspaces": (
        a_pipeline_run(
            {"name": "x", **A},
            {"name": "y", **B},
            workspaces=[{**one, "persistentVolumeClaim": {"claimName": "pvc-a"}} for one in TWO_CLAIMS],
            **ALL_TASKS,
        ),
        True,
    ),
    "twice in one task": (
        a_pipeline_run(
            {"name": "x", "workspaces": [{"name": "a"}, {"name": "b"}]},
            workspaces=[{**one, "persistentVolumeClaim": {"claimName": "pvc-a"}} for one in TWO_CLAIMS],
        ),
        False,
    ),
    "a pipeline elsewhere": (
        a_pipeline_run(pipelineSpec=None, pipelineRef={"name": "p"}, taskRunTemplate={"podTemplate": {}}),
        False,
    ),
    "a task elsewhere": (
        a_pipeline_run({"name": "x", "taskRef": {"name": "t"}, **A}, {"name": "y", "taskRef": {"name": "t"}, **A}),
        True,
    ),
}


@pytest.mark.parametrize("name", SHARED_BY_TASKS)
def test_tasks_share_the_claims_that_several_of_them_bind_at_one_time(name: str) -> None:
    data, is_found = SHARED_BY_TASKS[name]
    claims = "".join(CLAIM.replace("{name: data}", f"{{name: pvc-{one}}}") for one in ("a", "b"))
    found = [one for one in found_in(claims + plain_yaml.dump_all([data])) if one.rule == "claim-of-one-node-shared"]
    assert len(found) == is_found


def test_of_a_task_on_spot_only_the_claims_that_it_binds_are_named() -> None:
    spot = {"nodeSelector": {"cloud.google.com/gke-spot": "true"}}
    data = a_pipeline_run(
        {"name": "x", **A}, {"name": "y", **B}, taskRunSpecs=[{"pipelineTaskName": "x", "podTemplate": spot}]
    )
    claims = "".join(CLAIM.replace("{name: data}", f"{{name: pvc-{one}}}") for one in ("a", "b"))
    [found] = [one for one in found_in(claims + plain_yaml.dump_all([data])) if one.rule == "zonal-volume-on-spot"]
    assert found.text.startswith("PipelineRun w x mounts the claim pvc-a,")


def a_pipeline(**tasks: Any) -> Any:
    """A compiled pipeline with a task of each name; its components are ``work``, ``more`` and a DAG around ``work``."""
    leaves = {name: {"executorLabel": f"exec-{name}"} for name in ("work", "more")}
    inside = {
        "root": {"dag": {"tasks": tasks}},
        "components": {**leaves, "loop": {"dag": {"tasks": {"in": a_task("work")}}}},
    }
    executors = {f"exec-{name}": {"container": {"image": "i"}} for name in leaves}
    mount = {"mountPath": "/data", "pvcNameParameter": {"runtimeValue": {"constant": "data"}}}
    settings = {"exec-work": {"pvcMount": [mount, {"mountPath": "/x", "taskOutputParameter": {}}]}}
    platforms = {"kubernetes": {"deploymentSpec": {"executors": settings}}}
    return [{**inside, "deploymentSpec": {"executors": executors}}, {"platforms": platforms}]


def a_task(component: str, *after: str, items: Any = None, limit: int = 0) -> dict[str, Any]:
    task: dict[str, Any] = {"componentRef": {"name": component}, "dependentTasks": list(after)}
    if items is not None:
        task |= {"parameterIterator": {"items": items}, "iteratorPolicy": {"parallelismLimit": limit}}
    return task


ITEMS = {"raw": "[1, 2, 3]"}
PIPELINES: list[tuple[Any, list[int | None], bool | None]] = [
    (a_pipeline(a=a_task("work"), b=a_task("more")), [1, 1], True),
    (a_pipeline(a=a_task("work"), b=a_task("more", "a")), [1, 1], False),
    (a_pipeline(a=a_task("loop", items=ITEMS), b=a_task("more")), [3, 1], True),
    (a_pipeline(a=a_task("loop", items=ITEMS, limit=2), b=a_task("more", "a")), [2, 1], False),
    (a_pipeline(a=a_task("loop", items={"inputParameter": "x"}), b=a_task("more")), [None, 1], True),
    (a_pipeline(a=a_task("work"), b=a_task("work", "a"), c=a_task("work", "a")), [2, None], None),
    (a_pipeline(a=a_task("work"), b=a_task("nowhere")), [1, None], None),
]


@pytest.mark.parametrize(("pair", "counts", "together"), PIPELINES)
def test_executors_of_a_pipeline_are_there_at_one_time_unless_their_tasks_follow_each_other(
    pair: Any, counts: list[int | None], together: bool | None
) -> None:
    one, other = pipeline_groups(pair)
    assert [one.at_once, other.at_once] == counts
    assert run_together(one, other) is together
    assert [(claim.name, claim.mounts) for claim in pod_claims(pair, one)] == [("data", (Mount("/data"),))]


@pytest.mark.parametrize("odd", [None, "x", 1, [], [None], [{}, {}], [{"root": 1}], [a_pipeline()[0], "x"]], ids=repr)
def test_a_pipeline_of_another_shape_has_no_pods_or_unknown_ones(odd: Any) -> None:
    assert {(one.at_once, *pod_claims(odd, one)) for one in pipeline_groups(odd)} <= {(None,)}


@pytest.mark.parametrize("holder", sorted(HOLDERS.keys() - {"a ConfigMap"}))
def test_the_check_of_pools_sees_the_pods_of_an_object_inside_another(holder: str) -> None:
    [work] = [one for data in plain_yaml.load_all(HOLDERS[holder]) for one in pod_works(data, FILE, config.built_in())]
    assert isinstance(work, PodWork)
    assert work.constraints.selector == {"kubernetes.azure.com/scalesetpriority": "spot"}
