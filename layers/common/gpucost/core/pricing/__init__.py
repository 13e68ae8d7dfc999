"""Pricing: the price book, the bill, and what a GPU-hour costs."""
