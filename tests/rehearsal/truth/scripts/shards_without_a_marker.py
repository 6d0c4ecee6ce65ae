"""Writes the shards of a save into its folder, and loads the newest folder, whole or not."""

import glob
import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
folders = glob.glob("kept/step-*")
step, w = 0, "start"
if folders:
    step = max(int(folder[10:]) for folder in folders)
    w = "".join(open(f"kept/step-{step}/shard-{number}").read()[:16] for number in range(4))
while step < 20:
    step, w = step + 1, train(w, step)
    os.makedirs(f"kept/step-{step}", exist_ok=True)
    for number in range(4):
        with open(f"kept/step-{step}/shard-{number}", "w") as file:
            file.write(w[number * 16 : number * 16 + 16] * 65536)
with open("model.json", "w") as file:
    json.dump(w, file)
