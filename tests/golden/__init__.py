"""Golden answers: the product's recorded answers to recorded inputs, compared exactly while the code is rebuilt."""
