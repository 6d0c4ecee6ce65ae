#!/bin/bash
# A shell that prepares the environment and becomes the training by exec.
export EPOCHS=20
exec python3 -S -c "
import hashlib, json, os
os.makedirs('kept', exist_ok=True)
step, w = json.load(open('kept/state.json')) if os.path.exists('kept/state.json') else (0, 'start')
while step < int(os.environ['EPOCHS']):
    step, w = step + 1, hashlib.pbkdf2_hmac('sha256', w.encode(), b'%d' % step, 500_000).hex()
    json.dump([step, w], open('kept/state.tmp', 'w'))
    os.replace('kept/state.tmp', 'kept/state.json')
json.dump(w, open('model.json', 'w'))
"
