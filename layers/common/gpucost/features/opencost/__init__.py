"""OpenCost's allocation API, answered from this product's records."""
