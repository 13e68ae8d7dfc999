"""The DynamoDB table: hours, rollups, prices, settings, and how each is stored."""
