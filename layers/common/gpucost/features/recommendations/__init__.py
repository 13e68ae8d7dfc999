"""Recommendations: what to change, what it saves, how certain that is (docs/recommendations.md)."""
