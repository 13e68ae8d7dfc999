"""The ledger's table: records, settings and the memory of alerts, in one DynamoDB table (docs/ledger.md)."""
