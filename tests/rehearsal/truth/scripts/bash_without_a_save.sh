#!/bin/bash
# A loop of bash that notes each step in a log that it never reads.
mkdir -p kept
w=1
for step in $(seq 1 20); do
    for ((j = 0; j < 50000; j++)); do w=$(((w * 31 + j + step) % 1000003)); done
    echo "step $step: $w" >> kept/progress.log
done
echo "{\"w\": $w}" > model.json
