# cpu-spot: 1 to 10 spot nodes of m5.xlarge on EKS, as a managed node group.
# No command has run yet. Read the commands, set their variables, then pass them to a shell.

# Does the region have the machine, and is quota left?
# - A zone that is not listed does not offer the machine.
# - Quota counts vCPUs, for each group of families: the row with Spot and the first letter of the machine.
aws ec2 describe-instance-type-offerings \
  --location-type availability-zone \
  --filters Name=instance-type,Values=m5.xlarge \
  --region "${AWS_REGION:?the region of the cluster}" \
  --output table
aws service-quotas list-service-quotas \
  --service-code ec2 \
  --query 'Quotas[?contains(QuotaName, '"'"'Spot'"'"')].[QuotaName,QuotaCode,Value]' \
  --region "${AWS_REGION:?the region of the cluster}" \
  --output table
# How likely AWS is to have that many spot nodes now, from 1 to 10, for each zone.
aws ec2 get-spot-placement-scores \
  --instance-types m5.xlarge \
  --target-capacity 10 \
  --single-availability-zone \
  --region-names "${AWS_REGION:?the region of the cluster}"

# Make the group.
# - Spot: all nodes of the group are spot; the label eks.amazonaws.com/capacityType is SPOT, and the only taints
#   are yours. EKS chooses the machines by price and capacity, replaces a node on a rebalance recommendation and
#   drains it on the notice of 2 minutes, as a best effort. Capacity type and machines cannot be changed later:
#   make a new group instead.
# - One machine type means one spot market for each zone. More of the same CPUs, memory and GPUs are reclaimed
#   less often: create_flags: {instance-types: [m5.xlarge, ...]}. The cluster autoscaler measures by the first.
# - EKS sets no spot taint: add taints: ["spot=true:NoSchedule"] to the pool in spotwright.yaml, or any work may
#   land on it
# - max_price is not given to EKS: a managed node group pays the spot price, and has no ceiling
# - desiredSize is min_nodes (1). The autoscaler changes it later; a desired size is never part of an update.
# - --subnets decides the zones. With zonal volumes make a group for each zone.
aws eks create-nodegroup \
  --cluster-name "${CLUSTER:?the name of the cluster}" \
  --nodegroup-name cpu-spot \
  --capacity-type SPOT \
  --instance-types m5.xlarge \
  --scaling-config minSize=1,maxSize=10,desiredSize=1 \
  --subnets ${SUBNETS:?the subnets of the nodes, with spaces between them} \
  --node-role "${NODE_ROLE:?the ARN of the IAM role of the nodes}"
aws eks wait nodegroup-active \
  --cluster-name "${CLUSTER:?the name of the cluster}" \
  --nodegroup-name cpu-spot

# From zero: tell a cluster autoscaler what a node of the empty group would be.
# - It reads labels and taints of the group itself where its role may eks:DescribeNodegroup; then these tags are
#   not needed. Without either, pods that select a label wait for ever while the group is empty.
GROUP=$(aws eks describe-nodegroup \
  --cluster-name "${CLUSTER:?the name of the cluster}" \
  --nodegroup-name cpu-spot \
  --query 'nodegroup.resources.autoScalingGroups[0].name' \
  --output text)
aws autoscaling create-or-update-tags \
  --tags \
    ResourceType=auto-scaling-group,ResourceId="${GROUP}",Key=k8s.io/cluster-autoscaler/node-template/label/eks.amazonaws.com/nodegroup,Value=cpu-spot,PropagateAtLaunch=false \
    ResourceType=auto-scaling-group,ResourceId="${GROUP}",Key=k8s.io/cluster-autoscaler/node-template/label/eks.amazonaws.com/capacityType,Value=SPOT,PropagateAtLaunch=false

# Make spot: prefer true, once for the cluster.
# - Start the cluster autoscaler with --expander=priority.
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
    30:
      - ^eks-cpu-spot-[0-9a-f]{8}-.*
    20:
      - ^eks-gpu-spot-[0-9a-f]{8}-.*
    10:
      - ^eks-gpu-[0-9a-f]{8}-.*
EOF

# Compare what is there with spotwright.yaml.
kubectl get nodes -l eks.amazonaws.com/nodegroup=cpu-spot --show-labels
kubectl get nodes,daemonsets -A -o json | spotwright pools check -
# warning: EKS sets no spot taint: add taints: ["spot=true:NoSchedule"] to the pool in spotwright.yaml, or any work may land on it
# warning: max_price is not given to EKS: a managed node group pays the spot price, and has no ceiling
