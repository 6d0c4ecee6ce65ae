"""What AKS, GKE, EKS and Karpenter say about spot nodes: labels, taints and notices. Facts only, no IO."""
