"""IAM for the embedded AWS: every request of a function is evaluated against that function's own policies."""
