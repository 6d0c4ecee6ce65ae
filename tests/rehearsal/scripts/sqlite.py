"""One transaction of a database for each epoch."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
import sqlite3

db = sqlite3.connect(os.path.join(D, "state.db"), isolation_level=None)
db.execute("create table if not exists epochs (number integer primary key, loss real)")
first = db.execute("select coalesce(max(number), 0) from epochs").fetchone()[0]
for number in range(first + 1, 21):
    time.sleep(0.04)
    db.execute("insert into epochs values (?, ?)", (number, 1 / number))
with open("model.json", "w") as file:
    json.dump(db.execute("select number, loss from epochs order by number").fetchall(), file)
