"""Computes an array chunk by chunk and skips the chunks that are there.

It writes as zarr does: one file of metadata, and one file for each chunk, which is renamed when it is whole.
"""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept/array", exist_ok=True)


def put(name, content):
    with open(f"kept/array/{name}.partial", "wb") as file:
        file.write(content)
    os.replace(f"kept/array/{name}.partial", f"kept/array/{name}")


if not os.path.exists("kept/array/.zarray"):
    put(".zarray", json.dumps({"shape": [640], "chunks": [32], "dtype": "|u1"}).encode())
for chunk in range(20):
    if not os.path.exists(f"kept/array/{chunk}"):
        put(str(chunk), bytes.fromhex(train("chunk", chunk)))
with open("model.json", "w") as file:
    json.dump([open(f"kept/array/{chunk}", "rb").read().hex() for chunk in range(20)], file)
