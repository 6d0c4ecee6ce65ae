# gpu: 0 to 2 on-demand nodes of g4dn.xlarge on EKS, as a managed node group.
# No command has run yet. Read the commands, set their variables, then pass them to a shell.

# Does the region have the machine, and is quota left?
# - A zone that is not listed does not offer the machine.
# - Quota counts vCPUs, for each group of families: the row with On-Demand and the first letter of the machine.
aws ec2 describe-instance-type-offerings \
  --location-type availability-zone \
  --filters Name=instance-type,Values=g4dn.xlarge \
  --region "${AWS_REGION:?the region of the cluster}" \
  --output table
aws service-quotas list-service-quotas \
  --service-code ec2 \
  --query 'Quotas[?contains(QuotaName, '"'"'On-Demand'"'"')].[QuotaName,QuotaCode,Value]' \
  --region "${AWS_REGION:?the region of the cluster}" \
  --output table

# Make the group.
# - On-demand: the label eks.amazonaws.com/capacityType is ON_DEMAND.
# - GPUs: the machine brings them, the NVIDIA AMI its driver. The device plugin is yours to install, and must
#   tolerate the taints.
# - EKS sets no GPU taint: add taints: ["nvidia.com/gpu=present:NoSchedule"] to the pool in spotwright.yaml, or
#   work without GPUs may fill it
# - desiredSize is min_nodes (0). The autoscaler changes it later; a desired size is never part of an update.
# - --subnets decides the zones. With zonal volumes make a group for each zone.
aws eks create-nodegroup \
  --cluster-name "${CLUSTER:?the name of the cluster}" \
  --nodegroup-name gpu \
  --capacity-type ON_DEMAND \
  --instance-types g4dn.xlarge \
  --ami-type AL2023_x86_64_NVIDIA \
  --scaling-config minSize=0,maxSize=2,desiredSize=0 \
  --subnets ${SUBNETS:?the subnets of the nodes, with spaces between them} \
  --node-role "${NODE_ROLE:?the ARN of the IAM role of the nodes}"
aws eks wait nodegroup-active \
  --cluster-name "${CLUSTER:?the name of the cluster}" \
  --nodegroup-name gpu

# From zero: tell a cluster autoscaler what a node of the empty group would be.
# - It reads labels and taints of the group itself where its role may eks:DescribeNodegroup; then these tags are
#   not needed. Without either, pods that select a label wait for ever while the group is empty.
GROUP=$(aws eks describe-nodegroup \
  --cluster-name "${CLUSTER:?the name of the cluster}" \
  --nodegroup-name gpu \
  --query 'nodegroup.resources.autoScalingGroups[0].name' \
  --output text)
aws autoscaling create-or-update-tags \
  --tags \
    ResourceType=auto-scaling-group,ResourceId="${GROUP}",Key=k8s.io/cluster-autoscaler/node-template/label/eks.amazonaws.com/nodegroup,Value=gpu,PropagateAtLaunch=false \
    ResourceType=auto-scaling-group,ResourceId="${GROUP}",Key=k8s.io/cluster-autoscaler/node-template/label/eks.amazonaws.com/capacityType,Value=ON_DEMAND,PropagateAtLaunch=false \
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
kubectl get nodes -l eks.amazonaws.com/nodegroup=gpu --show-labels
kubectl get nodes,daemonsets -A -o json | spotwright pools check -
# warning: EKS sets no GPU taint: add taints: ["nvidia.com/gpu=present:NoSchedule"] to the pool in spotwright.yaml, or work without GPUs may fill it
