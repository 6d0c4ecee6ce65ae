# spot: 0 to 10 spot nodes on a cluster without a provider that Spotwright knows.
# No command has run yet. Read the commands, set their variables, then pass them to a shell.

# Nodes that register themselves: options of their kubelet.
# - Labels and taints that are set at the start are there before the first pod is.
# kubelet --node-labels=capacity=spot --register-with-taints=spot=true:NoSchedule

# Nodes that are there already.
kubectl label node "${NODE:?the name of a node of the pool}" capacity=spot \
  --overwrite
kubectl taint node "${NODE:?the name of a node of the pool}" spot=true:NoSchedule \
  --overwrite

# From zero, with Cluster API: annotations of the MachineDeployment.
# - Without them the autoscaler does not know what a node of an empty group would be.
kubectl annotate machinedeployment "${MACHINE_DEPLOYMENT:?the MachineDeployment of the pool}" capacity.cluster-autoscaler.kubernetes.io/cpu=8 capacity.cluster-autoscaler.kubernetes.io/memory=32Gi capacity.cluster-autoscaler.kubernetes.io/gpu-type=nvidia.com/gpu capacity.cluster-autoscaler.kubernetes.io/gpu-count=2 capacity.cluster-autoscaler.kubernetes.io/labels=capacity=spot capacity.cluster-autoscaler.kubernetes.io/taints=spot=true:NoSchedule \
  --overwrite

# Make spot: prefer true, once for the cluster.
# - Start the cluster autoscaler with --expander=priority, and correct the patterns to the names of its node
#   groups.
# - The autoscaler ignores preferred affinity when it chooses the group of nodes to grow. With the expander
#   'priority' it takes the highest number in this ConfigMap whose group fits.
# - Where that group is at its maximum, or the cloud refuses a machine, the next scan takes the next group (10
#   seconds); a refused group is tried again after 5 minutes. Only where the cloud accepts and no machine comes
#   it takes max-node-provision-time, 15 minutes.
# - A group that no pattern matches comes after those that one matches, and where none that fits is matched the
#   choice is random: add the pools of the cluster that spotwright.yaml does not have.
kubectl apply -f - <<'EOF'
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-autoscaler-priority-expander, namespace: kube-system}
data:
  priorities: |
    20:
      - .*spot.*
    10:
      - .*on-demand.*
EOF
