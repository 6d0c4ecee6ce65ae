#!/bin/bash
# A shell starts the training until it succeeds, and passes no SIGTERM on; the training saves only then.
until python3 only_at_notice.py; do
    echo again
    sleep 0.1
done
