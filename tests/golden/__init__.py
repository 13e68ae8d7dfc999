"""Golden answers: recorded inputs, and what the product answers to them, compared exactly while the code is rebuilt."""
