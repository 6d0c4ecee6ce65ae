"""Values that people give, by what they want; and wrong ones, by the words of the sentence that says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["GOOD", "HOSTILE", "WRONG"]

Values = Mapping[str, Any]

_AUTHORITY = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
_DIGEST = f"sha256:{'0a' * 32}"
_TEAMS = {"namespaces": ["team-a", "team-b"]}


def _teams(**more: Any) -> Values:
    return {**_TEAMS, **more}


GOOD: Mapping[str, Values] = {
    "one namespace": {"namespaces": ["team-a"]},
    "two namespaces": _teams(),
    "all labelled namespaces": {"clusterWide": True},
    "the list left empty beside it": {"clusterWide": True, "namespaces": []},
    "namespaces that are numbers in text": {"namespaces": ["1", "0x2"]},
    "a configuration": _teams(config="version: 1\npools:\n  spot: {capacity: spot, provider: aks}\n"),
    "a configuration with braces and quotes": _teams(config="# {{ .Values }} \"'\nversion: 1\n"),
    "an image of one's own": _teams(image={"repository": "registry.example.com:5000/team/spotwright", "tag": "0.2.0"}),
    "an image by digest": _teams(image={"repository": "registry.example.com/spotwright", "digest": _DIGEST}),
    "Secrets for the registry": _teams(image={"pullSecrets": ["registry", "other.registry"]}),
    "logs on a volume that goes with the release": _teams(logs={"volume": {"size": "20Gi", "keep": False}}),
    "logs on a large volume of a class": _teams(logs={"volume": {"size": "1.5Ti", "storageClass": "premium-rwo"}}),
    "logs in a claim that exists": _teams(logs={"volume": {"existingClaim": "runs"}}),
    "logs in a bucket": _teams(logs={"url": "s3://logs/spotwright/prod", "secret": "spotwright-logs"}),
    "logs by a workload's identity": _teams(
        logs={"url": "gs://logs", "ports": [443, 80, 988]},
        serviceAccountAnnotations={"iam.gke.io/gcp-service-account": "spotwright@project.iam.gserviceaccount.com"},
    ),
    "three replicas": _teams(logs={"url": "s3://logs"}, replicas=3),
    "logs in Azure": _teams(logs={"url": "abfss://logs@account.dfs.core.windows.net/spotwright"}),
    "a certificate of one's own": _teams(certificates={"secret": "serving", "authority": _AUTHORITY}),
    "two authorities": _teams(certificates={"secret": "serving", "authority": _AUTHORITY * 2}),
    "the checkpoint library in namespaces": _teams(checkpoints={"library": True}),
    "claims in namespaces": _teams(
        checkpoints={"claimSize": "20Gi", "claimClass": "nfs", "claimAccessMode": "ReadWriteOnce"}
    ),
    "both in all labelled namespaces": {"clusterWide": True, "checkpoints": {"library": True, "claimSize": "1Ti"}},
    "API servers that log in": _teams(certificates={"clientAuthority": _AUTHORITY}),
    "large logs": _teams(controller={"logLimit": "1Gi"}),
    "few logs of a namespace": _teams(controller={"namespaceLogLimit": "500Mi"}),
    "no logs": _teams(controller={"logLimit": "0"}),
    "slow nodes": _teams(controller={"maxNodeProvisionTime": "1h30m"}),
    "every event in the log": _teams(controller={"verbose": True}),
    "another image for refusals": _teams(refusal={"image": f"registry.example.com/busybox@{_DIGEST}"}),
    "refusals by the platform's users": _teams(refusal={"user": 0}),
    "Argo's image under another name": _teams(
        refusal={"argoExecutorImages": ["registry.example.com/argo:v3", "b/argoexec"]}
    ),
    "more memory": _teams(
        webhook={"resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "2Gi"}}},
        recorder={"resources": {"requests": {"cpu": 2, "memory": "2Gi"}, "limits": {"memory": "3Gi"}}},
    ),
    "no limits": _teams(webhook={"resources": {"limits": None}}, recorder={"resources": {"limits": None}}),
    "space of the node": _teams(recorder={"resources": {"limits": {"ephemeral-storage": "1Gi"}}}),
    "no priority": _teams(priorityClassName=""),
    "a priority of one's own": _teams(priorityClassName="platform.critical"),
    "a node selector": _teams(nodeSelector={"kubernetes.azure.com/mode": "system"}),
    "on-demand nodes of a label that spot nodes have too": _teams(
        nodeSelector={"karpenter.sh/capacity-type": "on-demand"}
    ),
    "tainted nodes": _teams(tolerations=[{"key": "CriticalAddonsOnly", "operator": "Exists"}]),
    "a taint with a value": _teams(
        tolerations=[{"key": "for", "operator": "Equal", "value": "system", "effect": "NoSchedule"}]
    ),
    "labels of pods": _teams(podLabels={"team": "platform", "cost-centre": "12"}),
    "annotations of pods": _teams(podAnnotations={"sidecar.istio.io/inject": "false", "note": "a: b # c\n- d"}),
    "no network policy": _teams(networkPolicy={"enabled": False}),
    "API servers by address": _teams(
        networkPolicy={"apiServer": {"ports": [6443], "cidrs": ["10.0.0.1/32", "fd00::1/128"]}}
    ),
    "readers in the cluster": _teams(
        networkPolicy={"readers": [{"namespaceSelector": {"matchLabels": {"team": "platform"}}}]}
    ),
    "metrics for Prometheus": _teams(
        networkPolicy={
            "metrics": [
                {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
                    "podSelector": {"matchLabels": {"app": "prometheus"}},
                }
            ]
        }
    ),
    "metrics for a network": _teams(
        networkPolicy={"metrics": [{"ipBlock": {"cidr": "10.1.0.0/16", "except": ["10.1.2.0/24"]}}]}
    ),
    "no share of the API server": _teams(flowSchema=False),
    "no policy for Events about nodes": _teams(nodeEvents=False),
    "a test in the second namespace": _teams(test={"namespace": "team-b"}),
    "a test where all are served": {"clusterWide": True, "test": {"namespace": "team-a"}},
    "values of a parent chart": _teams(**{"global": {"region": "eu", "image": {"registry": "r"}}}),
    "twenty namespaces": {"namespaces": [f"team-{number}" for number in range(20)]},
}
"""Values that the API server accepts. Where these use cert-manager, its kinds are needed: see CERT_MANAGER."""

CERT_MANAGER: Mapping[str, Values] = {
    "cert-manager": _teams(certificates={"certManager": True}),
    "cert-manager with an issuer": _teams(
        certificates={"certManager": True, "issuer": {"kind": "ClusterIssuer", "name": "company"}}
    ),
}

WRONG: Mapping[str, tuple[Values, str]] = {
    "nothing": ({}, "list them, as in --set 'namespaces={team-a,team-b}'"),
    "both forms": (_teams(clusterWide=True), "leave out the list, or clusterWide"),
    "the controller's own namespace": ({"namespaces": ["spotwright"]}, "namespaces: spotwright cannot be served"),
    "the name of a file in the place of its text": (
        {"namespaces": ["team-a"], "config": "spotwright.yaml"},
        "config: not the text of a spotwright.yaml",
    ),
    "a configuration that is no YAML": (
        {"namespaces": ["team-a"], "config": "pools: {a: [}"},
        "use --set-file config=spotwright.yaml",
    ),
    "a namespace of Kubernetes": ({"namespaces": ["team-a", "kube-system"]}, "kube-system cannot be served"),
    "one namespace as text": ({"namespaces": "team-a"}, "at '/namespaces': got string, want array"),
    "a namespace in capitals": (
        {"namespaces": ["Team-A"]},
        'expected names of namespaces, in lower case, found "Team-A"',
    ),
    "a namespace that is a pattern": ({"namespaces": ["team-*"]}, 'found "team-*"'),
    "one namespace twice": ({"namespaces": ["team-a", "team-a"]}, "items at 0 and 1 are equal"),
    "a number as a namespace": ({"namespaces": [1]}, "at '/namespaces/0': got number, want string"),
    "a value that there is not": (_teams(replicaCount=2), "additional properties 'replicaCount' not allowed"),
    "a value that there is not, inside": (
        _teams(image={"name": "x"}),
        "at '/image': additional properties 'name' not allowed",
    ),
    "a security context": (
        _teams(securityContext={"runAsUser": 0}),
        "additional properties 'securityContext' not allowed",
    ),
    "the host's network": (_teams(hostNetwork=True), "additional properties 'hostNetwork' not allowed"),
    "a value that is taken away": (_teams(image=None), "missing property 'image'"),
    "a tag that is a number": (_teams(image={"tag": 0.2}), "at '/image/tag': got number, want string"),
    "a tag in the repository": (
        _teams(image={"repository": "spotwright@sha256:00"}),
        "the name of an image without tag and digest",
    ),
    "a tag behind the repository": (
        _teams(image={"repository": "registry.example.com:5000/spotwright:0.1.0"}),
        "the name of an image without tag and digest",
    ),
    "tag and digest": (_teams(image={"tag": "1", "digest": _DIGEST}), "leave out the tag"),
    "half a digest": (_teams(image={"digest": "sha256:12"}), "image.digest: expected a digest"),
    "a secret that is no name": (
        _teams(image={"pullSecrets": ["a b"]}),
        "image.pullSecrets: expected names of Secrets",
    ),
    "a size without a number": (
        _teams(logs={"volume": {"size": "big"}}),
        'logs.volume.size: expected a quantity, such as 20Gi, found "big"',
    ),
    "a size of zero": (_teams(logs={"volume": {"size": "0Gi"}}), "logs.volume.size: expected a quantity"),
    "a claim and a class": (
        _teams(logs={"volume": {"existingClaim": "a", "storageClass": "b"}}),
        "existingClaim has a size and a StorageClass already",
    ),
    "a class without a claim": (
        _teams(logs={"volume": {"storageClass": "b"}}),
        "storageClass belongs to a claim that is made",
    ),
    "a store and a volume of logs": (
        _teams(logs={"url": "s3://a", "volume": {"size": "20Gi"}}),
        "leave out one of them",
    ),
    "cert-manager and a Secret": (
        _teams(certificates={"certManager": True, "secret": "a"}),
        "leave out `secret`, or certManager",
    ),
    "cert-manager and an authority": (
        _teams(certificates={"certManager": True, "authority": _AUTHORITY}),
        "leave out `authority`",
    ),
    "a Secret without its authority": (
        _teams(certificates={"secret": "a"}),
        "--set-file certificates.authority=ca.crt",
    ),
    "an authority without its Secret": (_teams(certificates={"authority": _AUTHORITY}), "name its Secret in `secret`"),
    "an authority that is a path": (
        _teams(certificates={"secret": "a", "authority": "ca.crt"}),
        "the text of a PEM file",
    ),
    "an authority of clients that is a path": (
        _teams(certificates={"clientAuthority": "clients.crt"}),
        "`clientAuthority` is the text of a PEM file",
    ),
    "an issuer without cert-manager": (
        _teams(certificates={"issuer": {"name": "a"}}),
        "set certificates.certManager=true",
    ),
    "an issuer of another kind": (
        _teams(certificates={"certManager": True, "issuer": {"kind": "Vault"}}),
        "value must be one of 'Issuer', 'ClusterIssuer'",
    ),
    "a Secret of logs without a store": (_teams(logs={"secret": "a"}), "name the store in `url`"),
    "a store of logs that is none": (_teams(logs={"url": "logs"}), "logs.url: expected the address of an object store"),
    "a store of logs with a key": (
        _teams(logs={"url": "s3://id:key@logs/a"}),
        "logs.url: expected the address of an object store without credentials",
    ),
    "a store of logs with a user": (
        _teams(logs={"url": "s3://id@logs/a"}),
        "logs.url: expected the address of an object store without credentials",
    ),
    "a folder for logs": (_teams(logs={"url": "file:///logs"}), "logs.url: expected the address of an object store"),
    "no port of the store": (_teams(logs={"url": "s3://a", "ports": []}), "minItems: got 0, want 1"),
    "a class without claims": (_teams(checkpoints={"claimClass": "nfs"}), "claimClass belongs to claims that are made"),
    "an access mode that there is not": (
        _teams(checkpoints={"claimSize": "1Gi", "claimAccessMode": "RWX"}),
        "value must be one of 'ReadWriteMany'",
    ),
    "a limit without a unit that there is": (
        _teams(controller={"logLimit": "64MB"}),
        "controller.logLimit: expected a size",
    ),
    "a limit of a namespace without a unit that there is": (
        _teams(controller={"namespaceLogLimit": "5GB"}),
        "controller.namespaceLogLimit: expected a size",
    ),
    "a time without a unit": (_teams(controller={"maxNodeProvisionTime": "15"}), "expected a duration, such as 15m"),
    "an option that there is not": (_teams(controller={"threads": 4}), "additional properties 'threads' not allowed"),
    "a test elsewhere": (_teams(test={"namespace": "team-c"}), "test.namespace: team-c is not served"),
    "a port that there is not": (
        _teams(networkPolicy={"apiServer": {"ports": [70000]}}),
        "maximum: got 70,000, want 65,535",
    ),
    "no port": (_teams(networkPolicy={"apiServer": {"ports": []}}), "minItems: got 0, want 1"),
    "an address without its mask": (
        _teams(networkPolicy={"apiServer": {"cidrs": ["10.0.0.1"]}}),
        "expected blocks of addresses, such as 10.0.0.1/32",
    ),
    "a user by name": (_teams(refusal={"user": "nobody"}), "at '/refusal/user': got string, want integer"),
    "a configuration that is no text": (_teams(config={"version": 1}), "at '/config': got object, want string"),
    "spot nodes for the controller": (
        _teams(nodeSelector={"kubernetes.azure.com/scalesetpriority": "spot"}),
        "nodeSelector: kubernetes.azure.com/scalesetpriority=spot selects spot nodes",
    ),
}

_INJECTED = 'x"\n      hostNetwork: true\n      #'

HOSTILE: Mapping[str, Values] = {
    "a priority with more YAML": _teams(priorityClassName=_INJECTED),
    "a class with more YAML": _teams(logs={"volume": {"size": "20Gi", "storageClass": _INJECTED}}),
    "a claim with more YAML": _teams(logs={"volume": {"existingClaim": _INJECTED}}),
    "an image with more YAML": _teams(image={"repository": _INJECTED}),
    "a tag with more YAML": _teams(image={"tag": _INJECTED}),
    "a refusal's image with more options": _teams(refusal={"image": "x --home=/"}),
    "a claim with more options": _teams(checkpoints={"claimSize": "1Gi --no-registration"}),
    "a limit with more options": _teams(controller={"logLimit": "1Mi\n        - --logs=file:///"}),
    "a store of logs with more options": _teams(logs={"url": "s3://a/b --read-listen=0.0.0.0:1"}),
    "a store of logs with more YAML": _teams(logs={"url": f"s3://{_INJECTED}"}),
    "a Secret of logs with more YAML": _teams(logs={"url": "s3://a", "secret": _INJECTED}),
    "annotations of the account with more YAML": _teams(serviceAccountAnnotations={"a": _INJECTED, _INJECTED: "b"}),
    "an image of Argo with more YAML": _teams(refusal={"argoExecutorImages": [_INJECTED]}),
    "a Secret with more YAML": _teams(image={"pullSecrets": [_INJECTED]}),
    "a namespace with more YAML": {"namespaces": [_INJECTED]},
    "an issuer with more YAML": _teams(certificates={"certManager": True, "issuer": {"name": _INJECTED}}),
    "a label of the selector": _teams(podLabels={"app.kubernetes.io/name": "other"}),
    "no AppArmor": _teams(podAnnotations={"container.apparmor.security.beta.kubernetes.io/controller": "unconfined"}),
    "no seccomp": _teams(podAnnotations={"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}),
    "labels with more YAML": _teams(podLabels={"a": _INJECTED}),
    "annotations with more YAML": _teams(podAnnotations={"a": _INJECTED, _INJECTED: "b"}),
    "a selector with more YAML": _teams(nodeSelector={_INJECTED: _INJECTED}),
    "every taint": _teams(tolerations=[{"operator": "Exists"}]),
    "a configuration with more YAML": _teams(config="\n---\nkind: Pod\n{{ fail }}"),
    "a resource of another kind": _teams(webhook={"resources": {"limits": {"nvidia.com/gpu": 1}}}),
    "a claim among resources": _teams(recorder={"resources": {"claims": [{"name": "x"}]}}),
    "an authority with more YAML": _teams(
        certificates={"secret": "a", "authority": f"-----BEGIN CERTIFICATE-----{_INJECTED}"}
    ),
    "global values": _teams(**{"global": {"hostNetwork": True, "securityContext": {"privileged": True}}}),
}
"""Values of somebody who wants less security: each is refused, or changes nothing of it."""
