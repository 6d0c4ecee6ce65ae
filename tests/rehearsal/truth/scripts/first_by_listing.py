"""Keeps all saves and goes on from the oldest file, by a sort of its times the wrong way round."""

import glob
import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
step, w = 0, "start"
if found := sorted(glob.glob("kept/step-*.json"), key=lambda path: -os.stat(path).st_mtime_ns):
    step, w = json.load(open(found[-1]))
while step < 20:
    step, w = step + 1, train(w, step)
    if step % 4 == 0:
        with open("kept/writing", "w") as file:
            json.dump([step, w], file)
        os.replace("kept/writing", f"kept/step-{step}.json")
with open("model.json", "w") as file:
    json.dump(w, file)
