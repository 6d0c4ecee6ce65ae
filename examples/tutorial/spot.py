"""Stage two of the tutorial, in today's SDK: a toleration for the spot taint, and an affinity that requires spot nodes."""

from kfp import dsl, kubernetes
from steps import merge_csv, web_downloader


def on_spot(task: dsl.PipelineTask) -> dsl.PipelineTask:
    """Let a task onto AKS spot nodes, and onto nothing else."""
    spot = "kubernetes.azure.com/scalesetpriority"
    kubernetes.add_toleration(task, key=spot, operator="Equal", value="spot", effect="NoSchedule")
    return kubernetes.add_node_affinity(task, match_expressions=[{"key": spot, "operator": "In", "values": ["spot"]}])


@dsl.pipeline(name="spot-pipeline")
def my_pipeline(url: str) -> int:
    """Download and merge, both on spot."""
    downloaded = on_spot(web_downloader(url=url))
    return on_spot(merge_csv(file=downloaded.outputs["data"])).outputs["Output"]
