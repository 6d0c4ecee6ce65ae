"""Stage three of the tutorial: spot nodes, and retries with a wait in which a new node can come."""

from kfp import dsl
from spot import on_spot
from steps import merge_csv, web_downloader


@dsl.pipeline(name="spot-retries-pipeline")
def my_pipeline(url: str) -> int:
    """Download and merge on spot, each tried up to five times more."""
    downloaded = on_spot(web_downloader(url=url))
    downloaded.set_retry(num_retries=5, backoff_duration="5m")
    merged = on_spot(merge_csv(file=downloaded.outputs["data"]))
    merged.set_retry(num_retries=5, backoff_duration="5m")
    return merged.outputs["Output"]
