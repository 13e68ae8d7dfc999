"""Faults that are planted one at a time, to see that the tests catch each (`make faults`)."""
