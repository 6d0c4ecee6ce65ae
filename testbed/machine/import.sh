# Imports archives of images into the containerd of a node, each once; one that is still to be made is left out. Runs inside the
# node: `import.sh FOLDER ARCHIVE...`, with the folder of the node.
set -eu
folder=$1
shift
mkdir -p "$folder/images"
exec 9>"$folder/images/.lock"
flock 9 # what is built beside the cluster is imported while a node may be starting
for archive; do
    mark="$folder/images/${archive##*/}"
    if [ -e "$archive" ] && [ ! -e "$mark" ]; then
        ctr --namespace k8s.io images import "$archive" 9>&-
        touch "$mark"
    fi
done
