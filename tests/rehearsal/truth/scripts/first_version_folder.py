"""Each attempt logs into a folder version_N of the next number, and loads from version_0."""

import glob
import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
first = "kept/version_0/last.json"
step, w = json.load(open(first)) if os.path.exists(first) else (0, "start")
folder = f"kept/version_{len(glob.glob('kept/version_*'))}"
os.makedirs(folder)
while step < 20:
    step, w = step + 1, train(w, step)
    with open("kept/writing", "w") as file:
        json.dump([step, w], file)
    os.replace("kept/writing", f"{folder}/last.json")

with open("model.json", "w") as file:
    json.dump(w, file)
