"""Daily exports to S3 in FOCUS columns (docs/how-to/exports.md)."""
