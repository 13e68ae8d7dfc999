"""Generates the reference pages of `docs/reference/` from the code: `python -m authoring.reference [--check]`."""
