"""Works and writes no file at all."""

import hashlib


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


w = "start"
for step in range(20):
    w = train(w, step)
print(w)
