"""As much of ``jupyter_client`` as a notebook component uses."""
