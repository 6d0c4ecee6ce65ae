# The first process of a node, in mount, pid, uts and network namespaces of its own. SIGKILL to it is a power cut: the
# kernel ends every process of the node and takes all its mounts away. SIGTERM ends the services one by one.
#
# Variables: NODE, FOLDER (of the node), BIN (kubelet, kube-proxy), ARCHIVES (of images), SERVICES (a command),
# KUBELET_FLAGS, PROXY_FLAGS (empty: no kube-proxy), CGROUP_FOLDER.
set -eu
mount --make-rprivate /
hostname "$NODE"

# The machine's folders stay readable, and what the node makes in them is the node's: no mount point is made on the machine.
layer() {
    mkdir -p "$FOLDER/layers$1/upper" "$FOLDER/layers$1/work"
    mount -t overlay -o "lowerdir=$1,upperdir=$FOLDER/layers$1/upper,workdir=$FOLDER/layers$1/work" overlay "$1"
}
mount -t tmpfs -o mode=755 tmpfs "$FOLDER/layers"
layer /var/lib
layer /var/log
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/containerd /var/lib/kubelet /var/lib/containerd /var/lib/cni /var/log/pods /var/log/containers
for place in kubelet containerd cni; do mount --bind "$FOLDER/$place" "/var/lib/$place"; done
for place in pods containers; do mount --bind "$FOLDER/$place" "/var/log/$place"; done
mount --make-rshared /

log() { exec >>"$FOLDER/log/$1.log" 2>&1; }
( log containerd; exec containerd --config "$FOLDER/containerd.toml" ) &
( log services; exec $SERVICES ) &
until ctr version >/dev/null 2>&1; do sleep 0.05; done
sh "${0%/*}/import.sh" "$FOLDER" $ARCHIVES >>"$FOLDER/log/images.log" 2>&1
[ -z "$PROXY_FLAGS" ] || ( log kube-proxy; exec "$BIN/kube-proxy" $PROXY_FLAGS ) &

# A kubelet that finds no logind when it starts never hears of a shutdown.
until [ -S "${DBUS_SYSTEM_BUS_ADDRESS#unix:path=}" ]; do sleep 0.05; done

# A kubelet ends if containerd still recovers its pods, and is started again, as systemd does on a real machine.
(
    log kubelet
    trap 'kill "$child"; wait "$child" || true; exit 0' TERM
    until "$BIN/kubelet" $KUBELET_FLAGS & child=$!; wait "$child"; do sleep 0.2; done
) &

trap 'kill $(jobs -p) || true; wait || true; exit 0' TERM
while :; do sleep infinity & wait $!; done # reaps the orphans of the node
