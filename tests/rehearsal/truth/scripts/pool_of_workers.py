"""Spreads the parts of each round over two processes, and saves the round when all parts are there."""

import hashlib
import json
import multiprocessing
import os


def part(task):
    w, number = task
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % number, 120_000).hex()


if __name__ == "__main__":
    os.makedirs("kept", exist_ok=True)
    round_, w = 0, "start"
    if os.path.exists("kept/state.json"):
        round_, w = json.load(open("kept/state.json"))
    with multiprocessing.Pool(2) as pool:
        while round_ < 20:
            parts = pool.map(part, [(w, number) for number in range(4)])
            round_, w = round_ + 1, "".join(parts)
            with open("kept/state.json.tmp", "w") as file:
                json.dump([round_, w], file)
            os.replace("kept/state.json.tmp", "kept/state.json")
    with open("model.json", "w") as file:
        json.dump(w, file)
