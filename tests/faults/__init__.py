"""Faults, each planted in a copy of the repository, to see that the tests catch it (`make faults`)."""
