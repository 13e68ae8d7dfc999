"""Recommendations: what to change, what it saves, how certain that is (docs/explanation/recommendations.md)."""
