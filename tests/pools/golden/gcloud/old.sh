# old: 0 to 10 spot nodes of e2-standard-4 on GKE.
# No command has run yet. Read the commands, set their variables, then pass them to a shell.

# Does the region have the machine, and is quota left?
# - A zone that is not listed does not offer the machine or the GPU.
# - Quota: the rows PREEMPTIBLE_CPUS. Without a separate preemptible quota, spot is counted against the ordinary
#   quota.
gcloud compute machine-types list \
  --filter name=e2-standard-4
gcloud compute regions describe "${REGION:?the region of the cluster}" \
  --flatten quotas \
  --format 'table(quotas.metric,quotas.limit,quotas.usage)'

# Make the pool.
# - --preemptible: preemptible VMs, with the label cloud.google.com/gke-preemptible=true, which end after 24
#   hours. They have no SLA. The notice is 30 seconds, of which pods have the first 15: a longer grace period is
#   cut.
# - preemptible VMs are a form of the past: Spot VMs cost the same and have no limit of 24 hours: remove the
#   label cloud.google.com/gke-preemptible and lifetime from the pool, and --spot makes them
# - GKE sets no spot taint on a pool that is made by hand: add taints:
#   ["cloud.google.com/gke-spot=true:NoSchedule"] to the pool in spotwright.yaml, or any work may land on it
# - max_price is not given to gcloud: Spot VMs of Google have no price ceiling
# - --num-nodes counts for each zone, and gcloud's default is 3 for each; here it is what 0 nodes in all need.
#   --total-min-nodes and --total-max-nodes bound the whole pool, as min_nodes and max_nodes do; --min-nodes and
#   --max-nodes would count for each zone. In a regional cluster without zones in spotwright.yaml the pool has
#   three.
# - --location-policy ANY takes the zone that has capacity; BALANCED spreads the nodes. GKE passes labels,
#   taints and GPUs of the pool to its autoscaler, so that a pool of 0 nodes is known to fit.
# - Scopes, disks and the like come from create_flags, and stand last.
gcloud container node-pools create old \
  --cluster "${CLUSTER:?the name of the cluster}" \
  --location "${LOCATION:?the region or zone of the cluster}" \
  --machine-type e2-standard-4 \
  --preemptible \
  --enable-autoscaling \
  --num-nodes 0 \
  --total-min-nodes 0 \
  --total-max-nodes 10 \
  --location-policy ANY

# Make spot: prefer true, once for the cluster.
# - GKE's autoscaler has no priority expander, and ignores preferred affinity when it chooses the pool to grow.
#   A ComputeClass orders the pools; it is printed with the labels and taints that they then need.
spotwright pools command --as computeclass | kubectl apply -f -

# Compare what is there with spotwright.yaml.
kubectl get nodes -l cloud.google.com/gke-nodepool=old --show-labels
kubectl get nodes,daemonsets -A -o json | spotwright pools check -
# warning: preemptible VMs are a form of the past: Spot VMs cost the same and have no limit of 24 hours: remove the label cloud.google.com/gke-preemptible and lifetime from the pool, and --spot makes them
# warning: GKE sets no spot taint on a pool that is made by hand: add taints: ["cloud.google.com/gke-spot=true:NoSchedule"] to the pool in spotwright.yaml, or any work may land on it
# warning: max_price is not given to gcloud: Spot VMs of Google have no price ceiling
