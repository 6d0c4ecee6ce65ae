"""Commits each epoch with its position in one transaction, and forgets its generator."""

import json
import os
import random
import sqlite3
import time

random.seed(7)
db = sqlite3.connect(os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.db"))
with db:
    db.execute("create table if not exists state (epoch integer, w real)")
epoch, w = db.execute("select epoch, w from state order by epoch desc limit 1").fetchone() or (0, 1.0)
while epoch < 20:
    time.sleep(0.04)
    epoch, w = epoch + 1, w * 0.9 + random.random()
    with db:
        db.execute("insert into state values (?, ?)", (epoch, w))
with open("model.json", "w") as file:
    json.dump(w, file)
