"""Alerts: rules, states, notifications, digests (docs/how-to/alerts.md)."""
