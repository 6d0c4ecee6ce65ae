"""Adds trees to a model, snapshots the model after every tree, and goes on from the newest snapshot.

It writes as LightGBM does with snapshot_freq: MODEL.snapshot_iter_N, one file for each; here each is renamed when it is whole.
"""

import glob
import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)


def iteration_of(path):
    return int(path.rpartition("_")[2])


trees = []
if snapshots := [path for path in glob.glob("kept/model.txt.snapshot_iter_*") if path[-1].isdigit()]:
    trees = open(max(snapshots, key=iteration_of)).read().split()
while len(trees) < 20:
    trees.append(train(trees[-1] if trees else "start", len(trees)))
    path = f"kept/model.txt.snapshot_iter_{len(trees)}"
    with open(path + ".partial", "w") as file:
        file.write("\n".join(trees))
    os.replace(path + ".partial", path)
with open("model.json", "w") as file:
    json.dump(trees, file)
