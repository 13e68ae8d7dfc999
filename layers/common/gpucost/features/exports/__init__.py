"""Daily exports to S3 in FOCUS columns (docs/exports.md)."""
