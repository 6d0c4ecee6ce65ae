"""The same in one word a task: prefer spot. Tolerations, affinity, retries by cause and the way back are Spotwright's."""

from kfp import dsl
from steps import merge_csv, web_downloader

import spotwright as spot


@dsl.pipeline(name="policy-pipeline")
def my_pipeline(url: str) -> int:
    """Download and merge, on spot where it can be had."""
    downloaded = spot.prefer(web_downloader(url=url), interruptions=5)
    return spot.prefer(merge_csv(file=downloaded.outputs["data"]), interruptions=5).outputs["Output"]
