# l4: 1 to 2 on-demand nodes of g2-standard-8 on GKE.
# No command has run yet. Read the commands, set their variables, then pass them to a shell.

# Does the region have the machine, and is quota left?
# - A zone that is not listed does not offer the machine or the GPU.
# - Quota: the rows CPUS, and the row of the machine's family where there is one, NVIDIA_L4_GPUS.
gcloud compute machine-types list \
  --filter name=g2-standard-8
gcloud compute accelerator-types list \
  --filter name=nvidia-l4
gcloud compute regions describe "${REGION:?the region of the cluster}" \
  --flatten quotas \
  --format 'table(quotas.metric,quotas.limit,quotas.usage)'

# Make the pool.
# - On-demand: without --spot the nodes are standard VMs, with the label
#   cloud.google.com/gke-provisioning=standard.
# - --num-nodes counts for each zone, and gcloud's default is 3 for each; here it is what 1 nodes in all need.
#   --total-min-nodes and --total-max-nodes bound the whole pool, as min_nodes and max_nodes do; --min-nodes and
#   --max-nodes would count for each zone. In a regional cluster without zones in spotwright.yaml the pool has
#   three.
# - --location-policy ANY takes the zone that has capacity; BALANCED spreads the nodes. GKE passes labels,
#   taints and GPUs of the pool to its autoscaler, so that a pool of 0 nodes is known to fit.
# - --accelerator: GKE installs the driver (gpu-driver-version) and the device plugin, and adds the taint
#   nvidia.com/gpu=present:NoSchedule; pods that ask for GPUs tolerate it without a word of theirs.
# - Scopes, disks and the like come from create_flags, and stand last.
gcloud container node-pools create l4 \
  --cluster "${CLUSTER:?the name of the cluster}" \
  --location "${LOCATION:?the region or zone of the cluster}" \
  --machine-type g2-standard-8 \
  --accelerator type=nvidia-l4,count=1,gpu-driver-version=default \
  --enable-autoscaling \
  --num-nodes 1 \
  --total-min-nodes 1 \
  --total-max-nodes 2 \
  --location-policy BALANCED \
  --node-labels cloud.google.com/compute-class=train \
  --node-taints cloud.google.com/compute-class=train:NoSchedule,batch=:NoExecute

# Make spot: prefer true, once for the cluster.
# - GKE's autoscaler has no priority expander, and ignores preferred affinity when it chooses the pool to grow.
#   A ComputeClass orders the pools; it is printed with the labels and taints that they then need.
spotwright pools command --as computeclass | kubectl apply -f -

# Compare what is there with spotwright.yaml.
kubectl get nodes -l cloud.google.com/gke-nodepool=l4 --show-labels
kubectl get nodes,daemonsets -A -o json | spotwright pools check -
