"""Keeps its prepared data, shard by shard, which is two fifths of the work, and never saves while it trains."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept/data", exist_ok=True)
for shard in range(8):
    if not os.path.exists(f"kept/data/{shard}"):
        with open("kept/writing", "w") as file:
            file.write(train("shard", shard))
        os.replace("kept/writing", f"kept/data/{shard}")
w = "start"
for step in range(12):
    w = train(w + open(f"kept/data/{step % 8}").read(), step)
with open("model.json", "w") as file:
    json.dump(w, file)
