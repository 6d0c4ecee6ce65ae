#!/bin/bash
# A loop of bash, which moves a new file of its counter and its number over the old one.
mkdir -p kept
step=0 w=1
if [ -f kept/state ]; then read -r step w < kept/state; fi
while [ "$step" -lt 20 ]; do
    for ((j = 0; j < 50000; j++)); do w=$(((w * 31 + j + step) % 1000003)); done
    step=$((step + 1))
    echo "$step $w" > kept/state.tmp
    mv kept/state.tmp kept/state
done
echo "{\"w\": $w}" > model.json
