"""Facts about AKS, GKE, EKS and Karpenter: the labels, taints and notices of their nodes. No IO."""
