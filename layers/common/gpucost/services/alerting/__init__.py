"""The alert function's job: decide rules on closed hours and on ticks, deliver what was decided (docs/alerts.md)."""
