"""Each save is an archive of a folder, renamed when it is whole."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
import io
import tarfile

path = os.path.join(D, "state.tar")
epoch = 0
if os.path.exists(path):
    with tarfile.open(path) as archive:
        epoch = json.load(archive.extractfile("state.json"))["epoch"]
while epoch < 20:
    time.sleep(0.04)
    epoch += 1
    content = json.dumps({"epoch": epoch}).encode()
    with tarfile.open(path + ".tmp", "w") as archive:
        info = tarfile.TarInfo("state.json")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
