#!/bin/bash
# A pipeline of a shell, into a log that is kept: SIGTERM does not reach the training, whose exit code tee
# swallows.
mkdir -p kept
python3 only_at_notice.py 2>&1 | tee -a kept/train.log
