"""Appends each state to one file, and goes on from the last whole line."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
state, end = {"step": 0, "w": "start"}, 0
if os.path.exists("kept/states.jsonl"):
    for line in open("kept/states.jsonl", "rb"):
        if line.endswith(b"\n"):
            state, end = json.loads(line), end + len(line)
with open("kept/states.jsonl", "ab") as journal:
    journal.truncate(end)
    while state["step"] < 20:
        state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
        journal.write(json.dumps(state).encode() + b"\n")
        journal.flush()
        os.fsync(journal.fileno())
with open("model.json", "w") as file:
    json.dump(state, file)
