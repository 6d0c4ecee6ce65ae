"""Commits each step with its state in one transaction of SQLite."""

import hashlib
import json
import os
import sqlite3


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
database = sqlite3.connect("kept/state.db")
with database:
    database.execute("create table if not exists steps (step integer primary key, w text)")
step, w = database.execute("select step, w from steps order by step desc limit 1").fetchone() or (0, "start")
while step < 20:
    step, w = step + 1, train(w, step)
    with database:
        database.execute("insert into steps values (?, ?)", (step, w))
with open("model.json", "w") as file:
    json.dump(database.execute("select step, w from steps order by step").fetchall(), file)
