#!/bin/bash
# Fits one fold after another and keeps a file of each, as a script of R does with saveRDS and file.exists; awk
# computes in the place of R.
mkdir -p kept/folds
for fold in $(seq 1 20); do
    [ -f "kept/folds/$fold.rds" ] && continue
    awk -v fold="$fold" 'BEGIN { w = fold; for (j = 0; j < 2000000; j++) w = (w * 31 + j) % 1000003; print w }' > kept/folds/writing
    mv kept/folds/writing "kept/folds/$fold.rds"
done
cat $(seq -f 'kept/folds/%g.rds' 1 20) > model.json
