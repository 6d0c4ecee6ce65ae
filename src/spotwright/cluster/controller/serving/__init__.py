"""What one replica serves over TLS: its certificates, the webhook's registration, and the port that people read from."""
