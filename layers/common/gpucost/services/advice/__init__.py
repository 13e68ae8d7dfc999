"""The advise function's job, and what people do with advice (docs/advice.md)."""
