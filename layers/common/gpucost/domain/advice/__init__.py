"""Advice: what to change, what it saves, how sure that is. Pure; see docs/advice.md."""
