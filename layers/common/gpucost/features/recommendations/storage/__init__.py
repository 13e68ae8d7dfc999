"""Recommendations and their inputs in DynamoDB."""
