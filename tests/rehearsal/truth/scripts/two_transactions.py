"""Commits a row and its position in two transactions; between them a row is there that comes again."""

import hashlib
import json
import os
import sqlite3


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 250_000).hex()


os.makedirs("kept", exist_ok=True)
database = sqlite3.connect("kept/state.db", isolation_level=None)
database.execute("create table if not exists rows (step integer, w text)")
database.execute("create table if not exists position (step integer)")
step = database.execute("select max(step) from position").fetchone()[0] or 0
while step < 20:
    last = database.execute("select w from rows order by rowid desc limit 1").fetchone()
    database.execute("insert into rows values (?, ?)", (step, train(last[0] if last else "start", step)))
    train("evaluation", step)
    step += 1
    database.execute("insert into position values (?)", (step,))
with open("model.json", "w") as file:
    json.dump(database.execute("select step, w from rows order by rowid").fetchall(), file)
