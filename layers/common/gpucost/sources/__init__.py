"""Reads data from Prometheus, AWS prices and the AWS bill."""
