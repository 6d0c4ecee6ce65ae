"""Writes three shards into a folder of each save, and loads the newest folder, whole or not."""

import glob
import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]


def epoch_of(folder):
    return int(folder.rpartition("-")[2])


folders = glob.glob(f"{D}/ck-*")
epoch, weights = 0, [1.0, 2.0, 3.0]
if folders:
    newest = max(folders, key=epoch_of)
    epoch, weights = epoch_of(newest), [json.load(open(f"{newest}/shard-{n}.json")) for n in range(3)]
while epoch < 20:
    time.sleep(0.04)
    epoch, weights = epoch + 1, [w * 0.9 + 1 for w in weights]
    if epoch % 2 == 0:
        folder = f"{D}/ck-{epoch}"
        os.makedirs(folder, exist_ok=True)
        for n in range(3):
            with open(f"{folder}/shard-{n}.json", "w") as file:
                json.dump(weights[n], file)
with open("model.json", "w") as file:
    json.dump(weights, file)
