"""Waits a tenth of a second and writes its output: too short for an interruption."""

import json
import time

time.sleep(0.1)
with open("model.json", "w") as file:
    json.dump({"done": True}, file)
