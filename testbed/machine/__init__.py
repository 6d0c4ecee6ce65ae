"""The machine's part: processes, network namespaces, nodes and the services beside a kubelet on a node."""
