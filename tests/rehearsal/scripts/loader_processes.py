"""Two processes load the data, and the main one saves."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
import multiprocessing


def load(queue, numbers):
    for number in numbers:
        queue.put(number)


if __name__ == "__main__":
    path = os.path.join(D, "state.json")
    state = json.load(open(path)) if os.path.exists(path) else {"epoch": 0, "total": 0}
    while state["epoch"] < 8:
        queue = multiprocessing.Queue()
        workers = [multiprocessing.Process(target=load, args=(queue, range(k, 10, 2))) for k in range(2)]
        for worker in workers:
            worker.start()
        total = sum(queue.get() for _ in range(10))
        for worker in workers:
            worker.join()
        time.sleep(0.05)
        state = {"epoch": state["epoch"] + 1, "total": state["total"] + total}
        with open(path + ".tmp", "w") as file:
            json.dump(state, file)
        os.replace(path + ".tmp", path)
    with open("model.json", "w") as file:
        json.dump(state, file)
