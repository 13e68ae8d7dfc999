"""Reads AWS prices: EC2's spot price history, the AWS Price List, and instance types."""
