"""Alerting without the outside world: what is watched, when it fires, who is told (docs/alerts.md)."""
