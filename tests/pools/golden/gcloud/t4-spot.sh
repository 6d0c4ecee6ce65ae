# t4-spot: 0 to 6 spot nodes of n1-standard-8 on GKE.
# No command has run yet. Read the commands, set their variables, then pass them to a shell.

# Does the region have the machine, and is quota left?
# - A zone that is not listed does not offer the machine or the GPU.
# - Quota: the rows PREEMPTIBLE_CPUS, PREEMPTIBLE_NVIDIA_T4_GPUS. Without a separate preemptible quota, spot is
#   counted against the ordinary quota.
gcloud compute machine-types list \
  --filter name=n1-standard-8 \
  --zones us-central1-a,us-central1-c
gcloud compute accelerator-types list \
  --filter name=nvidia-tesla-t4
gcloud compute regions describe us-central1 \
  --flatten quotas \
  --format 'table(quotas.metric,quotas.limit,quotas.usage)'

# Make the pool.
# - --spot: Spot VMs, with the labels cloud.google.com/gke-spot=true and gke-provisioning=spot, and no maximum
#   age. They have no SLA. The notice is 30 seconds, of which pods have the first 15: a longer grace period is
#   cut.
# - --num-nodes counts for each zone, and gcloud's default is 3 for each; here it is what 0 nodes in all need.
#   --total-min-nodes and --total-max-nodes bound the whole pool, as min_nodes and max_nodes do; --min-nodes and
#   --max-nodes would count for each zone. In a regional cluster without zones in spotwright.yaml the pool has
#   three.
# - --location-policy ANY takes the zone that has capacity; BALANCED spreads the nodes. GKE passes labels,
#   taints and GPUs of the pool to its autoscaler, so that a pool of 0 nodes is known to fit.
# - --accelerator: GKE installs the driver (gpu-driver-version) and the device plugin, and adds the taint
#   nvidia.com/gpu=present:NoSchedule; pods that ask for GPUs tolerate it without a word of theirs.
# - Scopes, disks and the like come from create_flags, and stand last.
gcloud container node-pools create t4-spot \
  --cluster "${CLUSTER:?the name of the cluster}" \
  --location "${LOCATION:?the region or zone of the cluster}" \
  --machine-type n1-standard-8 \
  --accelerator type=nvidia-tesla-t4,count=1,gpu-driver-version=default \
  --spot \
  --node-locations us-central1-a,us-central1-c \
  --enable-autoscaling \
  --num-nodes 0 \
  --total-min-nodes 0 \
  --total-max-nodes 6 \
  --location-policy ANY \
  --node-labels cloud.google.com/compute-class=train,team=research \
  --node-taints cloud.google.com/gke-spot=true:NoSchedule,cloud.google.com/compute-class=train:NoSchedule \
  --scopes storage-full,logging-write \
  --disk-size 200 \
  --no-enable-autoupgrade

# Make spot: prefer true, once for the cluster.
# - GKE's autoscaler has no priority expander, and ignores preferred affinity when it chooses the pool to grow.
#   A ComputeClass orders the pools; it is printed with the labels and taints that they then need.
spotwright pools command --as computeclass | kubectl apply -f -

# Compare what is there with spotwright.yaml.
kubectl get nodes -l cloud.google.com/gke-nodepool=t4-spot --show-labels
kubectl get nodes,daemonsets -A -o json | spotwright pools check -
