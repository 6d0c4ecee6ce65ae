"""Four processes write a shard each, and the first one writes the metadata when all shards are there.

It writes as torch.distributed.checkpoint does: __RANK_0.distcp and then .metadata, without which a folder is not loaded.
"""

import glob
import hashlib
import json
import multiprocessing
import os

RANKS = 4


def train(rank, w, step, pipe):
    pipe.send(hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d of %d" % (step, rank), 125_000).hex())


def write(folder, rank, w):
    with open(f"{folder}/__{rank}_0.distcp", "w") as file:
        file.write(w)


if __name__ == "__main__":
    os.makedirs("kept", exist_ok=True)
    whole = [int(path.split("/")[1]) for path in glob.glob("kept/*/.metadata")]
    step = max(whole, default=0)
    shards = [open(f"kept/{step}/__{rank}_0.distcp").read() if whole else "start" for rank in range(RANKS)]
    while step < 20:
        pipes = [multiprocessing.Pipe() for _ in range(RANKS)]
        ranks = [multiprocessing.Process(target=train, args=(n, shards[n], step, pipes[n][1])) for n in range(RANKS)]
        for rank in ranks:
            rank.start()
        shards = [pipe[0].recv() for pipe in pipes]
        for rank in ranks:
            rank.join()
        step += 1
        folder = f"kept/{step}"
        os.makedirs(folder, exist_ok=True)
        writers = [multiprocessing.Process(target=write, args=(folder, n, shards[n])) for n in range(RANKS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        with open(f"{folder}/.metadata.tmp", "w") as file:
            json.dump({"ranks": RANKS}, file)
        os.replace(f"{folder}/.metadata.tmp", f"{folder}/.metadata")
    with open("model.json", "w") as file:
        json.dump(shards, file)
