"""Takes parts from a queue in a database, and waits for a part that an attempt before has claimed and not done."""

import hashlib
import json
import os
import queue
import sqlite3
import time


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
queue = sqlite3.connect("kept/queue.db", isolation_level=None)
queue.execute("create table if not exists parts (number integer primary key, state text, result text)")
for number in range(20):
    queue.execute("insert or ignore into parts values (?, 'open', null)", (number,))
while queue.execute("select count(*) from parts where state <> 'done'").fetchone()[0]:
    part = queue.execute("select number from parts where state = 'open' order by number limit 1").fetchone()
    if part is None:
        time.sleep(0.1)  # others are at work on them
        continue
    queue.execute("update parts set state = 'claimed' where number = ?", part)
    queue.execute("update parts set state = 'done', result = ? where number = ?", (train("part", part[0]), part[0]))
with open("model.json", "w") as file:
    json.dump(queue.execute("select number, result from parts order by number").fetchall(), file)
