# gpuspot: 0 to 4 spot nodes of Standard_NC6s_v3 on AKS.
# No command has run yet. Read the commands, set their variables, then pass them to a shell.

# Does the region have the machine, and is quota left?
# - The column Restrictions says None where your subscription may have the machine. NotAvailableForSubscription
#   of the type Location: not in this region; of the type Zone: not in the zones beside it. Ask for access, or
#   take another region or size.
# - Spot nodes of every family share one quota: the row Total Regional Low-priority vCPUs. This pool needs up to
#   24.
az vm list-skus \
  --location eastus \
  --size Standard_NC6s_v3 \
  --all \
  --output table
az vm list-usage \
  --location eastus \
  --output table
# How likely Azure is to have that many spot nodes now: High, Medium or Low.
az compute-recommender spot-placement-score \
  --location eastus \
  --desired-locations '["eastus"]' \
  --desired-sizes '[{"sku":"Standard_NC6s_v3"}]' \
  --desired-count 4 \
  --availability-zones true

# Make the pool.
# - --priority Spot: AKS adds the label and the taint kubernetes.azure.com/scalesetpriority=spot:NoSchedule by
#   itself. It can never be the cluster's default pool, has no SLA and one fault domain, and its upgrades do not
#   drain. Priority, eviction policy and maximum price cannot be changed later: make a new pool instead.
# - --spot-max-price -1 is the eviction type 'capacity only': nodes go only where Azure needs the capacity, and
#   cost at most the on-demand price.
# - --eviction-policy Delete: evicted machines are deleted, and use neither quota nor disks.
# - The notice is 30 seconds at best; AKS does not promise SIGTERM. Without the autoscaler the pool would shrink
#   to 0 for good.
# - --node-count 0 is min_nodes: without it az asks for 3 nodes, which may lie outside --min-count and
#   --max-count, and then refuses. Nodes come when pods wait for them.
# - Labels and taints are given here and never to Node objects: AKS passes them to its autoscaler, so that a
#   pool of 0 nodes is known to fit, and every new node has them. They can be changed with az aks nodepool
#   update.
# - GPUs: the machine size brings them, and AKS the driver. It installs no device plugin: until NVIDIA's
#   DaemonSet runs there and tolerates the pool's taints, no node has allocatable GPUs.
# - --mode User: system pods stay on the system pool. The pool's name gpuspot is the label
#   kubernetes.azure.com/agentpool.
az aks nodepool add \
  --resource-group "${RESOURCE_GROUP:?the resource group of the cluster}" \
  --cluster-name "${CLUSTER:?the name of the cluster}" \
  --name gpuspot \
  --mode User \
  --priority Spot \
  --eviction-policy Delete \
  --spot-max-price -1 \
  --node-vm-size Standard_NC6s_v3 \
  --zones 1 2 \
  --enable-cluster-autoscaler \
  --node-count 0 \
  --min-count 0 \
  --max-count 4 \
  --labels gpu=true \
  --node-taints sku=gpu:NoSchedule

# Make spot: prefer true, once for the cluster.
# - The autoscaler ignores preferred affinity when it chooses the group of nodes to grow. With the expander
#   'priority' it takes the highest number in this ConfigMap whose group fits.
# - Where that group is at its maximum, or the cloud refuses a machine, the next scan takes the next group (10
#   seconds); a refused group is tried again after 5 minutes. Only where the cloud accepts and no machine comes
#   it takes max-node-provision-time, 15 minutes.
# - A group that no pattern matches comes after those that one matches, and where none that fits is matched the
#   choice is random: add the pools of the cluster that spotwright.yaml does not have.
# - The other settings of the autoscaler's profile stay as they are.
az aks update \
  --resource-group "${RESOURCE_GROUP:?the resource group of the cluster}" \
  --name "${CLUSTER:?the name of the cluster}" \
  --cluster-autoscaler-profile expander=priority
kubectl apply -f - <<'EOF'
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-autoscaler-priority-expander, namespace: kube-system}
data:
  priorities: |
    40:
      - ^aks-cheapspot-.*
    30:
      - ^aks-gpuspot-.*
    20:
      - ^aks-win-.*
    10:
      - ^aks-gpu-.*
EOF

# Compare what is there with spotwright.yaml.
kubectl get nodes -l kubernetes.azure.com/agentpool=gpuspot --show-labels
kubectl get nodes,daemonsets -A -o json | spotwright pools check -
