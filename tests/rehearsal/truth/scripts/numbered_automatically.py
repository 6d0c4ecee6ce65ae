"""Saves in checkpoint_0, checkpoint_1 and so on, marks each when it is whole, and goes on from the last marked one.

It names its folders as accelerate does with automatic_checkpoint_naming; the number of the next one is in what it saves.
"""

import glob
import hashlib
import json
import os
import shutil


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


ROOT = "kept/checkpoints"
os.makedirs(ROOT, exist_ok=True)
iteration, step, w = 0, 0, "start"
marked = [int(path.split("/")[-2].split("_")[1]) for path in glob.glob(ROOT + "/checkpoint_*/complete")]
if marked:
    folder = f"{ROOT}/checkpoint_{max(marked)}"
    step, w = json.load(open(f"{folder}/custom_checkpoint_0.json"))
    iteration = max(marked) + 1
while step < 20:
    step, w = step + 1, train(w, step)
    folder = f"{ROOT}/checkpoint_{iteration}"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(f"{folder}/custom_checkpoint_0.json", "w") as file:
        json.dump([step, w], file)
    open(f"{folder}/complete", "w").close()
    iteration += 1
with open("model.json", "w") as file:
    json.dump(w, file)
