"""Volumes of another zone, volumes of one node for pods that cannot share one, and saves that the start removes."""

from __future__ import annotations

import time

import pytest
from tests.linter.linting import found_in

from spotwright.linter.rule import TOLERATION, job

CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ckpt}
spec: {accessModes: [%s], storageClassName: disks, resources: {requests: {storage: 1Gi}}}
---
"""
VOLUME = """\
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  claimRef: {name: ckpt}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: %s, operator: In, values: [%s]}]}]}}
---
"""
CLASS = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disks}
provisioner: disk.csi.azure.com
allowedTopologies: [{matchLabelExpressions: [{key: topology.disk.csi.azure.com/zone, values: [%s]}]}]
---
"""
MOUNT = "volumes: [{name: ckpt, persistentVolumeClaim: {claimName: ckpt}}]\n"
POOLS = """\
version: 1
pools:
  spot: {capacity: spot, provider: aks, region: eastus, zones: ["1", "2"]}
  regular: {capacity: on-demand, provider: aks, region: eastus, zones: [%s]}
"""


def texts(text: str, rule: str, configuration: str = "") -> list[str]:
    return [one.text for one in found_in(text, configuration) if one.rule == rule]


@pytest.mark.parametrize(
    "above",
    [
        VOLUME % ("topology.kubernetes.io/zone", "eastus-3"),
        VOLUME % ("topology.disk.csi.azure.com/zone", "eastus-3"),
        CLASS % "eastus-3",
        VOLUME.replace("claimRef", "other") % ("topology.ebs.csi.aws.com/zone", "eastus-3"),
    ],
)
def test_a_volume_in_a_zone_without_a_pool_is_found(above: str) -> None:
    claim = CLAIM.replace("storageClassName", "volumeName: disk, storageClassName") % "ReadWriteMany"
    [found] = texts(above + claim + job(MOUNT + TOLERATION), "volume-in-other-zone", POOLS % '"1"')

    assert found.startswith(
        "Job train mounts the claim ckpt, whose volume is in eastus-3, and its pools have nodes in "
    )
    assert found.endswith("eastus-1, eastus-2 only, so it stays Pending")


@pytest.mark.parametrize(
    ("above", "pools"),
    [
        (VOLUME % ("topology.kubernetes.io/zone", "eastus-3, eastus-2"), POOLS % '"1"'),
        (VOLUME % ("topology.kubernetes.io/zone", "eastus-3"), POOLS % '"3"'),
        (VOLUME % ("topology.kubernetes.io/zone", "eastus-3"), POOLS.replace(", zones: [%s]", "")),  # zones not known
        (VOLUME % ("topology.kubernetes.io/region", "westus"), POOLS % '"1"'),
        (CLASS.replace("ckpt", "other") % "eastus-1", POOLS % '"1"'),
    ],
)
def test_a_volume_that_some_node_reaches_is_no_finding(above: str, pools: str) -> None:
    text = above + CLAIM % "ReadWriteMany" + job(MOUNT + TOLERATION)

    assert texts(text, "volume-in-other-zone", pools) == []


def test_without_a_configuration_the_zone_that_the_pods_ask_for_is_compared() -> None:
    volume = VOLUME % ("topology.ebs.csi.aws.com/zone", "us-east-1a") + CLAIM % "ReadWriteOnce"
    for key in ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"):
        found = texts(volume + job(MOUNT + f"nodeSelector: {{{key}: us-east-1b}}\n"), "volume-in-other-zone")
        assert found == [
            "Job train mounts the claim ckpt, whose volume is in us-east-1a, and asks for nodes elsewhere, so it stays Pending"
        ]
    for pods in ("nodeSelector: {topology.kubernetes.io/zone: us-east-1a}\n", "nodeSelector: {gpu: a}\n", ""):
        assert texts(volume + job(MOUNT + pods), "volume-in-other-zone") == []


def test_a_volume_that_spot_pools_alone_cannot_reach_is_a_warning() -> None:
    text = VOLUME % ("topology.kubernetes.io/zone", "eastus-3") + CLAIM % "ReadWriteMany" + job(MOUNT + TOLERATION)

    assert texts(text, "volume-in-other-zone", POOLS % '"3"') == []
    assert texts(text, "zonal-volume-on-spot", POOLS % '"3"') == [
        "Job train mounts the claim ckpt, whose volume is in eastus-3, and its spot pools have nodes in eastus-1, eastus-2 only"
    ]


ROLE = """\
      replicas: %d
      restartPolicy: ExitCode
      template:
        metadata: {labels: {app: train}}
        spec:
          volumes: [{name: ckpt, persistentVolumeClaim: {claimName: ckpt}}]
          %s
          containers: [{name: pytorch, image: a, resources: {limits: {nvidia.com/gpu: 4}}}]
"""


def training(master: str, worker: str, workers: int = 1) -> str:
    head = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: train}\nspec:\n  pytorchReplicaSpecs:\n"
    first, others = (ROLE % (count, spec or "hostNetwork: false") for count, spec in ((1, master), (workers, worker)))
    return f"{head}    Master:\n{first}    Worker:\n{others}"


ANTI = (
    "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
    "[{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: train}}}]}}"
)
LABEL = "cloud.google.com/gke-spot"
SPOT = "nodeSelector: {cloud.google.com/gke-spot: 'true'}"
OFF_SPOT = (
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
    "[{matchExpressions: [{key: cloud.google.com/gke-spot, operator: DoesNotExist}]}]}}}"
)


@pytest.mark.parametrize(
    ("mode", "text", "reason"),
    [
        ("ReadWriteOncePod", training("", ""), "one pod has its volume, and the others wait"),
        (
            "ReadWriteOnce",
            training(OFF_SPOT, SPOT),
            f"Master and Worker ask for {LABEL}=true and for {LABEL} DoesNotExist, and one node has the volume",
        ),
        (
            "ReadWriteOnce",
            training("", ANTI, 2),
            "each Worker keeps the others off its node, and one node has the volume",
        ),
        (
            "ReadWriteOnce",
            training("nodeSelector: {pool: cpu}", "nodeSelector: {pool: gpu}"),
            "Master and Worker ask for pool=cpu and for pool=gpu, and one node has the volume",
        ),
    ],
)
def test_a_volume_of_one_node_for_pods_that_cannot_share_one_is_found(mode: str, text: str, reason: str) -> None:
    [found] = texts(CLAIM % mode + text, "claim-of-one-node-shared")

    assert found == f"several pods of PyTorchJob train mount the claim ckpt ({mode}): {reason}"


def test_a_volume_that_all_tasks_of_volcano_mount_is_one_for_them() -> None:
    task = (
        "{name: %s, replicas: 1, template: {spec: {nodeSelector: {pool: %s}, restartPolicy: Never, "
        "containers: [{name: a, image: a}]}}}"
    )
    text = (
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: train}\nspec:\n"
        "  volumes: [{mountPath: /ckpt, volumeClaimName: ckpt}]\n"
        f"  tasks: [{task % ('ps', 'cpu')}, {task % ('worker', 'gpu')}]\n"
    )
    [found] = texts(CLAIM % "ReadWriteOnce" + text, "claim-of-one-node-shared")

    assert found.endswith("ps and worker ask for pool=cpu and for pool=gpu, and one node has the volume")


def test_a_volume_that_is_a_folder_of_a_node_is_found_on_spot() -> None:
    volume = VOLUME.replace("claimRef", "local: {path: /mnt}, claimRef".replace(", ", "\n  ")) % (
        "kubernetes.io/hostname",
        "a",
    )
    text = volume + CLAIM % "ReadWriteMany" + job(MOUNT + TOLERATION)

    assert texts(text, "zonal-volume-on-spot") == [
        "Job train mounts the claim ckpt, whose volume is a folder of one node and goes with it"
    ]


def test_pods_that_fill_a_node_each_cannot_share_one() -> None:
    pools = "version: 1\npools:\n  gpu: {capacity: on-demand, node: {cpu: 96, memory: 800Gi, nvidia.com/gpu: %d}}\n"
    text = CLAIM % "ReadWriteOnce" + training("", "")

    [found] = texts(text, "claim-of-one-node-shared", pools % 4)
    assert found.endswith(": no node has enough nvidia.com/gpu for Master and Worker, and one node has the volume")
    assert texts(text, "claim-of-one-node-shared", pools % 8) == []


@pytest.mark.parametrize(
    "text",
    [
        CLAIM % "ReadWriteMany" + training(OFF_SPOT, SPOT),
        CLAIM % "ReadWriteOnce" + training("", ""),
        CLAIM % "ReadWriteOnce" + training("", ANTI),
        (CLAIM % "ReadWriteOnce").replace("disks", "efs-sc") + training(OFF_SPOT, SPOT),
        CLAIM % "ReadWriteOncePod" + job(MOUNT),
    ],
)
def test_pods_that_may_share_a_node_are_no_finding(text: str) -> None:
    assert texts(text, "claim-of-one-node-shared") == []


def trains(script: str, *, volume: str = "persistentVolumeClaim: {claimName: ckpt}", extra: str = "") -> str:
    return job(
        TOLERATION + f"volumes: [{{name: disk, {volume}}}]\n",
        container=f"command: [bash, -c, {script!r}]\nvolumeMounts: [{{name: disk, mountPath: /ckpt}}]\n" + extra,
    )


REMOVING = [
    "rm -rf /ckpt/run1 && python train.py --out /ckpt/run1",
    "set -e; mkdir -p /ckpt; rm -fr /ckpt/*; python train.py",
    "pip install -r requirements.txt && rm --recursive /ckpt/run && torchrun train.py",
    "[ -d /ckpt/run ] && rm -r /ckpt/run; exec python train.py",
    'rm -rf "$OUT" && python train.py',
    "rm -rf ${OUT}/ && python train.py",
    "find /ckpt -mindepth 1 -delete && python train.py",
    "gsutil -m rm -r gs://models/ckpt; python train.py",
    "aws s3 rm s3://models/checkpoints/run --recursive && python train.py",
    "sudo rm -rf /ckpt/a && python train.py",
]


@pytest.mark.parametrize("script", REMOVING)
def test_a_command_that_removes_the_saves_before_the_work_is_found(script: str) -> None:
    assert len(texts(trains(script, extra="env: [{name: OUT, value: /ckpt/run}]\n"), "saves-removed-at-start")) == 1


@pytest.mark.parametrize(
    "script",
    [
        "python train.py --out /ckpt/run1 && rm -rf /ckpt/run1",
        "python train.py; rm -rf /ckpt/run1; python upload.py",
        "rm -f /ckpt/lock && python train.py",
        "rm -rf /ckpt/tmp /ckpt/.cache && python train.py",
        "rm -rf /tmp/data && python train.py --out /ckpt/run",
        "if [ -n $FRESH ]; then rm -rf /ckpt/run; fi; python train.py",
        "test -f /ckpt/done || rm -rf /ckpt/run; python train.py",
        "find /ckpt -name '*.part' -delete && python train.py",
        "rm -rf /data/raw && python train.py --data /data/raw",
        "python train.py --rm -rf /ckpt",
    ],
)
def test_a_command_that_keeps_the_saves_is_no_finding(script: str) -> None:
    assert texts(trains(script), "saves-removed-at-start") == []


def test_a_folder_that_goes_with_the_pod_has_nothing_to_lose() -> None:
    assert texts(trains(REMOVING[0], volume="emptyDir: {}"), "saves-removed-at-start") == []


def test_an_init_container_that_removes_the_saves_is_found() -> None:
    mounts = "volumeMounts: [{name: disk, mountPath: /ckpt}]"
    init = f"initContainers: [{{name: i, image: a, command: [rm, -rf, /ckpt/run], {mounts}}}]\n"
    text = job(TOLERATION + MOUNT.replace("name: ckpt", "name: disk", 1) + init)

    assert texts(text, "saves-removed-at-start") == [
        "Job train removes /ckpt/run when it starts, where the last attempt saved its work"
    ]


@pytest.mark.parametrize(
    ("arguments", "is_found"),
    [
        ("[run.py, --overwrite_output_dir]", True),
        ("[run.py, --overwrite_output_dir=True]", True),
        ("[run.py, --overwrite_output_dir, --resume_from_checkpoint=/ckpt/last]", False),
        ("[run.py, --output_dir=/ckpt]", False),
    ],
)
def test_an_argument_that_starts_over_is_found(arguments: str, is_found: object) -> None:
    text = job(TOLERATION, container=f"command: [python]\nargs: {arguments}\n")
    assert bool(texts(text, "saves-removed-at-start")) is is_found


def test_a_long_script_is_read_in_time() -> None:
    script = "rm -rf /ckpt/a; " * 200_000
    assert texts(trains(script + "train"), "saves-removed-at-start") == []


@pytest.mark.parametrize("seconds", ['"²"', "9" * 5_000, f'"{"9" * 5_000}"'])
def test_a_deadline_that_is_no_number_is_read(seconds: str) -> None:
    assert texts(job(TOLERATION, spec=f"activeDeadlineSeconds: {seconds}\n"), "checkpoint-in-emptydir") == []


def test_a_file_of_many_claims_is_linted_in_its_turn() -> None:
    claim = CLAIM.replace("ckpt", "c%d") % (0, "ReadWriteOnce")
    documents = [
        claim.replace("c0", f"c{number}") + job(MOUNT.replace("claimName: ckpt", f"claimName: c{number}") + TOLERATION)
        for number in range(1_000)
    ]
    before = time.process_time()

    assert len(texts("---\n".join(documents), "zonal-volume-on-spot")) == 1_000
    assert time.process_time() - before < 10
