"""The programs of the test bed, each built from one published Go module whose version stands in `testbed/go/*/go.mod`.

The folder of a module holds everything that its programs depend on, so that a digest of it names a build in the cache.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import TestbedError

__all__ = ["COMPONENTS", "MANIFESTS", "PROGRAMS", "TOOLS", "Manifests", "Program", "digest_of", "version_of"]

GO = Path(__file__).resolve().parent.parent / "go"

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet")
"""The names under which the program ``kubernetes`` is called."""

_ARGO = "github.com/argoproj/argo-workflows/v3"
_HELM = "helm.sh/helm/v4"
_KATIB = "github.com/kubeflow/katib"
_KUBE_SCORE = "github.com/zegl/kube-score"
_KARPENTER = "sigs.k8s.io/karpenter"
_TRAINER = "github.com/kubeflow/trainer/v2"


@dataclass(frozen=True, slots=True)
class Program:
    """One executable. ``package`` is built in ``testbed/go/<folder>``; the version is that of ``module``."""

    name: str
    folder: str
    module: str
    package: str
    version_variable: str = ""  # the linker sets it to the version
    links: tuple[str, ...] = ()  # other names of the executable
    vendored: dict[str, str] = field(default_factory=dict, hash=False)  # our file -> its place in the module


@dataclass(frozen=True, slots=True)
class Manifests:
    """Files of a module that its controller needs: a name in the cache, and patterns in the module's folder."""

    name: str
    folder: str
    module: str
    patterns: tuple[str, ...]


PROGRAMS = (
    Program(
        "kubernetes",
        "kubernetes",
        "k8s.io/kubernetes",
        ".",
        version_variable="k8s.io/component-base/version.gitVersion",
        links=COMPONENTS,
    ),
    Program("pause", "pause", "", "."),
    *(
        Program(
            name,
            "argo",
            _ARGO,
            f"{_ARGO}/cmd/{name}",
            version_variable=f"{_ARGO}.version",
            vendored={"linux/signal_linux.go": "workflow/executor/osspecific/signal_linux.go"},
        )
        for name in ("argoexec", "workflow-controller")
    ),
    Program("jobset", "jobset", "sigs.k8s.io/jobset", "sigs.k8s.io/jobset"),
    Program("trainer", "trainer", _TRAINER, f"{_TRAINER}/cmd/trainer-controller-manager"),
    Program("kueue", "kueue", "sigs.k8s.io/kueue", "sigs.k8s.io/kueue/cmd/kueue"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    Program("karpenter", "karpenter", _KARPENTER, "."),
    Program("katib-controller", "katib", _KATIB, f"{_KATIB}/cmd/katib-controller/v1beta1"),
    Program("katib-db-manager", "katib", _KATIB, f"{_KATIB}/cmd/db-manager/v1beta1"),
    Program("katib-goptuna", "katib", _KATIB, f"{_KATIB}/cmd/suggestion/goptuna/v1beta1"),
    Program("katib-collector", "katib", _KATIB, f"{_KATIB}/cmd/metricscollector/v1beta1/file-metricscollector"),
    Program("helm", "helm", _HELM, f"{_HELM}/cmd/helm", version_variable=f"{_HELM}/internal/version.version"),
    Program("kube-score", "kube-score", _KUBE_SCORE, f"{_KUBE_SCORE}/cmd/kube-score"),
)
"""The programs in build order: a cluster starts after the first two, and the others are built beside it."""

TOOLS = ("helm", "kube-score")
"""The folders of programs that no cluster needs and tests on one do."""

MANIFESTS = (
    Manifests("argo-manifests", "argo", _ARGO, ("manifests/base/crds/minimal/argoproj.io_*.yaml",)),
    Manifests(
        "jobset-manifests",
        "jobset",
        "sigs.k8s.io/jobset",
        ("config/components/crd/bases/*.yaml", "config/components/webhook/manifests.yaml"),
    ),
    Manifests(
        "trainer-manifests",
        "trainer",
        _TRAINER,
        ("manifests/base/crds/trainer*.yaml", "manifests/base/webhook/manifests.yaml"),
    ),
    Manifests(
        "kueue-manifests",
        "kueue",
        "sigs.k8s.io/kueue",
        ("config/components/crd/bases/*.yaml", "config/components/webhook/manifests.yaml"),
    ),
    Manifests(
        "karpenter-manifests",
        "karpenter",
        _KARPENTER,
        ("pkg/apis/crds/karpenter.sh_*.yaml", "kwok/apis/crds/*.yaml"),
    ),
    Manifests(
        "katib-manifests",
        "katib",
        _KATIB,
        (
            "manifests/v1beta1/components/crd/[est]*.yaml",
            "manifests/v1beta1/components/webhook/webhooks.yaml",
            "pkg/apis/manager/v1beta1/python/*.py",  # these make an image
            "pkg/earlystopping/v1beta1/medianstop/*.py",
            "cmd/earlystopping/medianstop/v1beta1/main.py",
        ),
    ),
)


def version_of(folder: str, module: str) -> str:
    """The version of a module that a folder's go.mod requires, such as ``v1.35.4``; of our own program ``v1``."""
    if not module:
        return "v1"
    text = (GO / folder / "go.mod").read_text(encoding="utf-8")
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", text, re.MULTILINE)
    if match is None:
        raise TestbedError(f"testbed/go/{folder}/go.mod does not require {module}")
    return match[1]


def digest_of(folder: str) -> str:
    """Eight hexadecimal digits that change with any file of the folder."""
    digest = hashlib.sha256()
    for path in sorted((GO / folder).rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(GO)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:8]
