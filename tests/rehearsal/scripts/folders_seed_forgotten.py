"""Fills a folder for each save and marks it when it is whole, and forgets its generator."""

import glob
import json
import os
import random
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
random.seed(7)
whole = [int(folder.rpartition("-")[2]) for folder in glob.glob(f"{D}/ck-*") if os.path.exists(f"{folder}/DONE")]
epoch, w = max(whole, default=0), 1.0
if epoch:
    w = json.load(open(f"{D}/ck-{epoch}/w.json"))
while epoch < 20:
    time.sleep(0.04)
    epoch, w = epoch + 1, w * 0.9 + random.random()
    os.makedirs(f"{D}/ck-{epoch}", exist_ok=True)
    for name in ("w", "again"):
        with open(f"{D}/ck-{epoch}/{name}.json", "w") as file:
            json.dump(w, file)
    open(f"{D}/ck-{epoch}/DONE", "w").close()
with open("model.json", "w") as file:
    json.dump(w, file)
