"""What belongs to the machine: processes, network namespaces, nodes and what stands beside a kubelet on a node."""
