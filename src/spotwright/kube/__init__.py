"""The meaning of Kubernetes objects' fields by the API server's rules, read alike in all parts of the product."""
