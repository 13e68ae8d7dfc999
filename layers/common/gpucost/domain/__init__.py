"""The product's own job, pure: no input or output, no clock, no AWS, no PromQL."""
