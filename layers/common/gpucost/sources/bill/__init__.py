"""The bill, from the Data Exports in which AWS delivers it."""
