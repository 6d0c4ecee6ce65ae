"""Appends rows to a kept table, and saves its position less often."""

import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path = os.path.join(D, "position")
position = int(open(path).read()) if os.path.exists(path) else 0
while position < 20:
    time.sleep(0.04)
    with open(os.path.join("kept", "rows.csv"), "a") as file:
        file.write(f"{position},{position**2}\n")
    position += 1
    if position % 5 == 0:
        with open(path + ".tmp", "w") as file:
            file.write(str(position))
        os.replace(path + ".tmp", path)
