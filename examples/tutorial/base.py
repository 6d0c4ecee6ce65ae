"""Stage one of the tutorial: nothing about spot. On the cluster, and here, both steps run on the default pool."""

from kfp import dsl
from steps import merge_csv, web_downloader


@dsl.pipeline(name="base-pipeline")
def my_pipeline(url: str) -> int:
    """Download and merge."""
    downloaded = web_downloader(url=url)
    return merge_csv(file=downloaded.outputs["data"]).outputs["Output"]
