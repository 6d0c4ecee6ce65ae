"""Read the objects of Kubernetes: one reader for every command, the webhook, the recorder and compiled pipelines."""
