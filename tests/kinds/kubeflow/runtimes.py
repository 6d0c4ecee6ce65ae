"""Runtimes of TrainJobs with tolerations of the team and ours."""

from __future__ import annotations

SPOT = {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}


TEAM = {"key": "team", "operator": "Exists"}


OURS = "spotwright.dev/placement"


def a_runtime(
    *jobs: str, spec: str = "", kind: str = "ClusterTrainingRuntime", job_set: str = "", pod: str = ""
) -> str:
    members = "".join(
        f"""
      - name: {name}
        template:
          metadata: {{labels: {{trainer.kubeflow.org/trainjob-ancestor-step: {"trainer" if name == "node" else name}}}}}
          spec:
            template:
              spec:{pod}
                containers: [{{name: {name}, image: torch}}]"""
        for name in jobs or ("node",)
    )
    return f"""\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: {kind}
metadata: {{name: torch}}
spec:
  mlPolicy: {{numNodes: 1, torch: {{}}}}
{spec}  template:
    spec:{job_set}
      replicatedJobs:{members}
"""


TOLERANT = a_runtime(pod="\n                tolerations: [{key: team, operator: Exists}]")
