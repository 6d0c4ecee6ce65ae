#!/bin/bash
# Runs the stages of a pipeline by one Python process each, and marks a stage as done when it has succeeded.
set -e
mkdir -p kept/done
for stage in $(seq 1 12); do
    [ -f "kept/done/$stage" ] && continue
    python3 -S -c "
import hashlib, sys
stage = int(sys.argv[1])
before = open(f'kept/data.{stage - 1}').read() if stage > 1 else 'start'
open('kept/data.new', 'w').write(hashlib.pbkdf2_hmac('sha256', before.encode(), b'stage', 800_000).hex())
" "$stage"
    mv kept/data.new "kept/data.$stage"
    touch "kept/done/$stage"
done
cp "kept/data.$stage" model.json
