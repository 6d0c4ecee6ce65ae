"""A journal read from disk and folded, timed: ``fold.py RUN-FOLDER RESULT``. The plan is there already, as in an engine."""

import json
import sys
import time
from pathlib import Path

from spotwright.engine.fold import replay
from spotwright.records.journal import Journal
from spotwright.records.state_folder import RunFolder
from spotwright.records.stored_plan import load_plans

folder = RunFolder(Path(sys.argv[1]))
plans = [stored.plan for stored in load_plans(folder)]
start = time.perf_counter()
journal = Journal.read(folder.journal)
state = replay(plans, (event for _, event in journal.events()))
seconds = time.perf_counter() - start
journal.close()
Path(sys.argv[2]).write_text(json.dumps({"seconds": seconds, "events": state.events}))
