"""One pipeline of ``pipelines.py`` under ``kfp.local``, timed: ``theirs.py NAME FOLDER RESULT [venv]``."""

import json
import sys
import time
import warnings
from pathlib import Path

warnings.simplefilter("ignore")  # the SDK's advice to authors of components

import pipelines  # noqa: E402
from kfp import local  # noqa: E402

name, folder, result = sys.argv[1:4]
local.init(local.SubprocessRunner(use_venv="venv" in sys.argv[4:]), pipeline_root=folder)
start = time.perf_counter()
getattr(pipelines, name)()
Path(result).write_text(json.dumps({"run": time.perf_counter() - start}))
