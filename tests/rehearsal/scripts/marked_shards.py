"""Writes three shards and a marker into a folder of each save, and loads only folders that have the marker."""

import glob
import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]


def epoch_of(folder):
    return int(folder.rpartition("-")[2])


whole = [folder for folder in glob.glob(f"{D}/ck-*") if os.path.exists(f"{folder}/DONE")]
epoch, weights = 0, [1.0, 2.0, 3.0]
if whole:
    newest = max(whole, key=epoch_of)
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
        open(f"{folder}/DONE", "w").close()
with open("model.json", "w") as file:
    json.dump(weights, file)
