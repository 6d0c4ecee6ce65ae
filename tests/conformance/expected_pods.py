"""The expected results of the pipelines with containers, secrets and PVCs; part of :mod:`tests.conformance.expected`."""

from __future__ import annotations

from tests.conformance.running import Expected

__all__ = ["EXPECTED_PODS"]

EXPECTED_PODS: dict[str, Expected] = {
    "container_placeholders": Expected(
        {
            "placed": {
                "out": "[it's \"a\" $(A) $x {{$.pipeline_job_id}}][0.5/[1,\"b\",{\"c\":2}]]"
                "[<it's \"a\" $(A) $x {{$.pipeline_job_id}}->][--given][g][--no-left]"
            },
            "placed-2": {"out": "[from a task][3/[]][<from a task->][--no-left]"}, "text": "from a task",
        }
    ),
    "container_outputs": Expected(
        {
            "outputs": {"flag": True, "items": [1, 2], "pairs": {"a": 1}, "real": 2.5, "whole": 7, "words": "a\n"},
            "text": "a\n", "whole": 7,
        },
        outputs={"Output": 7},
    ),
    "container_artifacts": Expected({"of-model": "TEXTModel"}),
    "container_lists": Expected({"joined": {"out": "a b c\n"}}),
    "container_variables": Expected({"told": {"out": "[a][ab][$(NOBODY)][$(A)][$A]"}}),
    "container_yaml": Expected(
        {"of-kfp-1": {"count": 5}, "of-data": "d it's n=3 --no-flag\n", "join": {"out": "x-5"}},
    ),
    "config_and_secrets": Expected(
        {"reads-config": "fast {'mode': 'fast', 'text': 'a: 1'} 15 None True", "text": "settings"}
    ),
    "claims_made_and_deleted": Expected(
        {
            "createpvc": {"name": "made-here"}, "loop/keeps-0": "a", "loop/keeps-1": "b", "finds": "a=a,b=b,other=c",
        }
    ),
    "claims_that_exist": Expected({"keeps": "x", "finds": "x=x", "finds-2": ""}),
    "settings_left_out": Expected({"what-is-there": "None False False"}),
    "settings_for_the_code": Expected(
        {
            "passes-on": {
                "affinity": {"nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, "weight": 5}
                    ],
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["of-no-pool"]}]}
                    ]},
                }},
                "tolerations": [
                    {"effect": "NoExecute", "key": "team", "operator": "Equal", "tolerationSeconds": 30, "value": "ml"}
                ],
                "node_selector": {"disk": "of-no-pool"},
                "env": [
                    {"name": "MODE", "value": "fast"},
                    {"name": "TOKEN", "valueFrom": {
                        "secretKeyRef": {"key": "token", "name": "registry", "optional": False}
                    }},
                ],
                "volumes": [
                    {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
                    {"name": "registry", "secret": {"optional": True, "secretName": "registry"}},
                ],
                "volume_mounts": [
                    {"mountPath": "/data", "name": "shared", "subPath": "below"},
                    {"mountPath": "/etc/registry", "name": "registry"},
                ],
                "resources": {
                    "limits": {"example.com/none": "64", "memory": "512Mi"}, "requests": {"cpu": "500m"}
                },
                "own": ["fast", False],
            },
            "passes-variables": {
                "env": [
                    {"name": "MODE", "value": "fast"},
                    {"name": "TOKEN", "valueFrom": {
                        "configMapKeyRef": {"key": "mode", "name": "settings", "optional": False}
                    }},
                ],
                "own": [None, None], "others": [None, None, None, {}],
            },
        }
    ),
    "fields_of_the_pod": Expected(
        {"fields": {"team": "ml", "note": "n", "run": True, "node": True, "name": True}}
    ),
}  # fmt: skip
