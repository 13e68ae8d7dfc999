"""The edge: everything that talks to Prometheus, AWS or people."""
