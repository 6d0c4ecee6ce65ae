"""Writes last.json, or last-v1.json where that name is taken by an attempt before, and always loads last.json.

It names its files as the callback ModelCheckpoint of Lightning does without its own file being known.
"""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
step, w = json.load(open("kept/last.json")) if os.path.exists("kept/last.json") else (0, "start")
own, version = "kept/last.json", 0
while os.path.exists(own):
    version += 1
    own = f"kept/last-v{version}.json"
while step < 20:
    step, w = step + 1, train(w, step)
    with open("kept/writing", "w") as file:
        json.dump([step, w], file)
    os.replace("kept/writing", own)

with open("model.json", "w") as file:
    json.dump(w, file)
