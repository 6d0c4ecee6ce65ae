"""One compiled pipeline on our engine, in this process and timed: ``ours.py FILE STATE RESULT``.

The same calls as ``spotwright run``, without its interpreter's start, the imports that it does while its fork server boots, and
its display. ``peak`` is this process's largest
resident size in MB, ``spent`` its processor time in seconds while the run went on, ``step`` the median time from the end of
one task to the end of the next.
"""

import json
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path

from spotwright.kfp.loader import load
from spotwright.runs.run_options import PlanOptions, RunOptions
from spotwright.runs.runner import prepare, start

file, state, result = sys.argv[1:4]
compiled = load(file)
begun = time.perf_counter()
prepared = prepare(compiled, PlanOptions(), RunOptions(state=Path(state), cache="off"))
started, spent = time.perf_counter(), time.process_time()
folder, ended = start(prepared)
done = time.perf_counter()
if ended.status.value != "succeeded":
    sys.exit(f"the run {ended.status.value}: {ended.why}")
ends = sorted(task.last.ended_at for task in ended.tasks.values() if task.attempts)
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
timed = {
    "prepare": started - begun,
    "run": done - started,
    "steady": ends[-1] - ends[0],
    "step": statistics.median(later - earlier for earlier, later in pairwise(ends)),
    "spent": time.process_time() - spent,
    "peak": int(peak.split()[1]) / 1024,
    "tasks": len(ends),
}
Path(result).write_text(json.dumps(timed))
