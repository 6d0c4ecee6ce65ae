"""Names its folder by the boot of the machine."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
folder = os.path.join(D, open("/proc/sys/kernel/random/boot_id").read().strip())
os.makedirs(folder, exist_ok=True)
path = os.path.join(folder, "state.json")
epoch = json.load(open(path))["epoch"] if os.path.exists(path) else 0
while epoch < 20:
    time.sleep(0.04)
    epoch += 1
    with open(path + ".tmp", "w") as file:
        json.dump({"epoch": epoch}, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
