"""Compiled pipelines: each executor gets the placement of its tasks, in the fields of the IR."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests import plain_yaml
from tests.kfp.builders import component, ir, kubernetes, python_container, task
from tests.kinds.kfp.compiled import LABEL, executor, inner, one_task, text_of
from tests.kinds.kfp.policies import POLICY, env
from tests.placing.placed import FILE, PREFER, REQUIRE, a_config, at_path, place, refusal

from spotwright import config
from spotwright.errors import ConfigError, InputError
from spotwright.manifests.files import place_text, unplace_text
from spotwright.manifests.python_api import place as place_object
from spotwright.placing.documents import ManifestError

GOLDEN = Path(__file__).parents[1] / "golden"
SPOT = {"key": "kubernetes.azure.com/scalesetpriority", "operator": "In", "values": ["spot"]}


@pytest.mark.parametrize("case", ["kfp", "kfp-platforms"])
def test_a_pipeline_comes_out_as_the_golden_file_says(case: str) -> None:
    text = (GOLDEN / case / "in.yaml").read_text()

    assert place(text, POLICY).text == (GOLDEN / case / "out.yaml").read_text()


def test_a_missing_platform_document_is_put_behind_the_pipeline() -> None:
    assert list(place(one_task()).documents[1]) == ["platforms"]


def test_the_settings_of_kubernetes_stand_beside_our_own() -> None:
    assert place(one_task()).documents[1]["platforms"].keys() == {"spotwright", "kubernetes"}


def test_without_a_policy_for_spot_a_pipeline_stays_unchanged() -> None:
    text = one_task()

    assert place(text, "{default: {errors: {retries: 2}}}").text == text


def test_the_taints_of_the_pools_are_tolerated() -> None:
    [toleration] = executor(place(one_task()).documents)["tolerations"]

    assert (toleration["key"], toleration["value"]) == (SPOT["key"], "spot")


def test_spot_is_preferred_with_a_weight() -> None:
    [_, preferred] = executor(place(one_task()).documents)["nodeAffinity"]

    assert preferred == {"matchExpressions": [SPOT], "weight": 100}


def test_spot_is_required_without_a_weight() -> None:
    assert executor(place(one_task(), REQUIRE).documents)["nodeAffinity"] == [{"matchExpressions": [SPOT]}]


def test_all_that_is_required_stands_in_one_entry_because_entries_are_alternatives() -> None:
    policy = "{default: {spot: require, ladder: [gpu-spot]}}"
    [entry] = executor(place(one_task(), policy).documents)["nodeAffinity"]

    assert len(entry["matchExpressions"]) == 2


def test_what_is_required_is_joined_to_every_alternative_of_the_user() -> None:
    own = [{"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]} for key in ("a", "b")]
    entries = executor(place(one_task({"nodeAffinity": own}), REQUIRE).documents)["nodeAffinity"]

    assert [SPOT in entry["matchExpressions"] for entry in entries] == [True, True]


def test_what_is_required_is_not_joined_to_what_is_only_preferred() -> None:
    own = [{"matchExpressions": [{"key": "a", "operator": "Exists"}], "weight": 5}]
    entries = executor(place(one_task({"nodeAffinity": own}), REQUIRE).documents)["nodeAffinity"]

    assert entries == [{"matchExpressions": [SPOT]}, *own]


def test_what_is_required_is_joined_to_a_whole_affinity_that_stands_as_a_constant() -> None:
    terms = [{"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}]
    whole = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    own = [{"nodeAffinityJson": {"runtimeValue": {"constant": whole}}}]
    [entry] = executor(place(one_task({"nodeAffinity": own}), REQUIRE).documents)["nodeAffinity"]
    path = "nodeAffinityJson.runtimeValue.constant.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0"

    assert SPOT in at_path(entry, f"{path}.matchExpressions")


@pytest.mark.parametrize("whole", [False, True], ids=["entries", "constant"])
def test_an_alternative_that_matches_no_node_does_not_begin_to(whole: bool) -> None:
    own: list[Any] = [{"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {}]
    constant = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": own}}
    given = [{"nodeAffinityJson": {"runtimeValue": {"constant": constant}}}] if whole else own
    entries = executor(place(one_task({"nodeAffinity": given}), REQUIRE).documents)["nodeAffinity"]
    path = "nodeAffinityJson.runtimeValue.constant.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    first, second = at_path(entries[0], path) if whole else entries

    assert SPOT in first["matchExpressions"]
    assert second == {}


def test_a_ladder_with_both_kinds_extends_alternatives_and_comes_out_again() -> None:
    own = [{"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}]
    placed = place(one_task({"nodeAffinity": own}), "{default: {spot: prefer, ladder: [spot, regular]}}")

    assert len(executor(placed.documents)["nodeAffinity"]) == 2  # place() has tried both ways back


def test_the_selector_of_the_user_stays() -> None:
    own = {"labels": {"kubernetes.azure.com/agentpool": "spot"}}

    assert executor(place(one_task({"nodeSelector": own})).documents)["nodeSelector"] == own


def test_a_selector_that_contradicts_the_policy_is_refused_with_both_places() -> None:
    own = {"nodeSelector": {"labels": {"kubernetes.azure.com/agentpool": "regular"}}}
    message = refusal(one_task(own), REQUIRE)

    assert "train fits no pool with spot: require (spotwright.yaml:" in message


def test_the_pod_carries_the_label_and_the_policy_as_an_annotation() -> None:
    metadata = executor(place(one_task()).documents)["podMetadata"]
    text = metadata["annotations"]["spotwright.dev/policy"]

    assert metadata["labels"] == {"spotwright.dev/spot": "prefer"}
    assert json.loads(text)["interruptions"] == {"max": 10}
    assert "{{" not in text
    assert len(text.encode()) < 1024


def test_secrets_for_images_are_added_to_those_that_are_there() -> None:
    own = {"imagePullSecret": [{"secretName": "mine"}]}
    secrets = executor(place(one_task(own), "{default: {spot: prefer, image_pull_secrets: [mine, acr]}}").documents)

    assert [secret["secretName"] for secret in secrets["imagePullSecret"]] == ["acr", "mine"]


def test_a_timeout_of_the_policy_ends_the_pod() -> None:
    placed = place(one_task(), "{default: {spot: prefer, timeout: 90m}}")

    assert executor(placed.documents)["activeDeadlineSeconds"] == "5400"


def test_a_timeout_of_the_pipeline_stays() -> None:
    placed = place(one_task({"activeDeadlineSeconds": "60"}), "{default: {spot: prefer, timeout: 90m}}")

    assert executor(placed.documents)["activeDeadlineSeconds"] == "60"


def test_the_run_and_the_uid_of_the_pod_come_from_its_fields() -> None:
    fields = {item["name"]: item["fieldPath"] for item in executor(place(one_task()).documents)["fieldPathAsEnv"]}

    assert fields["SPOTWRIGHT_RUN"] == "metadata.labels['pipeline/runid']"
    assert fields["SPOTWRIGHT_POD_UID"] == "metadata.uid"


def test_no_attempt_number_is_taken_from_a_name_that_two_attempts_share() -> None:
    assert "SPOTWRIGHT_ATTEMPT" not in place(one_task(), POLICY).text


def test_task_and_checkpoint_are_variables_of_the_container() -> None:
    given = env(place(one_task(), POLICY).documents)

    assert given["SPOTWRIGHT_TASK"] == "train"
    assert given["SPOTWRIGHT_CHECKPOINT"] == "gs://bucket/ckpt/{{workflow.name}}/train"


def test_a_variable_that_the_user_set_stays() -> None:
    container = python_container(env=[{"name": "SPOTWRIGHT_TASK", "value": "mine"}])
    placed = place(text_of(ir({"train": task("train")}, containers={LABEL: container})))

    assert env(placed.documents) == {"SPOTWRIGHT_TASK": "mine"}


def test_a_claim_for_checkpoints_is_mounted() -> None:
    placed = place(one_task(), "{default: {spot: prefer, checkpoint: 'pvc://ckpt/runs'}}")
    [mount] = executor(placed.documents)["pvcMount"]

    assert (mount["constant"], mount["mountPath"]) == ("ckpt", "/spotwright/checkpoint")
    assert env(placed.documents)["SPOTWRIGHT_CHECKPOINT"].startswith("/spotwright/checkpoint/runs/")


def test_a_claim_that_is_mounted_already_is_used_where_it_is() -> None:
    own = {"pvcMount": [{"constant": "ckpt", "mountPath": "/data"}]}
    placed = place(one_task(own), "{default: {spot: prefer, checkpoint: 'pvc://ckpt'}}")

    assert executor(placed.documents)["pvcMount"] == own["pvcMount"]
    assert env(placed.documents)["SPOTWRIGHT_CHECKPOINT"] == "/data/{{workflow.name}}/train"


def test_the_missing_grace_period_is_reported_once() -> None:
    text = text_of(ir({"a": task("a"), "b": task("b")}))

    assert sum("cannot set a grace period" in messages for messages in place(text).messages) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"tolerations": [{"tolerationJson": {"componentInputParameter": "x"}}]},
        {"nodeSelector": {"nodeSelectorJson": {"componentInputParameter": "x"}}},
        {
            "nodeAffinity": [
                {"nodeAffinityJson": {"taskOutputParameter": {"producerTask": "a", "outputParameterKey": "b"}}}
            ]
        },
    ],
)
def test_where_the_place_is_decided_in_the_run_nothing_is_added(settings: dict[str, Any]) -> None:
    placed = place(one_task(settings))

    assert executor(placed.documents) == settings
    assert placed.reports("train: a parameter decides at run time where it runs")


def test_what_a_task_asks_for_decides_on_its_pools() -> None:
    gpu = python_container(resources={"accelerator": {"resourceType": "nvidia.com/gpu", "resourceCount": "1"}})
    text = text_of(ir({"train": task("train"), "load": task("load")}, containers={LABEL: gpu}))
    roles = place(text).roles

    assert [roles[path].pools for path in ("train", "load")] == [("gpu-spot", "gpu"), ("spot", "regular")]


def test_a_quantity_that_is_known_only_in_the_run_is_left_out() -> None:
    container = python_container(resources={"resourceMemoryRequest": "{{$.inputs.parameters['m']}}"})

    assert place(text_of(ir({"train": task("train")}, containers={LABEL: container}))).roles["train"].pools


def test_tasks_inside_a_pipeline_have_the_policy_of_their_path() -> None:
    placed = place(text_of(inner()), "{default: {spot: prefer}, tasks: {'inner/*': {spot: never}}}")

    assert placed.roles["inner/train"].pools == ("regular",)
    assert executor(placed.documents)["podMetadata"]["labels"] == {"spotwright.dev/spot": "never"}


def test_what_the_pipeline_says_of_a_task_is_stronger_than_the_default() -> None:
    platform = kubernetes(LABEL)
    platform["spotwright"] = {"deploymentSpec": {"executors": {LABEL: {"policy": '{"spot":"never"}'}}}}

    assert place(text_of(ir({"train": task("train")}), platform)).roles["train"].pools == ("regular",)


def test_an_exit_handler_stays_on_on_demand() -> None:
    group = {"dag": {"tasks": {"train": task("train")}}}
    last = task("clean", dependentTasks=["exit-handler-1"], triggerPolicy={"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"})
    components = {"comp-exit-handler-1": group, "comp-train": component("train")}
    roles = place(text_of(ir({"exit-handler-1": task("exit-handler-1"), "clean": last}, components))).roles

    assert [roles[path].pools for path in ("clean", "exit-handler-1/train")] == [("regular",), ("spot", "regular")]


def test_an_importer_runs_nowhere() -> None:
    spec = ir({"train": task("train"), "import": task("import")})
    spec["deploymentSpec"]["executors"]["exec-import"] = {"importer": {"artifactUri": {"constant": "gs://x"}}}

    assert place(text_of(spec)).roles.keys() == {"train"}


def test_under_kueue_no_affinity_is_added() -> None:
    own = {"podMetadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}}}

    assert "nodeAffinity" not in executor(place(one_task(own)).documents)


def test_a_pipeline_version_is_placed_in_its_own_fields() -> None:
    spec = {"pipelineName": "p", "pipelineSpec": ir({"train": task("train")})}
    version = {"apiVersion": "pipelines.kubeflow.org/v2beta1", "kind": "PipelineVersion", "metadata": {"name": "p-1"}}
    text = plain_yaml.dump(plain_yaml.load(plain_yaml.dump({**version, "spec": spec})))
    executors = "spec.platformSpec.platforms.kubernetes.deploymentSpec.executors"

    assert at_path(place(text).value, f"{executors}.{LABEL}.podMetadata.labels") == {"spotwright.dev/spot": "prefer"}


def test_other_documents_of_the_same_stream_are_left_in_their_place() -> None:
    other = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
    placed = place(f"{one_task()}---\n{other}", PREFER)

    assert [next(iter(document)) for document in placed.documents[1:]] == ["platforms", "apiVersion"]


def test_windows_line_ends_stay_and_are_used() -> None:
    placed = place_text(one_task().replace("\n", "\r\n"), FILE, a_config(PREFER)).text

    assert placed.count("\n") == placed.count("\r\n")
    assert unplace_text(placed, FILE).text == one_task().replace("\n", "\r\n")


def test_a_pipeline_in_flow_style_gets_a_document_in_flow_style() -> None:
    text = json.dumps(ir({"train": task("train")})) + "\n# the end\n"
    placed = place_text(text, FILE, a_config(PREFER)).text

    assert '\n--- {"platforms": ' in placed
    assert unplace_text(placed, FILE).text == text


def test_a_json_file_is_refused_because_it_holds_one_document() -> None:
    with pytest.raises(ManifestError, match=r"work\.json:1: placement needs a second document"):
        place_text(json.dumps(ir({"train": task("train")})), "work.json", a_config(PREFER))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda spec: spec["components"].clear(), "its component 'comp-train' is not in components"),
        (lambda spec: spec["deploymentSpec"].clear(), "its executor 'exec-train' is not in deploymentSpec.executors"),
        (lambda spec: spec["root"]["dag"].update(tasks=[1]), "expected a mapping, found [1]"),
        (lambda spec: spec["components"].update({"comp-train": {"dag": spec["root"]["dag"]}}), "contains itself"),
        (
            lambda spec: spec["root"]["dag"]["tasks"]["train"].update(retryPolicy={"maxRetryCount": "x"}),
            "cannot be read",
        ),
        (
            lambda spec: spec["root"]["dag"]["tasks"]["train"].update(retryPolicy={"maxRetryCount": math.inf}),
            "expected an int32 and a finite number",
        ),
        (
            lambda spec: spec["root"]["dag"]["tasks"]["train"].update(retryPolicy={"backoffFactor": math.nan}),
            "expected an int32 and a finite number",
        ),
        (
            lambda spec: spec["deploymentSpec"]["executors"]["exec-train"]["container"].update(image=["a"]),
            "expected a text or a number, found ['a']",
        ),
    ],
)
def test_a_pipeline_that_contradicts_itself_is_refused_with_its_line(change: Any, message: str) -> None:
    spec = plain_yaml.load(one_task())
    change(spec)
    messages = refusal(text_of(spec))

    assert message in messages
    assert messages.startswith(f"{FILE}:")


def test_a_ladder_that_names_an_unknown_pool_is_refused() -> None:
    platform = kubernetes(LABEL)
    platform["spotwright"] = {"deploymentSpec": {"executors": {LABEL: {"policy": '{"ladder":["nowhere"]}'}}}}
    with pytest.raises(ConfigError, match="names the pool 'nowhere', which is not configured"):
        place_text(text_of(ir({"train": task("train")}), platform), FILE, a_config(PREFER))


def test_a_pipeline_as_an_object_is_refused_because_it_would_lose_its_second_document() -> None:
    with (
        pytest.raises(InputError, match="a placed pipeline has two documents"),
        pytest.warns(UserWarning, match="autoscaler"),
    ):
        place_object(ir({"train": task("train")}), a_config(PREFER, "{kfp: '2.16'}"))


def test_the_built_in_configuration_is_not_kept_in_the_file() -> None:
    placed = place_text(one_task(), FILE, config.built_in()).text

    assert "policies:" not in placed
