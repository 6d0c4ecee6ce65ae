#!/bin/bash
# Runs the stages of a pipeline by one Python process each, and marks a stage as done when it has succeeded.
set -e
mkdir -p kept/done
for stage in $(seq 1 12); do
    [ -f "kept/done/$stage" ] && continue
    python3 -S -c "
import hashlib, sys
before = open('kept/data').read() if int(sys.argv[1]) > 1 else 'start'
open('kept/data.' + sys.argv[1], 'w').write(hashlib.pbkdf2_hmac('sha256', before.encode(), b'stage', 800_000).hex())
" "$stage"
    cp "kept/data.$stage" kept/data.new && mv kept/data.new kept/data
    touch "kept/done/$stage"
done
cp kept/data model.json
