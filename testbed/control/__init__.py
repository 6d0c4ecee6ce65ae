"""What belongs to the control plane: credentials, API server, scheduler, and the controllers of workloads."""
