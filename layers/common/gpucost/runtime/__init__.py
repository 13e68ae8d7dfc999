"""What every function stands on: environment, messages, logs, AWS clients, secrets, HTTP with limits."""
