"""Prometheus queries that only recommendations need."""
