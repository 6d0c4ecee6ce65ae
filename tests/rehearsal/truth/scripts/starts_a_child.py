"""Starts the training as a child process and waits for it, without passing SIGTERM on."""

import subprocess
import sys

sys.exit(subprocess.call([sys.executable, "only_at_notice.py"]))
