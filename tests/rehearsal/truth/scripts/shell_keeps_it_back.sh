#!/bin/bash
# A shell starts the training and waits for it: SIGTERM ends at the shell, and the training saves only then.
echo starting
python3 only_at_notice.py
echo "ended with $?"
test -f model.json
