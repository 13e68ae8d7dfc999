"""The kinds of recommendations."""
