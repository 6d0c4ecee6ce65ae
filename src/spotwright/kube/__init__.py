"""What the fields of Kubernetes' objects mean, by the rules of the API server: one reading for every part of the product."""
