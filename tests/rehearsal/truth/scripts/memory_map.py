"""Keeps its results in a memory map, and the number of those that are there in a file that is renamed."""

import hashlib
import json
import mmap
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
if not os.path.exists("kept/results.bin"):
    with open("kept/results.tmp", "wb") as file:
        file.write(bytes(32 * 20))
    os.replace("kept/results.tmp", "kept/results.bin")
done = int(open("kept/done").read()) if os.path.exists("kept/done") else 0
with open("kept/results.bin", "r+b") as file, mmap.mmap(file.fileno(), 32 * 20) as results:
    for number in range(done, 20):
        results[number * 32 : number * 32 + 32] = bytes.fromhex(train("row", number))
        results.flush()
        with open("kept/done.tmp", "w") as marker:
            marker.write(str(number + 1))
        os.replace("kept/done.tmp", "kept/done")
    with open("model.json", "w") as model:
        json.dump(bytes(results).hex(), model)
