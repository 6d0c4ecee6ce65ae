"""Searches for the best parameters, each trial a row of a database.

It keeps trials as optuna does in its storage: a row is added as running, and completed at its end. What it proposes depends on
the number of the trial alone; a trial that was left running is tried again.
"""

import hashlib
import json
import os
import sqlite3


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
study = sqlite3.connect("kept/study.db", isolation_level=None)
study.execute("create table if not exists trials (number integer primary key, state text, value real)")
study.execute("delete from trials where state = 'running'")
while (number := study.execute("select count(*) from trials").fetchone()[0]) < 20:
    study.execute("insert into trials values (?, 'running', null)", (number,))
    value = int(train("parameters", number)[:8], 16) / 2**32
    study.execute("update trials set state = 'complete', value = ? where number = ?", (value, number))
with open("model.json", "w") as file:
    json.dump(study.execute("select number, value from trials order by value limit 3").fetchall(), file)
