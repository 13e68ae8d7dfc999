"""What only recommendations read from Prometheus."""
