"""Alerts: rules, states, notifications, digests (docs/alerts.md)."""
