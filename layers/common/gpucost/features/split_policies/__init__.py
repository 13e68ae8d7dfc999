"""What each split policy would charge business units for the same hours."""

MAX_DAYS = 31
"""The longest period of a comparison."""
