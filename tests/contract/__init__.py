"""The API against its own OpenAPI document: `python -m tests.contract` (docs/testing.md)."""
