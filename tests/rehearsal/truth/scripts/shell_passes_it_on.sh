#!/bin/bash
# A shell that starts the training beside itself and passes SIGTERM on; the training saves only then.
python3 only_at_notice.py &
child=$!
trap 'kill -TERM $child' TERM
wait $child
code=$?
while kill -0 $child 2> /dev/null; do
    wait $child
    code=$?
done
exit $code
