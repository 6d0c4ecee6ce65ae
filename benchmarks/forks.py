"""What a bare fork costs the fork server: ``forks.py COUNT RESULT``. The server's own modules, loaded and frozen as it does.

Each child ends at once and is waited for before the next one: the part of a task's cost that no runner with forks avoids.
"""

import gc
import json
import os
import statistics
import sys
import time
import types
from itertools import pairwise
from pathlib import Path

from spotwright.local import supervisor

count, result = int(sys.argv[1]), Path(sys.argv[2])
package = types.ModuleType("_spotwright_supervisor")
package.__path__ = list(supervisor.__path__)
sys.modules["_spotwright_supervisor"] = package

from _spotwright_supervisor import executor_main, fork_server  # type: ignore[import-not-found]  # noqa: E402, F401

executor_main.warm_up()
gc.collect()
gc.freeze()
gc.disable()
moments = [time.perf_counter()]
for _ in range(count):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    moments.append(time.perf_counter())
step = statistics.median(later - earlier for earlier, later in pairwise(moments))
result.write_text(json.dumps({"step": step, "rate": count / (moments[-1] - moments[0])}))
