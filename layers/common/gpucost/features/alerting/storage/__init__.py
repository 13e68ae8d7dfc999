"""Alert states, history and silences in DynamoDB."""
