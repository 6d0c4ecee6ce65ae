"""Programs of user code that end in the ways that a shim has to handle."""

from __future__ import annotations

SLEEP = "import os, time\ndef work():\n    open('pid', 'w').write(f'{os.getpid()}\\n')\n    time.sleep(600)\n"


STUBBORN = """
import os, signal, time
def work():
    signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
    open("pid", "w").write(f"{os.getpid()}\\n")
    while True:
        time.sleep(600)
"""


# Leaves three processes behind: one in its session, one in another session, and an orphan.
LEAVES = """
import os, subprocess, sys, time
def leave(name, *, session):
    subprocess.Popen(["sh", "-c", f"echo $$ > {name}.new; mv {name}.new {name}; sleep 600; true"], start_new_session=session)
def work(end: str):
    leave("child", session=False)
    leave("daemon", session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open("orphan.new", "w").write(f"{os.getpid()}\\n")
            os.rename("orphan.new", "orphan")
            time.sleep(600)
        os._exit(0)
    os.wait()
    while not all(map(os.path.exists, ("child", "daemon", "orphan"))):
        time.sleep(0.005)
    if end == "wait":
        time.sleep(600)
"""


LEFT = ("child", "daemon", "orphan")
