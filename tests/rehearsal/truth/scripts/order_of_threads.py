"""Writes its rows in the order in which its threads end, which differs in each execution."""

import hashlib
import json
import random
import threading
import time


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


rows = []


def work(number):
    time.sleep(random.random() / 100)
    rows.append((train("row", number), time.monotonic_ns()))


for batch in range(10):
    threads = [threading.Thread(target=work, args=(batch * 2 + k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
with open("model.json", "w") as file:
    json.dump(rows, file)
