"""AWS's own prices: EC2's spot price history, the Price List, and the catalogue of instance types."""
