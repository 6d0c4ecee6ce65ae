#!/bin/bash
# A shell passes SIGTERM on to a training that saves then, and ends with 0 itself although the output is not
# there.
python3 only_at_notice.py &
child=$!
trap 'kill -TERM $child; wait $child; exit 0' TERM
wait $child
