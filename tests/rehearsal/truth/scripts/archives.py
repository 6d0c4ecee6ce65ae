"""Each save is an archive of two files, renamed when it is whole."""

import hashlib
import io
import json
import os
import tarfile


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
step, w = 0, "start"
if os.path.exists("kept/state.tar.gz"):
    with tarfile.open("kept/state.tar.gz") as archive:
        step, w = (archive.extractfile(name).read().decode() for name in ("step", "w"))
    step = int(step)
while step < 20:
    step, w = step + 1, train(w, step)
    with tarfile.open("kept/new.tmp", "w:gz") as archive:
        for name, text in (("step", str(step)), ("w", w)):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    os.replace("kept/new.tmp", "kept/state.tar.gz")
with open("model.json", "w") as file:
    json.dump(w, file)
