"""Checks the API against its OpenAPI document: `python -m tests.contract` (docs/contributing/testing.md)."""
