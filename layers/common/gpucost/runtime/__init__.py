"""Shared by all functions: environment, messages, logs, AWS clients, secrets, and HTTP with limits."""
