# gpu-spot: 0 to 8 spot nodes of g4dn.xlarge on EKS, as a managed node group.
# No command has run yet. Read the commands, set their variables, then pass them to a shell.

# Does the region have the machine, and is quota left?
# - A zone that is not listed does not offer the machine.
# - Quota counts vCPUs, for each group of families: the row with Spot and the first letter of the machine.
aws ec2 describe-instance-type-offerings \
  --location-type availability-zone \
  --filters Name=instance-type,Values=g4dn.xlarge \
  --region us-east-1 \
  --output table
aws service-quotas list-service-quotas \
  --service-code ec2 \
  --query 'Quotas[?contains(QuotaName, '"'"'Spot'"'"')].[QuotaName,QuotaCode,Value]' \
  --region us-east-1 \
  --output table
# How likely AWS is to have that many spot nodes now, from 1 to 10, for each zone.
aws ec2 get-spot-placement-scores \
  --instance-types g4dn.xlarge \
  --target-capacity 8 \
  --single-availability-zone \
  --region-names us-east-1

# Make the group.
# - Spot: all nodes of the group are spot; the label eks.amazonaws.com/capacityType is SPOT, and the only taints
#   are yours. EKS chooses the machines by price and capacity, replaces a node on a rebalance recommendation and
#   drains it on the notice of 2 minutes, as a best effort. Capacity type and machines cannot be changed later:
#   make a new group instead.
# - One machine type means one spot market for each zone. More of the same CPUs, memory and GPUs are reclaimed
#   less often: create_flags: {instance-types: [g4dn.xlarge, ...]}. The cluster autoscaler measures by the
#   first.
# - GPUs: the machine brings them, the NVIDIA AMI its driver. The device plugin is yours to install, and must
#   tolerate the taints.
# - desiredSize is min_nodes (0). The autoscaler changes it later; a desired size is never part of an update.
# - --subnets decides the zones. Take those in us-east-1a, us-east-1b: zones of spotwright.yaml are subnets
#   here. With zonal volumes make a group for each zone.
aws eks create-nodegroup \
  --cluster-name "${CLUSTER:?the name of the cluster}" \
  --nodegroup-name gpu-spot \
  --region us-east-1 \
  --capacity-type SPOT \
  --instance-types g4dn.xlarge \
  --ami-type AL2023_x86_64_NVIDIA \
  --scaling-config minSize=0,maxSize=8,desiredSize=0 \
  --subnets ${SUBNETS:?the subnets of the nodes, with spaces between them} \
  --node-role "${NODE_ROLE:?the ARN of the IAM role of the nodes}" \
  --labels gpu=true \
  --taints key=spot,value=true,effect=NO_SCHEDULE key=nvidia.com/gpu,effect=NO_SCHEDULE
aws eks wait nodegroup-active \
  --cluster-name "${CLUSTER:?the name of the cluster}" \
  --nodegroup-name gpu-spot \
  --region us-east-1

# From zero: tell a cluster autoscaler what a node of the empty group would be.
# - It reads labels and taints of the group itself where its role may eks:DescribeNodegroup; then these tags are
#   not needed. Without either, pods that select a label wait for ever while the group is empty.
GROUP=$(aws eks describe-nodegroup \
  --cluster-name "${CLUSTER:?the name of the cluster}" \
  --nodegroup-name gpu-spot \
  --region us-east-1 \
  --query 'nodegroup.resources.autoScalingGroups[0].name' \
  --output text)
aws autoscaling create-or-update-tags \
  --region us-east-1 \
  --tags \
    ResourceType=auto-scaling-group,ResourceId="${GROUP}",Key=k8s.io/cluster-autoscaler/node-template/label/eks.amazonaws.com/nodegroup,Value=gpu-spot,PropagateAtLaunch=false \
    ResourceType=auto-scaling-group,ResourceId="${GROUP}",Key=k8s.io/cluster-autoscaler/node-template/label/eks.amazonaws.com/capacityType,Value=SPOT,PropagateAtLaunch=false \
    ResourceType=auto-scaling-group,ResourceId="${GROUP}",Key=k8s.io/cluster-autoscaler/node-template/label/gpu,Value=true,PropagateAtLaunch=false \
    ResourceType=auto-scaling-group,ResourceId="${GROUP}",Key=k8s.io/cluster-autoscaler/node-template/taint/spot,Value=true:NoSchedule,PropagateAtLaunch=false \
    ResourceType=auto-scaling-group,ResourceId="${GROUP}",Key=k8s.io/cluster-autoscaler/node-template/taint/nvidia.com/gpu,Value=:NoSchedule,PropagateAtLaunch=false \
    ResourceType=auto-scaling-group,ResourceId="${GROUP}",Key=k8s.io/cluster-autoscaler/node-template/resources/nvidia.com/gpu,Value=1,PropagateAtLaunch=false

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
kubectl get nodes -l eks.amazonaws.com/nodegroup=gpu-spot --show-labels
kubectl get nodes,daemonsets -A -o json | spotwright pools check -
