"""Goes through the calls of its parts again, whose results joblib.Memory has kept."""

import hashlib
import json

from joblib import Memory

memory = Memory("kept/cache", verbose=0)


@memory.cache
def part(w, number):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % number, 500_000).hex()


w = "start"
for number in range(20):
    w = part(w, number)
with open("model.json", "w") as file:
    json.dump(w, file)
